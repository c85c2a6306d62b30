"""Show a run while it works, from recorded events. Errors of the view never affect the run.

The view has its own thread, so that a blocked terminal or a slow disk delays nothing else.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any, Literal, TextIO, TypeVar

import click
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_projections.views.model import FeatureView
from mz_projections.views.run import RunProjection

from mz_cli.app.context import TextLoader
from mz_cli.live.frame import (
    ASCII,
    LOG_LINES,
    UNICODE,
    FrameContext,
    PinnedSettings,
    read_pinned_settings,
    render_frame,
)
from mz_cli.live.milestones import milestone_text
from mz_cli.live.painter import Painter
from mz_cli.terminal.console import is_terminal, may_escape
from mz_cli.terminal.text import local_time, single_line, strip_escapes

TICK_SECONDS = 1 / 16
PATIENCE_SECONDS = 5.0
"""Maximum wait at the end for a blocked terminal."""
REASON_MAX = 200
PAINTS_PER_SECOND = 8
IDLE_FACTOR = 15
"""Minimum pause between two frames, in multiples of the time to paint one, so that a view of thousands of features does
not slow down the run."""
TEXTS_CACHED = 512
"""Cached texts of blobs, since each frame needs the same ones."""
CALLS_SEARCHED = 3
"""Last calls of a feature that are searched for output."""


DisplayMode = Literal["picture", "lines", "quiet"]
"""Most detailed display that the user wants."""
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


Action = tuple[Callable[[LiveView], None], Callable[[], str]]
"""What a live view does, and the line that is printed without one; empty: none."""


class Progress:
    """Shows a run in its own thread: in a live view, or as lines. A failing view is replaced by lines, and lines that
    cannot be printed by nothing."""

    def __init__(self, stream: TextIO, view: LiveView | None = None, quiet: bool = False) -> None:
        """`quiet`: print only the command's own messages."""
        self._stream, self._view, self._quiet, self._printed = stream, view, quiet, False
        self._actions: SimpleQueue[Action | None] = SimpleQueue()
        """None ends the thread."""
        self._thread = threading.Thread(target=self._work, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        """Show pending events, then close the view."""
        self._actions.put(None)
        self._thread.join(PATIENCE_SECONDS)

    @property
    def painting(self) -> bool:
        """True while a live view is on the terminal."""
        return self._view is not None

    def begin(self, run: str) -> None:
        """Show this run as it is now. Never raises."""
        self._actions.put((lambda view: view.begin(run), lambda: "" if self._quiet else f"watching run {run}"))

    def show_text(self, text: str) -> None:
        """Print a message of the command itself. Never raises."""
        self._actions.put((lambda view: view.show_text(text), lambda: text))

    def on_event(self, recorded: Recorded[Event]) -> None:
        """Show an event. Never raises, never waits; may be called from any thread."""
        self._actions.put((lambda view: view.show_event(recorded), lambda: self._event_line(recorded)))

    def _event_line(self, recorded: Recorded[Event]) -> str:
        text = "" if self._quiet else milestone_text(recorded)
        self._printed |= bool(text)
        return f"{local_time(recorded.observed_at_us)} {single_line(text)}" if text else ""

    def _work(self) -> None:
        while True:
            with suppress(Empty):
                action = self._actions.get(timeout=TICK_SECONDS)
                if action is None:
                    break
                self._run_action(action)
            self._run_action((lambda view: view.refresh(), str))
        if self._view is None and self._printed:
            self._print("\n")
        self._close_view()

    def _run_action(self, action: Action) -> None:
        show, line = action
        if self._view is not None:
            try:
                show(self._view)
                return
            except Exception as error:
                why = single_line(f"{type(error).__name__}: {error}"[:REASON_MAX])
                self._close_view()
                self._print(f"the live view failed ({why}); the run continues, shown as lines\n")
        if text := line():
            self._print(f"{strip_escapes(text)}\n")

    def _print(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def _close_view(self) -> None:
        view, self._view = self._view, None
        with suppress(Exception):
            if view is not None:
                view.close()


def make_progress(
    load_text: TextLoader,
    read_events: EventReader,
    recent_output: RecentOutput,
    *,
    footer: str,
    mode: DisplayMode = "picture",
    stream: TextIO | None = None,
    environment: Mapping[str, str] | None = None,
) -> Progress:
    """Return a live view if stderr is a terminal that supports it, else lines; at most what `mode` allows.

    `read_events`: all events of a run in the log; `recent_output`: last output lines of an open call, by its key;
    `footer`: available keys."""
    stream, environment = stream or sys.stderr, os.environ if environment is None else environment
    paints = mode == "picture" and may_paint(stream, environment)
    view = LiveView(stream, load_text, read_events, recent_output, footer) if paints else None
    return Progress(stream, view, quiet=mode == "quiet")


def may_paint(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return True if the stream supports a live view, and neither `MZ_NO_PROGRESS` nor `CI` forbids it."""
    able = is_terminal(stream) and environment.get("TERM", "dumb") not in ("dumb", "unknown", "")
    return able and may_escape(stream, environment) and not (environment.get("MZ_NO_PROGRESS") or environment.get("CI"))


F = TypeVar("F", bound=Callable[..., Any])


def view_options(function: F) -> F:
    """Decorator: add `--no-progress` and `--quiet`, without a parameter; `display_mode` returns the result."""

    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        context.meta[f"mz.{parameter.name}"] = value

    quiet = click.option(
        "--quiet", "-q", is_flag=True, expose_value=False, callback=remember,
        help="Show only warnings while it works.",
    )  # fmt: skip
    no_progress = click.option(
        "--no-progress", is_flag=True, expose_value=False, callback=remember,
        help="Show one line per change instead of a live view; as does MZ_NO_PROGRESS=1.",
    )  # fmt: skip
    return no_progress(quiet(function))


def display_mode() -> DisplayMode:
    """Return the display mode that the flags of the running command allow; by default a live picture."""
    context = click.get_current_context(silent=True)
    chosen = context.meta if context else {}
    return "quiet" if chosen.get("mz.quiet") else "lines" if chosen.get("mz.no_progress") else "picture"
