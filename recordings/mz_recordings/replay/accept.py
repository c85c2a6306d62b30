"""Updates of a cassette: new inputs accepted with the replies kept, or unused recordings removed.

Detection of secrets that an update would add to a cassette: in current texts and settings, in prompts made from
them, and in given reasons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec
from msgspec.structs import replace
from mz_engine.model.pins import encode_pins
from mz_events.redaction.redactor import Secrets

from mz_recordings.cassette.files import cassette_files, digest
from mz_recordings.cassette.model import MANIFEST, Accepted, Cassette, RecordedCall
from mz_recordings.cassette.placeholders import MachineValues, scrub
from mz_recordings.cassette.trace import with_produced_requests
from mz_recordings.findings.model import Finding
from mz_recordings.replay.compare import ReplayOutcome, incomplete_features, trace_divergences

INPUT_KINDS = frozenset({"PROMPT", "CONFIG"})
"""Kinds whose acceptance is noted in the recordings; the others change the trace only."""


def accept_differences(
    cassette: Cassette, outcome: ReplayOutcome, kinds: Collection[str], reason: str, at: str
) -> tuple[Cassette, tuple[str, ...]]:
    """Accept differences of these kinds (`findings.ACCEPTABLE`); return the cassette and descriptions of the changes.

    A trace is replaced if all kinds of its differences are accepted, and never if the replay ended early. `at`: UTC,
    `2026-11-21T10:28:00Z`.
    """
    descriptions: list[str] = []
    accepted = Accepted(kinds=tuple(sorted(INPUT_KINDS & set(kinds))), reason=reason, at=at)
    calls = tuple(_accept_call(call, outcome, kinds, accepted) for call in cassette.calls)
    changed = [new.identity.path for old, new in zip(cassette.calls, calls, strict=True) if old is not new]
    if changed:
        descriptions.append(f"accepted new inputs, kept the replies: {', '.join(changed)}")
    traces, incomplete = dict(cassette.traces), incomplete_features(cassette, outcome)
    for feature, recorded in cassette.traces.items():
        produced = outcome.traces.get(feature, recorded)
        if feature not in incomplete and _replaces_trace(recorded, produced, kinds):
            traces[feature] = produced
            descriptions.append(f"updated the trace of {feature}")
        elif changed:
            traces[feature] = with_produced_requests(recorded, produced)
    if not descriptions:
        return cassette, ()
    evidence = msgspec.json.decode(encode_pins(outcome.pins), type=dict[str, object])
    manifest = replace(
        cassette.manifest, traces={feature: digest(trace) for feature, trace in traces.items()}, evidence=evidence
    )
    return cassette._replace(manifest=manifest, calls=calls, traces=traces), tuple(descriptions)


def _replaces_trace(recorded: bytes, produced: bytes, kinds: Collection[str]) -> bool:
    if recorded == produced:
        return False
    divergences = trace_divergences(with_produced_requests(recorded, produced), produced)
    return ({divergence.kind for divergence in divergences} or {"TRACE"}) <= set(kinds)


def _accept_call(
    call: RecordedCall, outcome: ReplayOutcome, kinds: Collection[str], accepted: Accepted
) -> RecordedCall:
    identity = call.identity
    mismatch, request = outcome.mismatches.get(identity), outcome.requests.get(identity)
    if mismatch is None or request is None or mismatch.tree is not None or mismatch.rejection is not None:
        return call
    recording, contents = call
    if "PROMPT" in kinds and mismatch.prompt is not None:
        data = scrub(mismatch.prompt.encode(), (MachineValues(),))
        prompts = {file.name: replace(file, sha256=digest(data)) for file in recording.files if file.kind == "prompt"}
        files = tuple(prompts.get(file.name, file) for file in recording.files)
        recording, contents = replace(recording, files=files), {**contents, **dict.fromkeys(prompts, data)}
    if "CONFIG" in kinds and (mismatch.argv is not None or mismatch.environment is not None):
        environment = tuple(sorted({*recording.environment, *(mismatch.environment or ())}))
        argv = mismatch.argv or recording.argv
        recording = replace(recording, argv=argv, environment=environment, model=request.model)
    if recording is call.recording:
        return call
    return RecordedCall(replace(recording, accepted=accepted), contents)


def prune(
    cassette: Cassette, outcome: ReplayOutcome, findings: tuple[Finding, ...]
) -> tuple[Cassette, tuple[str, ...]]:
    """Return the cassette without recordings that the findings report as unused, and descriptions of the changes."""
    features = {finding.feature for finding in findings if finding.kind == "UNUSED"}
    unused = {
        call.identity
        for call in cassette.calls
        if call.identity.feature in features and call.identity not in outcome.mismatches
    }
    if not unused:
        return cassette, ()
    calls = tuple(call for call in cassette.calls if call.identity not in unused)
    names = ", ".join(sorted(identity.path for identity in unused))
    return cassette._replace(calls=calls), (f"removed {len(unused)} unused recordings: {names}",)


FIX = "take it out of the project, then: mz replay {cassette}"


def new_secrets(old: Cassette, new: Cassette, secrets: Secrets) -> Iterator[Finding]:
    """Yield a finding for each place that must not be written; none: `new` may replace `old`."""
    before = dict(cassette_files(old))
    calls = {f"{call.identity.feature}/{name}": call.identity for call in new.calls for name in call.contents}
    calls |= {f"{call.identity.path}.json": call.identity for call in new.calls}
    recordings = {f"{call.identity.path}.json": call.recording for call in new.calls}
    for path, data in cassette_files(new):
        parts: Iterable[tuple[str, bytes]] = [("", data)] if before.get(path) != data else []
        if parts and (path == MANIFEST or path in recordings):
            texts = _texts(msgspec.to_builtins(recordings.get(path, new.manifest)))
            parts = ((f" ({at})" if at else "", text.encode("utf-8", "surrogateescape")) for at, text in texts)
        for location, part in parts:
            if names := secrets.names_in(part):
                message = f"{' and '.join(names)} would be written to {path}{location}; nothing was changed"
                feature, call = path.rpartition("/")[0], calls[path].name if path in calls else ""
                yield Finding(kind="SECRET", message=message, feature=feature, call=call, fix=FIX)


def _texts(value: object, key_path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string in the value, unescaped, with its key path."""
    if isinstance(value, str):
        yield key_path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield key_path, str(name)
            yield from _texts(item, f"{key_path}.{name}" if key_path else str(name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, key_path)
