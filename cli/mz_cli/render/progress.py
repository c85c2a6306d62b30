"""Adapter: shows a run while it works. It is told of recorded events; whatever happens to it, the run goes on."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_events.names import Digest
from mz_projections.overview import Overview

from mz_cli.render.console import console, is_terminal, may_escape
from mz_cli.render.frame import ASCII, LOG_LINES, UNICODE, Scenery, frame
from mz_cli.render.milestone import milestone
from mz_cli.render.text import clock, line

if TYPE_CHECKING:
    from rich.text import Text

REFRESH_PER_SECOND = 8

Words = Callable[[Digest | None], str]


class Reporter(Protocol):
    """What a way of showing does. Calls come one at a time."""

    def tell(self, recorded: Recorded[Event]) -> None: ...

    def close(self) -> None: ...


class Silent:
    """Says nothing."""

    def tell(self, recorded: Recorded[Event]) -> None:
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
            print(f"{clock(recorded.observed_at_us)} {line(words)}", file=self._stream, flush=True)

    def close(self) -> None:
        return


class Live:
    """A picture of the run, drawn over and over."""

    def __init__(self, stream: TextIO, words: Words) -> None:
        from rich.live import Live as Screen

        self._words = words
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
            self._overview = self._overview or Overview(recorded.stream.split("/")[1])
            self._overview.apply(recorded)
            if words := milestone(recorded):
                self._log.append(f"{clock(recorded.observed_at_us)} {words}")
            if not self._planned and (pins := self._overview.run.pins):
                self._planned = phases_of(self._words(pins))

    def close(self) -> None:
        self._screen.stop()

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
        """Ways of showing, the best first; each is made when it is needed."""
        self._left = deque(reporters)
        self._lock = threading.Lock()
        self._reporter: Reporter = Silent()
        self._next()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._close()
            self._reporter = Silent()

    def on_event(self, recorded: Recorded[Event]) -> None:
        """Never raises; may be called by any thread."""
        with self._lock:
            while True:
                try:
                    self._reporter.tell(recorded)
                    return
                except Exception:
                    self._close()
                    self._next()

    def _next(self) -> None:
        while self._left:
            try:
                self._reporter = self._left.popleft()()
                return
            except Exception:
                continue
        self._reporter = Silent()

    def _close(self) -> None:
        try:
            self._reporter.close()
        except Exception:
            return


def progress(words: Words, *, stream: TextIO | None = None, environment: Mapping[str, str] | None = None) -> Progress:
    """A picture where stderr is a terminal that can draw one, lines elsewhere."""
    stream, environment = stream or sys.stderr, os.environ if environment is None else environment
    drawn = is_terminal(stream) and may_escape(stream, environment)
    return Progress(*([lambda: Live(stream, words)] if drawn else []), lambda: Plain(stream))


class _Phase(msgspec.Struct, frozen=True):
    phase: str


class _Pipeline(msgspec.Struct, frozen=True):
    phases: tuple[_Phase, ...] = ()


class _Pins(msgspec.Struct, frozen=True):
    pipeline: _Pipeline = _Pipeline()


def phases_of(pins: str) -> tuple[str, ...]:
    """Names of the pinned pipeline's phases; none where the text is not that of pins."""
    try:
        return tuple(each.phase for each in msgspec.json.decode(pins, type=_Pins).pipeline.phases)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()
