"""Validate one artifact against the rules of its kind: one table of checks for each form."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec
from mz_events.catalog.validation import Violation
from mz_events.names import NAME

from mz_engine.artifacts import markdown as md
from mz_engine.artifacts.parse import (
    Item,
    UnreadableItems,
    artifact_items,
    comparable_text,
    field_rule,
    field_value,
    form_rule,
    fulfils,
    markdown_items,
    member_value,
    non_blank_strings,
    read_items,
    type_noun,
)
from mz_engine.decoding.regex import matches_any
from mz_engine.model import rules as kinds
from mz_engine.model.config import Limits
from mz_engine.model.pipeline import Limit
from mz_engine.model.rules import Rule, RuleFinding, RuleSet

BLOCKING_KINDS = (kinds.FileRule, kinds.ByteSize, kinds.JsonForm)
"""Kinds of rules after whose violation later rules would only repeat it."""
QUOTE_CHARS_MAX = 300
"""Characters of an artifact that a message quotes, in one line."""
MESSAGE_SLOT = re.compile(r"\{(min|max|aliases|values|item|found)\}")
ID_RANGE = re.compile(r"\b([A-Z]+-)(\d{1,4})(?:\s*(?:–|—|-|\.\.\.?|…|to|through)\s*)(?:\1)?(\d{1,4})\b")
ID_RANGE_MAX = 200
SHOWN_NUMBER_MAX = 10**15
NO_FIELDS: Mapping[str, Any] = {}
MINUTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:m|min|mins|minutes?)?\s*\Z", re.IGNORECASE)
LIST_RULES = [form(id="", requirement="", message="", root="list") for form in (kinds.JsonForm, kinds.YamlForm)]
"""Rules for reading the ids of an earlier artifact; the first that can."""


class RuleViolation(msgspec.Struct, frozen=True, kw_only=True):
    """One location where a rule is broken."""

    line: int | None = None
    """From 1."""
    location: str = ""
    """Path within the artifact, such as `[2].files_touched`: indexes and field names, never text of the artifact."""
    item_label: str = ""
    """Fills `{item}` in the message of the rule."""
    actual: str = ""
    """Fills `{found}`."""


class ArtifactSubject(msgspec.Struct, dict=True):
    """The artifact being checked, parsed once, and the data that its rules may use."""

    rules: RuleSet
    text: str
    limits: Limits
    earlier_artifacts: Mapping[str, str]
    unit: Mapping[str, Any]
    paths: Collection[str] | None

    @cached_property
    def document(self) -> md.MarkdownDocument:
        return md.read_markdown(self.text)

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """The items; empty if they cannot be read, which the rule about their form reports."""
        try:
            return artifact_items(self.rules, self.text)
        except UnreadableItems:
            return ()

    def limit(self, limit: Limit) -> int:
        return self.limits.resolve(limit)

    def values(self, item: Item, field: str) -> tuple[str, ...]:
        """Return the non-blank strings of a field."""
        return non_blank_strings(field_value(self.rules, item, field))

    def objects(self, item: Item, field: str) -> list[Any]:
        """Return the entries of a list field; empty if it is none."""
        nested = field_value(self.rules, item, field)
        return nested if isinstance(nested, list) else []

    def members(self, field: str) -> Iterator[Item]:
        """Yield the objects in a list field of the items."""
        for item in self.items:
            yield from (Item(member, item.line) for member in self.objects(item, field) if isinstance(member, dict))

    def label(self, item: Item, number: int) -> str:
        """Return an item's number, with its id if that is legal."""
        rules = (rule for rule in self.rules.rules if isinstance(rule, kinds.FieldRule) and rule.type == "name")
        value = field_value(self.rules, item, next((rule.field for rule in rules), ""))
        return f"{number} ({value})" if isinstance(value, str) and NAME.match(value) else str(number)

    def ids_of(self, artifact: str, field: str | None, pattern: str | None) -> tuple[str, ...]:
        """Return the distinct ids that an earlier artifact defines; empty if it is absent."""
        text = self.earlier_artifacts.get(artifact)
        if text is None:
            return ()
        return tuple(
            dict.fromkeys(field_ids(text, field) if field else md.defined_ids(pattern or "", md.read_markdown(text)))
        )


def validate(
    rules: RuleSet,
    text: str | None,
    source: str,
    limits: Limits,
    earlier_artifacts: Mapping[str, str],
    unit: Mapping[str, Any] = NO_FIELDS,
    paths: Collection[str] | None = None,
) -> tuple[RuleFinding, ...]:
    """Return every broken rule, in the order of the rules. `text` is None if the file does not exist; `source` is its
    path, or the artifact's name for a reply. `unit` has the fields of the present unit, `paths` the files of the tree.
    A rule about an absent one of the `earlier_artifacts`, an absent field or unknown paths never fails."""
    if text is None:
        missing = [rule for rule in rules.rules if isinstance(rule, kinds.FileRule)]
        return tuple(rule_finding(rule, RuleViolation(), source, limits) for rule in missing)
    subject = ArtifactSubject(rules, text, limits, earlier_artifacts, unit, paths)
    findings: list[RuleFinding] = []
    for rule in rules.rules:
        check = CHECKS[rules.form].get(type(rule))
        violations = list(check(rule, subject)) if check else []
        findings += [rule_finding(rule, violation, source, limits) for violation in violations]
        if violations and isinstance(rule, BLOCKING_KINDS):
            break
    return tuple(findings)


def requirements(rules: RuleSet, limits: Limits) -> tuple[str, ...]:
    """Return the text of every rule that `validate` enforces, with all aliases and numbers."""
    return tuple(fill_slots(rule.requirement, rule, limits) for rule in rules.rules)


def judged_answers(rules: RuleSet, text: str) -> list[dict[str, Any]]:
    """Return the answers of a verdict to the rules that its reviewer judges, as far as they can be read."""
    return [
        dict(answer.fields) for answer in ArtifactSubject(rules, text, Limits(), {}, {}, None).members(kinds.JUDGED)
    ]


def rule_finding(rule: Rule, violation: RuleViolation, source: str, limits: Limits) -> RuleFinding:
    """Build a finding with the message `PATH:LINE: what is wrong. Example: ... [rule]`."""
    quote = " ".join(violation.actual.split())[:QUOTE_CHARS_MAX]
    message = fill_slots(rule.message, rule, limits, item=violation.item_label, found=quote)
    location = f"{source}:{violation.line}" if violation.line else source
    example = f". Example: {rule.example}" if rule.example else ""
    return RuleFinding(
        violation=Violation(rule=rule.id, path=source + violation.location, line=violation.line),
        message=f"{location}: {message}{example} [{rule.id}]",
    )


def fill_slots(text: str, rule: Rule, limits: Limits, **values: str) -> str:
    slots = {
        "min": limit_text(getattr(rule, "min", None), limits),
        "max": limit_text(getattr(rule, "max", None), limits),
        "aliases": quoted_list(getattr(rule, "aliases", ())),
        "values": quoted_list(getattr(rule, "values", ())),
        **values,
    }
    return MESSAGE_SLOT.sub(lambda slot: slots.get(slot[1], slot[0]), text)


def limit_text(limit: Limit | None, limits: Limits) -> str:
    return "" if limit is None else str(limits.resolve(limit))


def quoted_list(names: tuple[str, ...]) -> str:
    quoted = [f'"{name}"' for name in names]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))


# both forms -----------------------------------------------------------------------------------------------------------
def byte_size(rule: kinds.ByteSize, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    count = len(subject.text.encode("utf-8", "surrogatepass"))
    if not subject.limit(rule.min) <= count <= subject.limit(rule.max):
        yield RuleViolation(actual=str(count))


def covered_ids(rule: kinds.CoversIds, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    """Search the whole text, for JSON and Markdown alike."""
    of_unit = non_blank_strings(member_value(subject.unit, rule.field or ""))
    ids = of_unit if rule.of == "unit" else subject.ids_of(rule.artifact, rule.field, rule.pattern)
    for name in ids:
        if not is_mentioned(subject.text, name):
            yield RuleViolation(actual=name)


def field_ids(text: str, field: str) -> list[str]:
    for rule in LIST_RULES:
        with suppress(UnreadableItems):
            return [value for item in read_items(rule, text) for value in non_blank_strings(item.fields.get(field))]
    return []


def matching_text(rule: kinds.MatchingText, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    """Require a match in any line of the text, or in every value of the field."""
    if rule.where is None:
        if not any(matches_any((rule.pattern,), line) for line in subject.text.splitlines()):
            yield RuleViolation()
        return
    yield from wrong_values(rule.where, subject, lambda value: not matches_any((rule.pattern,), value))


def existing_paths(rule: kinds.ExistingPaths, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    new = {path for item in subject.items for path in subject.values(item, rule.new or "")}
    present = {*(subject.paths or ()), *filter(None, map(md.repository_path, new))}
    if subject.paths is not None:
        yield from wrong_values(rule.field, subject, lambda value: md.repository_path(value) not in present)


def wrong_values(field: str, subject: ArtifactSubject, is_wrong: Callable[[str], bool]) -> Iterator[RuleViolation]:
    """Yield a violation for each value of the items' field that is wrong."""
    for number, item in enumerate(subject.items, 1):
        for value in filter(is_wrong, subject.values(item, field)):
            location, label = f"[{number}].{field}", subject.label(item, number)
            yield RuleViolation(line=item.line, location=location, item_label=label, actual=quote_value(value))


def is_mentioned(text: str, name: str) -> bool:
    """Return True if the name occurs in the text as a word, or inside a range of ids with its prefix."""
    text = md.normalise_newlines(text)
    if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
        return True
    for prefix, first, last in ID_RANGE.findall(text):
        numbers = range(int(first), min(int(last), int(first) + ID_RANGE_MAX) + 1)
        if any(name == f"{prefix}{number:0{len(first)}d}" for number in numbers):
            return True
    return False


# Markdown -------------------------------------------------------------------------------------------------------------
def placeholders(rule: kinds.NoPlaceholders, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    """Yield one violation for each line with a placeholder."""
    is_prose = subject.rules.form == "markdown"
    patterns = [re.compile(pattern) for pattern in rule.patterns]
    for number, line in enumerate(
        subject.document.prose if is_prose else map(md.blank_spans, subject.text.split("\n")), 1
    ):
        if match := next(filter(None, (pattern.search(line) for pattern in patterns)), None):
            yield RuleViolation(line=number, actual=match[0])


def word_count(rule: kinds.WordCount, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    count = md.total_words(subject.document)
    if count > subject.limit(rule.max):
        yield RuleViolation(actual=str(count))


def title_form(rule: kinds.TitleRule, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    first = next(iter(subject.document.headings), None)
    if first is None:
        yield RuleViolation(actual="there is no heading")
    elif first.level != 1:
        yield RuleViolation(line=first.line + 1, actual=f"the first heading is of level {first.level}")
    elif not first.text.strip():
        yield RuleViolation(line=first.line + 1, actual="the first heading is empty")
    elif len(first.text) > subject.limit(rule.max):
        yield RuleViolation(line=first.line + 1, actual=f"it has {len(first.text)} characters")


def section_content(rule: kinds.SectionRule, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    parts = md.section_parts(subject.rules, rule, subject.document)
    if parts and all(md.is_empty(part, subject.document) for part in parts):
        yield RuleViolation(line=parts[0].line + 1, actual="nothing stands below the heading")
    elif not parts:
        aliases = tuple(map(md.comparable_heading, rule.aliases))
        others = (heading for heading in subject.document.headings if heading.level not in (2, 3))
        lines = (other.line + 1 for other in others if md.comparable_heading(other.text).startswith(aliases))
        line = next(lines, None)
        yield RuleViolation(line=line, actual="the heading is not of level 2 or 3" if line else "no such heading")


def file_count(rule: kinds.FileList, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    """Check the number of listed files; an absent or empty section is left to its own rule."""
    section = md.find_rule(subject.rules, rule.section, kinds.SectionRule)
    parts = md.section_parts(subject.rules, section, subject.document)
    filled_parts = [part for part in parts if not md.is_empty(part, subject.document)]
    count = len(md.listed_files(subject.rules, rule, subject.document))
    if filled_parts and not subject.limit(rule.min) <= count <= subject.limit(rule.max):
        yield RuleViolation(line=filled_parts[0].line + 1, actual=str(count) if count else "no")


def file_paths(rule: kinds.FilePaths, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    listing = md.find_rule(subject.rules, rule.files, kinds.FileList)
    for listed in md.listed_files(subject.rules, listing, subject.document):
        if listed.path is None:
            yield RuleViolation(line=listed.line + 1, actual=listed.text)


def unique_ids(rule: kinds.UniqueIds, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    if rule.field is not None:
        yield from unique_values(rule, subject)
    counts = Counter(md.defined_ids(rule.pattern or r"(?!)()", subject.document))
    for name in sorted(name for name, count in counts.items() if count > 1):
        yield RuleViolation(actual=name)


# JSON -----------------------------------------------------------------------------------------------------------------
def item_form(rule: kinds.JsonForm, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    try:
        count = len(read_items(form_rule(subject.rules), subject.text))
    except UnreadableItems as error:
        yield RuleViolation(line=error.line, actual=error.problem)
    else:
        if rule.max is not None and count > subject.limit(rule.max):
            yield RuleViolation(actual=f"it has {count} entries, which is more than {subject.limit(rule.max)}")


def item_list(rule: kinds.ItemList, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    """Check the form and number of items; an absent or empty section is left to its own rule."""
    section = md.find_rule(subject.rules, rule.section, kinds.SectionRule)
    parts = md.section_parts(subject.rules, section, subject.document)
    try:
        count = len(markdown_items(subject.rules, subject.document))
    except UnreadableItems as error:
        yield RuleViolation(line=error.line, actual=error.problem)
        return
    fits = subject.limit(rule.min) <= count <= (count if rule.max is None else subject.limit(rule.max))
    if not fits and not all(md.is_empty(part, subject.document) for part in parts):
        yield RuleViolation(line=parts[0].line + 1, actual=str(count) if count else "none")


def exact_ids(rule: kinds.ExactIds, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    expected = rule.values
    if rule.artifact is not None:
        if rule.artifact not in subject.earlier_artifacts:
            return
        expected = subject.ids_of(rule.artifact, rule.artifact_field, rule.pattern)
    items = subject.items if rule.within is None else tuple(subject.members(rule.within))
    actual = Counter(value for item in items for value in subject.values(item, rule.field))
    for name in dict.fromkeys(expected):
        if name not in actual:
            yield RuleViolation(actual=f"{name} is missing")
    for name, count in actual.items():
        if name not in set(expected):
            yield RuleViolation(actual=f"{quote_value(name)} is not one of them")
        elif count > 1:
            yield RuleViolation(actual=f"{quote_value(name)} stands there {count} times")


def field_values(rule: kinds.FieldRule, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    for number, item in enumerate(subject.items, 1):
        if not fulfils(subject.rules, item, rule.when):
            continue
        if rule.within is None:
            yield from field_violations(rule, item, subject, f"[{number}]", subject.label(item, number))
            continue
        for index, member in enumerate(subject.objects(item, rule.within), 1):
            if isinstance(member, dict):
                yield from field_violations(rule, Item(member), subject, f".{rule.within}[{index}]", str(index))


def field_violations(
    rule: kinds.FieldRule, item: Item, subject: ArtifactSubject, location: str, item_label: str
) -> Iterator[RuleViolation]:
    values = (member_value(item.fields, name) for name in (rule.field, *rule.aliases))
    value = next((value for value in values if value is not None), None)
    if value is None:
        problem = "" if rule.optional else "is missing"
    else:
        maximum = None if rule.max is None else subject.limit(rule.max)
        problem = value_problem(rule, value, subject.limit(rule.min), maximum)
    if problem:
        yield RuleViolation(line=item.line, location=f"{location}.{rule.field}", item_label=item_label, actual=problem)


def value_problem(rule: kinds.FieldRule, value: Any, minimum: int, maximum: int | None) -> str:
    """Describe what is wrong with the value, in words that follow the field's name; empty: nothing."""
    match rule.type:
        case "text":
            return text_problem(value, minimum, maximum)
        case "name":
            fits = isinstance(value, str) and NAME.match(value) is not None
            return "" if fits else f"must be a name, not {quote_value(value)}"
        case "choice":
            fits = isinstance(value, str) and value.strip().casefold() in map(str.casefold, rule.values)
            return "" if fits else f"must be one of {', '.join(rule.values)}, not {quote_value(value)}"
        case "number":
            return number_problem(value, minimum, maximum)
    if not isinstance(value, list):
        return f"must be a list, not {type_noun(value)}"
    problems = ((number, member_problem(rule.type, member)) for number, member in enumerate(value, 1))
    member_problems = (f"entry {number} {problem}" for number, problem in problems if problem)
    problem = size_problem(len(value), "entries", minimum, maximum) or next(member_problems, "")
    if problem or rule.type != "entries":
        return problem
    ids = Counter(member["id"] for member in value if isinstance(member, dict))
    return next((f"has the id {name} twice" for name, count in ids.items() if count > 1), "")


def member_problem(kind: str, member: Any) -> str:
    if kind == "objects":
        return "" if isinstance(member, dict) else f"must be an object, not {type_noun(member)}"
    if kind == "entries" and isinstance(member, dict):
        name, member = member.get("id"), member.get("text")
        if not isinstance(name, str) or not NAME.match(name):
            return f"needs an `id` that is a name, not {quote_value(name)}"
    if problem := text_problem(member, 1, None):
        return problem
    if kind == "names" and not NAME.match(member):
        return f"must be a name, not {quote_value(member)}"
    if kind == "paths" and not md.repository_path(member):
        return f"must be the path of one file inside the repository, not {quote_value(member)}"
    return ""


def text_problem(value: Any, minimum: int, maximum: int | None) -> str:
    if not isinstance(value, str):
        return f"must be a text, not {type_noun(value)}"
    return size_problem(len(value.strip()), "characters", minimum, maximum)


def size_problem(count: int, noun: str, minimum: int, maximum: int | None) -> str:
    if count < minimum:
        return f"has {count} {noun}; at least {minimum} are needed" if count else "must be non-empty"
    return f"has {count} {noun}; at most {maximum} are allowed" if maximum is not None and count > maximum else ""


def number_problem(value: Any, minimum: int, maximum: int | None) -> str:
    """Describe what is wrong with a number. A text with one, alone or in minutes ("30 min"), counts as a number."""
    if isinstance(value, str) and (match := MINUTES.match(value)):
        value = float(match[1])
    is_infinite = isinstance(value, float) and not math.isfinite(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or is_infinite:
        return f"must be a number, not {quote_value(value)}"
    fits = value >= minimum and (maximum is None or value <= maximum)
    # An integer of hundreds of digits cannot be formatted as a float.
    description = f"is {value:g}" if abs(value) < SHOWN_NUMBER_MAX else "is far out of range"
    return "" if fits else f"{description}; it must be from {minimum} to {maximum}"


def quote_value(value: Any) -> str:
    """Quote a value in a message."""
    return f'"{value[:80]}"' if isinstance(value, str) else type_noun(value)


def unique_values(rule: kinds.UniqueIds, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    first_users: dict[str, str] = {}
    for number, item in enumerate(subject.items, 1):
        label = subject.label(item, number)
        for value in subject.values(item, rule.field or ""):
            comparable = comparable_text(value) if rule.ignore_case else value
            if comparable in first_users:
                users, location = f"{first_users[comparable]} and {label}", f"[{number}].{rule.field}"
                yield RuleViolation(line=item.line, location=location, item_label=users, actual=quote_value(value))
            first_users.setdefault(comparable, label)


def valid_references(rule: kinds.ReferencesIds, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    if rule.artifact is None:
        valid_ids = {value for item in subject.items for value in subject.values(item, rule.to)}
    elif rule.artifact in subject.earlier_artifacts:
        valid_ids = set(subject.ids_of(rule.artifact, rule.to, None))
    else:
        return
    yield from wrong_values(rule.field, subject, lambda value: value not in valid_ids)


def acyclic_graph(rule: kinds.AcyclicItems, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    graph: dict[str, set[str]] = {}
    for item in subject.items:
        for name in subject.values(item, rule.to):
            graph.setdefault(name, set()).update(subject.values(item, rule.field))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield RuleViolation(location=f"[*].{rule.field}", actual=" -> ".join(error.args[1]))


def maximum_field(rule: kinds.MaximumField, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    choice = field_rule(subject.rules, rule.field)
    order = [value.casefold() for value in choice.values] if choice else []
    for item in subject.items:
        rank = next(iter(ranks(order, [field_value(subject.rules, item, rule.field)])), None)
        members = [value.get(rule.field) for value in subject.objects(item, rule.within) if isinstance(value, dict)]
        expected = max(ranks(order, members), default=0)
        if choice and rank is not None and rank != expected:
            yield RuleViolation(line=item.line, location=f".{rule.field}", actual=choice.values[expected])


def ranks(order: list[str], values: list[Any]) -> list[int]:
    """Return the indexes in `order` of those values that have one."""
    texts = (value.strip().casefold() for value in values if isinstance(value, str))
    return [order.index(text) for text in texts if text in order]


Checks = Mapping[type, Callable[[Any, ArtifactSubject], Iterator[RuleViolation]]]
SHARED_CHECKS: Checks = {
    kinds.ByteSize: byte_size,
    kinds.NoPlaceholders: placeholders,
    kinds.CoversIds: covered_ids,
    kinds.FieldRule: field_values,
    kinds.ReferencesIds: valid_references,
    kinds.AcyclicItems: acyclic_graph,
    kinds.ExactIds: exact_ids,
    kinds.ExistingPaths: existing_paths,
    kinds.MatchingText: matching_text,
}
ITEM_CHECKS: Checks = {
    **SHARED_CHECKS,
    kinds.JsonForm: item_form,
    kinds.YamlForm: item_form,
    kinds.UniqueIds: unique_values,
    kinds.MaximumField: maximum_field,
}
CHECKS: Mapping[str, Checks] = {
    "markdown": {
        **SHARED_CHECKS,
        kinds.WordCount: word_count,
        kinds.TitleRule: title_form,
        kinds.SectionRule: section_content,
        kinds.FileList: file_count,
        kinds.FilePaths: file_paths,
        kinds.UniqueIds: unique_ids,
        kinds.ItemList: item_list,
    },
    "json": ITEM_CHECKS,
    "yaml": ITEM_CHECKS,
}
"""By form of the artifact and kind of rule; a rule without a check in a form never fails there."""
