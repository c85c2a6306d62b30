"""Conditions of a pipeline: whether a phase or a review takes place, a person is asked, or a better tier is used."""

from __future__ import annotations

from collections.abc import Collection

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
    artifact = unit_run.parsed_artifacts.get(condition.artifact) or state.progress.artifacts.get(condition.artifact)
    return artifact is not None and artifact.fields.get(condition.field or "") in condition.values


def escalation(
    use: AgentUse | AgentReview, state: InPhase, unit_run: UnitRun, phase: Phase, broken: Collection[str] = ()
) -> tuple[Tier, str]:
    """Return the tier of the next call, and the condition that raised it; empty: none did."""
    raised = [(entry.to, entry.name) for entry in use.escalate if holds(entry, state, unit_run, phase, broken)]
    return max(((use.tier, ""), *raised), key=lambda entry: TIERS.index(entry[0]))
