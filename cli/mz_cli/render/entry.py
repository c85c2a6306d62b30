"""Pure: one recorded event, as a line for people and as an object for programs."""

from __future__ import annotations

from typing import Any

import msgspec
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded

from mz_cli.render.milestone import milestone
from mz_cli.render.text import clock, instant, line, shorten

WORDS_MAX = 160
DIGEST_SHORT = 12


def header() -> dict[str, object]:
    """The first of the JSON Lines: which form the others have."""
    return {"type": "version", "schema": "mz.log/1"}


def entry_json(recorded: Recorded[Event]) -> dict[str, Any]:
    """`event` holds the fields of the event as the log keeps them."""
    fields = msgspec.to_builtins(recorded.event)
    return {
        "type": fields.pop("type"),
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
    kind = str(msgspec.to_builtins(recorded.event)["type"])
    words = line(milestone(recorded)) or fields_line(recorded.event)
    if whole:
        return "\t".join((instant(recorded.recorded_at_us) or "", recorded.place, kind, words))
    return f"{clock(recorded.recorded_at_us)} {recorded.place}  {kind}  {shorten(words, WORDS_MAX)}"


def fields_line(event: Event) -> str:
    """The small fields of an event, `name=value`; structures are left to `--json`."""
    fields = msgspec.to_builtins(event)
    fields.pop("type")
    flat = {**fields.pop("ref", {}), **fields}
    return " ".join(f"{name}={line(_short(value))}" for name, value in flat.items() if _small(value))


def _small(value: object) -> bool:
    return value not in (None, "") and not isinstance(value, (list, tuple, dict))


def _short(value: object) -> str:
    text = str(value)
    return text[:DIGEST_SHORT] if len(text) in (40, 64) and all(c in "0123456789abcdef" for c in text) else text
