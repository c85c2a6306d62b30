"""Folds the stream of a run into the state shared by its features: items, slots, claims, money, halts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallHeld, CallReserved, CallSettled
from mz_events.catalog.run import (
    AnswerGiven,
    BudgetChanged,
    CancelGiven,
    ChecksChanged,
    ClaimCompared,
    FeatureAdmitted,
    FeatureMerged,
    FeatureReleased,
    FeatureRested,
    FilesClaimed,
    FilesContended,
    Hold,
    InboxTaken,
    ItemAdded,
    ItemHeld,
    ItemSkipped,
    Rest,
    RetryGiven,
    RunFinished,
    RunForked,
    RunHalted,
    RunPaused,
    RunRested,
    RunResumed,
    RunStarted,
    RunStopped,
    TimerFired,
)
from mz_events.envelope import Recorded
from mz_events.names import Commit, FeatureId, Path

Message = FeatureAdmitted | FeatureReleased | TimerFired | ChecksChanged | AnswerGiven | CancelGiven | RetryGiven
"""A message of the run to a feature."""
ENDED = frozenset({Rest.DELIVERED, Rest.MERGED, Rest.TAGGED, Rest.FAILED, Rest.CANCELLED})
DELIVERED = frozenset({Rest.DELIVERED, Rest.MERGED, Rest.TAGGED})
RETRIABLE = frozenset({Rest.FAILED, Rest.CANCELLED, Rest.WAITING, Rest.HELD})
"""A person may retry these."""


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """One item, from the run's view."""

    item: ItemAdded
    admitted: bool = False
    active: bool = False
    """Running, or ready to run as soon as there is a slot."""
    rested: FeatureRested | None = None
    """The last stop; kept while the feature is active again."""
    held_by: FeatureId | None = None
    """The dependency that failed."""
    messages: tuple[tuple[int, Message], ...] = ()
    """The run's messages to it, with the versions to cite."""
    claim: tuple[Path, ...] | None = None
    contended: FilesContended | None = None
    wanted_nanousd: int | None = None
    """Amount requested by a call over budget."""
    spent_nanousd: int = 0
    reserved: dict[str, int] = {}
    """By key of the call."""
    compared: bool = False
    pardoned: bool = False
    """The run was resumed after this feature's fatal problem."""

    @property
    def ended(self) -> bool:
        return not self.active and self.rested is not None and self.rested.status in ENDED

    @property
    def delivered(self) -> bool:
        return self.ended and self.rested is not None and self.rested.status in DELIVERED

    @property
    def committed_nanousd(self) -> int:
        """Charged and reserved."""
        return self.spent_nanousd + sum(self.reserved.values())


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    started: RunStarted | None = None
    forked: RunForked | None = None
    """The event that the run was forked from."""
    tracks: dict[str, Track] = {}
    """By feature, in the order in which items were added."""
    skipped: dict[str, ItemSkipped] = {}
    halted: RunHalted | None = None
    stopped: bool = False
    paused: bool = False
    """Current calls finish, and the process waits for a resume."""
    merged: dict[str, Commit] = {}
    """By feature with a merged pull request: head of the base branch including the merge, the latest last."""
    resting: bool = False
    finished: bool = False
    budget: BudgetChanged | None = None
    """Replaces the pinned one."""
    inbox_version: int = 0
    version: int = 0

    @property
    def committed_nanousd(self) -> int:
        return sum(track.committed_nanousd for track in self.tracks.values())

    @property
    def all_ended(self) -> bool:
        return all(track.ended for track in self.tracks.values())


def fold_run(events: Iterable[Recorded[Event]]) -> RunState:
    return reduce(evolve_run, events, RunState())


def evolve_run(state: RunState, recorded: Recorded[Event]) -> RunState:
    """Return the next state. Total: an event unknown to the run's stream changes only the version."""
    state = replace(state, version=recorded.version)
    event = recorded.event
    match event:
        case RunStarted():
            return replace(state, started=event)
        case RunForked():
            return replace(state, forked=event)
        case ItemAdded(feature=feature):
            return replace(state, tracks={**state.tracks, feature: Track(item=event)}, finished=False)
        case ItemSkipped(feature=feature):
            return replace(state, skipped={**state.skipped, feature: event})
        case RunResumed():
            return _resumed(state)
        case RunHalted():
            return replace(state, halted=event)
        case RunStopped():
            return replace(state, stopped=True)
        case BudgetChanged():
            return replace(state, budget=event)
        case RunPaused():
            return replace(state, paused=True)
        case FeatureMerged(feature=feature, head=head):
            return replace(state, merged={**state.merged, feature: head}, resting=False)
        case RunRested():
            return replace(state, resting=True)
        case RunFinished():
            return replace(state, finished=True)
        case InboxTaken(version=version):
            return replace(state, inbox_version=version)
    track = state.tracks.get(getattr(event, "feature", ""))
    if track is None:
        return state
    if isinstance(event, RetryGiven):
        state = replace(state, finished=False)
    return replace(state, resting=False, tracks={**state.tracks, track.item.feature: _track(track, recorded)})


def _resumed(state: RunState) -> RunState:
    """Reactivate features interrupted by a stop or a fatal problem."""
    tracks = {}
    for feature, track in state.tracks.items():
        stopped = track.rested is not None and track.rested.status is Rest.STOPPED
        fatal = held_for(track, Hold.FATAL)
        tracks[feature] = replace(track, active=track.active or stopped, pardoned=fatal)
    return replace(state, tracks=tracks, halted=None, stopped=False, paused=False, resting=False, finished=False)


def _track(track: Track, recorded: Recorded[Event]) -> Track:
    event = recorded.event
    match event:
        case RetryGiven() if not track.admitted:
            return replace(track, rested=None, held_by=None)
        case (
            FeatureAdmitted()
            | FeatureReleased()
            | TimerFired()
            | ChecksChanged()
            | AnswerGiven()
            | CancelGiven()
            | RetryGiven()
        ):
            messages = (*track.messages, (recorded.version, event))
            track = replace(track, claim=None) if isinstance(event, RetryGiven) else track
            return replace(
                track,
                messages=messages,
                active=True,
                admitted=track.admitted or isinstance(event, FeatureAdmitted),
                held_by=None,
            )
        case FeatureRested():
            return replace(track, active=False, rested=event, pardoned=False)
        case ItemHeld(because=because):
            return replace(track, held_by=because)
        case FilesClaimed(paths=paths):
            return replace(track, claim=paths, contended=None)
        case FilesContended():
            return replace(track, contended=event, claim=None)
        case ClaimCompared():
            return replace(track, compared=True)
        case CallReserved(key=key, nanousd=nanousd):
            return replace(track, reserved={**track.reserved, key: nanousd or 0}, wanted_nanousd=None)
        case CallHeld(nanousd=nanousd):
            return replace(track, wanted_nanousd=nanousd or 0)
        case CallSettled(key=key, nanousd=nanousd):
            reserved = {other: amount for other, amount in track.reserved.items() if other != key}
            return replace(track, reserved=reserved, spent_nanousd=track.spent_nanousd + nanousd)
    return track


def over(state: RunState, letters: int) -> bool:
    """Return True if the run is finished and its inbox, at version `inbox_version`, is fully processed."""
    return state.finished and letters <= state.inbox_version


def held_for(track: Track, hold: Hold) -> bool:
    """Return True if the feature is held for this reason."""
    return not track.active and track.rested is not None and track.rested.hold is hold
