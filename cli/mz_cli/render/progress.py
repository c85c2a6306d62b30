"""Adapter: shows a run while it works. It is told of recorded events; whatever happens to it, the run goes on.

A thread of its own does the showing: a terminal that is stuck, or a disk that is slow, holds up nobody else.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import methodcaller
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple, Protocol, TextIO

from mz_events.catalog.base import Event
from mz_events.envelope import Recorded

from mz_cli.render.console import is_terminal, may_escape
from mz_cli.render.live import History, Live, Said, Words
from mz_cli.render.milestone import milestone
from mz_cli.render.text import clean, clock, line

TICK_SECONDS = 1 / 16
PATIENCE_SECONDS = 5.0
"""How long the end waits for a terminal that takes nothing more."""
REASON_MAX = 200

Wish = Literal["picture", "lines", "quiet"]
"""What the user wants to see at most: see `progress`."""


class Reporter(Protocol):
    """What a way of showing does. Calls come one at a time, from one thread."""

    def begin(self, run: str) -> None:
        """This run is shown, as the log has it; what is told from now on is new."""

    def tell(self, recorded: Recorded[Event]) -> None: ...

    def say(self, text: str) -> None: ...

    def tick(self) -> None:
        """Called several times a second."""

    def close(self) -> None: ...


class Quiet:
    """Says only what the command itself has to say."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, run: str) -> None:
        return

    def tell(self, recorded: Recorded[Event]) -> None:
        return

    def say(self, text: str) -> None:
        print(clean(text), file=self._stream, flush=True)

    def tick(self) -> None:
        return

    def close(self) -> None:
        return


class Plain(Quiet):
    """A line for each change that people care about."""

    def begin(self, run: str) -> None:
        self.say(f"watching run {run}")

    def tell(self, recorded: Recorded[Event]) -> None:
        words = milestone(recorded)
        if words:
            self.say(f"{clock(recorded.observed_at_us)} {line(words)}")


class _Told(NamedTuple):
    recorded: Recorded[Event]


class _Said(NamedTuple):
    text: str


class _Begun(NamedTuple):
    run: str


class _Over(NamedTuple):
    pass


class Progress:
    """Hands events to a reporter. One that fails is replaced by a plainer one, and at last by silence."""

    def __init__(self, *reporters: Callable[[], Reporter]) -> None:
        """Ways of showing, the best first; each is made when there is something to show."""
        self._left = deque(reporters)
        self._mail: SimpleQueue[_Told | _Said | _Begun | _Over] = SimpleQueue()
        self._reporter: Reporter | None = None
        self._thread = threading.Thread(target=self._work, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        """Shows what is left to be shown."""
        self._mail.put(_Over())
        self._thread.join(PATIENCE_SECONDS)

    @property
    def painting(self) -> bool:
        """Whether a picture is on the terminal now."""
        return isinstance(self._reporter, Live)

    def begin(self, run: str) -> None:
        """Show this run as it is now. Never raises."""
        self._mail.put(_Begun(run))

    def say(self, text: str) -> None:
        """A word from the command itself. Never raises."""
        self._mail.put(_Said(text))

    def on_event(self, recorded: Recorded[Event]) -> None:
        """Never raises, never waits; may be called by any thread."""
        self._mail.put(_Told(recorded))

    def _work(self) -> None:
        while True:
            try:
                message = self._mail.get(timeout=TICK_SECONDS)
            except Empty:
                message = None
            match message:
                case _Over():
                    break
                case _Told(recorded=recorded):
                    self._with(methodcaller("tell", recorded))
                case _Said(text=text):
                    self._with(methodcaller("say", text))
                case _Begun(run=run):
                    self._with(methodcaller("begin", run))
            if self._reporter is not None:
                self._with(methodcaller("tick"))
        self._close()

    def _with(self, use: Callable[[Reporter], None]) -> None:
        """Has the reporter do it; where it fails, the next one."""
        while True:
            try:
                if self._reporter is None:
                    if not self._left:
                        return
                    self._reporter = self._left.popleft()()
                use(self._reporter)
                return
            except Exception as error:
                self._replace(error)

    def _replace(self, error: Exception) -> None:
        """Closes what failed; the next way of showing says why it is used."""
        self._close()
        if self._left:
            why = line(f"{type(error).__name__}: {error}"[:REASON_MAX])
            self._with(methodcaller("say", f"the view failed ({why}); the run goes on, shown as lines"))

    def _close(self) -> None:
        reporter, self._reporter = self._reporter, None
        with suppress(Exception):
            if reporter is not None:
                reporter.close()


def progress(
    words: Words, history: History, said: Said, *, footer: str, wish: Wish = "picture", stream: TextIO | None = None,
    environment: Mapping[str, str] | None = None,
) -> Progress:  # fmt: skip
    """A picture where stderr is a terminal that can draw one, lines elsewhere; at most what `wish` allows.

    `history`: the events of a run as the log has them now; `said`: last words of an open call, by its key; `footer`:
    what whoever watches can do."""
    stream, environment = stream or sys.stderr, os.environ if environment is None else environment
    if wish == "quiet":
        return Progress(lambda: Quiet(stream))
    if wish == "picture" and may_paint(stream, environment):
        return Progress(lambda: Live(stream, words, history, said, footer), lambda: Plain(stream))
    return Progress(lambda: Plain(stream))


def may_paint(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a picture can be shown there and nobody has forbidden it: `MZ_NO_PROGRESS` does when it is not empty."""
    able = is_terminal(stream) and environment.get("TERM", "dumb") not in ("dumb", "unknown", "")
    return able and may_escape(stream, environment) and not environment.get("MZ_NO_PROGRESS")
