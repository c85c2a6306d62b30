"""Adapter: looks at a repository for what its first `mz.yaml` should say: how it is tested and set up, its branch."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mz_engine.errors import MzError
from mz_engine.starter import Detected
from mz_engine.textfile import read_text

WANTED = ("test", "lint", "build")
NPM_PLACEHOLDER = "no test specified"
"""What `npm init` writes as the test script."""

IMPORTS_PYTEST = re.compile(r"^\s*(?:import|from) pytest\b", re.MULTILINE)
INSTALLERS = {
    "package-lock.json": "npm ci",
    "yarn.lock": "yarn install --frozen-lockfile",
    "pnpm-lock.yaml": "pnpm install --frozen-lockfile",
    "uv.lock": "uv sync",
}


def detect(root: Path) -> Detected:
    """What the files of the repository at `root` say. Reads only; a file that cannot be read says nothing."""
    found: dict[str, str] = {}
    for name, command in (*_npm(root), *_other(root), *_python(root), *_make(root)):
        found.setdefault(name, command)
    commands = {name: found[name] for name in WANTED if name in found}
    setup = tuple(command for file, command in INSTALLERS.items() if (root / file).is_file())
    return Detected(base=_branch(root), commands=commands, setup=setup)


def _npm(root: Path) -> Iterator[tuple[str, str]]:
    with suppress(ValueError):
        package = json.loads(_text(root, "package.json") or "{}")
        scripts = package.get("scripts") if isinstance(package, dict) else None
        for name in WANTED:
            script = scripts.get(name) if isinstance(scripts, dict) else None
            if isinstance(script, str) and NPM_PLACEHOLDER not in script:
                yield name, "npm test" if name == "test" else f"npm run {name}"


def _other(root: Path) -> Iterator[tuple[str, str]]:
    if (root / "Cargo.toml").is_file():
        yield from (("test", "cargo test"), ("build", "cargo build"))
    if (root / "go.mod").is_file():
        yield from (("test", "go test ./..."), ("build", "go build ./..."))


def _python(root: Path) -> Iterator[tuple[str, str]]:
    named = "".join(_text(root, name) for name in ("pyproject.toml", "setup.cfg", "tox.ini", "requirements.txt"))
    tests = sorted([*root.glob("test*/**/test*.py"), *root.glob("test*.py")])
    texts = (_text(root, str(file.relative_to(root))) for file in tests)
    pytest = "pytest" in named or any((root / name).is_file() for name in ("pytest.ini", "conftest.py"))
    if pytest or any(IMPORTS_PYTEST.search(text) for text in texts):
        yield "test", "python3 -m pytest -q"
    elif tests:
        folder = tests[0].relative_to(root).parts[0]
        loose = (root / folder).is_dir() and not (root / folder / "__init__.py").is_file()
        yield "test", f"python3 -m unittest discover -s {folder}" if loose else "python3 -m unittest"


def _make(root: Path) -> Iterator[tuple[str, str]]:
    text = _text(root, "Makefile") or _text(root, "makefile") or _text(root, "GNUmakefile")
    for name in WANTED:
        if re.search(rf"^{name}\s*:(?!=)", text, re.MULTILINE):
            yield name, f"make {name}"


def _text(root: Path, name: str) -> str:
    with suppress(MzError):
        return read_text(root / name, name) if (root / name).is_file() else ""
    return ""


def _branch(root: Path) -> str | None:
    command = ["git", "-C", str(root), "symbolic-ref", "--quiet", "--short", "HEAD"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=False, stdin=subprocess.DEVNULL
        )
        return done.stdout.strip() or None
    return None
