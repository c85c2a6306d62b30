"""The loop of one feature: fold the stream, decide, execute. Start, resume and recovery are this one loop.

A `FeatureLoop` advances one step at a time, so that threads and the simulation's single loop drive the same code. It
appends only to the feature's own stream; requests that concern the run go through the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.feature import (
    FeatureCancelled,
    FeatureHeld,
    FeatureRetried,
    FeatureStarted,
    HoldReleased,
    HumanAnswered,
)
from mz_events.catalog.run import (
    AnswerGiven,
    CancelGiven,
    ChecksChanged,
    FeatureAdmitted,
    FeatureReleased,
    FeatureRested,
    Hold,
    Rest,
    RetryGiven,
    TimerFired,
)
from mz_events.envelope import Recorded
from mz_events.names import FeatureId, feature_stream, run_stream
from mz_events.store import Append, Store
from mz_projections.feature import follow
from mz_projections.run import Message
from mz_projections.state import (
    Ended,
    Held,
    Restoring,
    State,
    Unborn,
    Waiting,
    Working,
    book_of,
    heard_of,
)

from mz_engine.decide.actions import ReadReply, Settle
from mz_engine.decide.phase import decide
from mz_engine.effects.dispatch import effect
from mz_engine.effects.prompt import unmakeable
from mz_engine.effects.steps import ClaimPaths, Do, Effect, Emit, ReserveCall, Scene, SettleCall, Step
from mz_engine.pins import Pins
from mz_engine.ports import Interrupted, Ports, RemoteRefused, RepositoryUnusable
from mz_engine.prompts.render import TemplateBroken

OWED = (Settle, ReadReply)
"""Actions that record something already done or paid; they come before any message."""
Observer = Callable[[Recorded[Event]], None]


class IllegalTransition(Exception):
    """An event that is not allowed in the current state; raised before it is appended. Always a bug in mz."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{type(event).__name__} is not allowed in state {type(state).__name__}")


class Coordinating(Protocol):
    """The coordinator, as a feature sees it."""

    def messages(self, feature: FeatureId, after: int) -> tuple[tuple[int, Message], ...]:
        """Return the run's messages to the feature after that version of the run's stream."""

    def start_of(self, feature: FeatureId, version: int, message: FeatureAdmitted) -> FeatureStarted: ...

    def ask(self, feature: FeatureId, version: int, step: ReserveCall | SettleCall | ClaimPaths) -> Appended:
        """Decide, and append to both streams in one transaction; `version` is the feature stream's current one."""

    def features(self) -> tuple[FeatureId, ...]:
        """Return all features of the run."""

    def base(self) -> str:
        """Return the name of the run's base branch."""

    def stopping(self) -> bool: ...


Appended = tuple[tuple[Recorded[Event], ...], bool]
"""The events appended to the feature's stream, and True if the request was granted."""


class FeatureRun:
    """Drives one feature from the current state of its stream until it stops."""

    def __init__(
        self,
        run: str,
        feature: FeatureId,
        pins: Pins,
        store: Store,
        ports: Ports,
        run_side: Coordinating,
        see: Observer,
    ) -> None:
        self.run, self.feature, self.pins = run, feature, pins
        self.store, self.ports, self.run_side, self.see = store, ports, run_side, see
        self.stream = feature_stream(run, feature)
        self.state: State = Unborn()
        self.version = 0
        self._steps: Effect | None = None
        self._result: Any = None
        self._error: Exception | None = None
        for recorded in store.read(self.stream):
            self._take(recorded)

    def step(self) -> bool:
        """Acknowledge a message, begin an action, or advance the current one. Return False if the feature stops."""
        if self._steps is None:
            return self._begin()
        try:
            step = self._advance(self._steps)
        except RepositoryUnusable as error:
            self._steps = None
            self._emit((FeatureHeld(hold=Hold.FATAL, code=error.code),))
            return True
        except TemplateBroken as broken:
            self._steps = unmakeable(broken)
            return True
        except Interrupted:
            self._steps = None
            return False
        if step is None:
            self._steps = None
        else:
            self._carry_out(step)
        return True

    def rest(self) -> FeatureRested:
        """Return the event that tells the run how the feature stopped."""
        state, book = self.state, book_of(self.state)
        interrupted = FeatureRested(
            feature=self.feature, version=self.version, status=Rest.STOPPED, head=book.head if book else None
        )
        match state:
            case Held():
                return replace(interrupted, status=Rest.HELD, hold=state.hold, until_us=state.until_us, code=state.code)
            case Waiting():
                return replace(interrupted, status=Rest.WAITING, code=state.asked.code)
            case Ended():
                return replace(interrupted, status=state.status, code=state.code, touched=state.touched)
        return interrupted

    def _begin(self) -> bool:
        action = decide(self.state, self.pins)
        if not isinstance(action, OWED):
            response = self._next_message()
            if response is not None:
                event, version = response
                self._emit((event,), causation=f"{run_stream(self.run)}@{version}")
                return True
        if action is None or (self.run_side.stopping() and not (isinstance(action, OWED) and self.has_news())):
            return False
        self._steps, self._result, self._error = effect(action, self._scene()), None, None
        return True

    def has_news(self) -> bool:
        """Return True if a message of the run still needs an event, so that the feature must not stop."""
        return self._next_message() is not None

    def _next_message(self) -> tuple[Event, int] | None:
        """Return the event for the first message that needs one, and the message's version."""
        for version, message in self.run_side.messages(self.feature, heard_of(self.state)):
            event = self._owed_first(message) or self._hear(version, message)
            if event is not None:
                return event, version
        return None

    def _owed_first(self, message: Message) -> Event | None:
        """Release a hold that hides a pending outcome, such as the end of a call: it comes before the message."""
        match self.state:
            case Held(hold=hold, then=then) if isinstance(message, CancelGiven | RetryGiven):
                if isinstance(decide(then, self.pins), OWED):
                    return HoldReleased(heard=heard_of(self.state), hold=hold)
        return None

    def _hear(self, version: int, message: Message) -> Event | None:
        """Return the event that cites the message; None if it has no effect in the current state."""
        match message, self.state:
            case FeatureAdmitted(), Unborn():
                return self.run_side.start_of(self.feature, version, message)
            case CancelGiven(), state if not isinstance(state, Unborn | Ended):
                return FeatureCancelled(heard=version)
            case FeatureReleased(hold=hold), Held():
                return HoldReleased(heard=version, hold=hold)
            case TimerFired(), Held():
                return HoldReleased(heard=version, hold=Hold.TIMER)
            case ChecksChanged(), Held(hold=Hold.CHECKS):
                return HoldReleased(heard=version, hold=Hold.CHECKS)
            case RetryGiven(), state if not isinstance(state, Unborn) and not delivered(state):
                to = self._phase_of(message.phase)
                return FeatureRetried(heard=version, to=to, note=message.note, who=message.who)
            case AnswerGiven(verdict=verdict, note=note, who=who), Waiting():
                return HumanAnswered(heard=version, verdict=verdict, note=note, who=who)
        return None

    def _phase_of(self, requested: str | None) -> str:
        """Return the phase of a retry: the requested one, if it ever started, else the current one."""
        book = book_of(self.state)
        if book is None:
            return ""
        if requested in book.starts:
            return requested
        active: State = self.state
        match self.state:
            case Held(then=previous) | Waiting(then=previous) | Ended(before=previous) if previous is not None:
                active = previous
        if isinstance(active, Working):
            return active.phase
        if isinstance(active, Restoring):
            return active.to
        return next(reversed(book.starts), "")

    def _scene(self) -> Scene:
        branches = frozenset(f"{self.pins.config.branch_prefix}/{feature}" for feature in self.run_side.features())
        return Scene(
            run=self.run,
            feature=self.feature,
            state=self.state,
            pins=self.pins,
            branches=branches,
            base=self.run_side.base(),
        )

    def _advance(self, steps: Effect) -> Step | None:
        try:
            if self._error is not None:
                error, self._error = self._error, None
                return steps.throw(error)
            result, self._result = self._result, None
            return steps.send(result)
        except StopIteration:
            return None

    def _carry_out(self, step: Step) -> None:
        match step:
            case Do(call=call):
                try:
                    self._result = call(self.ports)
                except (RepositoryUnusable, RemoteRefused, Interrupted) as error:
                    self._error = error
            case Emit(events=events):
                self._emit(events)
            case ReserveCall() | SettleCall() | ClaimPaths():
                appended, self._result = self.run_side.ask(self.feature, self.version, step)
                for recorded in appended:
                    self._take(recorded)

    def _emit(self, events: tuple[Event, ...], causation: str = "") -> None:
        check(self.state, events)
        causation = causation or f"{self.stream}@{self.version}"
        append = Append(self.stream, self.version, events, causation)
        for recorded in self.store.append([append], self.ports.clock.now_us()):
            self._take(recorded)
            self.see(recorded)

    def _take(self, recorded: Recorded[Event]) -> None:
        next_state = follow(self.state, recorded)
        self.state = self.state if next_state is None else next_state
        self.version = recorded.version


def delivered(state: State) -> bool:
    return isinstance(state, Ended) and state.before is None


def check(state: State, events: tuple[Event, ...]) -> None:
    """Check that the events are allowed in this state, before they are appended. Raises IllegalTransition."""
    for event in events:
        next_state = follow(state, _sketched(event))
        if next_state is None:
            raise IllegalTransition(state, event)
        state = next_state


def _sketched(event: Event) -> Recorded[Event]:
    """Return the event as if it were recorded; times and versions play no part in the check."""
    return Recorded(
        stream=feature_stream("", ""),
        version=0,
        position=0,
        recorded_at_us=0,
        observed_at_us=0,
        event=event,
        causation="",
        chain=b"",
    )
