"""Live view of a run on a terminal, updated from its events, blobs and spools."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TextIO

from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_events.names import Digest
from mz_projections.overview import Overview
from mz_projections.views import FeatureView

from mz_cli.render.card import ASCII, UNICODE
from mz_cli.render.frame import LOG_LINES, Scenery, frame
from mz_cli.render.milestone import milestone
from mz_cli.render.painter import Painter
from mz_cli.render.planned import Planned, planned_of
from mz_cli.render.text import clean, clock, line

PAINTS_PER_SECOND = 8
LEISURE = 15
"""Minimum pause between two frames, in multiples of the time to paint one, so that a view of thousands of features does
not slow down the run."""
WORDS_KEPT = 512
"""Cached texts of blobs, since each frame needs the same ones."""
CALLS_SEARCHED = 3
"""Last calls of a feature that are searched for output."""

Words = Callable[[Digest | None], str]
History = Callable[[str], Iterable[Recorded[Event]]]
Said = Callable[[str], tuple[str, ...]]
"""Key of a call -> last output lines of the agent, the newest last."""


class Live:
    """Live view of a run: repeatedly painted frames."""

    def __init__(self, stream: TextIO, words: Words, history: History, said: Said, footer: str) -> None:
        self._words, self._history, self._said, self._footer = lru_cache(WORDS_KEPT)(words), history, said, footer
        self._overview: Overview | None = None
        self._known = 0
        """Log position up to which events were folded by `begin`."""
        self._planned: Planned | None = None
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._glyphs = UNICODE if "utf" in (getattr(stream, "encoding", "") or "").lower() else ASCII
        self._painter = Painter(stream)
        self._next = 0.0

    def begin(self, run: str) -> None:
        """Show the run from its events in the log."""
        self._overview = Overview(run)
        for earlier in self._history(run):
            self._overview.apply(earlier)
            self._known = max(self._known, earlier.position)
        self._learn_plan()

    def tell(self, recorded: Recorded[Event]) -> None:
        if self._overview is None:
            self.begin(recorded.stream.split("/")[1])
        if recorded.position > self._known and self._overview is not None:
            self._overview.apply(recorded)
            self._learn_plan()
        if words := milestone(recorded):
            self._log.append(f"{clock(recorded.observed_at_us)} {words}")

    def say(self, text: str) -> None:
        """Print a permanent line above the frame."""
        self._painter.say(clean(text))
        self._next = 0.0

    def tick(self) -> None:
        """Paint a frame if it is due."""
        began = time.monotonic()
        if self._overview is None or began < self._next:
            return
        columns, lines = self._painter.size()
        scenery = Scenery(
            now_us=time.time_ns() // 1000, width=columns, height=lines, glyphs=self._glyphs,
            planned=self._planned or Planned(),
            title=lambda feature: line(self._words(feature.title)), said=self._last_words, log=tuple(self._log),
            footer=self._footer,
        )  # fmt: skip
        self._painter.paint(frame(self._overview.run, scenery))
        ended = time.monotonic()
        self._next = ended + max(1 / PAINTS_PER_SECOND, (ended - began) * LEISURE)

    def close(self) -> None:
        self._painter.close()

    def _learn_plan(self) -> None:
        if self._planned is None and self._overview is not None and (pins := self._overview.pins):
            self._planned = planned_of(self._words(pins))

    def _last_words(self, feature: FeatureView) -> tuple[str, ...]:
        """Return the last output of the open call, from its spool; else the end of the last reply."""
        for call in reversed(feature.calls[-CALLS_SEARCHED:]):
            if call.outcome == "open" and (said := self._said(call.key)):
                return said
            if call.text is not None:
                lines = [words for each in self._words(call.text).splitlines() if (words := line(each))]
                return tuple(lines[-1:])
        return ()
