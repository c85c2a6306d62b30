"""Pure: which items of a backlog a run works on, and in which order they are ready."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from graphlib import TopologicalSorter
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.names import FeatureId

from mz_engine.backlog.item import Item, ItemStatus

Reason = Literal["in-progress", "done", "blocked", "delivered", "not-asked-for", "dependency"]
OTHER_STATUS: dict[ItemStatus, Reason] = {
    ItemStatus.IN_PROGRESS: "in-progress",
    ItemStatus.DONE: "done",
    ItemStatus.BLOCKED: "blocked",
}


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """An item that this run does not work on."""

    item: Item
    why: Reason
    because: FeatureId | None = None
    """For `dependency`: the one that is not done and will not be done by this run."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Item, ...]
    """In the order in which they may start; `depends_on` keeps only what this run has to deliver first."""
    left_out: tuple[LeftOut, ...]
    """In the order of the source."""


def plan(items: Iterable[Item], only: Iterable[str] = (), delivered: Iterable[str] = ()) -> Plan:
    """What a run would do: items of status backlog whose dependencies are done, were `delivered` by earlier runs, or
    are delivered by this one. With `only`, these ids and nothing else; unknown ids have no effect: callers refuse
    them."""
    source = sorted(items, key=lambda item: item.order)
    asked, before = frozenset(only), frozenset(delivered)
    done = before | {item.id for item in source if item.status is ItemStatus.DONE}
    out = {item.id: LeftOut(item=item, why=why) for item in source if (why := _why_not(item, asked, before))}
    chosen: dict[FeatureId, Item] = {}
    for item in order(source):
        missing = [each for each in item.depends_on if each not in done and each not in chosen]
        if item.id in out:
            continue
        if missing:
            out[item.id] = LeftOut(item=item, why="dependency", because=missing[0])
        else:
            chosen[item.id] = replace(item, depends_on=tuple(each for each in item.depends_on if each in chosen))
    return Plan(items=tuple(chosen.values()), left_out=tuple(out[item.id] for item in source if item.id in out))


def _why_not(item: Item, asked: frozenset[str], before: frozenset[str]) -> Reason | None:
    if item.status is not ItemStatus.BACKLOG:
        return OTHER_STATUS[item.status]
    if item.id in before:
        return "delivered"
    return "not-asked-for" if asked and item.id not in asked else None


def order(items: Iterable[Item]) -> tuple[Item, ...]:
    """All items; each after its dependencies, and among those that are ready by priority, then as in the source.
    The items are those of one backlog: without cycles, every dependency among them."""
    known = {item.id: item for item in items}
    sorter = TopologicalSorter({item.id: item.depends_on for item in known.values()})
    sorter.prepare()
    ready: list[tuple[int, int, FeatureId]] = []
    ordered: list[Item] = []
    while sorter.is_active():
        for each in sorter.get_ready():
            heapq.heappush(ready, (known[each].priority, known[each].order, each))
        item = known[heapq.heappop(ready)[2]]
        ordered.append(item)
        sorter.done(item.id)
    return tuple(ordered)
