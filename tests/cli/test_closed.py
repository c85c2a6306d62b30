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


@pytest.mark.parametrize("which", [">&-", "<&- >&- 2>&-"])
def test_an_answer_that_nobody_reads(stored_run: StoredRun, which: str) -> None:
    stored_run.close()
    answer = closed(stored_run.home, which, "status")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_an_error_that_nobody_reads(stored_run: StoredRun) -> None:
    stored_run.close()
    answer = closed(stored_run.home, "2>&-", "show", "nope")
    assert (answer.returncode, answer.stdout) == (10, "")
