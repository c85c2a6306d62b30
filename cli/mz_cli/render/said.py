"""Pure: the last words of an agent at work, out of what it has written so far.

Agents write JSON Lines, each in its own form. Here only a glance is needed, so this reads them all alike: text that is
said, commands and files that are worked on, and plain lines as they stand. What it does not know it leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from mz_cli.render.text import line

TELLING = ("command", "file_path", "path", "notebook_path", "pattern", "query", "url", "description", "prompt")
"""What a tool is used on, the most telling first."""
WORKTREE = r"/\.mz/worktrees/[^/\s]+/[^/\s]+/"
"""Where the agent works says nothing to who watches it."""
ANYWHERE = re.compile(rf"\S*{WORKTREE}")
CHARACTERS_MAX = 500
"""Of a line; no terminal shows more."""
DEPTH_MAX = 6
_JSON = msgspec.json.Decoder()


def last_words(output: bytes, count: int, home: str = "") -> tuple[str, ...]:
    """At most `count` lines, the newest last, each one line of harmless text. `output` may begin and end anywhere.
    `home`: the repository, whose worktrees are left out of paths also where it has blanks in its name."""
    place = _worktree(home) if home else ANYWHERE
    found: list[str] = []
    for raw in reversed(output.splitlines()):
        told = [line(ANYWHERE.sub("", place.sub("", said[:CHARACTERS_MAX]))) for said in _words(raw)]
        found += [words for words in reversed(told) if words]
        if len(found) >= count:
            break
    return tuple(reversed(found[:count]))


@cache
def _worktree(home: str) -> re.Pattern[str]:
    """The home of agents in that repository, also as a shell escapes it."""
    return re.compile(re.escape(home).replace(r"\ ", r"\\?\ ") + WORKTREE)


def _words(raw: bytes) -> Iterator[str]:
    if not raw.lstrip().startswith((b"{", b"[")):
        # The end of a long JSON line, whose beginning was cut off, is nothing to read.
        if b'"' not in raw:
            yield raw.decode("utf-8", "replace")
        return
    try:
        yield from _said(_JSON.decode(raw), DEPTH_MAX)
    except (msgspec.DecodeError, RecursionError):
        return


def _said(value: Any, depth: int) -> Iterator[str]:
    """What an event says: of the agent, not of the user or of a tool's result."""
    if isinstance(value, list):
        for each in value:
            yield from _said(each, depth - 1)
    if not isinstance(value, dict) or depth <= 0 or _is_foreign(value):
        return
    name = value.get("name") or value.get("tool_name")
    used = value.get("input") or value.get("parameters")
    if isinstance(name, str) and isinstance(used, dict):
        yield f"{name} {_telling(used)}".rstrip()
        return
    for key in ("text", "command"):
        if isinstance(value.get(key), str):
            yield from value[key].splitlines()
    content = value.get("content")
    if isinstance(content, str) and value.get("role") == "assistant":
        yield from content.splitlines()
    for key in ("message", "content", "item", "delta"):
        yield from _said(value.get(key), depth - 1)


def _is_foreign(value: dict[Any, Any]) -> bool:
    return value.get("role") in ("user", "system") or value.get("type") in ("user", "system", "tool_result", "thinking")


def _telling(used: dict[Any, Any]) -> str:
    return next((str(used[key]) for key in TELLING if isinstance(used.get(key), str)), "")
