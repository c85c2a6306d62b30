"""Several processes on one log, and processes that die."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.names import feature_stream

from tests.events.conformance import FIRST, follow, unit

ROOT = Path(__file__).parents[2]


def writer(path: Path, name: str, count: int, size: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tests.events.writer", str(path), name, str(count), str(size)]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_four_processes_race_and_nothing_is_lost_or_counted_twice(tmp_path: Path) -> None:
    """All four find no log and make it; a reader follows them meanwhile."""
    path = tmp_path / "mz.db"
    writers = [writer(path, f"w{number}", 60, 3) for number in range(4)]
    while not path.exists():
        time.sleep(0.01)
    with SqliteStore(path, read_only=True) as reader:
        followed = [
            item.position for item in follow(reader, 0, lambda: any(process.poll() is None for process in writers))
        ]
    for process in writers:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with SqliteStore(path) as store:
        assert store.verify() == ()
        assert followed == [recorded.position for recorded in store.read_all()] == list(range(1, 4 * 60 * 4 + 1))
        assert dict(store.streams()) == {FIRST: 240, **{feature_stream("r", f"w{number}"): 180 for number in range(4)}}


@pytest.mark.slow
def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "mz.db"
    stream = feature_stream("r", "w")
    acknowledged = 0
    chance = random.Random(7)
    for _ in range(12):
        process = writer(path, "w", 10_000, 5)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.random() * 0.05)
        process.kill()
        lines = process.communicate(timeout=30)[0].split("\n")[:-1]
        acknowledged = int(lines[-1]) if lines else acknowledged
        with SqliteStore(path) as store:
            assert store.verify() == ()
            events = [recorded.event for recorded in store.read(stream)]
            assert len(events) >= acknowledged
            assert len(events) % 5 == 0
            assert events == [unit(number) for number in range(1, len(events) + 1)]
            assert dict(store.streams())[FIRST] == len(events) // 5
            acknowledged = len(events)
