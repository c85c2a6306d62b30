"""Pure: from a backlog to the events that begin a run or add to one."""

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
    """What a run takes from a backlog."""

    added: tuple[ItemAdded, ...]
    skipped: tuple[ItemSkipped, ...]
    left_out: tuple[LeftOut, ...]
    screened: dict[str, Screened]
    """By feature: what the injection screen found."""


def take(
    items: Iterable[Item],
    only: Iterable[str],
    delivered: Mapping[str, Delivery],
    known: Iterable[str],
    mode: Mode,
    put: Put,
) -> Taken:
    """`delivered` by source, over all runs; `known`: features that the run has already; `put` keeps a text as a blob
    and answers with its digest."""
    source, there = tuple(items), frozenset(known)
    before = frozenset(item.id for item in source if item.source in delivered) - there
    planned = plan(source, only, before)
    declared = {item.id: item.depends_on for item in source}
    added: list[ItemAdded] = []
    screened: dict[str, Screened] = {}
    for item in planned.items:
        clean, screened[item.id] = screen_item(item, mode)
        if item.id in there:
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
    """It was delivered; its text may have changed since, which is said and does not make it run again."""
    clean, _ = screen_item(item, mode)
    return ItemSkipped(
        feature=item.id,
        delivered_by=delivery.delivered_by,
        changed=text_digest(put(clean.title), put(clean.body)) != delivery.text,
        head=Commit(delivery.head) if delivery.head else None,
    )
