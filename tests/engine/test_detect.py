"""What `mz init` finds out by itself, and the files that it proposes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import jsonschema
import pytest
from mz_engine.backlog.item import plan_backlog
from mz_engine.backlog.markdown import parse_backlog
from mz_engine.config.schema import config_schema
from mz_engine.decoding.yaml import load_yaml
from mz_engine.run.base import SEVERAL_CHECKS
from mz_engine.run.settings import load_config
from mz_engine.setup.detect import detect, installed_agents
from mz_engine.setup.templates import DetectedProject, InitChoices, starter_backlog, starter_config

from tests.cli.fakeagent import FakeAgent
from tests.support.gitrepo import GitRepo

DETECTED = [
    DetectedProject(),
    DetectedProject(
        base="main", commands={"test": "npm test", "lint": "npm run lint"}, setup=("npm ci",), keep=("a b",)
    ),
    DetectedProject(base='odd"branch', commands={"test": "sh -c 'a: b # c' \"x\\\\y\""}, remote="upstream"),
]
UNITTEST = "import unittest\n"
NPM = '{"scripts": {"test": "jest", "lint": "eslint .", "build": 5}}'
YARN = NPM[:-1] + ', "packageManager": "yarn@%s"}'
MANAGED = NPM[:-1] + ', "dependencies": {"a": "1"}, "packageManager": "%s"}'
YARN_PNP = "YARN_ENABLE_GLOBAL_CACHE=false yarn install --immutable"
BUNDLER = ("bundle config set --local path .bundle", "bundle install")


@pytest.mark.parametrize("detected", DETECTED)
def test_the_starter_file_passes_its_own_schema(tmp_path: Path, detected: DetectedProject) -> None:
    choices = InitChoices(
        agent="other", autonomy="supervised", strategy="draft", test=detected.commands.get("test", "")
    )
    text = starter_config(detected, choices)
    assert text.splitlines()[:2] == [
        "# yaml-language-server: $schema=.mz/schema/mz.yaml.json", "# $schema: .mz/schema/mz.yaml.json",
    ]  # fmt: skip
    jsonschema.Draft7Validator(config_schema()).validate(load_yaml(text))
    (tmp_path / "mz.yaml").write_text(text)
    config = load_config(tmp_path, {}, {}).config
    assert {name: command.run for name, command in config.commands.items()} == detected.commands
    assert (config.base, config.workspace.setup) == (detected.base, detected.setup)
    assert (config.agent, config.autonomy, config.pull_requests.strategy) == ("other", "supervised", "draft")
    assert config.pull_requests.remote == (detected.remote or "origin")


def test_what_a_person_says_wins(tmp_path: Path) -> None:
    detected = DetectedProject(commands={"test": "npm test", "lint": "npm run lint"})
    (tmp_path / "mz.yaml").write_text(starter_config(detected, InitChoices(test="")))
    assert list(load_config(tmp_path, {}, {}).config.commands) == ["lint"]
    (tmp_path / "mz.yaml").write_text(starter_config(DetectedProject(), InitChoices(test="make check")))
    assert load_config(tmp_path, {}, {}).config.commands["test"].run == "make check"


def test_the_starter_backlog_has_one_feature_that_no_run_pays_for() -> None:
    items = parse_backlog(starter_backlog(), "features.md")
    assert [item.id for item in items] == ["first-feature"]
    assert plan_backlog(items)[0] == ()


def tree(root: Path, **files: str) -> DetectedProject:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with patch("mz_engine.setup.detect._git", lambda *_: ""):  # What four processes would say: there is no repository.
        return detect(root)


@pytest.mark.parametrize(
    ("files", "test", "setup"),
    [
        ({"package.json": NPM, "package-lock.json": "{}", "Makefile": "test:\n"}, "npm test", "npm ci"),
        ({"package.json": NPM, "yarn.lock": ""}, "yarn run test", "yarn install --frozen-lockfile"),
        ({"package.json": NPM, "yarn.lock": "", ".yarnrc.yml": ""}, "yarn run test", YARN_PNP),
        ({"package.json": NPM, "yarn.lock": "", ".yarnrc.yml": "nodeLinker: pnp\n"}, "yarn run test", YARN_PNP),
        ({"package.json": YARN % "4.9.1+sha1.f00", "yarn.lock": ""}, "yarn run test", YARN_PNP),
        ({"package.json": YARN % "1.22.22", "yarn.lock": ""}, "yarn run test", "yarn install --frozen-lockfile"),
        (
            {"package.json": NPM, "yarn.lock": "", ".yarnrc.yml": 'a: 1\nnodeLinker: "node-modules"\n'},
            "yarn run test",
            "yarn install --immutable",
        ),
        ({"package.json": NPM, "pnpm-lock.yaml": ""}, "pnpm run test", "pnpm install --frozen-lockfile"),
        ({"package.json": NPM, "bun.lock": ""}, "bun run test", "bun install --frozen-lockfile"),
        ({"package.json": NPM[:-1] + ', "dependencies": {"a": "1"}}'}, "npm test", "npm install --no-package-lock"),
        ({"package.json": NPM[:-1] + ', "workspaces": ["a"]}'}, "npm test", "npm install --no-package-lock"),
        ({"package.json": NPM}, "npm test", None),
        ({"package.json": MANAGED % "pnpm@9.15.0"}, "pnpm run test", "pnpm install --no-lockfile"),
        ({"package.json": MANAGED % "bun@1.2.0"}, "bun run test", "bun install --no-save"),
        ({"package.json": MANAGED % "yarn@1.22.22"}, "yarn run test", "yarn install --no-lockfile"),
        ({"package.json": MANAGED % "yarn@4.9.1"}, "yarn run test", YARN_PNP.replace("--", "--no-")),
        ({"package.json": MANAGED % "npm@11.0.0"}, "npm test", "npm install --no-package-lock"),
        ({"package.json": MANAGED % "pnpm@9.15.0", "package-lock.json": "{}"}, "npm test", "npm ci"),
    ],
)
def test_detection_of_node(tmp_path: Path, files: dict[str, str], test: str, setup: str | None) -> None:
    detected = tree(tmp_path, **files)
    assert (detected.commands["test"], detected.setup) == (test, (setup,) if setup else ())
    assert "build" not in detected.commands
    assert detected.stacks[0] == "node"


@pytest.mark.parametrize(
    ("files", "test"),
    [
        ({"Gemfile": "gem 'rspec'\n"}, "bundle exec rspec"),
        ({"gems.rb": "gem 'rake'\n", "Rakefile": "task :test\n"}, "bundle exec rake test"),
        ({"Gemfile": "gem 'rails'\n", "bin/rails": "", "test/a.rb": "", "Makefile": "test:\n"}, "make test"),
    ],
)
def test_gems_are_installed_in_the_worktree(tmp_path: Path, files: dict[str, str], test: str) -> None:
    """What a command adds to HOME is lost; every later `bundle` reads the setting, also one in a script."""
    detected = tree(tmp_path, **files)
    assert (detected.commands["test"], detected.setup, detected.keep) == (test, BUNDLER, (".bundle",))


def test_a_tracked_setting_of_bundler_is_not_changed(tmp_path: Path) -> None:
    repo = GitRepo(tmp_path)
    repo.commit({"Gemfile": "gem 'rspec'\n", ".bundle/config": "---\nBUNDLE_JOBS: 2\n", ".rubocop.yml": ""})
    detected = detect(tmp_path)
    assert detected.setup == ("BUNDLE_PATH=.bundle bundle install",)
    assert detected.commands == {
        "test": "BUNDLE_PATH=.bundle bundle exec rspec",
        "lint": "BUNDLE_PATH=.bundle bundle exec rubocop",
    }


def test_detection_of_a_placeholder_script_and_of_broken_json(tmp_path: Path) -> None:
    script = 'echo \\"Error: no test specified\\" && exit 1'
    assert tree(tmp_path, **{"package.json": f'{{"scripts": {{"test": "{script}"}}}}'}).commands == {}
    assert tree(tmp_path, **{"package.json": "{"}).commands == {}
    assert tree(tmp_path, **{"package.json": "[]"}).commands == {}


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"pyproject.toml": '[project.optional-dependencies]\ndev = ["pytest"]\n'}, "python3 -m pytest -q"),
        ({"tests/test_a.py": "import pytest\n"}, "python3 -m pytest -q"),
        ({"test/unit/deep/a_test.py": "from pytest import mark\n"}, "python3 -m pytest -q"),
        ({"spec/test_a.py": "def test_it() -> None:\n    assert True\n"}, "python3 -m pytest -q"),
        ({"uv.lock": "", "tests/test_a.py": "import pytest\n"}, "uv run python -m pytest -q"),
        ({"poetry.lock": "", "tests/test_a.py": UNITTEST}, "poetry run python -m unittest discover -s tests"),
        ({"tests/test_a.py": UNITTEST, "tests/__init__.py": ""}, "python3 -m unittest"),
        ({"tests/test_a.py": UNITTEST}, "python3 -m unittest discover -s tests"),
        ({"test/test_a.py": UNITTEST}, "python3 -m unittest discover -s test"),
        ({"lib/checks/test_a.py": UNITTEST}, "python3 -m unittest discover -s lib/checks"),
        ({"my tests/test_a.py": UNITTEST}, "python3 -m unittest discover -s 'my tests'"),
        ({"pkg/__init__.py": "", "pkg/test_a.py": UNITTEST}, "python3 -m unittest"),
        ({"a/test_a.py": UNITTEST, "b/test_b.py": UNITTEST},
         'for folder in a b; do python3 -m unittest discover -s "$folder" || failed=1; done; [ -z "$failed" ]'),
        ({"src/p/__init__.py": "", "tests/test_a.py": UNITTEST},
         "PYTHONPATH=src python3 -m unittest discover -s tests"),
        ({"tests/a_test.py": UNITTEST}, "python3 -m unittest discover -s tests -p '*_test.py'"),
        ({"test_a.py": UNITTEST}, "python3 -m unittest"),
        ({"node_modules/x/test_a.py": UNITTEST, ".venv/test_a.py": UNITTEST}, None),
        ({"tox.ini": "[testenv]\ncommands = x\n"}, "tox"),
        ({"manage.py": "import django\n", "setup.py": ""}, "python3 manage.py test"),
        ({"Cargo.toml": ""}, "cargo test --no-fail-fast"),
        ({"go.mod": ""}, "go test ./..."),
        ({"pom.xml": ""}, "mvn -B -fae test"),
        ({"pom.xml": "", "mvnw": ""}, "./mvnw -B -fae test"),
        ({"build.gradle.kts": "", "gradlew": ""}, "./gradlew test --continue"),
        ({"Gemfile": "gem 'rspec'\n"}, "bundle exec rspec"),
        ({"Gemfile": "gem 'rails'\n", "bin/rails": "", "test/a.rb": ""}, "bin/rails test"),
        ({"Gemfile": "gem 'rake'\n", "Rakefile": "Rake::TestTask.new\n"}, "bundle exec rake test"),
        ({"composer.json": "{}", "phpunit.xml": ""}, "vendor/bin/phpunit"),
        ({"mix.exs": ""}, "mix test"),
        ({"app.csproj": ""}, "dotnet test"),
        ({"deno.json": '{"tasks": {"test": "x"}}'}, "deno task test"),
        ({"Makefile": "all:\ntest: all\n\ttrue\n"}, "make test"),
        ({"Makefile": "test:\n", "Cargo.toml": ""}, "make test"),
        ({"justfile": "test:\n    true\n"}, "just test"),
        ({"Makefile": "test := 5\n"}, None),
        ({"README.md": ""}, None),
    ],
)  # fmt: skip
def test_detection_of_the_test_command(tmp_path: Path, files: dict[str, str], command: str | None) -> None:
    assert tree(tmp_path, **files).commands.get("test") == command


@pytest.mark.parametrize(
    "files",
    [
        {"tests/test_a.py": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n"},
        {"pkg/__init__.py": "", "pkg/tests/__init__.py": "",
         "pkg/tests/test_a.py": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n"},
        {"src/p.py": "X = 1\n",
         "test/test_a.py": "import unittest, p\nclass T(unittest.TestCase):\n    def test_a(self): assert p.X\n"},
    ],
)  # fmt: skip
def test_a_recognised_command_runs_the_tests(tmp_path: Path, files: dict[str, str]) -> None:
    command = tree(tmp_path, **files).commands["test"].replace("python3", sys.executable)
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "Ran 1 test" in done.stderr) == (0, True), done.stderr


def test_tests_of_each_folder_run_although_those_of_the_first_fail(tmp_path: Path) -> None:
    case = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): assert {}\n"
    for passes, code in ((True, 0), (False, 1)):
        files = {"a/test_a.py": case.format(passes), "my b/test_b.py": case.format(True), "requirements.txt": "x"}
        project = tree(tmp_path, **files)
        assert project.setup, "the command is one of Python"
        command = project.commands["test"].replace("python3", sys.executable)
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("Ran 1 test")) == (code, 2)
        assert not SEVERAL_CHECKS.search(command)


PROJECT = '[project]\nname = "a"\n'
EXTRAS = f'{PROJECT}[project.optional-dependencies]\ntest = ["pytest"]\ndev = ["tox"]\n'
GROUPS = '[dependency-groups]\ntest = ["pytest"]\ndev = [{include-group = "test"}, "pytest-cov"]\n'
PYTEST = {"tests/test_a.py": "import pytest\n"}


@pytest.mark.parametrize(
    ("files", "install"),
    [
        ({"pyproject.toml": PROJECT, "src/a.py": "", **PYTEST}, "-e . pytest"),
        ({"pyproject.toml": EXTRAS, **PYTEST}, "-e '.[dev,test]'"),
        ({"setup.py": "", "tests/test_a.py": UNITTEST}, "-e ."),
        ({"requirements.txt": "requests", "requirements-dev.txt": "pytest", **PYTEST},
         "-r requirements.txt -r requirements-dev.txt"),
        ({"pyproject.toml": PROJECT, "tox.ini": "[testenv]\n"}, None),
        ({"pyproject.toml": "project = 'a'\n", **PYTEST}, None),
        ({"pyproject.toml": f"{PROJECT}optional-dependencies = ['dev']\n", **PYTEST}, "-e . pytest"),
        (PYTEST, None),
    ],
)  # fmt: skip
def test_the_set_up_of_a_python_project(tmp_path: Path, files: dict[str, str], install: str | None) -> None:
    """Each worktree gets an environment of its own, which leads to that worktree."""
    lines = ("python3 -m venv .venv", f".venv/bin/python -m pip install --quiet {install}")
    assert tree(tmp_path, **files).setup == (lines if install else ())


@pytest.mark.parametrize(
    ("text", "install", "groups"),
    [
        (PROJECT + GROUPS, "-e . dependency-groups", "dev test"),
        (EXTRAS + GROUPS, "-e '.[dev,test]' dependency-groups", "dev test"),
        (GROUPS, "dependency-groups", "dev test"),
        ("[dependency-groups]\ntests = ['x']\n", "dependency-groups pytest", "tests"),
        (PROJECT + "[dependency-groups]\ndocs = ['sphinx']\n", "-e . pytest", None),
        (PROJECT + "dependency-groups = ['dev']\n", "-e . pytest", None),
    ],
)
def test_groups_of_requirements_are_installed(tmp_path: Path, text: str, install: str, groups: str | None) -> None:
    """By a package that any pip can install; it reads them at each set-up, and follows `include-group`."""
    line = f".venv/bin/pip-install-dependency-groups {groups}"
    assert tree(tmp_path, **{"pyproject.toml": text, **PYTEST}).setup == (
        *("python3 -m venv .venv", f".venv/bin/python -m pip install --quiet {install}"),
        *([line] if groups else []),
    )


@pytest.mark.parametrize(
    ("section", "setup"),
    [
        ("poetry", "POETRY_VIRTUALENVS_IN_PROJECT=true poetry install"),
        ("pdm", "pdm install"),  # `pdm sync` refuses to work without a lock file.
        ("pdm.dev-dependencies", "pdm install"),
        ("uv", "uv sync"),
        ("uv.sources", "uv sync"),
    ],
)
def test_the_set_up_of_a_manager_without_a_lock_file(tmp_path: Path, section: str, setup: str) -> None:
    detected = tree(tmp_path, **{"pyproject.toml": f"{PROJECT}[tool.{section}]\n", **PYTEST})
    assert detected.setup == (setup,)
    assert detected.commands["test"] == f"{setup.split()[-2]} run python -m pytest -q"


POETRY_GROUPS = "[tool.poetry.group.test]\noptional = true\n[tool.poetry.extras]\ntesting = ['x']\n"


@pytest.mark.parametrize(
    ("lock", "text", "options"),
    [
        ("uv.lock", GROUPS, " --group dev --group test"),
        ("uv.lock", EXTRAS, " --extra dev --extra test"),
        ("uv.lock", PROJECT + "[dependency-groups]\ndocs = ['sphinx']\ntests = ['x']\n", " --group tests"),
        ("uv.lock", GROUPS + "[tool.uv.workspace]\nmembers = ['a']\nexclude = ['b']\n",
         " --all-packages --group dev --group test"),
        ("uv.lock", PROJECT + "[tool]\nuv = 1\n", ""),
        ("poetry.lock", POETRY_GROUPS, " --with test --extras testing"),
        ("poetry.lock", EXTRAS + GROUPS, " --extras dev --extras test"),
        ("pdm.lock", EXTRAS + GROUPS, ""),
    ],
)  # fmt: skip
def test_the_set_up_of_a_manager_installs_what_tests_need(tmp_path: Path, lock: str, text: str, options: str) -> None:
    """Some leave groups or extras out unless they are named; PDM refuses those that its lock file does not have."""
    (setup,) = tree(tmp_path, **{"pyproject.toml": text, lock: "", **PYTEST}).setup
    assert setup.partition(" sync")[2] + setup.partition(" install")[2] == options


def test_a_linter_of_the_active_environment_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "ruff").write_text("")
    (tmp_path / "env" / "bin" / "ruff").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'env' / 'bin'}")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    detected = tree(tmp_path / "a", **{"pyproject.toml": f"{PROJECT}[tool.ruff]\n", "tests/test_a.py": UNITTEST})
    assert detected.setup[1].endswith("install --quiet -e . ruff")


def test_detection_of_linters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    ruff = {"pyproject.toml": "[tool.ruff]\n"}
    assert "lint" not in tree(tmp_path / "a", **ruff).commands
    for name in ("ruff", "flake8"):
        (tmp_path / "bin" / name).write_text("")
        (tmp_path / "bin" / name).chmod(0o755)
    assert tree(tmp_path / "b", **ruff).commands["lint"] == "ruff check ."
    assert tree(tmp_path / "c", **{"setup.cfg": "[flake8]\n"}).commands["lint"] == "flake8"
    assert tree(tmp_path / "d", **{**ruff, "uv.lock": ""}).commands["lint"] == "uv run ruff check ."


def test_several_languages_at_once(tmp_path: Path) -> None:
    detected = tree(tmp_path, **{"package.json": NPM, "package-lock.json": "", "Cargo.toml": "", "uv.lock": "",
                              "pyproject.toml": ""})  # fmt: skip
    assert detected.commands == {"test": "npm test", "lint": "npm run lint", "build": "cargo build"}
    assert detected.setup == ("npm ci", "uv sync")
    assert detected.keep == ("node_modules", "target", ".venv")
    assert detected.stacks == ("node", "rust", "python")


def test_files_that_cannot_be_read_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "package.json").mkdir()
    (tmp_path / "Makefile").symlink_to("Makefile")
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\x00")
    assert detect(tmp_path).commands == {}


@pytest.mark.slow
def test_detection_of_branch_and_remote(tmp_path: Path) -> None:
    assert detect(tmp_path) == DetectedProject()
    repo = GitRepo(tmp_path / "repo")
    assert (detect(repo.root).base, detect(repo.root).has_commit) == ("main", False)
    commit = repo.commit({"a": "1"})
    repo.git("checkout", "--quiet", "-b", "topic")
    assert (detect(repo.root).base, detect(repo.root).has_commit, detect(repo.root).remote) == ("topic", True, None)
    repo.git("remote", "add", "upstream", "https://example.invalid/a/b.git")
    assert detect(repo.root).remote == "upstream"
    repo.git("remote", "add", "origin", "https://example.invalid/a/c.git")
    repo.git("update-ref", "refs/remotes/origin/main", commit)
    repo.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    assert (detect(repo.root).base, detect(repo.root).remote) == ("main", "origin")
    repo.git("branch", "--quiet", "-D", "main")
    assert detect(repo.root).base == "topic"


@pytest.mark.slow
def test_agents_that_are_installed(tmp_path: Path) -> None:
    agent = FakeAgent(tmp_path / "tools", "idle")
    actual = {name: check.version for name, check in installed_agents(agent.environment).items()}
    assert actual == {"claude-code": "2.1.197"}
    assert installed_agents({"PATH": str(tmp_path)}) == {}
    assert list(installed_agents({"PATH": str(tmp_path), "ANTHROPIC_API_KEY": "k"})) == ["anthropic"]
