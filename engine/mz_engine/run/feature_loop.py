"""The loop of one feature: fold the stream, decide, execute. Start, resume and recovery are this one loop.

A `FeatureLoop` advances one step at a time, so that threads and the simulation's single loop drive the same code. It
appends only to the feature's own stream; requests that concern the run go through the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.delivery import CommitRequested
from mz_events.catalog.feature import (
    FeatureCancelled,
    FeatureHeld,
    FeatureRetried,
    FeatureStarted,
    HoldReleased,
    HumanAnswered,
    ItemStatus,
)
from mz_events.catalog.run import (
    AnswerAccepted,
    CancelAccepted,
    ChecksChanged,
    FeatureAdmitted,
    FeatureOutcome,
    FeatureReleased,
    FeatureStopped,
    Hold,
    ItemRequeued,
    RetryAccepted,
    TimerFired,
)
from mz_events.names import FeatureId, feature_stream, run_stream
from mz_events.store import Append, Recorded, Store
from mz_projections.feature.fold import apply_strict, evolve
from mz_projections.feature.state import (
    Ended,
    Held,
    InPhase,
    NotStarted,
    Restoring,
    State,
    Waiting,
    progress_of,
    run_version_of,
)
from mz_projections.run.fold import RunMessage, RunState

from mz_engine.backlog.listed import issue_of
from mz_engine.decide.actions import ParseReply, ReconcileIntent
from mz_engine.decide.feature import decide_feature
from mz_engine.decide.items import may_begin_again
from mz_engine.effects.dispatch import effect_of
from mz_engine.effects.prompt import hold_for_broken_template
from mz_engine.effects.steps import Do, Effect, Emit, RunStep, Step, StepContext
from mz_engine.model.pins import Pins
from mz_engine.ports import OWN_PROBLEMS, Interrupted, Ports, RemoteError, RepositoryUnusable, StorageFailed
from mz_engine.prompts.render import TemplateError

BEFORE_MESSAGES = (ReconcileIntent, ParseReply)
"""Actions that record something already done or paid; they come before any message."""
Observer = Callable[[Recorded[Event]], None]


class IllegalTransition(Exception):
    """An event that is not allowed in the current state; raised before it is appended. Always a bug in mz."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{type(event).__name__} is not allowed in state {type(state).__name__}")


class RunSide(Protocol):
    """The coordinator, as a feature sees it."""

    @property
    def state(self) -> RunState: ...

    def request(self, feature: FeatureId, version: int, step: RunStep) -> RequestResult:
        """Decide, and append to both streams in one transaction; `version` is the feature stream's current one."""

    def is_stopping(self) -> bool: ...


RequestResult = tuple[tuple[Recorded[Event], ...], bool]
"""The events appended to the feature's stream, and True if the request was granted."""


class FeatureLoop:
    """Drives one feature from the current state of its stream until it stops."""

    def __init__(
        self, run: str, feature: FeatureId, pins: Pins, store: Store, ports: Ports, run_side: RunSide, observe: Observer
    ) -> None:
        self.run, self.feature, self.all_pins = run, feature, pins
        self.pins = pins.of_kind(run_side.state.tracks[feature].item.kind)
        """Those of the item's kind."""
        self.store, self.ports, self.run_side, self.observe = store, ports, run_side, observe
        self.stream = feature_stream(run, feature)
        self.state: State = NotStarted()
        self.version = 0
        self._steps: Effect | None = None
        self._result: Any = None
        self._error: Exception | None = None
        for recorded in store.read(self.stream):
            self.state, self.version = evolve(self.state, recorded), recorded.version

    def step(self) -> bool:
        """Acknowledge a message, begin an action, or advance the current one. Return False if the feature stops. Raises
        StorageFailed, StoreUnusable and OSError, after which only a new process can continue."""
        if self._steps is None:
            return self._begin_action()
        try:
            error, self._error = self._error, None
            result, self._result = self._result, None
            step = self._steps.throw(error) if error is not None else self._steps.send(result)
        except StopIteration:
            self._steps = None
            return True
        except StorageFailed:
            raise
        except RepositoryUnusable as unusable:
            self._steps, action = None, decide_feature(self.state, self.pins)
            if isinstance(action, BEFORE_MESSAGES) and self.has_messages():
                # Held, it would be released for the message, and fail again; a commit that cannot be made may be left.
                if unusable.code in OWN_PROBLEMS and isinstance(getattr(action, "intent", None), CommitRequested):
                    return self._apply_message()
                raise StorageFailed(unusable.code, str(unusable)) from unusable
            self._append((FeatureHeld(hold=Hold.FATAL, code=unusable.code),))
            return True
        except TemplateError as template_error:
            self._steps = hold_for_broken_template(template_error)
            return True
        except Interrupted:
            self._steps = None
            return False
        self._execute(step)
        return True

    def stopped_event(self) -> FeatureStopped:
        """Return the event that tells the run how the feature stopped."""
        state, progress = self.state, progress_of(self.state)
        head, status = progress.head if progress else None, FeatureOutcome.INTERRUPTED
        interrupted = FeatureStopped(feature=self.feature, version=self.version, status=status, head=head)
        match state:
            case Held():
                return replace(
                    interrupted, status=FeatureOutcome.HELD, hold=state.hold, until_us=state.until_us, code=state.code
                )
            case Waiting():
                return replace(interrupted, status=FeatureOutcome.WAITING, code=state.question.code)
            case Ended():
                return replace(
                    interrupted,
                    status=state.status,
                    code=state.code,
                    head=state.head,
                    changed_paths=state.changed_paths,
                )
        return interrupted

    def _begin_action(self) -> bool:
        action = decide_feature(self.state, self.pins)
        if not isinstance(action, BEFORE_MESSAGES) and self._apply_message():
            return True
        if action is None or (
            self.run_side.is_stopping() and not (isinstance(action, BEFORE_MESSAGES) and self.has_messages())
        ):
            return False
        started = self.run_side.state.started
        assert started is not None
        context = StepContext(self.run, self.feature, self.state, self.pins, started.base, started.integration)
        self._steps, self._result, self._error = effect_of(action, context), None, None
        return True

    def has_messages(self) -> bool:
        """Return True if a message of the run still needs an event, so that the feature must not stop."""
        return self._next_message() is not None

    def _apply_message(self) -> bool:
        """Append the event for the next message; False: there is none."""
        response = self._next_message()
        if response is not None:
            self._append((response[0],), causation=f"{run_stream(self.run)}@{response[1]}")
        return response is not None

    def _next_message(self) -> tuple[Event, int] | None:
        """Return the event for the first message that needs one, and the message's version."""
        acknowledged = run_version_of(self.state)
        for version, message in self.run_side.state.tracks[self.feature].messages:
            if version > acknowledged and (event := self._acknowledge(version, message)) is not None:
                return event, version
        return None

    def _acknowledge(self, version: int, message: RunMessage) -> Event | None:
        """Return the event that cites the message; None if it has no effect in the current state."""
        match message, self.state:
            case CancelAccepted() | RetryAccepted(), Held(hold=hold, suspended=then) if isinstance(
                decide_feature(then, self.pins), BEFORE_MESSAGES
            ):  # The hold hides a pending outcome, such as the end of a call, which comes before the message.
                return HoldReleased(run_version=run_version_of(self.state), hold=hold)
            case FeatureAdmitted(), NotStarted():
                return self._started_event(version, message)
            case CancelAccepted(), state if not isinstance(state, NotStarted | Ended):
                return FeatureCancelled(run_version=version)
            case ItemRequeued(), Ended(detail=detail):
                to = self._retry_phase(self.pins.pipeline.phases[0].phase)
                return FeatureRetried(run_version=version, to=to, note=detail, actor=None)
            case FeatureReleased(hold=hold), Held():
                return HoldReleased(run_version=version, hold=hold)
            case (TimerFired(), Held(hold=hold)) | (ChecksChanged(), Held(hold=Hold.CHECKS as hold)):
                return HoldReleased(run_version=version, hold=hold)
            case RetryAccepted(keeps_tree=keeps_tree, note=note, actor=who), state if (
                is_delivered(state) if keeps_tree else not isinstance(state, NotStarted) and not is_delivered(state)
            ):
                requested = message.phase or (self.pins.pipeline.revision_phase if keeps_tree else None)
                to = self._retry_phase(requested)
                retried = FeatureRetried(run_version=version, to=to, note=note, actor=who, keeps_tree=keeps_tree)
                return replace(retried, commits=message.commits)
            case AnswerAccepted(verdict=verdict, note=note, actor=who), Waiting():
                return HumanAnswered(run_version=version, verdict=verdict, note=note, actor=who)
        return None

    def _started_event(self, version: int, message: FeatureAdmitted) -> FeatureStarted:
        run_state = self.run_side.state
        started, item = run_state.started, run_state.tracks[self.feature].item
        assert started is not None
        target = self.pins.target_branch(item.kind, self.feature, started)
        if message.stacked_on:
            target = self.pins.item_branch(item.kind, message.stacked_on, started)
        base_test, is_strict = run_state.base_test, self.pins.config.gates.baseline == "strict"
        return FeatureStarted(
            feature=self.feature,
            run_version=version,
            branch=self.pins.item_branch(item.kind, self.feature, started),
            target=target,
            starts_from=message.starts_from or (started.base_commit,),
            title=item.title,
            body=item.body,
            suspicions=item.suspicions if item.quarantined else None,
            known_failures=base_test.known_failures if base_test and not is_strict else None,
            base_results=base_test.results if base_test else None,
            issue=issue_of(item.source),
            items=self._item_statuses() if self.pins.reads_items else (),
        )

    def _item_statuses(self) -> tuple[ItemStatus, ...]:
        tracks, started = self.run_side.state.tracks.items(), self.run_side.state.started
        assert started is not None
        return tuple(
            ItemStatus(
                feature=FeatureId(feature),
                kind=track.item.kind,
                title=track.item.title,
                status=track.last_stop.status
                if track.last_stop and not may_begin_again(track, self.all_pins)
                else None,
                attempts=track.attempts if track.admitted else 0,
                code=(track.last_stop.code or "") if track.last_stop else "",
                branch=self.all_pins.item_branch(track.item.kind, feature, started),
                head=track.last_stop.head if track.last_stop else None,
                depends_on=track.item.depends_on,
                files=track.item.files,
            )
            for feature, track in tracks
            if feature != self.feature
        )

    def _retry_phase(self, requested: str | None) -> str:
        """Return the phase of a retry: the requested one, if it ever started, else the current one."""
        progress = progress_of(self.state)
        if progress is None:
            return ""
        if requested in progress.start_trees:
            return requested
        state = self.state
        if isinstance(state, Held | Waiting):
            state = state.suspended
        elif isinstance(state, Ended) and state.state_before is not None:
            state = state.state_before
        match state:
            case InPhase(phase=phase) | Restoring(to=phase):
                return phase
        return next(reversed(progress.start_trees), "")

    def _execute(self, step: Step) -> None:
        match step:
            case Do(call=call):
                try:
                    self._result = call(self.ports)
                except (RepositoryUnusable, RemoteError, Interrupted) as error:
                    self._error = error
            case Emit(events=events):
                self._append(events)
            case _:
                appended, self._result = self.run_side.request(self.feature, self.version, step)
                for recorded in appended:
                    self.state, self.version = evolve(self.state, recorded), recorded.version

    def _append(self, events: tuple[Event, ...], causation: str = "") -> None:
        now_us, causation = self.ports.clock.now_us(), causation or f"{self.stream}@{self.version}"
        state = next_state(self.state, events, now_us)
        for recorded in self.store.append([Append(self.stream, self.version, events, causation)], now_us):
            self.observe(recorded)
        self.state, self.version = state, self.version + len(events)


def is_delivered(state: State) -> bool:
    return isinstance(state, Ended) and state.state_before is None


def next_state(state: State, events: tuple[Event, ...], now_us: int) -> State:
    """Return the state after the events, before they are appended. Raises IllegalTransition."""
    for event in events:
        recorded = Recorded(feature_stream("", ""), 0, 0, now_us, now_us, event, "")
        following = apply_strict(state, recorded)  # It reads only the event and its time.
        if following is None:
            raise IllegalTransition(state, event)
        state = following
    return state
