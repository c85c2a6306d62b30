"""Pure: ways to break each rule of a valid artifact. A kind of rule without one is noticed: nothing tried it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace
from mz_engine.artifacts.rule import (
    Acyclic,
    Bytes,
    Covers,
    Field,
    File,
    Files,
    Json,
    Paths,
    Placeholders,
    References,
    Rule,
    Section,
    Title,
    Unique,
    Words,
    Worst,
)

from mz_qa.layers.drafts import Draft, Part, choice_of, definition, files, filled, least_bytes, neutral, with_words

BYTES_MAX = 4_000_000
"""A larger limit is not filled up."""
ENTRIES_MAX = 2_000
OUTSIDE = ("../a.py", "/etc/passwd", "src/", "*.py")
"""What is no single file inside the repository."""
NO_CHOICE = "NO-SUCH-CHOICE"


class Mutation(NamedTuple):
    """An artifact that breaks a rule."""

    what: str
    """In words that follow "an artifact"."""
    text: str | None
    """None: there is no file."""
    others: dict[str, str] | None = None
    """Earlier artifacts; None: those of the draft."""


def mutations(made: Draft, rule: Rule) -> Iterator[Mutation]:
    """Some ways to break this rule, the others being kept as far as that can be."""
    match rule:
        case File():
            yield Mutation("that is not there", None)
        case Bytes():
            yield from _sizes(made, rule)
        case Placeholders():
            for alias in rule.aliases:
                if (text := _saying(made, alias)) is not None:
                    yield Mutation(f"with {alias!r} in it", text)
        case Covers():
            yield from _uncovered(made, rule)
        case Unique(pattern=str() as pattern):
            if line := definition(pattern, 7):
                yield Mutation("with an id that is defined twice", f"{made.text}\n{line}\n\nwords\n\n{line}\n\nwords\n")
        case Words() | Title() | Section() | Files() | Paths():
            yield from _markdown(made, rule)
        case _:
            yield from _json(made, rule)


def _sizes(made: Draft, rule: Bytes) -> Iterator[Mutation]:
    least, most = made.limit(rule.min), made.limit(rule.max)
    if least > 0:
        yield Mutation("that is too short", made.text[: least // 4])
    if most <= BYTES_MAX:
        yield Mutation("that is too long", made.text + "\n" * (most + 1))


def _saying(made: Draft, words: str) -> str | None:
    """With these words where prose stands; None where the artifact has no prose."""
    if made.rules.form == "markdown":
        return with_words(made, words).text
    field = _prose(made)
    return None if field is None else _with(made, field, f"{words} {made.items[0].get(field.field, '')} {words}")


def _prose(made: Draft) -> Field | None:
    fields = [rule for rule in made.rules.rules if isinstance(rule, Field) and rule.type == "text" and not rule.within]
    return next(iter(fields), None)


def _uncovered(made: Draft, rule: Covers) -> Iterator[Mutation]:
    text = made.others.get(rule.artifact, "")
    if rule.field:
        items = json.loads(text or "[]")
        more = json.dumps([*items, {**(items[0] if items else {}), rule.field: "no-such-id"}])
        yield Mutation(f"that leaves out an id of {rule.artifact}", made.text, {**made.others, rule.artifact: more})
    elif line := definition(rule.pattern or "", 777):
        more = f"{text}\n\n{line}\n\nwords\n"
        yield Mutation(f"that leaves out an id of {rule.artifact}", made.text, {**made.others, rule.artifact: more})


# Markdown -------------------------------------------------------------------------------------------------------------
def _markdown(made: Draft, rule: Rule) -> Iterator[Mutation]:
    match rule:
        case Words():
            count = made.limit(rule.max) + 1
            yield Mutation("with too many words", with_words(made, " ".join(["word"] * count)).text)
        case Title():
            most = made.limit(rule.max)
            yield Mutation("without a title", replace(made, title="").text)
            yield Mutation("whose title is of level 2", "#" + made.text)
            yield Mutation("whose title is too long", replace(made, title="w" * (most + 1)).text)
        case Section():
            yield from _sections(made, rule)
        case Files():
            yield from _lists(made, rule)
        case Paths():
            lists = next(one for one in made.rules.rules if isinstance(one, Files) and one.id == rule.files)
            for path in OUTSIDE:
                listed = files(max(1, made.limit(lists.min)), False, path)
                yield Mutation(f"that lists {path}", _with_body(made, lists.section, listed))


def _sections(made: Draft, rule: Section) -> Iterator[Mutation]:
    rest = tuple(part for part in made.parts if part.rule != rule.id)
    (own,) = (part for part in made.parts if part.rule == rule.id)
    yield Mutation("without the section", _ended(made, rest))
    yield Mutation("whose section is empty", _ended(made, (replace(own, body=""), *rest)))
    if own.head.startswith("## "):
        lower = replace(own, head=f"##{own.head}")
        yield Mutation("whose section has a heading of level 4", _ended(made, (*rest, lower)))


def _ended(made: Draft, parts: tuple[Part, ...]) -> str:
    """With a section at the end that answers nothing, so that none before it ends the text, and as long as needed."""
    return filled(replace(made, parts=(*parts, Part(rule="", head=neutral(made.rules), body="words")))).text


def _lists(made: Draft, rule: Files) -> Iterator[Mutation]:
    least, most = made.limit(rule.min), made.limit(rule.max)
    if least > 0:
        yield Mutation("that lists no file", _with_body(made, rule.section, "words, and no list"))
    if most <= ENTRIES_MAX:
        yield Mutation("that lists too many files", _with_body(made, rule.section, files(most + 1)))


def _with_body(made: Draft, section: str, body: str) -> str:
    parts = tuple(replace(part, body=body) if part.rule == section else part for part in made.parts)
    return filled(replace(made, parts=parts)).text


# JSON -----------------------------------------------------------------------------------------------------------------
def _json(made: Draft, rule: Rule) -> Iterator[Mutation]:
    match rule:
        case Json():
            yield from _no_json(made, rule)
        case Unique(field=str() as field):
            yield from _twice(made, field)
        case References():
            value: Any = "no-such-id" if _type_of(made, rule.field) == "name" else ["no-such-id"]
            yield Mutation("that names what is not there", _with_value(made, rule.field, value))
        case Acyclic():
            own = made.items[0].get(rule.to)
            value = own if _type_of(made, rule.field) == "name" else [own]
            yield Mutation("with an item that waits for itself", _with_value(made, rule.field, value))
        case Worst():
            choice = choice_of(made.rules, rule)
            for value in choice.values:
                if value != made.items[0][rule.field]:
                    yield Mutation(f"that says {value}", _with_value(made, rule.field, value))
        case Field():
            for what, value in _bad_values(made, rule):
                yield Mutation(f"whose `{rule.field}` {what}", _with(made, rule, value))


def _no_json(made: Draft, rule: Json) -> Iterator[Mutation]:
    bare = made.text.rstrip()
    size = least_bytes(made)
    yield Mutation("that is cut off", bare[:-1] + " " * size)
    yield Mutation("that is a text", json.dumps("x" * max(10, size)))
    if rule.root == "list":
        yield Mutation("that is an empty list", "[" + " " * size + "]")
        yield Mutation("that lists something else than objects", json.dumps([*made.items, 1]) + " " * size)
    else:
        yield Mutation("that is a list", json.dumps(list(made.items)) + " " * size)


def _twice(made: Draft, field: str) -> Iterator[Mutation]:
    value = made.items[0].get(field)
    if isinstance(value, list) and value:
        yield Mutation(f"with a `{field}` that is given twice", _with_value(made, field, [*value, value[0]]))
    elif not any(isinstance(rule, Json) and rule.root == "object" for rule in made.rules.rules):
        again = replace(made, items=(*made.items, made.items[0]))
        yield Mutation(f"with a `{field}` that is given twice", again.text)


def _type_of(made: Draft, field: str) -> str:
    return next((rule.type for rule in made.rules.rules if isinstance(rule, Field) and rule.field == field), "names")


class Absent:
    """No value at all."""


def _bad_values(made: Draft, rule: Field) -> Iterator[tuple[str, Any]]:
    """What the field may not be."""
    least, most = made.limit(rule.min), None if rule.max is None else made.limit(rule.max)
    if not rule.optional:
        yield "is missing", Absent
    match rule.type:
        case "text":
            yield "is a number", 7
            if least > 0:
                yield "is empty", ""
            if most is not None and most <= BYTES_MAX:
                yield "is too long", "w" * (most + 1)
        case "name":
            yield from (("is a number", 7), ("is no name", "a name"))
        case "choice":
            yield from (("is a number", 7), ("is none of its values", NO_CHOICE))
        case "number":
            yield from (("is a text", "many"), ("is true", True), ("is too small", least - 1))
            if most is not None:
                yield "is too large", most + 1
        case _:
            yield from _bad_lists(rule, least, most)


def _bad_lists(rule: Field, least: int, most: int | None) -> Iterator[tuple[str, Any]]:
    yield from (("is no list", 7), ("lists a number", [7] * max(1, least)))
    if least > 0:
        yield "is empty", []
    members: dict[str, tuple[Any, ...]] = {"texts": ("",), "names": ("", "a name"), "paths": ("", *OUTSIDE)}
    for member in members.get(rule.type, ()):
        yield f"lists {member!r}", [member] * max(1, least)
    if most is not None and most <= ENTRIES_MAX:
        good: Any = {} if rule.type == "objects" else "x.py"
        yield "lists too many", [good] * (most + 1)


def _with_value(made: Draft, field: str, value: Any) -> str:
    """The first item with this value under the field's own name."""
    first = {**made.items[0], field: value}
    return replace(made, items=(first, *made.items[1:])).text


def _with(made: Draft, rule: Field, value: Any) -> str:
    """The same for a rule's field, wherever it stands; Absent: without it."""
    names = (rule.field, *rule.aliases)

    def changed(item: dict[str, Any]) -> dict[str, Any]:
        kept = {name: one for name, one in item.items() if name not in names}
        return kept if value is Absent else {**kept, rule.field: value}

    if rule.within is None:
        return replace(made, items=(changed(made.items[0]), *made.items[1:])).text
    return _with_value(made, rule.within, [changed(one) for one in made.items[0].get(rule.within) or [{}]])
