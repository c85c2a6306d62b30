"""Pure: whether the bytes of a story can be one: a JSON object a line, each with a type, and with a call where its type
is about one. What else is in an event is compared, and never relied on."""

from __future__ import annotations

import msgspec
from mz_events.catalog.call import CallRef
from mz_events.codec import ALL_EVENTS, type_of

ABOUT_CALLS = frozenset(
    type_of(kind) for kind in ALL_EVENTS if "ref" in {field.encode_name for field in msgspec.structs.fields(kind)}
)
"""Types of events that name a call."""


class _Line(msgspec.Struct):
    type: str
    ref: CallRef | None = None


_DECODER = msgspec.json.Decoder(_Line)


def wrong_in(story: bytes) -> str:
    """What keeps it from being a story, with the line; empty: nothing."""
    for at, raw in enumerate(story.splitlines(), start=1):
        try:
            line = _DECODER.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            return f"line {at} is no event ({error})"
        if line.type in ABOUT_CALLS and line.ref is None:
            return f"line {at} is a {line.type} of no call"
    return ""
