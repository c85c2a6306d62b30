"""Pure: what kind of failure a call ended in, and whether a finished reply asks for a person.

The order: what we ourselves did to the call; what the terminal event says; rate limits, logins and missing tools by
the agent's words; at last the bare exit code. The patterns are data (`problems.toml`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Literal

import msgspec
from mz_events.catalog.call import Problem, ProblemClass

from mz_engine.agents import linear

LINES_READ = 100
"""Of the agent's words, from the end."""
LINE_BYTES = 2000
WAIT_DEFAULT_MAX_SECONDS = 7 * 24 * 3600

_WAIT = re.compile(
    r"(?:retry[-_ ]after|(?:try|retry) again in)\W{0,3}(\d{1,6})(?:\.\d+)?\s*(s|m|h|d|second|minute|hour|day)?",
    re.IGNORECASE,
)
_SCALE = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COMMAND_MISSING = (126, 127)


class Pattern(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of failure and how to know it."""

    code: str
    kind: ProblemClass
    retry_after_seconds: int | None = None
    statuses: tuple[int, ...] = ()
    """HTTP statuses of the model's API."""
    stops: tuple[str, ...] = ()
    """The agent's own names for the way it stopped."""
    words: tuple[str, ...] = ()


class Blocker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    words: tuple[str, ...]


class Patterns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    problem: tuple[Pattern, ...]
    blocker: Blocker


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended, as an adapter's parser saw it."""

    ours: Problem | None
    """Set when we ended the call, or could not begin it: that is the answer, whatever the output says."""
    terminal: Literal["success", "error", "no-terminal"]
    exit: int | None
    stops: tuple[str, ...] = ()
    status: int | None = None
    words: str = ""
    """The agent's own words on the error, and the end of its stderr."""
    text: str = ""
    """The final text of a finished reply."""
    retry_after_seconds: int | None = None
    """Where the agent passed the API's answer on."""


def parse_patterns(text: str) -> Patterns:
    """The patterns of `problems.toml`; raises msgspec.ValidationError, ValueError or re.error."""
    patterns = msgspec.convert(tomllib.loads(text), Patterns)
    for entry in patterns.problem:
        for word in entry.words:
            if wrong := linear.form(word).wrong:
                raise ValueError(f"{entry.code}: {word!r}: {wrong}")
    for word in patterns.blocker.words:
        re.compile(word)
    return patterns


def classify(ending: Ending, patterns: Patterns) -> Problem | None:
    """The problem that a call ended in; None: it went well."""
    if ending.ours is not None:
        return ending.ours
    if ending.terminal == "success":
        return _blocker(ending.text, patterns)
    found = _by_name(ending, patterns) or _by_words(ending, patterns)
    if found is not None:
        return _problem(found, ending)
    if ending.exit in _COMMAND_MISSING:
        return Problem(kind=ProblemClass.FATAL, code="tool-missing")
    if ending.terminal == "no-terminal":
        return Problem(kind=ProblemClass.PHASE, code="no-terminal")
    return Problem(kind=ProblemClass.UNKNOWN, code="exit-unknown" if ending.exit is None else f"exit-{ending.exit}")


def _by_name(ending: Ending, patterns: Patterns) -> Pattern | None:
    for entry in patterns.problem:
        if ending.status in entry.statuses or not set(entry.stops).isdisjoint(ending.stops):
            return entry
    return None


def _by_words(ending: Ending, patterns: Patterns) -> Pattern | None:
    every = tuple(word for entry in patterns.problem for word in entry.words)
    lines = [line for line in _tail(ending.words) if linear.found(every, line, caseless=True)]
    for entry in patterns.problem:
        if any(linear.found(entry.words, line, caseless=True) for line in lines):
            return entry
    return None


def _problem(found: Pattern, ending: Ending) -> Problem:
    wait = found.retry_after_seconds
    if wait is not None:
        wait = ending.retry_after_seconds or _wait_in(ending.words) or wait
        wait = min(wait, WAIT_DEFAULT_MAX_SECONDS)
    return Problem(kind=found.kind, code=found.code, retry_after_seconds=wait)


def _wait_in(words: str) -> int | None:
    """Seconds that the text asks to wait: `retry-after: 30`, `try again in 5 minutes`."""
    for line in reversed(_tail(words)):
        if found := _WAIT.search(line):
            return int(found[1]) * _SCALE[(found[2] or "s")[0].lower()]
    return None


def _blocker(text: str, patterns: Patterns) -> Problem | None:
    # These look behind, which RE2 cannot; nobody else writes any.
    words = patterns.blocker.words
    if any(re.search(word, line, re.IGNORECASE) for line in _own_words(text) for word in words):
        return Problem(kind=ProblemClass.HUMAN, code="agent-blocker")
    return None


def _own_words(text: str) -> Iterator[str]:
    """Lines that the agent says itself: neither quoted nor inside a code fence."""
    fence = ""
    for line in text.splitlines()[-LINES_READ:]:
        bare = line.strip()
        mark = bare[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence and not bare.startswith(">"):
            yield bare[:LINE_BYTES]


def _tail(words: str) -> list[str]:
    return [line[:LINE_BYTES] for line in words.splitlines()[-LINES_READ:]]
