"""Findings of a replay: drift, missing recordings and unused ones.

Events at the same position are compared as long as they have the same subject, so one difference does not hide
another. After an event with another subject, the remaining events are not compared.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from mz_engine.artifacts.validate import requirements
from mz_engine.decoding.quantity import decode_quantity
from mz_engine.model.pins import Pins
from mz_engine.model.rules import RuleSet
from mz_events.catalog.call import AgentRequested

from mz_recordings.cassette.model import (
    BUILDER,
    Cassette,
    Identity,
    RecordedCall,
    RecordedCommand,
    Recording,
    parse_time,
)
from mz_recordings.cassette.trace import (
    EventDifference,
    EventJson,
    call_of_event,
    event_differences,
    trace_events,
    with_produced_requests,
)
from mz_recordings.findings.model import (
    ACCEPT,
    KEEP,
    PRUNE,
    RECORD_NEW,
    RERECORD_ALL,
    RERECORD_EXPIRED,
    CallMismatch,
    Finding,
    FindingKind,
    ReplayResult,
    rerecord_call,
)
from mz_recordings.replay.commands import answers, parse_effect_key

DECIDING_EVENTS = ("artifact.validated", "gate.checked", "human.requested")
"""Events in which a rule, a gate or a permission decides."""
COST_FIELDS = frozenset({"usage", "reported_nanousd"})
SUBJECT_FIELDS = ("type", "ref", "phase", "unit", "iteration", "artifact", "stage", "name", "gate")
"""Fields that name the subject of an event."""
DESCRIPTIONS = {
    "PROMPT": "has another prompt",
    "CONFIG": "has other settings",
    "STREAM": "parses a reply differently",
    "TRACE": "has another event",
    "ARTIFACT": "reads something else from an artifact",
    "FILES": "changes other files",
    "COST": "has other token counts",
    "DECISION": "decides differently",
}


class TraceDivergence(msgspec.Struct, frozen=True):
    """First difference of a kind between two traces."""

    kind: FindingKind
    difference: EventDifference

    @property
    def description(self) -> str:
        return DESCRIPTIONS[self.kind]

    @property
    def call(self) -> str:
        """Return the name of the recording, such as `code.a2`, that the event concerns; empty: none."""
        events = (self.difference.recorded, self.difference.produced)
        return next((call.name for event in events if (call := call_of_event(event))), "")


def trace_divergences(recorded: bytes, produced: bytes) -> tuple[TraceDivergence, ...]:
    """Return the differences of two traces in order, the first one of each kind."""
    first_by_kind: dict[FindingKind, TraceDivergence] = {}
    for difference in event_differences(recorded, produced):
        kind = drift_kind(difference)
        first_by_kind.setdefault(kind, TraceDivergence(kind, difference))
        old, new = difference.recorded or {}, difference.produced or {}
        if any(old.get(name) != new.get(name) for name in SUBJECT_FIELDS):
            break
    return tuple(first_by_kind.values())


def drift_kind(difference: EventDifference) -> FindingKind:
    old, new = difference.recorded or {}, difference.produced or {}
    if old.get("type") != new.get("type"):
        return "DECISION" if _is_decision(old) or _is_decision(new) else "TRACE"
    differing = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    if "ref" in differing:
        return "TRACE"
    match new["type"]:
        case "reply.parsed":
            return "COST" if differing <= COST_FIELDS else "STREAM"
        case "artifact.parsed":
            return "ARTIFACT"
        case "changes.checked":
            return "DECISION" if "forbidden_changes" in differing else "FILES"
        case "command.ran":
            return "DECISION" if new.get("stage") == "gate" and "exit" in differing else "TRACE"
    return "DECISION" if new["type"] in DECIDING_EVENTS else "TRACE"


def _is_decision(line: EventJson) -> bool:
    return line.get("type") in DECIDING_EVENTS or (line.get("type") == "command.ran" and line.get("stage") == "gate")


ACCEPTED_DAYS = 90
"""Validity of a reply after its inputs were updated, in a cassette without `max_age_days`."""
DIFF_LINES_MAX = 40


class ReplayOutcome(NamedTuple):
    mismatches: Mapping[Identity, CallMismatch]
    missing_calls: tuple[Identity, ...]
    requests: Mapping[Identity, AgentRequested]
    """Request of each call."""
    traces: Mapping[str, bytes]
    """Trace by feature."""
    network_attempts: Mapping[str, int]
    """Attempts to reach the network, by MZ_KEY."""
    pins: Pins
    """Pins of the current project."""
    overridden_settings: tuple[str, ...] = ()
    in_memory: bool = False
    reason: str = ""
    """Why it was not played in memory, although it should be; a clause."""
    commands_answered: int = 0
    commands_executed: int = 0
    commands: tuple[RecordedCommand, ...] | None = None
    """Results that later replays may use; None: none can be kept, or the replay was in memory."""


def compare_replay(cassette: Cassette, outcome: ReplayOutcome, today: datetime) -> tuple[Finding, ...]:
    stopped = cassette.manifest.fixture.dependents(_stopped_features(outcome))
    return (
        *static_findings(cassette, today),
        *_network_findings(outcome),
        *_command_findings(cassette, outcome),
        *_input_drift(cassette, outcome),
        *_missing_calls(cassette, outcome),
        *_trace_findings(cassette, outcome, incomplete_features(cassette, outcome)),
        *_unused_recordings(cassette, outcome, stopped),
    )


def incomplete_features(cassette: Cassette, outcome: ReplayOutcome) -> frozenset[str]:
    """Return features whose trace ends early, because a call had no reply or fewer calls were made, and their
    dependents. These traces are not compared."""
    unused = {call.identity.feature for call in cassette.calls if call.identity not in outcome.mismatches}
    return frozenset(cassette.manifest.fixture.dependents(_stopped_features(outcome) | unused))


def _stopped_features(outcome: ReplayOutcome) -> set[str]:
    """Return features with a call that got no reply."""
    rejected_features = {
        call.feature for call, mismatch in outcome.mismatches.items() if mismatch.tree or mismatch.rejection is not None
    }
    return rejected_features | {identity.feature for identity in outcome.missing_calls}


def describe_cassette(result: ReplayResult, cassette: Cassette) -> ReplayResult:
    """Return the result with the description of its cassette."""
    return replace(
        result,
        name=cassette.manifest.name,
        provenance=cassette.manifest.provenance,
        recordings=len(cassette.calls),
        accepted_replies=sum(call.recording.accepted is not None for call in cassette.calls),
    )


def static_findings(cassette: Cassette, today: datetime) -> Iterator[Finding]:
    """Yield the findings that need no replay: about provenance and age."""
    if not cassette.calls:
        yield Finding(kind="MISSING", message="the cassette has no recordings", fix=RECORD_NEW)
    if cassette.manifest.provenance == "copied":
        message = f"its replies were copied from another agent; {cassette.manifest.agent} never gave them"
        yield Finding(kind="COPIED", message=message, fix=RERECORD_ALL)
    limit = cassette.manifest.max_age_days
    expired = [call.recording for call in cassette.calls if is_expired(call.recording, limit, today)]
    if expired:
        oldest = min(expired, key=lambda recording: recording.recorded_at)
        days = f"{limit} days" if limit is not None else f"{ACCEPTED_DAYS} days after new inputs were accepted"
        message = f"{len(expired)} of {len(cassette.calls)} recordings are older than allowed ({days})"
        detail = (f"  oldest: {oldest.identity.path}, recorded {oldest.recorded_at}",)
        yield Finding(kind="EXPIRED", message=message, detail=detail, fix=RERECORD_EXPIRED)


def is_expired(recording: Recording, max_age_days: int | None, today: datetime) -> bool:
    """Return True if the recording is older than allowed."""
    if max_age_days is not None:
        return parse_time(recording.recorded_at) + timedelta(days=max_age_days) < today
    accepted = recording.accepted
    return accepted is not None and parse_time(accepted.at) + timedelta(days=ACCEPTED_DAYS) < today


# differences in the inputs --------------------------------------------------------------------------------------------
def _network_findings(outcome: ReplayOutcome) -> Iterator[Finding]:
    for key, times in sorted(outcome.network_attempts.items()):
        feature, phase, effect = parse_effect_key(key)
        process = f"{effect} in {phase}" if phase else f"the setup command `{' '.join(effect.split())}`"
        message = f"{process} tried to reach the network (at least {times} times) and was blocked"
        setting = "" if phase else ", or set `sandbox.online_in_replays` to [setup]"
        fix = f"make the command work offline{setting}, then: mz replay {{cassette}}"
        yield Finding(
            kind="NETWORK", message=message, feature=feature, call=phase, cause=effect if phase else "setup", fix=fix
        )


def _command_findings(cassette: Cassette, outcome: ReplayOutcome) -> Iterator[Finding]:
    """Yield kept results of commands that ended otherwise when they were executed, and set-up commands that failed here
    and in no recording."""
    for command in sorted(_failed_setups(outcome.traces) - _failed_setups(cassette.traces)):
        message = f"the setup command `{command}` failed here; other findings follow from that"
        fix = "make the command work here, then: mz replay {cassette} --real"
        yield Finding(kind="COMMAND", message=message, cause=command, fix=fix)
    kept = answers(cassette.commands)
    for key, entry in answers(outcome.commands).items():
        earlier = kept.get(key)
        if earlier is not None and earlier.exit != entry.exit:
            message = f"`{entry.command}` was kept with exit {earlier.exit}, and now ends with exit {entry.exit}"
            yield Finding(kind="COMMAND", message=message, cause=entry.command, fix=KEEP)


def _failed_setups(traces: Mapping[str, bytes]) -> set[str]:
    runs = (run for trace in traces.values() for run in trace_events(trace, "command.ran"))
    return {run["name"] for run in runs if run["stage"] == "setup" and run["exit"] != 0}


def _input_drift(cassette: Cassette, outcome: ReplayOutcome) -> Iterator[Finding]:
    for call in cassette.calls:
        mismatch, request = outcome.mismatches.get(call.identity), outcome.requests.get(call.identity)
        if mismatch is not None:
            prompt_cause = ""
            if request and mismatch.prompt is not None:
                prompt_cause = prompt_cause_of(cassette, call.identity, request.template, outcome.pins)
            for kind, message, cause, detail in _mismatches(call, mismatch, prompt_cause):
                fix = rerecord_call(call.identity) if kind == "FILES" else ACCEPT % kind
                yield _call_finding(kind, message, call.identity, fix, cause, detail)


def _call_finding(
    kind: FindingKind, message: str, call: Identity, fix: str, cause: str = "", detail: tuple[str, ...] = ()
) -> Finding:
    return Finding(
        kind=kind, message=message, feature=call.feature, call=call.name, fix=fix, cause=cause, detail=detail
    )


def prompt_cause_of(cassette: Cassette, call: Identity, template: str, pins: Pins) -> str:
    """Return the rule sets of the call's outputs if their requirements differ from those of the recorded run, else the
    template; both if both differ."""
    try:
        recorded = msgspec.convert(cassette.manifest.evidence, RecordedTexts, dec_hook=decode_quantity)
    except msgspec.ValidationError:
        return template
    phase = pins.pipeline.find_phase(call.phase)
    review = phase.agent_review if call.role != BUILDER else None
    names = [review.rules] if review else [output.rules for output in phase.outputs]
    changed = [
        f"rules/{name}.yaml"
        for name in dict.fromkeys(names)
        if name in recorded.rules
        if requirements(recorded.rules[name], pins.config.limits) != requirements(pins.rules[name], pins.config.limits)
    ]
    if not changed or recorded.templates.get(template) not in (None, pins.templates.get(template)):
        changed.insert(0, template)
    return " and ".join(changed)


class RecordedTexts(msgspec.Struct, frozen=True):
    """The part of the evidence that prompts are made of."""

    rules: dict[str, RuleSet]
    templates: dict[str, str]


def _mismatches(
    call: RecordedCall, mismatch: CallMismatch, prompt_cause: str
) -> Iterator[tuple[FindingKind, str, str, tuple[str, ...]]]:
    """Yield kind, message, cause and detail of each difference."""
    recording = call.recording
    if mismatch.tree is not None:
        trees = f"the tree {recording.tree_before[:12]}, and now starts from {mismatch.tree[:12]}"
        yield "FILES", f"the call started from {trees}", "", ()
    if mismatch.rejection is not None:
        lines = tuple(f"  {line}" for line in mismatch.rejection.splitlines()[:DIFF_LINES_MAX])
        yield "FILES", "the agent's changes do not apply to the tree", "", lines
    if mismatch.argv is not None:
        lines = diff_lines(recording.argv, mismatch.argv)
        yield "CONFIG", "the agent is called with other arguments", "arguments", lines
    if mismatch.environment is not None:
        lines = tuple(f"+ {variable}" for variable in mismatch.environment)
        yield "CONFIG", "the agent sees other variables", "environment", lines
    if mismatch.prompt is not None:
        lines = diff_lines(call.lines("prompt"), mismatch.prompt.splitlines())
        yield "PROMPT", "the prompt differs from the recording", prompt_cause, lines


def diff_lines(recorded: Iterable[str], current: Iterable[str]) -> tuple[str, ...]:
    """Return the differing lines without headers, at most DIFF_LINES_MAX."""
    lines = list(difflib.unified_diff(list(recorded), list(current), lineterm="", n=1))[2:]
    omitted = len(lines) - DIFF_LINES_MAX
    return (*lines[:DIFF_LINES_MAX], *((f"... and {omitted} more lines",) if omitted > 0 else ()))


# missing and unused recordings ----------------------------------------------------------------------------------------
WEIGHTS = {"feature": 8, "phase": 8, "unit": 4, "role": 4, "iteration": 2, "attempt": 1}


def _missing_calls(cassette: Cassette, outcome: ReplayOutcome) -> Iterator[Finding]:
    message = "the current pipeline makes a call that was not recorded"
    for identity in outcome.missing_calls:
        detail = list(_rejections(outcome.traces.get(identity.feature, b""), identity))
        if other := nearest(cassette, identity):
            fields = (field for field in WEIGHTS if getattr(other, field) != getattr(identity, field))
            differing = ", ".join(f"{field} {getattr(other, field) or '-'}" for field in fields)
            detail.append(f"  nearest: {other.path} ({differing})")
        yield _call_finding("MISSING", message, identity, RECORD_NEW, detail=tuple(detail))


def _rejections(trace: bytes, identity: Identity) -> Iterator[str]:
    """Yield the rules or the gate whose rejection caused the call."""
    rejections: tuple[str, ...] = ()
    for line in trace_events(trace):
        ref = line.get("ref") or {}
        if line["type"] == "agent.requested" and (ref["phase"], ref["attempt"]) == (identity.phase, identity.attempt):
            break
        if line["type"] in ("artifact.validated", "gate.checked"):
            rules = (f"{rule['rule']} {rule.get('path', '')}".rstrip() for rule in line.get("violations", ()))
            rejections = tuple(dict.fromkeys(rules)) or (() if line.get("passed", True) else (line["gate"],))
    yield from (f"  caused by: {reason}" for reason in rejections[:DIFF_LINES_MAX])


def nearest(cassette: Cassette, wanted: Identity) -> Identity | None:
    """Return the recording whose identity shares most with the wanted one."""

    def similarity(identity: Identity) -> int:
        return sum(weight for field, weight in WEIGHTS.items() if getattr(identity, field) == getattr(wanted, field))

    return max((call.identity for call in cassette.calls), key=similarity, default=None)


def _unused_recordings(cassette: Cassette, outcome: ReplayOutcome, stopped: Collection[str]) -> Iterator[Finding]:
    """Yield unused recordings, except of features that stopped early."""
    by_feature: dict[str, list[Identity]] = {}
    for call in cassette.calls:
        by_feature.setdefault(call.identity.feature, []).append(call.identity)
    for feature, identities in by_feature.items():
        unused = [identity for identity in identities if identity not in outcome.mismatches]
        if not unused or feature in stopped:
            continue
        replayed = len(identities) - len(unused)
        suffix = f"; its first {replayed} calls were replayed" if replayed else ""
        message = f"{len(unused)} of {len(identities)} recordings of {feature} are unused{suffix}"
        detail = tuple(f"  {identity.name}" for identity in unused[:DIFF_LINES_MAX])
        yield Finding(kind="UNUSED", message=message, feature=feature, detail=detail, fix=PRUNE)


def _trace_findings(cassette: Cassette, outcome: ReplayOutcome, incomplete: Collection[str]) -> Iterator[Finding]:
    """Yield differences of traces that no changed request explains."""
    for feature, recorded in cassette.traces.items():
        produced = outcome.traces.get(feature, b"")
        if feature in incomplete:
            continue
        for divergence in trace_divergences(with_produced_requests(recorded, produced), produced):
            position, detail = divergence.difference.position, divergence.difference.lines()
            yield Finding(
                kind=divergence.kind,
                message=f"the trace of {feature} {divergence.description} at event {position}",
                feature=feature,
                call=divergence.call,
                detail=detail,
                fix=ACCEPT % divergence.kind,
                line=position,
            )
