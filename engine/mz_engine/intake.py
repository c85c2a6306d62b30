"""Intake of a backlog: the events that start a run or add to one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from mz_events.catalog.run import ItemAdded, ItemSkipped
from mz_events.names import Commit, Digest
from mz_projections.delivered import Delivery, text_digest

from mz_engine.backlog.item import Item
from mz_engine.backlog.order import LeftOut, plan
from mz_engine.backlog.screen import Mode, Screened, screen_item

Put = Callable[[str], Digest]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Items of a backlog that a run adds, skips or leaves out."""

    added: tuple[ItemAdded, ...]
    skipped: tuple[ItemSkipped, ...]
    left_out: tuple[LeftOut, ...]
    screened: dict[str, Screened]
    """Result of the injection screen, by feature."""


def take(
    items: Iterable[Item],
    only: Iterable[str],
    delivered: Mapping[str, Delivery],
    in_run: Iterable[str],
    mode: Mode,
    put: Put,
) -> Taken:
    """Return what a run takes from the backlog.

    `delivered` is by source, over all runs; `in_run` holds features that the run already has; `put` stores a text as a
    blob and returns its digest.
    """
    source, existing = tuple(items), frozenset(in_run)
    before = frozenset(item.id for item in source if item.source in delivered) - existing
    planned = plan(source, only, before)
    declared = {item.id: item.depends_on for item in source}
    added: list[ItemAdded] = []
    screened: dict[str, Screened] = {}
    for item in planned.items:
        clean, screened[item.id] = screen_item(item, mode)
        if item.id in existing:
            continue
        added.append(
            ItemAdded(
                feature=item.id,
                source=item.source,
                priority=int(item.priority),
                order=item.order,
                depends_on=tuple(other for other in declared[item.id] if other in before or other in item.depends_on),
                title=put(clean.title),
                body=put(clean.body),
                score=screened[item.id].score,
                quarantined=screened[item.id].quarantined,
            )
        )
    skipped = [
        skip(delivered[out.item.source], out.item, mode, put) for out in planned.left_out if out.why == "delivered"
    ]
    return Taken(added=tuple(added), skipped=tuple(skipped), left_out=planned.left_out, screened=screened)


def skip(delivery: Delivery, item: Item, mode: Mode, put: Put) -> ItemSkipped:
    """Return the event for a delivered item. A changed text is noted, but does not deliver the item again."""
    clean, _ = screen_item(item, mode)
    return ItemSkipped(
        feature=item.id,
        delivered_by=delivery.delivered_by,
        changed=text_digest(put(clean.title), put(clean.body)) != delivery.text,
        head=Commit(delivery.head) if delivery.head else None,
    )
