"""Show a run while it works, from recorded events. Errors of the view never affect the run.

The view has its own thread, so that a blocked terminal or a slow disk delays nothing else.

Display options of all commands that drive or watch a run.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Literal, Protocol, TextIO, TypeVar, cast

import click
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded

from mz_cli.app.context import TextLoader
from mz_cli.live.milestones import milestone_text
from mz_cli.live.view import EventReader, LiveView, RecentOutput
from mz_cli.terminal.console import is_terminal, may_escape
from mz_cli.terminal.text import local_time, single_line, strip_escapes

TICK_SECONDS = 1 / 16
PATIENCE_SECONDS = 5.0
"""Maximum wait at the end for a blocked terminal."""
REASON_MAX = 200

DisplayMode = Literal["picture", "lines", "quiet"]
"""Most detailed display that the user wants."""


class Reporter(Protocol):
    """One way of showing a run. All calls come from one thread."""

    def begin(self, run: str) -> None:
        """Show this run from its events in the log; events reported later are new."""

    def show_event(self, recorded: Recorded[Event]) -> None: ...

    def show_text(self, text: str) -> None: ...

    def refresh(self) -> None:
        """Called several times a second."""

    def close(self) -> None: ...


class QuietReporter:
    """Reporter that prints only the command's own messages."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, run: str) -> None:
        return

    def show_event(self, recorded: Recorded[Event]) -> None:
        return

    def show_text(self, text: str) -> None:
        print(strip_escapes(text), file=self._stream, flush=True)

    def refresh(self) -> None:
        return

    def close(self) -> None:
        return


class LineReporter(QuietReporter):
    """Reporter that prints one line per important event, and an empty line before the summary that follows."""

    _printed = False

    def begin(self, run: str) -> None:
        self.show_text(f"watching run {run}")

    def show_event(self, recorded: Recorded[Event]) -> None:
        text = milestone_text(recorded)
        if text:
            self.show_text(f"{local_time(recorded.observed_at_us)} {single_line(text)}")
            self._printed = True

    def close(self) -> None:
        if self._printed:
            print(file=self._stream, flush=True)


class Progress:
    """Passes events to a reporter. A failing reporter is replaced by the next one, and the last one by nothing."""

    def __init__(self, *reporters: Callable[[], Reporter]) -> None:
        """`reporters`: factories, the preferred first, called when there is something to show."""
        self._fallbacks = deque(reporters)
        self._actions: SimpleQueue[Callable[[Reporter], None] | None] = SimpleQueue()
        """Calls of the reporter; None ends the thread."""
        self._reporter: Reporter | None = None
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
        return isinstance(self._reporter, LiveView)

    def begin(self, run: str) -> None:
        """Show this run as it is now. Never raises."""
        self._actions.put(lambda reporter: reporter.begin(run))

    def show_text(self, text: str) -> None:
        """Print a message of the command itself. Never raises."""
        self._actions.put(lambda reporter: reporter.show_text(text))

    def on_event(self, recorded: Recorded[Event]) -> None:
        """Show an event. Never raises, never waits; may be called from any thread."""
        self._actions.put(lambda reporter: reporter.show_event(recorded))

    def _work(self) -> None:
        while True:
            try:
                action = self._actions.get(timeout=TICK_SECONDS)
            except Empty:
                pass
            else:
                if action is None:
                    break
                self._run_action(action)
            if self._reporter is not None:
                self._run_action(lambda reporter: reporter.refresh())
        self._close()

    def _run_action(self, action: Callable[[Reporter], None]) -> None:
        """Call the reporter; if it fails, the next one."""
        while True:
            try:
                if self._reporter is None:
                    if not self._fallbacks:
                        return
                    self._reporter = self._fallbacks.popleft()()
                action(self._reporter)
                return
            except Exception as error:
                self._replace(error)

    def _replace(self, error: Exception) -> None:
        """Close the failed reporter; the next one prints the reason."""
        self._close()
        if self._fallbacks:
            why = single_line(f"{type(error).__name__}: {error}"[:REASON_MAX])
            text = f"the live view failed ({why}); the run continues, shown as lines"
            self._run_action(lambda reporter: reporter.show_text(text))

    def _close(self) -> None:
        reporter, self._reporter = self._reporter, None
        with suppress(Exception):
            if reporter is not None:
                reporter.close()


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
    if mode == "quiet":
        return Progress(lambda: QuietReporter(stream))
    if mode == "picture" and may_paint(stream, environment):
        return Progress(
            lambda: LiveView(stream, load_text, read_events, recent_output, footer), lambda: LineReporter(stream)
        )
    return Progress(lambda: LineReporter(stream))


def may_paint(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return True if the stream supports a live view, and neither `MZ_NO_PROGRESS` nor `CI` forbids it."""
    able = is_terminal(stream) and environment.get("TERM", "dumb") not in ("dumb", "unknown", "")
    return able and may_escape(stream, environment) and not (environment.get("MZ_NO_PROGRESS") or environment.get("CI"))


F = TypeVar("F", bound=Callable[..., Any])
META_KEY = "mz_cli.wish"


def view_options(function: F) -> F:
    """Decorator: add `--no-progress` and `--quiet`, without a parameter; `display_mode` returns the result."""
    quiet = click.option(
        "--quiet", "-q", is_flag=True, expose_value=False, callback=_remember_mode("quiet"),
        help="Show only warnings while it works.",
    )  # fmt: skip
    no_progress = click.option(
        "--no-progress", is_flag=True, expose_value=False, callback=_remember_mode("lines"),
        help="Show one line per change instead of a live view; as does MZ_NO_PROGRESS=1.",
    )  # fmt: skip
    return no_progress(quiet(function))


def _remember_mode(mode: DisplayMode) -> Callable[[click.Context, click.Parameter, bool], bool]:
    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
        if value and context.meta.get(META_KEY) != "quiet":
            context.meta[META_KEY] = mode
        return value

    return remember


def display_mode() -> DisplayMode:
    """Return the display mode that the flags of the running command allow; by default a live picture."""
    context = click.get_current_context(silent=True)
    return cast(DisplayMode, context.meta.get(META_KEY, "picture")) if context else "picture"
