"""A finding of the pipeline lint, before its location in the text is known."""

from __future__ import annotations

from typing import Literal, NamedTuple

from mz_engine.errors import Diagnostic
from mz_engine.shape import Route
from mz_engine.yamlfile import Document


class Finding(NamedTuple):
    at: Route
    code: str
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"

    def located(self, document: Document) -> Diagnostic:
        place = document.place(*self.at)
        return Diagnostic(code=self.code, message=self.message, hint=self.hint, place=place, severity=self.severity)
