"""Decisions about items that the run adds itself: the first one, one in each cycle, and the last one when a person ends
the run; and about cycles: what is begun again, and when none follows."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace
from mz_events.catalog.run import (
    CancelAccepted,
    CreatedItem,
    CycleEnded,
    CycleStarted,
    FeatureOutcome,
    FeatureStopped,
    ItemAdded,
    ItemRequeued,
    ItemsAdded,
)
from mz_events.names import Commit, FeatureId, digest_of
from mz_projections.run.fold import DELIVERED_OUTCOMES, FeatureTrack, RunState

from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import ItemKind

OWN_SOURCES = frozenset({"start", "cycle", "finish", "cancel"})
ItemAction = ItemAdded | ItemRequeued | CycleStarted | CycleEnded | CancelAccepted | FeatureStopped


def own_texts(pins: Pins) -> tuple[str, ...]:
    """Return the texts of items that the run adds itself, which are stored when it starts."""
    kinds = [kind.kind for kind in pins.pipeline.items if OWN_SOURCES.intersection(kind.sources)]
    return (*kinds, pins.config.request) if kinds else ()


def created_items(
    state: RunState, pins: Pins, made_by: FeatureId, items: tuple[ItemAdded, ...], duplicates: Mapping[str, FeatureId]
) -> tuple[ItemsAdded, tuple[ItemAdded, ...]]:
    """Return the items that the entries of an artifact become, with ids and dependencies of the run: `t1`, `t2`, ...
    for the kind `task`."""
    assert state.started is not None
    first = 1 + sum(track.item.made_by is not None for track in state.tracks.values())
    ids = {item.feature: FeatureId(f"{item.kind[0]}{number}") for number, item in enumerate(items, first)}
    final: dict[str, FeatureId] = {**duplicates, **{str(name): feature for name, feature in ids.items()}}
    added = tuple(
        replace(
            item,
            feature=ids[item.feature],
            source=f"{state.started.run}#{ids[item.feature]}",
            order=len(state.tracks) + item.order,
            depends_on=tuple(dict.fromkeys(final[name] for name in item.depends_on if name in final)),
            cycle=state.cycle,
            made_by=made_by,
        )
        for item in items
    )
    created = tuple(CreatedItem(id=name, feature=feature) for name, feature in ids.items())
    return ItemsAdded(feature=made_by, added=created, duplicates=tuple(duplicates)), added


def begin_or_end(state: RunState, pins: Pins) -> ItemAction | None:
    """Add the first item before all others; when a person ends the run, cancel what is open, then add the last item."""
    if not pins.pipeline.items or state.started is None:
        return None
    first = pins.pipeline.kind_from("start")
    if first is not None and first.kind not in state.tracks and state.closing is None:
        return _own_item(first, first.kind, state, pins)
    if state.closing is None or state.closing_item:
        return None
    for feature, track in state.tracks.items():
        if not track.has_ended and not any(isinstance(message, CancelAccepted) for _, message in track.messages[-1:]):
            if track.admitted:
                return CancelAccepted(feature=FeatureId(feature), actor=state.closing.actor)
            return FeatureStopped(feature=FeatureId(feature), version=0, status=FeatureOutcome.CANCELLED)
    last = pins.pipeline.kind_from(state.closing.how)
    if last is None or not state.all_ended:
        return None
    number = 1 + sum(track.item.kind == last.kind for track in state.tracks.values())
    return _own_item(last, f"{last.kind}-{number}", state, pins)


def is_begun(state: RunState, pins: Pins) -> bool:
    """Return True unless the item before all others is still to be delivered."""
    first = pins.pipeline.kind_from("start")
    return first is None or (first.kind in state.tracks and state.tracks[first.kind].is_delivered)


def is_over(state: RunState, pins: Pins) -> bool:
    """Return True if the run is finished once every item has ended: not before a person ends it, if it has a last
    item."""
    if pins.pipeline.kind_from("finish") is None:
        return pins.pipeline.cycle is None or state.closing is not None
    closing = state.closing
    if closing is None:
        return False
    if pins.pipeline.kind_from(closing.how) is None:
        return True
    return bool(state.closing_item) and state.tracks[state.closing_item].is_delivered


def continue_cycles(state: RunState, pins: Pins) -> ItemAction | None:
    """Begin or end a cycle when nothing is left to do; in a new one, begin again what failed, then plan."""
    kind, cycle = pins.pipeline.kind_from("cycle"), pins.pipeline.cycle
    if kind is None or cycle is None or state.closing is not None or not is_begun(state, pins):
        return None
    if not all(track.has_ended or track.held_by is not None for track in state.tracks.values()):
        return None
    limit = pins.config.limits.resolve(cycle.max) if state.cycles_until is None else state.cycles_until
    if not state.in_cycle:
        return None if state.over or state.cycle >= limit else CycleStarted(cycle=state.cycle + 1)
    for feature, track in state.tracks.items():
        if track.cycle < state.cycle and may_begin_again(track, pins):
            return ItemRequeued(feature=FeatureId(feature), cycle=state.cycle, attempt=track.attempts + 1)
    plan = f"{kind.kind}-{state.cycle}"
    if plan not in state.tracks:
        return _own_item(kind, plan, state, pins)
    of_cycle = [track for track in state.tracks.values() if track.cycle == state.cycle and track.item.kind != kind.kind]
    added = sum(track.item.cycle == state.cycle for track in of_cycle)
    delivered = sum(track.is_delivered for track in of_cycle)
    over = ""
    if not added and state.tracks[plan].is_delivered and not any(may_begin_again(t, pins) for t in of_cycle):
        over = "planned-nothing"
    elif state.cycle >= limit:
        over = "cycles"
    elif not delivered and state.unchanged_cycles + 1 >= pins.config.limits.resolve(cycle.unchanged_max):
        over = "unchanged"
    failed = sum(track.stop is not None and track.stop.status is FeatureOutcome.FAILED for track in of_cycle)
    return CycleEnded(cycle=state.cycle, added=added, delivered=delivered, failed=failed, over=over)


def start_commit(state: RunState, pins: Pins, kind: ItemKind, feature: str) -> Commit | None:
    """Return the newest commit, made or adopted by this run, of the branch that an item starts from; None: there is
    none."""
    started = state.started
    assert started is not None
    return newest_head(state, pins, pins.branch(kind.starts or kind.onto, feature, started.base, started.integration))


def newest_head(state: RunState, pins: Pins, branch: str) -> Commit | None:
    """Return the newest commit of a branch that this run made or adopted; None: there is none."""
    started = state.started
    assert started is not None
    if branch in state.branch_heads:
        return state.branch_heads[branch]
    own = (
        track.last_stop.head
        for feature, track in state.tracks.items()
        if track.last_stop is not None
        and track.last_stop.status in DELIVERED_OUTCOMES
        and branch == pins.item_branch(track.item.kind, feature, started)
    )
    return next(own, None)


def may_begin_again(track: FeatureTrack, pins: Pins) -> bool:
    """Return True for an item that failed and has attempts left: a later cycle begins it again."""
    has_failed = track.stop is not None and track.stop.status is FeatureOutcome.FAILED
    return has_failed and track.attempts < pins.config.limits.resolve(pins.pipeline.find_kind(track.item.kind).attempts)


def _own_item(kind: ItemKind, feature: str, state: RunState, pins: Pins) -> ItemAdded:
    assert state.started is not None
    return ItemAdded(
        feature=FeatureId(feature),
        source=f"{state.started.run}#{feature}",
        priority=0,
        order=len(state.tracks),
        title=digest_of(kind.kind),
        body=digest_of(pins.config.request),
        kind=kind.kind,
        cycle=state.cycle,
    )
