"""JSON artifacts as items."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from mz_engine.artifacts.markdown import normalise_newlines, read_markdown
from mz_engine.model.rules import FieldRule, JsonForm, RuleSet


class JsonItem(msgspec.Struct, frozen=True):
    """One object; `line` from 1, None if unknown."""

    fields: Mapping[str, Any]
    line: int | None = None


class UnreadableJson(Exception):
    """Reason why a text gives no items."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem, self.line = problem, line


def read_items(rule: JsonForm, text: str) -> tuple[JsonItem, ...]:
    """Return the objects of a JSON text: see `JsonForm` for the accepted forms. Raises UnreadableJson."""
    text = normalise_newlines(text)
    value = read_value(text, rule.embedded)
    if rule.root == "list":
        return list_items(value, text)
    if not isinstance(value, dict):
        raise UnreadableJson(f"it holds {type_noun(value)}, not an object")
    return (JsonItem(value, 1),)


def read_value(text: str, embedded: bool) -> Any:
    try:
        return load_json(text)
    except UnreadableJson:
        if not embedded and text.lstrip().startswith(("```", "~~~")):
            raise UnreadableJson("it stands in a code fence; write the JSON alone", 1) from None
        for block in reversed(read_markdown(text).blocks) if embedded else ():
            with suppress(UnreadableJson):
                return load_json(block)
        raise


def load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UnreadableJson(f"{error.msg} in column {error.colno}", error.lineno) from None
    except RecursionError:
        raise UnreadableJson("RecursionError") from None
    except ValueError as error:
        raise UnreadableJson(str(error)[:200]) from None


def list_items(value: Any, text: str) -> tuple[JsonItem, ...]:
    if isinstance(value, dict):
        lists = [member for member in value.values() if is_object_list(member)]
        return tuple(map(JsonItem, lists[0])) if len(lists) == 1 else (JsonItem(value, 1),)
    if not isinstance(value, list):
        raise UnreadableJson(f"it holds {type_noun(value)}, not a list")
    if not value:
        raise UnreadableJson("the list is empty")
    for number, member in enumerate(value, 1):
        if not isinstance(member, dict):
            raise UnreadableJson(f"entry {number} is {type_noun(member)}, not an object")
    return tuple(JsonItem(member, line) for member, line in zip(value, item_lines(text, len(value)), strict=True))


def is_object_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(member, dict) for member in value)


def item_lines(text: str, count: int) -> list[int]:
    """Return the line in which each entry of a top-level list begins."""
    decoder, lines, counted_to, line = json.JSONDecoder(), [], 0, 1
    at = text.index("[") + 1
    for _ in range(count):
        while text[at] in " \t\n,":
            at += 1
        line += text.count("\n", counted_to, at)
        counted_to = at
        lines.append(line)
        _, at = decoder.raw_decode(text, at)
    return lines


def type_noun(value: Any) -> str:
    nouns = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return nouns.get(type(value), "null")


def json_rule(rules: RuleSet) -> JsonForm:
    """Return the rule for reading the artifact. Raises KeyError for a Markdown rule set."""
    for rule in rules.rules:
        if isinstance(rule, JsonForm):
            return rule
    raise KeyError(rules.name)


def field_rule(rules: RuleSet, field: str) -> FieldRule | None:
    return next((r for r in rules.rules if isinstance(r, FieldRule) and r.field == field and r.within is None), None)


def field_value(rules: RuleSet, item: JsonItem, field: str) -> Any:
    """Return the value under the field's name or one of its aliases; None if absent."""
    rule = field_rule(rules, field)
    for name in (field, *(rule.aliases if rule else ())):
        if name in item.fields:
            return item.fields[name]
    return None


def non_blank_strings(value: Any) -> tuple[str, ...]:
    """Return the non-blank strings of a list, or a single string; empty for anything else."""
    members = value if isinstance(value, list) else [value]
    return tuple(member.strip() for member in members if isinstance(member, str) and member.strip())
