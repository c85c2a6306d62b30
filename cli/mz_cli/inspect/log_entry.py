"""One recorded event, as a line of text and as a JSON object."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallPriced
from mz_events.codec import type_of
from mz_events.envelope import Recorded
from mz_projections.views.timeline import describe

from mz_cli.live.milestones import milestone_text
from mz_cli.terminal.text import iso_time, local_time, rounded_usd, shorten, single_line

TEXT_MAX = 160


def log_header() -> dict[str, object]:
    """Return the first of the JSON Lines, which names the schema."""
    return {"type": "version", "schema": "mz.log/1"}


def entry_json(recorded: Recorded[Event]) -> dict[str, Any]:
    """Return the JSON object; `event` contains the fields of the event as stored in the log."""
    fields = msgspec.to_builtins(recorded.event)
    del fields["type"]
    return {
        "type": type_of(recorded.event),
        "role": recorded.event.KIND.value,
        "event_ref": recorded.event_ref,
        "stream": recorded.stream,
        "version": recorded.version,
        "position": recorded.position,
        "recorded_at": iso_time(recorded.recorded_at_us),
        "observed_at": iso_time(recorded.observed_at_us),
        "causation": recorded.causation or None,
        "event": fields,
    }


def log_milestone(recorded: Recorded[Event]) -> str:
    """Return what a person wants to know of a run, including the cost of calls; empty for a detail."""
    event = recorded.event
    if isinstance(event, CallPriced) and not recorded.is_forked_copy:
        _, feature, phase, unit, _, attempt, _ = event.key.split("/")
        cost = rounded_usd(event.computed_nanousd) or "cost unknown"
        return f"{feature}: {phase}{'' if unit == '-' else f' {unit}'} attempt {attempt}: {cost}"
    return milestone_text(recorded)


def milestone_line(recorded: Recorded[Event]) -> str:
    """Return date, time, zone, milestone and event ref."""
    moment = datetime.fromtimestamp(recorded.recorded_at_us / 1_000_000).astimezone()
    text = shorten(single_line(log_milestone(recorded)), TEXT_MAX)
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}  {text}  ({recorded.event_ref})"


def entry_line(recorded: Recorded[Event], exact: bool) -> str:
    """Return time, event ref, type and text. `exact`: for a pipe, tab-separated, with full time and uncut text."""
    event_type, text = type_of(recorded.event), single_line(describe(recorded.event))
    if exact:
        return "\t".join((iso_time(recorded.recorded_at_us) or "", recorded.event_ref, event_type, text))
    return f"{local_time(recorded.recorded_at_us)} {recorded.event_ref}  {event_type}  {shorten(text, TEXT_MAX)}"
