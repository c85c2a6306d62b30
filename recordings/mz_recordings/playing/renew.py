"""Updates of a cassette: new inputs accepted with the replies kept, or unused recordings removed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import msgspec
from msgspec.structs import replace
from mz_engine.pins import encode_pins

from mz_recordings.cassette import Accepted, Cassette, RecordedCall, Recording, StoredFile
from mz_recordings.findings import CallMismatch, Finding
from mz_recordings.playing.compare import ReplayOutcome, incomplete_features
from mz_recordings.playing.parting import trace_divergences
from mz_recordings.recording.scrub import MachineValues, scrub
from mz_recordings.recording.story import with_produced_requests

INPUT_KINDS = ("PROMPT", "CONFIG")
"""Kinds whose acceptance is noted in the recordings; the others change the trace only."""


def accept_differences(
    cassette: Cassette, outcome: ReplayOutcome, kinds: Collection[str], reason: str, at: str
) -> tuple[Cassette, tuple[str, ...]]:
    """Accept differences of these kinds (`findings.ACCEPTABLE`); return the cassette and descriptions of the changes.

    A trace is replaced if all kinds of its differences are accepted, and never if the replay ended early. `at`: UTC,
    `2026-11-21T10:28:00Z`.
    """
    descriptions: list[str] = []
    calls = tuple(
        _accept_call(call, outcome, kinds, Accepted(classes=_sorted_input_kinds(kinds), reason=reason, at=at)) for call in cassette.calls
    )
    changed = [new.recording.identity.path for old, new in zip(cassette.calls, calls, strict=True) if old is not new]
    if changed:
        descriptions.append(f"accepted new inputs, kept the replies: {', '.join(changed)}")
    traces, incomplete = dict(cassette.traces), incomplete_features(cassette, outcome)
    for feature, produced in outcome.traces.items():
        recorded = cassette.traces.get(feature)
        if feature not in incomplete and _replaces_trace(recorded, produced, kinds):
            traces[feature] = produced
            descriptions.append(f"updated the trace of {feature}")
        elif changed and recorded is not None:
            traces[feature] = with_produced_requests(recorded, produced)
    if not descriptions:
        return cassette, ()
    evidence = msgspec.json.decode(encode_pins(outcome.pins), type=dict[str, object])
    manifest = replace(cassette.manifest, traces=_digests(traces), evidence=evidence)
    return cassette._replace(manifest=manifest, calls=calls, traces=traces), tuple(descriptions)


def _replaces_trace(recorded: bytes | None, produced: bytes, kinds: Collection[str]) -> bool:
    if recorded is None:
        return "TRACE" in kinds
    if recorded == produced:
        return False
    return "TRACE" in kinds if not (differing_kinds := _differing_kinds(recorded, produced)) else differing_kinds <= set(kinds)


def _differing_kinds(recorded: bytes, produced: bytes) -> set[str]:
    return {divergence.kind for divergence in trace_divergences(with_produced_requests(recorded, produced), produced)}


def _sorted_input_kinds(kinds: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(kind for kind in kinds if kind in INPUT_KINDS))


def _accept_call(call: RecordedCall, outcome: ReplayOutcome, kinds: Collection[str], accepted: Accepted) -> RecordedCall:
    identity = call.recording.identity
    mismatch, request = outcome.mismatches.get(identity), outcome.requests.get(identity)
    if mismatch is None or request is None or mismatch.tree is not None or mismatch.rejection is not None:
        return call
    updated = call
    if "PROMPT" in kinds and mismatch.prompt is not None:
        updated = _with_prompt(updated, mismatch.prompt)
    if "CONFIG" in kinds and (mismatch.argv is not None or mismatch.environment is not None):
        updated = updated._replace(recording=_with_settings(updated, mismatch, request.model))
    return call if updated is call else updated._replace(recording=replace(updated.recording, accepted=accepted))


def _with_prompt(call: RecordedCall, prompt: str) -> RecordedCall:
    data = scrub(prompt.encode(), (MachineValues(),))
    old = call.recording.find("prompt")
    assert old is not None
    new = StoredFile(kind="prompt", name=old.name, sha256=hashlib.sha256(data).hexdigest())
    files = tuple(new if file is old else file for file in call.recording.files)
    return RecordedCall(replace(call.recording, files=files), {**call.contents, old.name: data})


def _with_settings(call: RecordedCall, mismatch: CallMismatch, model: str) -> Recording:
    recording = call.recording
    environment = tuple(sorted({*recording.environment, *(mismatch.environment or ())}))
    return replace(recording, argv=mismatch.argv or recording.argv, environment=environment, model=model)


def prune(
    cassette: Cassette, outcome: ReplayOutcome, findings: tuple[Finding, ...]
) -> tuple[Cassette, tuple[str, ...]]:
    """Return the cassette without recordings that the findings report as unused, and descriptions of the changes."""
    features = {finding.feature for finding in findings if finding.kind == "UNUSED"}
    unused = {
        call.recording.identity
        for call in cassette.calls
        if call.recording.identity.feature in features and call.recording.identity not in outcome.mismatches
    }
    if not unused:
        return cassette, ()
    calls = tuple(call for call in cassette.calls if call.recording.identity not in unused)
    names = ", ".join(sorted(identity.path for identity in unused))
    return cassette._replace(calls=calls), (f"removed {len(unused)} unused recordings: {names}",)


def _digests(traces: dict[str, bytes]) -> dict[str, str]:
    return {feature: hashlib.sha256(content).hexdigest() for feature, content in traces.items()}
