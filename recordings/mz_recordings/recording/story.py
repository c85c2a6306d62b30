"""Pure: the story of a feature: its events, as far as a replay on any machine must give them again.

Left out is what depends on the moment and not on the work: what it cost, what it waited for, and the forge. Names of
people and the agent's own words about a problem are taken out; the latter hold paths and times.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallHeld, CallPriced, CallRef, CallReserved, CallSettled, ReplyRead
from mz_events.catalog.delivery import (
    ChecksRerun,
    ChecksSeen,
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
from mz_events.catalog.run import FilesContended, Hold
from mz_events.codec import ALL_EVENTS, comparable, type_of
from mz_events.names import Digest

LEFT_OUT = (
    CallReserved,
    CallHeld,
    CallPriced,
    CallSettled,
    FilesContended,
    PushRequested,
    Pushed,
    PullRequestRequested,
    PullRequestOpened,
    ChecksSeen,
    ChecksRerun,
)
WAITS = (Hold.CLAIM, Hold.BUDGET, Hold.CHECKS)
"""Holds that another feature, the budget or the forge is the reason for."""
NOTHING = Digest(sha256(b"").hexdigest())


def story(events: Iterable[Event]) -> tuple[Event, ...]:
    """The events of one feature's stream that make its story, each as every machine would write it."""
    return tuple(_plain(event) for event in events if belongs(event))


def belongs(event: Event) -> bool:
    """Whether an event of a feature's stream is part of its story."""
    if isinstance(event, FeatureHeld | HoldReleased):
        return event.hold not in WAITS
    return not isinstance(event, LEFT_OUT)


def _plain(event: Event) -> Event:
    match event:
        case AgentRequested():
            return replace(event, estimated_nanousd=None)
        case ReplyRead(problem=problem) if problem is not None:
            return replace(event, problem=replace(problem, detail=None))
        case HumanAnswered() | FeatureRetried():
            return replace(event, who=NOTHING)
        case HumanRequested() | FeatureFailed():
            return replace(event, detail=None)
        case CommitRequested():
            return replace(event, message=NOTHING)  # It says what was spent.
    return event


def in_run(event: Event, run: str) -> Event:
    """What happened in the run that this one was forked from, as if it had happened here: with keys of this run."""
    ref, key = getattr(event, "ref", None), getattr(event, "key", None)
    if isinstance(ref, CallRef):
        return replace(event, ref=replace(ref, key=_key_in(ref.key, run)))
    return replace(event, key=_key_in(key, run)) if isinstance(key, str) else event


def _key_in(key: str, run: str) -> str:
    return "/".join((run, *key.split("/")[1:]))


def write(events: Iterable[Event]) -> bytes:
    """A line of JSON an event; its sha256 is `mz_events.codec.log_digest` of the same events."""
    return b"".join(msgspec.json.encode(comparable(event), order="deterministic") + b"\n" for event in events)


def as_asked(recorded: bytes, produced: bytes) -> bytes:
    """The recorded story with every call asked as it was now: what is then still another story is so for a reason of
    its own, and not for a prompt or a setting that changed."""
    now = {line["ref"]["key"]: raw for raw, line in _calls(produced)}
    found = {raw: now.get(line["ref"]["key"], raw) for raw, line in _calls(recorded)}
    return b"".join(found.get(raw, raw) + b"\n" for raw in recorded.splitlines())


def _calls(told: bytes) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for raw in told.splitlines():
        line = json.loads(raw)
        if line["type"] == "agent.requested":
            yield raw, line


def divergence(recorded: bytes, produced: bytes) -> Divergence | None:
    """Where two stories part for the first time; None: nowhere."""
    return next(divergences(recorded, produced), None)


def divergences(recorded: bytes, produced: bytes) -> Iterator[Divergence]:
    """Every event that is not the one in the same place of the other story."""
    was, now = recorded.splitlines(), produced.splitlines()
    for at, (old, new) in enumerate(_pairs(was, now), start=1):
        if old is None or new is None or old != _as_then(old, new):
            yield Divergence(at, old, new)


def _as_then(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that events of that time did not have, where they say nothing yet."""
    usual = _DEFAULTS.get(new["type"], {})
    return {name: value for name, value in new.items() if name in old or value != usual.get(name, _DEFAULTS)}


def _defaults(kind: type[Event]) -> dict[str, Any]:
    """What the fields of an event are where nothing is said, as JSON has it."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            found[field.encode_name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            found[field.encode_name] = field.default_factory()
    plain: dict[str, Any] = json.loads(msgspec.json.encode(found))
    return plain


_DEFAULTS: dict[str, dict[str, Any]] = {type_of(kind): _defaults(kind) for kind in ALL_EVENTS}


class Divergence(msgspec.Struct, frozen=True):
    """An event that is another one, from 1; None where one story has ended."""

    at: int
    recorded: dict[str, Any] | None
    produced: dict[str, Any] | None

    def lines(self) -> tuple[str, ...]:
        """What differs, a line a field: `-` recorded, `+` produced."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[str]:
        old, new = self.recorded or {}, self.produced or {}
        if old.get("type") != new.get("type"):
            yield f"- {old.get('type', 'nothing: the story ended here')}"
            yield f"+ {new.get('type', 'nothing: the story ended here')}"
            return
        yield f"  {old['type']}"
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield f"-   {name}: {_short(old.get(name))}"
                yield f"+   {name}: {_short(new.get(name))}"


SHOWN_MAX = 200


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _pairs(was: list[bytes], now: list[bytes]) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any] | None]]:
    for at in range(max(len(was), len(now))):
        yield (json.loads(was[at]) if at < len(was) else None), (json.loads(now[at]) if at < len(now) else None)
