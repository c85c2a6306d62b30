"""Decisions that concern several features: order, slots, dependencies, claims, money, halts, the end of the run.

`decide_run` reads only the stream of the run. `reserve_money` and `claim_files` answer requests of features.
"""

from __future__ import annotations

from itertools import product
from typing import Literal

import msgspec
from msgspec.structs import asdict, replace
from mz_events.catalog.call import CallOverBudget, CallReserved
from mz_events.catalog.run import (
    CancelAccepted,
    ClaimCompared,
    ClaimRejected,
    FeatureAdmitted,
    FeatureReleased,
    FilesClaimed,
    Hold,
    ItemHeld,
    RunFinished,
    RunHalted,
    RunIdle,
)
from mz_events.names import FeatureId, Path
from mz_projections.run.fold import FeatureTrack, RunState, is_held_for
from mz_projections.run.spending import Amount, DaySpending, free_at_us, total

from mz_engine.decide.items import ItemAction, begin_or_end, continue_cycles, is_begun, is_over, start_commit
from mz_engine.model.config import Budget
from mz_engine.model.pins import Pins
from mz_engine.path_patterns import matches
from mz_engine.ports import OWN_PROBLEMS


class AwaitEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Wait for an event: features are at work, or a timer runs."""

    until_us: int | None
    """The earliest timer."""


class ForgePoll(msgspec.Struct, frozen=True):
    """A regular question to the forge. Only a reply that changes something becomes an event."""

    subject: Literal["checks", "merge"]
    feature: FeatureId


EndEvent = RunFinished | RunIdle
RunAction = (
    FeatureAdmitted | ItemHeld | FeatureReleased | ClaimCompared | RunHalted | ItemAction | AwaitEvents | EndEvent
)
"""Events are appended to the run's stream as they are."""


def decide_run(state: RunState, pins: Pins, begins_cycles: bool = True) -> RunAction:
    """Return the action of the first rule that applies. Rules that only record come first; work needs a free slot."""
    may_begin = not (state.is_ending or state.paused)
    return (
        _compare_claims(state, pins)
        or _halt_run(state)
        or ((begin_or_end(state, pins) or _start_or_release(state, pins)) if may_begin else None)
        or _await_events(state)
        or (continue_cycles(state, pins) if may_begin and begins_cycles else None)
        or (RunFinished() if state.all_ended and is_over(state, pins) else RunIdle())
    )


def _compare_claims(state: RunState, pins: Pins) -> RunAction | None:
    """Compare what a delivered feature claimed and changed, without the pipeline's papers."""
    for feature, track in state.tracks.items():
        if track.claim is not None and not track.claim_compared and track.stop is not None and track.is_delivered:
            papers = pins.pipeline.paper_patterns(feature)
            claimed = set(track.claim)
            changed_paths = {path for path in track.stop.changed_paths if not matches(papers, path)}
            groups = claimed & changed_paths, claimed - changed_paths, changed_paths - claimed
            confirmed, unused, missed = (tuple(sorted(paths)) for paths in groups)
            return ClaimCompared(feature=FeatureId(feature), confirmed=confirmed, unused=unused, missed=missed)
    return None


def _halt_run(state: RunState) -> RunAction | None:
    if state.halt is not None:
        return None
    for feature, track in state.tracks.items():
        if (stop := track.stop) and stop.hold is Hold.FATAL and stop.code not in OWN_PROBLEMS and not track.was_resumed:
            return RunHalted(feature=FeatureId(feature), code=stop.code or "unknown")
    return None


def _start_or_release(state: RunState, pins: Pins) -> RunAction | None:
    for feature, track in state.tracks.items():
        failed_dependency = _failed_dependency(state, track) if track.item.depends_on and not track.admitted else None
        if failed_dependency is not None and track.held_by != failed_dependency and not track.has_ended:
            return ItemHeld(feature=FeatureId(feature), blocked_by=failed_dependency)
    active = [track for track in state.tracks.values() if track.active]
    if len(active) >= pins.config.parallel_max:
        return None
    # Started features first, then by priority, then as listed.
    for track in sorted(
        state.tracks.values(), key=lambda track: (not track.admitted, track.item.priority, track.item.order)
    ):
        if _is_releasable(state, track, pins):
            assert track.last_stop is not None
            assert track.last_stop.hold is not None
            return FeatureReleased(feature=track.item.feature, hold=track.last_stop.hold)
        if not track.admitted and not track.has_ended and _is_ready(state, track, active, pins):
            return _admit(state, track, pins)
    return None


def _is_ready(state: RunState, track: FeatureTrack, active: list[FeatureTrack], pins: Pins) -> bool:
    """Return True if every dependency is delivered, by any run, and merged if the pipeline requires that, and the kind
    allows one more beside those that are worked on."""
    kind = pins.pipeline.find_kind(track.item.kind)
    if kind.parallel is not None:
        others = [other for other in active if other.item.kind == kind.kind]
        if len(others) >= pins.config.limits.resolve(kind.parallel):
            return False
        if any(not set(track.item.files).isdisjoint(other.item.files) for other in others):
            return False
    if "start" not in kind.sources and state.closing is None and not is_begun(state, pins):
        return False
    if pins.pipeline.dependencies == "merged":
        return state.merged_heads.keys() >= set(track.item.depends_on)
    return all(name not in state.tracks or state.tracks[name].is_delivered for name in track.item.depends_on)


def _admit(state: RunState, track: FeatureTrack, pins: Pins) -> FeatureAdmitted:
    kind = pins.pipeline.find_kind(track.item.kind)
    stops = (
        state.tracks[name].last_stop if name in state.tracks else state.skipped.get(name)
        for name in track.item.depends_on
    )
    heads = [stop.head for stop in stops if stop is not None and stop.head is not None]
    if (begins_at := start_commit(state, pins, kind, track.item.feature)) is not None:
        return FeatureAdmitted(feature=track.item.feature, starts_from=(begins_at,))
    if pins.pipeline.dependencies == "merged":
        newest = [head for dependency, head in state.merged_heads.items() if dependency in track.item.depends_on][-1:]
        return FeatureAdmitted(feature=track.item.feature, starts_from=tuple(newest), stacked_on=None)
    can_stack = len(track.item.depends_on) == 1 and heads and pins.pipeline.of_kind(kind.kind).ending != "merged"
    stacked_on = track.item.depends_on[0] if can_stack else None
    return FeatureAdmitted(feature=track.item.feature, starts_from=tuple(heads), stacked_on=stacked_on)


def _failed_dependency(state: RunState, track: FeatureTrack) -> FeatureId | None:
    for name in track.item.depends_on:
        dependency = state.tracks.get(name)
        if dependency and (dependency.held_by is not None or (dependency.has_ended and not dependency.is_delivered)):
            return name
    return None


def _is_releasable(state: RunState, track: FeatureTrack, pins: Pins) -> bool:
    if is_held_for(track, Hold.FATAL):
        return track.was_resumed
    if is_held_for(track, Hold.CLAIM):
        rejection = track.claim_rejection
        return rejection is not None and _claim_holder(state, track.item.feature, rejection.paths) is None
    if is_held_for(track, Hold.BUDGET):
        call = track.over_budget
        if call is not None and call.budget.startswith("day"):
            return track.was_resumed  # Only the next reservation finds what is left of the day.
        return call is None or exceeded_budget(state, call, pins, ()) is None
    return False


def _await_events(state: RunState) -> RunAction | None:
    timers = [until_us for track in state.tracks.values() if (until_us := timer_us(track)) is not None]
    if state.paused and not state.is_ending and not state.all_ended:
        return AwaitEvents(until_us=None)
    if any(track.active for track in state.tracks.values()) or (timers and not state.is_ending):
        return AwaitEvents(until_us=min(timers, default=None) if not state.is_ending else None)
    return None


def runnable_features(state: RunState, driven: frozenset[str], parallel_max: int) -> tuple[FeatureId, ...]:
    """Return active features without a thread, up to the free slots; during a pause only those that must record a
    cancellation."""
    if state.is_ending or len(driven) >= parallel_max:
        return ()
    active = [FeatureId(feature) for feature, track in state.tracks.items() if track.active]
    candidates = [
        feature for feature in (cancelled_features(state) if state.paused else active) if feature not in driven
    ]
    return tuple(candidates[: parallel_max - len(driven)])


def cancelled_features(state: RunState) -> tuple[FeatureId, ...]:
    """Return active features that must record a cancellation."""
    return tuple(
        FeatureId(feature)
        for feature, track in state.tracks.items()
        if track.active and any(isinstance(message, CancelAccepted) for _, message in track.messages[-1:])
    )


def timer_us(track: FeatureTrack) -> int | None:
    """Return when a held feature continues by itself; None: it does not."""
    return track.stop.until_us if track.stop is not None and track.stop.hold in (Hold.TIMER, Hold.CHECKS) else None


def forge_polls(state: RunState, pins: Pins) -> tuple[ForgePoll, ...]:
    """Return polls for CI checks that features are held for, and for pull requests that others must see merged."""
    checks = [ForgePoll("checks", FeatureId(f)) for f, track in state.tracks.items() if is_held_for(track, Hold.CHECKS)]
    if pins.pipeline.dependencies != "merged":
        return tuple(checks)
    unmerged = dict.fromkeys(
        dependency
        for track in state.tracks.values()
        if not track.admitted and not track.has_ended
        for dependency in track.item.depends_on
        if dependency not in state.merged_heads
        and (dependency not in state.tracks or state.tracks[dependency].is_delivered)
    )
    return (*checks, *(ForgePoll("merge", dependency) for dependency in unmerged))


def due_features(state: RunState, now_us: int) -> tuple[FeatureId, ...]:
    """Return features whose timer has expired."""
    timers = ((FeatureId(feature), timer_us(track)) for feature, track in state.tracks.items())
    return tuple(feature for feature, until_us in timers if until_us is not None and until_us <= now_us)


# requests of features -------------------------------------------------------------------------------------------------
def current_limits(state: RunState, pins: Pins) -> Budget:
    return Budget(**asdict(state.budget)) if state.budget else pins.config.budget


def exceeded_budget(state: RunState, call: CallOverBudget, pins: Pins, day: DaySpending) -> CallOverBudget | None:
    """Return the call with the first budget that it does not fit into; None: it fits into all."""
    limits, needed, track = current_limits(state, pins), call_amount(call), state.tracks[call.feature]
    committed = {"call": Amount(), "feature": track.committed, "run": state.committed, "day": total(day)}
    for budget, unit in product(committed, Amount.__struct_fields__):
        limit, spent = getattr(limits, f"{budget}_{unit}"), getattr(committed[budget], unit)
        if limit is not None and spent + getattr(needed, unit) > limit:
            setting = budget if unit == "nanousd" else f"{budget}_{unit}"
            until_us = free_at_us(day, unit, limit - getattr(needed, unit)) if budget == "day" else None
            return replace(call, budget=setting, limit=int(limit), committed=spent, until_us=until_us)
    return None


def call_amount(call: CallReserved | CallOverBudget) -> Amount:
    return Amount(nanousd=call.nanousd or 0, tokens=call.tokens)


def reserve_money(state: RunState, call: CallOverBudget, pins: Pins, day: DaySpending) -> CallReserved | CallOverBudget:
    """Reserve what a call may spend: its estimate or, if there is one and it is higher, the budget of a call. A model
    without a price has no estimate: its cost is unknown. To reserve the same again gives the same."""
    limits = current_limits(state, pins)
    if limits.call_nanousd is not None:
        call = replace(call, nanousd=max(call.nanousd or 0, int(limits.call_nanousd)))
    call = replace(call, tokens=max(call.tokens, limits.call_tokens or 0))
    reserved = CallReserved(feature=call.feature, key=call.key, nanousd=call.nanousd, tokens=call.tokens)
    return exceeded_budget(state, call, pins, day) or reserved


def claim_files(
    state: RunState, feature: FeatureId, phase: str, paths: tuple[Path, ...]
) -> FilesClaimed | ClaimRejected:
    """Claim files for a feature, all or none; rejected while another unfinished feature has claimed one of them."""
    holder = _claim_holder(state, feature, paths)
    if holder is None:
        return FilesClaimed(feature=feature, phase=phase, paths=paths)
    return ClaimRejected(feature=feature, phase=phase, paths=paths, holder=holder)


def _claim_holder(state: RunState, feature: FeatureId, paths: tuple[Path, ...]) -> FeatureId | None:
    claimed = set(paths)
    for other, track in state.tracks.items():
        if other != feature and track.claim is not None and not track.has_ended and claimed & set(track.claim):
            return FeatureId(other)
    return None
