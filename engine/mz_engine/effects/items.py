"""Items that an artifact creates: its entries, screened as the items of a backlog are; what a prompt says of items."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from mz_events.catalog.feature import ItemStatus
from mz_events.catalog.run import FeatureOutcome, ItemAdded
from mz_events.names import Digest, FeatureId

from mz_engine.artifacts.parse import artifact_items, comparable_text, field_value
from mz_engine.backlog.injection_screen import added_item, screen_item, stored_texts
from mz_engine.backlog.listed import ListedItem, listed_item
from mz_engine.decide.actions import CreateItems
from mz_engine.effects.steps import AddItems, Effect, StepContext, Steps, get_text, put_blob
from mz_engine.prompts.render import ItemData

GIVEN_UP = (FeatureOutcome.FAILED, FeatureOutcome.CANCELLED)


def create_items(action: CreateItems, context: StepContext) -> Effect:
    """Request an item for each entry of the output whose title no open or delivered item has."""
    parsed, rules = context.unit_run.parsed_artifacts[action.artifact], context.pins.rules[action.rules]
    names, units, existing = rules.extract.units, {unit.id: unit for unit in parsed.units}, dict[str, FeatureId]()
    assert names is not None
    for status in context.phase_state.progress.started.items:
        if status.kind == action.kind and status.status not in GIVEN_UP:
            existing[comparable_text((yield from get_text(status.title)))] = status.feature
    items, duplicates = list[ItemAdded](), dict[str, FeatureId]()
    for order, entry in enumerate(artifact_items(rules, (yield from get_text(parsed.digest)))):
        unit = units.get(str(field_value(rules, entry, names.id)))
        if unit is None:
            continue
        title = " ".join(str(field_value(rules, entry, "title") or unit.id).split())
        if (same := existing.get(comparable_text(title))) is not None:
            duplicates[unit.id] = same
            continue
        body = "\n\n".join(
            f"## {name.replace('_', ' ').capitalize()}\n\n{_text(value)}"
            for name, value in entry.fields.items()
            if value and name not in (names.id, "title", names.depends_on)
        )
        listed = ListedItem(id=unit.id, title=title, body=body, depends_on=unit.depends_on)
        item = listed_item(listed, action.artifact, order, entry.line or 1)
        clean, result = screen_item(item, context.pins.config.injection_screen)
        texts = list[Digest]()
        for text in stored_texts(item, clean, result):
            texts.append((yield from put_blob(text)))
        items.append(replace(added_item(item, result, action.kind, item.depends_on, texts), files=unit.files))
    yield AddItems(items=tuple(items), duplicates=duplicates)


def items_text(kind: str, items: tuple[ItemStatus, ...]) -> Steps[str]:
    """Return a line for each item of the kind: id, title, what became of it, and how often it was begun."""
    lines = []
    for item in items:
        if item.kind == kind:
            if item.status is None:
                status = f"open, attempt {item.attempts} failed ({item.code})" if item.code else "open"
            else:
                status = item.status.value + (f" ({item.code}), begun {item.attempts} times" if item.code else "")
            lines.append(f"- {item.feature}: {(yield from get_text(item.title))}: {status}")
    return "\n".join(lines) or "none"


def input_items(context: StepContext) -> Steps[tuple[ItemData, ...]]:
    """Return the items of the kinds that the phase has as inputs, in the order in which they were added."""
    kinds, items = {use.items for use in context.phase.inputs}, list[ItemData]()
    for item in context.phase_state.progress.started.items:
        if item.kind in kinds:
            state = item.status.value if item.status else FeatureOutcome.FAILED.value if item.code else "open"
            data = ItemData(
                id=item.feature, kind=item.kind, title=(yield from get_text(item.title)), state=state,
                attempts=item.attempts, code=item.code, depends_on=item.depends_on, files=item.files,
            )  # fmt: skip
            items.append(data)
    return tuple(items)


def _text(value: Any) -> str:
    """Return the value of a field as Markdown."""
    if isinstance(value, list):
        return "\n".join(f"- {_text(entry)}" for entry in value)
    if isinstance(value, dict) and value.keys() == {"id", "text"}:
        return f"{value['id']}: {value['text']}"
    return ", ".join(f"{key}: {_text(part)}" for key, part in value.items()) if isinstance(value, dict) else str(value)
