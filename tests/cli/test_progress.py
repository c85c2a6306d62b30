"""What is shown of a run while it works: a picture on a terminal, lines elsewhere, and never a reason to fail."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import pytest
from mz_cli.app.context import ProjectLog
from mz_cli.app.help import DisplayMode
from mz_cli.live import progress
from mz_cli.live.milestones import milestone_text
from mz_cli.live.progress import LiveView, Painter, Progress, SpoolReader, make_progress, may_paint
from mz_cli.terminal.text import styled_line
from mz_events.catalog.base import Event
from mz_events.catalog.feature import HumanRequested, QuestionKind
from mz_events.names import Digest, StreamId
from mz_events.store import Recorded
from mz_projections.views.run import RunProjection
from syrupy.assertion import SnapshotAssertion

from tests.cli.stored_run import RUN, StoredRun
from tests.support.processes import eventually
from tests.support.samples import samples
from tests.support.terminal import Terminal

pytestmark = pytest.mark.slow

HOSTILE = "\x1b[31mred\x1b[0m\nsecond \u202e🎉" + "x" * 10_000
TERM = {"TERM": "xterm-256color"}


class StoredLog(ProjectLog):
    """A log of these events and texts."""

    def __init__(self, *recorded: Recorded[Event], text: str = "") -> None:
        self.root, self.recorded, self.text = Path("/nowhere"), recorded, text

    def load_text(self, digest: Digest | None) -> str:
        return self.text

    def events(self, run: str) -> Iterator[Recorded[Event]]:
        return iter(self.recorded)


def recorded(event: Event, stream: str = f"run/{RUN}/login") -> Recorded[Event]:
    return Recorded(StreamId(stream), 1, 1, 0, 0, event, "")


def lines_to(stream: io.TextIOBase) -> Progress:
    return progress_on(stream, environment=os.environ)


def progress_on(
    stream: io.TextIOBase | TextIO,
    log: ProjectLog | None = None,
    selection: DisplayMode = "live",
    environment: Mapping[str, str] = TERM,
) -> Progress:
    """What a command shows whose stderr is this stream."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", stream)
        patch.setattr("os.environ", environment)
        patch.setattr("mz_cli.live.progress.display_mode", lambda: selection)
        return make_progress(log or StoredLog(), "Ctrl-C: stop")


class Broken(LiveView):
    """A view that fails, from a given call on."""

    def __init__(self, after: int = 0) -> None:
        self.left, self.closed = after, 0

    def begin(self, run: str) -> RunProjection:
        return RunProjection(run)

    def refresh(self) -> None:
        return

    def show_event(self, recorded: Recorded[Event]) -> None:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("no picture")

    def show_text(self, text: str) -> None:
        raise RuntimeError("no words")

    def close(self) -> None:
        self.closed += 1
        raise RuntimeError("not even this")


def test_an_empty_line_between_milestones_and_the_summary(stored_run: StoredRun) -> None:
    out = io.StringIO()
    with lines_to(out) as shown:
        shown.on_event(stored_run.recorded[0])
    assert "run started: pipeline monozukuri on main" in out.getvalue().splitlines()[0]
    assert out.getvalue().endswith("\n\n")
    silent = io.StringIO()
    with lines_to(silent) as shown:
        shown.show_text("nothing to do")
    assert silent.getvalue() == "nothing to do\n"


def test_lines_where_there_is_no_terminal(stored_run: StoredRun, snapshot: SnapshotAssertion) -> None:
    out = io.StringIO()
    with lines_to(out) as shown:
        for item in stored_run.recorded:
            shown.on_event(item)
    assert out.getvalue() == snapshot


def test_lines_say_that_a_silent_run_goes_on(stored_run: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE_SECONDS", 0.01)
    out, quiet = io.StringIO(), io.StringIO()
    with lines_to(out) as shown, progress_on(quiet, selection="quiet") as silent:
        for item in stored_run.recorded[:3]:
            shown.on_event(item)
            silent.on_event(item)
        assert eventually(lambda: out.getvalue().count("still running, 0 min after the last line\n") > 1)
    assert quiet.getvalue() == ""


@pytest.mark.parametrize("event", samples(), ids=lambda event: type(event).__name__)
def test_every_event_has_words_or_none(event: Event) -> None:
    for stream in (f"run/{RUN}", f"run/{RUN}/login"):
        assert "\n" not in milestone_text(recorded(event, stream))


def test_a_question_before_the_first_phase_names_none() -> None:
    human_requested = HumanRequested(phase="", unit="", question_kind=QuestionKind.CONFLICT, code="branch-exists")
    text = "login: human requested: question to a person, conflict (branch-exists)"
    assert milestone_text(recorded(human_requested)) == text


# a view that fails ----------------------------------------------------------------------------------------------------
def test_a_view_that_crashes_is_replaced_by_lines(stored_run: StoredRun) -> None:
    broken, out = Broken(after=3), io.StringIO()
    with Progress(out, broken) as shown:
        for item in stored_run.recorded:
            shown.on_event(item)
    assert broken.closed == 1
    *lines, last = out.getvalue().splitlines()
    assert last == ""
    assert lines[0] == "the live view failed (RuntimeError: no picture); the run continues, shown as lines"
    assert not any("run started" in line for line in lines)
    assert "run idle" in lines[-1]


def test_a_picture_that_crashes_gives_the_terminal_back(stored_run: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real picture, with a spool that turns out to be poisonous when an agent is at work."""

    def poison(reader: SpoolReader, key: str) -> tuple[str, ...]:
        raise KeyError(key)

    monkeypatch.setattr(SpoolReader, "recent_output", poison)
    terminal = Terminal(80, 24)
    stream = terminal.open()
    shown = progress_on(stream)
    with shown:
        for item in stored_run.recorded[:9]:
            shown.on_event(item)
        terminal.until(lambda lines: any("the live view failed (KeyError" in line for line in lines))
        for item in stored_run.recorded[9:]:
            shown.on_event(item)
        terminal.until(lambda lines: any("run idle" in line for line in lines))
    stream.close()
    terminal.close()
    assert not terminal.screen.cursor.hidden


def test_a_closed_stream_is_no_failure(stored_run: StoredRun) -> None:
    out = io.StringIO()
    with lines_to(out) as shown:
        out.close()
        for item in stored_run.recorded:
            shown.on_event(item)


def test_a_terminal_that_takes_nothing_holds_nobody_up(stored_run: StoredRun) -> None:
    """As after Ctrl-S: writing blocks, and goes on later."""
    mine, theirs = os.pipe()
    os.set_blocking(theirs, False)
    while True:
        try:
            os.write(theirs, b"x" * 65536)
        except BlockingIOError:
            break
    os.set_blocking(theirs, True)
    with os.fdopen(theirs, "w") as full:
        shown = lines_to(full)
        with shown:
            for item in stored_run.recorded:
                shown.on_event(item)
            os.set_blocking(mine, False)
            emptied = threading.Thread(target=drain, args=(mine,), daemon=True)
            emptied.start()
    emptied.join(10)
    os.close(mine)


def drain(end: int) -> None:
    while True:
        try:
            if not os.read(end, 65536):
                return
        except BlockingIOError:
            time.sleep(0.01)


def test_many_threads_may_tell(stored_run: StoredRun, tmp_path: Path) -> None:
    with open(tmp_path / "out", "w") as out, lines_to(out) as shown:

        def tell() -> None:
            for item in stored_run.recorded:
                shown.on_event(item)

        threads = [threading.Thread(target=tell) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    *lines, last = (tmp_path / "out").read_text().splitlines()
    assert last == ""
    assert len(lines) == 8 * len(set(lines))


# what is asked for ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("selection", "environment", "paints"),
    [
        ("live", TERM, True),
        ("lines", TERM, False),
        ("quiet", TERM, False),
        ("live", {**TERM, "NO_COLOR": "1"}, False),
        ("live", {**TERM, "MZ_NO_PROGRESS": "1"}, False),
        ("live", {**TERM, "MZ_NO_PROGRESS": ""}, True),
        ("live", {**TERM, "CI": "true"}, False),
        ("live", {"TERM": "dumb", "FORCE_COLOR": "1"}, False),
        ("live", {}, False),
    ],
)
def test_a_picture_only_where_it_is_wanted(
    stored_run: StoredRun, selection: DisplayMode, environment: dict[str, str], paints: bool
) -> None:
    terminal = Terminal(80, 24)
    with terminal.open() as stream:
        assert may_paint(stream, environment) == (paints or selection != "live")
        shown = progress_on(stream, None, selection, environment)
        with shown:
            shown.show_text("said")
            for item in stored_run.recorded:
                shown.on_event(item)
    received = terminal.close().decode()
    assert ("\x1b" in received) == paints
    assert paints or ("login: feature delivered" in received) == (selection != "quiet")
    assert "said" in received


def test_no_picture_without_a_terminal() -> None:
    assert not may_paint(io.StringIO(), {**TERM, "FORCE_COLOR": "1"})


def test_no_picture_on_a_terminal_that_does_not_take_its_marks() -> None:
    terminal = Terminal(80, 24)
    with terminal.open() as stream, open(stream.fileno(), "w", encoding="ascii", closefd=False) as plain:
        assert may_paint(stream, TERM)
        assert not may_paint(plain, TERM)
    terminal.close()


# the picture ----------------------------------------------------------------------------------------------------------
def test_a_picture_on_a_terminal(stored_run: StoredRun) -> None:
    terminal = Terminal(80, 24)
    with terminal.open() as stream:
        shown = progress_on(stream, StoredLog(text=HOSTILE))
        with shown:
            for item in stored_run.recorded:
                shown.on_event(item)
            lines = terminal.until(
                lambda lines: "12:01:00 login: feature delivered" not in lines and "Ctrl-C: stop" in lines
            )
            lines = terminal.until(lambda lines: any("idle" in line for line in lines[:1]))
            assert any("audit  waiting: blocker in prd" in line for line in lines), lines
            shown.show_text("a word\x1b[2J from the command")
            lines = terminal.until(lambda lines: lines[:1] == ["a word from the command"])
            terminal.resize(20, 8)
            lines = terminal.until(lambda lines: any("? audit  waiting: b…" in line for line in lines))
            assert len(lines) <= 8
    received = terminal.close().decode()
    assert "\x1b[31mred" not in received
    assert terminal.text() in ([], ["a word from the comm"], ["a word from the command"])


def test_a_run_that_goes_on_is_shown_whole(stored_run: StoredRun) -> None:
    """The picture begins with what happened before this process, without telling it again."""
    terminal = Terminal(80, 24)
    with terminal.open() as stream:
        shown = progress_on(stream, StoredLog(*stored_run.recorded))
        with shown:
            shown.on_event(stored_run.recorded[-1])
            lines = terminal.until(lambda lines: any("login  delivered" in line for line in lines))
            assert not any("login: feature delivered" in line for line in lines)
            assert any("run idle" in line for line in lines)
    terminal.close()


def test_what_the_agent_says_is_seen_while_it_works(stored_run: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpoolReader, "recent_output", lambda reader, key: (f"I work on {key.split('/')[1]}",))
    events = [entry for entry in stored_run.recorded if entry.position <= 9]
    terminal = Terminal(80, 24)
    with terminal.open() as stream:
        shown = progress_on(stream)
        with shown:
            for item in events:
                shown.on_event(item)
            terminal.until(lambda lines: any("» I work on login" in line for line in lines))
    terminal.close()


def test_a_picture_that_takes_long_is_painted_the_less_often(
    stored_run: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture must not hold up the interpreter, however many events there are."""
    now, painted = 0.0, list[float]()

    def paint(self: Painter, frame: object) -> None:
        nonlocal now
        painted.append(now)
        now += 0.1

    monkeypatch.setattr("mz_cli.live.progress.time", SimpleNamespace(monotonic=lambda: now, time_ns=lambda: 0))
    monkeypatch.setattr(Painter, "paint", paint)
    live = LiveView(io.StringIO(), StoredLog(), "")
    for _ in range(100):
        for item in stored_run.recorded:
            live.show_event(item)
            live.refresh()
            now += 0.001
    assert len(painted) > 3
    assert all(after - before > 1.5 for before, after in pairwise(painted))


def test_words_above_all(stored_run: StoredRun) -> None:
    out = io.StringIO()
    with Progress(out, Broken()) as shown:
        shown.show_text("comes to rest")
    assert out.getvalue().splitlines()[-1] == "comes to rest"


def test_the_cursor_comes_back_when_the_process_is_ended() -> None:
    terminal = Terminal(80, 24)
    with terminal.open() as stream:
        Painter(stream).paint([styled_line("picture")])
        terminal.until(lambda lines: lines == ["picture"] and terminal.screen.cursor.hidden)
        Progress(stream).restore_terminal()
        Progress(stream, LiveView(stream, StoredLog(), "")).restore_terminal()
        stream.write("done")
        stream.flush()
        assert terminal.until(lambda lines: "done" in lines) == ["picture", "done"]
        assert not terminal.screen.cursor.hidden
    terminal.close()
