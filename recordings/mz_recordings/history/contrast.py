"""Field-by-field comparison of an event that the current code produces with the recorded one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from mz_events.catalog.base import Event, Role
from mz_events.catalog.call import AgentRequested, CallPriced, CallSettled, ReplyRead
from mz_events.catalog.check import ArtifactParsed, ArtifactValidated, ChangesChecked, CommandRan, GateChecked

from mz_recordings.findings import FindingKind
from mz_recordings.history.divergence import Difference, Parting, field_name
from mz_recordings.playing.compare import lines_of

Texts = Callable[[str], str | None]
"""Returns the text of a digest; None if it is not a digest, or the text is gone."""

LOOKED_AT: dict[type[Event], frozenset[str]] = {
    CommandRan: frozenset({"stage", "phase", "unit", "name", "passed", "failed", "signature", "excerpt"}),
    ChangesChecked: frozenset({"ref", "changes", "offences"}),
}
"""Fields of these outcomes that follow from recorded bytes and trees. Of other outcomes, only `ref` and `key` are
compared."""
WORLDLY = frozenset({"refs"})
"""Fields of intents that describe the outside world. What follows from the stream is compared."""
WHOSE = frozenset({"ref", "key"})
RESULTS = (ReplyRead, CallPriced, CallSettled, ArtifactParsed, CommandRan)
VERDICTS = (ArtifactValidated, GateChecked, ChangesChecked)
ESTIMATES = frozenset({"estimated_tokens", "estimated_nanousd", "prompt_tokens", "whole_tokens"})
"""Fields that follow from the prompt."""
ASKED = frozenset({"prompt"}) | ESTIMATES
SHOWN_MAX = 300
MASKS = tuple(
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


def looked_at(event: Event) -> frozenset[str]:
    """Return the fields that must be equal to the recorded ones."""
    if event.ROLE in (Role.INTENT, Role.DERIVED):
        return frozenset(event.__struct_fields__) - WORLDLY
    return LOOKED_AT.get(type(event), WHOSE & frozenset(event.__struct_fields__))


def differences(recorded: Event, produced: Event, texts: Texts) -> tuple[Difference, ...]:
    """Return the differences between two events of one type that count."""
    if recorded is produced or recorded == produced:
        return ()
    fields = [
        name
        for name in recorded.__struct_fields__
        if name in looked_at(recorded) and getattr(recorded, name) != getattr(produced, name)
    ]
    old, new = _plain(recorded), _plain(produced)
    return tuple(one for name in fields for one in _differing(name, old.get(name), new.get(name), texts))


def _plain(event: Event) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return plain


def _differing(path: str, old: Any, new: Any, texts: Texts) -> Iterator[Difference]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from _differing(f"{path}.{name}", old.get(name), new.get(name), texts)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for at, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differing(f"{path}.{at}", one, other, texts)
    else:
        yield Difference(
            field=path,
            recorded=_shown(old),
            produced=_shown(new),
            lines=lines_of(_words(old, texts), _words(new, texts)),
        )


def _shown(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _words(value: Any, texts: Texts) -> list[str]:
    """Return the lines of the text of a digest; a report is a JSON array of messages."""
    text = texts(value) if isinstance(value, str) else None
    if text is None:
        return []
    if text.startswith("["):
        try:
            told = json.loads(text)
        except ValueError:
            told = None
        if isinstance(told, list) and all(isinstance(each, str) for each in told):
            text = "\n".join(told)
    return text.splitlines()


def kind_of(event: Event, found: tuple[Difference, ...], texts: Texts) -> Parting:
    """Classify a divergence by the fields that differ."""
    telling = [each for each in found if each.field not in ESTIMATES]
    if telling and all(_by_chance(each, texts) for each in telling):
        return "nondeterminism"
    if isinstance(event, VERDICTS):
        return "verdict"
    return "result" if isinstance(event, RESULTS) else "arguments"


def _by_chance(found: Difference, texts: Texts) -> bool:
    """Return True if the values differ only in parts that look like times or random ids."""
    old, new = _value(found.recorded, texts), _value(found.produced, texts)
    return bool(old and new) and masked(old) == masked(new)


def _value(shown: str | None, texts: Texts) -> str:
    value = json.loads(shown) if shown is not None else None
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = texts(value)
    return value if text is None else text


def masked(text: str) -> str:
    """Replace everything that looks like a time or an id."""
    for mask in MASKS:
        text = mask.sub("<?>", text)
    return text


def finding_of(event: Event | None, kind: Parting, found: tuple[Difference, ...]) -> FindingKind:
    """Return the finding kind of a divergence."""
    if kind == "verdict":
        return "POLICY"
    if kind in ("arguments", "nondeterminism") and isinstance(event, AgentRequested):
        fields = {field_name(each.field) for each in found}
        return "PROMPT" if "prompt" in fields and fields <= ASKED else "CONFIG"
    if kind == "result":
        if isinstance(event, ReplyRead):
            return "WIRE"
        return "ARTIFACT" if isinstance(event, ArtifactParsed) else "EVENT" if isinstance(event, CommandRan) else "COST"
    return "EVENT"
