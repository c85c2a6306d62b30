"""The units of a phase: their order, their iterations, and which of them a block concerns."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from mz_events.catalog.feature import Blocked
from mz_events.catalog.validation import ArtifactParsed, Unit
from mz_projections.feature.state import FeatureProgress, InPhase, UnitRun

from mz_engine.model.pipeline import Phase, PhaseInput


def iteration(progress: FeatureProgress, phase: str, unit: str) -> int:
    """Return 1 + the number of rollbacks that superseded this phase and unit."""
    of_unit = progress.superseded_counts.get(f"{phase}/{unit}", 0) if unit else 0
    return 1 + progress.superseded_counts.get(phase, 0) + of_unit


def units_of(progress: FeatureProgress, phase: Phase) -> tuple[str, ...]:
    """Return the phase's units in the order of work; one empty name when it has none, or none are listed yet."""
    listed = progress.artifacts.get(phase.for_each.artifact) if phase.for_each else None
    if phase.for_each is None or listed is None:
        return ("",)
    in_order = phase.for_each.order == "depends_on"
    return dependency_order(listed.units) if in_order else tuple(unit.id for unit in listed.units)


def dependency_order(units: tuple[Unit, ...]) -> tuple[str, ...]:
    """Return unit ids with dependencies first, otherwise as listed; a cycle, which rules reject, stays as listed."""
    ids = {unit.id for unit in units}
    graph = {unit.id: [other for other in unit.depends_on if other in ids] for unit in units}
    try:
        return tuple(TopologicalSorter(graph).static_order())
    except CycleError:
        return tuple(graph)


def listed_units(progress: FeatureProgress, phase: Phase) -> dict[str, Unit]:
    """Return the phase's units by id; empty for a phase without units."""
    artifact = progress.artifacts.get(phase.for_each.artifact) if phase.for_each else None
    return {unit.id: unit for unit in artifact.units} if artifact else {}


def input_artifacts(progress: FeatureProgress, use: PhaseInput, unit: Unit | None) -> dict[str, ArtifactParsed]:
    """Return the artifacts of an input by unit, as far as they exist; one without units has an empty name."""
    by_unit = progress.artifacts_by_unit(use.artifact or "")
    return {name: by_unit[name] for name in chosen_units(use, unit, by_unit) if name in by_unit}


def chosen_units(use: PhaseInput, unit: Unit | None, names: Iterable[str]) -> Iterable[str]:
    """Return those of the names of units that an input of this unit is about."""
    if use.units == "all" or unit is None:
        return names
    return (unit.id,) if use.units == "own" else unit.depends_on


def affected_units(state: InPhase, unit_run: UnitRun, block: Blocked, target: Phase) -> tuple[str, ...]:
    """Return the units of `target` that a block concerns, with those that depend on them: those that the agent named,
    else the blocked one, else those that have the file of the block, else all."""
    listed = listed_units(state.progress, target)
    with_file = [unit.id for unit in listed.values() if block.path in unit.files]
    candidates = (block.units, (unit_run.unit,), with_file, listed)
    affected = next(filter(None, ([name for name in names if name in listed] for names in candidates)), [])
    for name in affected:
        affected += [other.id for other in listed.values() if name in other.depends_on and other.id not in affected]
    return tuple(name for name in units_of(state.progress, target) if name in affected)
