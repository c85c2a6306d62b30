"""Extract data for decisions from an artifact. Total: any text gives a result, with only legal names and paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mz_events.catalog.check import Unit
from mz_events.names import Path

from mz_engine.artifacts.document import Document, read_markdown
from mz_engine.artifacts.jsonrules import is_name
from mz_engine.artifacts.jsontext import Broken, Item, field_rule, json_rule, read_items, strings, value_of
from mz_engine.artifacts.rule import Parsed, RuleSet, UnitFields
from mz_engine.artifacts.sections import files_in, files_rule, legal, parts_of, section_rule
from mz_engine.artifacts.subject import defined

BREAKING = re.compile(r"[\W_]{0,12}BREAKING[ -]CHANGE\b")
"""As in Conventional Commits; list marks and emphasis may precede it."""


def parse(rules: RuleSet, text: str) -> Parsed:
    """Extract the data of the rule set's `extract`; illegal or absent data are left out, for `validate` to report."""
    return parse_json(rules, text) if rules.form == "json" else parse_markdown(rules, read_markdown(text))


def title_and_body(text: str) -> tuple[str, str]:
    """Return the first level 1 heading in one line, and the text without it; an empty title without one."""
    document = read_markdown(text)
    for heading in document.headings:
        if heading.level == 1:
            rest = (*document.lines[: heading.line], *document.lines[heading.below :])
            return " ".join(heading.text.split()), "\n".join(rest).strip() + "\n"
    return "", text


def parse_markdown(rules: RuleSet, document: Document) -> Parsed:
    wanted = rules.extract
    files: Iterable[Path | None] = ()
    if wanted.files:
        files = (listed.path for listed in files_in(rules, files_rule(rules, wanted.files), document))
    ids = defined(wanted.ids, document) if wanted.ids else ()
    return Parsed(
        files=tuple(dict.fromkeys(filter(None, files))),
        ids=tuple(dict.fromkeys(ids)),
        criteria=count_entries(rules, wanted.criteria, document) if wanted.criteria else 0,
        breaking=tuple(line.strip() for line in document.lines if BREAKING.match(line)),
    )


def count_entries(rules: RuleSet, section: str, document: Document) -> int:
    parts = parts_of(rules, section_rule(rules, section), document)
    return len({entry.line for part in parts for entry in document.entries_of(part.first, part.end)})


def parse_json(rules: RuleSet, text: str) -> Parsed:
    items = read_items(json_rule(rules), text)
    if isinstance(items, Broken):
        return Parsed()
    units = tuple(units_of(rules, rules.extract.units, items)) if rules.extract.units else ()
    return Parsed(
        units=units,
        files=tuple(dict.fromkeys(file for unit in units for file in unit.files)),
        fields=dict(fields_of(rules, items[0])) if items else {},
        ids=tuple(unit.id for unit in units),
    )


def units_of(rules: RuleSet, names: UnitFields, items: tuple[Item, ...]) -> Iterator[Unit]:
    seen: set[str] = set()
    for item in items:
        name = value_of(rules, item, names.id)
        if not isinstance(name, str) or not is_name(name) or name in seen:
            continue
        seen.add(name)
        yield Unit(
            id=name,
            depends_on=tuple(other for other in strings(value_of(rules, item, names.depends_on)) if is_name(other)),
            files=tuple(filter(None, map(legal, strings(value_of(rules, item, names.files))))),
        )


def fields_of(rules: RuleSet, item: Item) -> Iterator[tuple[str, str]]:
    for name in rules.extract.fields:
        rule, value = field_rule(rules, name), value_of(rules, item, name)
        if rule is None or not isinstance(value, str):
            continue
        value = value.strip()
        choices = [choice for choice in rule.values if choice.casefold() == value.casefold()]
        if choices or (not rule.values and is_name(value)):
            yield name, choices[0] if choices else value
