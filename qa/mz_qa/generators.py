"""Generation of valid artifacts from rule sets, and of mutations: ways to break each rule of a valid artifact.

The same seed gives the same artifact. The artifacts layer reports rules without mutations."""

from __future__ import annotations

import json
import random
import re
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from mz_engine.artifacts.markdown import Heading, defined_ids, find_owning_section, read_markdown
from mz_engine.decoding.regex import matches_any
from mz_engine.model.config import Limits
from mz_engine.model.pipeline import Limit
from mz_engine.model.rules import (
    ByteSize,
    CoversIds,
    ExactIds,
    FieldRule,
    FileList,
    ItemList,
    JsonForm,
    MatchingText,
    MaximumField,
    NoPlaceholders,
    ReferencesIds,
    RuleSet,
    SectionRule,
    TitleRule,
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
    unit: dict[str, Any] = {}
    """Fields of the present unit that the rules refer to."""

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

    @property
    def paths(self) -> tuple[str, ...]:
        """The files of the tree: those that the items name."""
        fields = [rule.field for rule in self.rules_of(FieldRule) if rule.type == "paths"]
        return tuple(path for item in self.items for field in fields for path in item.get(field, ()))

    def limit(self, limit: Limit) -> int:
        return self.limits.resolve(limit)

    def rules_of(self, kind: type[R]) -> list[R]:
        return [rule for rule in self.rules.rules if isinstance(rule, kind)]


def generate_artifact(rules: RuleSet, limits: Limits, seed: int) -> GeneratedArtifact:
    """Generate an artifact that should fulfil all rules. Raises CannotGenerate."""
    artifact = GeneratedArtifact(rules=rules, limits=limits)
    rng = random.Random(f"{rules.name}/{seed}")
    unit = {rule.field or "": ["AC-1", "AC-2"] for rule in artifact.rules_of(CoversIds) if rule.of == "unit"}
    artifact = replace(artifact, unit=unit, other_artifacts=_generate_other_artifacts(artifact, rng))
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
    ids = [name for names in artifact.unit.values() for name in names]
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
    artifact = add_paragraph(replace(artifact, items=items), _required_mentions(artifact))
    for line in (matching_line(rule) for rule in artifact.rules_of(MatchingText) if rule.where is None):
        is_title = line.startswith("# ")
        artifact = replace(artifact, title=line[2:]) if is_title else add_paragraph(artifact, line)
    return pad_to_size(artifact)


def matching_line(rule: MatchingText) -> str:
    """Return the example of a rule, which must match its pattern. Raises CannotGenerate."""
    line = rule.example.strip("`")
    if not matches_any((rule.pattern,), line):
        raise CannotGenerate(f"{rule.id} has no `example` that matches its pattern")
    return line


def _matching_value(rule: MatchingText, number: int) -> str:
    forms = ("T{0}", "AC-{0:03d}", "unit-{0:03d}", "v{0}", "{0}")
    values = (form.format(number + 1) for form in forms)
    return next((value for value in values if matches_any((rule.pattern,), value)), None) or matching_line(rule)


def item_lines(rule: ItemList, items: tuple[dict[str, Any], ...]) -> str:
    """Return a list of Markdown in the shape of the rule."""
    if rule.shape == "checklist":
        marks = {"yes": "[x]", "no": "[ ]"}
        entries = (
            (marks.get(str(item.get("done", "no")), "[ ]"), item.get("id"), item.get("text", "words")) for item in items
        )
        return "\n".join(f"- {mark} {name}: {text}" if name else f"- {mark} {text}" for mark, name, text in entries)
    if rule.shape == "entries":
        blocks = ((item.get("id", f"entry{at}"), {**item, "id": None}) for at, item in enumerate(items))
        return "\n\n".join(f"#### {name}\n\n```yaml\n{json.dumps(fields)}\n```" for name, fields in blocks)
    names = list(dict.fromkeys(name for item in items for name in item))
    values = ([item.get(name, "") for name in names] for item in items)
    rows = [[", ".join(map(str, cell)) if isinstance(cell, list) else str(cell) for cell in row] for row in values]
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *rows))


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
        rule
        for rule in artifact.rules_of(FieldRule)
        if rule.type == "text" and not (rule.within or rule.optional or rule.when.field)
    ]
    mentions = _required_mentions(artifact)
    if mentions and texts:
        longest = max(texts, key=lambda rule: 10**9 if rule.max is None else artifact.limit(rule.max))
        items[-1][longest.field] = f"{mentions} {items[-1][longest.field]}"
    return replace(artifact, items=items)


def _generate_items(artifact: GeneratedArtifact, count: int, rng: random.Random) -> tuple[dict[str, Any], ...]:
    """Generate so many items, or as many as there are ids of which each must have one."""
    exact = [(rule, expected_ids(artifact, rule)) for rule in artifact.rules_of(ExactIds)]
    count = next((len(names) for rule, names in exact if rule.within is None), count)
    items = [_generate_item(artifact, None, number, rng) for number in range(count)]
    for number, item in enumerate(items):
        for matching in artifact.rules_of(MatchingText):
            item |= {matching.where: _matching_value(matching, number)} if matching.where else {}
        for rule, names in exact:
            if rule.within is None:
                item[rule.field] = names[number]
            else:
                others = (_generate_item(artifact, rule.within, at, rng) for at in range(len(names)))
                item[rule.within] = [{**other, rule.field: name} for other, name in zip(others, names, strict=True)]
    return tuple(items)


def expected_ids(artifact: GeneratedArtifact, rule: ExactIds) -> list[str]:
    """Return the values that a rule wants, as generated."""
    text = artifact.other_artifacts.get(rule.artifact or "", "")
    if rule.pattern:
        return _ids(rule.pattern, text)
    return [str(item[rule.artifact_field]) for item in json.loads(text or "[]")] or list(rule.values)


def _generate_item(artifact: GeneratedArtifact, within: str | None, number: int, rng: random.Random) -> dict[str, Any]:
    item = dict[str, Any]()
    for rule in artifact.rules_of(FieldRule):
        is_due = not rule.when.field or item.get(rule.when.field) in rule.when.values
        if rule.within == within and is_due and not (rule.optional and rng.random() < 0.5):
            item[rule.field] = _generate_value(artifact, rule, number, rng)
    return item


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
        case "texts" | "entries":
            texts = [_generate_text(artifact, 1, 60, number * 100 + at, rng) for at in range(many)]
            has_ids = rule.type == "entries" and rng.random() < 0.5
            return [{"id": f"T{at + 1}", "text": text} for at, text in enumerate(texts)] if has_ids else texts
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
