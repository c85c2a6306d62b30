"""The run's side of the loop: appends to `run/<run>`, grants money and files, admits, releases, reads the inbox.

One thread drives it, or the simulation's loop; features reach it through the driver.
"""

from __future__ import annotations

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallHeld, CallSettled
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.inbox import AnswerLeft, CancelLeft, PauseLeft, ResumeLeft, RetryLeft
from mz_events.catalog.run import (
    AnswerGiven,
    BudgetChanged,
    CancelGiven,
    ClaimCompared,
    FeatureAdmitted,
    FeatureMerged,
    FeatureReleased,
    FeatureRested,
    FilesContended,
    Hold,
    InboxTaken,
    ItemHeld,
    Rest,
    RetryGiven,
    RunFinished,
    RunHalted,
    RunPaused,
    RunRested,
    RunResumed,
    RunStopped,
    TimerFired,
)
from mz_events.envelope import Recorded
from mz_events.names import FeatureId, feature_stream, inbox_stream, run_stream
from mz_events.store import Append, Store
from mz_projections.run import RETRIABLE, Message, RunState, Track, evolve_run, fold_run, held_for

from mz_engine.config import Budget
from mz_engine.decide import run as act
from mz_engine.decide.run import RunAction, Watch, claim, decide_run, due, reserve, runnable, watched
from mz_engine.effects.steps import ClaimPaths, ReserveCall, SettleCall
from mz_engine.pins import Pins
from mz_engine.ports import Clock
from mz_engine.runner import Appended, FeatureRun, Observer
from mz_engine.version import VERSION
from mz_engine.watch import Noticed


class Coordinator:
    def __init__(self, run: str, pins: Pins, store: Store, clock: Clock, see: Observer) -> None:
        self.run, self.pins, self.store, self.clock, self.see = run, pins, store, clock, see
        self.stream = run_stream(run)
        self.state: RunState = fold_run(store.read(self.stream))

    # requests of features -------------------------------------------------------------------------------------------
    def messages(self, feature: FeatureId, after: int) -> tuple[tuple[int, Message], ...]:
        return tuple(entry for entry in self.state.tracks[feature].messages if entry[0] > after)

    def start_of(self, feature: FeatureId, version: int, message: FeatureAdmitted) -> FeatureStarted:
        started, item, prefix = self.state.started, self.state.tracks[feature].item, self.pins.config.branch_prefix
        assert started is not None
        return FeatureStarted(
            feature=feature,
            heard=version,
            branch=f"{prefix}/{feature}",
            target=f"{prefix}/{message.onto}" if message.onto else started.base,
            starts_from=message.starts_from or (started.base_commit,),
            title=item.title,
            body=item.body,
        )

    def ask(self, feature: FeatureId, version: int, step: ReserveCall | SettleCall | ClaimPaths) -> Appended:
        mine: Event
        theirs: tuple[Event, ...]
        match step:
            case ReserveCall(request=request):
                mine = reserve(self.state, feature, request, self.pins)
                theirs = (mine,) if isinstance(mine, CallHeld) else (mine, request)
            case SettleCall(key=key, events=events):
                reserved = self.state.tracks[feature].reserved.get(key, 0)
                mine = CallSettled(feature=feature, key=key, nanousd=step.settled(reserved))
                theirs = (*events, mine)
            case ClaimPaths(phase=phase, paths=paths):
                mine = claim(self.state, feature, phase, paths)
                theirs = (mine,)
        stream = feature_stream(self.run, feature)
        recorded = self._append((mine,), Append(stream, version, theirs, causation=f"{stream}@{version}"))
        granted = not isinstance(mine, CallHeld | FilesContended)
        return tuple(event for event in recorded if event.stream == stream), granted

    def stopping(self) -> bool:
        """Return True if features must stop after their current action."""
        return self.over() or self.state.paused

    # requests of drivers --------------------------------------------------------------------------------------------
    def over(self) -> bool:
        """Return True if the process must end as soon as no feature works."""
        return self.state.halted is not None or self.state.stopped

    def resume(self) -> None:
        """Record that a process resumed the run, or that a pause ended."""
        self._append((RunResumed(core=VERSION),))

    def set_budget(self, budget: Budget) -> None:
        """Record new limits if they differ from those of the run."""
        limits = self.state.budget or self.pins.config.budget
        if (limits.run_nanousd, limits.feature_nanousd) != (budget.run_nanousd, budget.feature_nanousd):
            self._append((BudgetChanged(run_nanousd=budget.run_nanousd, feature_nanousd=budget.feature_nanousd),))

    def pause(self) -> None:
        """Pause after a signal: features stop after their current action, and the process waits."""
        if not self.stopping() and not self.state.all_ended:
            self._append((RunPaused(who=None),))

    def unpause(self) -> None:
        if self.state.paused and not self.over():
            self.resume()

    def stop(self) -> None:
        """Stop on the user's request: features stop after their current action."""
        if not self.state.stopped:
            self._append((RunStopped(),))

    def decide(self) -> act.Await | act.RestRun | act.FinishRun:
        """Read the inbox, fire timers and apply every decision until the run must wait, is idle or is finished."""
        self.take_inbox()
        for feature in due(self.state, self.clock.now_us()):
            self._append((TimerFired(feature=feature),))
        while True:
            action = decide_run(self.state, self.pins)
            if isinstance(action, act.Await | act.RestRun | act.FinishRun):
                return action
            self._append((event_of(action),))

    def close(self, action: act.RestRun | act.FinishRun) -> None:
        """Record once that the run is idle or finished."""
        if isinstance(action, act.FinishRun) and not self.state.finished:
            self._append((RunFinished(),))
        if isinstance(action, act.RestRun) and not self.state.resting:
            self._append((RunRested(),))

    def runnable(self, alive: frozenset[str]) -> tuple[FeatureId, ...]:
        return runnable(self.state, alive, self.pins.config.parallel_max)

    def watched(self) -> tuple[Watch, ...]:
        return () if self.stopping() else watched(self.state, self.pins)

    def noticed(self, event: Noticed) -> None:
        """Record a change that a forge poll found, unless it is recorded already."""
        track = self.state.tracks.get(event.feature)
        if isinstance(event, FeatureMerged):
            is_new = event.feature not in self.state.merged
        else:
            is_new = track is not None and held_for(track, Hold.CHECKS)
        if is_new:
            self._append((event,))

    def base(self) -> str:
        assert self.state.started is not None
        return self.state.started.base

    def features(self) -> tuple[FeatureId, ...]:
        return tuple(FeatureId(feature) for feature in self.state.tracks)

    def rested(self, feature_run: FeatureRun) -> None:
        """Record that a feature's thread ended.

        A feature with a new message stays active and is driven again, at once or, if the run stops, after a resume.
        """
        stopped, stopping = feature_run.rest(), self.stopping()
        if feature_run.has_news():
            stopped = replace(stopped, status=Rest.STOPPED, hold=None, until_us=None, code=None)
        if stopping or stopped.status is not Rest.STOPPED:
            self._append((stopped,))

    def take_inbox(self) -> None:
        """Accept or reject the messages that people have posted since the last time, in order."""
        for recorded in self.store.read(inbox_stream(self.run), self.state.inbox_version):
            accepted = self._taken(recorded.event)
            rejection_code = "" if accepted else "not-waiting"
            event = InboxTaken(version=recorded.version, accepted=bool(accepted), why=rejection_code)
            self._append((event, *accepted))

    def _taken(self, event: Event) -> tuple[Event, ...]:
        """Return the events that a message leads to; none if it comes too late or makes no sense."""
        tracks = self.state.tracks
        match event:
            case AnswerLeft(feature=feature) if feature in tracks and _asks(tracks[feature], event.question):
                return (AnswerGiven(feature=feature, verdict=event.verdict, note=event.note, who=event.who),)
            case RetryLeft(feature=feature) if feature in tracks and _rests(tracks[feature], *RETRIABLE):
                return (RetryGiven(feature=feature, phase=event.phase, note=event.note, who=event.who),)
            case PauseLeft(who=who) if not self.stopping() and not self.state.all_ended:
                return (RunPaused(who=who),)
            case ResumeLeft() if self.state.paused and not self.over():
                return (RunResumed(core=VERSION),)
            case CancelLeft(feature=feature) if feature is None or feature in tracks:
                features = list(tracks) if feature is None else [feature]
                return tuple(
                    cancel_event
                    for name in features
                    if not tracks[name].ended
                    for cancel_event in _cancelled(FeatureId(name), event, started=tracks[name].admitted)
                )
        return ()

    def _append(self, mine: tuple[Event, ...], *others: Append) -> tuple[Recorded[Event], ...]:
        recorded = self.store.append([Append(self.stream, self.state.version, mine), *others], self.clock.now_us())
        for event in recorded:
            if event.stream == self.stream:
                self.state = evolve_run(self.state, event)
            self.see(event)
        return recorded


def _asks(track: Track, question: int | None) -> bool:
    """Return True if the feature waits for a person with that question: an answer must not apply to a later one."""
    return _rests(track, Rest.WAITING) and track.rested is not None and question in (None, track.rested.version)


def _rests(track: Track, *statuses: Rest) -> bool:
    return not track.active and track.rested is not None and track.rested.status in statuses


def _cancelled(feature: FeatureId, event: CancelLeft, *, started: bool) -> tuple[Event, ...]:
    """Return the events of a cancellation; a feature that never started has no thread that could record its end."""
    cancelled = CancelGiven(feature=feature, note=event.note, who=event.who)
    return (cancelled,) if started else (cancelled, FeatureRested(feature=feature, version=0, status=Rest.CANCELLED))


def event_of(action: RunAction) -> Event:
    """Return the event of an action that only concerns the run's stream."""
    match action:
        case act.Admit(feature=feature, starts_from=starts_from, onto=onto):
            return FeatureAdmitted(feature=feature, starts_from=starts_from, onto=onto)
        case act.HoldItem(feature=feature, because=because):
            return ItemHeld(feature=feature, because=because)
        case act.Release(feature=feature, hold=hold):
            return FeatureReleased(feature=feature, hold=hold)
        case act.CompareClaim(feature=feature, confirmed=confirmed, unused=unused, missed=missed):
            return ClaimCompared(feature=feature, confirmed=confirmed, unused=unused, missed=missed)
        case act.Halt(feature=feature, code=code):
            return RunHalted(feature=feature, code=code)
    raise AssertionError(action)
