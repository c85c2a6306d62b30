"""The trace of a feature: its events, as far as a replay on any machine must reproduce them, a JSON object per line.

Excluded are events that depend on circumstances: cost, waiting and the forge; and what a prompt consists of, since the
prompt itself is compared. Names of people and the agent's own
description of a problem, which contains paths and times, are removed. Of a stored trace only types, calls and counts
are relied on; the other fields are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import zip_longest
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace
from mz_engine.ports import COUNT_MAX
from mz_events.catalog import delivery
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentRequested,
    CallOverBudget,
    CallPriced,
    CallRef,
    CallReserved,
    CallSettled,
    ContextComposed,
    ReplyParsed,
    Usage,
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
from mz_events.catalog.validation import ArtifactParsed, ArtifactsKept, CommandRan, Unit
from mz_events.codec import ALL_EVENTS, comparable_payload, type_of
from mz_events.names import Digest

from mz_recordings.cassette.model import CALL_FIELDS, Cassette, Identity
from mz_recordings.cassette.placeholders import call_name

EventJson = dict[str, Any]
"""An event as a trace has it."""
ABOUT_CALLS = frozenset(
    type_of(kind) for kind in ALL_EVENTS if "ref" in {field.encode_name for field in msgspec.structs.fields(kind)}
)
"""Types of events that name a call."""
REQUESTED, REPLY_PARSED = type_of(AgentRequested), type_of(ReplyParsed)
KEPT, PARSED = type_of(ArtifactsKept), type_of(ArtifactParsed)
COMMAND_RAN = type_of(CommandRan)
MONEY_EVENTS = (CallReserved, CallOverBudget, CallPriced, CallSettled, ClaimRejected)
FORGE_EVENTS = (
    delivery.PushRequested,
    delivery.Pushed,
    delivery.PullRequestRequested,
    delivery.PullRequestOpened,
    delivery.ChecksPolled,
    delivery.ChecksRerun,
)
WAITS = (Hold.CLAIM, Hold.BUDGET, Hold.CHECKS)
"""Holds because of another feature, the budget or the forge."""
NOTHING = Digest(sha256(b"").hexdigest())


def feature_trace(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return the trace of a feature from the events of its stream, each in machine-independent form."""
    return tuple(_normalise(event) for event in events if is_in_trace(event))


def is_ordered(event: object) -> bool:
    """Return True for a merge, whose result depends on what other features have merged before."""
    return isinstance(event, delivery.BaseMerged | delivery.BranchLanded | delivery.TargetMoved)


def is_in_trace(event: Event) -> bool:
    if isinstance(event, FeatureHeld | HoldReleased):
        return event.hold not in WAITS
    if isinstance(event, CommandRan) and event.stage == "setup" and not event.phase and event.environment is not None:
        return False  # Whether a checkout needs a set-up depends on which one is free.
    return not isinstance(event, (*MONEY_EVENTS, *FORGE_EVENTS, ContextComposed))


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
        case delivery.CommitRequested() | delivery.MergeRequested():
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


# reading --------------------------------------------------------------------------------------------------------------
class _Line(msgspec.Struct):
    type: str
    ref: CallRef | None = None
    counted_tokens: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)] | None = None


_DECODER = msgspec.json.Decoder(_Line)


def call_positions(trace: bytes) -> dict[str, int]:
    """Return the position of each call in the order of the calls of a valid trace, by the name of its files."""
    refs = (line.ref for line in map(_DECODER.decode, trace.splitlines()) if line.type == REQUESTED and line.ref)
    names = (call_name(ref.phase, ref.unit, ref.iteration, ref.attempt, ref.role) for ref in refs)
    return {name: at for at, name in enumerate(names)}


def counted_tokens(cassette: Cassette) -> Mapping[str, int]:
    """Return the agents' token counts of calls, by call key without the run."""
    lines = (_DECODER.decode(raw) for trace in cassette.traces.values() for raw in trace.splitlines())
    return {
        line.ref.key.partition("/")[2]: line.counted_tokens
        for line in lines
        if line.type == REQUESTED and line.ref and line.counted_tokens is not None
    }


def kept_artifacts(cassette: Cassette) -> frozenset[str]:
    """Return the paths of artifacts that took the place of a call."""
    paths: set[str] = set()
    for trace in cassette.traces.values():
        kept = [(event["phase"], event["unit"]) for event in trace_events(trace, KEPT)]
        made = (event for event in trace_events(trace, PARSED) if event["path"])
        paths.update(event["path"] for event in made if (event["phase"], event["unit"]) in kept)
    return frozenset(paths)


def features_with_copied_environment(cassette: Cassette) -> frozenset[str]:
    """Return the features whose worktree got what a set-up had made in a checkout, so that none ran in it."""
    workspace = cassette.manifest.fixture.config.get("workspace")
    if not isinstance(workspace, dict) or not workspace.get("setup"):
        return frozenset()
    set_up = {
        feature
        for feature, trace in cassette.traces.items()
        if any(event["stage"] == "setup" and not event["phase"] for event in trace_events(trace, COMMAND_RAN))
    }
    return frozenset(cassette.traces.keys() - set_up)


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


def call_events(cassette: Cassette, *types: str) -> Iterator[tuple[Identity, EventJson]]:
    """Yield the events of these types that concern a call, with the call."""
    for feature, trace in cassette.traces.items():
        for event in trace_events(trace, *types):
            if call := call_of_event(event, cassette.manifest.pipeline, feature):
                yield call, event


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


# comparison -----------------------------------------------------------------------------------------------------------
def with_produced_requests(recorded: bytes, produced: bytes) -> bytes:
    """Return the recorded trace with the requests of the produced one, so that remaining differences are not caused by
    a changed prompt or setting."""
    new_requests = _requests(produced)
    replacements = {raw: new_requests.get(key, raw) for key, raw in _requests(recorded).items()}
    return b"".join(replacements.get(raw, raw) + b"\n" for raw in recorded.splitlines())


def _requests(trace: bytes) -> dict[str, bytes]:
    return {event["ref"]["key"]: raw for raw in trace.splitlines() if (event := json.loads(raw))["type"] == REQUESTED}


class EventDifference(msgspec.Struct, frozen=True):
    """A difference at an event, counted from 1; None: that trace has ended."""

    position: int
    recorded: EventJson | None
    produced: EventJson | None

    def lines(self) -> tuple[str, ...]:
        """Return the differences, one field per line: `-` recorded, `+` produced."""
        old, new = self.recorded or {}, self.produced or {}
        if old.get("type") != new.get("type"):
            ended = "nothing: the trace ended here"
            return f"- {old.get('type', ended)}", f"+ {new.get('type', ended)}"
        lines = [f"  {old['type']}"]
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                lines += [f"-   {name}: {_shorten(old.get(name))}", f"+   {name}: {_shorten(new.get(name))}"]
        return tuple(lines)


VALUE_CHARS_MAX = 200


def _shorten(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}..."


def event_differences(recorded: bytes, produced: bytes) -> Iterator[EventDifference]:
    """Yield every event that differs from the one at the same position of the other trace."""
    pairs = zip_longest(map(complete_event, trace_events(recorded)), map(complete_event, trace_events(produced)))
    for at, (old, new) in enumerate(pairs, start=1):
        if old != new:
            yield EventDifference(at, old, new)


def complete_event(event: EventJson) -> EventJson:
    """Return the event with the fields that events of its time lacked, and without the name of the parser: a new parser
    that reads the same is no difference."""
    event = {**_DEFAULTS.get(event["type"], {}), **event}
    if event["type"] == REPLY_PARSED:
        event.pop("parser", None)
    for name, empty in _EMPTY_PARTS.get(event["type"], {}).items():
        event[name] = [{**empty, **part} for part in event.get(name, ())]
    return event


def _defaults(kind: type[Event]) -> EventJson:
    """Return the default values of an event's fields as JSON values."""
    defaults = {
        field.encode_name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(kind)
        if not field.required
    }
    return msgspec.json.decode(msgspec.json.encode(defaults), type=EventJson)


_DEFAULTS = {type_of(kind): _defaults(kind) for kind in ALL_EVENTS}
_EMPTY_PARTS: dict[str, dict[str, EventJson]] = {
    REPLY_PARSED: {"usage": msgspec.to_builtins(Usage(model="", input=0, output=0))},
    type_of(ArtifactParsed): {"units": msgspec.to_builtins(Unit(id=""))},
}
"""By event type and field: a part with nothing but its defaults."""
