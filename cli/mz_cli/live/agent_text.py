"""Last lines of a working agent's output, for the live view.

Agents write JSON Lines in different formats. This reader treats all alike: it shows texts, commands and files of tools,
and plain lines, and skips everything unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec
from mz_engine.agents.process import spool_directory

from mz_cli.terminal.text import single_line

TOOL_KEYS = ["command", "file_path", "path", "notebook_path", "pattern", "query", "url", "description", "prompt"]
"""Arguments of a tool that describe its use, the best first."""
WORKTREE = r"/\.mz/worktrees/[^/\s]+/[^/\s]+/"
"""Path of a worktree, removed from the output."""
ANY_WORKTREE = re.compile(rf"\S*{WORKTREE}")
CHARACTERS_MAX = 500
"""Maximum length of a line; no terminal shows more."""
DEPTH_MAX = 6
_JSON = msgspec.json.Decoder()


def recent_output(output: bytes, count: int, home: str = "") -> tuple[str, ...]:
    """Return at most `count` lines without escapes, the newest last. `output` may start and end within a line.

    `home`: the repository, whose worktrees are removed from paths even if its name contains blanks."""
    worktree = _worktree(home) if home else ANY_WORKTREE
    lines: list[str] = []
    for raw in reversed(output.splitlines()):
        texts = [
            single_line(ANY_WORKTREE.sub("", worktree.sub("", event_text[:CHARACTERS_MAX])))
            for event_text in _line_texts(raw)
        ]
        lines += [text for text in reversed(texts) if text]
        if len(lines) >= count:
            break
    return tuple(reversed(lines[:count]))


@cache
def _worktree(home: str) -> re.Pattern[str]:
    """Return a pattern of worktrees in that repository, also with shell escapes."""
    return re.compile(re.escape(home).replace(r"\ ", r"\\?\ ") + WORKTREE)


def _line_texts(raw: bytes) -> Iterator[str]:
    if not raw.lstrip().startswith((b"{", b"[")):
        # Skip the end of a long JSON line whose start was cut off.
        if b'"' not in raw:
            yield raw.decode("utf-8", "replace")
        return
    try:
        yield from _event_texts(_JSON.decode(raw), DEPTH_MAX)
    except (msgspec.DecodeError, RecursionError):
        return


def _event_texts(value: Any, depth: int) -> Iterator[str]:
    """Yield texts of the agent in an event, not those of the user or of a tool's result."""
    if isinstance(value, list):
        for element in value:
            yield from _event_texts(element, depth - 1)
    if not isinstance(value, dict) or depth <= 0 or _is_foreign(value):
        return
    name = value.get("name") or value.get("tool_name")
    tool_input = value.get("input") or value.get("parameters")
    if isinstance(name, str) and isinstance(tool_input, dict):
        yield f"{name} {_main_argument(tool_input)}".rstrip()
        return
    for key in ("text", "command"):
        if isinstance(value.get(key), str):
            yield from value[key].splitlines()
    content = value.get("content")
    if isinstance(content, str) and value.get("role") == "assistant":
        yield from content.splitlines()
    for key in ("message", "content", "item", "delta"):
        yield from _event_texts(value.get(key), depth - 1)


def _is_foreign(value: dict[Any, Any]) -> bool:
    return value.get("role") in ("user", "system") or value.get("type") in ("user", "system", "tool_result", "thinking")


def _main_argument(tool_input: dict[Any, Any]) -> str:
    return next((str(tool_input[key]) for key in TOOL_KEYS if isinstance(tool_input.get(key), str)), "")


TAIL_BYTES = 64 * 1024
LINES_SHOWN = 3
CALLS_KEPT = 100


class SpoolReader:
    """Reader of one repository's spools; each is read again only when it has grown."""

    def __init__(self, spools: Path) -> None:
        """`spools`: their directory, two levels below the repository."""
        self._spools, self._home = spools, str(spools.parent.parent)
        self._read_end = lru_cache(CALLS_KEPT)(self._read_end_of)

    def recent_output(self, key: str) -> tuple[str, ...]:
        """Return the last lines of the call with that key, the newest last; empty without output."""
        file = spool_directory(self._spools, key) / "stdout"
        try:
            return self._read_end(file, file.stat().st_size)
        except OSError:
            return ()

    def _read_end_of(self, path: Path, size: int) -> tuple[str, ...]:
        with open(path, "rb") as file:
            file.seek(max(0, size - TAIL_BYTES))
            return recent_output(file.read(TAIL_BYTES), LINES_SHOWN, self._home)
