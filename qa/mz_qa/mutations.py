"""Mutations of generated artifacts: ways to break each rule."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace
from mz_engine.model.rules import (
    AcyclicItems,
    ByteSize,
    CoversIds,
    ExactIds,
    ExistingPaths,
    FieldRule,
    FileList,
    FilePaths,
    FileRule,
    ItemList,
    JsonForm,
    MatchingText,
    MaximumField,
    NoPlaceholders,
    ReferencesIds,
    Rule,
    SectionRule,
    TitleRule,
    UniqueIds,
    WordCount,
)

from mz_qa.generators import (
    GeneratedArtifact,
    Part,
    add_paragraph,
    choice_values,
    definition,
    file_list,
    matching_line,
    neutral_part,
    pad_to_size,
)

BYTES_MAX = 4_000_000
"""Larger limits are not tested."""
ENTRIES_MAX = 2_000
INVALID_PATHS = ("../a.py", "/etc/passwd", "src/", "*.py")
"""Paths that are no single file inside the repository."""
BAD_VALUES: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "text": (("is a number", 7),),
    "name": (("is a number", 7), ("is no valid name", "a name")),
    "choice": (("is a number", 7), ("is none of its values", "NO-SUCH-CHOICE")),
    "number": (("is a text", "many"), ("is true", True)),
}
"""Values that no field of a type accepts, with descriptions; no list accepts a number."""
BAD_MEMBERS: Mapping[str, tuple[Any, ...]] = {
    "texts": (7, ""),
    "names": (7, "", "a name"),
    "paths": (7, "", *INVALID_PATHS),
    "objects": (7,),
    "entries": (7, "", {"text": "w"}, {"id": "R1", "text": ""}, {"id": "a name", "text": "w"}),
}
"""Values that no list of a type accepts."""


class Mutation(NamedTuple):
    """An artifact that breaks a rule."""

    description: str
    """Description that follows "an artifact"."""
    text: str | None
    """None: the file is missing."""
    other_artifacts: dict[str, str] | None = None
    """Texts of other artifacts; None: those of the artifact."""
    unit: dict[str, Any] | None = None
    """Fields of the present unit; None: those of the artifact."""


def mutations(artifact: GeneratedArtifact, rule: Rule) -> Iterator[Mutation]:
    """Yield ways to break this rule while fulfilling the others as far as possible."""
    match rule:
        case FileRule():
            yield Mutation("that is missing", None)
        case ByteSize():
            least, most = artifact.limit(rule.min), artifact.limit(rule.max)
            if least > 0:
                yield Mutation("that is too short", artifact.text[: least // 4])
            if most <= BYTES_MAX:
                yield Mutation("that is too long", artifact.text + "\n" * (most + 1))
        case NoPlaceholders():
            for alias in rule.aliases:
                if (text := _with_text(artifact, alias)) is not None:
                    yield Mutation(f"with {alias!r} in it", text)
        case CoversIds(of="unit", field=str() as field):
            unit = {**artifact.unit, field: [*artifact.unit[field], "no-such-id"]}
            yield Mutation("that leaves out an id of the unit", artifact.text, None, unit)
        case CoversIds():
            yield from _uncovered(artifact, rule)
        case MatchingText(where=None):
            yield Mutation("without a line that matches", artifact.text.replace(matching_line(rule), "words"))
        case MatchingText(where=str() as field):
            yield Mutation(f"whose `{field}` does not match", _with_value(artifact, field, "no-match"))
        case ExistingPaths():
            yield Mutation("that names a file which is not there", _with_value(artifact, rule.field, ["no/such.py"]))
        case JsonForm():
            yield from _invalid_json(artifact, rule)
        case FieldRule():
            shapes = [listing.shape for listing in artifact.rules_of(ItemList)]
            for description, value in _bad_values(artifact, rule) if artifact.items else ():
                is_text = isinstance(value, str) and (value or "checklist" not in shapes)
                if shapes and "entries" not in shapes and not is_text:
                    continue  # All of a row is text, and an entry without any is none.
                yield Mutation(f"whose `{rule.field}` {description}", _with_field(artifact, rule, value))
        case _:
            yield from _in_prose(artifact, rule)
            yield from _between_items(artifact, rule)


def _in_prose(artifact: GeneratedArtifact, rule: Rule) -> Iterator[Mutation]:
    """Yield ways to break a rule about Markdown."""
    match rule:
        case UniqueIds(pattern=str() as pattern):
            if line := definition(pattern, 7):
                text = f"{artifact.text}\n{line}\n\nwords\n\n{line}\n\nwords\n"
                yield Mutation("with an id that is defined twice", text)
        case WordCount():
            count = artifact.limit(rule.max) + 1
            yield Mutation("with too many words", add_paragraph(artifact, " ".join(["word"] * count)).text)
        case TitleRule():
            most = artifact.limit(rule.max)
            yield Mutation("without a title", replace(artifact, title="").text)
            yield Mutation("whose title is of level 2", "#" + artifact.text)
            yield Mutation("whose title is too long", replace(artifact, title="w" * (most + 1)).text)
        case SectionRule():
            yield from _sections(artifact, rule)
        case FileList():
            yield from _lists(artifact, rule)
        case FilePaths():
            lists = next(other for other in artifact.rules_of(FileList) if other.id == rule.files)
            for path in INVALID_PATHS:
                listed = file_list(max(1, artifact.limit(lists.min)), False, path)
                yield Mutation(f"that lists {path}", _with_body(artifact, lists.section, listed))


def _between_items(artifact: GeneratedArtifact, rule: Rule) -> Iterator[Mutation]:
    """Yield ways to break a rule about the items."""
    match rule:
        case ItemList():
            yield from _wrong_lists(artifact, rule)
        case ExactIds(within=str() as field):
            members = artifact.items[0][field]
            yield Mutation("that leaves an id out", _with_value(artifact, field, members[1:]))
            yield Mutation("with an id twice", _with_value(artifact, field, [*members, members[0]]))
        case ExactIds():
            if len(artifact.items) > 1:
                yield Mutation("that leaves an id out", replace(artifact, items=artifact.items[1:]).text)
            yield Mutation("with an id too much", _with_value(artifact, rule.field, "no-such-id"))
        case UniqueIds(field=str() as field):
            yield from _duplicates(artifact, field)
        case ReferencesIds():
            value: Any = "no-such-id" if _type_of(artifact, rule.field) == "name" else ["no-such-id"]
            yield Mutation("that refers to an unknown id", _with_value(artifact, rule.field, value))
        case AcyclicItems():
            own_id = artifact.items[0].get(rule.to)
            value = own_id if _type_of(artifact, rule.field) == "name" else [own_id]
            yield Mutation("with an item that depends on itself", _with_value(artifact, rule.field, value))
        case MaximumField():
            for value in choice_values(artifact, rule):
                if value != artifact.items[0][rule.field]:
                    yield Mutation(f"that says {value}", _with_value(artifact, rule.field, value))


def _with_text(artifact: GeneratedArtifact, text: str) -> str | None:
    """Insert a text into the artifact's prose; None if it has no prose."""
    if artifact.rules.form == "markdown":
        return add_paragraph(artifact, text).text
    for rule in artifact.rules_of(FieldRule):
        if rule.type == "text" and not rule.within:
            return _with_field(artifact, rule, f"{text} {artifact.items[0].get(rule.field, '')} {text}")
    return None


def _uncovered(artifact: GeneratedArtifact, rule: CoversIds) -> Iterator[Mutation]:
    text = artifact.other_artifacts.get(rule.artifact, "")
    if rule.field:
        items = json.loads(text or "[]")
        more = json.dumps([*items, {**(items[0] if items else {}), rule.field: "no-such-id"}])
    elif line := definition(rule.pattern or "", 777):
        more = f"{text}\n\n{line}\n\nwords\n"
    else:
        return
    others = {**artifact.other_artifacts, rule.artifact: more}
    yield Mutation(f"that leaves out an id of {rule.artifact}", artifact.text, others)


def _sections(artifact: GeneratedArtifact, rule: SectionRule) -> Iterator[Mutation]:
    others = tuple(part for part in artifact.parts if part.rule != rule.id)
    (section,) = (part for part in artifact.parts if part.rule == rule.id)
    yield Mutation("without the section", _with_neutral_end(artifact, others))
    no_list = replace(artifact, items=()) if rule.id in [r.section for r in artifact.rules_of(ItemList)] else artifact
    yield Mutation("whose section is empty", _with_neutral_end(no_list, (replace(section, body=""), *others)))
    if section.heading_line.startswith("## "):
        lower = replace(section, heading_line=f"##{section.heading_line}")
        yield Mutation("whose section has a heading of level 4", _with_neutral_end(artifact, (*others, lower)))


def _wrong_lists(artifact: GeneratedArtifact, rule: ItemList) -> Iterator[Mutation]:
    if artifact.limit(rule.min) > 0:
        yield Mutation("without its list", _with_body(replace(artifact, items=()), rule.section, "words, and no list"))
    if rule.max is not None and artifact.limit(rule.max) <= ENTRIES_MAX:
        many = replace(artifact, items=artifact.items[:1] * (artifact.limit(rule.max) + 1))
        yield Mutation("with too many items", many.text)
    if rule.shape == "entries":
        yield Mutation("with a heading and no mapping", _with_body(replace(artifact, items=()), rule.section, "#### x"))


def _with_neutral_end(artifact: GeneratedArtifact, parts: tuple[Part, ...]) -> str:
    """Append a section that fulfils no rule, so that no tested section ends the text, and pad the artifact."""
    return pad_to_size(replace(artifact, parts=(*parts, neutral_part(artifact, "words")))).text


def _lists(artifact: GeneratedArtifact, rule: FileList) -> Iterator[Mutation]:
    minimum, most = artifact.limit(rule.min), artifact.limit(rule.max)
    if minimum > 0:
        yield Mutation("that lists no file", _with_body(artifact, rule.section, "words, and no list"))
    if most <= ENTRIES_MAX:
        yield Mutation("that lists too many files", _with_body(artifact, rule.section, file_list(most + 1)))


def _with_body(artifact: GeneratedArtifact, section: str, body: str) -> str:
    parts = tuple(replace(part, body=body) if part.rule == section else part for part in artifact.parts)
    return pad_to_size(replace(artifact, parts=parts)).text


def _invalid_json(artifact: GeneratedArtifact, rule: JsonForm) -> Iterator[Mutation]:
    stripped = artifact.text.rstrip()
    size = artifact.bytes_min
    yield Mutation("that is cut off", stripped[:-1] + " " * size)
    yield Mutation("that is a text", json.dumps("x" * max(10, size)))
    if rule.root == "list":
        if rule.min:
            yield Mutation("that is an empty list", "[" + " " * size + "]")
        yield Mutation("with an entry that is no object", json.dumps([*artifact.items, 1]) + " " * size)
    else:
        yield Mutation("that is a list", json.dumps(list(artifact.items)) + " " * size)


def _duplicates(artifact: GeneratedArtifact, field: str) -> Iterator[Mutation]:
    value = artifact.items[0].get(field)
    if isinstance(value, list) and value:
        yield Mutation(f"with a duplicate `{field}`", _with_value(artifact, field, [*value, value[0]]))
    elif not artifact.is_object:
        duplicate = replace(artifact, items=(*artifact.items, artifact.items[0]))
        yield Mutation(f"with a duplicate `{field}`", duplicate.text)


def _type_of(artifact: GeneratedArtifact, field: str) -> str:
    return next((rule.type for rule in artifact.rules_of(FieldRule) if rule.field == field), "names")


class Absent:
    """Marks a missing value."""


def _bad_values(artifact: GeneratedArtifact, rule: FieldRule) -> Iterator[tuple[str, Any]]:
    """Yield invalid values of a field, with descriptions."""
    least, most = artifact.limit(rule.min), None if rule.max is None else artifact.limit(rule.max)
    if not rule.optional:
        yield "is missing", Absent
    yield from BAD_VALUES.get(rule.type, (("is no list", 7),))
    for member in BAD_MEMBERS.get(rule.type, ()):
        yield f"lists {member!r}", [member] * max(1, least)
    if rule.type == "number":
        yield "is too small", least - 1
        if most is not None:
            yield "is too large", most + 1
    elif rule.type == "text" or rule.type not in BAD_VALUES:
        entry: Any = "w" if rule.type == "text" else [{} if rule.type == "objects" else "x.py"]
        if least > 0:
            yield "is empty", entry * 0
            yield "is too short", entry * (least - 1)
        if most is not None and most <= (BYTES_MAX if rule.type == "text" else ENTRIES_MAX):
            yield "is too long", entry * (most + 1)


def _with_value(artifact: GeneratedArtifact, field: str, value: Any) -> str:
    """Set a field of the first item."""
    first = {**artifact.items[0], field: value}
    return replace(artifact, items=(first, *artifact.items[1:])).text


def _with_field(artifact: GeneratedArtifact, rule: FieldRule, value: Any) -> str:
    """Set the field of a rule, at any nesting; Absent removes it."""

    def changed(item: dict[str, Any]) -> dict[str, Any]:
        others = {name: entry for name, entry in item.items() if name != rule.field}
        due = {rule.when.field: rule.when.values[0]} if rule.when.field else {}
        return {**others, **due, **({} if value is Absent else {rule.field: value})}

    if rule.within is None:
        return replace(artifact, items=(changed(artifact.items[0]), *artifact.items[1:])).text
    return _with_value(artifact, rule.within, [changed(entry) for entry in artifact.items[0].get(rule.within) or [{}]])
