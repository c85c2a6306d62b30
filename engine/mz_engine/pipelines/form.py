"""Parse the YAML of a pipeline."""

from __future__ import annotations

from msgspec.structs import replace

from mz_engine.errors import Diagnostic, MzError
from mz_engine.pipelines.definition import Pipeline
from mz_engine.quantity import parse_duration
from mz_engine.yamlfile import Document, convert_document, load


def parse_pipeline(text: str, name: str) -> tuple[Pipeline, Document]:
    """Return the pipeline, and its document with locations for `lint`. Raises MzError with all errors of form (MZ2003
    to MZ2009); the meaning is not checked here."""
    document = _with_seconds(load(text, name))
    return convert_document(document, Pipeline), document


def _with_seconds(document: Document) -> Document:
    """Convert durations of timeouts to whole seconds; values of another form are left to `convert_document`."""
    found: list[Diagnostic] = []
    value = document.value
    if isinstance(value, dict) and isinstance(value.get("phases"), list):
        phases = [_phase(phase, document, position, found) for position, phase in enumerate(value["phases"])]
        value = {**value, "phases": phases}
    if found:
        raise MzError.of(found)
    return replace(document, value=value)


def _phase(phase: object, document: Document, position: int, found: list[Diagnostic]) -> object:
    if not isinstance(phase, dict) or not isinstance(phase.get("timeout"), dict):
        return phase
    timeout = dict(phase["timeout"])
    for key in ("total", "idle"):
        written = timeout.get(key)
        if isinstance(written, str) or type(written) is int:
            try:
                timeout[key] = parse_duration(written)
            except ValueError as error:
                place = document.place("phases", position, "timeout", key)
                hint = "write seconds (600), or a text such as 90s, 30m, 1h30m"
                found.append(Diagnostic(code="MZ2009", message=str(error), hint=hint, place=place))
    return {**phase, "timeout": timeout}
