"""Facts: the shapes of JSON that is not the answer of a command: the lines of `mz log --json`, and errors."""

from __future__ import annotations

from typing import Any

from mz_cli.shapes.base import Shape


class LogHeader(Shape, frozen=True, kw_only=True):
    """The first line of `mz log --json`; the others are `LogEntry`."""

    type: str
    """Always `version`."""
    schema: str
    """`mz.log/1`."""


class LogEntry(Shape, frozen=True, kw_only=True):
    """One event. JSON Lines: one object a line."""

    type: str
    """Such as `gate.checked`."""
    role: str
    """`intent`, `outcome`, `fact` or `derived`."""
    place: str
    """`stream@version`: where everything else cites it."""
    stream: str
    version: int
    """Within the stream, from 1."""
    position: int
    """Within this log, from 1, without gaps."""
    recorded_at: str
    """Never falls within a stream."""
    observed_at: str
    """What the clock said."""
    causation: str | None
    """The place of the event that led to it."""
    event: dict[str, Any]
    """The fields of the event as the log keeps them; `mz schema events` describes them."""


class ErrorPlace(Shape, frozen=True, kw_only=True):
    """Where in a file; line and column count from 1."""

    file: str
    line: int | None
    """Null: the whole file."""
    column: int | None


class ErrorPart(Shape, frozen=True, kw_only=True):
    """One thing that is wrong."""

    severity: str
    """`error` or `warning`."""
    code: str
    """Such as `MZ2005`; `mz explain` says more."""
    message: str
    hint: str | None
    """What to do about it."""
    where: ErrorPlace | None


class ErrorDocument(ErrorPart, frozen=True, kw_only=True):
    """What went wrong: on stderr, in one line, wherever `--json` was asked for and no answer came. The fields beside
    `errors` are those of the first of them."""

    exit: int
    """The exit code."""
    errors: tuple[ErrorPart, ...]
    """All, in the order in which they are to be read."""
