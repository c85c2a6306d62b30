"""Audits a run from its events alone: requested items, changes, decisions, cost, and gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mz_events.catalog.base import Event
from mz_events.catalog.run import InboxTaken, ItemAdded, ItemSkipped, RunStarted
from mz_events.envelope import Recorded
from mz_events.names import StreamId, feature_stream, run_stream

from mz_projections import evidence
from mz_projections.audit import AskedFor, FeatureAudit, Gap, RunAudit
from mz_projections.cost import costs
from mz_projections.fates import courses
from mz_projections.gaps import feature_gaps
from mz_projections.overview import overview
from mz_projections.pinned import PinnedRun
from mz_projections.queue import Decision, decisions
from mz_projections.spending import Judged, judged, spending
from mz_projections.views import FeatureView

Stream = Sequence[Recorded[Event]]


def audit(run: str, events: Stream, pinned: PinnedRun | None, only: str | None = None) -> RunAudit:
    """Audit a run from all its events, in the order of the log.

    `pinned`: its pins, if readable; `only`: one feature.
    """
    view, own = overview(run, events), [recorded for recorded in events if recorded.stream == run_stream(run)]
    calls, decided = judged(costs(events), courses(events)), decisions(events)
    streams: dict[StreamId, list[Recorded[Event]]] = {}
    for recorded in events:
        streams.setdefault(recorded.stream, []).append(recorded)
    features = tuple(
        _feature(feature, streams.get(feature_stream(run, feature.feature), []), own, calls, decided)
        for feature in view.features
        if only in (None, feature.feature)
    )
    begun = next((recorded.place for recorded in own if isinstance(recorded.event, RunStarted)), own[0].place)
    chosen = [priced for priced in calls if only in (None, priced.call.feature)]
    return RunAudit(
        run=run, status=view.status, pipeline=view.pipeline, base=view.base, base_commit=view.base_commit,
        core=view.core, begun=begun, settled=own[-1].place, features=features,
        decisions=tuple(d for d in decided if d.feature is None), spent=spending(chosen, "feature"),
        gaps=(*_pipeline_gaps(pinned, begun), *_refused(own)),
    )  # fmt: skip


def _feature(
    view: FeatureView, stream: Stream, own: Stream, calls: Sequence[Judged], decided: Sequence[Decision]
) -> FeatureAudit:
    mine = tuple(priced for priced in calls if priced.call.feature == view.feature)
    asked = _asked(view, own)
    said = [recorded.place for recorded in own if getattr(recorded.event, "feature", None) == view.feature]
    settled = stream[-1].place if stream else said[-1] if said else ""
    return FeatureAudit(
        feature=view.feature, asked=asked, status=view.status, code=view.code, settled=settled, branch=view.branch,
        target=view.target, pull_request=view.pull_request, touched=view.touched,
        commits=evidence.commits(stream), before=evidence.tests_before(stream), after=evidence.tests_after(stream),
        replies=evidence.replies(stream), gates=evidence.gates(stream), artifacts=evidence.artifacts(stream, mine),
        decisions=tuple(decision for decision in decided if decision.feature == view.feature),
        spent=spending(mine, "phase"), gaps=feature_gaps(view, stream, mine, settled),
    )  # fmt: skip


def _asked(view: FeatureView, own: Stream) -> AskedFor | None:
    for recorded in own:
        match recorded.event:
            case ItemAdded(feature=feature) as event if feature == view.feature:
                return AskedFor(source=event.source, title=event.title, body=event.body, place=recorded.place)
            case ItemSkipped(feature=feature) as event if feature == view.feature:
                return AskedFor(
                    source="", title=view.title, body=None, place=recorded.place, skipped=event.delivered_by
                )
    return None


def _pipeline_gaps(pinned: PinnedRun | None, begun: str) -> Iterator[Gap]:
    """Yield checks that the pipeline names and the run skipped."""
    if pinned is None:
        what = "the pins of the run cannot be read: unknown which checks were skipped"
        yield Gap(kind="unchecked", feature="", what=what, places=(begun,))
        return
    for name, phases in pinned.left_out().items():
        what = f"command {name} was skipped in {', '.join(phases)}: not configured in mz.yaml"
        yield Gap(kind="left-out", feature="", what=what, places=(begun,))
    for phase in pinned.unchecked():
        what = f"no check of the agent's work in {phase}: no rules, no gate, no review"
        yield Gap(kind="unchecked", feature="", what=what, places=(begun,))


def _refused(own: Stream) -> Iterator[Gap]:
    """Yield rejected messages of people."""
    for recorded in own:
        if isinstance(event := recorded.event, InboxTaken) and not event.accepted:
            what = f"a person's message was rejected: {event.why}"
            places = (recorded.place, f"inbox/{recorded.stream.removeprefix('run/')}@{event.version}")
            yield Gap(kind="refused", feature="", what=what, places=places)
