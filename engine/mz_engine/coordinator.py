"""The run's side of the loop: alone appends to `run/<run>`, grants money and files, admits, releases, takes the inbox.

It is driven by one thread, or by the simulation's loop; features reach it through the driver.
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

    # what features ask ----------------------------------------------------------------------------------------------
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
        return tuple(one for one in recorded if one.stream == stream), granted

    def stopping(self) -> bool:
        """Features come to rest after the action that they are in."""
        return self.over() or self.state.paused

    # what drivers ask -----------------------------------------------------------------------------------------------
    def over(self) -> bool:
        """The process is to end as soon as nothing is under way."""
        return self.state.halted is not None or self.state.stopped

    def resume(self) -> None:
        """A process took the run up again, or a paused one goes on."""
        self._append((RunResumed(core=VERSION),))

    def set_budget(self, budget: Budget) -> None:
        """The settings have other limits than the run."""
        known = self.state.budget or self.pins.config.budget
        if (known.run_nanousd, known.feature_nanousd) != (budget.run_nanousd, budget.feature_nanousd):
            self._append((BudgetChanged(run_nanousd=budget.run_nanousd, feature_nanousd=budget.feature_nanousd),))

    def pause(self) -> None:
        """By a signal: features come to rest after the action that they are in, and the process waits."""
        if not self.stopping() and not self.state.all_ended:
            self._append((RunPaused(who=None),))

    def unpause(self) -> None:
        if self.state.paused and not self.over():
            self.resume()

    def stop(self) -> None:
        """The user asks for it; features come to rest after the action that they are in."""
        if not self.state.stopped:
            self._append((RunStopped(),))

    def decide(self) -> act.Await | act.RestRun | act.FinishRun:
        """Everything that can be decided without waiting; what is left: waiting, rest, or the end."""
        self.take_inbox()
        for feature in due(self.state, self.clock.now_us()):
            self._append((TimerFired(feature=feature),))
        while True:
            action = decide_run(self.state, self.pins)
            if isinstance(action, act.Await | act.RestRun | act.FinishRun):
                return action
            self._append((event_of(action),))

    def close(self, action: act.RestRun | act.FinishRun) -> None:
        """Say that the run rests or is finished, once."""
        if isinstance(action, act.FinishRun) and not self.state.finished:
            self._append((RunFinished(),))
        if isinstance(action, act.RestRun) and not self.state.resting:
            self._append((RunRested(),))

    def runnable(self, alive: frozenset[str]) -> tuple[FeatureId, ...]:
        return runnable(self.state, alive, self.pins.config.parallel_max)

    def watched(self) -> tuple[Watch, ...]:
        return () if self.stopping() else watched(self.state, self.pins)

    def noticed(self, event: Noticed) -> None:
        """What a look found, unless somebody was faster."""
        track = self.state.tracks.get(event.feature)
        if isinstance(event, FeatureMerged):
            news = event.feature not in self.state.merged
        else:
            news = track is not None and held_for(track, Hold.CHECKS)
        if news:
            self._append((event,))

    def base(self) -> str:
        assert self.state.started is not None
        return self.state.started.base

    def features(self) -> tuple[FeatureId, ...]:
        return tuple(FeatureId(feature) for feature in self.state.tracks)

    def rested(self, feature_run: FeatureRun) -> None:
        """A feature's thread ended. Where the run has told it something meanwhile, or goes on after all, it stays
        active and begins again; where the run comes to rest, it is active again with the next resume."""
        rest, stopping = feature_run.rest(), self.stopping()
        if feature_run.has_news():
            rest = replace(rest, status=Rest.STOPPED, hold=None, until_us=None, code=None)
        if stopping or rest.status is not Rest.STOPPED:
            self._append((rest,))

    def take_inbox(self) -> None:
        """What people left since the last look, in order."""
        for recorded in self.store.read(inbox_stream(self.run), self.state.inbox_version):
            taken = self._taken(recorded.event)
            why = "" if taken else "not-waiting"
            self._append((InboxTaken(version=recorded.version, accepted=bool(taken), why=why), *taken))

    def _taken(self, event: Event) -> tuple[Event, ...]:
        """What the message leads to; nothing where it comes too late, or never made sense."""
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
                chosen = list(tracks) if feature is None else [feature]
                return tuple(
                    given
                    for one in chosen
                    if not tracks[one].ended
                    for given in _cancelled(FeatureId(one), event, started=tracks[one].admitted)
                )
        return ()

    def _append(self, mine: tuple[Event, ...], *others: Append) -> tuple[Recorded[Event], ...]:
        recorded = self.store.append([Append(self.stream, self.state.version, mine), *others], self.clock.now_us())
        for one in recorded:
            if one.stream == self.stream:
                self.state = evolve_run(self.state, one)
            self.see(one)
        return recorded


def _asks(track: Track, question: int | None) -> bool:
    """It waits for a person, and with that question: an answer must not meet a later one."""
    return _rests(track, Rest.WAITING) and track.rested is not None and question in (None, track.rested.version)


def _rests(track: Track, *statuses: Rest) -> bool:
    return not track.active and track.rested is not None and track.rested.status in statuses


def _cancelled(feature: FeatureId, event: CancelLeft, *, started: bool) -> tuple[Event, ...]:
    """A feature that never started has no thread that could rest."""
    given = CancelGiven(feature=feature, note=event.note, who=event.who)
    return (given,) if started else (given, FeatureRested(feature=feature, version=0, status=Rest.CANCELLED))


def event_of(action: RunAction) -> Event:
    """What an action that needs nobody else appends to the stream of the run."""
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
