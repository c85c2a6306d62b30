"""Audits a run from its events alone: requested items, changes, decisions, cost, and gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mz_events.catalog.base import Event
from mz_events.catalog.run import InboxRead, ItemAdded, ItemSkipped, RunStarted
from mz_events.envelope import Recorded
from mz_events.names import StreamId, feature_stream, run_stream

from mz_projections.audit import evidence
from mz_projections.audit.gaps import feature_gaps
from mz_projections.audit.model import FeatureAudit, Gap, RequestedItem, RunAudit
from mz_projections.cost.totals import PricedCall, priced_calls, spending
from mz_projections.feature.calls import paid_calls
from mz_projections.run.pins import PinnedRun
from mz_projections.views.messages import Decision, decisions
from mz_projections.views.model import FeatureView
from mz_projections.views.run import run_view

Stream = Sequence[Recorded[Event]]


def audit(run: str, events: Stream, pinned: PinnedRun | None, only: str | None = None) -> RunAudit:
    """Audit a run from all its events, in the order of the log.

    `pinned`: its pins, if readable; `only`: one feature.
    """
    view, run_events = run_view(run, events), [recorded for recorded in events if recorded.stream == run_stream(run)]
    calls, people_decisions = priced_calls(paid_calls(events)), decisions(events)
    streams: dict[StreamId, list[Recorded[Event]]] = {}
    for recorded in events:
        streams.setdefault(recorded.stream, []).append(recorded)
    features = tuple(
        _feature_audit(
            feature, streams.get(feature_stream(run, feature.feature), []), run_events, calls, people_decisions
        )
        for feature in view.features
        if only in (None, feature.feature)
    )
    started_ref = next(
        (recorded.event_ref for recorded in run_events if isinstance(recorded.event, RunStarted)),
        run_events[0].event_ref,
    )
    chosen_calls = [priced for priced in calls if only in (None, priced.call.feature)]
    return RunAudit(
        run=run, status=view.status, pipeline=view.pipeline, base=view.base, base_commit=view.base_commit,
        mz_version=view.mz_version, started_ref=started_ref, last_ref=run_events[-1].event_ref, features=features,
        decisions=tuple(d for d in people_decisions if d.feature is None), spending=spending(chosen_calls, "feature"),
        gaps=(*_pipeline_gaps(pinned, started_ref), *_rejected_messages(run_events)),
    )  # fmt: skip


def _feature_audit(
    view: FeatureView,
    stream: Stream,
    run_events: Stream,
    calls: Sequence[PricedCall],
    people_decisions: Sequence[Decision],
) -> FeatureAudit:
    feature_calls = tuple(priced for priced in calls if priced.call.feature == view.feature)
    requested = _requested_item(view, run_events)
    mentions = [
        recorded.event_ref for recorded in run_events if getattr(recorded.event, "feature", None) == view.feature
    ]
    last_ref = stream[-1].event_ref if stream else mentions[-1] if mentions else ""
    return FeatureAudit(
        feature=view.feature,
        requested=requested,
        status=view.status,
        code=view.code,
        last_ref=last_ref,
        branch=view.branch,
        target=view.target,
        pull_request=view.pull_request,
        changed_paths=view.changed_paths,
        commits=evidence.commits_made(stream),
        tests_before=evidence.tests_before(stream),
        tests_after=evidence.tests_after(stream),
        replies=evidence.reply_decisions(stream),
        gates=evidence.gate_decisions(stream),
        artifacts=evidence.artifacts_made(stream, feature_calls),
        decisions=tuple(decision for decision in people_decisions if decision.feature == view.feature),
        spending=spending(feature_calls, "phase"),
        gaps=feature_gaps(view, stream, feature_calls, last_ref),
    )


def _requested_item(view: FeatureView, run_events: Stream) -> RequestedItem | None:
    for recorded in run_events:
        match recorded.event:
            case ItemAdded(feature=feature) as event if feature == view.feature:
                return RequestedItem(
                    source=event.source, title=event.title, body=event.body, event_ref=recorded.event_ref
                )
            case ItemSkipped(feature=feature) as event if feature == view.feature:
                return RequestedItem(
                    source="", title=view.title, body=None, event_ref=recorded.event_ref, skipped_for=event.delivered_by
                )
    return None


def _pipeline_gaps(pinned: PinnedRun | None, started_ref: str) -> Iterator[Gap]:
    """Yield checks that the pipeline names and the run skipped."""
    if pinned is None:
        message = "the pins of the run cannot be read: unknown which checks were skipped"
        yield Gap(kind="unchecked", feature="", message=message, event_refs=(started_ref,))
        return
    for name, phases in pinned.unconfigured_commands().items():
        message = f"command {name} was skipped in {', '.join(phases)}: not configured in mz.yaml"
        yield Gap(kind="left-out", feature="", message=message, event_refs=(started_ref,))
    for phase in pinned.unchecked_phases():
        message = f"no check of the agent's work in {phase}: no rules, no gate, no review"
        yield Gap(kind="unchecked", feature="", message=message, event_refs=(started_ref,))


def _rejected_messages(run_events: Stream) -> Iterator[Gap]:
    """Yield rejected messages of people."""
    for recorded in run_events:
        if isinstance(event := recorded.event, InboxRead) and not event.accepted:
            message = f"a person's message was rejected: {event.rejection_code}"
            event_refs = (recorded.event_ref, f"inbox/{recorded.stream.removeprefix('run/')}@{event.version}")
            yield Gap(kind="refused", feature="", message=message, event_refs=event_refs)
