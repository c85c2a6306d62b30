"""Removal of machine-specific paths from base64 data in output. They cannot be replaced: the bytes around them would
change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mz_events.redaction.json_splice import Span, merge_spans, redact_spans
from mz_events.redaction.redactor import base64_encodings

from mz_recordings.cassette.placeholders import MachineValues

FORM_BYTES_MIN = 8
"""Shorter forms occur by chance."""


def redact_base64(data: bytes, machine_values: Iterable[MachineValues]) -> bytes:
    """Return the bytes with tokens in place of base64-encoded paths; lines of JSON keep their structure."""
    paths = {path for values in machine_values for path in values.paths().values()}
    forms = {form for path in paths for form in base64_encodings(path.encode("utf-8", "surrogateescape"))}
    spans = merge_spans(span for form in forms if len(form) >= FORM_BYTES_MIN for span in _spans(data, form))
    return redact_spans(data, spans) if spans else data


def _spans(data: bytes, form: bytes) -> Iterator[Span]:
    at = data.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = data.find(form, at + len(form))
