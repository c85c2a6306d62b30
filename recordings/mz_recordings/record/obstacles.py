"""Features of a past run that cannot be recorded, and why."""

from __future__ import annotations

import msgspec
from mz_events.catalog.delivery import BaseMerged, ChecksPolled, DeliveryFailed, TargetMoved
from mz_events.catalog.feature import FeatureCancelled, FeatureRetried, FeatureStarted
from mz_events.catalog.run import BranchAdopted, CommandsChanged, PersonCommits
from mz_events.names import feature_stream, run_stream
from mz_events.store import Store
from mz_projections.feature.fold import evolve
from mz_projections.feature.state import Held, NotStarted, State, Waiting
from mz_projections.run.fold import RunState


class ExcludedFeature(msgspec.Struct, frozen=True):
    """A feature that keeps its old recordings, or has none."""

    feature: str
    reason: str


def unrecordable_features(log: Store, run: str, state: RunState) -> tuple[ExcludedFeature, ...]:
    """Return the features whose calls are not recorded, each with the reason, including dependents of such features."""
    reasons: dict[str, str] = {}
    tracks = sorted(state.tracks.items(), key=lambda entry: entry[1].item.order)
    for feature, track in tracks:
        if track.active:
            reasons[feature] = "it is still running: finish the run first"
        elif not track.admitted:
            reasons[feature] = "it never started"
        elif reason := _obstacle_to_replay(log, run, feature, state.started.integration if state.started else ""):
            reasons[feature] = reason
    for _ in tracks:
        for feature, track in tracks:
            if dependency := next((other for other in track.item.depends_on if other in reasons), None):
                reasons.setdefault(feature, f"it depends on {dependency}")
    return tuple(ExcludedFeature(feature, reason) for feature, reason in reasons.items())


def _obstacle_to_replay(log: Store, run: str, feature: str, integration: str) -> str:
    """Return why the feature's events cannot be reproduced in a scratch repository; empty if they can."""
    state: State = NotStarted()
    is_own, run_events = False, tuple(log.read(run_stream(run)))
    corrected_at = max((old.position for old in run_events if isinstance(old.event, CommandsChanged)), default=0)
    adopted = [old.position for old in run_events if isinstance(old.event, BranchAdopted)]
    for recorded in log.read(feature_stream(run, feature)):
        if isinstance(recorded.event, FeatureStarted):
            is_own = bool(integration) and recorded.event.target == integration  # Only the run itself moves it.
        match recorded.event:
            case FeatureCancelled() if not isinstance(state, Waiting | Held):
                return "it was cancelled while it was running"
            case FeatureRetried(commits=PersonCommits()):
                return "people's commits were taken into its branch"
            case BaseMerged(changed=True) | TargetMoved() if not is_own:
                return "its target branch moved while it was running"
            case ChecksPolled(failed=failed_checks) if failed_checks:
                return "checks of its pull request failed"
            case FeatureStarted() if adopted and recorded.position > adopted[0]:
                return "it started from commits of people on the integration branch"
            case FeatureStarted() if recorded.position < corrected_at:
                return "the commands of the settings were corrected after it had started"
            case DeliveryFailed(key=key, code=code):
                step = key.rpartition("/")[2]
                return f"its delivery failed ({step}: {code}), and a replay has neither remote nor forge to fail alike"
        state = evolve(state, recorded)
    return ""
