"""Folds the stream of a run into the state shared by its features: items, slots, claims, money, halts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallOverBudget, CallReserved, CallSettled
from mz_events.catalog.delivery import BranchLanded
from mz_events.catalog.run import (
    AnswerAccepted,
    BaseTested,
    BranchAdopted,
    BudgetChanged,
    CancelAccepted,
    ChecksChanged,
    ClaimCompared,
    ClaimRejected,
    CommandsChanged,
    CycleEnded,
    CyclesAllowed,
    CycleStarted,
    FeatureAdmitted,
    FeatureMerged,
    FeatureOutcome,
    FeatureReleased,
    FeatureStopped,
    FilesClaimed,
    Hold,
    InboxRead,
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
from mz_events.names import Commit, Digest, FeatureId, Path
from mz_events.store import Recorded

from mz_projections.run.spending import Amount, total

RunMessage = (
    FeatureAdmitted
    | FeatureReleased
    | TimerFired
    | ChecksChanged
    | AnswerAccepted
    | CancelAccepted
    | RetryAccepted
    | ItemRequeued
)
"""A message of the run to a feature."""
DELIVERED_OUTCOMES = frozenset(
    {FeatureOutcome.DELIVERED, FeatureOutcome.MERGED, FeatureOutcome.TAGGED, FeatureOutcome.DONE}
)
ENDED_OUTCOMES = DELIVERED_OUTCOMES | {FeatureOutcome.FAILED, FeatureOutcome.CANCELLED}
RETRIABLE_OUTCOMES = frozenset(
    {FeatureOutcome.FAILED, FeatureOutcome.CANCELLED, FeatureOutcome.WAITING, FeatureOutcome.HELD}
)
"""A person may retry these."""


class FeatureTrack(msgspec.Struct, frozen=True, kw_only=True):
    """One item, from the run's view."""

    item: ItemAdded
    admitted: bool = False
    active: bool = False
    """Running, or ready to run as soon as there is a slot."""
    last_stop: FeatureStopped | None = None
    """The last stop; kept while the feature is active again."""
    held_by: FeatureId | None = None
    """The dependency that failed."""
    messages: tuple[tuple[int, RunMessage], ...] = ()
    """The run's messages to it, with the versions to cite."""
    claim: tuple[Path, ...] | None = None
    claim_rejection: ClaimRejected | None = None
    over_budget: CallOverBudget | None = None
    """The last call over budget, unless one was reserved since."""
    charged: Amount = Amount()
    reservations: dict[str, Amount] = {}
    """By key of the call."""
    claim_compared: bool = False
    attempts: int = 1
    """How often it was begun, by the run."""
    cycle: int = 0
    """The cycle in which it was added or begun again."""
    was_resumed: bool = False
    """The run was resumed, and the feature has neither been released nor called an agent since: a fatal problem, or
    what the day's budget had left, is from before."""

    @property
    def stop(self) -> FeatureStopped | None:
        """The stop at which it rests; None while it is active, and before the first."""
        return None if self.active else self.last_stop

    @property
    def has_ended(self) -> bool:
        return self.stop is not None and self.stop.status in ENDED_OUTCOMES

    @property
    def is_delivered(self) -> bool:
        return self.stop is not None and self.stop.status in DELIVERED_OUTCOMES

    @property
    def committed(self) -> Amount:
        """Charged and reserved."""
        return total((self.charged, *self.reservations.values()))


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    started: RunStarted | None = None
    fork: RunForked | None = None
    """The event that the run was forked from."""
    tracks: dict[str, FeatureTrack] = {}
    """By feature, in the order in which items were added."""
    skipped: dict[str, ItemSkipped] = {}
    halt: RunHalted | None = None
    stop_requested: bool = False
    paused: bool = False
    """Current calls finish, and the process waits for a resume."""
    merged_heads: dict[str, Commit] = {}
    """By feature that was merged, by a pull request or by a step of delivery: head of the base branch including the
    merge, the latest last."""
    idle: bool = False
    finished: bool = False
    budget: BudgetChanged | None = None
    """Replaces the pinned one."""
    base_test: BaseTested | None = None
    """None: the present commands were not tested on the base."""
    commands: Digest | None = None
    """Blob: the commands that replace the pinned ones."""
    cycle: int = 0
    """The latest cycle; 0: none began."""
    in_cycle: bool = False
    """It has not ended."""
    over: str = ""
    """Why no cycle follows; empty: one may follow."""
    unchanged_cycles: int = 0
    """Cycles in a row in which nothing was delivered."""
    cycles_until: int | None = None
    """The last cycle, as a person said; None: as the settings say."""
    branch_heads: dict[str, Commit] = {}
    """Newest commits of branches that items were merged into, or whose commits of people were adopted."""
    closing: RunClosing | None = None
    """A person ends the run."""
    closing_item: str = ""
    """The last item, once it is added."""
    inbox_version: int = 0
    version: int = 0

    @property
    def needs_base_test(self) -> bool:
        """Return True before the first call of a run that is no fork, and after commands were corrected."""
        is_new = self.fork is None and not any(track.admitted for track in self.tracks.values())
        if self.base_test is None:
            return is_new or self.commands is not None
        return bool(self.base_test.unusable)

    @property
    def committed(self) -> Amount:
        return total(track.committed for track in self.tracks.values())

    @property
    def committed_nanousd(self) -> int:
        return self.committed.nanousd

    @property
    def is_ending(self) -> bool:
        """After a halt or the user's stop: the process ends as soon as no feature works."""
        return self.halt is not None or self.stop_requested

    @property
    def all_ended(self) -> bool:
        return all(track.has_ended for track in self.tracks.values())


def fold_run(events: Iterable[Recorded[Event]]) -> RunState:
    return reduce(evolve_run, events, RunState())


def evolve_run(state: RunState, recorded: Recorded[Event]) -> RunState:
    """Return the next state. Total: an event unknown to the run's stream changes only the version."""
    state = replace(state, version=recorded.version)
    event = recorded.event
    match event:
        case CallReserved() | CallSettled():
            pass  # Of a feature. First, because they are frequent: a class pattern that does not match takes time.
        case RunStarted():
            return replace(state, started=event)
        case RunForked():
            return replace(state, fork=event)
        case ItemAdded(feature=feature):
            tracks = {**state.tracks, feature: FeatureTrack(item=event, cycle=event.cycle)}
            over, last = "" if event.cycle == 0 else state.over, feature if state.closing else state.closing_item
            return replace(state, tracks=tracks, finished=False, idle=False, over=over, closing_item=last)
        case CycleStarted(cycle=cycle):
            return replace(state, cycle=cycle, in_cycle=True, idle=False)
        case CycleEnded(over=over, delivered=delivered):
            unchanged = 0 if delivered else state.unchanged_cycles + 1
            return replace(state, in_cycle=False, over=over, unchanged_cycles=unchanged)
        case CyclesAllowed(until=until):
            return replace(state, cycles_until=until, over="", unchanged_cycles=0, idle=False)
        case BranchAdopted(branch=branch, commit=commit) | BranchLanded(branch=branch, commit=commit):
            return replace(state, branch_heads={**state.branch_heads, branch: commit})
        case RunClosing():
            return replace(state, closing=event, closing_item="", idle=False)
        case ItemSkipped(feature=feature):
            return replace(state, skipped={**state.skipped, feature: event})
        case RunResumed():
            return _resume(state)
        case RunHalted():
            return replace(state, halt=event)
        case RunStopRequested():
            return replace(state, stop_requested=True)
        case BudgetChanged():
            return replace(state, budget=event)
        case BaseTested():
            return replace(state, base_test=event)
        case CommandsChanged(commands=commands):
            return replace(state, commands=commands, base_test=None)
        case RunPaused():
            return replace(state, paused=True)
        case FeatureMerged(feature=feature, head=head):
            return replace(state, merged_heads={**state.merged_heads, feature: head}, idle=False)
        case RunIdle():
            return replace(state, idle=True)
        case RunFinished():
            return replace(state, finished=True)
        case InboxRead(version=version):
            return replace(state, inbox_version=version)
    track = state.tracks.get(getattr(event, "feature", ""))
    if track is None:
        return state
    if isinstance(event, RetryAccepted):
        state = replace(state, finished=False)
    if isinstance(event, FeatureStopped) and event.status is FeatureOutcome.MERGED and event.head is not None:
        state = replace(state, merged_heads={**state.merged_heads, event.feature: event.head})
    return replace(state, idle=False, tracks={**state.tracks, track.item.feature: _evolve_track(track, recorded)})


def _resume(state: RunState) -> RunState:
    """Reactivate features interrupted by a stop or a fatal problem."""
    tracks = {}
    for feature, track in state.tracks.items():
        interrupted = track.last_stop is not None and track.last_stop.status is FeatureOutcome.INTERRUPTED
        tracks[feature] = replace(track, active=track.active or interrupted, was_resumed=True)
    last = state.tracks.get(state.closing_item)
    if last is not None and last.has_ended and not last.is_delivered:
        state = replace(state, closing=None, closing_item="")
    if state.idle and state.cycles_until is not None:  # An interrupted run keeps the limit.
        state = replace(state, cycles_until=None, over="" if state.over == "cycles" else state.over)
    return replace(state, tracks=tracks, halt=None, stop_requested=False, paused=False, idle=False, finished=False)


def _evolve_track(track: FeatureTrack, recorded: Recorded[Event]) -> FeatureTrack:
    event = recorded.event
    match event:
        case CallReserved(key=key, nanousd=nanousd, tokens=tokens):
            reservations = {**track.reservations, key: Amount(nanousd=nanousd or 0, tokens=tokens)}
            return replace(track, reservations=reservations, over_budget=None, was_resumed=False)
        case CallSettled(key=key, nanousd=nanousd, tokens=tokens):
            reserved = {other: amount for other, amount in track.reservations.items() if other != key}
            return replace(track, reservations=reserved, charged=track.charged + Amount(nanousd=nanousd, tokens=tokens))
        case RetryAccepted() if not track.admitted:
            return replace(track, last_stop=None, held_by=None)
        case message if isinstance(message, RunMessage):
            messages, admitted = (*track.messages, (recorded.version, message)), isinstance(event, FeatureAdmitted)
            track = replace(track, claim=None, claim_compared=False) if isinstance(event, RetryAccepted) else track
            track = replace(track, was_resumed=False) if isinstance(event, FeatureReleased) else track
            if isinstance(event, ItemRequeued):
                track = replace(track, attempts=event.attempt, cycle=event.cycle, claim=None, claim_compared=False)
            return replace(track, messages=messages, active=True, admitted=track.admitted or admitted, held_by=None)
        case FeatureStopped():
            return replace(track, active=False, last_stop=event)
        case ItemHeld(blocked_by=blocked_by):
            return replace(track, held_by=blocked_by)
        case FilesClaimed(paths=paths):
            return replace(track, claim=paths, claim_rejection=None)
        case ClaimRejected():
            return replace(track, claim_rejection=event, claim=None)
        case ClaimCompared():
            return replace(track, claim_compared=True)
        case CallOverBudget():
            return replace(track, over_budget=event)
    return track


def is_complete(state: RunState, inbox_version: int) -> bool:
    """Return True if the run is finished and its inbox, at version `inbox_version`, is fully processed."""
    return state.finished and inbox_version <= state.inbox_version


def is_held_for(track: FeatureTrack, hold: Hold) -> bool:
    """Return True if the feature is held for this reason."""
    return track.stop is not None and track.stop.hold is hold
