"""Comparison of a cassette's streams with the baseline of their agent's version, and updates of baselines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mz_engine.agents.generic_form import AgentDescription
from mz_engine.agents.registry import adapters

from mz_recordings.cassette import Cassette, Taken
from mz_recordings.drift.difference import Atom, Difference
from mz_recordings.drift.outputs import streams_of
from mz_recordings.findings import Finding
from mz_recordings.mending import UPDATE_WIRE
from mz_recordings.wire.diff import compare_wires, findings
from mz_recordings.wire.wire import Field, Observed, Use, Wire, observe, parent_of

Baselines = Mapping[tuple[str, str], Wire]
TRUSTED = ("live", "scripted-model")
"""Provenances whose streams the real CLI wrote."""
STRONGEST: tuple[Use, ...] = ("ignored", "kept", "read")


def check_wires(
    cassette: Cassette, baselines: Baselines, described: Mapping[str, AgentDescription]
) -> Iterator[Difference]:
    """Yield stream differences, one comparison per agent and version in the cassette. Only streams that a CLI wrote are
    compared."""
    agents = adapters(described)
    for observed in observed_in(cassette, described) if cassette.manifest.provenance in TRUSTED else ():
        wire = observed.wire
        known = nearest(wire, baselines)
        if known is None:
            what = f"there is no baseline of {wire.agent}"
            yield Difference(Finding(kind="WIRE", what=what, cause=wire.agent, mend=UPDATE_WIRE, risk="low"))
            continue
        against = f"the baseline of {known.agent} {known.version}"
        if wire.version and known.version != wire.version:
            what = f"there is no baseline of {wire.agent} {wire.version}; compared with {against}"
            yield Difference(Finding(kind="WIRE", what=what, cause=wire.agent, mend=UPDATE_WIRE, risk="low"))
        changes = compare_wires(known, observed, agents[wire.agent])
        for finding in findings(changes, observed, against, UPDATE_WIRE):
            low = finding.risk == "low"
            yield Difference(finding, tuple(Atom(one.name) for one in changes if one.risk == "low") if low else ())


def observed_in(cassette: Cassette, described: Mapping[str, AgentDescription]) -> Iterator[Observed]:
    """Yield the stream shape of each agent and version in the cassette; calls without a stream are left out.

    `agent_descriptions`: the project's own agents.
    """
    agents = adapters(described)
    groups: dict[tuple[str, str], list[Taken]] = {}
    for one in cassette.taken:
        if any(file.kind == "stdout" and one.contents[file.name] and shaped(file.name) for file in one.recording.files):
            groups.setdefault((one.recording.agent, one.recording.version), []).append(one)
    for (agent, version), taken in sorted(groups.items()):
        if agent in agents:
            yield observe(agent, version, streams_of(taken), agents[agent])


def shaped(name: str) -> bool:
    """Return True unless the stream is prose, which a recording keeps as `.txt`."""
    return not name.endswith(".txt")


def nearest(wire: Wire, baselines: Baselines) -> Wire | None:
    """Return the baseline of the version, else the newest one before it, else the oldest."""
    mine = sorted(
        (one for (agent, _), one in baselines.items() if agent == wire.agent), key=lambda one: order(one.version)
    )
    if not wire.version:
        return mine[-1] if mine else None
    before = [one for one in mine if order(one.version) <= order(wire.version)]
    return before[-1] if before else mine[0] if mine else None


def order(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d{1,9}", version)[:4])


def grown(known: Wire | None, seen: Wire) -> Wire:
    """Return the known stream shape of a version, extended by the observed one."""
    if known is None:
        return seen
    events = {**known.events}
    for name, fields in seen.events.items():
        events[name] = _merged(known.events[name], fields) if name in known.events else fields
    return Wire(agent=seen.agent, version=seen.version, events=events)


def _merged(known: dict[str, Field], seen: dict[str, Field]) -> dict[str, Field]:
    made = {}
    for path in sorted(known.keys() | seen.keys()):
        one, other = known.get(path), seen.get(path)
        parent = parent_of(path)
        if one and other:
            made[path] = _both(one, other)
        elif one:
            made[path] = _sometimes(one) if not parent or parent in seen else one
        elif other:
            made[path] = _sometimes(other) if not parent or parent in known else other
    return made


def _both(one: Field, other: Field) -> Field:
    types = tuple(sorted({*one.types, *other.types}))
    return Field(types=types, use=max(one.use, other.use, key=STRONGEST.index), always=one.always and other.always)


def _sometimes(field: Field) -> Field:
    return Field(types=field.types, use=field.use)
