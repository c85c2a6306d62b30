"""Select the items of a backlog for a run, and order them."""

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
    """For `dependency`: an item that is not done and will not be done by this run."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Item, ...]
    """In the order in which they may start; `depends_on` keeps only what this run has to deliver first."""
    left_out: tuple[LeftOut, ...]
    """In the order of the source."""


def plan(items: Iterable[Item], only: Iterable[str] = (), delivered: Iterable[str] = ()) -> Plan:
    """Select items of status backlog whose dependencies are done, were `delivered` by earlier runs, or are delivered by
    this one. With `only`, these ids and nothing else; callers reject unknown ids."""
    source = sorted(items, key=lambda item: item.order)
    asked, before = frozenset(only), frozenset(delivered)
    done = before | {item.id for item in source if item.status is ItemStatus.DONE}
    out = {item.id: LeftOut(item=item, why=why) for item in source if (why := _why_not(item, asked, before))}
    chosen: dict[FeatureId, Item] = {}
    for item in order(source):
        missing = [name for name in item.depends_on if name not in done and name not in chosen]
        if item.id in out:
            continue
        if missing:
            out[item.id] = LeftOut(item=item, why="dependency", because=missing[0])
        else:
            chosen[item.id] = replace(item, depends_on=tuple(name for name in item.depends_on if name in chosen))
    return Plan(items=tuple(chosen.values()), left_out=tuple(out[item.id] for item in source if item.id in out))


def _why_not(item: Item, asked: frozenset[str], before: frozenset[str]) -> Reason | None:
    if item.status is not ItemStatus.BACKLOG:
        return OTHER_STATUS[item.status]
    if item.id in before:
        return "delivered"
    return "not-asked-for" if asked and item.id not in asked else None


def order(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return all items, each after its dependencies, and ready ones by priority, then as in the source. All
    dependencies must be among the items and without cycles."""
    known = {item.id: item for item in items}
    sorter = TopologicalSorter({item.id: item.depends_on for item in known.values()})
    sorter.prepare()
    ready: list[tuple[int, int, FeatureId]] = []
    ordered: list[Item] = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(ready, (known[name].priority, known[name].order, name))
        item = known[heapq.heappop(ready)[2]]
        ordered.append(item)
        sorter.done(item.id)
    return tuple(ordered)
