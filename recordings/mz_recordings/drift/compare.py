"""Comparison of two recordings of the same calls, by identity, with a finding kind for each difference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import all_adapters
from mz_engine.model.agent_description import AgentDescription

from mz_recordings.cassette.model import Cassette, Identity, RecordedCall, Recording
from mz_recordings.cassette.trace_format import REQUESTED, EventJson, call_of_event, trace_events
from mz_recordings.drift.model import Difference, RecordingPair, call_difference
from mz_recordings.drift.outputs import (
    artifact_differences,
    cost_differences,
    end_differences,
    file_differences,
    stream_differences,
)
from mz_recordings.findings.grouping import ORDER
from mz_recordings.findings.model import RECORD_NEW, RERECORD, Finding, FindingKind, rerecord_call, rerecord_feature
from mz_recordings.replay.compare import diff_lines, trace_divergences

AgentDescriptions = Mapping[str, AgentDescription]
"""The project's own agents, needed to read their streams."""


def compare_cassettes(old: Cassette, new: Cassette, described: AgentDescriptions) -> tuple[Finding, ...]:
    """Return the differences of the new cassette as findings, ignoring measurements (times, durations, ids of runs and
    sessions) and tool output that nothing reads."""
    return tuple(difference.finding for difference in differences(old, new, described))


def differences(old: Cassette, new: Cassette, described: AgentDescriptions) -> tuple[Difference, ...]:
    """Return the differences as `compare_cassettes`, with the parts that noise can hide."""
    agents = all_adapters(described)
    old_calls, new_calls = old.by_identity(), new.by_identity()
    pairs = [RecordingPair(old_calls[call], new_calls[call], old, new) for call in old_calls if call in new_calls]
    unpaired = [call for call in (*old_calls, *new_calls) if (call in old_calls) != (call in new_calls)]
    templates = {**templates_of(old), **templates_of(new)}
    result = [
        *fixture_differences(old, new),
        *_pair_differences(pairs, templates, agents),
        *stream_differences(pairs, agents),
        *_tree_differences(pairs, old, new),
    ]
    features_ended_differently = {
        difference.finding.feature for difference in result if difference.finding.kind == "TRACE"
    }
    result += [
        *trace_differences(old, new, unpaired, features_ended_differently),
        *_unpaired_differences(old_calls, new_calls),
    ]
    return tuple(sorted(result, key=lambda difference: ORDER.index(difference.finding.kind)))


def _pair_differences(
    pairs: list[RecordingPair], templates: Mapping[Identity, str], agents: Mapping[str, Adapter]
) -> Iterator[Difference]:
    for pair in pairs:
        yield from input_differences(pair, templates)
        yield from artifact_differences(pair)
        yield from file_differences(pair)
        yield from cost_differences(pair, agents)
        yield from end_differences(pair)


def _unpaired_differences(
    old_calls: Mapping[Identity, RecordedCall], new_calls: Mapping[Identity, RecordedCall]
) -> Iterator[Difference]:
    for call in new_calls:
        if call not in old_calls:
            message = "only the new recording makes this call"
            yield Difference(
                Finding(kind="MISSING", message=message, feature=call.feature, call=call.name, fix=RECORD_NEW)
            )
    for call in old_calls:
        if call not in new_calls:
            message = "only the old recording makes this call"
            yield Difference(
                Finding(kind="UNUSED", message=message, feature=call.feature, call=call.name, fix=rerecord_call(call))
            )


def _tree_differences(pairs: list[RecordingPair], old: Cassette, new: Cassette) -> Iterator[Difference]:
    """Yield changed trees that no reported difference explains, such as other changes by an earlier call of the feature
    or of a dependency."""
    if old.manifest.fixture.base_tree != new.manifest.fixture.base_tree:
        return
    changed = {pair.identity.feature for pair in pairs if pair.old.content("patch") != pair.new.content("patch")}
    dependencies = {item.feature: {*item.depends_on} for item in old.manifest.fixture.items}
    features_with_other_tree: set[str] = set()
    for pair in pairs:
        old_recording, new_recording, feature = pair.old.recording, pair.new.recording, pair.identity.feature
        explained = feature in features_with_other_tree or bool(
            ({feature} | dependencies.get(feature, set())) & (changed | features_with_other_tree)
        )
        start_differs, end_differs = (
            old_recording.tree_before != new_recording.tree_before,
            old_recording.tree_after != new_recording.tree_after,
        )
        if (start_differs or end_differs) and not explained:
            features_with_other_tree.add(feature)
            message = "the call starts from another tree" if start_differs else "the call ends with another tree"
            trees = (
                (old_recording.tree_before, new_recording.tree_before)
                if start_differs
                else (old_recording.tree_after, new_recording.tree_after)
            )
            detail = (f"- {trees[0]}", f"+ {trees[1]}")
            finding = Finding(
                kind="FILES", message=message, feature=feature, call=pair.identity.name, cause="tree", detail=detail,
                fix=rerecord_call(pair.identity),
            )  # fmt: skip
            yield Difference(finding)


# inputs ---------------------------------------------------------------------------------------------------------------
EVIDENCE_KEYS = ("pipeline", "rules")
"""Parts of the evidence that are compared; templates show in the prompts."""
FIXTURE_FIELDS = ("items", "config", "decisions", "hints")


def fixture_differences(old: Cassette, new: Cassette) -> Iterator[Difference]:
    """Yield differences that concern all calls."""
    old_manifest, new_manifest = old.manifest, new.manifest
    values = {
        name: (getattr(old_manifest.fixture, name), getattr(new_manifest.fixture, name)) for name in FIXTURE_FIELDS
    }
    values |= {
        name: (getattr(old_manifest, name), getattr(new_manifest, name)) for name in ("pipeline", "agent", "provenance")
    }
    for name, (before, after) in values.items():
        if before != after:
            detail = diff_lines(_flatten(before), _flatten(after))
            yield _config_difference(
                f"the {name} of the fixture differ" if name in FIXTURE_FIELDS else f"another {name}",
                f"fixture.{name}",
                detail,
            )
    for name in EVIDENCE_KEYS:
        before, after = old_manifest.evidence.get(name), new_manifest.evidence.get(name)
        if before != after:
            yield _config_difference(
                f"recorded with different {name}", f"evidence.{name}", diff_lines(_flatten(before), _flatten(after))
            )
    if old_manifest.fixture.base_tree != new_manifest.fixture.base_tree:
        message = (
            f"the repository had the tree {old_manifest.fixture.base_tree[:12]}, now "
            f"{new_manifest.fixture.base_tree[:12]}"
        )
        yield Difference(Finding(kind="FILES", message=message, cause="fixture.base_tree", fix=f"{RERECORD} --all"))


def _config_difference(message: str, cause: str, detail: tuple[str, ...]) -> Difference:
    return Difference(Finding(kind="CONFIG", message=message, cause=cause, detail=detail, fix=f"{RERECORD} --all"))


def _flatten(value: object, path: str = "") -> list[str]:
    """Return the value as lines, one per leaf."""
    value_tree = msgspec.to_builtins(value)
    if isinstance(value_tree, dict):
        return [
            line for key, inner in value_tree.items() for line in _flatten(inner, f"{path}.{key}" if path else str(key))
        ]
    if isinstance(value_tree, list | tuple):
        return [line for at, inner in enumerate(value_tree) for line in _flatten(inner, f"{path}[{at}]")]
    return [f"{path}: {value_tree}" if path else str(value_tree)]


def input_differences(pair: RecordingPair, templates: Mapping[Identity, str]) -> Iterator[Difference]:
    """Yield PROMPT and CONFIG differences of one call."""
    yield from _prompt_difference(pair, templates.get(pair.identity, ""))
    old_recording, new_recording = pair.old.recording, pair.new.recording
    if (old_recording.agent, old_recording.model) != (new_recording.agent, new_recording.model):
        yield call_difference(
            "CONFIG", pair.identity, "another model", "model",
            diff_lines(_model_line(old_recording), _model_line(new_recording)),
        )  # fmt: skip
    old_argv = tuple("<MODEL>" if argument == old_recording.model else argument for argument in old_recording.argv)
    new_argv = tuple("<MODEL>" if argument == new_recording.model else argument for argument in new_recording.argv)
    if old_argv != new_argv:
        yield call_difference(
            "CONFIG", pair.identity, "other arguments", "arguments", diff_lines(old_recording.argv, new_recording.argv)
        )
    if set(old_recording.environment) != set(new_recording.environment):
        before, after = sorted(old_recording.environment), sorted(new_recording.environment)
        yield call_difference(
            "CONFIG", pair.identity, "the agent sees other variables", "environment", diff_lines(before, after)
        )
    if old_recording.version != new_recording.version:
        yield call_difference(
            "CONFIG",
            pair.identity,
            "another version of the CLI",
            "version",
            diff_lines([old_recording.version], [new_recording.version]),
            "low",
        )


def _model_line(recording: Recording) -> list[str]:
    return [f"{recording.agent} {recording.model}"]


def _prompt_difference(pair: RecordingPair, template: str) -> Iterator[Difference]:
    before, after = pair.old.lines("prompt"), pair.new.lines("prompt")
    if before == after:
        return
    old_replies, new_replies = (
        _earlier_artifact_lines(pair.old_cassette, pair.identity),
        _earlier_artifact_lines(pair.new_cassette, pair.identity),
    )
    removed, added = old_replies - new_replies, new_replies - old_replies
    if [line for line in before if line not in removed] == [line for line in after if line not in added]:
        message = "the prompt differs only in text from earlier replies"
        yield call_difference("PROMPT", pair.identity, message, "earlier replies", diff_lines(before, after), "low")
    else:
        yield call_difference("PROMPT", pair.identity, "the prompts differ", template, diff_lines(before, after))


def _earlier_artifact_lines(cassette: Cassette, call: Identity) -> set[str]:
    """Return the lines of the artifacts that earlier calls of the feature produced."""
    lines: set[str] = set()
    for recorded_call in cassette.calls:
        identity = recorded_call.recording.identity
        if identity == call:
            break
        if identity.feature == call.feature:
            for file in recorded_call.recording.files:
                if file.kind == "artifact":
                    lines |= set(recorded_call.contents[file.name].decode("utf-8", "replace").splitlines())
    return lines


# traces ---------------------------------------------------------------------------------------------------------------
IGNORED_FIELDS = frozenset(
    {
        "prompt", "estimated_tokens", "estimated_nanousd", "model", "agent", "template", "full_prompt",
        "prompt_tokens", "full_prompt_tokens", "counted_tokens",
        "usage", "reported_nanousd", "parser",
        "digest", "report", "note", "title", "body", "detail",
        "message", "files", "insertions", "deletions", "changed_paths", "changes",
        "passed", "failed", "signature", "line", "retry_after_seconds", "bad_lines",
    }
)  # fmt: skip
"""Fields that prompts, settings, artifacts, patches and tokens cover, and numbers that follow from text."""


def trace_differences(
    old: Cassette, new: Cassette, unpaired: Collection[Identity], features_ended_differently: Collection[str]
) -> Iterator[Difference]:
    """Yield the differences between the traces of each feature, except consequences of reported differences.

    `unpaired`: calls of only one recording; `features_ended_differently`: features with a call that ended differently.
    """
    for feature in sorted(old.traces.keys() & new.traces.keys()):
        for divergence in trace_divergences(
            _comparable_trace(old.traces[feature]), _comparable_trace(new.traces[feature])
        ):
            calls = [
                call
                for line in (divergence.difference.recorded, divergence.difference.produced)
                if (call := call_of_event(line))
            ]
            if divergence.kind == "TRACE" and (
                feature in features_ended_differently or any(_is_among(call, feature, unpaired) for call in calls)
            ):
                continue
            yield Difference(
                _trace_finding(feature, divergence.kind, divergence.description, divergence.difference.lines(), calls)
            )
    for feature in sorted(old.traces.keys() ^ new.traces.keys()):
        side = "the old" if feature in old.traces else "the new"
        message = f"only {side} recording has a trace of {feature}"
        yield Difference(Finding(kind="TRACE", message=message, feature=feature, fix=rerecord_feature(feature)))


def _trace_finding(
    feature: str, kind: FindingKind, description: str, detail: tuple[str, ...], calls: list[Identity]
) -> Finding:
    name = calls[0].name if calls else ""
    fix = rerecord_call(msgspec.structs.replace(calls[0], feature=feature)) if calls else rerecord_feature(feature)
    return Finding(
        kind=kind, message=f"the trace of {feature} {description}", feature=feature, call=name, detail=detail, fix=fix
    )


def _comparable_trace(trace: bytes) -> bytes:
    lines = map(_comparable_event, trace_events(trace))
    return b"".join(msgspec.json.encode(line, order="deterministic") + b"\n" for line in lines)


def _comparable_event(line: EventJson) -> EventJson:
    kind = line.get("type")
    ignored = IGNORED_FIELDS - {"passed", "files"} if kind in ("gate.checked", "artifact.parsed") else IGNORED_FIELDS
    # All fields of a parsed artifact count: the files of a unit are those that it may change.
    ignored_inside = frozenset[str]() if kind == "artifact.parsed" else IGNORED_FIELDS
    return {name: _comparable_value(name, value, ignored_inside) for name, value in line.items() if name not in ignored}


def _comparable_value(name: str, value: Any, ignored: frozenset[str]) -> Any:
    if name == "key" and isinstance(value, str):
        return value.partition("/")[2]
    if isinstance(value, dict):
        return {key: _comparable_value(key, inner, ignored) for key, inner in value.items() if key not in ignored}
    if isinstance(value, list):
        return [_comparable_value("", inner, ignored) for inner in value]
    return value


def _is_among(call: Identity, feature: str, calls: Collection[Identity]) -> bool:
    return any((other.feature, other.name) == (feature, call.name) for other in calls)


def templates_of(cassette: Cassette) -> Mapping[Identity, str]:
    """Return the template of each call's prompt, as far as the traces name it."""
    return {
        call: str(event.get("template", ""))
        for feature, trace in cassette.traces.items()
        for event in trace_events(trace, REQUESTED)
        if (call := call_of_event(event, cassette.manifest.pipeline, feature))
    }
