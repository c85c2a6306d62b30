"""Who may import what, and what the cheapest command costs to start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import ROOT

HEAVY = (
    "sqlalchemy",
    "mz_engine.pricing.data",
    "jinja2",
    "markdown_it",
    "rich",
    "msgspec",
    "yaml",
    "pydantic",
    "httpx",
    "asyncio",
)

MODULES_OF_RUN_MAX = 240
"""Modules of mz that `mz run` imports at its start."""


@pytest.mark.slow  # `make lint` checks it too.
def test_packages_import_downwards_and_pure_modules_stay_pure(tmp_path: Path) -> None:
    """The contracts stand in pyproject.toml."""
    tool = Path(sys.executable).with_name("lint-imports")
    process = subprocess.run([tool, "--no-cache", "--no-logo"], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr


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


def test_commands_that_only_look_load_nothing_heavy_and_make_no_decoder() -> None:
    code = (
        "import sys\n"
        "from mz_cli.main import mz\n"
        "assert all(mz.get_command(None, command) for command in ('status', 'runs', 'cost'))\n"
        "from mz_events.codec import CODEC\n"
        "assert CODEC.decoder is None\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules and name != 'msgspec'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.split()


def test_a_run_loads_no_recordings_unless_it_is_recorded() -> None:
    code = (
        "import sys\n"
        "from mz_cli.main import mz\n"
        "assert mz.get_command(None, 'run')\n"
        "print(*[name for name in sys.modules if name.startswith('mz_')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not [name for name in loaded if name.startswith("mz_recordings")]
    assert len(loaded) < MODULES_OF_RUN_MAX
