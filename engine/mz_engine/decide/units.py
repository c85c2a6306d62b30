"""The units of a phase: their order, their iterations, and which of them a block concerns."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from mz_events.catalog.feature import Blocked
from mz_events.catalog.validation import Unit
from mz_projections.feature.state import FeatureProgress, InPhase, UnitRun

from mz_engine.model.pipeline import Phase


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


def affected_units(state: InPhase, unit_run: UnitRun, block: Blocked, target: Phase) -> tuple[str, ...]:
    """Return the units of `target` that a block concerns, with those that depend on them: those that the agent named,
    else the blocked one, else those that have the file of the block, else all."""
    artifact = state.progress.artifacts.get(target.for_each.artifact) if target.for_each else None
    listed = artifact.units if artifact else ()
    candidates = (
        block.units,
        (unit_run.unit,),
        [unit.id for unit in listed if block.path in unit.files],
        [unit.id for unit in listed],
    )
    valid = {unit.id for unit in listed}
    affected = next(filter(None, ([name for name in names if name in valid] for names in candidates)), [])
    for name in affected:
        affected += [other.id for other in listed if name in other.depends_on and other.id not in affected]
    return tuple(name for name in units_of(state.progress, target) if name in affected)
