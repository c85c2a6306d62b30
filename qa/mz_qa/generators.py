"""Generation of valid artifacts from rule sets, and of mutations: ways to break each rule of a valid artifact.

The same seed gives the same artifact. The artifacts layer reports rules without mutations."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace
from mz_engine.artifacts.markdown import Heading, defined_ids, find_owning_section, read_markdown
from mz_engine.artifacts.validate import resolve_limit
from mz_engine.model.config import Limits
from mz_engine.model.rules import (
    AcyclicItems,
    ByteSize,
    CoversIds,
    ExactIds,
    FieldRule,
    FileList,
    FilePaths,
    FileRule,
    ItemList,
    JsonForm,
    Limit,
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

R = TypeVar("R")
SAMPLE_WORDS = (
    "entry", "month", "report", "Größe", "naïve", "shows", "total-sum", "x1", "journal", "it's", "42%", "reads",
)  # fmt: skip
DEFINITION_LINES = (
    "### FR-{0:03d}: x", "- FR-{0:03d}: x", "### NFR-{0:03d}: x", "### AC-{0}: x", "- AC-{0}: x", "### REQ-{0}: x",
    "- T{0}: x", "## T{0}: x", "- [ ] {0}: x", "- [ ] AC-{0:03d}: x", "{0}. x", "[x{0}]", "x{0}",
)  # fmt: skip
"""Lines that may define an id, for various patterns of ids."""
SECTION_WORDS = 8
ITEMS_MAX = 3
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
}
"""Values that no list of a type accepts."""


class CannotGenerate(Exception):
    """No artifact can fulfil the rules; the message says why."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A section of a Markdown artifact."""

    rule: str
    """Id of the rule that the section fulfils; empty: none."""
    heading_line: str
    """Heading or key line."""
    body: str


class GeneratedArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """A generated artifact: title and sections of a Markdown artifact, items of a JSON one or of a list of Markdown."""

    rules: RuleSet
    limits: Limits
    title: str = ""
    parts: tuple[Part, ...] = ()
    items: tuple[dict[str, Any], ...] = ()
    other_artifacts: dict[str, str] = {}
    """Texts of other artifacts that the rules refer to, by name."""

    @property
    def text(self) -> str:
        """Markdown; or JSON, padded with blanks to the minimum size."""
        if self.rules.form != "markdown":
            value = self.items[0] if self.is_object and self.items else list(self.items)
            text = json.dumps(value, ensure_ascii=False, indent=1)
            return text + " " * (self.bytes_min - len(text.encode())) + "\n"
        title = [f"# {self.title}"] if self.title else []
        bodies = {part.rule: part.body for part in self.parts}
        for rule in self.rules_of(ItemList) if self.items else ():
            bodies[rule.section] = f"{item_lines(rule, self.items)}\n\n{bodies.get(rule.section, '')}"
        parts = (f"{part.heading_line}\n\n{bodies[part.rule] if part.rule else part.body}" for part in self.parts)
        return "\n\n".join([*title, *parts]) + "\n"

    @property
    def bytes_min(self) -> int:
        return max((self.limit(rule.min) for rule in self.rules_of(ByteSize)), default=0)

    @property
    def is_object(self) -> bool:
        """Return True for a JSON artifact that is one object, no list."""
        return any(rule.root == "object" for rule in self.rules_of(JsonForm))

    def limit(self, limit: Limit) -> int:
        return resolve_limit(limit, self.limits)

    def rules_of(self, kind: type[R]) -> list[R]:
        return [rule for rule in self.rules.rules if isinstance(rule, kind)]


def generate_artifact(rules: RuleSet, limits: Limits, seed: int) -> GeneratedArtifact:
    """Generate an artifact that should fulfil all rules. Raises CannotGenerate."""
    artifact = GeneratedArtifact(rules=rules, limits=limits)
    rng = random.Random(f"{rules.name}/{seed}")
    artifact = replace(artifact, other_artifacts=_generate_other_artifacts(artifact, rng))
    return _generate_markdown(artifact, rng) if rules.form == "markdown" else _generate_json(artifact, rng)


def _random_words(artifact: GeneratedArtifact, rng: random.Random, count: int) -> str:
    """Return random words that match no placeholder pattern. Raises CannotGenerate."""
    placeholders = [re.compile(pattern) for rule in artifact.rules_of(NoPlaceholders) for pattern in rule.patterns]
    allowed = [word for word in SAMPLE_WORDS if not any(pattern.search(word) for pattern in placeholders)]
    if not allowed:
        raise CannotGenerate("its placeholder patterns match ordinary words")
    return " ".join(rng.choice(allowed) for _ in range(count))


# other artifacts ------------------------------------------------------------------------------------------------------
def _generate_other_artifacts(artifact: GeneratedArtifact, rng: random.Random) -> dict[str, str]:
    """Generate the texts of other artifacts that the rules refer to, by name, each with ids."""
    fields: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    numbers = range(1, rng.randint(2, 4))
    for rule in artifact.rules_of(CoversIds):
        if rule.pattern:
            lines = [definition(rule.pattern, number) for number in numbers]
            texts[rule.artifact] = "\n\n".join(f"{line}\n\nwords" for line in lines if line) + "\n"
        elif rule.field:
            fields.setdefault(rule.artifact, []).append(rule.field)
    for exact in artifact.rules_of(ExactIds):
        if exact.artifact and exact.pattern:
            lines = [definition(exact.pattern, number) for number in numbers]
            texts[exact.artifact] = "\n".join(line for line in lines if line) + "\n"
        elif exact.artifact and exact.artifact_field:
            fields.setdefault(exact.artifact, []).append(exact.artifact_field)
    for reference in artifact.rules_of(ReferencesIds):
        if reference.artifact:
            fields.setdefault(reference.artifact, []).append(reference.to)
    for name, keys in fields.items():
        texts[name] = json.dumps([dict.fromkeys(keys, f"T{number}") for number in numbers])
    return texts


def definition(pattern: str, number: int) -> str | None:
    """Return a line that defines an id for the pattern; None if no known form does."""
    lines = (line.format(number) for line in DEFINITION_LINES)
    return next((line for line in lines if _ids(pattern, line)), None)


def _ids(pattern: str, text: str) -> list[str]:
    return [name for name in defined_ids(pattern, read_markdown(text)) if name]


def _required_mentions(artifact: GeneratedArtifact) -> str:
    """Return the ids of other artifacts that this one must mention."""
    ids: list[str] = []
    for rule in artifact.rules_of(CoversIds):
        text = artifact.other_artifacts.get(rule.artifact, "")
        if rule.field:
            ids += [str(item[rule.field]) for item in json.loads(text or "[]")]
        else:
            ids += _ids(rule.pattern or "", text)
    return " ".join(dict.fromkeys(ids))


# Markdown -------------------------------------------------------------------------------------------------------------
def _generate_markdown(artifact: GeneratedArtifact, rng: random.Random) -> GeneratedArtifact:
    sections, lists = artifact.rules_of(SectionRule), {rule.section: rule for rule in artifact.rules_of(FileList)}
    room = min((artifact.limit(rule.max) for rule in artifact.rules_of(WordCount)), default=1000)
    count = max(1, min(SECTION_WORDS, room // (2 * len(sections) + 2)))
    parts = []
    for rule in sections:
        files = lists.get(rule.id)
        body = _random_file_list(artifact, files, rng) if files else _random_words(artifact, rng, count)
        parts.append(Part(rule=rule.id, heading_line=_heading_line(rule, sections, rng), body=body))
    title = _random_words(artifact, rng, 3)
    for title_rule in artifact.rules_of(TitleRule):
        title = title[: artifact.limit(title_rule.max)].strip()
    artifact = replace(artifact, title=title, parts=tuple(parts))
    listings = artifact.rules_of(ItemList)
    least = max((artifact.limit(rule.min) for rule in listings), default=0)
    items = _generate_items(artifact, max(least, rng.randint(1, ITEMS_MAX)), rng) if listings else ()
    return pad_to_size(add_paragraph(replace(artifact, items=items), _required_mentions(artifact)))


def item_lines(rule: ItemList, items: tuple[dict[str, Any], ...]) -> str:
    """Return a list of Markdown in the shape of the rule."""
    if rule.shape == "checklist":
        marks = {"yes": "[x]", "no": "[ ]"}
        entries = (
            (marks.get(str(item.get("done", "no")), "[ ]"), item.get("id"), item.get("text", "")) for item in items
        )
        return "\n".join(f"- {mark} {name}: {text}" if name else f"- {mark} {text}" for mark, name, text in entries)
    if rule.shape == "entries":
        blocks = ((item.get("id", f"entry{at}"), {**item, "id": None}) for at, item in enumerate(items))
        return "\n\n".join(f"#### {name}\n\n```yaml\n{json.dumps(fields)}\n```" for name, fields in blocks)
    names = list(dict.fromkeys(name for item in items for name in item))
    rows = [[_cell(item.get(name, "")) for name in names] for item in items]
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *rows))


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _heading_line(rule: SectionRule, sections: list[SectionRule], rng: random.Random) -> str:
    """Return a heading that fulfils this rule and no other, or a key line. Raises CannotGenerate."""
    aliases = [alias for alias in rule.aliases if find_owning_section(sections, _heading(alias)) is rule]
    if aliases:
        number = rng.choice(("", "1. ", "2.1 "))
        alias = rng.choice(aliases)
        return f"## {number}{rng.choice((alias, alias.upper(), alias.lower()))}{rng.choice(('', ':', ' in short'))}"
    if rule.keys:
        return f"{rule.keys[0]}:"
    raise CannotGenerate(f"no heading fulfils {rule.id}: all its aliases belong to other rules")


def _heading(text: str) -> Heading:
    return Heading(level=2, text=text, line=0, body_start=1, body_end=1)


def _random_file_list(artifact: GeneratedArtifact, rule: FileList, rng: random.Random) -> str:
    least = max(1, artifact.limit(rule.min))
    return file_list(rng.randint(least, max(least, min(artifact.limit(rule.max), 5))), rng.random() < 0.5)


def file_list(count: int, as_table: bool = False, *named: str) -> str:
    """Return the lines of a file list, the named files first."""
    paths = [*named, *(f"src/file_{number}.py" for number in range(count))][: max(count, len(named))]
    if as_table:
        return "\n".join(["| File | What |", "| --- | --- |", *(f"| `{path}` | x |" for path in paths)])
    return "\n".join(f"- `{path}`: x" for path in paths)


def add_paragraph(artifact: GeneratedArtifact, text: str) -> GeneratedArtifact:
    """Add a paragraph to the last section that is no file list, or else in a new section."""
    if not text:
        return artifact
    lists, parts = {rule.section for rule in artifact.rules_of(FileList)}, list(artifact.parts)
    lists |= {listing.section for listing in artifact.rules_of(ItemList)}
    for at, part in reversed(list(enumerate(parts))):
        if part.rule not in lists:
            parts[at] = replace(part, body=f"{part.body}\n\n{text}")
            return replace(artifact, parts=tuple(parts))
    return replace(artifact, parts=(*parts, neutral_part(artifact, text)))


def neutral_part(artifact: GeneratedArtifact, body: str) -> Part:
    """Return a section that fulfils no rule."""
    names, sections = ("Further words", "More besides", "Zz", "Qx"), artifact.rules_of(SectionRule)
    name = next((name for name in names if find_owning_section(sections, _heading(name)) is None), "---")
    return Part(rule="", heading_line=f"## {name}", body=body)


def pad_to_size(artifact: GeneratedArtifact) -> GeneratedArtifact:
    """Pad an artifact that is too small with a very long word."""
    missing_bytes = artifact.bytes_min - len(artifact.text.encode())
    return add_paragraph(artifact, "-".join(["word"] * (missing_bytes // 5 + 2))) if missing_bytes > 0 else artifact


# JSON -----------------------------------------------------------------------------------------------------------------
def _generate_json(artifact: GeneratedArtifact, rng: random.Random) -> GeneratedArtifact:
    sources = [rule.artifact for rule in artifact.rules_of(ReferencesIds) if rule.artifact]
    most = min((len(json.loads(artifact.other_artifacts[name])) for name in sources), default=ITEMS_MAX)
    count = 1 if artifact.is_object else rng.randint(1, most)
    items = _generate_items(artifact, count, rng)
    for rule in artifact.rules_of(MaximumField):
        for item in items:
            item[rule.field] = _maximum(artifact, rule, item)
    texts = [
        rule for rule in artifact.rules_of(FieldRule) if rule.type == "text" and not rule.within and not rule.optional
    ]
    mentions = _required_mentions(artifact)
    if mentions and texts:
        longest = max(texts, key=lambda rule: 10**9 if rule.max is None else artifact.limit(rule.max))
        items[-1][longest.field] = f"{mentions} {items[-1][longest.field]}"
    return replace(artifact, items=items)


def _generate_items(artifact: GeneratedArtifact, count: int, rng: random.Random) -> tuple[dict[str, Any], ...]:
    """Generate so many items, or as many as there are ids of which each must have one."""
    ids = {rule.field: expected_ids(artifact, rule) for rule in artifact.rules_of(ExactIds)}
    count = next((len(names) for names in ids.values()), count)
    items = (_generate_item(artifact, None, number, rng) for number in range(count))
    return tuple({**item, **{field: ids[field][at] for field in ids}} for at, item in enumerate(items))


def expected_ids(artifact: GeneratedArtifact, rule: ExactIds) -> list[str]:
    """Return the values that a rule wants, as generated."""
    text = artifact.other_artifacts.get(rule.artifact or "", "")
    if rule.pattern:
        return _ids(rule.pattern, text)
    return [str(item[rule.artifact_field]) for item in json.loads(text or "[]")] or list(rule.values)


def _generate_item(artifact: GeneratedArtifact, within: str | None, number: int, rng: random.Random) -> dict[str, Any]:
    return {
        rule.field: _generate_value(artifact, rule, number, rng)
        for rule in artifact.rules_of(FieldRule)
        if rule.within == within and not (rule.optional and rng.random() < 0.5)
    }


def _generate_value(artifact: GeneratedArtifact, rule: FieldRule, number: int, rng: random.Random) -> Any:
    """Return a valid value of a field; `number` makes items distinct."""
    least = artifact.limit(rule.min)
    most = artifact.limit(rule.max) if rule.max is not None else least + 10
    many = min(most, rng.randint(max(least, 1), max(least, 1, min(most, least + 3))))
    match rule.type:
        case "text":
            return _generate_text(artifact, least, most, number, rng)
        case "name":
            return f"T{number + 1}"
        case "choice":
            return rng.choice(rule.values or ("x",))
        case "number":
            return rng.randint(least, max(least, most))
        case "texts":
            return [_generate_text(artifact, 1, 60, number * 100 + at, rng) for at in range(many)]
        case "names":
            is_reference = any(reference.field == rule.field for reference in artifact.rules_of(ReferencesIds))
            return [f"T{at + 1}" for at in range(max(number, least) if is_reference else many)][:most]
        case "paths":
            return [f"src/file_{at}.py" for at in range(many)]
    return [_generate_item(artifact, rule.field, at, rng) for at in range(rng.randint(least, max(least, min(most, 2))))]


def _generate_text(artifact: GeneratedArtifact, least: int, most: int, number: int, rng: random.Random) -> str:
    text = f"{number} {_random_words(artifact, rng, max(SECTION_WORDS, least))}"[: max(most, 1)]
    return text.rstrip().ljust(len(text), "x")


def _maximum(artifact: GeneratedArtifact, rule: MaximumField, item: dict[str, Any]) -> str:
    """Return the maximum of a field over the item's list, by the order of the choice's values."""
    order = choice_values(artifact, rule)
    values = [str(entry[rule.field]) for entry in item.get(rule.within, ()) if entry.get(rule.field) in order]
    return max(values, key=order.index, default=order[0])


def choice_values(artifact: GeneratedArtifact, rule: MaximumField) -> tuple[str, ...]:
    """Return the values of a rule's choice field. Raises CannotGenerate if the field is no choice."""
    for other in artifact.rules_of(FieldRule):
        if other.field == rule.field and other.within is None and other.values:
            return other.values
    raise CannotGenerate(f"{rule.id} refers to `{rule.field}`, which is no choice")


# mutations ------------------------------------------------------------------------------------------------------------
class Mutation(NamedTuple):
    """An artifact that breaks a rule."""

    description: str
    """Description that follows "an artifact"."""
    text: str | None
    """None: the file is missing."""
    other_artifacts: dict[str, str] | None = None
    """Texts of other artifacts; None: those of the artifact."""


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
        case CoversIds():
            yield from _uncovered(artifact, rule)
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
        case JsonForm():
            yield from _invalid_json(artifact, rule)
        case ItemList():
            yield from _wrong_lists(artifact, rule)
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
        case FieldRule():
            shapes = [listing.shape for listing in artifact.rules_of(ItemList)]
            for description, value in _bad_values(artifact, rule) if artifact.items else ():
                is_text = isinstance(value, str) and (value or "checklist" not in shapes)
                if shapes and "entries" not in shapes and not is_text:
                    continue  # All of a row is text, and an entry without any is none.
                yield Mutation(f"whose `{rule.field}` {description}", _with_field(artifact, rule, value))


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
        return others if value is Absent else {**others, rule.field: value}

    if rule.within is None:
        return replace(artifact, items=(changed(artifact.items[0]), *artifact.items[1:])).text
    return _with_value(artifact, rule.within, [changed(entry) for entry in artifact.items[0].get(rule.within) or [{}]])
