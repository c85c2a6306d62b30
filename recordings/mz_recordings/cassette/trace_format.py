"""Format check of trace files: a JSON object per line with a type, with a call where the type requires one, and with a
plausible count. Other fields are compared but never relied on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from mz_engine.ports import COUNT_MAX
from mz_events.catalog.call import AgentRequested, CallRef
from mz_events.codec import ALL_EVENTS, type_of

from mz_recordings.cassette.model import CALL_FIELDS, Identity

EventJson = dict[str, Any]
"""An event as a trace has it."""
ABOUT_CALLS = frozenset(
    type_of(kind) for kind in ALL_EVENTS if "ref" in {field.encode_name for field in msgspec.structs.fields(kind)}
)
"""Types of events that name a call."""
REQUESTED = type_of(AgentRequested)


class _Line(msgspec.Struct):
    type: str
    ref: CallRef | None = None
    counted_tokens: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)] | None = None


_DECODER = msgspec.json.Decoder(_Line)


CallOrderKey = tuple[str, str, int, int, str]
"""Phase, unit, iteration, attempt and role of a call."""


def call_positions(trace: bytes) -> dict[CallOrderKey, int]:
    """Return the calls of a valid trace, each with its position in the order of the calls."""
    refs = [line.ref for line in map(_DECODER.decode, trace.splitlines()) if line.type == REQUESTED]
    call_keys = ((ref.phase, ref.unit, ref.iteration, ref.attempt, ref.role) for ref in refs if ref is not None)
    return {call: at for at, call in enumerate(call_keys)}


def counted_tokens(traces: Iterable[bytes]) -> Mapping[str, int]:
    """Return the agents' token counts of calls in valid traces, by call key without the run."""
    lines = (line for trace in traces for line in trace.splitlines() if b'"counted_tokens"' in line)
    requests = (line for line in map(_DECODER.decode, lines) if line.type == REQUESTED)
    return {
        line.ref.key.partition("/")[2]: line.counted_tokens
        for line in requests
        if line.ref and line.counted_tokens is not None
    }


def trace_events(trace: bytes, *types: str) -> Iterator[EventJson]:
    """Yield the events of a valid trace, all or those of these types."""
    for raw in trace.splitlines():
        event: EventJson = json.loads(raw)
        if not types or event["type"] in types:
            yield event


def call_of_event(event: EventJson | None, pipeline: str = "", feature: str = "") -> Identity | None:
    """Return the call that an event of a trace concerns; None: none."""
    ref = (event or {}).get("ref")
    if not isinstance(ref, dict):
        return None
    return Identity(pipeline=pipeline, feature=feature, **{name: ref[name] for name in CALL_FIELDS})


def find_defect(trace: bytes) -> str:
    """Return why the bytes are not a trace, with the line; empty: they are."""
    for at, raw in enumerate(trace.splitlines(), start=1):
        try:
            line = _DECODER.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            return f"line {at} is not an event ({error})"
        if line.type in ABOUT_CALLS and line.ref is None:
            return f"line {at} is a {line.type} without a call"
    return ""
