"""Projections of a log as plain values, to be stored beside it and compared field by field.

Fields that projections gained since are ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from mz_events.catalog.base import Event
from mz_events.codec import CODEC
from mz_events.envelope import FEATURE_DEPTH, Recorded
from mz_events.names import StreamId
from mz_projections.cost import call_costs
from mz_projections.feature import fold
from mz_projections.overview import run_view
from mz_projections.queue import decisions, open_questions
from mz_projections.run import fold_run
from mz_recordings.recording.story import encode_trace, feature_trace

SHOWN_MAX = 160


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stored log, with its payload unchanged."""

    stream: str
    version: int
    position: int
    type: str
    schema: int
    recorded_at_us: int
    observed_at_us: int
    causation: str
    payload: msgspec.Raw


_LINE = msgspec.json.Decoder(StoredEvent)


def read_log(data: bytes) -> tuple[Recorded[Event], ...]:
    """Read the events of a stored log, one per line, upcast to current schemas. Raises UnknownEvent, StoreUnusable and
    msgspec.DecodeError."""
    return tuple(_decode_event(_LINE.decode(line)) for line in data.splitlines() if line)


def _decode_event(line: StoredEvent) -> Recorded[Event]:
    event_ref = f"{line.stream}@{line.version}"
    return Recorded(
        stream=StreamId(line.stream),
        version=line.version,
        position=line.position,
        recorded_at_us=line.recorded_at_us,
        observed_at_us=line.observed_at_us,
        event=CODEC.decode(line.type, line.schema, bytes(line.payload), event_ref),
        causation=line.causation,
        chain=b"",
    )


def project_events(events: Sequence[Recorded[Event]]) -> dict[str, Any]:
    """Return the projections by run and feature: states, views, costs, questions, and digests of traces.

    The values are builtins only: dicts, lists, strings, numbers.
    """
    streams: dict[str, list[Recorded[Event]]] = {}
    for recorded in events:
        streams.setdefault(recorded.stream, []).append(recorded)
    projections: dict[str, Any] = {}
    for name, stream_events in streams.items():
        if name.startswith("run/") and name.count("/") == FEATURE_DEPTH:
            digest = hashlib.sha256(encode_trace(feature_trace(recorded_event.event for recorded_event in stream_events))).hexdigest()
            projections[name] = {"state": fold(stream_events), "story": digest}
        elif name.startswith("run/"):
            run = name.removeprefix("run/")
            run_events = [
                recorded_event
                for recorded_event in events
                if recorded_event.stream == name or recorded_event.stream.startswith(f"{name}/")
            ]
            projections[name] = {
                "state": fold_run(stream_events), "view": run_view(run, run_events), "costs": call_costs(run_events),
                "questions": open_questions(run_events), "decisions": decisions(run_events),
            }  # fmt: skip
    builtins: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(projections, order="deterministic"))
    return builtins


def differences(stored: Any, current: Any, path: str = "") -> Iterator[str]:
    """Yield the differences, one per line: `- stored`, `+ current`."""
    if isinstance(stored, dict) and isinstance(current, dict):
        for name in stored:
            if name in current:
                yield from differences(stored[name], current[name], f"{path}.{name}")
            else:
                yield f"- {path}.{name}"
    elif isinstance(stored, list) and isinstance(current, list) and len(stored) == len(current):
        for at, (old, new) in enumerate(zip(stored, current, strict=True)):
            yield from differences(old, new, f"{path}[{at}]")
    elif stored != current:
        yield f"- {path}: {_shorten(stored)}"
        yield f"+ {path}: {_shorten(current)}"


def _shorten(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
