"""Rules for artifacts in JSON form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from mz_events.names import InvalidName, parse_name

from mz_engine.artifacts import text_rules
from mz_engine.artifacts.json_items import (
    JsonItem,
    UnreadableJson,
    field_rule,
    field_value,
    non_blank_strings,
    type_noun,
)
from mz_engine.artifacts.markdown import blank_spans, repository_path
from mz_engine.artifacts.subject import ArtifactSubject, RuleViolation
from mz_engine.model.rules import (
    AcyclicItems,
    ByteSize,
    CoversIds,
    FieldRule,
    JsonForm,
    MaximumField,
    NoPlaceholders,
    ReferencesIds,
    Rule,
    UniqueIds,
)

SHOWN_NUMBER_MAX = 10**15
MINUTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:m|min|mins|minutes?)?\s*\Z", re.IGNORECASE)


def rule_violations(rule: Rule, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    """Yield the violations of a rule; rules for Markdown artifacts never fail."""
    if isinstance(rule, ByteSize):
        return text_rules.byte_size(rule, subject)
    items = subject.items
    if isinstance(items, UnreadableJson):
        return iter((RuleViolation(line=items.line, actual=items.problem),) if isinstance(rule, JsonForm) else ())
    match rule:
        case FieldRule():
            return field_values(rule, items, subject)
        case UniqueIds():
            return unique_values(rule, items, subject)
        case ReferencesIds():
            return valid_references(rule, items, subject)
        case AcyclicItems():
            return acyclic_graph(rule, items, subject)
        case MaximumField():
            return maximum_field(rule, items, subject)
        case CoversIds():
            return text_rules.covered_ids(rule, subject)
        case NoPlaceholders():
            return text_rules.placeholders(rule, tuple(map(blank_spans, subject.text.split("\n"))))
    return iter(())


def field_values(rule: FieldRule, items: tuple[JsonItem, ...], subject: ArtifactSubject) -> Iterator[RuleViolation]:
    for number, item in enumerate(items, 1):
        if rule.within is None:
            yield from field_violations(rule, item, subject, f"[{number}]", item_label(item, number, subject))
            continue
        nested = field_value(subject.rules, item, rule.within)
        for index, member in enumerate(nested if isinstance(nested, list) else (), 1):
            if isinstance(member, dict):
                yield from field_violations(rule, JsonItem(member), subject, f".{rule.within}[{index}]", str(index))


def field_violations(
    rule: FieldRule, item: JsonItem, subject: ArtifactSubject, location: str, item_name: str
) -> Iterator[RuleViolation]:
    used_name = next((n for n in (rule.field, *rule.aliases) if item.fields.get(n) is not None), None)
    if used_name is None:
        problem = "" if rule.optional else "is missing"
    else:
        minimum, maximum = subject.limit(rule.min), None if rule.max is None else subject.limit(rule.max)
        problem = value_problem(rule, item.fields[used_name], minimum, maximum)
    if problem:
        yield RuleViolation(line=item.line, location=f"{location}.{rule.field}", item_label=item_name, actual=problem)


def item_label(item: JsonItem, number: int, subject: ArtifactSubject) -> str:
    """Return an item's number, with its id if that is legal."""
    name_field = next(
        (rule.field for rule in subject.rules.rules if isinstance(rule, FieldRule) and rule.type == "name"), ""
    )
    value = field_value(subject.rules, item, name_field)
    return f"{number} ({value})" if isinstance(value, str) and is_name(value) else str(number)


def value_problem(rule: FieldRule, value: Any, minimum: int, maximum: int | None) -> str:
    """Describe what is wrong with the value, in words that follow the field's name; empty: nothing."""
    match rule.type:
        case "text":
            return text_problem(value, minimum, maximum)
        case "name":
            return "" if isinstance(value, str) and is_name(value) else f"must be a name, not {quote_value(value)}"
        case "choice":
            fits = isinstance(value, str) and value.strip().casefold() in map(str.casefold, rule.values)
            return "" if fits else f"must be one of {', '.join(rule.values)}, not {quote_value(value)}"
        case "number":
            return number_problem(value, minimum, maximum)
    return list_problem(rule, value, minimum, maximum)


def text_problem(value: Any, minimum: int, maximum: int | None) -> str:
    if not isinstance(value, str):
        return f"must be a text, not {type_noun(value)}"
    length = len(value.strip())
    if length < minimum:
        return f"has {length} characters; at least {minimum} are needed" if length else "must be non-empty"
    return f"has {length} characters; at most {maximum} are allowed" if maximum is not None and length > maximum else ""


def number_problem(value: Any, minimum: int, maximum: int | None) -> str:
    if isinstance(value, str) and (match := MINUTES.match(value)):
        value = float(match[1])
    is_infinite = isinstance(value, float) and not math.isfinite(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or is_infinite:
        return f"must be a number, not {quote_value(value)}"
    fits = value >= minimum and (maximum is None or value <= maximum)
    # An integer of hundreds of digits cannot be formatted as a float.
    description = f"is {value:g}" if abs(value) < SHOWN_NUMBER_MAX else "is a number of no sense"
    return "" if fits else f"{description}; it must be from {minimum} to {maximum}"


def list_problem(rule: FieldRule, value: Any, minimum: int, maximum: int | None) -> str:
    if not isinstance(value, list):
        return f"must be a list, not {type_noun(value)}"
    if len(value) < minimum:
        return "must be non-empty" if not value else f"has {len(value)} entries; at least {minimum} are needed"
    if maximum is not None and len(value) > maximum:
        return f"has {len(value)} entries; at most {maximum} are allowed"
    for number, member in enumerate(value, 1):
        if problem := member_problem(rule, member):
            return f"entry {number} {problem}"
    return ""


def member_problem(rule: FieldRule, member: Any) -> str:
    if rule.type == "objects":
        return "" if isinstance(member, dict) else f"must be an object, not {type_noun(member)}"
    if not isinstance(member, str):
        return f"must be a text, not {type_noun(member)}"
    if not member.strip():
        return "must be non-empty"
    if rule.type == "names":
        return "" if is_name(member) else f"must be a name, not {quote_value(member)}"
    if rule.type == "paths":
        return (
            ""
            if repository_path(member)
            else f"must be the path of one file inside the repository, not {quote_value(member)}"
        )
    return ""


def unique_values(rule: UniqueIds, items: tuple[JsonItem, ...], subject: ArtifactSubject) -> Iterator[RuleViolation]:
    used_values: set[str] = set()
    for number, item in enumerate(items, 1):
        for value in non_blank_strings(field_value(subject.rules, item, rule.field or "")):
            if value in used_values:
                yield RuleViolation(line=item.line, location=f"[{number}].{rule.field}", actual=quote_value(value))
            used_values.add(value)


def valid_references(
    rule: ReferencesIds, items: tuple[JsonItem, ...], subject: ArtifactSubject
) -> Iterator[RuleViolation]:
    if rule.artifact is None:
        defined_ids = {
            value for item in items for value in non_blank_strings(field_value(subject.rules, item, rule.to))
        }
    elif rule.artifact in subject.earlier_artifacts:
        defined_ids = set(subject.ids_of(rule.artifact, rule.to, None))
    else:
        return
    for number, item in enumerate(items, 1):
        for value in non_blank_strings(field_value(subject.rules, item, rule.field)):
            if value not in defined_ids:
                name = item_label(item, number, subject)
                yield RuleViolation(
                    line=item.line, location=f"[{number}].{rule.field}", item_label=name, actual=quote_value(value)
                )


def acyclic_graph(rule: AcyclicItems, items: tuple[JsonItem, ...], subject: ArtifactSubject) -> Iterator[RuleViolation]:
    graph: dict[str, set[str]] = {}
    for item in items:
        for name in non_blank_strings(field_value(subject.rules, item, rule.to)):
            graph.setdefault(name, set()).update(non_blank_strings(field_value(subject.rules, item, rule.field)))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield RuleViolation(location=f"[*].{rule.field}", actual=" -> ".join(error.args[1]))


def maximum_field(rule: MaximumField, items: tuple[JsonItem, ...], subject: ArtifactSubject) -> Iterator[RuleViolation]:
    choice = field_rule(subject.rules, rule.field)
    order = [value.casefold() for value in choice.values] if choice else []
    for item in items:
        rank = next(iter(ranks(order, [field_value(subject.rules, item, rule.field)])), None)
        nested = field_value(subject.rules, item, rule.within)
        objects = nested if isinstance(nested, list) else []
        members = [value.get(rule.field) for value in objects if isinstance(value, dict)]
        expected = max(ranks(order, members), default=0)
        if choice and rank is not None and rank != expected:
            yield RuleViolation(line=item.line, location=f".{rule.field}", actual=choice.values[expected])


def ranks(order: list[str], values: list[Any]) -> list[int]:
    """Return the indexes in `order` of those values that have one."""
    texts = (value.strip().casefold() for value in values if isinstance(value, str))
    return [order.index(text) for text in texts if text in order]


def is_name(text: str) -> bool:
    try:
        return bool(parse_name(text))
    except InvalidName:
        return False


def quote_value(value: Any) -> str:
    """Quote a value in a message."""
    return f'"{value[:80]}"' if isinstance(value, str) else type_noun(value)
