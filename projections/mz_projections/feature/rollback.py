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
    if type(event) is PhaseStarted:
        return (current_phases if event.phase in current_phases else (*current_phases, event.phase)), ()
    if type(event) is RolledBack:
        superseded = superseded_phases(current_phases, event.to, event.units)
    elif type(event) is FeatureRetried:
        superseded = superseded_phases(current_phases, event.to)
    else:
        return current_phases, ()
    return tuple(phase for phase in current_phases if phase not in superseded), superseded
