"""Facts: what the lint of pipelines finds, before it has a place in the text."""

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
