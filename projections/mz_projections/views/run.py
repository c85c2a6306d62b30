"""Folds all streams of one run, in the order of the log, into its view."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallOverBudget, CallReserved, CallSettled
from mz_events.catalog.run import (
    AnswerAccepted,
    BaseTested,
    BudgetChanged,
    ChecksChanged,
    ClaimRejected,
    CycleEnded,
    CyclesAllowed,
    CycleStarted,
    FeatureAdmitted,
    FeatureMerged,
    FeatureReleased,
    FeatureStopped,
    ItemAdded,
    ItemHeld,
    ItemRequeued,
    ItemSkipped,
    RetryAccepted,
    RunClosing,
    RunFinished,
    RunForked,
    RunHalted,
    RunIdle,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopRequested,
    TimerFired,
)
from mz_events.names import run_stream
from mz_events.store import Recorded

from mz_projections.read_models.model import Key, ReadModel
from mz_projections.views.feature import evolve_feature, take_up
from mz_projections.views.model import AWAITS_MERGE, AWAITS_WORK, DONE_STATUSES, FeatureView, RunView


class RunProjection:
    """Incremental fold, for a live view. Not thread-safe."""

    def __init__(self, run: str) -> None:
        self._view = RunView(run=run)

    @property
    def run(self) -> RunView:
        """The view; features stopped by a pause are shown as paused."""
        if self._view.status != "paused":
            return self._view
        features = (
            replace(row, status="paused") if row.status == "interrupted" else row for row in self._view.features
        )
        return replace(self._view, features=tuple(features))

    def apply(self, recorded: Recorded[Event]) -> None:
        """Apply the next event of the run's stream or of a feature's; events of other runs are ignored."""
        stream = run_stream(self._view.run)
        if recorded.stream == stream:
            view = _evolve_run_stream(self._view, recorded)
        elif recorded.stream.startswith(f"{stream}/"):
            feature = recorded.stream.removeprefix(f"{stream}/")
            view = _change_feature(self._view, feature, lambda row: evolve_feature(row, recorded))
        else:
            return
        self._view = replace(view, events=view.events + 1, last_recorded_us=recorded.recorded_at_us)


def evolve(find: Callable[[Key], RunView | None], recorded: Recorded[Event]) -> tuple[RunView, ...]:
    """Return the view of the run whose own stream the event belongs to; features only have what the run says of
    them."""
    run = recorded.stream.partition("/")[2]
    if "/" in run:
        return ()
    view = RunView(run=run) if isinstance(recorded.event, RunStarted) else find((run,))
    return () if view is None else (_evolve_run_stream(view, recorded),)


def _evolve_run_stream(view: RunView, recorded: Recorded[Event]) -> RunView:
    view, feature = _evolve_run(view, recorded), getattr(recorded.event, "feature", None)
    return _change_feature(view, feature, lambda row: _evolve_item(row, recorded)) if isinstance(feature, str) else view


def _change_feature(view: RunView, feature: str, change: Callable[[FeatureView], FeatureView]) -> RunView:
    """Change a feature, which may be new."""
    current = view.find_feature(feature)
    if current is None:
        return replace(view, features=(*view.features, change(FeatureView(feature=feature))))
    return replace(view, features=tuple([change(row) if row is current else row for row in view.features]))


def _resume(view: RunView, now_us: int) -> RunView:
    """Return the view with interrupted features at work again, and a clock that left out the time since the last
    event."""
    began_us = view.clock_us if view.clock_us is not None else now_us
    worked_us = (view.last_recorded_us or began_us) - began_us
    features = tuple(map(_resume_feature, view.features))
    return replace(view, status="running", code="", clock_us=now_us - worked_us, features=features)


def _resume_feature(view: FeatureView) -> FeatureView:
    if view.status == "interrupted":
        return replace(view, status="working", ended_us=None)
    return replace(view, status="queued", blocked_by="", code="") if view.awaits_dependency else view


def _hold_unstarted(run: RunView, view: FeatureView) -> FeatureView:
    """Return a queued feature of an idle run as held by a dependency: by the end of its work, or by its merge."""
    dependencies = [row for row in map(run.find_feature, view.depends_on) if row and row.status != "merged"]
    if view.status != "queued" or not dependencies:
        return view
    first = next((row for row in dependencies if row.status not in DONE_STATUSES), dependencies[0])
    code = AWAITS_MERGE if first.status in DONE_STATUSES else AWAITS_WORK
    return replace(view, status="held", blocked_by=first.feature, code=code)


def run_view(run: str, events: Iterable[Recorded[Event]]) -> RunView:
    """Return the view of the run after these events, given in the order of the log."""
    fold = RunProjection(run)
    for recorded in events:
        fold.apply(recorded)
    return fold.run


def _with_level(view: RunView, level: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (*view.isolation, *level.split()))))


def _evolve_run(view: RunView, recorded: Recorded[Event]) -> RunView:
    match recorded.event:
        case CallReserved(key=key, nanousd=nanousd):
            return replace(view, reservations={**view.reservations, key: nanousd or 0})
        case CallSettled(key=key, nanousd=nanousd):
            reservations = {other: amount for other, amount in view.reservations.items() if other != key}
            return replace(view, reservations=reservations, charged_nanousd=view.charged_nanousd + nanousd)
        case RunStarted() as event:
            return replace(
                view, status="running", pipeline=event.pipeline, base=event.base, base_commit=event.base_commit,
                pins=event.pins, mz_version=event.mz_version, isolation=_with_level(view, event.isolation),
                started_us=recorded.recorded_at_us, integration=event.integration,
                clock_us=recorded.recorded_at_us,
            )  # fmt: skip
        case RunForked() as event:
            return replace(view, fork=event)
        case CycleStarted(cycle=cycle):
            return replace(view, cycle=cycle, over="")
        case CycleEnded(over=over):
            return replace(view, over=over)
        case RunClosing(how=how):
            return replace(view, closing=how)
        case CyclesAllowed():
            return replace(view, is_capped=True, over="")
        case RunResumed(isolation=level):
            return replace(_resume(view, recorded.recorded_at_us), isolation=_with_level(view, level))
        case BudgetChanged() as budget:
            return replace(view, budget=budget)
        case RunPaused():
            return replace(view, status="paused")
        case BaseTested(unusable=unusable) if unusable:
            return replace(view, status="halted", code="base-unusable")
        case RunHalted(code=code):
            return replace(view, status="halted", code=code)
        case RunStopRequested():
            return replace(view, status="stopped")
        case RunIdle() if view.status == "running":
            return replace(view, status="idle", features=tuple(_hold_unstarted(view, row) for row in view.features))
        case RunFinished():
            return replace(view, status="finished")
        case ItemAdded() | RetryAccepted() if view.status == "finished":
            return replace(view, status="running")
    return view


def _evolve_item(view: FeatureView, recorded: Recorded[Event]) -> FeatureView:
    """Apply an event of the run's own stream to a feature."""
    match recorded.event:
        case ItemAdded() as event:
            return replace(
                view, title=event.title, source=event.source, depends_on=event.depends_on, kind=event.kind,
                quarantined=event.quarantined,
            )  # fmt: skip
        case ItemSkipped(delivered_by=delivered_by):
            return replace(view, status="skipped", blocked_by=delivered_by)
        case ItemHeld(blocked_by=blocked_by):
            return replace(view, status="held", blocked_by=blocked_by, code="")
        case CallOverBudget():
            return replace(view, over_budget=recorded.event)
        case ClaimRejected(holder=holder):
            return replace(view, blocked_by=holder)
        case RetryAccepted() | ItemRequeued():
            return take_up(view, recorded.recorded_at_us)
        case FeatureAdmitted() | FeatureReleased() | AnswerAccepted() | TimerFired() | ChecksChanged():
            may_continue = view.status in ("queued", "working", "waiting", "held", "interrupted")
            return replace(view, status="working" if may_continue else view.status, ended_us=None)
        case FeatureMerged() if view.status == "delivered":
            return replace(view, status="merged")
        case FeatureStopped() as event:
            return replace(
                view, status=event.status.value, hold=event.hold, until_us=event.until_us,
                code=event.code or view.code, ended_us=recorded.recorded_at_us,
                changed_paths=event.changed_paths or view.changed_paths,
            )  # fmt: skip
    return view


RUNS = ReadModel(
    name="runs",
    row=RunView,
    key=("run",),
    types=(
        *(RunStarted, RunResumed, RunForked, RunPaused, RunHalted, RunStopRequested, RunIdle, RunFinished, RunClosing),
        *(BaseTested, CycleStarted, CycleEnded, CyclesAllowed, ItemAdded, ItemRequeued, ItemSkipped, ItemHeld),
        *(FeatureAdmitted, FeatureMerged, FeatureReleased, FeatureStopped, AnswerAccepted, RetryAccepted),
        *(TimerFired, ChecksChanged),
    ),
    evolve=evolve,
)
"""All runs, each as far as its own stream tells."""
