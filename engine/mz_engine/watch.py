"""Adapter: looks at what a run waits for outside: checks of pull requests, and merges.

Drivers do so from time to time; a look that finds nothing new leaves no trace.
"""

from __future__ import annotations

from mz_events.catalog.run import ChecksChanged, FeatureMerged
from mz_events.names import Commit, FeatureId, feature_stream
from mz_events.store import Store
from mz_projections.feature import fold
from mz_projections.run import RunState
from mz_projections.state import Cell, Held, State, Working

from mz_engine.decide.run import Watch
from mz_engine.pins import Pins
from mz_engine.ports import Forge, Ports, RemoteRefused, RepositoryUnusable

Noticed = ChecksChanged | FeatureMerged


def look(watch: Watch, state: RunState, pins: Pins, log: Store, ports: Ports) -> Noticed | None:
    """What has come to be, or None. A forge, a remote or a repository that cannot be asked now is no news."""
    assert state.started is not None
    try:
        if watch.what == "checks":
            feature = fold(log.read(feature_stream(state.started.run, watch.feature)))
            return ChecksChanged(feature=watch.feature) if _answered(feature, ports.forge) else None
        head = _merged_head(watch.feature, state, pins, ports)
    except (RemoteRefused, RepositoryUnusable):
        return None
    return FeatureMerged(feature=watch.feature, head=head) if head else None


def _answered(state: State, forge: Forge) -> bool:
    """Whether the checks that a feature is held for have come to their ends, so that it should look for itself."""
    match state:
        case Held(then=Working(book=book, cell=Cell(pull=int(number)))):
            found = forge.checks(number, book.head)
            return bool(found) and all(check.state != "pending" for check in found or ())
    return False


def _merged_head(feature: FeatureId, state: RunState, pins: Pins, ports: Ports) -> Commit | None:
    """The base branch's head, once it holds the feature: the forge knows, or, without one, the history does."""
    assert state.started is not None
    settings, base = pins.config.pull_requests, state.started.base
    if settings.strategy != "none":
        merged = ports.forge.merged(f"{pins.config.branch_prefix}/{feature}")
        return ports.workspace.target_head(settings.remote, base) if merged else None
    head, delivered = ports.workspace.target_head(None, base), _delivered(feature, state)
    return head if head and delivered and ports.workspace.contains(head, delivered) else None


def _delivered(feature: FeatureId, state: RunState) -> Commit | None:
    if feature in state.skipped:
        return state.skipped[feature].head
    track = state.tracks.get(feature)
    return track.rested.head if track and track.rested else None
