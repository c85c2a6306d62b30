"""Standard streams that were closed before the program began."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.drive import MZ
from tests.cli.stored_run import StoredRun


def closed(home: Path, which: str, *args: str) -> subprocess.CompletedProcess[str]:
    """As a shell starts it with these redirections."""
    script = f'exec "$@" {which}'
    return subprocess.run(
        ["sh", "-c", script, "sh", *MZ, *args], cwd=home, env=os.environ, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("which", "args", "code"), [(">&-", ["status"], 0), ("<&- >&- 2>&-", ["status"], 0), ("2>&-", ["show", "nope"], 10)]
)
@pytest.mark.slow
def test_an_answer_or_an_error_that_nobody_reads(stored_run: StoredRun, which: str, args: list[str], code: int) -> None:
    stored_run.close()
    answer = closed(stored_run.home, which, *args)
    assert (answer.returncode, answer.stdout, answer.stderr) == (code, "", "")
