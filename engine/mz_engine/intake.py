"""Intake of a backlog: the events that start a run or add to one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from mz_events.catalog.run import ItemAdded, ItemSkipped
from mz_events.names import Commit, Digest
from mz_projections.delivered import Delivery, text_digest

from mz_engine.backlog.item import BacklogItem
from mz_engine.backlog.order import LeftOutItem, plan_backlog
from mz_engine.backlog.screen import ScreenMode, ScreenResult, screen_item

PutText = Callable[[str], Digest]


class BacklogIntake(msgspec.Struct, frozen=True, kw_only=True):
    """Items of a backlog that a run adds, skips or leaves out."""

    added: tuple[ItemAdded, ...]
    skipped: tuple[ItemSkipped, ...]
    left_out: tuple[LeftOutItem, ...]
    screened: dict[str, ScreenResult]
    """Result of the injection screen, by feature."""


def take_items(
    items: Iterable[BacklogItem],
    only: Iterable[str],
    delivered: Mapping[str, Delivery],
    in_run: Iterable[str],
    mode: ScreenMode,
    put: PutText,
) -> BacklogIntake:
    """Return what a run takes from the backlog.

    `delivered` is by source, over all runs; `in_run` holds features that the run already has; `put` stores a text as a
    blob and returns its digest.
    """
    source, existing = tuple(items), frozenset(in_run)
    before = frozenset(item.id for item in source if item.source in delivered) - existing
    planned = plan_backlog(source, only, before)
    declared = {item.id: item.depends_on for item in source}
    added: list[ItemAdded] = []
    screened: dict[str, ScreenResult] = {}
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
        skipped_event(delivered[out.item.source], out.item, mode, put) for out in planned.left_out if out.reason == "delivered"
    ]
    return BacklogIntake(added=tuple(added), skipped=tuple(skipped), left_out=planned.left_out, screened=screened)


def skipped_event(delivery: Delivery, item: BacklogItem, mode: ScreenMode, put: PutText) -> ItemSkipped:
    """Return the event for a delivered item. A changed text is noted, but does not deliver the item again."""
    clean, _ = screen_item(item, mode)
    return ItemSkipped(
        feature=item.id,
        delivered_by=delivery.delivered_by,
        changed=text_digest(put(clean.title), put(clean.body)) != delivery.text_sha256,
        head=Commit(delivery.head) if delivery.head else None,
    )
