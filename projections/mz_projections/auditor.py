"""Pure: audits a run from its events alone: what was asked, what changed, who and what decided, what it cost, and what
is missing."""

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
    """Of all events of the run, in the order of the log. `pinned`: what the run was started with, where that could be
    read; `only`: one feature."""
    view, own = overview(run, events), [each for each in events if each.stream == run_stream(run)]
    calls, decided = judged(costs(events), courses(events)), decisions(events)
    streams: dict[StreamId, list[Recorded[Event]]] = {}
    for recorded in events:
        streams.setdefault(recorded.stream, []).append(recorded)
    features = tuple(
        _feature(each, streams.get(feature_stream(run, each.feature), []), own, calls, decided)
        for each in view.features
        if only in (None, each.feature)
    )
    begun = next((each.place for each in own if isinstance(each.event, RunStarted)), own[0].place)
    chosen = [each for each in calls if only in (None, each.call.feature)]
    return RunAudit(
        run=run, status=view.status, pipeline=view.pipeline, base=view.base, base_commit=view.base_commit,
        core=view.core, begun=begun, settled=own[-1].place, features=features,
        decisions=tuple(each for each in decided if each.feature is None), spent=spending(chosen, "feature"),
        gaps=(*_pipeline_gaps(pinned, begun), *_refused(own)),
    )  # fmt: skip


def _feature(
    view: FeatureView, stream: Stream, own: Stream, calls: Sequence[Judged], decided: Sequence[Decision]
) -> FeatureAudit:
    mine = tuple(each for each in calls if each.call.feature == view.feature)
    asked = _asked(view, own)
    said = [each.place for each in own if getattr(each.event, "feature", None) == view.feature]
    settled = stream[-1].place if stream else said[-1] if said else ""
    return FeatureAudit(
        feature=view.feature, asked=asked, status=view.status, code=view.code, settled=settled, branch=view.branch,
        target=view.target, pull_request=view.pull_request, touched=view.touched,
        commits=evidence.commits(stream), before=evidence.tests_before(stream), after=evidence.tests_after(stream),
        replies=evidence.replies(stream), gates=evidence.gates(stream), artifacts=evidence.artifacts(stream, mine),
        decisions=tuple(each for each in decided if each.feature == view.feature),
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
    """What the pipeline asks for and the run could not do."""
    if pinned is None:
        what = "what the run was started with could not be read: nobody can say which checks were left out"
        yield Gap(kind="unchecked", feature="", what=what, places=(begun,))
        return
    for name, phases in pinned.left_out().items():
        what = f"the command {name} was left out in {', '.join(phases)}: mz.yaml did not name it"
        yield Gap(kind="left-out", feature="", what=what, places=(begun,))
    for phase in pinned.unchecked():
        what = f"nothing checks what the agent does in {phase}: no rules, no gate, no review"
        yield Gap(kind="unchecked", feature="", what=what, places=(begun,))


def _refused(own: Stream) -> Iterator[Gap]:
    """Messages of people that came to nothing."""
    for recorded in own:
        if isinstance(event := recorded.event, InboxTaken) and not event.accepted:
            what = f"a message of a person was refused: {event.why}"
            places = (recorded.place, f"inbox/{recorded.stream.removeprefix('run/')}@{event.version}")
            yield Gap(kind="refused", feature="", what=what, places=places)
