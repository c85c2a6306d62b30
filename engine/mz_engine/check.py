"""One check of `mz doctor`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mz_engine.errors import MzError


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    """Runs work, but with limitations, or not for long."""
    FAIL = "fail"
    """Something that a run needs is missing."""


class Check(msgspec.Struct, frozen=True):
    name: str
    """Stable; scripts may rely on it."""
    status: Status
    summary: str
    """The result in one sentence, without a final full stop."""
    hint: str = ""
    """How to fix it."""

    @classmethod
    def ok(cls, name: str, summary: str, hint: str = "") -> Check:
        return cls(name, Status.OK, summary, hint)

    @classmethod
    def warn(cls, name: str, summary: str, hint: str = "") -> Check:
        return cls(name, Status.WARN, summary, hint)

    @classmethod
    def fail(cls, name: str, summary: str, hint: str = "") -> Check:
        return cls(name, Status.FAIL, summary, hint)


def told(name: str, error: MzError, otherwise: str = "") -> Check:
    """Return an error as a failed check: its first diagnostic, and the number of others.

    `otherwise` is the hint if there are several diagnostics, or none has a hint.
    """
    first, *more = [item for item in error.diagnostics if item.severity == "error"] or error.diagnostics
    location = f"{first.place} " if first.place else ""
    count = f" (and {len(more)} more)" if more else ""
    return Check.fail(name, f"{location}{first.message}{count}", otherwise if more or not first.hint else first.hint)
