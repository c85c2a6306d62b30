"""Comparison of a cassette's streams with the baseline of their agent's version, and updates of baselines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace
from mz_engine.agents.registry import all_adapters
from mz_engine.model.agent_description import AgentDescription

from mz_recordings.cassette.model import Cassette, RecordedCall
from mz_recordings.drift.model import Difference
from mz_recordings.drift.outputs import recorded_streams
from mz_recordings.drift.stream_diff import compare_shapes, shape_differences
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
    if cassette.manifest.provenance not in CLI_PROVENANCES:
        return
    agents = all_adapters(agent_descriptions)
    for observed in observe_cassette(cassette, agent_descriptions):
        shape = observed.shape
        baseline = nearest_baseline(shape, baselines)
        label = f"the baseline of {baseline.agent} {baseline.version}" if baseline else ""
        missing = ""
        if baseline is None:
            missing = f"there is no baseline of {shape.agent}"
        elif shape.version and baseline.version != shape.version:
            missing = f"there is no baseline of {shape.agent} {shape.version}; compared with {label}"
        if missing:
            yield Difference(
                Finding(kind="STREAM", message=missing, cause=shape.agent, fix=UPDATE_BASELINE, risk="low")
            )
        if baseline is not None:
            changes = compare_shapes(baseline, observed, agents[shape.agent])
            yield from shape_differences(changes, observed, label, UPDATE_BASELINE)


def observe_cassette(
    cassette: Cassette, agent_descriptions: Mapping[str, AgentDescription]
) -> Iterator[ObservedStreams]:
    """Yield the stream shape of each agent and version in the cassette; calls without a stream are left out.

    `agent_descriptions`: the project's own agents.
    """
    agents = all_adapters(agent_descriptions)
    groups: dict[tuple[str, str], list[RecordedCall]] = {}
    for call in cassette.calls:
        stdout = call.recording.find("stdout")
        # Prose has no shape; a recording keeps it as `.txt`.
        if stdout is not None and not stdout.name.endswith(".txt") and call.contents[stdout.name]:
            groups.setdefault((call.recording.agent, call.recording.version), []).append(call)
    for (agent, version), calls in sorted(groups.items()):
        if agent in agents:
            yield observe_streams(agent, version, recorded_streams(calls), agents[agent])


def nearest_baseline(shape: StreamShape, baselines: Baselines) -> StreamShape | None:
    """Return the baseline of the version, else the newest one before it, else the oldest."""
    agent_baselines = sorted(
        (baseline for (agent, _), baseline in baselines.items() if agent == shape.agent),
        key=lambda baseline: version_key(baseline.version),
    )
    if not shape.version:
        return agent_baselines[-1] if agent_baselines else None
    not_newer = [entry for entry in agent_baselines if version_key(entry.version) <= version_key(shape.version)]
    return next(iter(not_newer[-1:] or agent_baselines), None)


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
        old_field, new_field, parent = old_fields.get(path), new_fields.get(path), parent_path(path)
        if old_field and new_field:
            merged[path] = _merge_field(old_field, new_field)
        elif field := old_field or new_field:
            other_fields = new_fields if old_field else old_fields
            is_missing = not parent or parent in other_fields
            merged[path] = replace(field, is_always_present=False) if is_missing else field
    return merged


def _merge_field(first: Field, second: Field) -> Field:
    types = tuple(sorted({*first.types, *second.types}))
    return Field(
        types=types,
        use=max(first.use, second.use, key=USES_ASCENDING.index),
        is_always_present=first.is_always_present and second.is_always_present,
    )
