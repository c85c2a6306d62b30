"""Facts: every error that a user may meet, as data, and the exception that carries it.

The whole tree:

    Exception
    └── MzError        one or several diagnostics of one cause: codes, messages, places, hints, one exit code

There is one class because callers do not tell errors apart by class: they print them and leave with `exit_code`.
What tells them apart is the code (`mz_engine.errorcodes`), which is never used twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from mz_engine.errorcodes import CODES
from mz_engine.exits import Exit, worst

__all__ = [
    "Diagnostic", "Exit", "MzError", "Place", "format_diagnostic", "format_error", "format_error_json", "readable",
    "worst",
]  # fmt: skip
NO_TEXT = re.compile("[\ud800-\udfff]")
"""How Python keeps bytes of file names that are not UTF-8."""


class Place(msgspec.Struct, frozen=True):
    """Where in a person's text. Lines and columns count from 1; 0 means the whole file, or the whole line."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        shown = [str(number) for number in (self.line, self.column) if number]
        return ":".join([self.file, *shown])


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, or (`warning`) looks wrong."""

    code: str
    message: str
    """What happened, in one sentence without a final full stop."""
    hint: str = ""
    """What to do about it; may have several lines."""
    place: Place | None = None
    severity: Literal["error", "warning"] = "error"


class MzError(Exception):
    """What a command cannot go on from. `code`, `message`, `hint` and `place` are those of the first diagnostic."""

    def __init__(self, code: str, message: str, *, hint: str = "", place: Place | None = None) -> None:
        super().__init__(message)
        self.diagnostics: tuple[Diagnostic, ...] = (Diagnostic(code=code, message=message, hint=hint, place=place),)

    @classmethod
    def of(cls, diagnostics: Iterable[Diagnostic]) -> MzError:
        """One error of several diagnostics, at least one, in the order in which they are to be read."""
        found = tuple(diagnostics)
        error = cls(found[0].code, found[0].message)
        error.diagnostics = found
        return error

    @property
    def code(self) -> str:
        return self.diagnostics[0].code

    @property
    def message(self) -> str:
        return self.diagnostics[0].message

    @property
    def hint(self) -> str:
        return self.diagnostics[0].hint

    @property
    def place(self) -> Place | None:
        return self.diagnostics[0].place

    @property
    def exit_code(self) -> Exit:
        return worst(CODES[each.code].exit for each in self.diagnostics)

    def __str__(self) -> str:
        return format_error(self)


def format_diagnostic(diagnostic: Diagnostic) -> str:
    """`error[MZ2003] mz.yaml:14:7 what happened`, then `hint: what to do` on its own lines; no final newline."""
    where = f" {diagnostic.place}" if diagnostic.place else ""
    lines = [f"{diagnostic.severity}[{diagnostic.code}]{where} {diagnostic.message}"]
    if diagnostic.hint:
        first, *rest = diagnostic.hint.splitlines()
        lines += [f"hint: {first}", *(f"      {line}" for line in rest)]
    return "\n".join(lines)


def format_error(error: MzError) -> str:
    """All diagnostics as text, an empty line between two; no final newline."""
    return "\n\n".join(format_diagnostic(each) for each in error.diagnostics)


def format_error_json(error: MzError) -> str:
    """The same for `--json`, one line: the first diagnostic's fields, and all of them under `errors`."""
    plain = [_plain(each) for each in error.diagnostics]
    answer = {"schema": "mz.error/1", "exit": int(error.exit_code), **plain[0], "errors": plain}
    return msgspec.json.encode(answer).decode()


def readable(text: str) -> str:
    """With a mark for each byte of a file's name that is no text, which no JSON can hold."""
    return NO_TEXT.sub("\ufffd", text)


def _plain(diagnostic: Diagnostic) -> dict[str, object]:
    place = diagnostic.place
    where = (
        {"file": readable(place.file), "line": place.line or None, "column": place.column or None} if place else None
    )
    return {
        "severity": diagnostic.severity,
        "code": diagnostic.code,
        "message": readable(diagnostic.message),
        "hint": readable(diagnostic.hint) or None,
        "where": where,
    }
