"""Classification of a call's end: the kind of failure, or a successful reply that asks for a person.

Precedence: a problem that mz caused; the patterns of an agent's description; the final event; patterns over the agent's
error text (rate limits, logins, missing tools); the exit code. The shared patterns are data (`problems.toml`)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Literal

import msgspec
from mz_events.catalog.call import Problem, ProblemClass

from mz_engine.decoding import regex
from mz_engine.model.agent_description import DescribedProblem

LINES_READ_MAX = 100
"""Last lines of a text that are searched."""
LINE_CHARS_MAX = 2000
WAIT_SECONDS_MAX = 7 * 24 * 3600

_WAIT = re.compile(
    r"(?:retry[-_ ]after|(?:try|retry) again in)\W{0,3}(\d{1,6})(?:\.\d+)?\s*(s|m|h|d|second|minute|hour|day)?",
    re.IGNORECASE,
)
_SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COMMAND_MISSING = (126, 127)


class ProblemPattern(DescribedProblem, frozen=True, kw_only=True):
    """One kind of failure and how to recognise it."""

    statuses: tuple[int, ...] = ()
    """HTTP statuses of the model's API."""
    stops: tuple[str, ...] = ()
    """The agent's own names for its stop reasons."""
    patterns: tuple[str, ...] = ()


class ProblemPatterns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    described: tuple[ProblemPattern, ...] = ()
    """Those of an agent's description: tried before anything that all agents share."""
    problem: tuple[ProblemPattern, ...]
    blocker: tuple[str, ...]
    """Expressions that match a line of a reply that asks for a person."""


class CallEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a call, as an adapter's parser saw it."""

    own_problem: Problem | None
    """Set if mz ended the call or could not start it; overrides the output."""
    ending: Literal["success", "error", "no-terminal"]
    exit: int | None
    stop_reasons: tuple[str, ...] = ()
    status: int | None = None
    error_text: str = ""
    """The agent's error message and the end of its stderr."""
    text: str = ""
    """The final text of a finished reply."""
    retry_after_seconds: int | None = None
    """Wait that the API asked for, if the agent reports it."""


def parse_patterns(text: str) -> ProblemPatterns:
    """Parse `problems.toml`. Raises msgspec.ValidationError, ValueError or re.error."""
    patterns = msgspec.convert(tomllib.loads(text), ProblemPatterns)
    for problem in patterns.problem:
        for expression in problem.patterns:
            if error := regex.inspect_expression(expression).error:
                raise ValueError(f"{problem.code}: {expression!r}: {error}")
    for expression in patterns.blocker:
        re.compile(expression)
    return patterns


def classify(call_end: CallEnd, patterns: ProblemPatterns) -> Problem | None:
    """Return the problem that a call ended with; None for success."""
    if call_end.own_problem is not None:
        return call_end.own_problem
    if call_end.ending == "success":
        # These patterns use look-behind, which RE2 lacks; they are ours, so `re` is safe.
        pairs = ((line, expression) for line in _unquoted_lines(call_end.text) for expression in patterns.blocker)
        is_blocked = any(re.search(expression, line, re.IGNORECASE) for line, expression in pairs)
        return Problem(kind=ProblemClass.NEEDS_PERSON, code="agent-blocker") if is_blocked else None
    described = _find_by_text(call_end, patterns.described)
    if described is not None:
        return _problem_of(described, call_end)
    by_status = (
        problem
        for problem in patterns.problem
        if call_end.status in problem.statuses or not set(problem.stops).isdisjoint(call_end.stop_reasons)
    )
    pattern = next(by_status, None) or _find_by_text(call_end, patterns.problem)
    if pattern is not None:
        return _problem_of(pattern, call_end)
    if call_end.exit in _COMMAND_MISSING:
        return Problem(kind=ProblemClass.FATAL, code="tool-missing")
    if call_end.ending == "no-terminal":
        return Problem(kind=ProblemClass.PHASE, code="no-terminal")
    return Problem(kind=ProblemClass.UNKNOWN, code="exit-unknown" if call_end.exit is None else f"exit-{call_end.exit}")


def _find_by_text(call_end: CallEnd, problems: tuple[ProblemPattern, ...]) -> ProblemPattern | None:
    all_patterns = tuple(pattern for problem in problems for pattern in problem.patterns)
    lines = [line for line in _last_lines(call_end.error_text) if regex.matches_any(all_patterns, line, caseless=True)]
    return next((p for p in problems for line in lines if regex.matches_any(p.patterns, line, caseless=True)), None)


def _problem_of(pattern: ProblemPattern, call_end: CallEnd) -> Problem:
    wait_seconds = pattern.retry_after
    if wait_seconds is not None:
        # As a text asks for it: `retry-after: 30`, `try again in 5 minutes`.
        waits = filter(None, map(_WAIT.search, reversed(_last_lines(call_end.error_text))))
        stated = next((int(wait[1]) * _SECONDS_BY_UNIT[(wait[2] or "s")[0].lower()] for wait in waits), None)
        wait_seconds = call_end.retry_after_seconds or stated or wait_seconds
        wait_seconds = min(wait_seconds, WAIT_SECONDS_MAX)
    return Problem(kind=ProblemClass(pattern.kind), code=pattern.code, retry_after_seconds=wait_seconds)


def _unquoted_lines(text: str) -> Iterator[str]:
    """Yield the agent's own lines: neither quoted nor inside a code fence."""
    fence = ""
    for line in text.splitlines()[-LINES_READ_MAX:]:
        stripped = line.strip()
        marker = stripped[:3]
        if marker in ("```", "~~~") and fence in ("", marker):
            fence = "" if fence else marker
        elif not fence and not stripped.startswith(">"):
            yield stripped[:LINE_CHARS_MAX]


def _last_lines(text: str) -> list[str]:
    return [line[:LINE_CHARS_MAX] for line in text.splitlines()[-LINES_READ_MAX:]]
