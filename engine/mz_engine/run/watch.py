"""Polls of the forge: CI checks and merges that a run waits for.

Drivers poll regularly; a poll that finds nothing new records nothing.
"""

from __future__ import annotations

from mz_events.catalog.run import ChecksChanged, FeatureMerged
from mz_events.names import Commit, FeatureId, feature_stream
from mz_events.store import Store
from mz_projections.feature.fold import fold
from mz_projections.feature.state import Held, InPhase, State, UnitRun
from mz_projections.run.fold import RunState

from mz_engine.decide.run import ForgePoll
from mz_engine.model.pins import Pins
from mz_engine.ports import Forge, Ports, RemoteError, RepositoryUnusable

ForgeChange = ChecksChanged | FeatureMerged


def poll_forge(poll: ForgePoll, state: RunState, pins: Pins, log: Store, ports: Ports) -> ForgeChange | None:
    """Return the change that the poll found, or None. An unreachable forge, remote or repository is no change."""
    assert state.started is not None
    try:
        if poll.subject == "checks":
            feature = fold(log.read(feature_stream(state.started.run, poll.feature)))
            return ChecksChanged(feature=poll.feature) if _all_checks_ended(feature, ports.forge) else None
        head = _merged_head(poll.feature, state, pins, ports)
    except (RemoteError, RepositoryUnusable):
        return None
    return FeatureMerged(feature=poll.feature, head=head) if head else None


def _all_checks_ended(state: State, forge: Forge) -> bool:
    """Return True if all CI checks that the feature is held for have ended, so that it should poll them itself."""
    match state:
        case Held(suspended=InPhase(progress=progress, unit_run=UnitRun(pull_request_number=int(number)))):
            checks = forge.checks(number, progress.head)
            return bool(checks) and all(check.state != "pending" for check in checks or ())
    return False


def _merged_head(feature: FeatureId, state: RunState, pins: Pins, ports: Ports) -> Commit | None:
    """Return the base branch's head once it contains the feature, according to the forge or, without one, to git."""
    assert state.started is not None
    settings, base = pins.config.pull_requests, state.started.base
    if settings.strategy != "none":
        merged = ports.forge.merged(f"{pins.config.branch_prefix}/{feature}")
        return ports.workspace.target_head(settings.remote, base) if merged else None
    head, delivered = ports.workspace.target_head(None, base), _delivered_head(feature, state)
    return head if head and delivered and ports.workspace.contains(head, delivered) else None


def _delivered_head(feature: FeatureId, state: RunState) -> Commit | None:
    if feature in state.skipped:
        return state.skipped[feature].head
    track = state.tracks.get(feature)
    return track.last_stop.head if track and track.last_stop else None
