"""Pure: one recorded event, as a line for people and as an object for programs."""

from __future__ import annotations

from typing import Any

import msgspec
from mz_events.catalog.base import Event
from mz_events.codec import type_of
from mz_events.envelope import Recorded
from mz_projections.timeline import words

from mz_cli.render.text import clock, instant, line, shorten

WORDS_MAX = 160


def header() -> dict[str, object]:
    """The first of the JSON Lines: which form the others have."""
    return {"type": "version", "schema": "mz.log/1"}


def entry_json(recorded: Recorded[Event]) -> dict[str, Any]:
    """`event` holds the fields of the event as the log keeps them."""
    fields = msgspec.to_builtins(recorded.event)
    del fields["type"]
    return {
        "type": type_of(recorded.event),
        "role": recorded.event.ROLE.value,
        "place": recorded.place,
        "stream": recorded.stream,
        "version": recorded.version,
        "position": recorded.position,
        "recorded_at": instant(recorded.recorded_at_us),
        "observed_at": instant(recorded.observed_at_us),
        "causation": recorded.causation or None,
        "event": fields,
    }


def entry_line(recorded: Recorded[Event], whole: bool) -> str:
    """Time, place, type, words. `whole`: for a pipe, with tabs, the full time, and nothing cut."""
    kind, told = type_of(recorded.event), line(words(recorded.event))
    if whole:
        return "\t".join((instant(recorded.recorded_at_us) or "", recorded.place, kind, told))
    return f"{clock(recorded.recorded_at_us)} {recorded.place}  {kind}  {shorten(told, WORDS_MAX)}"
