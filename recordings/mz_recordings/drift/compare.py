"""Comparison of two recordings of the same calls, by identity, with a finding kind for each difference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import all_adapters

from mz_recordings.cassette.model import Cassette, Identity, Recording
from mz_recordings.cassette.trace import REQUESTED, EventJson, call_events, call_of_event, trace_events
from mz_recordings.drift.model import AgentDescriptions, Difference, RecordingPair, call_difference
from mz_recordings.drift.outputs import (
    artifact_differences,
    cost_differences,
    end_differences,
    file_differences,
    stream_differences,
)
from mz_recordings.findings.model import ORDER, RECORD_NEW, RERECORD_ALL, Finding, Risk, rerecord_call, rerecord_feature
from mz_recordings.replay.compare import diff_lines, trace_divergences


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
        *(difference for pair in pairs for difference in _pair_differences(pair, templates, agents)),
        *stream_differences(pairs, agents),
        *_tree_differences(pairs, old, new),
    ]
    features_ended_differently = {
        difference.finding.feature for difference in result if difference.finding.kind == "TRACE"
    }
    result += [
        *trace_differences(old, new, unpaired, features_ended_differently),
        *(_unpaired_difference(call, call in new_calls) for call in unpaired),
    ]
    return tuple(sorted(result, key=lambda difference: ORDER.index(difference.finding.kind)))


def _pair_differences(
    pair: RecordingPair, templates: Mapping[Identity, str], agents: Mapping[str, Adapter]
) -> Iterator[Difference]:
    yield from input_differences(pair, templates)
    yield from artifact_differences(pair)
    yield from file_differences(pair)
    yield from cost_differences(pair, agents)
    yield from end_differences(pair)


def _tree_differences(pairs: list[RecordingPair], old: Cassette, new: Cassette) -> Iterator[Difference]:
    """Yield changed trees that no reported difference explains, such as other changes by an earlier call of the feature
    or of a dependency."""
    if old.manifest.fixture.base_tree != new.manifest.fixture.base_tree:
        return
    changed = {pair.identity.feature for pair in pairs if pair.old.content("patch") != pair.new.content("patch")}
    dependencies = {item.feature: item.depends_on for item in old.manifest.fixture.items}
    messages = {"tree_before": "the call starts from another tree", "tree_after": "the call ends with another tree"}
    for pair in pairs:
        feature = pair.identity.feature
        for field, message in messages.items():
            before, after = getattr(pair.old.recording, field), getattr(pair.new.recording, field)
            if before != after and changed.isdisjoint({feature, *dependencies.get(feature, ())}):
                changed.add(feature)
                yield call_difference("FILES", pair.identity, message, "tree", (f"- {before}", f"+ {after}"))


def _unpaired_difference(call: Identity, is_new: bool) -> Difference:
    message = f"only the {'new' if is_new else 'old'} recording makes this call"
    if is_new:
        return call_difference("MISSING", call, message, fix=RECORD_NEW)
    return call_difference("UNUSED", call, message)


# inputs ---------------------------------------------------------------------------------------------------------------
EVIDENCE_KEYS = ("pipeline", "rules")
"""Parts of the evidence that are compared; templates show in the prompts."""
SETTING_MESSAGES = {
    "model": "another model",
    "arguments": "other arguments",
    "environment": "the agent sees other variables",
    "version": "another version of the CLI",
}
FIXTURE_FIELDS = ("items", "config", "decisions", "hints")
MANIFEST_FIELDS = ("pipeline", "agent", "provenance")


def fixture_differences(old: Cassette, new: Cassette) -> Iterator[Difference]:
    """Yield differences that concern all calls."""
    old_manifest, new_manifest = old.manifest, new.manifest
    old_fixture, new_fixture = old_manifest.fixture, new_manifest.fixture
    compared = (
        *((f"different {name} in the fixture", f"fixture.{name}", getattr(old_fixture, name),
           getattr(new_fixture, name)) for name in FIXTURE_FIELDS),
        *((f"another {name}", f"fixture.{name}", getattr(old_manifest, name), getattr(new_manifest, name))
          for name in MANIFEST_FIELDS),
        *((f"recorded with different {name}", f"evidence.{name}", old_manifest.evidence.get(name),
           new_manifest.evidence.get(name)) for name in EVIDENCE_KEYS),
    )  # fmt: skip
    for message, cause, before, after in compared:
        if before != after:
            detail = diff_lines(_flatten(before), _flatten(after))
            yield Difference(Finding(kind="CONFIG", message=message, cause=cause, detail=detail, fix=RERECORD_ALL))
    if old_fixture.base_tree != new_fixture.base_tree:
        message = f"the repository had the tree {old_fixture.base_tree[:12]}, now {new_fixture.base_tree[:12]}"
        yield Difference(Finding(kind="FILES", message=message, cause="fixture.base_tree", fix=RERECORD_ALL))


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
    old, new = pair.old.recording, pair.new.recording
    old_settings, new_settings = _call_settings(old), _call_settings(new)
    for cause, message in SETTING_MESSAGES.items():
        before, after = old_settings[cause], new_settings[cause]
        if before != after:
            detail = diff_lines(old.argv, new.argv) if cause == "arguments" else diff_lines(before, after)
            risk: Risk | None = "low" if cause == "version" else None
            yield call_difference("CONFIG", pair.identity, message, cause, detail, risk)


def _call_settings(recording: Recording) -> dict[str, list[str]]:
    """Return the settings of a call by cause, as lines."""
    return {
        "model": [f"{recording.agent} {recording.model}"],
        "arguments": ["<MODEL>" if argument == recording.model else argument for argument in recording.argv],
        "environment": sorted(set(recording.environment)),
        "version": [recording.version],
    }


def _prompt_difference(pair: RecordingPair, template: str) -> Iterator[Difference]:
    before, after = pair.old.lines("prompt"), pair.new.lines("prompt")
    if before == after:
        return
    old_replies = _earlier_artifact_lines(pair.old_cassette, pair.identity)
    new_replies = _earlier_artifact_lines(pair.new_cassette, pair.identity)
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
            for text in recorded_call.artifacts().values():
                lines |= set(text.splitlines())
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
    unpaired_names = {(call.feature, call.name) for call in unpaired}
    for feature in sorted(old.traces.keys() & new.traces.keys()):
        for divergence in trace_divergences(
            _comparable_trace(old.traces[feature]), _comparable_trace(new.traces[feature])
        ):
            events = (divergence.difference.recorded, divergence.difference.produced)
            calls = [call for event in events if (call := call_of_event(event, feature=feature))]
            if divergence.kind == "TRACE" and (
                feature in features_ended_differently or any((feature, call.name) in unpaired_names for call in calls)
            ):
                continue
            finding = Finding(
                kind=divergence.kind, message=f"the trace of {feature} {divergence.description}", feature=feature,
                call=calls[0].name if calls else "", detail=divergence.difference.lines(),
                fix=rerecord_call(calls[0]) if calls else rerecord_feature(feature),
            )  # fmt: skip
            yield Difference(finding)
    for feature in sorted(old.traces.keys() ^ new.traces.keys()):
        side = "the old" if feature in old.traces else "the new"
        message = f"only {side} recording has a trace of {feature}"
        yield Difference(Finding(kind="TRACE", message=message, feature=feature, fix=rerecord_feature(feature)))


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


def templates_of(cassette: Cassette) -> Mapping[Identity, str]:
    """Return the template of each call's prompt, as far as the traces name it."""
    return {call: str(event.get("template", "")) for call, event in call_events(cassette, REQUESTED)}
