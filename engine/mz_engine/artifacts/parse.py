"""Read artifacts: JSON and YAML as items, and the data for decisions of any artifact.

`parse_artifact` is total: any text gives a result, with only legal names and paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace
from mz_events.catalog.validation import Unit
from mz_events.names import NAME
from mz_projections.memory.evidence import LESSON_KINDS

from mz_engine.artifacts import markdown as md
from mz_engine.errors.diagnostics import MzError
from mz_engine.model import rules as kinds
from mz_engine.model.rules import ParsedArtifact, RuleSet

BREAKING_CHANGE = re.compile(r"[\W_]{0,12}BREAKING[ -]CHANGE\b")
"""As in Conventional Commits; list marks and emphasis may precede it."""
NOUNS = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}


class Item(msgspec.Struct, frozen=True):
    """One object; `line` from 1, None if unknown."""

    fields: Mapping[str, Any]
    line: int | None = None


class UnreadableItems(Exception):
    """Reason why a text gives no items."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem, self.line = problem, line


def read_items(rule: kinds.JsonForm, text: str) -> tuple[Item, ...]:
    """Return the objects of a text: see `JsonForm` for the accepted forms. Raises UnreadableItems."""
    text, load = md.normalise_newlines(text), load_yaml_items if isinstance(rule, kinds.YamlForm) else load_json
    value, lines = read_value(text, rule, load)
    if rule.root == "list":
        return list_items(value, lines, rule.min)
    if not isinstance(value, dict):
        raise UnreadableItems(f"it holds {type_noun(value)}, not an object")
    if rule.root == "object":
        return (Item(value, 1),)
    if not value:
        raise UnreadableItems("the map is empty")
    for key, entry in value.items():
        if not isinstance(entry, dict):
            raise UnreadableItems(f"the value of {str(key)[:80]!r} is {type_noun(entry)}, not an object")
    return tuple(Item({**entry, "id": str(key)}) for key, entry in value.items())


Loaded = tuple[Any, Sequence[int]]
"""A value and, if it is a list, the line in which each of its entries begins."""


def read_value(text: str, rule: kinds.JsonForm, load: Callable[[str], Loaded]) -> Loaded:
    """Return the value of the text. If it may be embedded and the text as such is none of that form (sentences can be
    YAML too: a text or a mapping), return that of the last code block with a list or an object."""
    blocks = reversed(md.read_markdown(text).blocks) if rule.embedded else ()
    problem, loaded = UnreadableItems(""), None
    try:
        loaded = load(text)
        if isinstance(loaded[0], list if rule.root == "list" else dict):
            return loaded
    except UnreadableItems as error:
        problem = error
        if not rule.embedded and text.lstrip().startswith(("```", "~~~")):
            raise UnreadableItems("it stands in a code fence; write its content alone", 1) from None
    for number, block in enumerate(blocks):
        try:
            if isinstance((embedded := load(block))[0], list | dict):
                return embedded
        except UnreadableItems as error:
            if number == 0 and loaded is None:
                problem = UnreadableItems(f"in the last code block: {error.problem}", error.line)
    if loaded is None:
        raise problem
    return loaded


@lru_cache(maxsize=16)  # A reply is parsed, checked, and shown in prompts.
def load_yaml_items(text: str) -> Loaded:
    from mz_engine.decoding.yaml import parse_yaml

    try:
        document = parse_yaml(text.encode("utf-8", "replace").decode(), "")  # A lone surrogate is no character.
    except MzError as error:
        first = error.diagnostics[0]
        raise UnreadableItems(first.message, first.location.line if first.location else None) from None
    value, count = document.value, len(document.value) if isinstance(document.value, list) else 0
    return value, [document.location(number).line or 1 for number in range(count)]


def load_json(text: str) -> Loaded:
    try:
        value = json.loads(text)
        return value, item_lines(text, len(value)) if isinstance(value, list) else ()
    except json.JSONDecodeError as error:
        raise UnreadableItems(f"{error.msg} in column {error.colno}", error.lineno) from None
    except RecursionError:
        raise UnreadableItems("RecursionError") from None
    except ValueError as error:
        raise UnreadableItems(str(error)[:200]) from None


def list_items(value: Any, lines: Sequence[int], least: int = 1) -> tuple[Item, ...]:
    if isinstance(value, dict):
        lists = [m for m in value.values() if isinstance(m, list) and m and all(isinstance(item, dict) for item in m)]
        return tuple(map(Item, lists[0])) if len(lists) == 1 else (Item(value, 1),)
    if not isinstance(value, list):
        raise UnreadableItems(f"it holds {type_noun(value)}, not a list")
    if not value and least:
        raise UnreadableItems("the list is empty")
    for number, member in enumerate(value, 1):
        if not isinstance(member, dict):
            raise UnreadableItems(f"entry {number} is {type_noun(member)}, not an object")
    return tuple(Item(member, line) for member, line in zip(value, lines, strict=True))


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


def artifact_items(rules: RuleSet, text: str) -> tuple[Item, ...]:
    """Return the items of an artifact of any form. Raises UnreadableItems."""
    if rules.form == "markdown":
        return markdown_items(rules, md.read_markdown(text))
    return read_items(form_rule(rules), text)


LIST_TYPES = ("texts", "names", "paths")
CHECKLIST_ENTRY = re.compile(
    r"\[([ xX])\]\s+(?:[*_`]{0,3}([A-Za-z0-9][\w-]{0,63})[*_`]{0,3}\s{0,9}[:.–—-]\s+)?(.*)", re.DOTALL
)
"""Mark, id if there is one, text. Bounded, since an agent writes what it reads."""


def markdown_items(rules: RuleSet, document: md.MarkdownDocument) -> tuple[Item, ...]:
    """Return the items of the rule set's list, which `ItemList` describes; none without such a rule. Raises
    UnreadableItems for a heading without a YAML mapping."""
    listing = next((rule for rule in rules.rules if isinstance(rule, kinds.ItemList)), None)
    if listing is None:
        return ()
    section = md.find_rule(rules, listing.section, kinds.SectionRule)
    items = list[Item]()
    for part in md.section_parts(rules, section, document):
        if listing.shape == "entries":
            items += _headed_items(document, part)
            continue
        for entry in document.entries_between(part.first, part.end):
            fields: dict[str, Any] = {}
            if listing.shape == "table" and entry.header:
                names = (md.comparable_heading(title).replace(" ", "_") for title in entry.header)
                fields = {name: _cell_value(rules, name, cell) for name, cell in zip(names, entry.cells, strict=False)}
            elif listing.shape == "checklist" and (match := CHECKLIST_ENTRY.match(entry.cells[0])):
                fields = {"id": match[2] or "", "text": match[3], "done": "no" if match[1] == " " else "yes"}
            if fields:
                items.append(Item(fields, entry.line + 1))
    return tuple(items)


def _headed_items(document: md.MarkdownDocument, part: md.SectionPart) -> Iterator[Item]:
    for heading in document.headings:
        if part.first <= heading.line < part.end:
            text = "\n".join(document.lines[heading.body_start : heading.body_end])
            blocks = md.read_markdown(text).blocks
            value = load_yaml_items(blocks[0])[0] if blocks else None
            if not isinstance(value, dict):
                problem = f"below {heading.text[:80]!r} stands no YAML mapping in a code block"
                raise UnreadableItems(problem, heading.line + 1)
            yield Item({**value, "id": heading.text.strip(" `*_")}, heading.line + 1)


def _cell_value(rules: RuleSet, name: str, cell: str) -> str | list[str]:
    """Return a cell as text without marks, or as a list where a rule, or the extraction of units, needs one."""
    text, rule, units = cell.strip().strip("`*_").strip(), field_rule(rules, name), rules.extract.units
    is_list = units is not None and name in (units.files, units.depends_on) if rule is None else rule.type in LIST_TYPES
    if not is_list:
        return text
    return [entry.strip(" `*_") for entry in text.split(",") if entry.strip(" `*_-")]


def type_noun(value: Any) -> str:
    return NOUNS.get(type(value), "null")


def form_rule(rules: RuleSet) -> kinds.JsonForm:
    """Return the rule for reading the artifact. Raises KeyError for a Markdown rule set."""
    for rule in rules.rules:
        if isinstance(rule, kinds.JsonForm):
            return rule
    raise KeyError(rules.name)


def field_rule(rules: RuleSet, field: str) -> kinds.FieldRule | None:
    return next(
        (r for r in rules.rules if isinstance(r, kinds.FieldRule) and r.field == field and r.within is None), None
    )


def field_value(rules: RuleSet, item: Item, field: str) -> Any:
    """Return the value under the field's name or one of its aliases; None if absent."""
    rule = field_rule(rules, field)
    values = (member_value(item.fields, name) for name in (field, *(rule.aliases if rule else ())))
    return next((value for value in values if value is not None), None)


def member_value(fields: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field, in which a dot leads into a mapping, or those of a list; None if absent."""
    head, dot, tail = name.partition(".")
    value = fields.get(name if name in fields or not dot else head)
    if name in fields or not dot:
        return value
    if isinstance(value, list):
        return [member_value(entry, tail) for entry in value if isinstance(entry, Mapping)]
    return member_value(value, tail) if isinstance(value, Mapping) else None


def fulfils(rules: RuleSet, item: Item, condition: kinds.FieldCondition) -> bool:
    """Return True if the condition holds for the item."""
    values = {value.casefold() for value in non_blank_strings(field_value(rules, item, condition.field))}
    return not condition.field or not values.isdisjoint(map(str.casefold, condition.values))


def comparable_text(text: str) -> str:
    """Return a text whose case and white space make no difference."""
    return " ".join(text.casefold().split())


def non_blank_strings(value: Any) -> tuple[str, ...]:
    """Return the non-blank strings of a list, or a single string; empty for anything else."""
    members = value if isinstance(value, list) else [value]
    return tuple(member.strip() for member in members if isinstance(member, str) and member.strip())


# data for decisions ---------------------------------------------------------------------------------------------------
def parse_artifact(rules: RuleSet, text: str) -> ParsedArtifact:
    """Extract the data of the rule set's `extract`; illegal or absent data are left out, for `validate` to report."""
    extraction, is_markdown, items = rules.extract, rules.form == "markdown", tuple[Item, ...]()
    try:
        items = artifact_items(rules, text)
    except UnreadableItems:
        if not is_markdown:
            return ParsedArtifact()
    units = tuple(extract_units(rules, extraction.units, items)) if extraction.units else ()
    names = (field_value(rules, item, extraction.names or "") for item in items[:1])
    ids = (field_value(rules, item, extraction.ids or "") for item in items)
    parsed = ParsedArtifact(
        units=units,
        files=tuple(dict.fromkeys(file for unit in units for file in unit.files)),
        fields=dict(extract_fields(rules, items[0], extraction.fields)) if items else {},
        names=tuple(name for value in names for name in non_blank_strings(value) if NAME.match(name)),
        ids=tuple(dict.fromkeys(name for value in ids for name in non_blank_strings(value) if NAME.match(name))),
        counts={count.name: sum(fulfils(rules, item, count) for item in items) for count in extraction.counts},
    )
    if not is_markdown:
        return parsed
    document = md.read_markdown(text)
    listing = md.find_rule(rules, extraction.files, kinds.FileList) if extraction.files else None
    files = md.listed_files(rules, listing, document) if listing else ()
    section = md.find_rule(rules, extraction.criteria, kinds.SectionRule) if extraction.criteria else None
    criteria = md.section_parts(rules, section, document) if section else ()
    return replace(
        parsed,
        files=tuple(dict.fromkeys((*(listed.path for listed in files if listed.path), *parsed.files))),
        criteria=len({entry.line for part in criteria for entry in document.entries_between(part.first, part.end)}),
        breaking=tuple(line.strip() for line in document.lines if BREAKING_CHANGE.match(line)),
    )


def title_and_body(text: str) -> tuple[str, str]:
    """Return the first level 1 heading in one line, and the text without it; an empty title without one."""
    document = md.read_markdown(text)
    for heading in document.headings:
        if heading.level == 1:
            body = (*document.lines[: heading.line], *document.lines[heading.body_start :])
            return " ".join(heading.text.split()), "\n".join(body).strip() + "\n"
    return "", text


def extract_learnings(rules: RuleSet, text: str) -> Iterator[kinds.StatedLearning]:
    """Yield the learnings that the items state; illegal ones are left out, for `validate` to report."""
    with suppress(UnreadableItems):
        for item in artifact_items(rules, text) if rules.extract.learnings else ():
            kind, key, statement = (field_value(rules, item, name) for name in ("kind", "key", "statement"))
            tags, phases = (
                tuple(filter(NAME.match, non_blank_strings(field_value(rules, item, name))))
                for name in ("tags", "phases")
            )
            is_legal = kind in LESSON_KINDS and isinstance(key, str) and isinstance(statement, str)
            if is_legal and NAME.match(key) and statement.strip():
                yield kinds.StatedLearning(kind=kind, key=key, statement=statement.strip(), tags=tags, phases=phases)


def extract_units(rules: RuleSet, field_names: kinds.UnitFields, items: tuple[Item, ...]) -> Iterator[Unit]:
    used_ids: set[str] = set()
    for item in items:
        name = field_value(rules, item, field_names.id)
        if not isinstance(name, str) or not NAME.match(name) or name in used_ids:
            continue
        used_ids.add(name)
        needed_ids = filter(NAME.match, non_blank_strings(field_value(rules, item, field_names.depends_on)))
        paths = map(md.repository_path, non_blank_strings(field_value(rules, item, field_names.files)))
        fields = dict(extract_fields(rules, item, field_names.fields))
        yield Unit(id=name, depends_on=tuple(needed_ids), files=tuple(filter(None, paths)), fields=fields)


def unit_record(rules: RuleSet, text: str, unit: str) -> str:
    """Return the item of a unit as JSON; empty if the text has none."""
    names = rules.extract.units
    with suppress(UnreadableItems):
        for item in artifact_items(rules, text) if names else ():
            if names and field_value(rules, item, names.id) == unit:
                return json.dumps(item.fields, indent=2, ensure_ascii=False)
    return ""


def extract_fields(rules: RuleSet, item: Item, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        rule, value = field_rule(rules, name), field_value(rules, item, name)
        if rule is None or not isinstance(value, str):
            continue
        value = value.strip()
        choices = [choice for choice in rule.values if choice.casefold() == value.casefold()]
        if choices or (not rule.values and NAME.match(value)):
            yield name, choices[0] if choices else value
