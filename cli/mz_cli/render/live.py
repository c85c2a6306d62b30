"""Adapter: the picture of a run on a terminal, kept up to date from its events, its blobs and its agents' spools."""

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
"""A picture is painted at most once in so many times what painting it takes: a run of thousands of features has better
things to do."""
WORDS_KEPT = 512
"""Texts of blobs; each picture asks for the same ones again."""
CALLS_SEARCHED = 3
"""Last calls of a feature whose words are looked at."""

Words = Callable[[Digest | None], str]
History = Callable[[str], Iterable[Recorded[Event]]]
Said = Callable[[str], tuple[str, ...]]
"""Key of a call -> the last words of the agent, the newest last."""


class Live:
    """A picture of the run, painted over and over."""

    def __init__(self, stream: TextIO, words: Words, history: History, said: Said, footer: str) -> None:
        self._words, self._history, self._said, self._footer = lru_cache(WORDS_KEPT)(words), history, said, footer
        self._overview: Overview | None = None
        self._known = 0
        """Position up to which the fold was made from the log."""
        self._planned: Planned | None = None
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._glyphs = UNICODE if "utf" in (getattr(stream, "encoding", "") or "").lower() else ASCII
        self._painter = Painter(stream)
        self._next = 0.0

    def begin(self, run: str) -> None:
        """Shows the run as the log has it."""
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
        """Above the picture, where it stays."""
        self._painter.say(clean(text))
        self._next = 0.0

    def tick(self) -> None:
        """Paints, where it is time to."""
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
        """Of the call that is open, as its spool grows; else the end of what the last one replied."""
        for call in reversed(feature.calls[-CALLS_SEARCHED:]):
            if call.outcome == "open" and (said := self._said(call.key)):
                return said
            if call.text is not None:
                lines = [words for each in self._words(call.text).splitlines() if (words := line(each))]
                return tuple(lines[-1:])
        return ()
