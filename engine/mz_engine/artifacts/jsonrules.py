"""Rules for artifacts in JSON form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from mz_events.names import BadName, parse_name

from mz_engine.artifacts import textrules
from mz_engine.artifacts.document import blank_spans
from mz_engine.artifacts.jsontext import Broken, Item, field_rule, noun, strings, value_of
from mz_engine.artifacts.rule import Acyclic, Bytes, Covers, Field, Json, Placeholders, References, Rule, Unique, Worst
from mz_engine.artifacts.sections import legal
from mz_engine.artifacts.subject import Breach, Subject

NUMBER_SHOWN_MAX = 10**15
MINUTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:m|min|mins|minutes?)?\s*\Z", re.IGNORECASE)


def judge(rule: Rule, subject: Subject) -> Iterator[Breach]:
    """Yield the violations of a rule; rules for Markdown artifacts never fail."""
    if isinstance(rule, Bytes):
        return textrules.size(rule, subject)
    items = subject.items
    if isinstance(items, Broken):
        return iter((Breach(line=items.line, found=items.problem),) if isinstance(rule, Json) else ())
    match rule:
        case Field():
            return field(rule, items, subject)
        case Unique():
            return unique(rule, items, subject)
        case References():
            return references(rule, items, subject)
        case Acyclic():
            return acyclic(rule, items, subject)
        case Worst():
            return worst(rule, items, subject)
        case Covers():
            return textrules.covers(rule, subject)
        case Placeholders():
            return textrules.placeholders(rule, tuple(map(blank_spans, subject.text.split("\n"))))
    return iter(())


def field(rule: Field, items: tuple[Item, ...], subject: Subject) -> Iterator[Breach]:
    for number, item in enumerate(items, 1):
        if rule.within is None:
            yield from one_field(rule, item, subject, f"[{number}]", label(item, number, subject))
            continue
        nested = value_of(subject.rules, item, rule.within)
        for index, member in enumerate(nested if isinstance(nested, list) else (), 1):
            if isinstance(member, dict):
                yield from one_field(rule, Item(member), subject, f".{rule.within}[{index}]", str(index))


def one_field(rule: Field, item: Item, subject: Subject, place: str, name: str) -> Iterator[Breach]:
    present = next((n for n in (rule.field, *rule.aliases) if item.fields.get(n) is not None), None)
    if present is None:
        problem = "" if rule.optional else "is missing"
    else:
        least, most = subject.limit(rule.min), None if rule.max is None else subject.limit(rule.max)
        problem = problem_with(rule, item.fields[present], least, most)
    if problem:
        yield Breach(line=item.line, place=f"{place}.{rule.field}", item=name, found=problem)


def label(item: Item, number: int, subject: Subject) -> str:
    """Return an item's number, with its id if that is legal."""
    first = next((rule.field for rule in subject.rules.rules if isinstance(rule, Field) and rule.type == "name"), "")
    value = value_of(subject.rules, item, first)
    return f"{number} ({value})" if isinstance(value, str) and is_name(value) else str(number)


def problem_with(rule: Field, value: Any, least: int, most: int | None) -> str:
    """Describe what is wrong with the value, in words that follow the field's name; empty: nothing."""
    match rule.type:
        case "text":
            return text_problem(value, least, most)
        case "name":
            return "" if isinstance(value, str) and is_name(value) else f"must be a name, not {shown(value)}"
        case "choice":
            fits = isinstance(value, str) and value.strip().casefold() in map(str.casefold, rule.values)
            return "" if fits else f"must be one of {', '.join(rule.values)}, not {shown(value)}"
        case "number":
            return number_problem(value, least, most)
    return list_problem(rule, value, least, most)


def text_problem(value: Any, least: int, most: int | None) -> str:
    if not isinstance(value, str):
        return f"must be a text, not {noun(value)}"
    length = len(value.strip())
    if length < least:
        return f"has {length} characters; at least {least} are needed" if length else "must be non-empty"
    return f"has {length} characters; at most {most} are allowed" if most is not None and length > most else ""


def number_problem(value: Any, least: int, most: int | None) -> str:
    if isinstance(value, str) and (match := MINUTES.match(value)):
        value = float(match[1])
    endless = isinstance(value, float) and not math.isfinite(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or endless:
        return f"must be a number, not {shown(value)}"
    fits = value >= least and (most is None or value <= most)
    # An integer of hundreds of digits cannot be formatted as a float.
    said = f"is {value:g}" if abs(value) < NUMBER_SHOWN_MAX else "is a number of no sense"
    return "" if fits else f"{said}; it must be from {least} to {most}"


def list_problem(rule: Field, value: Any, least: int, most: int | None) -> str:
    if not isinstance(value, list):
        return f"must be a list, not {noun(value)}"
    if len(value) < least:
        return "must be non-empty" if not value else f"has {len(value)} entries; at least {least} are needed"
    if most is not None and len(value) > most:
        return f"has {len(value)} entries; at most {most} are allowed"
    for number, member in enumerate(value, 1):
        if problem := member_problem(rule, member):
            return f"entry {number} {problem}"
    return ""


def member_problem(rule: Field, member: Any) -> str:
    if rule.type == "objects":
        return "" if isinstance(member, dict) else f"must be an object, not {noun(member)}"
    if not isinstance(member, str):
        return f"must be a text, not {noun(member)}"
    if not member.strip():
        return "must be non-empty"
    if rule.type == "names":
        return "" if is_name(member) else f"must be a name, not {shown(member)}"
    if rule.type == "paths":
        return "" if legal(member) else f"must be the path of one file inside the repository, not {shown(member)}"
    return ""


def unique(rule: Unique, items: tuple[Item, ...], subject: Subject) -> Iterator[Breach]:
    seen: set[str] = set()
    for number, item in enumerate(items, 1):
        for value in strings(value_of(subject.rules, item, rule.field or "")):
            if value in seen:
                yield Breach(line=item.line, place=f"[{number}].{rule.field}", found=shown(value))
            seen.add(value)


def references(rule: References, items: tuple[Item, ...], subject: Subject) -> Iterator[Breach]:
    if rule.artifact is None:
        known = {value for item in items for value in strings(value_of(subject.rules, item, rule.to))}
    elif rule.artifact in subject.others:
        known = set(subject.ids_of(rule.artifact, rule.to, None))
    else:
        return
    for number, item in enumerate(items, 1):
        for value in strings(value_of(subject.rules, item, rule.field)):
            if value not in known:
                name = label(item, number, subject)
                yield Breach(line=item.line, place=f"[{number}].{rule.field}", item=name, found=shown(value))


def acyclic(rule: Acyclic, items: tuple[Item, ...], subject: Subject) -> Iterator[Breach]:
    graph: dict[str, set[str]] = {}
    for item in items:
        for name in strings(value_of(subject.rules, item, rule.to)):
            graph.setdefault(name, set()).update(strings(value_of(subject.rules, item, rule.field)))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield Breach(place=f"[*].{rule.field}", found=" -> ".join(error.args[1]))


def worst(rule: Worst, items: tuple[Item, ...], subject: Subject) -> Iterator[Breach]:
    choice = field_rule(subject.rules, rule.field)
    order = [value.casefold() for value in choice.values] if choice else []
    for item in items:
        own = next(iter(ranks(order, [value_of(subject.rules, item, rule.field)])), None)
        inner = value_of(subject.rules, item, rule.within)
        objects = inner if isinstance(inner, list) else []
        members = [value.get(rule.field) for value in objects if isinstance(value, dict)]
        expected = max(ranks(order, members), default=0)
        if choice and own is not None and own != expected:
            yield Breach(line=item.line, place=f".{rule.field}", found=choice.values[expected])


def ranks(order: list[str], values: list[Any]) -> list[int]:
    """Return the indexes in `order` of those values that have one."""
    texts = (value.strip().casefold() for value in values if isinstance(value, str))
    return [order.index(text) for text in texts if text in order]


def is_name(text: str) -> bool:
    try:
        return bool(parse_name(text))
    except BadName:
        return False


def shown(value: Any) -> str:
    """Quote a value in a message."""
    return f'"{value[:80]}"' if isinstance(value, str) else noun(value)
