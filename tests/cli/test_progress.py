"""What is shown of a run while it works: a picture on a terminal, lines elsewhere, and never a reason to fail."""

from __future__ import annotations

import io
import os
import pty
import threading
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_cli.render.frame import ASCII, UNICODE, Scenery, frame
from mz_cli.render.milestone import milestone
from mz_cli.render.progress import Live, Plain, Progress, phases_of, progress
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_events.names import Digest, StreamId
from mz_projections.overview import overview
from mz_projections.views import CallView, FeatureView, PhaseView, RunView
from syrupy.assertion import SnapshotAssertion

from tests.cli.story import RUN, Story
from tests.support.samples import samples

pytestmark = pytest.mark.slow

HOSTILE = "\x1b[31mred\x1b[0m\nsecond \u202e🎉" + "x" * 10_000


def no_words(digest: Digest | None) -> str:
    return ""


def no_history(run: str) -> tuple[Recorded[Event], ...]:
    return ()


def recorded(event: Event, stream: str = f"run/{RUN}/login") -> Recorded[Event]:
    return Recorded(StreamId(stream), 1, 1, 0, 0, event, "", b"")


def scenery(width: int = 80, height: int = 24, text: str = "") -> Scenery:
    now_us = 1_772_366_500_000_000
    return Scenery(now_us=now_us, width=width, height=height, glyphs=UNICODE,
                   planned=("prd", "code", "pr"), words=lambda _: text, log=("12:00:00 prd begins",))  # fmt: skip


class Broken:
    """A reporter that fails, from a given event on."""

    def __init__(self, after: int = 0) -> None:
        self.left, self.closed = after, 0

    def tell(self, recorded: Recorded[Event]) -> None:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("no picture")

    def say(self, text: str) -> None:
        raise RuntimeError("no words")

    def close(self) -> None:
        self.closed += 1
        raise RuntimeError("not even this")


def test_lines_where_there_is_no_terminal(story: Story, snapshot: SnapshotAssertion) -> None:
    out = io.StringIO()
    with progress(no_words, no_history, stream=out) as shown:
        for each in story.recorded:
            shown.on_event(each)
    assert out.getvalue() == snapshot


@pytest.mark.parametrize("event", samples(), ids=lambda event: type(event).__name__)
def test_every_event_has_words_or_none(event: Event) -> None:
    for stream in (f"run/{RUN}", f"run/{RUN}/login"):
        assert "\n" not in milestone(recorded(event, stream))


def test_a_reporter_that_fails_is_replaced(story: Story) -> None:
    broken, out = Broken(after=3), io.StringIO()
    with Progress(lambda: broken, lambda: Plain(out)) as shown:
        for each in story.recorded:
            shown.on_event(each)
    assert broken.closed == 1
    assert "started" not in out.getvalue()
    assert "login: delivered" in out.getvalue()


def test_nothing_but_failures_is_silence(story: Story) -> None:
    def refuses() -> Broken:
        raise OSError("no terminal")

    with Progress(refuses, Broken, Broken) as shown:
        for each in story.recorded:
            shown.on_event(each)
    shown.on_event(story.recorded[0])


def test_a_closed_stream_is_no_failure(story: Story) -> None:
    out = io.StringIO()
    with progress(no_words, no_history, stream=out) as shown:
        out.close()
        for each in story.recorded:
            shown.on_event(each)


def on_a_terminal(story: Story, words: str, environment: dict[str, str]) -> str:
    mine, theirs = pty.openpty()
    received = bytearray()

    def listen() -> None:
        try:
            while chunk := os.read(mine, 65536):
                received.extend(chunk)
        except OSError:
            return

    listener = threading.Thread(target=listen)
    listener.start()
    with os.fdopen(theirs, "w", encoding="utf-8") as terminal, \
            progress(lambda _: words, no_history, stream=terminal, environment=environment) as shown:  # fmt: skip
        for each in story.recorded:
            shown.on_event(each)
            time.sleep(0.01)
        time.sleep(0.3)
    listener.join(10)
    os.close(mine)
    return received.decode("utf-8", "replace")


def test_a_picture_on_a_terminal(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    seen = on_a_terminal(story, HOSTILE, {"TERM": "xterm-256color"})
    assert f"run {RUN}" in seen
    assert "audit  waiting (blocker)" in seen
    assert "\x1b[31mred" not in seen
    assert "cannot be drawn" not in seen
    assert seen.rstrip().endswith("\x1b[2K")


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}, {}])
def test_no_escapes_where_they_are_not_wanted(story: Story, environment: dict[str, str]) -> None:
    seen = on_a_terminal(story, "words", environment)
    assert "\x1b" not in seen
    assert "login: delivered" in seen


def test_the_picture(story: Story, snapshot: SnapshotAssertion) -> None:
    half = [each for each in story.recorded if each.position < 30]
    view = overview(RUN, half)
    lines = [each.text for each in frame(view, scenery(text="All done.\nThe tests pass now."))]
    assert lines == snapshot


WORDS = st.text(max_size=30) | st.just(HOSTILE)


@given(st.integers(1, 120), st.integers(1, 40), st.integers(0, 30), WORDS)
def test_the_picture_fits(width: int, height: int, features: int, text: str) -> None:
    call = CallView(key="k", place="p", phase="code", unit="", iteration=1, attempt=2, role="builder", agent="a",
                    model="m", prompt=Digest("d"), asked_us=5, text=Digest("d"))  # fmt: skip
    phase = PhaseView(phase="code", iteration=1, started_us=5, units=("a", "b"), units_done=("a",))
    one = FeatureView(feature="login", status="working", phases=(phase,), calls=(call,))
    many = tuple(msgspec.structs.replace(one, feature=f"f{number}") for number in range(features))
    view = RunView(run=RUN, started_us=5, features=many)
    lines = frame(view, scenery(width, height, text))
    assert len(lines) <= height
    assert all(len(line.text) <= width for line in lines)
    assert not any(character in line.text for line in lines for character in "\x1b\n\u202e")


def test_what_the_picture_has_no_room_for_is_counted() -> None:
    many = tuple(FeatureView(feature=f"f{number}", status="working") for number in range(20))
    lines = [line.text for line in frame(RunView(run=RUN, features=many), scenery(height=10))]
    assert lines[-3:] == ["...", "20 working", "12:00:00 prd begins"]


def test_glyphs_for_plain_encodings(story: Story) -> None:
    view = overview(RUN, story.recorded[:30])
    lines = frame(view, msgspec.structs.replace(scenery(), glyphs=ASCII))
    assert "".join(line.text for line in lines).isascii()


@pytest.mark.parametrize(
    ("pins", "phases"),
    [("", ()), ("no json", ()), ("{}", ()), ('{"pipeline": {"phases": [{"phase": "prd", "more": 1}]}}', ("prd",)),
     ('{"pipeline": 3}', ())],
)  # fmt: skip
def test_planned_phases(pins: str, phases: tuple[str, ...]) -> None:
    assert phases_of(pins) == phases


def test_many_threads_may_tell(story: Story, tmp_path: Path) -> None:
    with open(tmp_path / "out", "w") as out, progress(no_words, no_history, stream=out) as shown:

        def tell() -> None:
            for each in story.recorded:
                shown.on_event(each)

        threads = [threading.Thread(target=tell) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = (tmp_path / "out").read_text().splitlines()
    assert len(lines) == 8 * len(set(lines))


def test_a_word_from_the_command(story: Story) -> None:
    out = io.StringIO()
    with Progress(Broken, lambda: Plain(out)) as shown:
        shown.say("comes to rest")
    assert out.getvalue() == "comes to rest\n"


def test_a_run_that_goes_on_is_shown_whole(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture begins with what happened before this process, without repeating the lines."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    last = story.recorded[-1]
    with Progress(lambda: Live(out, no_words, lambda run: story.recorded)) as shown:
        shown.on_event(last)
        time.sleep(0.3)
    assert "delivered" in out.getvalue()
    assert "login: delivered" not in out.getvalue()


def test_a_live_reporter_survives_odd_words(story: Story) -> None:
    def raises(digest: Digest | None) -> str:
        raise KeyError(digest)

    out = io.StringIO()
    with Progress(lambda: Live(out, raises, no_history), lambda: Plain(out)) as shown:
        for each in story.recorded:
            shown.on_event(each)
    assert "login: delivered" in out.getvalue()
