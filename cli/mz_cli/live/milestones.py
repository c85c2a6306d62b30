"""Text of important events while a run works: one line per change of state, empty for details."""

from __future__ import annotations

from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentFailed, AgentLost, AgentRequested, AgentSwitched, CallRef
from mz_events.catalog.delivery import BaseMerged, ChecksPolled, ChecksRerun, DeliveryFailed, PullRequestOpened
from mz_events.catalog.feature import (
    FeatureCancelled,
    FeatureDelivered,
    FeatureFailed,
    FeatureHeld,
    FeatureRetried,
    FeatureStarted,
    HoldReleased,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    PhaseStarted,
    RolledBack,
)
from mz_events.catalog.run import (
    FeatureMerged,
    ItemHeld,
    ItemSkipped,
    RunFinished,
    RunForked,
    RunHalted,
    RunIdle,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopRequested,
)
from mz_events.catalog.validation import ArtifactValidated, GateChecked, RefMoved, Violation
from mz_events.envelope import Recorded

from mz_cli.terminal.text import format_time


def milestone_text(recorded: Recorded[Event]) -> str:
    """Return the event as text; empty for a detail."""
    _, run, *feature = recorded.stream.split("/")
    if not feature:
        return _run_text(run, recorded.event)
    if recorded.is_forked_copy:
        return ""
    text = _feature_text(recorded.event) or _call_text(recorded.event)
    return f"{feature[0]}: {text}" if text else ""


def _run_text(run: str, event: Event) -> str:
    match event:
        case RunStarted():
            return f"run {run} started: {event.pipeline} on {event.base}"
        case RunForked():
            return f"run {run} forked from run/{event.source}/{event.feature}@{event.version}"
        case RunResumed():
            return f"run {run} resumed"
        case RunHalted():
            return f"run {run} halted: {event.code} in {event.feature}"
        case RunPaused():
            return f"run {run} paused"
        case RunStopRequested():
            return f"run {run} stopping"
        case RunIdle():
            return f"run {run} idle"
        case RunFinished():
            return f"run {run} finished"
        case ItemSkipped():
            return f"{event.feature}: skipped, already delivered ({event.delivered_by})"
        case FeatureMerged():
            return f"{event.feature}: pull request merged"
        case ItemHeld():
            return f"{event.feature}: held, {event.blocked_by} was not delivered"
    return ""


def _feature_text(event: Event) -> str:
    match event:
        case FeatureStarted():
            return f"started on {event.branch}"
        case PhaseStarted():
            again = f", iteration {event.iteration}" if event.iteration > 1 else ""
            return f"{event.phase} started{again}"
        case PhaseCompleted():
            return f"{event.phase} completed"
        case RolledBack():
            return f"rolled back from {event.source} to {event.to}"
        case HumanRequested():
            location = f" in {event.phase}" if event.phase else ""
            return (
                f"waiting for a person{location}: {event.question_kind.value}{f' ({event.code})' if event.code else ''}"
            )
        case HumanAnswered():
            return f"answered: {event.verdict.value}"
        case FeatureHeld():
            until = f" until {format_time(event.until_us)}" if event.until_us is not None else ""
            location = f" in {event.template}{f':{event.line}' if event.line else ''}" if event.template else ""
            return f"held: {event.code or event.hold.value}{location}{until}"
        case HoldReleased():
            return "hold released"
        case FeatureRetried():
            return f"retried{f' from {event.to}' if event.to else ''}"
        case FeatureDelivered():
            return event.ending
        case FeatureFailed():
            return f"failed: {event.code}"
        case FeatureCancelled():
            return "cancelled"
    return _delivery_text(event)


def _delivery_text(event: Event) -> str:
    match event:
        case PullRequestOpened():
            return f"pull request {event.url}" if event.url else "pull request text written"
        case BaseMerged(changed=True):
            return "merged the moved base" + (" with conflicts" if event.conflicts else "")
        case ChecksPolled() if event.commit_known:
            return f"checks: {event.passed} passed, {event.failed} failed, {event.pending} pending"
        case ChecksRerun():
            return "failed checks restarted"
        case DeliveryFailed():
            return f"delivery failed: {event.code}"
    return ""


def _call_text(event: Event) -> str:
    match event:
        case AgentRequested(ref=ref):
            return f"{_unit_name(ref)} attempt {ref.attempt}: {event.agent} ({event.model})"
        case AgentSwitched(ref=ref):
            return f"{_unit_name(ref)}: {event.source} failed ({event.code}), switching to {event.to}"
        case AgentFailed(ref=ref):
            return f"{_unit_name(ref)} attempt {ref.attempt} failed: {event.problem.code}"
        case AgentLost(ref=ref):
            return f"{_unit_name(ref)} attempt {ref.attempt} lost"
        case ArtifactValidated(ref=ref, violations=violations) if violations:
            return f"{_unit_name(ref)} attempt {ref.attempt} rejected: {_rules(violations)}"
        case GateChecked(passed=False):
            return f"{event.phase} rejected by {event.gate}"
        case RefMoved():
            return f"{event.name} changed, not by mz"
    return ""


def _unit_name(ref: CallRef) -> str:
    unit = f" {ref.unit}" if ref.unit else ""
    role = "" if ref.role == "builder" else f" ({ref.role})"
    return f"{ref.phase}{unit}{role}"


def _rules(violations: tuple[Violation, ...]) -> str:
    """Return each broken rule once, in the order of the report."""
    return ", ".join(dict.fromkeys(violation.rule for violation in violations))
