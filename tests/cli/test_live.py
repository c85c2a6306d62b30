"""The live view of real runs, with recorded agents: on a terminal, through a crash of the view, and after Ctrl-C."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from mz_cli.app.context import ProjectLog
from mz_cli.live.progress import LiveView, Progress
from mz_cli.start.demo import AGENTS, make_repository, recorded_agent_environment
from mz_engine.run.process import RunProcess
from mz_events.catalog.base import Event
from mz_events.store import Recorded
from mz_recordings.cassette.files import load

from tests.cli.drive import MZ
from tests.support.terminal import Terminal

pytestmark = pytest.mark.slow
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("CI", "COLUMNS", "LINES", "NO_COLOR")}
ONLY = "group-thousands"


@pytest.fixture
def recorded_agent(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A repository with a backlog, and the environment in which recordings answer for the agent."""
    home = tmp_path / "tally"
    make_repository(home)
    agent = AGENTS[0]
    with as_file(files("mz_recordings") / "bundled" / f"monozukuri-{agent}") as folder:
        yield home, recorded_agent_environment(home, agent, load(folder), folder, os.environ)


class Failing(LiveView):
    """The real picture, until it has been told a number of events."""

    left = 40

    def show_event(self, recorded: Recorded[Event]) -> None:
        self.left -= 1
        if not self.left:
            raise RuntimeError("injected")
        super().show_event(recorded)


def test_a_crash_of_the_view_never_touches_the_run(recorded_agent: tuple[Path, dict[str, str]]) -> None:
    home, environment = recorded_agent
    terminal, lines = Terminal(80, 24), io.StringIO()
    with (
        terminal.open() as stream,
        RunProcess(home, environment, lambda recorded: shown.on_event(recorded)) as session,
        Progress(lines, Failing(stream, ProjectLog(home, session.store), "")) as shown,
    ):
        session.start({}, (ONLY,))
        state = session.drive()
    terminal.close()
    assert state.finished
    assert state.tracks[ONLY].is_delivered
    texts = lines.getvalue().splitlines()
    assert texts[0] == "the live view failed (RuntimeError: injected); the run continues, shown as lines"
    assert any(f"{ONLY}: feature delivered: " in line for line in texts)
    assert not terminal.screen.cursor.hidden


def test_a_run_on_a_terminal(recorded_agent: tuple[Path, dict[str, str]]) -> None:
    home, environment = recorded_agent
    terminal = Terminal(80, 24)
    child = terminal.run([*MZ, "run", "--feature", ONLY], home, environment)
    lines = terminal.until(lambda lines: any(f"{ONLY}  Group the digits" in line for line in lines))
    assert any("monozukuri on main · claude-code · checkpoint" in line for line in lines)
    assert lines[-1].startswith("Ctrl-C: finish current calls")
    terminal.until(lambda lines: any("✓ prd  " in line for line in lines))
    terminal.resize(20, 8)
    terminal.until(lambda lines: 0 < len(lines) <= 8 and any("✓" in line for line in lines[2:]))
    terminal.resize(80, 24)
    assert child.wait(60) == 0
    lines = terminal.until(lambda lines: any(line.startswith("feature") for line in lines))
    received = terminal.close()
    assert not any("Ctrl-C" in line for line in lines)
    assert not terminal.screen.cursor.hidden
    assert b"\x1b[2J" not in received, "clearing the screen flickers"


def test_ctrl_c_is_answered_in_the_view(recorded_agent: tuple[Path, dict[str, str]]) -> None:
    home, environment = recorded_agent
    terminal = Terminal(80, 24)
    child = terminal.run([*MZ, "run"], home, environment)
    terminal.until(lambda lines: any("▸ prd" in line for line in lines))
    child.send_signal(signal.SIGINT)
    terminal.until(lambda lines: any(line.startswith("stopping after the current calls") for line in lines))
    assert child.wait(60) == 20
    terminal.until(lambda lines: any(line.startswith("To continue: mz resume") for line in lines))
    terminal.close()
