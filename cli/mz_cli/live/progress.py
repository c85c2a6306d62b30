"""Show a run while it works, from recorded events. Errors of the view never affect the run.

The view has its own thread, so that a blocked terminal or a slow disk delays nothing else. Agents write JSON Lines in
different formats, all read alike: texts, commands and files of tools, and plain lines are shown, the unknown skipped.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TextIO

import msgspec
from mz_engine.agents.process import spool_directory
from mz_engine.paths import MZ_FOLDER, SPOOL_FOLDER
from mz_events.catalog.base import Event
from mz_events.store import Recorded
from mz_projections.views.model import FeatureView
from mz_projections.views.run import RunProjection

from mz_cli.app.context import ProjectLog
from mz_cli.app.help import display_mode
from mz_cli.live.frame import LOG_LINES, FrameContext, render_frame
from mz_cli.live.milestones import live_text
from mz_cli.terminal.console import is_terminal, terminal_size, write_text
from mz_cli.terminal.text import Line, ansi_text, display_width, local_time, plain_text, single_line, strip_escapes

TOOL_KEYS = ["command", "file_path", "path", "notebook_path", "pattern", "query", "url", "description", "prompt"]
"""Arguments of a tool that describe its use, the best first."""
CHARACTERS_MAX = 500
"""Maximum length of a line; no terminal shows more."""
TAIL_BYTES = 64 * 1024
LINES_SHOWN = 3
_JSON = msgspec.json.Decoder()


class SpoolReader:
    """Reader of the spools of one repository. Paths of its worktrees are removed from the output."""

    def __init__(self, root: Path) -> None:
        self._spools = root / MZ_FOLDER / SPOOL_FOLDER
        # The path of the repository may contain blanks, also with shell escapes.
        repository = re.escape(str(root)).replace(r"\ ", r"\\?\ ")
        worktree = r"/\.mz/worktrees/[^/\s]+/[^/\s]+/"
        self._worktrees = re.compile(repository + worktree), re.compile(rf"\S*{worktree}")

    def recent_output(self, key: str) -> tuple[str, ...]:
        """Return the last lines of the call with that key, the newest last; empty without output."""
        try:
            with open(spool_directory(self._spools, key) / "stdout", "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                return self.last_lines(file.read(TAIL_BYTES))
        except OSError:
            return ()

    def last_lines(self, output: bytes) -> tuple[str, ...]:
        """Return the last lines without escapes, the newest last. `output` may start and end within a line."""
        texts = (text for raw in reversed(output.splitlines()) for text in reversed([*_line_texts(raw)]))
        own, other = self._worktrees
        lines = (single_line(other.sub("", own.sub("", text[:CHARACTERS_MAX]))) for text in texts)
        return tuple(islice(filter(None, lines), LINES_SHOWN))[::-1]


def _line_texts(raw: bytes) -> Iterator[str]:
    if not raw.lstrip().startswith((b"{", b"[")):
        # Skip the end of a long JSON line whose start was cut off.
        if b'"' not in raw:
            yield raw.decode("utf-8", "replace")
        return
    try:
        yield from _event_texts(_JSON.decode(raw))
    except (msgspec.DecodeError, RecursionError):
        return


def _event_texts(value: Any) -> Iterator[str]:
    """Yield texts of the agent in an event, not those of the user or of a tool's result."""
    if isinstance(value, list):
        for element in value:
            yield from _event_texts(element)
    foreign = ("user", "system", "tool_result", "thinking")
    if not isinstance(value, dict) or value.get("role") in foreign[:2] or value.get("type") in foreign:
        return
    name = value.get("name") or value.get("tool_name")
    tool_input = value.get("input") or value.get("parameters")
    if isinstance(name, str) and isinstance(tool_input, dict):
        argument = next((tool_input[key] for key in TOOL_KEYS if isinstance(tool_input.get(key), str)), "")
        yield f"{name} {argument}".rstrip()
        return
    for key in ("text", "command"):
        if isinstance(value.get(key), str):
            yield from value[key].splitlines()
    content = value.get("content")
    if isinstance(content, str) and value.get("role") == "assistant":
        yield from content.splitlines()
    for key in ("message", "content", "item", "delta"):
        yield from _event_texts(value.get(key))


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
SILENCE_SECONDS = 60.0
CALLS_SEARCHED = 3
"""Last calls of a feature that are searched for output."""
BEGIN, END = "\x1b[?2026h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?2026l"
"""Synchronised update, hidden cursor, no wrapping; and their end."""
BELL = "\a"
SHOW_CURSOR, WRAP = "\x1b[?25h", "\x1b[?7h"
LINES_UP, ERASE_LINE, ERASE_BELOW = "\x1b[{}A", "\x1b[K", "\x1b[J"
ERASE_FRAME = f"{ERASE_LINE}\n{ERASE_BELOW}{LINES_UP.format(1)}"
"""Its first line apart, because tmux moves into its history what is erased from the top of the screen."""


class Painter:
    """Paints frames over each other at the bottom of a terminal, below its earlier content. Not thread-safe.

    A frame is written at once, with automatic wrapping off, so that a character of unexpected width cannot break it.
    Raises OSError and ValueError if the terminal is closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._painted: list[tuple[str, int]] = []
        """Each line on the terminal, and its width."""
        self._size = 0, 0

    def paint(self, lines: Sequence[Line]) -> None:
        """Replace the frame by these lines, which must fit the size. Lines that did not change are not written."""
        size, top = terminal_size(self._stream), self._move_to_top()
        painted = [(ansi_text(line), display_width(plain_text(line))) for line in lines]
        same = size == self._size and len(painted) == len(self._painted)
        kept = [same and line == self._painted[at] for at, line in enumerate(painted)]
        drawn = ["" if is_kept else ERASE_LINE + text for is_kept, (text, _) in zip(kept, painted, strict=True)]
        drawn[-1] = ERASE_BELOW + painted[-1][0]  # The cursor is there, and with it what is typed.
        write_text(self._stream, BEGIN + top + "\r\n".join(drawn) + END)
        self._painted, self._size = painted, size

    def show_text(self, text: str) -> None:
        """Print permanent lines; the next `paint` draws the frame below them."""
        self._erase(text.replace("\n", "\r\n") + "\r\n")

    def close(self) -> None:
        """Remove the frame, and show the cursor."""
        self._erase(SHOW_CURSOR)

    def _erase(self, text: str) -> None:
        """Replace the frame by the text."""
        write_text(self._stream, self._move_to_top() + ERASE_FRAME + WRAP + text)
        self._painted = []

    def _move_to_top(self) -> str:
        """After a resize the terminal may have wrapped long lines."""
        columns, lines = terminal_size(self._stream)
        rows = sum(max(-(-width // columns), 1) for _, width in self._painted)
        lines_up = min(rows, lines) - 1
        return "\r" + (LINES_UP.format(lines_up) if lines_up > 0 else "")


class LiveView:
    """Live view of a run: repeatedly painted frames."""

    def __init__(self, stream: TextIO, log: ProjectLog, footer: str) -> None:
        """`footer`: available keys."""
        self._log, self._footer, self._spools = log, footer, SpoolReader(log.root)
        self._load_text, self._load_pins = lru_cache(TEXTS_CACHED)(log.load_text), lru_cache(1)(log.load_pins)
        self._projection: RunProjection | None = None
        self._folded_position = 0
        """Log position up to which events were folded by `begin`."""
        self._milestones: deque[str] = deque(maxlen=LOG_LINES)
        self._stream, self._painter = stream, Painter(stream)
        self._next_paint = 0.0

    def begin(self, run: str) -> RunProjection:
        """Show the run from its events in the log."""
        self._projection = RunProjection(run)
        for earlier in self._log.events(run):
            self._projection.apply(earlier)
            self._folded_position = max(self._folded_position, earlier.position)
        return self._projection

    def show_event(self, recorded: Recorded[Event]) -> None:
        projection = self._projection or self.begin(recorded.stream.split("/")[1])
        if recorded.position > self._folded_position:
            projection.apply(recorded)
        if text := live_text(recorded):
            self._milestones.append(f"{local_time(recorded.observed_at_us)} {text}")

    def show_text(self, text: str) -> None:
        """Print a permanent line above the frame."""
        self._painter.show_text(strip_escapes(text))
        self._next_paint = 0.0

    def refresh(self) -> None:
        """Paint a frame if it is due."""
        started = time.monotonic()
        if self._projection is None or started < self._next_paint:
            return
        columns, lines = terminal_size(self._stream)
        run = self._projection.run
        context = FrameContext(
            now_us=time.time_ns() // 1000,
            width=columns,
            height=lines,
            pins=self._load_pins(run.pins),
            title=lambda feature: self._load_text(feature.title),
            question=lambda feature: self._load_text(feature.question.detail if feature.question else None),
            recent_output=self._last_output,
            log=tuple(self._milestones),
            footer=self._footer,
        )
        self._painter.paint(render_frame(run, context))
        ended = time.monotonic()
        self._next_paint = ended + max(1 / PAINTS_PER_SECOND, (ended - started) * IDLE_FACTOR)

    def close(self) -> None:
        self._painter.close()

    def _last_output(self, feature: FeatureView) -> tuple[str, ...]:
        """Return the last output of the open call, from its spool; else the end of the last reply."""
        for call in reversed(feature.calls[-CALLS_SEARCHED:]):
            if call.status == "open" and (output := self._spools.recent_output(call.key)):
                return output
            if call.text is not None:
                return tuple(filter(None, map(single_line, self._load_text(call.text).splitlines())))[-1:]
        return ()


Action = tuple[Callable[[LiveView], object], Callable[[], str | None]]
"""What a live view does, and the line that is printed without one; empty or None: none."""


class Progress:
    """Shows a run in its own thread: in a live view, or as lines. A failing view is replaced by lines, and lines that
    cannot be printed by nothing."""

    def __init__(self, stream: TextIO, view: LiveView | None = None, quiet: bool = False) -> None:
        """`quiet`: print only the command's own messages."""
        self._stream, self._view, self._quiet, self._printed = stream, view, quiet, False
        self._silence_seconds, self._printed_at = SILENCE_SECONDS, time.monotonic()
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

    def restore_terminal(self) -> None:
        """Reset the terminal when the process is killed. Safe in signal handlers, since it takes no lock."""
        with suppress(OSError, ValueError):
            if self._view is not None:
                os.write(self._stream.fileno(), f"{WRAP}{SHOW_CURSOR}\r\n".encode())

    def begin(self, run: str) -> None:
        """Show this run as it is now. Never raises."""
        self._actions.put((lambda view: view.begin(run), lambda: "" if self._quiet else f"watching run {run}"))

    def show_text(self, text: str) -> None:
        """Print a message of the command itself. Never raises."""
        self._actions.put((lambda view: view.show_text(text), lambda: text))

    def ring(self) -> None:
        """Ring the terminal's bell. Never raises."""
        if not self._quiet and is_terminal(self._stream):
            self._actions.put((lambda _: self._print(BELL), lambda: self._print(BELL)))

    def on_event(self, recorded: Recorded[Event]) -> None:
        """Show an event. Never raises, never waits; may be called from any thread."""
        self._actions.put((lambda view: view.show_event(recorded), lambda: self._event_line(recorded)))

    def _event_line(self, recorded: Recorded[Event]) -> str:
        text = "" if self._quiet else live_text(recorded)
        if text:
            self._printed, self._silence_seconds, self._printed_at = True, SILENCE_SECONDS, time.monotonic()
        return f"{local_time(recorded.observed_at_us)} {single_line(text)}" if text else ""

    def _silence_line(self) -> str:
        """Return a line after a minute without one, then after twice that time, and so on, in which the run worked."""
        if not self._printed or time.monotonic() - self._printed_at < self._silence_seconds:
            return ""
        self._silence_seconds *= 2
        now_us, seconds = time.time_ns() // 1000, int(time.monotonic() - self._printed_at)
        return f"{local_time(now_us)} still running, {seconds // 60} min after the last line"

    def _work(self) -> None:
        while True:
            with suppress(Empty):
                action = self._actions.get(timeout=TICK_SECONDS)
                if action is None:
                    break
                self._run_action(action)
            self._run_action((lambda view: view.refresh(), self._silence_line))
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
            write_text(self._stream, text)

    def _close_view(self) -> None:
        view, self._view = self._view, None
        with suppress(Exception):
            if view is not None:
                view.close()


def make_progress(log: ProjectLog, footer: str) -> Progress:
    """Return a live view if stderr is a terminal that supports it, else lines; at most what the flags of the running
    command allow. `footer`: available keys."""
    mode = display_mode()
    paints = mode == "live" and may_paint(sys.stderr, os.environ)
    return Progress(sys.stderr, LiveView(sys.stderr, log, footer) if paints else None, quiet=mode == "quiet")


def may_paint(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return True if the stream supports a live view, and no variable forbids it."""
    is_able = is_terminal(stream) and "utf" in stream.encoding.lower()
    is_forbidden = any(environment.get(name) for name in ("NO_COLOR", "MZ_NO_PROGRESS", "CI"))
    return is_able and environment.get("TERM", "dumb") not in ("dumb", "unknown", "") and not is_forbidden
