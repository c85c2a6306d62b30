"""The intake of a backlog: the events that start a run or add to one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

import msgspec
from mz_events.catalog.run import ItemAdded, ItemSkipped
from mz_events.names import Commit, Digest
from mz_projections.run.delivered import Delivery, text_digest

from mz_engine.backlog.injection_screen import added_item, quote_matches, screen_item, stored_texts
from mz_engine.backlog.item import BacklogItem, LeftOutItem, plan_backlog
from mz_engine.errors.diagnostics import Diagnostic, SourceLocation
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import FEATURE

QUOTE_CHARS_MAX = 300
PutText = Callable[[str], Digest]


class BacklogIntake(msgspec.Struct, frozen=True, kw_only=True):
    """Items of a backlog that a run adds, skips or leaves out."""

    added: tuple[ItemAdded, ...]
    skipped: tuple[ItemSkipped, ...]
    left_out: tuple[LeftOutItem, ...]
    warnings: tuple[Diagnostic, ...] = ()
    """Suspicious lines of items."""


def take_items(
    items: Iterable[BacklogItem],
    only: Iterable[str],
    delivered: Mapping[str, Delivery],
    in_run: Iterable[str],
    pins: Pins,
    put: PutText,
) -> BacklogIntake:
    """Return what a run takes from the backlog. `delivered` is by source, over all runs; `in_run` are features that the
    run has already; `put` stores a text as a blob."""
    source, existing = tuple(items), frozenset(in_run)
    before = frozenset(item.id for item in source if item.source in delivered) - existing
    screen = cache(partial(screen_item, mode=pins.config.injection_screen))
    kind = pins.pipeline.kind_from("backlog") or FEATURE
    chosen, others = plan_backlog(source, only, before | existing)
    left_out = tuple(out for out in others if out.item.id not in existing)
    declared = {item.id: item.depends_on for item in source}
    added, warnings = list[ItemAdded](), list[Diagnostic]()
    for item in chosen:
        clean, screen_result = screen(item)
        effect, hint = "given to agents without invisible characters", "change it, or set `injection_screen: strict`"
        if screen_result.quarantined:
            effect, hint = "the feature waits for a person", f"`mz review show {item.id}` explains how to answer"
        for line, quote in quote_matches(item, screen_result):
            message = f"{item.id}: {effect}: it may give orders to an agent: {quote[:QUOTE_CHARS_MAX]}"
            location = SourceLocation(item.file, line)
            warning = Diagnostic(code="MZ4012", message=message, hint=hint, location=location, severity="warning")
            warnings.append(warning)
        depends_on = tuple(name for name in declared[item.id] if name in {*before, *existing, *item.depends_on})
        added.append(
            added_item(item, screen_result, kind.kind, depends_on, map(put, stored_texts(item, clean, screen_result)))
        )
    skipped = []
    for item in (out.item for out in left_out if out.reason == "delivered"):
        clean, delivery = screen(item)[0], delivered[item.source]
        # A changed text is noted, but does not deliver the item again.
        changed = text_digest(put(clean.title), put(clean.body)) != delivery.text_sha256
        head = Commit(delivery.head) if delivery.head else None
        skipped.append(ItemSkipped(feature=item.id, delivered_by=delivery.delivered_by, changed=changed, head=head))
    return BacklogIntake(added=tuple(added), skipped=tuple(skipped), left_out=left_out, warnings=tuple(warnings))
