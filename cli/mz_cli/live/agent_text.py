"""Last lines of a working agent's output, for the live view.

Agents write JSON Lines in different formats. This reader treats all alike: it shows texts, commands and files of tools,
and plain lines, and skips everything unknown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from mz_engine.agents.process import spool_directory
from mz_engine.paths import MZ_FOLDER, SPOOL_FOLDER

from mz_cli.terminal.text import single_line

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
    if not isinstance(value, dict) or _is_foreign(value):
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


def _is_foreign(value: dict[Any, Any]) -> bool:
    return value.get("role") in ("user", "system") or value.get("type") in ("user", "system", "tool_result", "thinking")
