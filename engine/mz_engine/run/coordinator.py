"""The run's side of the loop: appends to `run/<run>`, grants money and files, admits, releases, reads the inbox.

One thread drives it, or the simulation's loop; features reach it through the driver.
"""

from __future__ import annotations

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallOverBudget, CallSettled
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.inbox import AnswerPosted, CancelPosted, PausePosted, ResumePosted, RetryPosted
from mz_events.catalog.run import (
    AnswerAccepted,
    BudgetChanged,
    CancelAccepted,
    ClaimCompared,
    ClaimRejected,
    FeatureAdmitted,
    FeatureMerged,
    FeatureOutcome,
    FeatureReleased,
    FeatureStopped,
    Hold,
    InboxRead,
    ItemHeld,
    RetryAccepted,
    RunFinished,
    RunHalted,
    RunIdle,
    RunPaused,
    RunResumed,
    RunStopRequested,
    TimerFired,
)
from mz_events.envelope import Recorded
from mz_events.names import FeatureId, feature_stream, inbox_stream, run_stream
from mz_events.store import Append, Store
from mz_projections.run.fold import (
    RETRIABLE_OUTCOMES,
    FeatureTrack,
    RunMessage,
    RunState,
    evolve_run,
    fold_run,
    is_held_for,
)

from mz_engine.decide import run as act
from mz_engine.decide.run import (
    ForgePoll,
    RunAction,
    claim_files,
    decide_run,
    due_features,
    forge_polls,
    reserve_money,
    runnable_features,
)
from mz_engine.effects.steps import ClaimPaths, ReserveCall, SettleCall
from mz_engine.model.config import Budget
from mz_engine.model.pins import Pins
from mz_engine.ports import Clock
from mz_engine.run.feature_loop import FeatureLoop, Observer, RequestResult
from mz_engine.run.watch import ForgeChange
from mz_engine.version import VERSION


class Coordinator:
    def __init__(self, run: str, pins: Pins, store: Store, clock: Clock, observe: Observer) -> None:
        self.run, self.pins, self.store, self.clock, self.observe = run, pins, store, clock, observe
        self.stream = run_stream(run)
        self.state: RunState = fold_run(store.read(self.stream))

    # requests of features -------------------------------------------------------------------------------------------
    def messages(self, feature: FeatureId, after: int) -> tuple[tuple[int, RunMessage], ...]:
        return tuple(entry for entry in self.state.tracks[feature].messages if entry[0] > after)

    def started_event(self, feature: FeatureId, version: int, message: FeatureAdmitted) -> FeatureStarted:
        started, item, prefix = self.state.started, self.state.tracks[feature].item, self.pins.config.branch_prefix
        assert started is not None
        return FeatureStarted(
            feature=feature,
            run_version=version,
            branch=f"{prefix}/{feature}",
            target=f"{prefix}/{message.stacked_on}" if message.stacked_on else started.base,
            starts_from=message.starts_from or (started.base_commit,),
            title=item.title,
            body=item.body,
        )

    def request(self, feature: FeatureId, version: int, step: ReserveCall | SettleCall | ClaimPaths) -> RequestResult:
        run_event: Event
        feature_events: tuple[Event, ...]
        match step:
            case ReserveCall(request=request):
                run_event = reserve_money(self.state, feature, request, self.pins)
                feature_events = (run_event,) if isinstance(run_event, CallOverBudget) else (run_event, request)
            case SettleCall(key=key, events=events):
                reserved = self.state.tracks[feature].reservations.get(key, 0)
                run_event = CallSettled(feature=feature, key=key, nanousd=step.charged_nanousd(reserved))
                feature_events = (*events, run_event)
            case ClaimPaths(phase=phase, paths=paths):
                run_event = claim_files(self.state, feature, phase, paths)
                feature_events = (run_event,)
        stream = feature_stream(self.run, feature)
        recorded = self._append((run_event,), Append(stream, version, feature_events, causation=f"{stream}@{version}"))
        granted = not isinstance(run_event, CallOverBudget | ClaimRejected)
        return tuple(event for event in recorded if event.stream == stream), granted

    def is_stopping(self) -> bool:
        """Return True if features must stop after their current action."""
        return self.is_over() or self.state.paused

    # requests of drivers --------------------------------------------------------------------------------------------
    def is_over(self) -> bool:
        """Return True if the process must end as soon as no feature works."""
        return self.state.halt is not None or self.state.stop_requested

    def resume(self) -> None:
        """Record that a process resumed the run, or that a pause ended."""
        self._append((RunResumed(mz_version=VERSION),))

    def set_budget(self, budget: Budget) -> None:
        """Record new limits if they differ from those of the run."""
        limits = self.state.budget or self.pins.config.budget
        if (limits.run_nanousd, limits.feature_nanousd) != (budget.run_nanousd, budget.feature_nanousd):
            # Events hold plain integers: the log has no encoding for the quantities of settings.
            run, feature = (
                None if limit is None else int(limit) for limit in (budget.run_nanousd, budget.feature_nanousd)
            )
            self._append((BudgetChanged(run_nanousd=run, feature_nanousd=feature),))

    def pause(self) -> None:
        """Pause after a signal: features stop after their current action, and the process waits."""
        if not self.is_stopping() and not self.state.all_ended:
            self._append((RunPaused(actor=None),))

    def unpause(self) -> None:
        if self.state.paused and not self.is_over():
            self.resume()

    def stop(self) -> None:
        """Stop on the user's request: features stop after their current action."""
        if not self.state.stop_requested:
            self._append((RunStopRequested(),))

    def decide(self) -> act.AwaitEvents | act.IdleRun | act.FinishRun:
        """Read the inbox, fire timers and apply every decision until the run must wait, is idle or is finished."""
        self.read_inbox()
        for feature in due_features(self.state, self.clock.now_us()):
            self._append((TimerFired(feature=feature),))
        while True:
            action = decide_run(self.state, self.pins)
            if isinstance(action, act.AwaitEvents | act.IdleRun | act.FinishRun):
                return action
            self._append((event_for_action(action),))

    def record_end(self, action: act.IdleRun | act.FinishRun) -> None:
        """Record once that the run is idle or finished."""
        if isinstance(action, act.FinishRun) and not self.state.finished:
            self._append((RunFinished(),))
        if isinstance(action, act.IdleRun) and not self.state.idle:
            self._append((RunIdle(),))

    def runnable_features(self, driven: frozenset[str]) -> tuple[FeatureId, ...]:
        return runnable_features(self.state, driven, self.pins.config.parallel_max)

    def forge_polls(self) -> tuple[ForgePoll, ...]:
        return () if self.is_stopping() else forge_polls(self.state, self.pins)

    def record_change(self, event: ForgeChange) -> None:
        """Record a change that a forge poll found, unless it is recorded already."""
        track = self.state.tracks.get(event.feature)
        if isinstance(event, FeatureMerged):
            is_new = event.feature not in self.state.merged_heads
        else:
            is_new = track is not None and is_held_for(track, Hold.CHECKS)
        if is_new:
            self._append((event,))

    def base_branch(self) -> str:
        assert self.state.started is not None
        return self.state.started.base

    def feature_ids(self) -> tuple[FeatureId, ...]:
        return tuple(FeatureId(feature) for feature in self.state.tracks)

    def worker_stopped(self, feature_loop: FeatureLoop) -> None:
        """Record that a feature's thread ended.

        A feature with a new message stays active and is driven again, at once or, if the run stops, after a resume.
        """
        stopped, stopping = feature_loop.stopped_event(), self.is_stopping()
        if feature_loop.has_messages():
            stopped = replace(stopped, status=FeatureOutcome.INTERRUPTED, hold=None, until_us=None, code=None)
        if stopping or stopped.status is not FeatureOutcome.INTERRUPTED:
            self._append((stopped,))

    def read_inbox(self) -> None:
        """Accept or reject the messages that people have posted since the last time, in order."""
        for recorded in self.store.read(inbox_stream(self.run), self.state.inbox_version):
            accepted = self._accepted_events(recorded.event)
            rejection_code = "" if accepted else "not-waiting"
            event = InboxRead(version=recorded.version, accepted=bool(accepted), rejection_code=rejection_code)
            self._append((event, *accepted))

    def _accepted_events(self, event: Event) -> tuple[Event, ...]:
        """Return the events that a message leads to; none if it comes too late or makes no sense."""
        tracks = self.state.tracks
        match event:
            case AnswerPosted(feature=feature) if feature in tracks and _is_open_question(
                tracks[feature], event.question
            ):
                return (AnswerAccepted(feature=feature, verdict=event.verdict, note=event.note, actor=event.actor),)
            case RetryPosted(feature=feature) if feature in tracks and _has_stopped_as(
                tracks[feature], *RETRIABLE_OUTCOMES
            ):
                return (RetryAccepted(feature=feature, phase=event.phase, note=event.note, actor=event.actor),)
            case PausePosted(actor=who) if not self.is_stopping() and not self.state.all_ended:
                return (RunPaused(actor=who),)
            case ResumePosted() if self.state.paused and not self.is_over():
                return (RunResumed(mz_version=VERSION),)
            case CancelPosted(feature=feature) if feature is None or feature in tracks:
                features = list(tracks) if feature is None else [feature]
                return tuple(
                    cancel_event
                    for name in features
                    if not tracks[name].has_ended
                    for cancel_event in _cancel_events(FeatureId(name), event, started=tracks[name].admitted)
                )
        return ()

    def _append(self, events: tuple[Event, ...], *feature_appends: Append) -> tuple[Recorded[Event], ...]:
        recorded = self.store.append(
            [Append(self.stream, self.state.version, events), *feature_appends], self.clock.now_us()
        )
        for event in recorded:
            if event.stream == self.stream:
                self.state = evolve_run(self.state, event)
            self.observe(event)
        return recorded


def _is_open_question(track: FeatureTrack, question: int | None) -> bool:
    """Return True if the feature waits for a person with that question: an answer must not apply to a later one."""
    return (
        _has_stopped_as(track, FeatureOutcome.WAITING)
        and track.last_stop is not None
        and question in (None, track.last_stop.version)
    )


def _has_stopped_as(track: FeatureTrack, *statuses: FeatureOutcome) -> bool:
    return not track.active and track.last_stop is not None and track.last_stop.status in statuses


def _cancel_events(feature: FeatureId, event: CancelPosted, *, started: bool) -> tuple[Event, ...]:
    """Return the events of a cancellation; a feature that never started has no thread that could record its end."""
    cancelled = CancelAccepted(feature=feature, note=event.note, actor=event.actor)
    return (
        (cancelled,)
        if started
        else (cancelled, FeatureStopped(feature=feature, version=0, status=FeatureOutcome.CANCELLED))
    )


def event_for_action(action: RunAction) -> Event:
    """Return the event of an action that only concerns the run's stream."""
    match action:
        case act.AdmitFeature(feature=feature, starts_from=starts_from, stacked_on=stacked_on):
            return FeatureAdmitted(feature=feature, starts_from=starts_from, stacked_on=stacked_on)
        case act.HoldItem(feature=feature, blocked_by=blocked_by):
            return ItemHeld(feature=feature, blocked_by=blocked_by)
        case act.ReleaseFeature(feature=feature, hold=hold):
            return FeatureReleased(feature=feature, hold=hold)
        case act.CompareClaim(feature=feature, confirmed=confirmed, unused=unused, missed=missed):
            return ClaimCompared(feature=feature, confirmed=confirmed, unused=unused, missed=missed)
        case act.HaltRun(feature=feature, code=code):
            return RunHalted(feature=feature, code=code)
    raise AssertionError(action)
