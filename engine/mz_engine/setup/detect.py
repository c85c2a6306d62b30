"""Detection of a repository's tools, branch and remote, and of installed agents, for its first `mz.yaml`.

Test, lint, build and set-up commands are detected where a project's files are unambiguous. Its own scripts
(package.json, Makefile, justfile) come before the defaults of its language. Runs nothing of the project, and ignores
files that cannot be read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, partial, reduce
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import msgspec

from mz_engine.agents.contract import AuthCheck
from mz_engine.agents.registry import built_in_adapters
from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import decode_yaml
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.repository import output_as_user
from mz_engine.model.config import PullRequests
from mz_engine.ports import RepositoryUnusable
from mz_engine.setup.templates import DetectedProject

T = TypeVar("T")
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


class WorkflowPrograms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    preinstalled: tuple[str, ...]
    installs: dict[str, str]


class Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `stacks.yaml`, which explains it."""

    stacks: dict[str, Stack]
    node_managers: dict[str, tuple[str, str]]
    node_unlocked: dict[str, str]
    python_managers: dict[str, tuple[str, str, dict[str, str]]]
    python_settings: tuple[str, ...]
    requirements: tuple[str, ...]
    test_extras: tuple[str, ...]
    linters: dict[str, tuple[str, tuple[str, ...], str]]
    skipped_folders: tuple[str, ...]
    workflow_programs: WorkflowPrograms


@cache
def tables() -> Tables:
    return decode_yaml((files("mz_engine.setup") / "stacks.yaml").read_text("utf-8"), "stacks.yaml", Tables)


TARGETS = (
    ("make", ("GNUmakefile", "makefile", "Makefile"), r"^{name}\s*:(?!=)"),
    ("just", ("justfile", "Justfile", ".justfile"), r"^@?{name}\s*:(?!=)"),
)
"""Program, its files, and the line that begins a target."""

NPM_PLACEHOLDER = "no test specified"
"""Part of the test script that `npm init` writes."""
BERRY = re.compile(r"yarn@(?!1\.)")
PNP = "YARN_ENABLE_GLOBAL_CACHE=false "
"""Keeps the packages in the worktree: without `node_modules`, tests read them where the installation left them."""
NO_PNP = re.compile(r"""^nodeLinker:\s*["']?(?:node-modules|pnpm)\b""", re.MULTILINE)
BUNDLE_LOCAL = "bundle config set --local path .bundle"
"""Keeps gems in the worktree, in the folder that Ruby projects ignore, where every later `bundle` finds them."""
BUNDLE_PATH = "BUNDLE_PATH=.bundle "
"""Does so for one command, where git tracks the file that BUNDLE_LOCAL would change."""
IMPORTS_PYTEST = re.compile(r"^\s*(?:import|from) pytest\b", re.MULTILINE)
PYTEST_STYLE = re.compile(r"^(?:async )?def test_", re.MULTILINE)
UNITTEST = re.compile(r"^\s*(?:import|from) (?:unittest|django\.test)\b", re.MULTILINE)
TEST_FILE = re.compile(r"(?:test.*|.*_test)\.py\Z")
ENTRIES_MAX = 20_000
"""Maximum number of directory entries to read; bigger trees also have tests near the top."""
TESTS_MAX = 200
FOLDERS_MAX = 3


def detect(root: Path) -> DetectedProject:
    """Detect tools, branch and remote of the repository at `root`. Only reads; ignores what cannot be read."""
    candidates = [_node_stack(root), _deno_stack(root), *_target_stacks(root), _ruby_stack(root), _php_stack(root)]
    candidates += [stack for pattern, stack in tables().stacks.items() if _has_file(root, pattern)]
    stacks = [stack for stack in (*candidates, _python_stack(root)) if stack is not None]  # The most certain first.
    commands = {name: line for stack in reversed(stacks) for name, line in stack.commands.items()}
    remotes = _git(root, "remote").split()
    remote = PullRequests().remote if PullRequests().remote in remotes else next(iter(remotes), None)
    return DetectedProject(
        stacks=tuple(dict.fromkeys(stack.name for stack in stacks)),
        base=_base_branch(root, remote),
        has_commit=bool(_git(root, "rev-parse", "--quiet", "--verify", "HEAD^{commit}")),
        remote=remote,
        commands={name: commands[name] for name in COMMAND_NAMES if name in commands},
        setup=tuple(dict.fromkeys(command for stack in stacks for command in stack.setup)),
        keep=tuple(dict.fromkeys(path for stack in stacks for path in stack.keep)),
    )


def installed_agents(environment: Mapping[str, str]) -> dict[str, AuthCheck]:
    """Return the login check of every installed agent, by name; bundled ones with a key if there is no other. Starts
    each agent once for its version; calls no model."""
    adapters = built_in_adapters()
    bundled = {name for name, adapter in adapters.items() if adapter.capabilities().bundled}
    checks = {name: adapter.check_auth(environment) for name, adapter in adapters.items()}
    installed = {name: check for name, check in checks.items() if name not in bundled and check.code != "tool-missing"}
    return installed or {name: checks[name] for name in bundled if not checks[name].code}


def _base_branch(root: Path, remote: str | None) -> str | None:
    """Return the remote's default branch if it exists here too, else the branch that is checked out."""
    default = _git(root, "symbolic-ref", "--quiet", "--short", f"refs/remotes/{remote}/HEAD").partition("/")[2]
    if default and _git(root, "rev-parse", "--quiet", "--verify", f"refs/heads/{default}"):
        return default
    return _git(root, "symbolic-ref", "--quiet", "--short", "HEAD") or None


def _git(root: Path, *arguments: str) -> str:
    with suppress(RepositoryUnusable):
        return output_as_user(root, os.environ, *arguments)
    return ""


# stacks ---------------------------------------------------------------------------------------------------------------
def _node_stack(root: Path) -> Stack | None:
    package = _read_table(root, "package.json")
    if package is None:
        return None
    declared, unlocked = str(package.get("packageManager")), tables().node_unlocked
    name = declared.partition("@")[0]
    program, install = _find_manager(root, tables().node_managers) or (name if name in unlocked else "npm", "")
    commands = {
        name: "npm test" if (program, name) == ("npm", "test") else f"{program} run {name}"
        for name, script in _scripts(package, "scripts").items()
        if isinstance(script, str) and script.strip() and NPM_PLACEHOLDER not in script
    }
    if program == "yarn" and (_has_file(root, ".yarnrc.yml") or BERRY.match(declared)):
        prefix = "" if NO_PNP.search(_read_text(root, ".yarnrc.yml")) else PNP
        install = f"{prefix}yarn install --{'' if install else 'no-'}immutable"
    elif not install and any(package.get(key) for key in ("dependencies", "devDependencies", "workspaces")):
        install = unlocked[program]
    return Stack("node", commands, (install,) if install else (), ("node_modules",))


def _deno_stack(root: Path) -> Stack | None:
    name = next((name for name in ("deno.json", "deno.jsonc") if _has_file(root, name)), None)
    if name is None:
        return None
    tasks = {task: f"deno task {task}" for task in _scripts(_read_table(root, name) or {}, "tasks")}
    return Stack("deno", {"test": "deno test", "lint": "deno lint", **tasks})


def _target_stacks(root: Path) -> Iterator[Stack]:
    for program, names, pattern in TARGETS:
        text = next(filter(None, (_read_text(root, name) for name in names)), "")
        targets = [name for name in COMMAND_NAMES if re.search(pattern.format(name=name), text, re.MULTILINE)]
        if targets:
            yield Stack(program, {name: f"{program} {name}" for name in targets})


def _ruby_stack(root: Path) -> Stack | None:
    gems = _read_text(root, "Gemfile") or _read_text(root, "gems.rb")
    if not gems:
        return None
    commands, prefix = {}, BUNDLE_PATH * bool(_git(root, "ls-files", ".bundle/config"))
    if _has_file(root, ".rspec") or re.search(r"""gem ["']rspec""", gems):
        commands["test"] = f"{prefix}bundle exec rspec"
    elif _has_file(root, "bin/rails") and (root / "test").is_dir():
        commands["test"] = f"{prefix}bin/rails test"
    elif re.search(r"TestTask|task :test\b", _read_text(root, "Rakefile")):
        commands["test"] = f"{prefix}bundle exec rake test"
    if _has_file(root, ".rubocop.yml"):
        commands["lint"] = f"{prefix}bundle exec rubocop"
    setup = (f"{prefix}bundle install",)
    return Stack("ruby", commands, setup if prefix else (BUNDLE_LOCAL, *setup), (".bundle",))


def _php_stack(root: Path) -> Stack | None:
    composer = _read_table(root, "composer.json")
    if composer is None:
        return None
    commands = {"test": "vendor/bin/phpunit"} if _has_file(root, "phpunit.xml", "phpunit.xml.dist") else {}
    commands |= {name: f"composer run {name}" for name in _scripts(composer, "scripts")}
    return Stack("php", commands, ("composer install --no-interaction",), ("vendor",))


def _find_manager(root: Path, managers: Mapping[str, T]) -> T | None:
    return next((manager for lock, manager in managers.items() if _has_file(root, lock)), None)


def _has_file(root: Path, *patterns: str) -> bool:
    with suppress(OSError):
        return any(path.is_file() for pattern in patterns for path in root.glob(pattern))
    return False


def _read_text(root: Path, name: str) -> str:
    """Return the text of a file; empty if there is no such text file."""
    with suppress(MzError, OSError):
        return read_text(root / name, name) if (root / name).is_file() else ""
    return ""


def _read_table(root: Path, name: str) -> dict[str, Any] | None:
    """Return the content of a JSON or TOML file; None if there is none, or it is no table."""
    loads = tomllib.loads if name.endswith(".toml") else json.loads
    with suppress(ValueError):
        value = loads(_read_text(root, name))
        return value if isinstance(value, dict) else None
    return None


def _scripts(project: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a project's own scripts for our purposes, by name."""
    scripts = _table(project, key)
    return {name: scripts[name] for name in COMMAND_NAMES if name in scripts}


def _table(data: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the table under a key; empty if anything else is there."""
    value = data.get(key)
    return value if isinstance(value, dict) else {}


# Python ---------------------------------------------------------------------------------------------------------------
def _python_stack(root: Path) -> Stack | None:
    names = tables().python_settings
    settings = "".join(_read_text(root, name) for name in names)
    tests = sorted(_test_files(root), key=lambda path: (len(path.parts), path))[:TESTS_MAX]
    if not tests and not _has_file(root, *names, "setup.py", "uv.lock"):
        return None
    sections = (lock for lock in tables().python_managers if re.search(rf"\[tool\.{Path(lock).stem}[].]", settings))
    manager = _find_manager(root, tables().python_managers) or next(map(tables().python_managers.get, sections), None)
    prefix, setup, options = manager or ("", "", {})
    setup = " ".join((setup, *_options(_read_table(root, "pyproject.toml") or {}, options)))
    candidates = {"test": _test_command(root, settings, tests, prefix), "lint": _lint_command(root, settings, prefix)}
    commands = {name: command for name, command in candidates.items() if command}
    return Stack("python", commands, (setup,) if setup else _pip_setup(root, commands), (".venv",))


def _options(pyproject: dict[str, Any], options: Mapping[str, str]) -> Iterator[str]:
    """Yield the options of a manager for this project; `options` are by table."""
    for path, option in options.items():
        table = reduce(_table, path.split("."), pyproject)
        yield from dict.fromkeys(option.format(name) for name in (_test_extras(table) if "{" in option else table))


def _test_extras(table: Mapping[str, Any]) -> list[str]:
    return [name for name in tables().test_extras if name in table]


def _pip_setup(root: Path, commands: Mapping[str, str]) -> tuple[str, ...]:
    """Return the commands that make the environment of a project without a manager; none if it needs none."""
    pyproject = _read_table(root, "pyproject.toml") or {}
    project, defined = _table(pyproject, "project"), _table(pyproject, "dependency-groups")
    optional = _table(project, "optional-dependencies")
    extras, groups = _test_extras(optional), _test_extras(defined)
    files = [name for name in tables().requirements if _has_file(root, name)]
    installs = [f"-r {name}" for name in files]
    if project or _has_file(root, "setup.py") or "[metadata]" in _read_text(root, "setup.cfg"):
        installs.append("-e " + quote(f".[{','.join(extras)}]" if extras else "."))
    installs += ["dependency-groups"] * bool(groups)  # With any pip: `--group` needs 25.1.
    if not installs or "python3 " not in commands.get("test", "python3 "):
        return ()
    needed = str([*map(partial(_read_text, root), files), *map(optional.get, extras), *map(defined.get, groups)])
    if "pytest" in commands.get("test", "") and "pytest" not in needed:
        installs.append("pytest")
    linter, active = commands.get("lint", "").partition(" ")[0], os.environ.get("VIRTUAL_ENV")
    if linter and active and (shutil.which(linter) or "").startswith(active) and linter not in needed:
        installs.append(linter)  # The active environment is not that of worktrees.
    setup = "python3 -m venv .venv", f".venv/bin/python -m pip install --quiet {' '.join(installs)}"
    return (*setup, f".venv/bin/pip-install-dependency-groups {' '.join(groups)}") if groups else setup


def _test_command(root: Path, settings: str, tests: list[Path], prefix: str) -> str | None:
    python = f"{prefix}python" if prefix else "python3"
    texts = {path: _read_text(root, str(path)) for path in tests}
    if (
        "pytest" in settings
        or _has_file(root, "pytest.ini", "conftest.py")
        or any(map(IMPORTS_PYTEST.search, texts.values()))
    ):
        return f"{python} -m pytest -q"
    if "django" in _read_text(root, "manage.py"):
        return f"{python} manage.py test"
    if "[testenv" in _read_text(root, "tox.ini"):
        return f"{prefix}tox"
    unittest_files = [path for path, text in texts.items() if UNITTEST.search(text)]
    if unittest_files:
        return _unittest_command(root, unittest_files, python)
    return f"{python} -m pytest -q" if any(map(PYTEST_STYLE.search, texts.values())) else None


def _unittest_command(root: Path, tests: list[Path], python: str) -> str:
    """Return a unittest command. Discovery only enters packages, so other folders are named; `src` goes on the path."""
    starts = (_discovery_start(root, path.parent) for path in tests)
    loose = tuple(dict.fromkeys(top for top in starts if top is not None))[:FOLDERS_MAX]
    prefix = "PYTHONPATH=src " if (root / "src").is_dir() and not _has_file(root, "src/__init__.py") else ""
    pattern = "" if any(path.name.startswith("test") for path in tests) else " -p '*_test.py'"
    if not loose:
        return f"{prefix}{python} -m unittest" + (f" discover{pattern}" if pattern else "")
    command, folders = f"{prefix}{python} -m unittest discover -s", [quote(str(top)) for top in loose]
    if len(loose) == 1:
        return f"{command} {folders[0]}{pattern}"
    return f'for folder in {" ".join(folders)}; do {command} "$folder"{pattern} || failed=1; done; [ -z "$failed" ]'


def _discovery_start(root: Path, folder: Path) -> Path | None:
    """Return the folder from which discovery reaches `folder`; None: the root."""
    while folder != Path() and _has_file(root / folder, "__init__.py"):
        folder = folder.parent
    return None if folder == Path() else folder


def _lint_command(root: Path, settings: str, prefix: str) -> str | None:
    for program, (section, names, arguments) in tables().linters.items():
        if section in settings or _has_file(root, *names):
            # A gate whose program is missing would stop every run.
            return f"{prefix}{program}{arguments}" if prefix or shutil.which(program) else None
    return None


def _test_files(root: Path) -> Iterator[Path]:
    """Yield test files, relative to `root`; skips hidden, generated and third-party folders."""
    count, skipped = 0, tables().skipped_folders
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in skipped)
        count += len(folders) + len(names)
        yield from (Path(folder, name).relative_to(root) for name in names if TEST_FILE.match(name))
        if count > ENTRIES_MAX:
            return
