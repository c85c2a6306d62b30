"""Facts: one check of `mz doctor`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mz_engine.errors import MzError


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    """Runs work, but not as well as they could, or not for long."""
    FAIL = "fail"
    """Something that a run needs is not there."""


class Check(msgspec.Struct, frozen=True):
    name: str
    """Stable; scripts may rely on it."""
    status: Status
    summary: str
    """What was found, in one sentence without a final full stop."""
    hint: str = ""
    """What to do about it."""

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
    """An error as a failed check: its first part, and how many there are besides."""
    first, *more = [each for each in error.diagnostics if each.severity == "error"] or error.diagnostics
    where = f"{first.place} " if first.place else ""
    besides = f" (and {len(more)} more)" if more else ""
    return Check.fail(name, f"{where}{first.message}{besides}", otherwise if more or not first.hint else first.hint)
