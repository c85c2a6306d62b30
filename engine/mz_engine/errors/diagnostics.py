"""Errors that users see, as data, the one exception that carries them, and the exit codes of `mz`, public and stable.

There is one exception class because callers print errors and exit with `exit_code`; codes (`mz_engine.errors.codes`)
tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Literal

import msgspec

LONE_SURROGATES = re.compile("[\ud800-\udfff]")
"""Lone surrogates, by which Python represents bytes of file names that are not UTF-8."""


class SourceLocation(msgspec.Struct, frozen=True):
    """Location in a file; line and column count from 1."""

    file: str
    line: int | None = None
    """Null: the whole file."""
    column: int | None = None

    @property
    def position(self) -> tuple[int, int]:
        """Return line and column for sorting."""
        return self.line or 0, self.column or 0

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.line, self.column) if number]
        return ":".join([self.file, *numbers])


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """One error or warning."""

    severity: Literal["error", "warning"] = "error"
    code: str
    """Error code such as `MZ2005`; `mz help` describes it."""
    message: str
    """One sentence without a final full stop."""
    hint: str = ""
    """How to fix it; may have several lines."""
    location: SourceLocation | None = None


class MzError(Exception):
    """An error that ends a command. `code`, `message`, `hint` and `location` are those of the first diagnostic."""

    def __init__(self, code: str, message: str, *, hint: str = "", location: SourceLocation | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.hint, self.location = code, message, hint, location
        self.diagnostics: tuple[Diagnostic, ...] = (
            Diagnostic(code=code, message=message, hint=hint, location=location),
        )

    @classmethod
    def from_diagnostics(cls, diagnostics: Iterable[Diagnostic]) -> MzError:
        """Return one error with these diagnostics, at least one, in the order in which they are printed."""
        in_order = tuple(diagnostics)
        first = in_order[0]
        error = cls(first.code, first.message, hint=first.hint, location=first.location)
        error.diagnostics = in_order
        return error

    @property
    def exit_code(self) -> Exit:
        from mz_engine.errors.codes import CODES  # Read only when something failed.

        return most_severe(CODES[diagnostic.code].exit for diagnostic in self.diagnostics)

    def __str__(self) -> str:
        """Return all diagnostics as text, separated by empty lines; no final newline."""
        return "\n\n".join(format_diagnostic(diagnostic) for diagnostic in self.diagnostics)


def format_diagnostic(diagnostic: Diagnostic) -> str:
    """Return `error[MZ2003] mz.yaml:14:7 MESSAGE`, then `hint: HINT` on its own lines; no final newline."""
    location = f" {diagnostic.location}" if diagnostic.location else ""
    lines = [f"{diagnostic.severity}[{diagnostic.code}]{location} {diagnostic.message}"]
    if diagnostic.hint:
        first, *others = diagnostic.hint.splitlines()
        lines += [f"hint: {first}", *(f"      {line}" for line in others)]
    return "\n".join(lines)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON cannot hold, by U+FFFD."""
    return LONE_SURROGATES.sub("\ufffd", text)


# exit codes -----------------------------------------------------------------------------------------------------------
class Exit(IntEnum):
    """Exit codes, the most severe first; `exits.toml` explains them. Usage, invalid, repository and busy end a command
    before any work, so they meet no other code; they have a rank so that every pair is ordered."""

    BUG = 70
    PREREQUISITE = 11
    USAGE = 2
    INVALID = 10
    REPOSITORY = 15
    BUSY = 16
    STOPPED = 20
    LIMIT = 22
    WAITING = 21
    VERDICT = 1
    NETWORK = 6
    SECRET = 5
    DRIFT = 3
    RECORDING = 4
    NOT_COMPARABLE = 125
    OK = 0


def most_severe(exits: Iterable[Exit], bisect: bool = False) -> Exit:
    """Return the exit code if all of these apply; OK if there are none. Under `bisect`, "not comparable" beats drift
    and recording, so that `git bisect run` skips the commit."""
    codes = frozenset(exits)
    if bisect and Exit.NOT_COMPARABLE in codes:
        codes -= {Exit.DRIFT, Exit.RECORDING}
    return next((code for code in Exit if code in codes), Exit.OK)
