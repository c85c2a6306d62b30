"""JSON lines of `mz log --json`, and error documents."""

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
    """One event: one object per line."""

    type: str
    """Such as `gate.checked`."""
    role: str
    """`intent`, `outcome`, `external` or `derived`."""
    event_ref: str
    """`stream@version`, the event's address."""
    stream: str
    version: int
    """Number within the stream, from 1."""
    position: int
    """Number within the log, from 1, without gaps."""
    recorded_at: str
    """Time of recording; never decreases within a stream."""
    observed_at: str
    """Time shown by the clock."""
    causation: str | None
    """Address of the event that caused it."""
    event: dict[str, Any]
    """Stored fields of the event; `mz schema events` describes them."""


class ErrorLocation(Shape, frozen=True, kw_only=True):
    """Location in a file; line and column count from 1."""

    file: str
    line: int | None
    """Null: the whole file."""
    column: int | None


class ErrorPart(Shape, frozen=True, kw_only=True):
    """One error or warning."""

    severity: str
    """`error` or `warning`."""
    code: str
    """Error code such as `MZ2005`; `mz explain` describes it."""
    message: str
    hint: str | None
    """Suggested fix."""
    where: ErrorLocation | None


class ErrorDocument(ErrorPart, frozen=True, kw_only=True):
    """Errors of a failed command: one line on stderr, when `--json` is given. The fields beside `errors` are those of
    the first error."""

    exit: int
    """Exit code."""
    errors: tuple[ErrorPart, ...]
    """All errors, in reading order."""
