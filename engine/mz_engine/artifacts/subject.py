"""The artifact being checked, parsed once, and the violations of its rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

from mz_engine.artifacts.document import Document, normalise_newlines, read_markdown
from mz_engine.artifacts.jsontext import Broken, Item, json_rule, read_items, strings
from mz_engine.artifacts.rule import Json, Limit, RuleSet
from mz_engine.config import Limits

RANGE = re.compile(r"\b([A-Z]+-)(\d{1,4})(?:\s*(?:–|—|-|\.\.\.?|…|to|through)\s*)(?:\1)?(\d{1,4})\b")
RANGE_MAX = 200


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """One location where a rule is broken."""

    line: int | None = None
    """From 1."""
    place: str = ""
    """Path within the artifact, such as `[2].files_touched`: indexes and field names, never text of the artifact."""
    item: str = ""
    found: str = ""


class Subject:
    """One artifact and the data that its rules may use."""

    def __init__(self, rules: RuleSet, text: str, limits: Limits, others: Mapping[str, str]) -> None:
        self.rules = rules
        self.text = text
        self.limits = limits
        self.others = others

    @cached_property
    def document(self) -> Document:
        return read_markdown(self.text)

    @cached_property
    def items(self) -> tuple[Item, ...] | Broken:
        return read_items(json_rule(self.rules), self.text)

    def limit(self, limit: Limit) -> int:
        return resolve(limit, self.limits)

    def ids_of(self, artifact: str, field: str | None, pattern: str | None) -> tuple[str, ...]:
        """Return the distinct ids that an earlier artifact defines; empty if it is absent."""
        text = self.others.get(artifact)
        if text is None:
            return ()
        return tuple(dict.fromkeys(field_ids(text, field) if field else defined(pattern or "", read_markdown(text))))


def resolve(limit: Limit, limits: Limits) -> int:
    """Return a literal limit, or the settings field that it names. Raises AttributeError for an unknown name."""
    return limit if isinstance(limit, int) else int(getattr(limits, limit))


def defined(pattern: str, document: Document) -> Iterator[str]:
    """Yield the first group of every match in a line of prose."""
    compiled = re.compile(pattern)
    return (match[1] for line in document.prose for match in compiled.finditer(line))


def field_ids(text: str, field: str) -> Iterator[str]:
    items = read_items(LIST, text)
    for item in () if isinstance(items, Broken) else items:
        yield from strings(item.fields.get(field))


def mentioned(text: str, name: str) -> bool:
    """Return True if the name occurs in the text as a word, or inside a range of ids with its prefix."""
    text = normalise_newlines(text)
    if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
        return True
    return any(name in expand(*match.groups()) for match in RANGE.finditer(text))


def expand(prefix: str, first: str, last: str) -> set[str]:
    numbers = range(int(first), min(int(last), int(first) + RANGE_MAX) + 1)
    return {f"{prefix}{number:0{len(first)}d}" for number in numbers}


LIST = Json(id="", requirement="", message="", root="list")
"""Rule for reading the ids of an earlier artifact."""
