"""Comparison of a cassette's streams with the baseline of their agent's version, and updates of baselines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mz_engine.agents.registry import all_adapters
from mz_engine.model.agent_description import AgentDescription

from mz_recordings.cassette.model import Cassette, RecordedCall
from mz_recordings.drift.model import Difference, LeafDifference
from mz_recordings.drift.outputs import recorded_streams
from mz_recordings.drift.stream_diff import compare_shapes, shape_findings
from mz_recordings.drift.stream_shape import Field, ObservedStreams, StreamShape, Use, observe_streams, parent_path
from mz_recordings.findings.model import UPDATE_BASELINE, Finding

Baselines = Mapping[tuple[str, str], StreamShape]
CLI_PROVENANCES = ("live", "scripted-model")
"""Provenances whose streams the real CLI wrote."""
USES_ASCENDING: tuple[Use, ...] = ("ignored", "kept", "read")


def check_streams(
    cassette: Cassette, baselines: Baselines, agent_descriptions: Mapping[str, AgentDescription]
) -> Iterator[Difference]:
    """Yield stream differences, one comparison per agent and version in the cassette. Only streams that a CLI wrote are
    compared."""
    agents = all_adapters(agent_descriptions)
    for observed in (
        observe_cassette(cassette, agent_descriptions) if cassette.manifest.provenance in CLI_PROVENANCES else ()
    ):
        shape = observed.shape
        baseline = nearest_baseline(shape, baselines)
        if baseline is None:
            message = f"there is no baseline of {shape.agent}"
            yield Difference(
                Finding(kind="STREAM", message=message, cause=shape.agent, fix=UPDATE_BASELINE, risk="low")
            )
            continue
        baseline_label = f"the baseline of {baseline.agent} {baseline.version}"
        if shape.version and baseline.version != shape.version:
            message = f"there is no baseline of {shape.agent} {shape.version}; compared with {baseline_label}"
            yield Difference(
                Finding(kind="STREAM", message=message, cause=shape.agent, fix=UPDATE_BASELINE, risk="low")
            )
        changes = compare_shapes(baseline, observed, agents[shape.agent])
        for finding in shape_findings(changes, observed, baseline_label, UPDATE_BASELINE):
            is_low_risk = finding.risk == "low"
            yield Difference(
                finding,
                tuple(LeafDifference(change.name) for change in changes if change.risk == "low") if is_low_risk else (),
            )


def observe_cassette(
    cassette: Cassette, agent_descriptions: Mapping[str, AgentDescription]
) -> Iterator[ObservedStreams]:
    """Yield the stream shape of each agent and version in the cassette; calls without a stream are left out.

    `agent_descriptions`: the project's own agents.
    """
    agents = all_adapters(agent_descriptions)
    groups: dict[tuple[str, str], list[RecordedCall]] = {}
    for call in cassette.calls:
        if any(
            file.kind == "stdout" and call.contents[file.name] and has_shape(file.name) for file in call.recording.files
        ):
            groups.setdefault((call.recording.agent, call.recording.version), []).append(call)
    for (agent, version), calls in sorted(groups.items()):
        if agent in agents:
            yield observe_streams(agent, version, recorded_streams(calls), agents[agent])


def has_shape(name: str) -> bool:
    """Return True unless the stream is prose, which a recording keeps as `.txt`."""
    return not name.endswith(".txt")


def nearest_baseline(shape: StreamShape, baselines: Baselines) -> StreamShape | None:
    """Return the baseline of the version, else the newest one before it, else the oldest."""
    agent_baselines = sorted(
        (baseline for (agent, _), baseline in baselines.items() if agent == shape.agent),
        key=lambda baseline: version_key(baseline.version),
    )
    if not shape.version:
        return agent_baselines[-1] if agent_baselines else None
    not_newer = [
        baseline for baseline in agent_baselines if version_key(baseline.version) <= version_key(shape.version)
    ]
    return not_newer[-1] if not_newer else agent_baselines[0] if agent_baselines else None


def version_key(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d{1,9}", version)[:4])


def extend_baseline(baseline: StreamShape | None, observed: StreamShape) -> StreamShape:
    """Return the known stream shape of a version, extended by the observed one."""
    if baseline is None:
        return observed
    events = {**baseline.events}
    for name, fields in observed.events.items():
        events[name] = _merge_fields(baseline.events[name], fields) if name in baseline.events else fields
    return StreamShape(agent=observed.agent, version=observed.version, events=events)


def _merge_fields(old_fields: dict[str, Field], new_fields: dict[str, Field]) -> dict[str, Field]:
    merged = {}
    for path in sorted(old_fields.keys() | new_fields.keys()):
        old_field, new_field = old_fields.get(path), new_fields.get(path)
        parent = parent_path(path)
        if old_field and new_field:
            merged[path] = _merge_field(old_field, new_field)
        elif old_field:
            merged[path] = _as_optional(old_field) if not parent or parent in new_fields else old_field
        elif new_field:
            merged[path] = _as_optional(new_field) if not parent or parent in old_fields else new_field
    return merged


def _merge_field(first: Field, second: Field) -> Field:
    types = tuple(sorted({*first.types, *second.types}))
    return Field(
        types=types,
        use=max(first.use, second.use, key=USES_ASCENDING.index),
        is_always_present=first.is_always_present and second.is_always_present,
    )


def _as_optional(field: Field) -> Field:
    return Field(types=field.types, use=field.use)
