"""A finding of the pipeline lint, before its location in the text is known."""

from __future__ import annotations

from typing import Literal, NamedTuple

from mz_engine.errors import Diagnostic
from mz_engine.shape import KeyPath
from mz_engine.yamlfile import YamlDocument


class LintFinding(NamedTuple):
    route: KeyPath
    code: str
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"

    def to_diagnostic(self, document: YamlDocument) -> Diagnostic:
        location = document.location(*self.route)
        return Diagnostic(code=self.code, message=self.message, hint=self.hint, location=location, severity=self.severity)
