"""Adapter: how a Python project is tested and linted, wherever its tests lie."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from mz_engine.stack import Stack, has, text_of

IMPORTS_PYTEST = re.compile(r"^\s*(?:import|from) pytest\b", re.MULTILINE)
PYTEST_STYLE = re.compile(r"^(?:async )?def test_", re.MULTILINE)
UNITTEST = re.compile(r"^\s*(?:import|from) (?:unittest|django\.test)\b", re.MULTILINE)
TEST_FILE = re.compile(r"(?:test.*|.*_test)\.py\Z")
SETTINGS = (
    "pyproject.toml",
    "setup.cfg",
    "tox.ini",
    "requirements.txt",
    "requirements-dev.txt",
    "dev-requirements.txt",
)
ELSEWHERE = frozenset({"node_modules", "venv", "env", "build", "dist", "site-packages", "vendor", "target"})
FILES_MAX = 20_000
"""Entries of the tree that are looked at; a bigger one has its tests near the top too."""
TESTS_MAX = 200
FOLDERS_MAX = 3

MANAGERS = (
    ("uv.lock", "uv run ", "uv sync"),
    ("poetry.lock", "poetry run ", "poetry install"),
    ("pdm.lock", "pdm run ", "pdm sync"),
    ("Pipfile.lock", "pipenv run ", "pipenv sync --dev"),
)
"""Lock file, how a command is run in that environment, and how the environment is made."""


def python_stack(root: Path) -> Stack | None:
    """None where nothing says that it is a Python project."""
    named = "".join(text_of(root, name) for name in SETTINGS)
    tests = sorted(_tests(root), key=lambda path: (len(path.parts), path))[:TESTS_MAX]
    if not tests and not any(has(root, name) for name in (*SETTINGS, "setup.py", "uv.lock")):
        return None
    _, prefix, setup = next((each for each in MANAGERS if has(root, each[0])), ("", "", ""))
    found = {"test": _test(root, named, tests, prefix), "lint": _lint(root, named, prefix)}
    commands = {name: command for name, command in found.items() if command}
    return Stack("python", commands, (setup,) if setup else (), (".venv",))


def _test(root: Path, named: str, tests: list[Path], prefix: str) -> str | None:
    python = f"{prefix}python" if prefix else "python3"
    texts = [text_of(root, str(path)) for path in tests]
    configured = "pytest" in named or any(has(root, name) for name in ("pytest.ini", "conftest.py"))
    if configured or any(IMPORTS_PYTEST.search(text) for text in texts):
        return f"{python} -m pytest -q"
    if has(root, "manage.py") and "django" in text_of(root, "manage.py"):
        return f"{python} manage.py test"
    if "[testenv" in text_of(root, "tox.ini"):
        return f"{prefix}tox"
    own = [path for path, text in zip(tests, texts, strict=True) if UNITTEST.search(text)]
    if own:
        return _unittest(root, own, python)
    return f"{python} -m pytest -q" if any(PYTEST_STYLE.search(text) for text in texts) else None


def _unittest(root: Path, tests: list[Path], python: str) -> str:
    """`unittest` goes down into packages only, and so it is told where loose folders are; what lies under
    `src` is found by no import until it is installed."""
    found = (_loose(root, path.parent) for path in tests)
    loose = tuple(dict.fromkeys(top for top in found if top is not None))[:FOLDERS_MAX]
    prefix = "PYTHONPATH=src " if (root / "src").is_dir() and not has(root, "src/__init__.py") else ""
    pattern = "" if any(path.name.startswith("test") for path in tests) else " -p '*_test.py'"
    if not loose:
        return f"{prefix}{python} -m unittest" + (f" discover{pattern}" if pattern else "")
    return " && ".join(f"{prefix}{python} -m unittest discover -s {quote(str(top))}{pattern}" for top in loose)


def _loose(root: Path, folder: Path) -> Path | None:
    """The folder where discovery has to begin so that it comes to `folder`; None: the root will do."""
    start = folder
    while start != Path() and has(root, str(start / "__init__.py")):
        start = start.parent
    return None if start == Path() else start


def _lint(root: Path, named: str, prefix: str) -> str | None:
    ruff = "[tool.ruff" in named or has(root, "ruff.toml") or has(root, ".ruff.toml")
    flake8 = "[flake8]" in named or has(root, ".flake8")
    program = "ruff" if ruff else "flake8" if flake8 else ""
    if not program or not (prefix or shutil.which(program)):
        return None  # A gate whose program is not here would stop every run.
    return f"{prefix}{program} check ." if ruff else f"{prefix}{program}"


def _tests(root: Path) -> Iterator[Path]:
    """Test files, relative to `root`; hidden and foreign folders are left out."""
    seen = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in ELSEWHERE)
        seen += len(folders) + len(files)
        inside = Path(folder).relative_to(root)
        yield from (inside / name for name in files if TEST_FILE.match(name))
        if seen > FILES_MAX:
            return
