"""Adapter: who may import what, and what the cheapest command costs to start."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.support.tree import ROOMS, ROOT, modules, parsed

HEAVY = (
    "sqlalchemy",
    "genai_prices",
    "jinja2",
    "markdown_it",
    "rich",
    "msgspec",
    "yaml",
    "pydantic",
    "httpx",
    "asyncio",
)


def test_rooms_import_downwards_and_pure_modules_stay_pure(tmp_path: Path) -> None:
    """The contracts stand in pyproject.toml."""
    tool = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run([tool, "--no-cache", "--no-logo"], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


OUTSIDE = {
    *("asyncio", "filelock", "multiprocessing", "os", "random", "secrets", "shutil", "signal", "socket", "sqlalchemy"),
    *("sqlite3", "subprocess", "tempfile", "threading", "time", "uuid"),
}
ALLOWED = {
    "events/mz_events/adapters/tables.py": {"sqlalchemy"},  # Tables are described in its terms.
    "qa/mz_qa/conformance/parsing.py": {"random"},  # With a seed.
    "qa/mz_qa/generators/artifacts.py": {"random"},
    "qa/mz_qa/results.py": {"os"},  # os.path, on words.
}


def test_what_calls_itself_pure_imports_nothing_of_the_world() -> None:
    """Directly; what the core decides on is held to more by the contracts."""
    seen = 0
    for path in modules(*ROOMS):
        tree = parsed(path)
        if (ast.get_docstring(tree) or "").startswith(("Pure:", "Facts:")):
            seen += 1
            assert imported(tree) & OUTSIDE <= ALLOWED.get(path.as_posix(), set()), path
    assert seen > 200


def imported(tree: ast.Module) -> set[str]:
    """Packages that a module imports, wherever in it."""
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_asking_for_the_version_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['mz', '--version']\n"
        "from mz_cli.main import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mz ")
    assert not done.stderr.split()
