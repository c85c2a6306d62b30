"""The trace of a feature: its events, as far as a replay on any machine must reproduce them.

Excluded are events that depend on circumstances: cost, waiting and the forge. Names of people and the agent's own
description of a problem, which contains paths and times, are removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentRequested,
    CallOverBudget,
    CallPriced,
    CallRef,
    CallReserved,
    CallSettled,
    ReplyParsed,
)
from mz_events.catalog.delivery import (
    ChecksPolled,
    ChecksRerun,
    CommitRequested,
    PullRequestOpened,
    PullRequestRequested,
    Pushed,
    PushRequested,
)
from mz_events.catalog.feature import (
    FeatureFailed,
    FeatureHeld,
    FeatureRetried,
    HoldReleased,
    HumanAnswered,
    HumanRequested,
)
from mz_events.catalog.run import ClaimRejected, Hold
from mz_events.codec import ALL_EVENTS, comparable_payload, type_of
from mz_events.names import Digest

EXCLUDED = (
    CallReserved,
    CallOverBudget,
    CallPriced,
    CallSettled,
    ClaimRejected,
    PushRequested,
    Pushed,
    PullRequestRequested,
    PullRequestOpened,
    ChecksPolled,
    ChecksRerun,
)
WAITS = (Hold.CLAIM, Hold.BUDGET, Hold.CHECKS)
"""Holds because of another feature, the budget or the forge."""
NOTHING = Digest(sha256(b"").hexdigest())


def feature_trace(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return the trace of a feature from the events of its stream, each in machine-independent form."""
    return tuple(_normalise(event) for event in events if is_in_trace(event))


def is_in_trace(event: Event) -> bool:
    """Return True if an event of a feature's stream is part of its trace."""
    if isinstance(event, FeatureHeld | HoldReleased):
        return event.hold not in WAITS
    return not isinstance(event, EXCLUDED)


def _normalise(event: Event) -> Event:
    match event:
        case AgentRequested():
            return replace(event, estimated_nanousd=None)
        case ReplyParsed(problem=problem) if problem is not None:
            return replace(event, problem=replace(problem, detail=None))
        case HumanAnswered() | FeatureRetried():
            return replace(event, actor=NOTHING)
        case HumanRequested() | FeatureFailed():
            return replace(event, detail=None)
        case CommitRequested():
            return replace(event, message=NOTHING)  # The message contains the cost.
    return event


def with_run(event: Event, run: str) -> Event:
    """Return an event of the run that this one was forked from, with keys of this run."""
    ref, key = getattr(event, "ref", None), getattr(event, "key", None)
    if isinstance(ref, CallRef):
        return replace(event, ref=replace(ref, key=_key_with_run(ref.key, run)))
    return replace(event, key=_key_with_run(key, run)) if isinstance(key, str) else event


def _key_with_run(key: str, run: str) -> str:
    return "/".join((run, *key.split("/")[1:]))


def encode_trace(events: Iterable[Event]) -> bytes:
    """Return a line of JSON per event."""
    return b"".join(msgspec.json.encode(comparable_payload(event), order="deterministic") + b"\n" for event in events)


def with_produced_requests(recorded: bytes, produced: bytes) -> bytes:
    """Return the recorded trace with the requests of the produced one, so that remaining differences are not caused by
    a changed prompt or setting."""
    requests_by_key = {line["ref"]["key"]: raw for raw, line in _request_lines(produced)}
    replacements = {raw: requests_by_key.get(line["ref"]["key"], raw) for raw, line in _request_lines(recorded)}
    return b"".join(replacements.get(raw, raw) + b"\n" for raw in recorded.splitlines())


def _request_lines(trace_lines: bytes) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for raw in trace_lines.splitlines():
        line = json.loads(raw)
        if line["type"] == "agent.requested":
            yield raw, line


def event_differences(recorded: bytes, produced: bytes) -> Iterator[EventDifference]:
    """Yield every event that differs from the one at the same position of the other trace."""
    old_lines, new_lines = recorded.splitlines(), produced.splitlines()
    for at, (old, new) in enumerate(_pairs(old_lines, new_lines), start=1):
        if old is None or new is None or old != _without_new_defaults(old, new):
            yield EventDifference(at, old, new)


def _without_new_defaults(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the event without fields that events of that time lacked, if they have their default value."""
    defaults = _DEFAULTS.get(new["type"], {})
    return {name: value for name, value in new.items() if name in old or value != defaults.get(name, _DEFAULTS)}


def _defaults(kind: type[Event]) -> dict[str, Any]:
    """Return the default values of an event's fields as JSON values."""
    defaults: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            defaults[field.encode_name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            defaults[field.encode_name] = field.default_factory()
    json_values: dict[str, Any] = json.loads(msgspec.json.encode(defaults))
    return json_values


_DEFAULTS: dict[str, dict[str, Any]] = {type_of(kind): _defaults(kind) for kind in ALL_EVENTS}


class EventDifference(msgspec.Struct, frozen=True):
    """A difference at an event, counted from 1; None: that trace has ended."""

    position: int
    recorded: dict[str, Any] | None
    produced: dict[str, Any] | None

    def lines(self) -> tuple[str, ...]:
        """Return the differences, one field per line: `-` recorded, `+` produced."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[str]:
        old, new = self.recorded or {}, self.produced or {}
        if old.get("type") != new.get("type"):
            yield f"- {old.get('type', 'nothing: the trace ended here')}"
            yield f"+ {new.get('type', 'nothing: the trace ended here')}"
            return
        yield f"  {old['type']}"
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield f"-   {name}: {_shorten(old.get(name))}"
                yield f"+   {name}: {_shorten(new.get(name))}"


VALUE_CHARS_MAX = 200


def _shorten(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}..."


def _pairs(
    old_lines: list[bytes], new_lines: list[bytes]
) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any] | None]]:
    for at in range(max(len(old_lines), len(new_lines))):
        yield (
            (json.loads(old_lines[at]) if at < len(old_lines) else None),
            (json.loads(new_lines[at]) if at < len(new_lines) else None),
        )
