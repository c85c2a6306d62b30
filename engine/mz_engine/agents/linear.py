"""Pure: regular expressions over what an agent wrote: a search takes time that grows with the text and with the
expression, and both are bounded.

Python's own engine tries one way to match after another, and words made for it (`aaaa...b` for `(a+)+$`) have more ways
than anybody can wait for. RE2 follows all of them at once. It has neither look-around nor back-references, and its
classes (a word, a digit, a blank) and word boundaries know ASCII alone. What an expression becomes can still be too
large to follow (`x{0,1000}` fifty times): such a one is refused. To say what each group matched takes longest, so only
`group` asks for it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

KEPT_MAX = 500
"""Compiled expressions: more than any description has."""
MEMORY_BYTES_MAX = 1 << 20
"""Of one expression: an eighth of what RE2 would take. All words that come with `mz` together need far less."""
TOO_LARGE = "pattern too large"
"""RE2's own words."""
UNKNOWN = ("invalid perl operator", "invalid escape sequence", "invalid named capture group")
"""RE2's own words for what other engines have, and for what none has."""
LACKS = "there is no look-around and no back-reference"


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What an expression is, before it is searched for."""

    wrong: str = ""
    """Why it is none; empty: it is one."""
    groups: int = 0
    empty: bool = False
    """It matches an empty line."""


def form(expression: str) -> Form:
    """Never raises."""
    import re2

    try:
        known, groups = _compiled(expression), _compiled(expression, groups=True).groups
    except re2.error as error:
        return Form(wrong=_why(error))
    except UnicodeEncodeError:
        return Form(wrong="it holds half a character")
    return Form(groups=groups, empty=known.fullmatch("") is not None)


def found(expressions: tuple[str, ...], line: str, *, caseless: bool = False) -> bool:
    """Whether one of them matches somewhere in the line. Raises re2.error for an expression of which `form` says that
    it is wrong; so do the others."""
    data = line.encode("utf-8", "replace")  # Half a character is no text to RE2.
    return any(one.search(data) is not None for one in _either(expressions, caseless))


def group(expression: str, line: str) -> str | None:
    """What its first group matches in the line, empty where the group took no part; None where nothing matches."""
    match = _compiled(expression, groups=True).search(whole(line))
    return None if match is None else str(match[1] or "")


def without(expressions: tuple[str, ...], line: str) -> str:
    """The line without everything that they match, one after another, and without halves of characters."""
    data = line.encode("utf-8", "replace")
    if any(one.search(data) is not None for one in _either(expressions, False)):
        for one in map(_compiled, expressions):
            if one.search(data) is not None:  # To replace costs several times what a search does.
                data = one.sub(b"", data)
    return str(data, "utf-8")


def whole(line: str) -> str:
    """With a question mark for each half of a character, which JSON can hold and UTF-8 cannot."""
    return line.encode("utf-8", "replace").decode()


def _why(error: Exception) -> str:
    (why,) = error.args
    words = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
    if words.startswith(TOO_LARGE):
        return "it is too large: it repeats too much, too often"
    return f"{words}; {LACKS}" if words.startswith(UNKNOWN) else words


@lru_cache(KEPT_MAX)
def _either(expressions: tuple[str, ...], caseless: bool) -> tuple[Any, ...]:
    """What finds any of them: one where they can be joined, since each search costs ten times what it does."""
    import re2

    if not expressions:
        return ()
    every = tuple(_compiled(expression, caseless=caseless) for expression in expressions)
    try:
        return (_compiled("|".join(f"(?:{expression})" for expression in expressions), caseless=caseless),)
    except re2.error:  # Too large, or a group that two of them call the same.
        return every


@lru_cache(KEPT_MAX)
def _compiled(expression: str, *, caseless: bool = False, groups: bool = False) -> Any:
    import re2

    options = re2.Options()
    options.case_sensitive = not caseless
    options.log_errors = False
    options.never_capture = not groups
    options.max_mem = MEMORY_BYTES_MAX
    return re2.compile(expression, options)
