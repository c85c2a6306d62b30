"""Text of important events while a run works: one line per change of state, empty for details."""

from __future__ import annotations

from mz_events.catalog import call, delivery, feature, run, validation
from mz_events.catalog.base import Event
from mz_events.codec import type_of
from mz_events.store import Recorded
from mz_projections.feature.unit import RAISED
from mz_projections.views.timeline import describe

RUN_MILESTONES = (
    run.RunStarted, run.RunForked, run.RunResumed, run.RunHalted, run.RunPaused, run.RunStopRequested, run.RunIdle,
    run.RunFinished, run.ItemsAdded, run.ItemRequeued, run.CycleStarted, run.CycleEnded, run.RunClosing,
    run.BranchAdopted,
    run.ItemSkipped, run.ItemHeld, run.FeatureMerged, run.BaseTested, run.CommandsChanged,
    validation.CommandRan,
)  # fmt: skip
FEATURE_MILESTONES = (
    feature.FeatureStarted, feature.PhaseStarted, feature.PhaseSkipped, feature.PhaseCompleted, feature.RolledBack,
    feature.HumanRequested,
    feature.HumanAnswered, feature.FeatureHeld, feature.HoldReleased, feature.FeatureRetried, feature.FeatureDelivered,
    feature.FeatureFailed, feature.FeatureCancelled, delivery.PullRequestOpened, delivery.BaseMerged,
    delivery.ChecksPolled, delivery.ChecksRerun, delivery.DeliveryFailed, delivery.BranchLanded, delivery.TargetMoved,
    delivery.Tagged, delivery.BranchesClosed, call.AgentRequested, call.AgentSwitched,
    call.AgentFailed, call.AgentLost, validation.ArtifactValidated, validation.GateChecked,
    validation.ArtifactsKept, validation.ConditionsChecked, feature.Blocked,
)  # fmt: skip


def live_text(recorded: Recorded[Event]) -> str:
    """Return the event as text while its run works: of a question also how to answer it."""
    text = milestone_text(recorded)
    if not text or not isinstance(recorded.event, feature.HumanRequested):
        return text
    return f"{text}; answer: mz review show {recorded.stream.split('/')[2]}"


def milestone_text(recorded: Recorded[Event]) -> str:
    """Return the event as text; empty for a detail, and for a check that found nothing."""
    match recorded.event:
        case validation.ArtifactValidated(violations=()) | validation.GateChecked(passed=True):
            return ""
        case feature.Blocked(check=check) if not check.startswith(RAISED):
            return ""
        case delivery.BaseMerged(changed=False) | delivery.ChecksPolled(commit_known=False):
            return ""
    _, run_id, *feature_id = recorded.stream.split("/")
    important = isinstance(recorded.event, FEATURE_MILESTONES if feature_id else RUN_MILESTONES)
    if not important or (feature_id and recorded.is_forked_copy):
        return ""
    subject = feature_id[0] if feature_id else f"run {run_id}"
    name = type_of(recorded.event).replace(".", " ").replace("-", " ")
    return f"{subject}: {name}: {describe(recorded.event)}"
