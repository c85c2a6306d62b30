"""`mz status --watch`: another process looks on while a run is worked on, and changes nothing."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mz_cli.app.context import open_log
from mz_cli.live.watch import follow_events
from mz_events.catalog.run import RunResumed

from tests.cli.drive import MZ, Mz
from tests.cli.stored_run import RUN, StoredRun, tell
from tests.support.terminal import Terminal

ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("CI", "COLUMNS", "LINES", "NO_COLOR")}


@pytest.fixture
def held(home: Path) -> Iterator[StoredRun]:
    """A run that this process works on, with one feature delivered and one at work."""
    log = StoredRun(home).begin("login", "audit")
    log.deliver("login")
    log.admit("audit")
    with open(home / ".mz" / "run.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield log
    log.close()


@pytest.mark.slow
def test_the_view_follows_and_ends_with_the_table(held: StoredRun, home: Path) -> None:
    terminal = Terminal(90, 24)
    child = terminal.run([*MZ, "status", "--watch"], home, ENVIRONMENT)
    terminal.until(lambda lines: any("✓ login  delivered" in line for line in lines))
    assert "Ctrl-C: stop watching; the run continues" in terminal.text()
    held.wait("audit")
    terminal.until(lambda lines: any("? audit  waiting: blocker in prd" in line for line in lines))
    held.stop()
    assert child.wait(20) == 0
    lines = terminal.until(lambda lines: any(line.startswith("feature") for line in lines))
    terminal.close()
    assert lines[0].startswith(f"run {RUN}: idle")
    assert not any("Ctrl-C" in line for line in lines)
    assert not terminal.screen.cursor.hidden


@pytest.mark.slow
def test_ctrl_c_ends_the_watching_only(held: StoredRun, home: Path) -> None:
    terminal = Terminal(90, 24)
    child = terminal.run([*MZ, "status", "--watch"], home, ENVIRONMENT)
    terminal.until(lambda lines: any("▸ audit" in line for line in lines))
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 0
    terminal.until(lambda lines: bool(lines) and lines[0].startswith(f"run {RUN}: running"))
    terminal.close()
    held.to_run(RunResumed(mz_version="0.1.0"))


def test_what_is_new_comes_until_the_run_rests(held: StoredRun, home: Path) -> None:
    with open_log(home) as log:
        before, events = log.store.head(), follow_events(log, RUN)
        held.wait("audit")
        held.stop()
        positions = [recorded.position for recorded in events]
        assert positions == list(range(before + 1, log.store.head() + 1))


def test_it_ends_when_the_process_is_gone(home: Path) -> None:
    recorded_run = StoredRun(home).begin("login").admit("login")
    recorded_run.close()
    with open_log(home) as log:
        assert list(follow_events(log, RUN)) == []


def test_a_run_that_nobody_works_on_is_printed_at_once(home: Path, mz: Mz) -> None:
    tell(home).close()
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    watched, printed = mz("status", "--watch"), mz("status")
    assert (watched.exit, watched.out, watched.err) == (0, printed.out, "")
    assert json.loads(mz("status", "--watch", "--json").out)["run"] == RUN
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_lines_in_a_pipe(held: StoredRun, home: Path) -> None:
    with subprocess.Popen(
        [*MZ, "status", "--watch"], cwd=home, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == f"watching run {RUN}\n"
        held.wait("audit")
        held.stop()
        out, err = child.communicate(timeout=30)
    assert child.returncode == 0
    *lines, last = err.splitlines()
    assert last == ""
    assert [line.split(" ", 1)[1] for line in lines][-2:] == [
        "audit: human requested: prd: question to a person, blocker (agent-blocker); answer: mz review show audit",
        f"run {RUN}: run idle: nothing can continue by itself",
    ]  # fmt: skip
    assert out.startswith("feature\tstatus\t")
    assert "\x1b" not in out + err
