"""Conditions of a pipeline: whether a phase or a review takes place, a person is asked, or a better tier is used."""

from __future__ import annotations

from collections.abc import Collection

from mz_events.catalog.validation import ArtifactParsed
from mz_events.names import BUILDER
from mz_projections.feature.state import InPhase, UnitRun

from mz_engine.decide.units import listed_units
from mz_engine.model.pipeline import TIERS, AgentReview, AgentUse, Condition, Phase, Tier


def holds(condition: Condition, state: InPhase, unit_run: UnitRun, phase: Phase, broken: Collection[str]) -> bool:
    """Return True if the condition holds; `broken` are the rules that are broken."""
    if condition.rule is not None:
        return condition.rule in broken
    if condition.rolled_back is not None:
        return unit_run.iteration > condition.rolled_back
    if condition.unit is not None:
        unit = listed_units(state.progress, phase).get(unit_run.unit)
        return unit is not None and unit.fields.get(condition.unit) in condition.values
    if condition.artifact is None:
        return True
    fields = (artifact.fields for artifact in artifacts_in_view(condition.artifact, state, unit_run, phase))
    return any(values.get(condition.field or "") in condition.values for values in fields)


def artifacts_in_view(name: str, state: InPhase, unit_run: UnitRun, phase: Phase) -> tuple[ArtifactParsed, ...]:
    """Return the artifacts of this name that a unit is judged by: of the current reply, else its own, or those of all
    units if they are units of another phase."""
    if name in unit_run.parsed_artifacts:
        return (unit_run.parsed_artifacts[name],)
    by_unit = state.progress.artifacts_by_unit(name)
    if by_unit.keys() <= listed_units(state.progress, phase).keys():
        return tuple(parsed for unit, parsed in by_unit.items() if unit == unit_run.unit)
    return tuple(by_unit.values())


def escalation(
    use: AgentUse | AgentReview,
    state: InPhase,
    unit_run: UnitRun,
    phase: Phase,
    broken: Collection[str] = (),
    own_tier: Tier | None = None,
) -> tuple[Tier, str]:
    """Return the tier of the next call, and the condition that raised it above its own; empty: none did. Work on a
    unit never goes back to a lower tier."""
    raised = [(entry.to, entry.name) for entry in use.escalate if holds(entry, state, unit_run, phase, broken)]
    earlier = unit_run.request
    if earlier is not None and (earlier.ref.role == BUILDER) == isinstance(use, AgentUse):
        raised += [(tier, earlier.escalated_by) for tier in TIERS if tier == earlier.escalated_to]
    return max(((own_tier or use.tier, ""), *raised), key=lambda entry: TIERS.index(entry[0]))
