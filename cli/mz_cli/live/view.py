"""Live view of a run on a terminal, updated from its events, blobs and spools."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TextIO

from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_projections.views.model import FeatureView
from mz_projections.views.run import RunProjection

from mz_cli.app.context import TextLoader
from mz_cli.live.frame import ASCII, LOG_LINES, UNICODE, FrameContext, render_frame
from mz_cli.live.milestones import milestone_text
from mz_cli.live.painter import Painter
from mz_cli.live.pins import PinnedSettings, read_pinned_settings
from mz_cli.terminal.text import local_time, single_line, strip_escapes

PAINTS_PER_SECOND = 8
IDLE_FACTOR = 15
"""Minimum pause between two frames, in multiples of the time to paint one, so that a view of thousands of features does
not slow down the run."""
TEXTS_CACHED = 512
"""Cached texts of blobs, since each frame needs the same ones."""
CALLS_SEARCHED = 3
"""Last calls of a feature that are searched for output."""

EventReader = Callable[[str], Iterable[Recorded[Event]]]
RecentOutput = Callable[[str], tuple[str, ...]]
"""Key of a call -> last output lines of the agent, the newest last."""


class LiveView:
    """Live view of a run: repeatedly painted frames."""

    def __init__(
        self, stream: TextIO, load_text: TextLoader, read_events: EventReader, recent_output: RecentOutput, footer: str
    ) -> None:
        self._load_text, self._read_events, self._recent_output, self._footer = (
            lru_cache(TEXTS_CACHED)(load_text),
            read_events,
            recent_output,
            footer,
        )
        self._projection: RunProjection | None = None
        self._folded_position = 0
        """Log position up to which events were folded by `begin`."""
        self._pinned_settings: PinnedSettings | None = None
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._glyphs = UNICODE if "utf" in (getattr(stream, "encoding", "") or "").lower() else ASCII
        self._painter = Painter(stream)
        self._next_paint = 0.0

    def begin(self, run: str) -> None:
        """Show the run from its events in the log."""
        self._projection = RunProjection(run)
        for earlier in self._read_events(run):
            self._projection.apply(earlier)
            self._folded_position = max(self._folded_position, earlier.position)
        self._load_pinned_settings()

    def show_event(self, recorded: Recorded[Event]) -> None:
        if self._projection is None:
            self.begin(recorded.stream.split("/")[1])
        if recorded.position > self._folded_position and self._projection is not None:
            self._projection.apply(recorded)
            self._load_pinned_settings()
        if text := milestone_text(recorded):
            self._log.append(f"{local_time(recorded.observed_at_us)} {text}")

    def show_text(self, text: str) -> None:
        """Print a permanent line above the frame."""
        self._painter.show_text(strip_escapes(text))
        self._next_paint = 0.0

    def refresh(self) -> None:
        """Paint a frame if it is due."""
        started = time.monotonic()
        if self._projection is None or started < self._next_paint:
            return
        columns, lines = self._painter.size()
        context = FrameContext(
            now_us=time.time_ns() // 1000,
            width=columns,
            height=lines,
            glyphs=self._glyphs,
            planned=self._pinned_settings or PinnedSettings(),
            title=lambda feature: single_line(self._load_text(feature.title)),
            recent_output=self._last_output,
            log=tuple(self._log),
            footer=self._footer,
        )
        self._painter.paint(render_frame(self._projection.run, context))
        ended = time.monotonic()
        self._next_paint = ended + max(1 / PAINTS_PER_SECOND, (ended - started) * IDLE_FACTOR)

    def close(self) -> None:
        self._painter.close()

    def _load_pinned_settings(self) -> None:
        if self._pinned_settings is None and self._projection is not None and (pins := self._projection.pins):
            self._pinned_settings = read_pinned_settings(self._load_text(pins))

    def _last_output(self, feature: FeatureView) -> tuple[str, ...]:
        """Return the last output of the open call, from its spool; else the end of the last reply."""
        for call in reversed(feature.calls[-CALLS_SEARCHED:]):
            if call.status == "open" and (output := self._recent_output(call.key)):
                return output
            if call.text is not None:
                lines = [
                    text for raw_line in self._load_text(call.text).splitlines() if (text := single_line(raw_line))
                ]
                return tuple(lines[-1:])
        return ()
