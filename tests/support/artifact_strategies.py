"""Valid artifacts of every kind, drawn from the rule sets themselves, and ways to break each of their rules.

A mutation says which rule it breaks; a rule without a mutation is noticed by the test that uses these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from string import ascii_letters, ascii_lowercase, digits
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from msgspec.structs import replace
from mz_engine.artifacts.load import load_rules
from mz_engine.model.rules import (
    AcyclicItems,
    ByteSize,
    CoversIds,
    FieldRule,
    FileList,
    FilePaths,
    FileRule,
    JsonForm,
    MaximumField,
    NoPlaceholders,
    ReferencesIds,
    Rule,
    RuleSet,
    SectionRule,
    TitleRule,
    UniqueIds,
    WordCount,
)

TEXTS = ("entry", "month", "report", "Größe", "naïve", "a", "of", "total-sum", "x1", "journal,", "it's", "no.", "42%")
PLACEHOLDERS = (
    "{{ name }}", "{% if x %}", "TBD", "tbc TBC", "[TODO: more]", "[fixme later]", "[Insert name]", "[fill in it]",
    "[placeholder]", "[your answer]", "<todo>", "<insert name>", "<fill in>", "<placeholder>", "<Your name>", "FR-NNN",
    "NFR-XXX", "Lorem Ipsum dolor",
)  # fmt: skip
"""One and more of every alias that the rule names."""


class Draft(msgspec.Struct, kw_only=True):
    """An artifact before it is text: the title and sections of a Markdown one, or the items of a JSON one."""

    rules: RuleSet
    title: str = ""
    sections: list[tuple[str, str]] = []
    """Heading line and body, in the order of the section rules."""
    items: list[dict[str, Any]] = []
    others: dict[str, str] = {}

    @property
    def text(self) -> str:
        if self.rules.form != "markdown":
            single = any(isinstance(rule, JsonForm) and rule.root == "object" for rule in self.rules.rules)
            return json.dumps(self.items[0] if single else self.items, ensure_ascii=False, indent=1)
        parts = [f"# {self.title}"] if self.title else []
        return "\n\n".join([*parts, *(f"{heading}\n\n{body}" for heading, body in self.sections)]) + "\n"


class Mutation(msgspec.Struct, frozen=True):
    rule: str
    what: str
    apply: Callable[[Draft], str | None]


def sentence_of(number: int) -> str:
    """From 8 to 16 of the texts, told by one number: to draw each for itself takes most of the time of a draft."""
    number, more = divmod(number, 9)
    return " ".join(TEXTS[number // len(TEXTS) ** position % len(TEXTS)] for position in range(8 + more))


sentence = st.integers(0, 9 * len(TEXTS) ** 16 - 1).map(sentence_of)
name = st.text(f"{ascii_letters}{digits}_-", min_size=1, max_size=9).map(lambda text: text.lstrip("_-") or "0")
path = st.builds(
    "{}/{}.{}".format,
    st.text(ascii_lowercase, min_size=1, max_size=6),
    st.text(f"{ascii_lowercase}_", min_size=1, max_size=8),
    st.sampled_from(["py", "md", "ts"]),
)
CASES: list[Callable[[str], str]] = [str.upper, str.lower, str.title, str.swapcase, str]
recase = st.sampled_from(CASES)


@st.composite
def drafts(draw: DrawFn, kind: str) -> Draft:
    """A valid artifact of this kind."""
    rules = load_rules()[kind]
    return draw(json_drafts(rules) if rules.form != "markdown" else markdown_drafts(rules))


@st.composite
def markdown_drafts(draw: DrawFn, rules: RuleSet) -> Draft:
    sections = []
    for rule in (rule for rule in rules.rules if isinstance(rule, SectionRule)):
        alias = draw(recase)(draw(st.sampled_from(rule.aliases)))
        number = draw(st.sampled_from(["", "1. ", "2.1 ", "3) "]))
        heading = (
            f"{draw(st.sampled_from(['##', '###']))} {number}{alias}{draw(st.sampled_from(['', ':', ' in short']))}"
        )
        sections.append((heading, draw(sentence)))
    title = draw(sentence) if any(isinstance(rule, TitleRule) for rule in rules.rules) or draw(st.booleans()) else ""
    draft = Draft(rules=rules, title=title, sections=sections)
    if any(isinstance(rule, FileList) for rule in rules.rules):
        set_files(draft, draw(st.lists(path, min_size=1, max_size=8, unique=True)), draw(st.booleans()))
    for cover in (rule for rule in rules.rules if isinstance(rule, CoversIds)):
        ids = draw(st.lists(name, min_size=1, max_size=4, unique=True))
        draft.others = {cover.artifact: json.dumps([{"id": value} for value in ids])}
        add_text(draft, " ".join(f"`{text}`" for text in ids))
    return draft


@st.composite
def json_drafts(draw: DrawFn, rules: RuleSet) -> Draft:
    count = 1 if rules.name in ("verdict", "block") else draw(st.integers(1, 4))
    ids = draw(st.lists(name, min_size=count, max_size=count, unique=True))
    items: list[dict[str, Any]] = [draw(item(rules, None)) for _ in range(count)]
    for number, document in enumerate(items):
        document |= {key: ids[number] for key in ("id", "task_id") if key in document}
        if rules.name == "tasks":
            document["depends_on"] = draw(st.lists(st.sampled_from(ids[:number]), unique=True)) if number else []
    for worst in (rule for rule in rules.rules if isinstance(rule, MaximumField)):
        items[0][worst.field] = worst_of(rules, items[0][worst.within])
    others = {"tasks": json.dumps([{"id": text} for text in ids])} if rules.name == "commit_summary" else {}
    if rules.name == "tasks":
        numbers = draw(st.lists(st.integers(1, 99), max_size=4, unique=True))
        others = {"prd": "".join(f"### FR-{number:03d}: x\n\ntext\n\n" for number in numbers)}
        items[-1]["description"] += "".join(f" FR-{number:03d}" for number in numbers)
    return Draft(rules=rules, items=items, others=others)


def worst_of(rules: RuleSet, findings: list[dict[str, Any]]) -> str:
    [choice] = [
        rule for rule in rules.rules if isinstance(rule, FieldRule) and rule.type == "choice" and not rule.within
    ]
    return max((finding["severity"] for finding in findings), key=choice.values.index, default=choice.values[0])


@st.composite
def item(draw: DrawFn, rules: RuleSet, within: str | None) -> dict[str, Any]:
    return {draw(key): draw(value) for key, value in fields(rules, within)}


@cache
def fields(rules: RuleSet, within: str | None) -> list[tuple[st.SearchStrategy[str], st.SearchStrategy[Any]]]:
    """The names and the values of each field."""
    drawn = []
    for rule in (rule for rule in rules.rules if isinstance(rule, FieldRule) and rule.within == within):
        if rule.optional and rule.type != "number":
            continue
        values: dict[str, st.SearchStrategy[Any]] = {
            "text": sentence.map(lambda text: text[:150]),
            "name": name,
            "texts": st.lists(sentence, min_size=1, max_size=3),
            "paths": st.lists(path, min_size=1, max_size=5),
            "number": st.integers(1, 60),
            "choice": st.sampled_from(rule.values or ("",)),
            "objects": st.lists(item(rules, rule.field), max_size=3) if rule.type == "objects" else st.nothing(),
        }
        aliases = () if rule.field in ("id", "task_id") else rule.aliases
        drawn.append((st.sampled_from([rule.field, *aliases]), values[rule.type]))
    return drawn


def set_files(draft: Draft, files: list[str], as_table: bool = False) -> None:
    """Put this list into the section that the files rule reads."""
    [rule] = [rule for rule in draft.rules.rules if isinstance(rule, FileList)]
    sections = [other.id for other in draft.rules.rules if isinstance(other, SectionRule)]
    rows = [f"| `{file}` | x |" for file in files] if as_table else [f"- `{text}`: x" for text in files]
    body = "\n".join(["| File | What |", "| --- | --- |", *rows] if as_table else rows)
    at = sections.index(rule.section)
    draft.sections[at] = (draft.sections[at][0], body or "nothing")


def add_text(draft: Draft, text: str) -> None:
    heading, body = draft.sections[-1]
    draft.sections[-1] = (heading, f"{body}\n\n{text}")


def mutations(kind: str) -> Iterator[Mutation]:
    """At least one for every rule of the kind."""
    rules = load_rules()[kind]
    for rule in rules.rules:
        yield from broken(rule, rules)


def broken(rule: Rule, rules: RuleSet) -> Iterator[Mutation]:
    match rule:
        case FileRule():
            yield Mutation(rule.id, "no file", lambda draft: None)
        case ByteSize():
            yield Mutation(rule.id, "too short", lambda draft: draft.text[:20])
            yield Mutation(rule.id, "too long", lambda draft: draft.text + "\n" * int(rule.max))
        case WordCount():
            yield Mutation(rule.id, "too many words", lambda draft: with_text(draft, "w " * int(rule.max)))
        case NoPlaceholders():
            for text in PLACEHOLDERS:
                yield Mutation(rule.id, text, lambda draft, text=text: with_text(draft, text))  # type: ignore[misc]
        case TitleRule():
            yield Mutation(rule.id, "no title", lambda draft: draft.text.split("\n", 1)[1])
            yield Mutation(rule.id, "level 2", lambda draft: "#" + draft.text)
            yield Mutation(rule.id, "too long", lambda draft: "# " + "w" * (int(rule.max) + 1) + draft.text.lstrip("#"))
        case SectionRule():
            at = [field.id for field in rules.rules if isinstance(field, SectionRule)].index(rule.id)
            yield Mutation(rule.id, "no section", lambda draft: with_section(draft, at, None))
            yield Mutation(rule.id, "empty section", lambda draft: with_section(draft, at, ""))
        case FileList():
            yield Mutation(rule.id, "no file", lambda draft: with_files(draft, []))
            yield Mutation(rule.id, "nine files", lambda draft: with_files(draft, [f"a{n}.py" for n in range(9)]))
        case FilePaths():
            for text in ("../a.py", "/etc/passwd", "src/", "*.py", "~/a.py"):
                yield Mutation(rule.id, text, lambda draft, text=text: with_files(draft, [text, "a.py"]))  # type: ignore[misc]
        case UniqueIds(field=None):
            yield Mutation(rule.id, "twice", lambda draft: draft.text + "\n### FR-001: a\n\nx\n\n### FR-001: b\n\nx\n")
        case CoversIds():
            yield Mutation(rule.id, "one more", lambda draft: with_other(draft, rule))
        case _:
            yield from broken_json(rule)


def broken_json(rule: Rule) -> Iterator[Mutation]:
    match rule:
        case JsonForm():
            yield Mutation(rule.id, "cut off", lambda draft: draft.text[:-2])
            yield Mutation(rule.id, "a text", lambda draft: json.dumps("x" * 60))
        case UniqueIds():
            yield Mutation(rule.id, "twice", lambda draft: with_items(draft, lambda items: [*items, items[0]]))
        case ReferencesIds():
            yield Mutation(rule.id, "unknown", lambda draft: with_value(draft, rule.field, unknown(rule)))
        case AcyclicItems():
            yield Mutation(rule.id, "itself", lambda draft: with_value(draft, rule.field, [draft.items[0][rule.to]]))
        case MaximumField():
            yield Mutation(rule.id, "too mild", lambda draft: with_items(draft, lambda items: [{**items[0], **MILD}]))
        case FieldRule():
            for value in bad_values(rule):
                yield Mutation(rule.id, repr(value), lambda draft, value=value: with_field(draft, rule, value))  # type: ignore[misc]


MILD = {"severity": "NIT", "findings": [{"severity": "MAJOR", "path": "a.py", "message": "long enough a text"}]}


def bad_values(rule: FieldRule) -> Iterator[Any]:
    """Values that the field may not have; None stands for its absence."""
    if not rule.optional:
        yield None
    yield {"text": 7, "name": "a name", "choice": "HUGE", "number": "many"}.get(rule.type, "text")
    if rule.type in ("texts", "names", "paths"):
        yield from ([7], [""])
    if rule.type == "paths":
        yield from (["../a.py"], ["a/"], [f"a{n}.py" for n in range(9)] if rule.max else ["*"])
    if rule.min:
        yield {"text": "", "number": 0}.get(rule.type, [])
    if rule.max and rule.type in ("text", "number"):
        yield int(rule.max) + 1 if rule.type == "number" else "w" * (int(rule.max) + 1)


def unknown(rule: ReferencesIds) -> Any:
    return "no-such-id" if rule.artifact else ["no-such-id"]


def with_text(draft: Draft, text: str) -> str:
    if draft.rules.form == "markdown":
        return f"{draft.text}\n\n{text}\n"
    return with_value(
        draft, "summary" if draft.rules.name == "commit_summary" else "title", text + " and some more words"
    )


def with_section(draft: Draft, at: int, body: str | None) -> str:
    """With every section at level 2, so that none is part of another."""
    sections = [(f"## {heading.lstrip('# ')}", text) for heading, text in draft.sections]
    sections[at : at + 1] = [] if body is None else [(sections[at][0], body)]
    return replace(draft, sections=[*sections, ("## Further words", "w " * 30)]).text


def with_files(draft: Draft, files: list[str]) -> str:
    changed = replace(draft, sections=list(draft.sections))
    set_files(changed, files)
    return changed.text


def with_other(draft: Draft, rule: CoversIds) -> str:
    """The same text, with one more id in the other artifact."""
    if rule.field:
        ids = json.loads(draft.others[rule.artifact])
        draft.others[rule.artifact] = json.dumps([*ids, {rule.field: "no-such-id"}])
    else:
        draft.others[rule.artifact] += "### NFR-777: x\n"
    return draft.text


def with_items(draft: Draft, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> str:
    return replace(draft, items=change(json.loads(json.dumps(draft.items)))).text


def with_value(draft: Draft, field: str, value: Any) -> str:
    return with_items(draft, lambda items: [{**items[0], field: value}, *items[1:]])


def with_field(draft: Draft, rule: FieldRule, value: Any) -> str:
    """The first item with this value, under the field's own name; None: without the field."""

    def change(target: dict[str, Any]) -> dict[str, Any]:
        kept = {key: entry for key, entry in target.items() if key not in (rule.field, *rule.aliases)}
        return kept if value is None else {**kept, rule.field: value}

    if rule.within is None:
        return with_items(draft, lambda items: [change(items[0]), *items[1:]])
    finding = {"severity": "NIT", "message": "long enough a text", "path": "a.py"}
    return with_items(draft, lambda items: [{**items[0], "severity": "NIT", rule.within or "": [change(finding)]}])
