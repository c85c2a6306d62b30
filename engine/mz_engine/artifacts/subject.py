"""The artifact being checked, parsed once, and the violations of its rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

from mz_engine.artifacts.json_items import JsonItem, UnreadableJson, json_rule, non_blank_strings, read_items
from mz_engine.artifacts.markdown import MarkdownDocument, normalise_newlines, read_markdown
from mz_engine.model.config import Limits
from mz_engine.model.rules import JsonForm, Limit, RuleSet

ID_RANGE = re.compile(r"\b([A-Z]+-)(\d{1,4})(?:\s*(?:–|—|-|\.\.\.?|…|to|through)\s*)(?:\1)?(\d{1,4})\b")
ID_RANGE_MAX = 200


class RuleViolation(msgspec.Struct, frozen=True, kw_only=True):
    """One location where a rule is broken."""

    line: int | None = None
    """From 1."""
    location: str = ""
    """Path within the artifact, such as `[2].files_touched`: indexes and field names, never text of the artifact."""
    item_label: str = ""
    actual: str = ""


class ArtifactSubject:
    """One artifact and the data that its rules may use."""

    def __init__(self, rules: RuleSet, text: str, limits: Limits, earlier_artifacts: Mapping[str, str]) -> None:
        self.rules = rules
        self.text = text
        self.limits = limits
        self.earlier_artifacts = earlier_artifacts

    @cached_property
    def document(self) -> MarkdownDocument:
        return read_markdown(self.text)

    @cached_property
    def items(self) -> tuple[JsonItem, ...] | UnreadableJson:
        return read_items(json_rule(self.rules), self.text)

    def limit(self, limit: Limit) -> int:
        return resolve_limit(limit, self.limits)

    def ids_of(self, artifact: str, field: str | None, pattern: str | None) -> tuple[str, ...]:
        """Return the distinct ids that an earlier artifact defines; empty if it is absent."""
        text = self.earlier_artifacts.get(artifact)
        if text is None:
            return ()
        return tuple(
            dict.fromkeys(field_ids(text, field) if field else defined_ids(pattern or "", read_markdown(text)))
        )


def resolve_limit(limit: Limit, limits: Limits) -> int:
    """Return a literal limit, or the settings field that it names. Raises AttributeError for an unknown name."""
    return limit if isinstance(limit, int) else int(getattr(limits, limit))


def defined_ids(pattern: str, document: MarkdownDocument) -> Iterator[str]:
    """Yield the first group of every match in a line of prose."""
    compiled = re.compile(pattern)
    return (match[1] for line in document.prose for match in compiled.finditer(line))


def field_ids(text: str, field: str) -> Iterator[str]:
    items = read_items(LIST_RULE, text)
    for item in () if isinstance(items, UnreadableJson) else items:
        yield from non_blank_strings(item.fields.get(field))


def is_mentioned(text: str, name: str) -> bool:
    """Return True if the name occurs in the text as a word, or inside a range of ids with its prefix."""
    text = normalise_newlines(text)
    if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
        return True
    return any(name in expand_range(*match.groups()) for match in ID_RANGE.finditer(text))


def expand_range(prefix: str, first: str, last: str) -> set[str]:
    numbers = range(int(first), min(int(last), int(first) + ID_RANGE_MAX) + 1)
    return {f"{prefix}{number:0{len(first)}d}" for number in numbers}


LIST_RULE = JsonForm(id="", requirement="", message="", root="list")
"""Rule for reading the ids of an earlier artifact."""
