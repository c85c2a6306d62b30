"""Detection of the test and lint commands of a Python project."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from mz_engine.stack import Stack, has_file, read_text_or_empty

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
