"""Detection of a repository's tools, branch and remote, and of installed agents, for its first `mz.yaml`.

The type of a detected stack, and file checks that never fail.

Detection of a project's test, lint, build and set-up commands, where its files are unambiguous.

The project's own scripts (package.json, Makefile, justfile) come before the defaults of its language. Runs nothing, and
ignores files that cannot be read.

Detection of the test and lint commands of a Python project.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from mz_engine.agents.contract import AuthCheck
from mz_engine.agents.registry import built_in_adapters
from mz_engine.decoding.text_file import read_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import PullRequests
from mz_engine.setup.templates import DetectedProject

COMMAND_NAMES = ("test", "lint", "build")


class Stack(msgspec.Struct, frozen=True):
    """Commands of one language or tool, as its files define them."""

    name: str
    commands: dict[str, str] = {}
    """By purpose: `test`, `lint`, `build`."""
    setup: tuple[str, ...] = ()
    """Commands that a new worktree needs before these work."""
    keep: tuple[str, ...] = ()
    """Ignored directories that are slow to rebuild."""


def has_file(root: Path, name: str) -> bool:
    with suppress(OSError):
        return (root / name).is_file()
    return False


def has_matching_file(root: Path, pattern: str) -> bool:
    with suppress(OSError):
        return any(path.is_file() for path in root.glob(pattern))
    return False


def read_text_or_empty(root: Path, name: str) -> str:
    """Return the text of a file; empty if there is no such text file."""
    with suppress(MzError, OSError):
        return read_text(root / name, name) if (root / name).is_file() else ""
    return ""


IMPORTS_PYTEST = re.compile(r"^\s*(?:import|from) pytest\b", re.MULTILINE)
PYTEST_STYLE = re.compile(r"^(?:async )?def test_", re.MULTILINE)
UNITTEST = re.compile(r"^\s*(?:import|from) (?:unittest|django\.test)\b", re.MULTILINE)
TEST_FILE = re.compile(r"(?:test.*|.*_test)\.py\Z")
SETTINGS_FILES = (
    "pyproject.toml",
    "setup.cfg",
    "tox.ini",
    "requirements.txt",
    "requirements-dev.txt",
    "dev-requirements.txt",
)
SKIPPED_FOLDERS = frozenset({"node_modules", "venv", "env", "build", "dist", "site-packages", "vendor", "target"})
FILES_MAX = 20_000
"""Maximum number of directory entries to read; bigger trees also have tests near the top."""
TESTS_MAX = 200
FOLDERS_MAX = 3

MANAGERS = (
    ("uv.lock", "uv run ", "uv sync"),
    ("poetry.lock", "poetry run ", "poetry install"),
    ("pdm.lock", "pdm run ", "pdm sync"),
    ("Pipfile.lock", "pipenv run ", "pipenv sync --dev"),
)
"""Lock file, command prefix to run in the environment, command to create the environment."""


def python_stack(root: Path) -> Stack | None:
    """Return the stack of a Python project; None if it is none."""
    settings = "".join(read_text_or_empty(root, name) for name in SETTINGS_FILES)
    tests = sorted(_test_files(root), key=lambda path: (len(path.parts), path))[:TESTS_MAX]
    if not tests and not any(has_file(root, name) for name in (*SETTINGS_FILES, "setup.py", "uv.lock")):
        return None
    _, prefix, setup = next((manager for manager in MANAGERS if has_file(root, manager[0])), ("", "", ""))
    candidates = {"test": _test_command(root, settings, tests, prefix), "lint": _lint_command(root, settings, prefix)}
    commands = {name: command for name, command in candidates.items() if command}
    return Stack("python", commands, (setup,) if setup else (), (".venv",))


def _test_command(root: Path, settings: str, tests: list[Path], prefix: str) -> str | None:
    python = f"{prefix}python" if prefix else "python3"
    texts = [read_text_or_empty(root, str(path)) for path in tests]
    configured = "pytest" in settings or any(has_file(root, name) for name in ("pytest.ini", "conftest.py"))
    if configured or any(IMPORTS_PYTEST.search(text) for text in texts):
        return f"{python} -m pytest -q"
    if has_file(root, "manage.py") and "django" in read_text_or_empty(root, "manage.py"):
        return f"{python} manage.py test"
    if "[testenv" in read_text_or_empty(root, "tox.ini"):
        return f"{prefix}tox"
    unittest_files = [path for path, text in zip(tests, texts, strict=True) if UNITTEST.search(text)]
    if unittest_files:
        return _unittest_command(root, unittest_files, python)
    return f"{python} -m pytest -q" if any(PYTEST_STYLE.search(text) for text in texts) else None


def _unittest_command(root: Path, tests: list[Path], python: str) -> str:
    """Return a unittest command. Discovery only enters packages, so other folders are named; `src` goes on the path."""
    starts = (_discovery_start(root, path.parent) for path in tests)
    loose = tuple(dict.fromkeys(top for top in starts if top is not None))[:FOLDERS_MAX]
    prefix = "PYTHONPATH=src " if (root / "src").is_dir() and not has_file(root, "src/__init__.py") else ""
    pattern = "" if any(path.name.startswith("test") for path in tests) else " -p '*_test.py'"
    if not loose:
        return f"{prefix}{python} -m unittest" + (f" discover{pattern}" if pattern else "")
    return " && ".join(f"{prefix}{python} -m unittest discover -s {quote(str(top))}{pattern}" for top in loose)


def _discovery_start(root: Path, folder: Path) -> Path | None:
    """Return the folder from which discovery reaches `folder`; None: the root."""
    start = folder
    while start != Path() and has_file(root, str(start / "__init__.py")):
        start = start.parent
    return None if start == Path() else start


def _lint_command(root: Path, settings: str, prefix: str) -> str | None:
    ruff = "[tool.ruff" in settings or has_file(root, "ruff.toml") or has_file(root, ".ruff.toml")
    flake8 = "[flake8]" in settings or has_file(root, ".flake8")
    program = "ruff" if ruff else "flake8" if flake8 else ""
    if not program or not (prefix or shutil.which(program)):
        return None  # A gate whose program is missing would stop every run.
    return f"{prefix}{program} check ." if ruff else f"{prefix}{program}"


def _test_files(root: Path) -> Iterator[Path]:
    """Return test files, relative to `root`; skips hidden, generated and third-party folders."""
    count = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)
        count += len(folders) + len(files)
        relative = Path(folder).relative_to(root)
        yield from (relative / name for name in files if TEST_FILE.match(name))
        if count > FILES_MAX:
            return


NPM_PLACEHOLDER = "no test specified"
"""Part of the test script that `npm init` writes."""

NodeManager = tuple[str, str, str]
NODE_MANAGERS: tuple[NodeManager, ...] = (
    ("pnpm-lock.yaml", "pnpm", "pnpm install --frozen-lockfile"),
    ("bun.lock", "bun", "bun install --frozen-lockfile"),
    ("bun.lockb", "bun", "bun install --frozen-lockfile"),
    ("yarn.lock", "yarn", "yarn install --frozen-lockfile"),
    ("package-lock.json", "npm", "npm ci"),
    ("npm-shrinkwrap.json", "npm", "npm ci"),
)
"""Lock file, program, command that installs the locked versions."""
YARN_BERRY = "yarn install --immutable"


class DefaultCommands(msgspec.Struct, frozen=True):
    """Default commands of a project with a marker file."""

    marker: str
    """A file name, or a pattern of names."""
    stack: Stack


MAVEN = {"test": "mvn -B test", "build": "mvn -B -DskipTests package"}
GRADLE = {"test": "gradle test", "build": "gradle assemble"}
DOTNET = {"test": "dotnet test", "build": "dotnet build"}

DEFAULT_COMMANDS: tuple[DefaultCommands, ...] = (
    DefaultCommands("Cargo.toml", Stack("rust", {"test": "cargo test", "build": "cargo build"}, keep=("target",))),
    DefaultCommands(
        "go.mod", Stack("go", {"test": "go test ./...", "lint": "go vet ./...", "build": "go build ./..."})
    ),
    DefaultCommands("mvnw", Stack("java", {name: line.replace("mvn", "./mvnw") for name, line in MAVEN.items()})),
    DefaultCommands("pom.xml", Stack("java", MAVEN, keep=("target",))),
    DefaultCommands("gradlew", Stack("java", {name: f"./gradlew{line[6:]}" for name, line in GRADLE.items()})),
    DefaultCommands("build.gradle", Stack("java", GRADLE, keep=("build", ".gradle"))),
    DefaultCommands("build.gradle.kts", Stack("java", GRADLE, keep=("build", ".gradle"))),
    DefaultCommands("mix.exs", Stack("elixir", {"test": "mix test"}, ("mix deps.get",), ("deps", "_build"))),
    DefaultCommands("Package.swift", Stack("swift", {"test": "swift test", "build": "swift build"}, keep=(".build",))),
    DefaultCommands("*.sln", Stack("dotnet", DOTNET)),
    DefaultCommands("*.csproj", Stack("dotnet", DOTNET)),
)


def find_stacks(root: Path) -> tuple[Stack, ...]:
    """Return the detected stacks, the most certain first; several may define the same command."""
    finders: Iterable[Callable[[Path], Stack | None]] = (
        _node_stack,
        _deno_stack,
        _make_stack,
        _just_stack,
        _ruby_stack,
        _php_stack,
    )
    stacks = [finder(root) for finder in finders]
    stacks += [default.stack for default in DEFAULT_COMMANDS if has_matching_file(root, default.marker)]
    stacks.append(python_stack(root))
    return tuple(stack for stack in stacks if stack is not None)


def _node_stack(root: Path) -> Stack | None:
    package = _read_json(root, "package.json")
    if package is None:
        return None
    scripts = package.get("scripts")
    project_scripts = {name: scripts.get(name) for name in COMMAND_NAMES} if isinstance(scripts, dict) else {}
    lock = next((manager for manager in NODE_MANAGERS if has_file(root, manager[0])), None)
    manager = lock[1] if lock else "npm"
    commands = {
        name: "npm test" if (manager, name) == ("npm", "test") else f"{manager} run {name}"
        for name, script in project_scripts.items()
        if isinstance(script, str) and script.strip() and NPM_PLACEHOLDER not in script
    }
    return Stack("node", commands, _node_setup(root, package, lock), ("node_modules",))


def _node_setup(root: Path, package: dict[str, Any], lock: NodeManager | None) -> tuple[str, ...]:
    if lock is not None:
        return (YARN_BERRY if lock[1] == "yarn" and has_file(root, ".yarnrc.yml") else lock[2],)
    needs = any(package.get(key) for key in ("dependencies", "devDependencies"))
    return ("npm install --no-package-lock",) if needs else ()


def _deno_stack(root: Path) -> Stack | None:
    for name in ("deno.json", "deno.jsonc"):
        if has_file(root, name):
            tasks = (_read_json(root, name) or {}).get("tasks")
            commands = {
                task: f"deno task {task}" for task in COMMAND_NAMES if isinstance(tasks, dict) and task in tasks
            }
            return Stack("deno", {"test": "deno test", "lint": "deno lint", **commands})
    return None


def _make_stack(root: Path) -> Stack | None:
    text = next(
        (text for name in ("GNUmakefile", "makefile", "Makefile") if (text := read_text_or_empty(root, name))), ""
    )
    return _target_stack(text, "make", r"^{name}\s*:(?!=)")


def _just_stack(root: Path) -> Stack | None:
    text = next(
        (text for name in ("justfile", "Justfile", ".justfile") if (text := read_text_or_empty(root, name))), ""
    )
    return _target_stack(text, "just", r"^@?{name}\s*:(?!=)")


def _target_stack(text: str, program: str, pattern: str) -> Stack | None:
    targets = [name for name in COMMAND_NAMES if re.search(pattern.format(name=name), text, re.MULTILINE)]
    return Stack(program, {name: f"{program} {name}" for name in targets}) if targets else None


def _ruby_stack(root: Path) -> Stack | None:
    gems = read_text_or_empty(root, "Gemfile")
    if not gems:
        return None
    commands = {}
    if has_file(root, ".rspec") or re.search(r"""gem ["']rspec""", gems):
        commands["test"] = "bundle exec rspec"
    elif has_file(root, "bin/rails") and (root / "test").is_dir():
        commands["test"] = "bin/rails test"
    elif re.search(r"TestTask|task :test\b", read_text_or_empty(root, "Rakefile")):
        commands["test"] = "bundle exec rake test"
    if has_file(root, ".rubocop.yml"):
        commands["lint"] = "bundle exec rubocop"
    return Stack("ruby", commands, ("bundle install",), ("vendor/bundle",))


def _php_stack(root: Path) -> Stack | None:
    composer = _read_json(root, "composer.json")
    if composer is None:
        return None
    scripts = composer.get("scripts")
    commands = {name: f"composer run {name}" for name in COMMAND_NAMES if isinstance(scripts, dict) and name in scripts}
    if has_file(root, "phpunit.xml") or has_file(root, "phpunit.xml.dist"):
        commands.setdefault("test", "vendor/bin/phpunit")
    return Stack("php", commands, ("composer install --no-interaction",), ("vendor",))


def _read_json(root: Path, name: str) -> dict[str, Any] | None:
    with suppress(ValueError, MzError):
        value = json.loads(read_text_or_empty(root, name) or "null")
        return value if isinstance(value, dict) else None
    return None


GIT_SECONDS = 10


def detect(root: Path) -> DetectedProject:
    """Detect tools, branch and remote of the repository at `root`. Only reads; ignores what cannot be read."""
    stacks = find_stacks(root)
    commands: dict[str, str] = {}
    for stack in stacks:
        commands = {**stack.commands, **commands}
    return DetectedProject(
        stacks=tuple(dict.fromkeys(stack.name for stack in stacks)),
        base=_base_branch(root),
        has_commit=_git(root, "rev-parse", "--quiet", "--verify", "HEAD^{commit}") is not None,
        remote=_remote_name(root),
        commands={name: commands[name] for name in COMMAND_NAMES if name in commands},
        setup=tuple(dict.fromkeys(command for stack in stacks for command in stack.setup)),
        keep=tuple(dict.fromkeys(path for stack in stacks for path in stack.keep)),
    )


def installed_agents(environment: Mapping[str, str]) -> dict[str, AuthCheck]:
    """Return the login check of every installed agent, by name; bundled agents with a key if no other is installed.

    Starts each agent once for its version; calls no model.
    """
    adapters = built_in_adapters()
    bundled = {name for name, adapter in adapters.items() if adapter.capabilities().bundled}
    checks = {name: adapter.check_auth(environment) for name, adapter in adapters.items()}
    installed = {name: check for name, check in checks.items() if name not in bundled and check.code != "tool-missing"}
    return installed or {name: checks[name] for name in bundled if not checks[name].code}


def _base_branch(root: Path) -> str | None:
    """Return the remote's default branch if it exists here too, else the branch that is checked out."""
    head = _git(root, "symbolic-ref", "--quiet", "--short", f"refs/remotes/{_remote_name(root)}/HEAD")
    default = head.partition("/")[2] if head else ""
    if default and _git(root, "rev-parse", "--quiet", "--verify", f"refs/heads/{default}"):
        return default
    return _git(root, "symbolic-ref", "--quiet", "--short", "HEAD")


def _remote_name(root: Path) -> str | None:
    names = (_git(root, "remote") or "").split()
    default = PullRequests().remote
    return default if default in names else next(iter(names), None)


def _git(root: Path, *arguments: str) -> str | None:
    """Return git's output; None if it fails or prints nothing."""
    command = ["git", "-C", str(root), *arguments]
    with suppress(OSError, subprocess.TimeoutExpired):
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
        return result.stdout.strip() or None if result.returncode == 0 else None
    return None
