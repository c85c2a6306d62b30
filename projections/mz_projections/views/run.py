"""Folds all streams of one run, in the order of the log, into its view."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallReserved, CallSettled
from mz_events.catalog.run import (
    AnswerAccepted,
    BudgetChanged,
    ChecksChanged,
    ClaimRejected,
    FeatureAdmitted,
    FeatureReleased,
    FeatureStopped,
    ItemAdded,
    ItemHeld,
    ItemSkipped,
    RetryAccepted,
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
from mz_events.envelope import Recorded
from mz_events.names import Digest, run_stream

from mz_projections.views.feature import evolve_feature
from mz_projections.views.model import FeatureStatus, FeatureView, RunView


class RunProjection:
    """Incremental fold, for a live view. Not thread-safe."""

    def __init__(self, run: str) -> None:
        self._run = RunView(run=run)
        self._stream = run_stream(run)
        self._features: dict[str, FeatureView] = {}
        self._charged_nanousd, self._reservations = 0, dict[str, int]()
        self._events = 0
        self._last_recorded_us: int | None = None

    @property
    def run(self) -> RunView:
        committed = self._charged_nanousd + sum(self._reservations.values())
        features = tuple(self._features.values())
        if self._run.status == "paused":
            features = tuple(map(_show_paused, features))
        return replace(
            self._run, features=features, committed_nanousd=committed, events=self._events,
            last_recorded_us=self._last_recorded_us,
        )  # fmt: skip

    @property
    def pins(self) -> Digest | None:
        """Blob of the run's pins; cheaper than `run.pins`."""
        return self._run.pins

    def apply(self, recorded: Recorded[Event]) -> None:
        """Apply the next event of the run's stream or of a feature's; events of other runs are ignored."""
        if recorded.stream == self._stream:
            self._run = _evolve_run(self._run, recorded)
            self._update_budget(recorded.event)
            self._apply_to_feature(recorded)
        elif recorded.stream.startswith(f"{self._stream}/"):
            feature = recorded.stream.removeprefix(f"{self._stream}/")
            self._features[feature] = evolve_feature(self._find(feature), recorded)
        else:
            return
        self._events, self._last_recorded_us = self._events + 1, recorded.recorded_at_us

    def _update_budget(self, event: Event) -> None:
        """Update the committed money as the run's budgets do: see `mz_projections.run.fold`."""
        match event:
            case CallReserved(key=key, nanousd=nanousd):
                self._reservations[key] = nanousd or 0
            case CallSettled(key=key, nanousd=nanousd):
                self._reservations.pop(key, None)
                self._charged_nanousd += nanousd

    def _apply_to_feature(self, recorded: Recorded[Event]) -> None:
        feature = getattr(recorded.event, "feature", None)
        if isinstance(feature, str):
            self._features[feature] = _evolve_item(self._find(feature), recorded)

    def _find(self, feature: str) -> FeatureView:
        return self._features.get(feature) or FeatureView(feature=feature)


def _show_paused(view: FeatureView) -> FeatureView:
    """Show features stopped by a pause as paused."""
    return replace(view, status="paused") if view.status == "interrupted" else view


def run_view(run: str, events: Iterable[Recorded[Event]]) -> RunView:
    """Return the view of the run after these events, given in the order of the log."""
    fold = RunProjection(run)
    for recorded in events:
        fold.apply(recorded)
    return fold.run


def _evolve_run(view: RunView, recorded: Recorded[Event]) -> RunView:
    match recorded.event:
        case RunStarted() as event:
            return replace(
                view, status="running", pipeline=event.pipeline, base=event.base, base_commit=event.base_commit,
                pins=event.pins, mz_version=event.mz_version, started_us=recorded.recorded_at_us,
                resumed_us=recorded.recorded_at_us,
            )  # fmt: skip
        case RunForked() as event:
            return replace(view, fork=event)
        case RunResumed():
            return replace(view, status="running", code="", resumed_us=recorded.recorded_at_us)
        case BudgetChanged() as budget:
            return replace(view, budget=budget)
        case RunPaused():
            return replace(view, status="paused")
        case RunHalted(code=code):
            return replace(view, status="halted", code=code)
        case RunStopRequested():
            return replace(view, status="stopped")
        case RunIdle() if view.status == "running":
            return replace(view, status="idle")
        case RunFinished():
            return replace(view, status="finished")
        case ItemAdded() if view.status == "finished":
            return replace(view, status="running")
    return view


def _evolve_item(view: FeatureView, recorded: Recorded[Event]) -> FeatureView:
    """Apply an event of the run's own stream to a feature."""
    match recorded.event:
        case ItemAdded() as event:
            return replace(
                view, title=event.title, source=event.source, depends_on=event.depends_on,
                quarantined=event.quarantined,
            )  # fmt: skip
        case ItemSkipped(delivered_by=delivered_by):
            return replace(view, status="skipped", blocked_by=delivered_by)
        case ItemHeld(blocked_by=blocked_by):
            return replace(view, status="held", blocked_by=blocked_by)
        case ClaimRejected(holder=holder):
            return replace(view, blocked_by=holder)
        case RetryAccepted():
            return replace(view, status="working", ended_us=None)
        case FeatureAdmitted() | FeatureReleased() | AnswerAccepted() | TimerFired() | ChecksChanged():
            return replace(view, status=_active_status(view.status), ended_us=None)
        case FeatureStopped() as event:
            return _stop_feature(view, event, recorded.recorded_at_us)
    return view


def _active_status(status: FeatureStatus) -> FeatureStatus:
    """Return the status of a feature that may continue; an ended one stays ended."""
    return "working" if status in ("queued", "working", "waiting", "held", "interrupted") else status


def _stop_feature(view: FeatureView, event: FeatureStopped, now_us: int) -> FeatureView:
    return replace(
        view, status=event.status.value, hold=event.hold, until_us=event.until_us, code=event.code or view.code,
        ended_us=now_us, changed_paths=event.changed_paths or view.changed_paths,
    )  # fmt: skip
