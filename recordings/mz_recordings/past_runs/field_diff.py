"""Field-by-field comparison of an event that the current code produces with the recorded one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from mz_events.catalog.base import Event, EventKind
from mz_events.catalog.call import AgentRequested, CallPriced, CallSettled, ReplyParsed
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated, ChangesChecked, CommandRan, GateChecked

from mz_recordings.findings.model import FindingKind
from mz_recordings.past_runs.model import DivergenceKind, EventFieldDifference, field_name
from mz_recordings.replay.compare import diff_lines

Texts = Callable[[str], str | None]
"""Returns the text of a digest; None if it is not a digest, or the text is gone."""

COMPARED_OUTCOME_FIELDS: dict[type[Event], frozenset[str]] = {
    CommandRan: frozenset({"stage", "phase", "unit", "name", "passed", "failed", "signature", "excerpt"}),
    ChangesChecked: frozenset({"ref", "changes", "forbidden_changes"}),
}
"""Fields of these outcomes that follow from recorded bytes and trees. Of other outcomes, only `ref` and `key` are
compared."""
EXTERNAL_FIELDS = frozenset({"refs"})
"""Fields of intents that describe the outside world. What follows from the stream is compared."""
IDENTITY_FIELDS = frozenset({"ref", "key"})
RESULT_EVENTS = (ReplyParsed, CallPriced, CallSettled, ArtifactParsed, CommandRan)
VERDICT_EVENTS = (ArtifactValidated, GateChecked, ChangesChecked)
ESTIMATE_FIELDS = frozenset({"estimated_tokens", "estimated_nanousd", "prompt_tokens", "full_prompt_tokens"})
"""Fields that follow from the prompt."""
PROMPT_FIELDS = frozenset({"prompt"}) | ESTIMATE_FIELDS
VALUE_CHARACTERS_MAX = 300
MASKED_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
        r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?)?",
        r"\b\d\d:\d\d:\d\d(\.\d+)?\b",
        r"\b1[0-9]{9}(\.\d+|\d{3}|\d{6}|\d{9})?\b",
        r"(?i)\b0x[0-9a-f]{6,}\b",
        r"\b0\.\d{12,}\b",
    )
)
"""Patterns of random ids, dates, times of day, times since the epoch, addresses and random fractions."""


def compared_fields(event: Event) -> frozenset[str]:
    """Return the fields that must be equal to the recorded ones."""
    if event.KIND in (EventKind.INTENT, EventKind.DERIVED):
        return frozenset(event.__struct_fields__) - EXTERNAL_FIELDS
    return COMPARED_OUTCOME_FIELDS.get(type(event), IDENTITY_FIELDS & frozenset(event.__struct_fields__))


def differences(recorded: Event, produced: Event, texts: Texts) -> tuple[EventFieldDifference, ...]:
    """Return the differences between two events of one type that count."""
    if recorded is produced or recorded == produced:
        return ()
    fields = [
        name
        for name in recorded.__struct_fields__
        if name in compared_fields(recorded) and getattr(recorded, name) != getattr(produced, name)
    ]
    old, new = _plain(recorded), _plain(produced)
    return tuple(
        difference for name in fields for difference in _value_differences(name, old.get(name), new.get(name), texts)
    )


def _plain(event: Event) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return plain


def _value_differences(path: str, old: Any, new: Any, texts: Texts) -> Iterator[EventFieldDifference]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from _value_differences(f"{path}.{name}", old.get(name), new.get(name), texts)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for index, (old_item, new_item) in enumerate(zip(old, new, strict=True)):
            yield from _value_differences(f"{path}.{index}", old_item, new_item, texts)
    else:
        yield EventFieldDifference(
            field=path,
            recorded=_as_json(old),
            produced=_as_json(new),
            lines=diff_lines(_text_lines(old, texts), _text_lines(new, texts)),
        )


def _as_json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _text_lines(value: Any, texts: Texts) -> list[str]:
    """Return the lines of the text of a digest; a report is a JSON array of messages."""
    text = texts(value) if isinstance(value, str) else None
    if text is None:
        return []
    if text.startswith("["):
        try:
            messages = json.loads(text)
        except ValueError:
            messages = None
        if isinstance(messages, list) and all(isinstance(message, str) for message in messages):
            text = "\n".join(messages)
    return text.splitlines()


def divergence_kind(event: Event, field_differences: tuple[EventFieldDifference, ...], texts: Texts) -> DivergenceKind:
    """Classify a divergence by the fields that differ."""
    significant = [difference for difference in field_differences if difference.field not in ESTIMATE_FIELDS]
    if significant and all(_is_nondeterministic(difference, texts) for difference in significant):
        return "nondeterminism"
    if isinstance(event, VERDICT_EVENTS):
        return "verdict"
    return "result" if isinstance(event, RESULT_EVENTS) else "arguments"


def _is_nondeterministic(difference: EventFieldDifference, texts: Texts) -> bool:
    """Return True if the values differ only in parts that look like times or random ids."""
    old, new = _text_of_value(difference.recorded, texts), _text_of_value(difference.produced, texts)
    return bool(old and new) and masked(old) == masked(new)


def _text_of_value(encoded: str | None, texts: Texts) -> str:
    value = json.loads(encoded) if encoded is not None else None
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = texts(value)
    return value if text is None else text


def masked(text: str) -> str:
    """Replace everything that looks like a time or an id."""
    for mask in MASKED_PATTERNS:
        text = mask.sub("<?>", text)
    return text


def finding_kind(
    event: Event | None, kind: DivergenceKind, field_differences: tuple[EventFieldDifference, ...]
) -> FindingKind:
    """Return the finding kind of a divergence."""
    if kind == "verdict":
        return "DECISION"
    if kind in ("arguments", "nondeterminism") and isinstance(event, AgentRequested):
        fields = {field_name(difference.field) for difference in field_differences}
        return "PROMPT" if "prompt" in fields and fields <= PROMPT_FIELDS else "CONFIG"
    if kind == "result":
        if isinstance(event, ReplyParsed):
            return "STREAM"
        return "ARTIFACT" if isinstance(event, ArtifactParsed) else "TRACE" if isinstance(event, CommandRan) else "COST"
    return "TRACE"
