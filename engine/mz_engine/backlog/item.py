"""Items of a backlog, from any source: select those for a run, and order them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import Enum, IntEnum
from graphlib import TopologicalSorter
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.names import FeatureId


class ItemStatus(Enum):
    """Status of an item in its source. Only `BACKLOG` is worked on."""

    BACKLOG = "backlog"
    IN_PROGRESS = "in-progress"
    """Somebody else works on it."""
    DONE = "done"
    BLOCKED = "blocked"


class Priority(IntEnum):
    """Smaller comes first."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2
    NONE = 3


class BacklogItem(msgspec.Struct, frozen=True, kw_only=True):
    """A feature request, not yet screened for injections."""

    id: FeatureId
    title: str
    """One line, without control characters; not empty."""
    body: str
    """Markdown without the heading, the meta lines and HTML comments; may be empty."""
    status: ItemStatus = ItemStatus.BACKLOG
    priority: Priority = Priority.NONE
    depends_on: tuple[FeatureId, ...] = ()
    """As declared, each once, in the order of the text; all are items of the same backlog."""
    order: int
    """Position in the source, from 0."""
    source: str
    """`file#id`."""
    line: int
    """Line of its heading, from 1."""
    body_lines: tuple[int, ...] = ()
    """Line of each line of the body."""

    @property
    def file(self) -> str:
        return self.source.removesuffix(f"#{self.id}")


# selection ------------------------------------------------------------------------------------------------------------
LeftOutReason = Literal["in-progress", "done", "blocked", "delivered", "not-asked-for", "dependency"]
"""Of the first three, the status in the source."""


class LeftOutItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item that this run does not work on."""

    item: BacklogItem
    reason: LeftOutReason
    blocked_by: FeatureId | None = None
    """For `dependency`: an item that is not done and will not be done by this run."""


def plan_backlog(
    items: Iterable[BacklogItem], only: Iterable[str] = (), delivered: Iterable[str] = ()
) -> tuple[tuple[BacklogItem, ...], tuple[LeftOutItem, ...]]:
    """Return the items to work on, in the order in which they may start, and those left out, in that of the source.

    Dependencies are done, were `delivered` by earlier runs, or are delivered by this one; `depends_on` keeps only the
    last. With `only`, these ids and nothing else; callers reject unknown ids."""
    source = sorted(items, key=lambda item: item.order)
    requested, delivered_before = frozenset(only), frozenset(delivered)
    done = delivered_before | {item.id for item in source if item.status is ItemStatus.DONE}
    left_out: list[LeftOutItem] = []
    chosen: dict[FeatureId, BacklogItem] = {}
    for item in order_items(source):
        missing = next((name for name in item.depends_on if name not in done and name not in chosen), None)
        reason: LeftOutReason | None = None
        if item.status is not ItemStatus.BACKLOG:
            reason = item.status.value
        elif item.id in delivered_before:
            reason = "delivered"
        elif requested and item.id not in requested:
            reason = "not-asked-for"
        if reason:
            left_out.append(LeftOutItem(item=item, reason=reason))
        elif missing:
            left_out.append(LeftOutItem(item=item, reason="dependency", blocked_by=missing))
        else:
            chosen[item.id] = replace(item, depends_on=tuple(name for name in item.depends_on if name in chosen))
    return tuple(chosen.values()), tuple(sorted(left_out, key=lambda out: out.item.order))


def order_items(items: Iterable[BacklogItem]) -> tuple[BacklogItem, ...]:
    """Return all items, each after its dependencies, and ready ones by priority, then as in the source. All
    dependencies must be among the items and without cycles."""
    items_by_id = {item.id: item for item in items}
    sorter = TopologicalSorter({item.id: item.depends_on for item in items_by_id.values()})
    sorter.prepare()
    ready: list[tuple[int, int, FeatureId]] = []
    ordered: list[BacklogItem] = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(ready, (items_by_id[name].priority, items_by_id[name].order, name))
        item = items_by_id[heapq.heappop(ready)[2]]
        ordered.append(item)
        sorter.done(item.id)
    return tuple(ordered)
