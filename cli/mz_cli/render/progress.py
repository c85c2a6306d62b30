"""Adapter: shows a run while it works. It is told of recorded events; whatever happens to it, the run goes on."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_events.names import Digest
from mz_projections.overview import Overview

from mz_cli.render.console import console, is_terminal, may_escape
from mz_cli.render.frame import ASCII, LOG_LINES, UNICODE, Scenery, frame
from mz_cli.render.milestone import milestone
from mz_cli.render.text import clean, clock, line

if TYPE_CHECKING:
    from rich.text import Text

REFRESH_PER_SECOND = 8
WORDS_KEPT = 256
"""Texts of blobs; each picture asks for the same ones again."""

Words = Callable[[Digest | None], str]
History = Callable[[str], Iterable[Recorded[Event]]]


class Reporter(Protocol):
    """What a way of showing does. Calls come one at a time."""

    def tell(self, recorded: Recorded[Event]) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class Silent:
    """Says nothing."""

    def tell(self, recorded: Recorded[Event]) -> None:
        return

    def say(self, text: str) -> None:
        return

    def close(self) -> None:
        return


class Plain:
    """A line for each change that people care about."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def tell(self, recorded: Recorded[Event]) -> None:
        words = milestone(recorded)
        if words:
            self.say(f"{clock(recorded.observed_at_us)} {line(words)}")

    def say(self, text: str) -> None:
        print(clean(text), file=self._stream, flush=True)

    def close(self) -> None:
        return


class Live:
    """A picture of the run, drawn over and over."""

    def __init__(self, stream: TextIO, words: Words, history: History) -> None:
        from rich.live import Live as Screen

        self._words, self._history = lru_cache(WORDS_KEPT)(words), history
        self._overview: Overview | None = None
        self._planned: tuple[str, ...] = ()
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._lock = threading.Lock()
        self._glyphs = UNICODE if "utf" in (getattr(stream, "encoding", "") or "").lower() else ASCII
        self._console = console(stream)
        self._screen = Screen(
            get_renderable=self._draw, console=self._console, refresh_per_second=REFRESH_PER_SECOND, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._screen.start()

    def tell(self, recorded: Recorded[Event]) -> None:
        with self._lock:
            self._overview = self._overview or self._begun(recorded)
            self._overview.apply(recorded)
            if words := milestone(recorded):
                self._log.append(f"{clock(recorded.observed_at_us)} {words}")
            if not self._planned and (pins := self._overview.run.pins):
                self._planned = phases_of(self._words(pins))

    def say(self, text: str) -> None:
        """Above the picture, where it stays."""
        from rich.text import Text

        self._console.print(Text(clean(text)))

    def close(self) -> None:
        self._screen.stop()

    def _begun(self, recorded: Recorded[Event]) -> Overview:
        """The fold of everything before that event."""
        run = recorded.stream.split("/")[1]
        overview = Overview(run)
        for earlier in self._history(run):
            if earlier.position < recorded.position:
                overview.apply(earlier)
        return overview

    def _draw(self) -> Text:
        """Called by the screen's own thread, where an error would be printed over the picture."""
        from rich.text import Text

        try:
            return self._picture()
        except Exception as error:
            return Text(f"the picture cannot be drawn: {type(error).__name__}; the run goes on")

    def _picture(self) -> Text:
        from rich.text import Text

        with self._lock:
            if self._overview is None:
                return Text("starting")
            view, log = self._overview.run, tuple(self._log)
        size = self._console.size
        scenery = Scenery(now_us=time.time_ns() // 1000, width=size.width, height=max(size.height - 1, 1),
                          glyphs=self._glyphs, planned=self._planned, words=self._words, log=log)  # fmt: skip
        picture = Text(no_wrap=True, overflow="crop", end="")
        for each in frame(view, scenery):
            picture.append(f"{each.text}\n", style=each.style)
        return picture


class Progress:
    """Hands events to a reporter. One that fails is replaced by a plainer one, and at last by silence."""

    def __init__(self, *reporters: Callable[[], Reporter]) -> None:
        """Ways of showing, the best first; each is made when there is something to show."""
        self._left = deque(reporters)
        self._lock = threading.Lock()
        self._reporter: Reporter | None = None

    def say(self, text: str) -> None:
        """A word from the command itself. Never raises."""
        self._with(lambda reporter: reporter.say(text))

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._close()
            self._left.clear()

    def on_event(self, recorded: Recorded[Event]) -> None:
        """Never raises; may be called by any thread."""
        self._with(lambda reporter: reporter.tell(recorded))

    def _with(self, use: Callable[[Reporter], None]) -> None:
        with self._lock:
            while True:
                try:
                    self._reporter = self._reporter or (self._left.popleft() if self._left else Silent)()
                    use(self._reporter)
                    return
                except Exception:
                    self._close()

    def _close(self) -> None:
        reporter, self._reporter = self._reporter, None
        with suppress(Exception):
            if reporter is not None:
                reporter.close()


def progress(
    words: Words, history: History, *, stream: TextIO | None = None, environment: Mapping[str, str] | None = None
) -> Progress:
    """A picture where stderr is a terminal that can draw one, lines elsewhere. `history`: what happened in a run before
    the first event that this is told."""
    stream, environment = stream or sys.stderr, os.environ if environment is None else environment
    if is_terminal(stream) and may_escape(stream, environment):
        return Progress(lambda: Live(stream, words, history), lambda: Plain(stream))
    return Progress(lambda: Plain(stream))


class _Phase(msgspec.Struct, frozen=True):
    phase: str


class _Pipeline(msgspec.Struct, frozen=True):
    phases: tuple[_Phase, ...] = ()


class _Pins(msgspec.Struct, frozen=True):
    pipeline: _Pipeline = _Pipeline()


_PINS = msgspec.json.Decoder(_Pins)


def phases_of(pins: str) -> tuple[str, ...]:
    """Names of the pinned pipeline's phases; none where the text is not that of pins."""
    try:
        return tuple(each.phase for each in _PINS.decode(pins).pipeline.phases)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()
