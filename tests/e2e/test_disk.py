"""A full disk in the middle of a run, and a directory that cannot be written, for real."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.bench import Bench
from tests.support.mounts import in_small_filesystem

pytestmark = pytest.mark.slow


def test_a_full_disk_stops_the_run_and_nothing_recorded_is_lost(tmp_path: Path) -> None:
    done = in_small_filesystem(tmp_path / "disk", "24m", [sys.executable, "-m", "tests.support.full_disk"])
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert summary["full"]["code"] == 11, summary["full"]
    assert "mz resume" in summary["full"]["err"] + summary["full"]["out"]
    assert "Traceback" not in summary["full"]["err"]
    assert summary["status"] == 0, "a full disk can be read"
    assert summary["resumed"] == 0, summary["words"]
    assert summary["statuses"]["group-thousands"] == "delivered"
    assert set(summary["calls"].values()) == {1}, "nothing was paid twice"


def test_a_repository_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    shell = f"mount --bind {bench.root} {bench.root} && mount -o remount,ro,bind {bench.root} && cd {bench.root}"
    done = in_small_filesystem(
        tmp_path / "disk", "1m", ["sh", "-c", f"{shell} && PATH={bench.env['PATH']} HOME={bench.home} mz run"]
    )
    assert done.returncode in (11, 15), done.stdout + done.stderr
    assert "error[MZ" in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
