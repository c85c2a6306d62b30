"""Comparison of two recordings of the same calls, by identity, with a finding kind for each difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import all_adapters
from mz_engine.model.agent_description import AgentDescription

from mz_recordings.cassette.model import Cassette, Identity, RecordedCall
from mz_recordings.drift.inputs import fixture_differences, input_differences
from mz_recordings.drift.model import Difference, RecordingPair
from mz_recordings.drift.outputs import (
    artifact_differences,
    cost_differences,
    end_differences,
    file_differences,
    stream_differences,
)
from mz_recordings.drift.traces import templates_of, trace_differences
from mz_recordings.findings.grouping import ORDER
from mz_recordings.findings.model import RECORD_NEW, Finding, rerecord_call

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
