"""One check of `mz doctor`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mz_engine.errors import MzError


class CheckStatus(StrEnum):
    OK = "ok"
    WARN = "warn"
    """Runs work, but with limitations, or not for long."""
    FAIL = "fail"
    """Something that a run needs is missing."""


class DoctorCheck(msgspec.Struct, frozen=True):
    name: str
    """Stable; scripts may rely on it."""
    status: CheckStatus
    summary: str
    """The result in one sentence, without a final full stop."""
    hint: str = ""
    """How to fix it."""

    @classmethod
    def ok(cls, name: str, summary: str, hint: str = "") -> DoctorCheck:
        return cls(name, CheckStatus.OK, summary, hint)

    @classmethod
    def warn(cls, name: str, summary: str, hint: str = "") -> DoctorCheck:
        return cls(name, CheckStatus.WARN, summary, hint)

    @classmethod
    def fail(cls, name: str, summary: str, hint: str = "") -> DoctorCheck:
        return cls(name, CheckStatus.FAIL, summary, hint)


def failed_check(name: str, error: MzError, default_hint: str = "") -> DoctorCheck:
    """Return an error as a failed check: its first diagnostic, and the number of others.

    `otherwise` is the hint if there are several diagnostics, or none has a hint.
    """
    first, *more = [item for item in error.diagnostics if item.severity == "error"] or error.diagnostics
    location = f"{first.location} " if first.location else ""
    count = f" (and {len(more)} more)" if more else ""
    return DoctorCheck.fail(name, f"{location}{first.message}{count}", default_hint if more or not first.hint else first.hint)
