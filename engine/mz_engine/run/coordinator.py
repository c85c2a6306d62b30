"""The run's side of the loop: appends to `run/<run>`, grants money and files, admits, releases, reads the inbox.

One thread drives it, or the simulation's loop; features reach it through the driver.
"""

from __future__ import annotations

from msgspec.structs import asdict, replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallOverBudget, CallReserved, CallSettled
from mz_events.catalog.delivery import BranchLanded, ChecksPolled
from mz_events.catalog.inbox import AnswerPosted, CancelPosted, PausePosted, ResumePosted, RetryPosted
from mz_events.catalog.run import (
    AnswerAccepted,
    BudgetChanged,
    CancelAccepted,
    ChecksChanged,
    ClaimRejected,
    FeatureMerged,
    FeatureOutcome,
    FeatureStopped,
    Hold,
    InboxRead,
    RetryAccepted,
    RunClosing,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStopRequested,
    TimerFired,
)
from mz_events.names import Commit, FeatureId, feature_stream, inbox_stream, run_stream
from mz_events.store import Append, Recorded, Store
from mz_projections.feature.fold import fold
from mz_projections.feature.state import Held, InPhase, State, UnitRun
from mz_projections.run.fold import DELIVERED_OUTCOMES, RETRIABLE_OUTCOMES, RunState, evolve_run, fold_run, is_held_for
from mz_projections.run.spending import Amount

from mz_engine.decide.actions import ClaimFiles
from mz_engine.decide.items import created_items
from mz_engine.decide.run import (
    AwaitEvents,
    EndEvent,
    ForgePoll,
    call_amount,
    claim_files,
    current_limits,
    decide_run,
    due_features,
    forge_polls,
    reserve_money,
    runnable_features,
)
from mz_engine.effects.steps import AddItems, ReserveCall, RunStep, SettleCall
from mz_engine.model.config import Budget
from mz_engine.model.pins import Pins
from mz_engine.ports import Clock, Forge, Ports, RemoteError, RepositoryUnusable
from mz_engine.run.feature_loop import FeatureLoop, Observer, RequestResult
from mz_engine.run.spending_record import NOT_RECORDED, SpendingRecord
from mz_engine.version import VERSION

ForgeChange = ChecksChanged | FeatureMerged


class Coordinator:
    """Decides for one run and appends to its stream; `state` is always the fold of that stream. Not thread-safe."""

    spending: SpendingRecord = NOT_RECORDED
    begins_cycles = True
    """False: cycles begin and end when the run is resumed."""

    def __init__(self, run: str, pins: Pins, store: Store, clock: Clock, observe: Observer) -> None:
        self.run, self.pins, self.store, self.clock, self.observe = run, pins, store, clock, observe
        self.stream = run_stream(run)
        self.state: RunState = fold_run(store.read(self.stream))

    # requests of features -------------------------------------------------------------------------------------------
    def request(self, feature: FeatureId, version: int, step: RunStep) -> RequestResult:
        """Grant or refuse what a feature asks for, and append the result to both streams in one transaction.

        Return the events of the feature's stream, whose current version is `version`, and True if granted."""
        run_event: Event
        feature_events: tuple[Event, ...]
        created: tuple[Event, ...] = ()
        self.apply_decisions()
        match step:
            case ReserveCall(composed=composed, request=request):
                ref, now_us = request.ref, self.clock.now_us()
                nanousd, tokens = request.estimated_nanousd, request.estimated_tokens
                call = CallOverBudget(feature=feature, key=ref.key, role=ref.role, nanousd=nanousd, tokens=tokens)
                with self.spending.lock():  # No other run of the user can reserve the same money.
                    limits = current_limits(self.state, self.pins)
                    is_limited = (limits.day_nanousd, limits.day_tokens) != (None, None)
                    day = self.spending.day(now_us, ref.key) if is_limited else ()
                    run_event = reserve_money(self.state, call, self.pins, day)
                    if isinstance(run_event, CallReserved):
                        self.spending.add(ref.key, call_amount(run_event), now_us, charged=False)
                feature_events = (
                    (run_event,) if isinstance(run_event, CallOverBudget) else (composed, run_event, request)
                )
            case SettleCall(key=key, events=events):
                charged = step.charge(self.state.tracks[feature].reservations.get(key, Amount()))
                with self.spending.lock():  # Before the event: after a crash between them the call is charged again.
                    self.spending.add(key, charged, self.clock.now_us(), charged=True)
                run_event = CallSettled(feature=feature, key=key, nanousd=charged.nanousd, tokens=charged.tokens)
                feature_events = (*events, run_event)
            case ClaimFiles(phase=phase, paths=paths):
                run_event = claim_files(self.state, feature, phase, paths)
                feature_events = (run_event,)
            case BranchLanded():
                run_event, feature_events = step, (step,)
            case AddItems(items=items, duplicates=duplicates):
                run_event, created = created_items(self.state, self.pins, feature, items, duplicates)
                feature_events = (run_event,)
        stream = feature_stream(self.run, feature)
        recorded = self.append(
            (run_event, *created), Append(stream, version, feature_events, causation=f"{stream}@{version}")
        )
        granted = not isinstance(run_event, CallOverBudget | ClaimRejected)
        return tuple(event for event in recorded if event.stream == stream), granted

    def is_stopping(self) -> bool:
        """Return True if features must stop after their current action."""
        return self.state.is_ending or self.state.paused

    # requests of drivers --------------------------------------------------------------------------------------------
    def resume(self, provenance: str = "", isolation: str = "") -> None:
        """Record that a process with that provenance and isolation resumed the run, or that a pause ended."""
        self.append((RunResumed(mz_version=VERSION, provenance=provenance, isolation=isolation),))

    def set_budget(self, budget: Budget) -> None:
        """Record new limits if they differ from those of the run."""
        if budget != current_limits(self.state, self.pins):
            # Events hold plain integers: the log has no encoding for the quantities of settings.
            values = {name: None if value is None else int(value) for name, value in asdict(budget).items()}
            self.append((BudgetChanged(**values),))

    def pause(self) -> None:
        """Pause after a signal: features stop after their current action, and the process waits."""
        if not self.is_stopping() and not self.state.all_ended:
            self.append((RunPaused(actor=None),))

    def unpause(self) -> None:
        if self.state.paused and not self.state.is_ending:
            self.resume()

    def stop(self) -> None:
        """Stop on the user's request: features stop after their current action."""
        if not self.state.stop_requested:
            self.append((RunStopRequested(),))

    def decide(self) -> AwaitEvents | EndEvent:
        """Read the inbox, fire timers and apply every decision until the run must wait, is idle or is finished."""
        self.read_inbox()
        for feature in due_features(self.state, self.clock.now_us()):
            self.append((TimerFired(feature=feature),))
        return self.apply_decisions()

    def apply_decisions(self) -> AwaitEvents | EndEvent:
        """Apply every decision that the state allows; return the last one. Decisions come before the events of a
        feature's thread, whichever thread is the faster, since a replay knows no threads."""
        while not isinstance(action := decide_run(self.state, self.pins, self.begins_cycles), AwaitEvents | EndEvent):
            self.append((action,))
        return action

    def record_end(self, action: EndEvent) -> None:
        """Record once that the run is idle or finished."""
        if not (self.state.finished if isinstance(action, RunFinished) else self.state.idle):
            self.append((action,))

    def runnable_features(self, driven: frozenset[str]) -> tuple[FeatureId, ...]:
        return runnable_features(self.state, driven, self.pins.config.parallel_max)

    def forge_polls(self) -> tuple[ForgePoll, ...]:
        return () if self.is_stopping() else forge_polls(self.state, self.pins)

    def poll_forge(self, poll: ForgePoll, ports: Ports) -> ForgeChange | None:
        """Return the change that the poll found; an unreachable forge, remote or repository is none. Reads only; any
        thread may call it."""
        try:
            if poll.subject == "checks":
                feature = fold(self.store.read(feature_stream(self.run, poll.feature)))
                return ChecksChanged(feature=poll.feature) if _all_checks_ended(feature, ports.forge) else None
            head = self._merged_head(poll.feature, ports)
        except (RemoteError, RepositoryUnusable):
            return None
        return FeatureMerged(feature=poll.feature, head=head) if head else None

    def _merged_head(self, feature: FeatureId, ports: Ports) -> Commit | None:
        """Return the base branch's head once it contains the feature, according to the forge or else to git."""
        state, settings = self.state, self.pins.config.pull_requests
        assert state.started is not None
        if settings.strategy != "none":
            kind = state.tracks[feature].item.kind if feature in state.tracks else self.pins.pipeline.kinds[0].kind
            merged = ports.forge.merged(self.pins.item_branch(kind, feature, state.started))
            return ports.workspace.target_head(settings.remote, state.started.base) if merged else None
        delivered = state.skipped[feature].head if feature in state.skipped else None
        if feature in state.tracks and (stop := state.tracks[feature].last_stop):
            delivered = stop.head
        head = ports.workspace.target_head(None, state.started.base)
        return head if head and delivered and ports.workspace.contains(head, delivered) else None

    def record_change(self, event: ForgeChange) -> None:
        """Record a change that a forge poll found, unless it is recorded already."""
        track = self.state.tracks.get(event.feature)
        if isinstance(event, FeatureMerged):
            is_new = event.feature not in self.state.merged_heads
        else:
            is_new = track is not None and is_held_for(track, Hold.CHECKS)
        if is_new:
            self.append((event,))

    def worker_stopped(self, feature_loop: FeatureLoop) -> None:
        """Record that a feature's thread ended. A feature with a new message stays active, to be driven again."""
        self.apply_decisions()
        stopped, stopping = feature_loop.stopped_event(), self.is_stopping()
        if feature_loop.has_messages():
            stopped = replace(stopped, status=FeatureOutcome.INTERRUPTED, hold=None, until_us=None, code=None)
        if stopping or stopped.status is not FeatureOutcome.INTERRUPTED:
            self.append((stopped,))

    def read_inbox(self) -> None:
        """Accept or reject the messages that people have posted since the last time, in order."""
        for recorded in self.store.read(inbox_stream(self.run), self.state.inbox_version):
            accepted = self._accepted_events(recorded.event)
            rejection_code = "" if accepted else "not-waiting"
            event = InboxRead(version=recorded.version, accepted=bool(accepted), rejection_code=rejection_code)
            self.append((event, *accepted))

    def _accepted_events(self, event: Event) -> tuple[Event, ...]:
        """Return the events that a message leads to; none if it comes too late or makes no sense."""
        tracks = self.state.tracks
        match event:
            case AnswerPosted(feature=feature) if feature in tracks:
                stop = tracks[feature].stop
                # An answer must not apply to a later question.
                if stop and stop.status is FeatureOutcome.WAITING and event.question in (None, stop.version):
                    return (AnswerAccepted(feature=feature, verdict=event.verdict, note=event.note, actor=event.actor),)
            case RetryPosted(feature=feature) if feature in tracks:
                stop = tracks[feature].stop
                if stop and stop.status in (DELIVERED_OUTCOMES if event.keeps_tree else RETRIABLE_OUTCOMES):
                    return (RetryAccepted(**asdict(event)),)
            case PausePosted(actor=who) if not self.is_stopping() and not self.state.all_ended:
                return (RunPaused(actor=who),)
            case ResumePosted() if self.state.paused and not self.state.is_ending:
                return (RunResumed(mz_version=VERSION),)
            case CancelPosted(feature=None) if self.pins.pipeline.kind_from("cancel"):
                last, started = tracks.get(self.state.closing_item), self.state.started
                has_landed = started is not None and started.base in self.state.branch_heads
                if last is not None and not last.has_ended and has_landed:
                    return ()  # What it does is done: the base has the work.
                return (RunClosing(how="cancel", note=event.note, actor=event.actor),)
            case CancelPosted(feature=feature) if feature is None or feature in tracks:
                cancelled: list[Event] = []
                for name in (FeatureId(name) for name in (tracks if feature is None else [feature])):
                    if not tracks[name].has_ended:
                        cancelled.append(CancelAccepted(feature=name, note=event.note, actor=event.actor))
                        if not tracks[name].admitted:  # It has no thread that could record its end.
                            cancelled.append(FeatureStopped(feature=name, version=0, status=FeatureOutcome.CANCELLED))
                return tuple(cancelled)
        return ()

    def append(self, events: tuple[Event, ...], *feature_appends: Append) -> tuple[Recorded[Event], ...]:
        """Append events to the run's stream, and with them others to streams of features."""
        appends = (Append(self.stream, self.state.version, events), *feature_appends)
        recorded = self.store.append(appends, self.clock.now_us())
        for event in recorded:
            if event.stream == self.stream:
                self.state = evolve_run(self.state, event)
            self.observe(event)
        return recorded


def _all_checks_ended(state: State, forge: Forge) -> bool:
    """Return True if all CI checks that the feature is held for have ended, so that it should poll them itself."""
    match state:
        case Held(suspended=InPhase(unit_run=UnitRun(last_poll=ChecksPolled(commit_known=True, pending=0)))):
            return False  # It waits until no more can appear.
        case Held(suspended=InPhase(progress=progress, unit_run=UnitRun(pull_request_number=int(number)))):
            checks = forge.checks(number, progress.head)
            return bool(checks) and all(check.state != "pending" for check in checks or ())
    return False
