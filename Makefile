# Everything that people and CI run. Each target is complete in itself: it builds what it needs first.

BIN := .venv/bin
CODE := events projections engine recordings qa cli tests tools
WORKERS ?= 2
# More than the processors, because many tests wait for processes.
TEST_WORKERS ?= 3
SAMPLE ?= 40
unexport PYTHONDONTWRITEBYTECODE  # Else each process compiles everything again.

.PHONY: demo test tests quick lint types fix clis recordings replay check figures mutants lock dev help
.DEFAULT_GOAL := help

help:  ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: .venv/installed  ## Build a virtual environment and watch three features being delivered from bundled recordings
	@$(BIN)/mz demo

test:  ## Everything: lint, types, import contracts, every test, the real agent CLIs included, and mz check
	@$(MAKE) --no-print-directory -j4 lint types tests
	@$(BIN)/mz check -j $(WORKERS)

tests: .venv/developed clis  ## Every test, the real agent CLIs included
	@echo "Running all tests"
	@$(BIN)/pytest -q -n $(TEST_WORKERS) --dist worksteal

quick: .venv/developed  ## The tests that need neither seconds each nor an agent CLI
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not slow and not cli" --hypothesis-profile=quick \
	    --snapshot-disable-unused

lint: .venv/developed  ## Style, layout of code, and which package may import what
	@echo "Checking style and imports"
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo 'Some files are not formatted: run `make fix`.' >&2; exit 1; }
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/pytest -qq tests/test_tidy.py

types: .venv/developed  ## Types, strictly, tests included
	@echo "Checking types"
	@$(BIN)/mypy $(CODE)

fix: .venv/developed  ## Format, and fix what ruff can fix
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet

clis:  ## Install the real agent CLIs, at the versions in agents/*/install.txt, and Yarn into .clis
	@scripts/install-clis

replay: .venv/developed  ## Replay all recordings of the project with processes
	@$(BIN)/mz replay -j $(WORKERS) --real recordings/mz_recordings/bundled recordings/library

check: .venv/developed  ## Everything that needs no agent: mz itself, then pipelines, artifacts, replays and drift
	@$(BIN)/mz doctor --self-test
	@$(BIN)/mz check -j $(WORKERS)

recordings: .venv/developed clis  ## Record all cassettes again, with the real CLIs against a scripted model
	@$(BIN)/python -m tests.support.rerecord
	@$(BIN)/mz replay -j $(WORKERS) --keep recordings/mz_recordings/bundled recordings/library

figures: .venv/developed  ## Measure what mz costs, and renew the table in docs/figures.md; needs an idle machine
	@$(BIN)/python -m tools.bench all --out docs/figures.json
	@$(BIN)/python -m tools.bench.page docs/figures.json docs/figures.md

mutants: .venv/mutants  ## Change the core in small ways, and count the changes that its fast tests detect; every change with SAMPLE=all
	@$(BIN)/python -m tools.mutants $(if $(filter all,$(SAMPLE)),,--sample $(SAMPLE))

lock: .venv/mutants  ## Take the newest versions of what development needs into scripts/constraints.txt; then run `make test`
	@$(BIN)/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable '.[dev,mutants]'
	@$(BIN)/python -m pip freeze --exclude-editable > scripts/constraints.txt

dev: .venv/developed  ## Build the virtual environment for development

.venv/installed: pyproject.toml scripts/constraints.txt scripts/make-venv
	@scripts/make-venv .

.venv/developed: pyproject.toml scripts/constraints.txt scripts/make-venv
	@scripts/make-venv '.[dev]'
	@touch .venv/installed

.venv/mutants: .venv/developed
	@scripts/make-venv '.[mutants]'
	@touch $@
