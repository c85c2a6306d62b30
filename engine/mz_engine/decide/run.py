"""Decisions that concern several features: order, slots, dependencies, claims, money, halts, the end of the run.

`decide_run` reads only the stream of the run. `reserve_money` and `claim_files` answer requests of features.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from mz_events.catalog.call import AgentRequested, CallHeld, CallReserved
from mz_events.catalog.run import CancelGiven, FilesClaimed, FilesContended, Hold
from mz_events.names import Commit, FeatureId, Path
from mz_projections.run import RunState, Track, held_for

from mz_engine.pins import Pins


class RunCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the actions."""


class Admit(RunCommand, frozen=True):
    feature: FeatureId
    starts_from: tuple[Commit, ...]
    """Empty: the base commit."""
    onto: FeatureId | None


class HoldItem(RunCommand, frozen=True):
    feature: FeatureId
    because: FeatureId


class Release(RunCommand, frozen=True):
    feature: FeatureId
    hold: Hold


class CompareClaim(RunCommand, frozen=True):
    feature: FeatureId
    confirmed: tuple[Path, ...]
    unused: tuple[Path, ...]
    missed: tuple[Path, ...]


class Halt(RunCommand, frozen=True):
    feature: FeatureId
    code: str


class Await(RunCommand, frozen=True):
    """Wait for an event: features are at work, or a timer runs."""

    until_us: int | None
    """The earliest timer."""


class RestRun(RunCommand, frozen=True):
    """Declare the run idle: nothing can continue by itself."""


class FinishRun(RunCommand, frozen=True):
    """Declare the run finished: every item has ended."""


class Watch(msgspec.Struct, frozen=True):
    """A regular question to the forge. Only a reply that changes something becomes an event."""

    what: Literal["checks", "merge"]
    feature: FeatureId


RunAction = Admit | HoldItem | Release | CompareClaim | Halt | Await | RestRun | FinishRun


def decide_run(state: RunState, pins: Pins) -> RunAction:
    """Return the action of the first rule that applies. Rules that only record come first; work needs a free slot."""
    return (
        _compare(state)
        or _halt(state)
        or (_start(state, pins) if not (state.halted or state.stopped or state.paused) else None)
        or _wait(state)
        or (FinishRun() if state.all_ended else RestRun())
    )


def _compare(state: RunState) -> RunAction | None:
    for feature, track in state.tracks.items():
        if track.claim is not None and not track.compared and track.rested is not None and track.delivered:
            claimed, touched = set(track.claim), set(track.rested.touched)
            return CompareClaim(
                feature=FeatureId(feature),
                confirmed=tuple(sorted(claimed & touched)),
                unused=tuple(sorted(claimed - touched)),
                missed=tuple(sorted(touched - claimed)),
            )
    return None


def _halt(state: RunState) -> RunAction | None:
    if state.halted is not None:
        return None
    for feature, track in state.tracks.items():
        if track.rested is not None and held_for(track, Hold.FATAL) and not track.pardoned:
            return Halt(feature=FeatureId(feature), code=track.rested.code or "unknown")
    return None


def _start(state: RunState, pins: Pins) -> RunAction | None:
    for feature, track in state.tracks.items():
        lost = _lost_dependency(state, track) if track.item.depends_on and not track.admitted else None
        if lost is not None and track.held_by != lost and not track.ended:
            return HoldItem(feature=FeatureId(feature), because=lost)
    if sum([track.active for track in state.tracks.values()]) >= pins.config.parallel_max:
        return None
    for feature, track in sorted(state.tracks.items(), key=_precedence):
        if _releasable(state, track, pins):
            assert track.rested is not None
            assert track.rested.hold is not None
            return Release(feature=FeatureId(feature), hold=track.rested.hold)
        if not track.admitted and not track.ended and _ready(state, track, pins):
            return _admit(state, track, pins)
    return None


def _precedence(entry: tuple[str, Track]) -> tuple[bool, int, int]:
    """Sort key: started features first, then by priority, then as listed."""
    track = entry[1]
    return (not track.admitted, track.item.priority, track.item.order)


def _ready(state: RunState, track: Track, pins: Pins) -> bool:
    """Return True if every dependency is delivered, by any run, and merged if the pipeline requires that."""
    merged = pins.pipeline.dependencies == "merged"
    return all(
        other in state.merged if merged else other not in state.tracks or state.tracks[other].delivered
        for other in track.item.depends_on
    )


def _admit(state: RunState, track: Track, pins: Pins) -> Admit:
    if pins.pipeline.dependencies == "merged":
        newest = [head for other, head in state.merged.items() if other in track.item.depends_on][-1:]
        return Admit(feature=track.item.feature, starts_from=tuple(newest), onto=None)
    heads = []
    for other in track.item.depends_on:
        if other in state.tracks:
            rested = state.tracks[other].rested
            head = rested.head if rested else None
        else:
            head = state.skipped[other].head if other in state.skipped else None
        if head is not None:
            heads.append(head)
    onto = track.item.depends_on[0] if len(track.item.depends_on) == 1 and heads else None
    return Admit(feature=track.item.feature, starts_from=tuple(heads), onto=onto)


def _lost_dependency(state: RunState, track: Track) -> FeatureId | None:
    for other in track.item.depends_on:
        dependency = state.tracks.get(other)
        if dependency is None:
            continue
        if (dependency.ended and not dependency.delivered) or dependency.held_by is not None:
            return other
    return None


def _releasable(state: RunState, track: Track, pins: Pins) -> bool:
    if held_for(track, Hold.FATAL):
        return track.pardoned
    if held_for(track, Hold.CLAIM):
        return track.contended is not None and _holder(state, track.item.feature, track.contended.paths) is None
    if held_for(track, Hold.BUDGET):
        return _fits(state, track, track.wanted_nanousd or 0, pins)
    return False


def _wait(state: RunState) -> RunAction | None:
    timers = [
        track.rested.until_us
        for track in state.tracks.values()
        if track.rested is not None and track.rested.until_us is not None and timed(track)
    ]
    over = state.halted is not None or state.stopped
    if state.paused and not over and not state.all_ended:
        return Await(until_us=None)
    if any(track.active for track in state.tracks.values()) or (timers and not over):
        return Await(until_us=min(timers, default=None) if not over else None)
    return None


def runnable(state: RunState, alive: frozenset[str], parallel_max: int) -> tuple[FeatureId, ...]:
    """Return active features without a thread (`alive` have one), up to the number of free slots.

    During a pause only cancelled ones: they have to record the cancellation.
    """
    if state.halted or state.stopped:
        return ()
    waiting = [
        FeatureId(feature)
        for feature, track in state.tracks.items()
        if track.active and feature not in alive and (not state.paused or _given_up(track))
    ]
    return tuple(waiting[: max(0, parallel_max - len(alive))])


def timed(track: Track) -> bool:
    """Return True if the feature is held and continues by itself after a time."""
    return held_for(track, Hold.TIMER) or held_for(track, Hold.CHECKS)


def watched(state: RunState, pins: Pins) -> tuple[Watch, ...]:
    """Return polls for CI checks that features are held for, and for pull requests that others must see merged."""
    checks = [Watch("checks", FeatureId(f)) for f, track in state.tracks.items() if held_for(track, Hold.CHECKS)]
    if pins.pipeline.dependencies != "merged":
        return tuple(checks)
    unmerged = dict.fromkeys(
        other
        for track in state.tracks.values()
        if not track.admitted and not track.ended
        for other in track.item.depends_on
        if other not in state.merged and (other not in state.tracks or state.tracks[other].delivered)
    )
    return (*checks, *(Watch("merge", other) for other in unmerged))


def _given_up(track: Track) -> bool:
    return bool(track.messages) and isinstance(track.messages[-1][1], CancelGiven)


def due(state: RunState, now_us: int) -> tuple[FeatureId, ...]:
    """Return features whose timer has expired."""
    return tuple(
        FeatureId(feature)
        for feature, track in state.tracks.items()
        if timed(track)
        and track.rested is not None
        and track.rested.until_us is not None
        and track.rested.until_us <= now_us
    )


# requests of features -------------------------------------------------------------------------------------------------
def _fits(state: RunState, track: Track, nanousd: int, pins: Pins) -> bool:
    budget = state.budget or pins.config.budget
    within_run = budget.run_nanousd is None or state.committed_nanousd + nanousd <= budget.run_nanousd
    within_feature = budget.feature_nanousd is None or track.committed_nanousd + nanousd <= budget.feature_nanousd
    return within_run and within_feature


def reserve(state: RunState, feature: FeatureId, request: AgentRequested, pins: Pins) -> CallReserved | CallHeld:
    """Reserve money for a call. A model without a price reserves nothing: its cost is unknown."""
    nanousd = request.estimated_nanousd
    if _fits(state, state.tracks[feature], nanousd or 0, pins):
        return CallReserved(feature=feature, key=request.ref.key, nanousd=nanousd)
    return CallHeld(feature=feature, key=request.ref.key, role=request.ref.role, nanousd=nanousd)


def claim(state: RunState, feature: FeatureId, phase: str, paths: tuple[Path, ...]) -> FilesClaimed | FilesContended:
    """Claim files for a feature, all or none; rejected while another unfinished feature has claimed one of them."""
    holder = _holder(state, feature, paths)
    if holder is None:
        return FilesClaimed(feature=feature, phase=phase, paths=paths)
    return FilesContended(feature=feature, phase=phase, paths=paths, holder=holder)


def _holder(state: RunState, feature: FeatureId, paths: tuple[Path, ...]) -> FeatureId | None:
    claimed = set(paths)
    for other, track in state.tracks.items():
        if other != feature and track.claim is not None and not track.ended and claimed & set(track.claim):
            return FeatureId(other)
    return None
