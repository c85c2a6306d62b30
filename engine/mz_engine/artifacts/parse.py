"""Extract data for decisions from an artifact. Total: any text gives a result, with only legal names and paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mz_events.catalog.validation import Unit
from mz_events.names import NAME, Path

from mz_engine.artifacts.json_items import (
    JsonItem,
    UnreadableJson,
    field_rule,
    field_value,
    json_rule,
    non_blank_strings,
    read_items,
)
from mz_engine.artifacts.markdown import (
    MarkdownDocument,
    defined_ids,
    find_rule,
    listed_files,
    read_markdown,
    repository_path,
    section_parts,
)
from mz_engine.model.rules import FileList, ParsedArtifact, RuleSet, SectionRule, UnitFields

BREAKING_CHANGE = re.compile(r"[\W_]{0,12}BREAKING[ -]CHANGE\b")
"""As in Conventional Commits; list marks and emphasis may precede it."""


def parse_artifact(rules: RuleSet, text: str) -> ParsedArtifact:
    """Extract the data of the rule set's `extract`; illegal or absent data are left out, for `validate` to report."""
    return parse_json(rules, text) if rules.form == "json" else parse_markdown(rules, read_markdown(text))


def title_and_body(text: str) -> tuple[str, str]:
    """Return the first level 1 heading in one line, and the text without it; an empty title without one."""
    document = read_markdown(text)
    for heading in document.headings:
        if heading.level == 1:
            body = (*document.lines[: heading.line], *document.lines[heading.body_start :])
            return " ".join(heading.text.split()), "\n".join(body).strip() + "\n"
    return "", text


def parse_markdown(rules: RuleSet, document: MarkdownDocument) -> ParsedArtifact:
    extraction = rules.extract
    files: Iterable[Path | None] = ()
    if extraction.files:
        files = (listed.path for listed in listed_files(rules, find_rule(rules, extraction.files, FileList), document))
    ids = defined_ids(extraction.ids, document) if extraction.ids else ()
    return ParsedArtifact(
        files=tuple(dict.fromkeys(filter(None, files))),
        ids=tuple(dict.fromkeys(ids)),
        criteria=count_entries(rules, extraction.criteria, document) if extraction.criteria else 0,
        breaking=tuple(line.strip() for line in document.lines if BREAKING_CHANGE.match(line)),
    )


def count_entries(rules: RuleSet, section: str, document: MarkdownDocument) -> int:
    parts = section_parts(rules, find_rule(rules, section, SectionRule), document)
    return len({entry.line for part in parts for entry in document.entries_between(part.first, part.end)})


def parse_json(rules: RuleSet, text: str) -> ParsedArtifact:
    try:
        items = read_items(json_rule(rules), text)
    except UnreadableJson:
        return ParsedArtifact()
    units = tuple(extract_units(rules, rules.extract.units, items)) if rules.extract.units else ()
    return ParsedArtifact(
        units=units,
        files=tuple(dict.fromkeys(file for unit in units for file in unit.files)),
        fields=dict(extract_fields(rules, items[0])) if items else {},
        ids=tuple(unit.id for unit in units),
    )


def extract_units(rules: RuleSet, field_names: UnitFields, items: tuple[JsonItem, ...]) -> Iterator[Unit]:
    used_ids: set[str] = set()
    for item in items:
        name = field_value(rules, item, field_names.id)
        if not isinstance(name, str) or not NAME.match(name) or name in used_ids:
            continue
        used_ids.add(name)
        needed_ids = filter(NAME.match, non_blank_strings(field_value(rules, item, field_names.depends_on)))
        paths = map(repository_path, non_blank_strings(field_value(rules, item, field_names.files)))
        yield Unit(id=name, depends_on=tuple(needed_ids), files=tuple(filter(None, paths)))


def extract_fields(rules: RuleSet, item: JsonItem) -> Iterator[tuple[str, str]]:
    for name in rules.extract.fields:
        rule, value = field_rule(rules, name), field_value(rules, item, name)
        if rule is None or not isinstance(value, str):
            continue
        value = value.strip()
        choices = [choice for choice in rule.values if choice.casefold() == value.casefold()]
        if choices or (not rule.values and NAME.match(value)):
            yield name, choices[0] if choices else value
