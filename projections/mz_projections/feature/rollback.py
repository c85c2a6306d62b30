"""The rule of what a rollback supersedes, for all projections."""

from __future__ import annotations

from collections.abc import Collection

from mz_events.catalog.base import Event
from mz_events.catalog.feature import FeatureRetried, PhaseStarted, RolledBack


def superseded_phases(started_phases: tuple[str, ...], target: str, units: Collection[str] = ()) -> tuple[str, ...]:
    """Return the phases, of these in the order of their start, that going back to `target` supersedes.

    Superseded are phases started at or after the target; if only units of it go back, the target phase itself stays.
    """
    if target not in started_phases:
        return ()
    return started_phases[started_phases.index(target) + bool(units) :]


def track_phases(current_phases: tuple[str, ...], event: Event) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the current phases after the event, in the order of their start, and the phases that it supersedes."""
    match event:
        case PhaseStarted(phase=phase):
            return (current_phases if phase in current_phases else (*current_phases, phase)), ()
        case RolledBack(to=target, units=units):
            superseded = superseded_phases(current_phases, target, units)
        case FeatureRetried(to=target):
            superseded = superseded_phases(current_phases, target)
        case _:
            return current_phases, ()
    return tuple(phase for phase in current_phases if phase not in superseded), superseded
