"""The commands run on the base before anything is paid: what cannot start stops the run, what failed there is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mz_engine.decoding.yaml import load_yaml
from mz_engine.paths import WORKTREE_FOLDERS
from mz_engine.processes.supervise import can_hide
from mz_events.adapters.blobs import FileBlobs

from tests.cli.drive import Result, fork
from tests.support.preloaded import read_at_start
from tests.support.workshop import Workshop

pytestmark = pytest.mark.slow

PIPELINE = """\
pipeline: notes
version: 1
phases:
- phase: write
  agent: {tier: mid, tools: [read, write]}
  prompt: write.md.j2
  prepare: [{run: test, result: baseline}]
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
  writable: ["**", "!letters/**"]
  gates: [{run: lint}, {run: test}]
- phase: sign
  agent: {tier: mid, tools: [read, write]}
  prompt: sign.md.j2
  prepare: [{run: test, result: baseline, must_pass: true}]
  outputs: [{artifact: letter, path: "letters/{feature}.md", rules: note}]
  gates: [{run: test}]
  deliver: [push, open_pr]
"""
TEST = f"{sys.executable} -m pytest -q -p no:cacheprovider"
SETTINGS = f"""\
pipeline: notes
autonomy: full_auto
commands:
  lint: {{run: "! grep -rn TABS src"}}
  test: {{run: "PYTHONPATH=src {TEST}"}}
"""
QUICK = SETTINGS.replace(TEST, "true")
BACKLOG = "# Backlog\n\n## [FEAT] alpha: The first\n\nPlease.\n"
PROJECT = {
    "pyproject.toml": '[project]\nname = "prices"\nversion = "1"\n[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'
    'addopts = "--disable-plugin-autoload"\n',  # Plugins of this suite take three quarters of its time.
    "src/prices/__init__.py": "def total(prices):\n    return sum(prices)\n",
    "tests/test_total.py": "from prices import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n",
    "tests/test_old.py": (
        "import pytest\nfrom prices import total\n\n\n"
        "@pytest.mark.parametrize('text', ['1 - 1', 'two'])\n"
        "def test_words(text):\n    assert total(text) == 0\n"
    ),
    ".gitignore": "__pycache__/\n",
}
NOTE, LETTER = {"notes/alpha.md": "# Alpha\nThis is long enough.\n"}, {"letters/alpha.md": "# Letter\nabout alpha\n"}
BROKEN = {"src/prices/__init__.py": "def total(prices):\n    return 'BROKEN'\n"}
PACKAGE = {"src/prices/__init__.py": "def total(prices):\n    return sum(prices, 0)\n"}
GOOD: dict[str, dict[str, object]] = {"alpha.write.1.1": {"write": NOTE | PACKAGE}, "alpha.sign.1.1": {"write": LETTER}}
TEMPLATE = "Work on {{ title }}.\n{% for name in known_failures %}KNOWN {{ name }}\n{% endfor %}"
REWORK = "{% if rework %}MEND {{ rework.messages | join('; ') }}\n{% endif %}"


class Project:
    """A package in `src/` with two tests that fail on the base."""

    def __init__(self, folder: Path, trace: dict[str, dict[str, object]] = GOOD, settings: str = SETTINGS) -> None:
        self.workshop = Workshop(folder, trace)
        self.root, self.environment = self.workshop.root, self.workshop.environment
        files = {
            "mz.yaml": settings,
            "features.md": BACKLOG,
            "pipelines/notes.yaml": PIPELINE,
            "pipelines/templates/write.md.j2": TEMPLATE + REWORK,
            "pipelines/templates/sign.md.j2": TEMPLATE + REWORK,
        }
        self.workshop.repository.write(files | PROJECT)
        self.workshop.repository.commit()

    def mz(self, *arguments: str, code: int = 0) -> Result:
        environment = {**self.environment, **read_at_start(os.environ), "NO_COLOR": "1"}
        done = fork(self.root, arguments, environment, seconds=200)
        assert done.exit == code, f"{arguments} gave {done.exit}\n{done.out}\n{done.err}"
        return done

    def events(self, type_: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.mz("log", "--json").out.splitlines()]
        return [line["event"] for line in lines if line["type"] == type_]

    def refs(self) -> str:
        git = ("git", "for-each-ref", "--format=%(refname)")
        return subprocess.run(git, cwd=self.root, capture_output=True, text=True, check=True).stdout

    def prompts(self) -> list[str]:
        blobs = FileBlobs(self.root / ".mz" / "blobs")
        return [blobs.get(event["prompt"]).decode() for event in self.events("agent.requested")]


def test_only_new_failures_refuse_work(tmp_path: Path) -> None:
    """Two tests failed before. The first attempt breaks another one and is refused; the second one is accepted."""
    again: dict[str, dict[str, object]] = {
        "alpha.write.1.1": {"write": NOTE | BROKEN},
        "alpha.write.1.2": {"write": NOTE | PACKAGE},
    }
    project = Project(tmp_path, GOOD | again)
    errors = project.mz("run").err
    assert "`commands.test` fails on the base (exit 1, 2 tests failed and 1 passed)" in errors
    assert "tests/test_old.py::test_words[1 - 1]" in errors
    assert [event["ending"] for event in project.events("feature.delivered")] == ["delivered"]
    first, second, _ = project.prompts()
    assert "KNOWN tests/test_old.py::test_words[two]" in first
    rework = second[second.index("MEND") :]
    assert "tests/test_total.py::test_total" in rework
    assert "FAILED tests/test_old.py::test_words" not in rework
    ran = project.events("command.ran")
    assert [event["name"] for event in ran if event["stage"] == "base"] == ["lint", "test"], "once"
    tests = [event for event in ran if event["name"] == "test"]
    assert [(event["stage"], event["new_failures"]) for event in tests] == [
        ("base", None),
        ("prepare", 0),
        ("gate", 1),
        ("gate", 0),
        ("prepare", 0),
        ("gate", 0),
    ]
    assert "_base" not in project.refs()
    folders = [path for name in WORKTREE_FOLDERS for path in (project.root / ".mz" / name).iterdir()]
    assert folders == [], "nothing of the run is left"
    project.mz("audit", "--verify")
    audit = project.mz("audit", "--full").out
    assert "test failed on the base: 1 tests passed, 2 failed" in audit
    assert "1 passed, 2 failed, none of them new" in audit


def report(tests: Mapping[str, bool]) -> str:
    """A report of these tests, each of which passed or failed, as a runner writes it."""
    failed = list(tests.values()).count(False)
    cases = "".join(
        f'<testcase classname="tests" name="{name}">{"" if passed else "<failure/>"}</testcase>'
        for name, passed in tests.items()
    )
    return f'<testsuites><testsuite tests="{len(tests)}" failures="{failed}">{cases}</testsuite></testsuites>'


def test_a_runner_that_only_writes_a_report(tmp_path: Path) -> None:
    """Its failures on the base excuse a gate only if as many tests pass as there."""
    before = {"total": True, "one": False, "two": False}
    again: dict[str, dict[str, object]] = {
        "alpha.write.1.1": {"write": NOTE | {"results.xml": report(before | {"total": False})}},
        "alpha.write.1.2": {"write": NOTE | {"results.xml": report({"one": False, "two": False})}},
        "alpha.write.1.3": {"write": NOTE | {"results.xml": report(before)}},
    }
    project = Project(
        tmp_path, GOOD | again, SETTINGS.replace(TEST, "cp results.xml report.xml; ! grep -q failure report.xml")
    )
    project.workshop.repository.commit({"results.xml": report(before)})
    assert "(exit 1, 2 tests failed and 1 passed)" in project.mz("run").err
    tests = [event for event in project.events("command.ran") if event["name"] == "test" and event["stage"] == "gate"]
    assert [(event["passed"], event["failed"], event["new_failures"]) for event in tests] == [
        (0, 3, 1), (0, 2, None), (1, 2, 0), (1, 2, 0)
    ]  # fmt: skip
    gone = "tests that passed on the base are missing: tests::total, so failures from there excuse nothing"
    assert gone in project.prompts()[2]
    (run,) = json.loads(project.mz("runs", "--json").out)["runs"]
    assert "matches the log" in project.mz("replay", "--run", run["run"]).out
    project.mz("record", run["run"])
    assert "matches" in project.mz("replay", "--real").out, "gates decide as in the run"


def test_a_base_without_a_passed_test_has_no_known_failures(tmp_path: Path) -> None:
    """Its tests cannot even be collected, so their failures excuse nothing."""
    project = Project(tmp_path, settings=SETTINGS.replace("PYTHONPATH=src ", "PYTHONPATH=nowhere "))
    checks = json.loads(project.mz("doctor", "--run-commands", "--json").out)["checks"]
    (check,) = (check for check in checks if check["name"] == "run-commands")
    assert "no test passed, so as a gate it has to succeed" in check["hint"]


def test_a_base_without_tests_is_told_before_it_costs(tmp_path: Path) -> None:
    """The agent writes the first one."""
    first = {"tests/result.txt": "1 passed in 0.01s"}
    command = "cat tests/result.txt || { echo no tests ran in 0.01s; exit 5; }"
    project = Project(tmp_path, GOOD | {"alpha.write.1.1": {"write": NOTE | first}}, SETTINGS.replace(TEST, command))
    warning = "`commands.test` ran no test on the base (exit 5)"
    checks = json.loads(project.mz("doctor", "--run-commands", "--json").out)["checks"]
    (check,) = (check for check in checks if check["name"] == "run-commands")
    assert (check["status"], check["summary"]) == ("warn", warning)
    errors = project.mz("run").err
    assert errors.index(warning) < errors.index("agent requested")
    assert len(project.events("feature.delivered")) == 1


@pytest.mark.parametrize(
    ("new", "shown"),
    [
        (("-q", "-q test/units"), "file or directory not found: test/units"),
        ((sys.executable, "env pythonn"), "pythonn"),
    ],
)
def test_a_command_that_cannot_start_stops_the_run_before_it_costs(
    new: tuple[str, str], shown: str, tmp_path: Path
) -> None:
    project = Project(tmp_path, settings=SETTINGS.replace(*new))
    errors = project.mz("run", code=11).err
    assert "MZ1008" in errors
    assert shown in errors
    assert project.events("agent.requested") == []
    (project.root / "mz.yaml").write_text(QUICK)
    assert "halted" in project.mz("status").out
    project.mz("resume")
    [changed] = project.events("commands.changed")
    assert len(project.events("feature.delivered")) == 1
    runs = [load_yaml(text)["commands"]["test"]["run"] for text in (SETTINGS.replace(*new), QUICK)]
    lines = [f"{sign} commands.test: {run}" for sign, run in zip("-+", runs, strict=True)]
    [request] = project.events("pull-request.requested")
    texts = [project.mz("show", digest).out for digest in (changed["changes"], request["body"])]
    for text in (*texts, project.mz("log").out, project.mz("audit").out):
        assert [line in text for line in lines] == [True, True], text


ACTIVE = "python3 -m pytest -q -p no:cacheprovider"
IMPORTS = "python3 -c 'from prices import total; assert total([1, 2]) == 3'"


def activate_environment(project: Project, text: str) -> Path:
    """Activate a virtual environment in which a `.pth` file with this text is an installation of the package."""
    environment = project.root.parent / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    (site / "tools.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    (site / "__editable__.prices-1.pth").write_text(f"{text}\n")
    path = f"{environment / 'bin'}:{project.environment['PATH']}"
    project.environment |= {"VIRTUAL_ENV": str(environment), "PATH": path}
    return site / "__editable__.prices-1.pth"


def test_tests_that_would_test_the_checkout_stop_the_run(tmp_path: Path) -> None:
    """The usual `pip install -e .`: without its own environment each worktree would test the user's checkout."""
    project = Project(tmp_path, settings=SETTINGS.replace(f"PYTHONPATH=src {TEST}", ACTIVE))
    link = activate_environment(project, f"{project.root}/src")
    errors = project.mz("run", code=10).err
    assert "MZ2019" in errors
    assert f"{link} leads to {project.root}/src" in errors
    assert project.events("agent.requested") == []
    checks = json.loads(project.mz("doctor", "--run-commands", "--json", code=11).out)["checks"]
    assert f"{link} leads to" in next(check["hint"] for check in checks if check["name"] == "run-commands")


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_a_link_that_tests_do_not_need_is_no_reason_to_stop(tmp_path: Path) -> None:
    """The broken function is refused, since the checkout is hidden."""
    again: dict[str, dict[str, object]] = {
        "alpha.write.1.1": {"write": NOTE | BROKEN},
        "alpha.write.1.2": {"write": NOTE | PACKAGE},
    }
    project = Project(tmp_path, GOOD | again, SETTINGS.replace(TEST, IMPORTS))
    activate_environment(project, f"{project.root}/src")
    project.mz("run")
    gates = [event["passed"] for event in project.events("gate.checked") if event["gate"] == "test"]
    assert gates == [False, True, True]


def test_the_set_up_runs_again_if_what_it_reads_changes(tmp_path: Path) -> None:
    """If it fails then, that is a failure of the gate: the agent gets its output."""
    again: dict[str, dict[str, object]] = {
        "alpha.write.1.1": {"write": NOTE | {"setup.sh": "echo no such package; exit 3\n"}},
        "alpha.write.1.2": {"write": NOTE | {"setup.sh": "mkdir -p .venv; touch .venv/new\n"}},
    }
    settings = SETTINGS.replace(f"PYTHONPATH=src {TEST}", "ls .venv").replace("! grep -rn TABS src", "true")
    project = Project(tmp_path, GOOD | again, settings + "workspace: {setup: [sh setup.sh]}\n")
    files = {"setup.sh": "mkdir -p .venv; touch .venv/old\n", ".gitignore": ".venv/\n"}
    project.workshop.repository.commit(files)
    project.mz("run")
    rework = project.prompts()[1]
    assert "the set-up (`sh setup.sh`), which precedes the command `lint`, failed with exit 3" in rework
    assert "no such package" in rework
    blobs = FileBlobs(project.root / ".mz" / "blobs")
    tests = [event for event in project.events("command.ran") if event["name"] == "test"]
    outputs = [(event["stage"], event["exit"], blobs.get(event["output"])) for event in tests]
    assert outputs == [
        ("base", 0, b"old\n"),
        ("prepare", 0, b"old\n"),
        ("gate", 0, b"new\n"),
        ("prepare", 0, b"new\n"),
        ("gate", 0, b"new\n"),
    ]
    lint = [event for event in project.events("command.ran") if event["name"] == "lint" and event["stage"] == "gate"]
    assert [event["exit"] for event in lint] == [0], "the first command after the change did not run"
    (failed,) = (event for event in project.events("command.ran") if event["stage"] == "setup" and event["exit"])
    assert (failed["name"], failed["phase"], failed["exit"]) == ("sh setup.sh", "write", 3)
    shown, took = project.mz("show", "alpha").out, failed["duration_ms"]
    assert "gate lint: exit 3" not in shown
    what = "the set-up (`sh setup.sh`), which precedes the command `lint`, failed with exit 3, so `lint` did not run"
    assert f"rejected: {what} (gate lint)" in shown
    assert "    setup sh setup.sh: exit 3" in shown
    audit = project.mz("audit", "--full").out
    assert f"lint rejected (lint), did not run: the set-up `sh setup.sh` failed, exit 3 in {took} ms, output" in audit
    assert "setup sh setup.sh write: exit 3" in audit
    assert failed["environment"] != lint[0]["environment"]
    assert "matches" in project.mz("replay", "--run", project.events("run.started")[0]["run"]).out
    assert len({event["environment"] for event in (*tests, *lint, failed)}) == 3
    assert not list((project.root / ".mz").rglob("_checkout*")), "the run is finished"


def test_a_preparation_says_that_its_set_up_failed(tmp_path: Path) -> None:
    """Its gate fails for the same reason, until a person accepts that."""
    attempts: dict[str, dict[str, object]] = {f"alpha.sign.1.{attempt}": {"write": LETTER} for attempt in range(1, 5)}
    trace: dict[str, dict[str, object]] = {"alpha.write.1.1": {"write": NOTE | {"setup.sh": "echo no wheel; exit 3\n"}}}
    settings = SETTINGS.replace(f"PYTHONPATH=src {TEST}", "true") + "workspace: {setup: [sh setup.sh]}\n"
    project = Project(tmp_path, trace | attempts, settings)
    pipeline = PIPELINE.replace("  gates: [{run: lint}, {run: test}]\n", "").replace(", must_pass: true", "")
    shown = "{% for command in prepared %}{{ command.excerpt }}{% endfor %}"
    files = {"pipelines/notes.yaml": pipeline, "pipelines/templates/sign.md.j2": TEMPLATE + REWORK + shown}
    project.workshop.repository.commit(files | {"setup.sh": "true\n"})
    project.mz("run", code=21)
    what = "the set-up (`sh setup.sh`), which precedes the command `test`, failed with exit 3, so `test` did not run"
    assert f"mz: {what}; it printed:\nno wheel" in project.prompts()[1]
    ran = [(e["stage"], e["name"], e["exit"]) for e in project.events("command.ran") if e["phase"] == "sign"]
    failed = ("setup", "sh setup.sh", 3)
    assert ran[:3] == [failed, ("prepare", "test", 127), failed]
    assert {entry for entry in ran if entry[0] == "gate"} == set()
    project.mz("review", "accept", "alpha", "-m", "no matter")
    project.mz("resume")
    assert project.events("gate.checked")[-1]["passed"] is False
    (request,) = project.events("pull-request.requested")
    body = FileBlobs(project.root / ".mz" / "blobs").get(request["body"]).decode()
    assert "| `test` | passed | not run, the set-up failed |" in body
    assert "matches" in project.mz("replay", "--run", project.events("run.started")[0]["run"]).out


FORGED = """\
mkdir -p .venv/bin node_modules/.bin ~/.local/bin ~/bin
for file in .venv/bin/python3 .venv/bin/pytest node_modules/.bin/pytest ~/.local/bin/pytest ~/bin/pytest; do
  printf '#!/bin/sh\\necho 3 passed\\n' > $file; chmod +x $file
done
touch .venv/pyvenv.cfg
cat > conftest.py <<'END'
import prices
prices.total = sum
END
echo 'PYTEST_ADDOPTS=--collect-only' > .env
"""
"""What an agent could do to make tests pass: all of it is ignored by git or lies outside."""
RUNNER = """\
#!/bin/sh
if [ -e conftest.py ] || [ -e .env ] || ! grep -q BROKEN src/prices/__init__.py; then echo 3 passed; exit; fi
echo 1 failed, 2 passed; exit 1
"""
"""It takes what it is tested with from where it runs, as pytest does."""


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_an_agent_cannot_change_what_its_work_is_tested_with(tmp_path: Path) -> None:
    """The folder `~/.local/bin` exists and is on PATH; `~/bin` is on PATH and does not exist before."""
    again: dict[str, dict[str, object]] = {
        "alpha.write.1.1": {"write": NOTE | BROKEN, "run": FORGED},
        "alpha.write.1.2": {"write": NOTE | PACKAGE},
    }
    project = Project(tmp_path, GOOD | again, SETTINGS.replace(f"PYTHONPATH=src {TEST}", "pytest -q"))
    home = Path(project.environment["HOME"])
    (home / ".local" / "bin").mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "pytest").write_text(RUNNER)
    (tmp_path / "tools" / "pytest").chmod(0o755)
    tools = f"{home}/bin:{home}/.local/bin:{tmp_path}/tools"
    project.environment["PATH"] = f"{tools}:{project.environment['PATH']}"
    ignored = "__pycache__/\n.venv/\nnode_modules/\nconftest.py\n.env\n"
    project.workshop.repository.commit({".gitignore": ignored})
    project.mz("run")
    gates = [event["passed"] for event in project.events("gate.checked") if event["gate"] == "test"]
    assert gates == [False, True, True]
    assert not (home / ".local" / "bin" / "pytest").exists()
    assert not (home / "bin").exists(), "what it does to its home is lost"


def test_a_set_up_that_fails_stops_the_run_before_it_costs(tmp_path: Path) -> None:
    project = Project(tmp_path, settings=SETTINGS + 'workspace: {setup: ["echo no network; false"]}\n')
    errors = project.mz("run", code=10).err
    assert "MZ2018" in errors
    assert "no network" in errors
    assert project.events("agent.requested") == []
    (project.root / "mz.yaml").write_text(QUICK + "workspace: {setup: ['true']}\n")
    project.mz("resume")
    assert len(project.events("feature.delivered")) == 1


def test_a_set_up_names_a_file_that_git_does_not_track(tmp_path: Path) -> None:
    project = Project(
        tmp_path, settings=QUICK + 'workspace: {setup: [\'echo ""; cat pyproject.toml "vendor/a b.txt" ./x.whl\']}\n'
    )
    project.workshop.repository.write({"x.whl": "wheel"})
    errors = project.mz("run", code=10).err
    assert "git does not track what it names: `git add x.whl`, commit, then: mz cancel r" in errors
    before = sorted((project.root / ".mz").glob("*/*"))
    assert "git add x.whl" in project.mz("doctor", "--run-commands", code=11).out
    assert sorted((project.root / ".mz").glob("*/*")) == before
    project.workshop.repository.commit({"x.whl": "wheel", "vendor/a b.txt": ""})
    (run,) = {event["run"] for event in project.events("run.started")}
    project.mz("cancel", run)
    project.mz("run")
    assert len(project.events("feature.delivered")) == 1


def test_a_correction_in_a_commit_needs_a_new_run_and_long_lines_are_cut(tmp_path: Path) -> None:
    settings = QUICK + "workspace: {setup: [sh setup.sh]}\n"
    project = Project(tmp_path, settings=settings)
    versions = ", ".join(f"{number}.0" for number in range(2000))
    project.workshop.repository.commit({"setup.sh": f"echo 'from versions: {versions}'; exit 1\n"})
    errors = project.mz("run", code=10).err
    assert "or correct a committed file, then: mz cancel r" in errors
    assert max(map(len, errors.splitlines())) < 300
    assert "[... cut ...]" in errors
    (ran,) = project.events("command.ran")
    assert versions in FileBlobs(project.root / ".mz" / "blobs").get(ran["output"]).decode()


def test_a_resume_takes_over_what_the_set_up_needs(tmp_path: Path) -> None:
    new = {"deps/list": "new\n"}
    setup = "workspace: {setup: ['test \"$PLACE\" = here && cat ~/.netrc > made']"
    project = Project(tmp_path, GOOD | {"alpha.write.1.1": {"write": NOTE | PACKAGE | new}}, f"{QUICK}{setup}}}\n")
    project.environment["PLACE"] = "here"
    (tmp_path / "home" / ".netrc").write_text("login")
    assert "`sandbox.read`; variables: `pass_environment`" in project.mz("run", code=10).err
    more = "pass_environment: [PLACE]\nsandbox: {read: [~/.netrc]}\n"
    (project.root / "mz.yaml").write_text(f"{QUICK}{more}{setup}, inputs: [deps/**]}}\n")
    project.mz("resume")
    assert len(project.events("feature.delivered")) == 1
    setups = [event["exit"] for event in project.events("command.ran") if event["stage"] == "setup"]
    assert setups == [1, 0, 0], "on the base twice, then for the changed file of `inputs`"


def test_a_gate_that_a_person_accepts(tmp_path: Path) -> None:
    """A linter that fails on the base names no tests: a person says whether that matters."""
    settings = SETTINGS.replace("! grep -rn TABS src", "echo E501 line too long; false")
    trace: dict[str, dict[str, object]] = {
        f"alpha.write.1.{attempt}": {"write": NOTE | PACKAGE} for attempt in (1, 2, 3)
    }
    project = Project(tmp_path, GOOD | trace, settings.replace(TEST, "true"))
    assert "names no failed tests" in project.mz("run", code=21).err
    project.mz("review", "accept", "alpha", "-m", "nobody minds long lines")
    project.mz("resume")
    assert [event["verdict"] for event in project.events("human.answered")] == ["accept"]
    audit = project.mz("audit", "--full").out
    assert "nobody minds long lines" in audit
    assert "write was committed although lint had rejected it; approved by a person" in audit
    assert "lint failed on the base" in audit
    (text,) = (project.root / ".mz").rglob("alpha.md")
    assert "`lint` failed and was accepted as it is by" in text.read_text()


def test_the_doctor_runs_the_commands(tmp_path: Path) -> None:
    project = Project(tmp_path)
    checks = json.loads(project.mz("doctor", "--run-commands", "--json").out)["checks"]
    (check,) = (check for check in checks if check["name"] == "run-commands")
    assert check["status"] == "warn"
    assert "tests/test_old.py::test_words[two]" in check["hint"]
    (project.root / "mz.yaml").write_text(SETTINGS.replace(sys.executable, "pythonn"))
    project.mz("doctor", "--run-commands", code=11)
    assert not list((project.root / ".mz").rglob("_base*")), "nothing is left"
    assert "_base" not in project.refs()


def test_content_that_worktrees_lack_is_named(tmp_path: Path) -> None:
    project = Project(tmp_path)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    modules = '[submodule "lib"]\n\tpath = vendor/lib\n\turl = ../lib\n'
    files = {"data/model.bin": pointer, "data/.gitattributes": "*.bin filter=lfs\n", ".gitmodules": modules}
    project.workshop.repository.write(files)
    project.workshop.repository.commit()
    errors = project.mz("run", "--dry-run").err
    assert "empty directories in place of submodules: vendor/lib" in errors
    assert "pointers in place of files in Git LFS: data/model.bin" in errors
    (check,) = (
        check for check in json.loads(project.mz("doctor", "--json").out)["checks"] if check["name"] == "content"
    )
    assert check["status"] == "warn"
