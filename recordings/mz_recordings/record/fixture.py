"""Parts of a cassette's fixture that are derived from the log: human decisions, hints about failures, features that a
replay can reproduce, and delivered dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.delivery import BaseMerged, ChecksPolled, DeliveryFailed
from mz_events.catalog.feature import FeatureCancelled, FeatureRetried, HumanAnswered
from mz_events.catalog.run import ItemAdded, ItemSkipped
from mz_events.catalog.validation import RefMoved
from mz_events.envelope import Recorded
from mz_events.names import Commit, feature_stream
from mz_events.store import Blobs, Store
from mz_projections.failure_hints import failure_histories, prompt_hint
from mz_projections.feature.fold import evolve, fold
from mz_projections.feature.state import Held, InPhase, NotStarted, State, Waiting
from mz_projections.run.fold import RunState

from mz_recordings.cassette.model import VERDICTS, Hint, RecordedDecision
from mz_recordings.cassette.trace import is_in_trace


class ExcludedFeature(msgspec.Struct, frozen=True):
    """A feature that keeps its old recordings, or has none."""

    feature: str
    reason: str = msgspec.field(name="why")


def unrecordable_features(log: Store, run: str, state: RunState) -> tuple[ExcludedFeature, ...]:
    """Return the features whose calls are not recorded, each with the reason, including dependents of such features."""
    reasons: dict[str, str] = {}
    tracks = sorted(state.tracks.items(), key=lambda entry: entry[1].item.order)
    for feature, track in tracks:
        if track.active:
            reasons[feature] = "it is still running: finish the run first"
        elif not track.admitted:
            reasons[feature] = "it never started"
        elif reason := _obstacle_to_replay(log, run, feature):
            reasons[feature] = reason
    for _ in tracks:
        for feature, track in tracks:
            if dependency := next((other for other in track.item.depends_on if other in reasons), None):
                reasons.setdefault(feature, f"it depends on {dependency}")
    return tuple(ExcludedFeature(feature, reason) for feature, reason in reasons.items())


def _obstacle_to_replay(log: Store, run: str, feature: str) -> str:
    """Return why the feature's events cannot be reproduced in a scratch repository; empty if they can."""
    state: State = NotStarted()
    for recorded in log.read(feature_stream(run, feature)):
        match recorded.event:
            case FeatureCancelled() if not isinstance(state, Waiting | Held):
                return "it was cancelled while it was running"
            case RefMoved():
                return "another process changed the repository during a call"
            case BaseMerged(changed=True):
                return "its target branch moved while it was running"
            case ChecksPolled(failed=failed_checks) if failed_checks:
                return "checks of its pull request failed"
            case DeliveryFailed():
                return "the remote or the forge rejected it"
        state = evolve(state, recorded)
    return ""


def human_decisions(log: Store, blobs: Blobs, run: str, features: Iterable[str]) -> Iterator[RecordedDecision]:
    """Yield the decisions of people, in the form that a replay needs."""
    for feature in features:
        events_before = 0
        for recorded in log.read(feature_stream(run, feature)):
            event = recorded.event
            if isinstance(event, HumanAnswered | FeatureRetried | FeatureCancelled):
                note = getattr(event, "note", None)
                yield RecordedDecision(
                    feature=feature,
                    after=events_before,
                    what=_decision(event),
                    phase=event.to if isinstance(event, FeatureRetried) else "",
                    note=blobs.get(note).decode("utf-8", "replace") if note else None,
                )
            events_before += is_in_trace(event)


def _decision(
    event: HumanAnswered | FeatureRetried | FeatureCancelled,
) -> Literal["approve", "retry", "reject", "retry-phase", "cancel"]:
    if isinstance(event, HumanAnswered):
        return next(what for what, verdict in VERDICTS.items() if verdict is event.verdict)
    return "retry-phase" if isinstance(event, FeatureRetried) else "cancel"


def hints(log: Store, run: str, features: Iterable[str]) -> Iterator[Hint]:
    """Yield the hint for every call that had to fix a known failure; nothing for a feature without any hint."""
    for feature in features:
        feature_hints = list(_hints_of(log, run, feature))
        if any(hint.text for hint in feature_hints):
            yield from feature_hints


def _hints_of(log: Store, run: str, feature: str) -> Iterator[Hint]:
    events_before: list[Recorded[Event]] = []
    for recorded in log.read(feature_stream(run, feature)):
        if isinstance(recorded.event, AgentRequested):
            state = fold(events_before)
            unit_run = state.unit_run if isinstance(state, InPhase) else None
            if unit_run is not None and unit_run.reports and unit_run.signature:
                learnings = failure_histories(
                    earlier for earlier in log.read_all() if earlier.position < recorded.position
                )
                yield Hint(
                    feature=feature,
                    signature=unit_run.signature,
                    text=prompt_hint(learnings.get(unit_run.signature)) or "",
                )
        events_before.append(recorded)


def delivered_heads(items: Iterable[ItemAdded], skipped: Mapping[str, ItemSkipped]) -> dict[str, Commit]:
    """Return the head of each feature that an earlier run delivered and an item of this run depends on."""
    features = (other for item in items for other in item.depends_on if other in skipped)
    return {feature: head for feature in features if (head := skipped[feature].head) is not None}
