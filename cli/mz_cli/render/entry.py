"""One recorded event, as a line of text and as a JSON object."""

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
    """Return the first of the JSON Lines, which names the schema."""
    return {"type": "version", "schema": "mz.log/1"}


def entry_json(recorded: Recorded[Event]) -> dict[str, Any]:
    """Return the JSON object; `event` contains the fields of the event as stored in the log."""
    fields = msgspec.to_builtins(recorded.event)
    del fields["type"]
    return {
        "type": type_of(recorded.event),
        "role": recorded.event.ROLE.value,
        "event_ref": recorded.place,
        "stream": recorded.stream,
        "version": recorded.version,
        "position": recorded.position,
        "recorded_at": instant(recorded.recorded_at_us),
        "observed_at": instant(recorded.observed_at_us),
        "causation": recorded.causation or None,
        "event": fields,
    }


def entry_line(recorded: Recorded[Event], whole: bool) -> str:
    """Return time, event ref, type and text. `exact`: for a pipe, tab-separated, with full time and uncut text."""
    kind, told = type_of(recorded.event), line(words(recorded.event))
    if whole:
        return "\t".join((instant(recorded.recorded_at_us) or "", recorded.place, kind, told))
    return f"{clock(recorded.recorded_at_us)} {recorded.place}  {kind}  {shorten(told, WORDS_MAX)}"
