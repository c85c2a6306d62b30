"""Who may import what, and what the cheapest command costs to start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.tree import ROOT

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
