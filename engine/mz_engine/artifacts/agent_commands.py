"""The commands that an agent says it ran, and those of them that a project denies.

Read from streams of JSON lines, of any agent. A command inside a script that the agent ran is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

import msgspec

from mz_engine.decoding.regex import matches_any

COMMAND_KEYS = ("command", "cmd")
"""Names that agents give to the input of their shells: a text, or a list of words."""


def denied_uses(output: bytes, patterns: tuple[str, ...]) -> dict[str, str]:
    """Return the denied commands, each with the first pattern that it matches."""
    pairs = product(dict.fromkeys(commands_of(output)) if patterns else (), reversed(patterns))
    return {command: pattern for command, pattern in pairs if matches_any((_expression(pattern),), command)}


def commands_of(output: bytes) -> Iterator[str]:
    for line in output.split(b"\n"):
        try:
            values = [msgspec.json.decode(line)] if any(f'"{key}"'.encode() in line for key in COMMAND_KEYS) else []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        while values:
            value = values.pop()
            values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            for command in (value.get(key) for key in COMMAND_KEYS) if isinstance(value, dict) else ():
                if isinstance(command, str | list):
                    yield command if isinstance(command, str) else " ".join(map(str, command))


def _expression(pattern: str) -> str:
    """Return the pattern's words, anywhere in a command, where words begin and end; `*` stands for anything."""
    parts = (re.escape(word).replace(r"\*", ".*") for word in pattern.split())
    return r"(?s)(?:^|[^\w.-])" + r"\s+".join(parts) + r"(?:$|[^\w-])"
