"""Regular expressions with linear search time (RE2), for text that an agent wrote.

Python's `re` backtracks: text made for it (`aaaa...b` for `(a+)+$`) takes exponential time. RE2 has neither look-around
nor back-references, and its classes and word boundaries are ASCII only. An expression can still compile to something
too large (`x{0,1000}` fifty times) and is then rejected. Group contents cost most, so only `first_group` asks for them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

CACHED_MAX = 500
"""Compiled expressions in the cache: more than any description has."""
MEMORY_BYTES_MAX = 1 << 20
"""Limit for one expression, an eighth of RE2's default; all bundled expressions together need far less."""
TOO_LARGE_PREFIX = "pattern too large"
"""Prefix of RE2's message."""
UNSUPPORTED_PREFIXES = ("invalid perl operator", "invalid escape sequence", "invalid named capture group")
"""Prefixes of RE2's messages for unsupported or invalid syntax."""
UNSUPPORTED_HINT = "look-around and back-references are not supported"


class ExpressionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of an expression."""

    error: str = ""
    """Why it is invalid; empty if it is valid."""
    groups: int = 0
    matches_empty: bool = False
    """True if it matches an empty line."""


def inspect_expression(expression: str) -> ExpressionInfo:
    """Check an expression. Never raises."""
    import re2

    try:
        compiled, groups = _compile(expression), _compile(expression, groups=True).groups
    except re2.error as exception:
        return ExpressionInfo(error=_error_text(exception))
    except UnicodeEncodeError:
        return ExpressionInfo(error="it contains an unpaired surrogate")
    return ExpressionInfo(groups=groups, matches_empty=compiled.fullmatch("") is not None)


def matches_any(expressions: tuple[str, ...], line: str, *, caseless: bool = False) -> bool:
    """Return True if any expression matches somewhere in the line. Raises re2.error for an invalid expression, like the
    functions below."""
    data = line.encode("utf-8", "replace")  # RE2 rejects unpaired surrogates.
    return any(compiled.search(data) is not None for compiled in _compile_joined(expressions, caseless))


def first_group(expression: str, line: str) -> str | None:
    """Return the first group's match in the line, empty if the group took no part; None without a match."""
    match = _compile(expression, groups=True).search(line.encode("utf-8", "replace").decode())
    return None if match is None else str(match[1] or "")


def find_matches(expression: str, line: str) -> list[str]:
    """Return every match in the line: its first group if the expression has one that took part, else all of it."""
    compiled = _compile(expression, groups=True)
    matches = compiled.finditer(line.encode("utf-8", "replace").decode())
    return [str((match[1] if compiled.groups else None) or match[0]) for match in matches]


def find_groups(expression: str, line: str) -> list[tuple[str, ...]]:
    """Return the groups of every match in the line, empty where one took no part."""
    matches = _compile(expression, groups=True).finditer(line.encode("utf-8", "replace").decode())
    return [tuple(str(group or "") for group in match.groups()) for match in matches]


def remove_matches(expressions: tuple[str, ...], line: str) -> str:
    """Remove all matches of the expressions, one after another, and replace unpaired surrogates."""
    data = line.encode("utf-8", "replace")
    if any(compiled.search(data) is not None for compiled in _compile_joined(expressions, False)):
        for compiled in map(_compile, expressions):
            if compiled.search(data) is not None:  # Replacing costs several times as much as a search.
                data = compiled.sub(b"", data)
    return str(data, "utf-8")


def _error_text(error: Exception) -> str:
    (message,) = error.args
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    if text.startswith(TOO_LARGE_PREFIX):
        return "it is too large: it has too many repetitions"
    return f"{text}; {UNSUPPORTED_HINT}" if text.startswith(UNSUPPORTED_PREFIXES) else text


@lru_cache(CACHED_MAX)
def _compile_joined(expressions: tuple[str, ...], caseless: bool) -> tuple[Any, ...]:
    """Compile the expressions, joined into one if possible, since the overhead per search dominates."""
    import re2

    if not expressions:
        return ()
    separate = tuple(_compile(expression, caseless=caseless) for expression in expressions)
    try:
        return (_compile("|".join(f"(?:{expression})" for expression in expressions), caseless=caseless),)
    except re2.error:  # Too large, or a group name used twice.
        return separate


@lru_cache(CACHED_MAX)
def _compile(expression: str, *, caseless: bool = False, groups: bool = False) -> Any:
    import re2

    options = re2.Options()
    options.case_sensitive = not caseless
    options.log_errors = False
    options.never_capture = not groups
    options.max_mem = MEMORY_BYTES_MAX
    return re2.compile(expression, options)
