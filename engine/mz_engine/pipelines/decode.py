"""Parse the YAML of a pipeline.

A finding of the pipeline lint, before its location in the text is known.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec.structs import replace

from mz_engine.decoding.quantity import parse_duration
from mz_engine.decoding.structs import KeyPath
from mz_engine.decoding.yaml import YamlDocument, decode_document, parse_yaml
from mz_engine.errors.diagnostics import Diagnostic, MzError
from mz_engine.model.pipeline import Pipeline


def parse_pipeline(text: str, name: str) -> tuple[Pipeline, YamlDocument]:
    """Return the pipeline, and its document with locations for `lint`. Raises MzError with all errors of form (MZ2003
    to MZ2009); the meaning is not checked here."""
    document = _with_seconds(parse_yaml(text, name))
    return decode_document(document, Pipeline), document


def _with_seconds(document: YamlDocument) -> YamlDocument:
    """Convert durations of timeouts to whole seconds; values of another form are left to `convert_document`."""
    diagnostics: list[Diagnostic] = []
    value = document.value
    if isinstance(value, dict) and isinstance(value.get("phases"), list):
        phases = [
            _convert_timeout(phase, document, position, diagnostics) for position, phase in enumerate(value["phases"])
        ]
        value = {**value, "phases": phases}
    if diagnostics:
        raise MzError.from_diagnostics(diagnostics)
    return replace(document, value=value)


def _convert_timeout(phase: object, document: YamlDocument, position: int, diagnostics: list[Diagnostic]) -> object:
    if not isinstance(phase, dict) or not isinstance(phase.get("timeout"), dict):
        return phase
    timeout = dict(phase["timeout"])
    for key in ("total", "idle"):
        written = timeout.get(key)
        if isinstance(written, str) or type(written) is int:
            try:
                timeout[key] = parse_duration(written)
            except ValueError as error:
                location = document.location("phases", position, "timeout", key)
                hint = "write seconds (600), or a text such as 90s, 30m, 1h30m"
                diagnostics.append(Diagnostic(code="MZ2009", message=str(error), hint=hint, location=location))
    return {**phase, "timeout": timeout}


class LintFinding(NamedTuple):
    route: KeyPath
    code: str
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"

    def to_diagnostic(self, document: YamlDocument) -> Diagnostic:
        location = document.location(*self.route)
        return Diagnostic(
            code=self.code, message=self.message, hint=self.hint, location=location, severity=self.severity
        )
