"""Generation of valid artifacts from rule sets; the same seed gives the same artifact."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import msgspec
from mz_engine.artifacts.markdown import Heading, defined_ids, find_owning_section, read_markdown
from mz_engine.artifacts.validate import resolve_limit
from mz_engine.model.config import Limits
from mz_engine.model.rules import (
    ByteSize,
    CoversIds,
    FieldRule,
    FileList,
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

SAMPLE_WORDS = (
    "entry", "month", "report", "Größe", "naïve", "shows", "total-sum", "x1", "journal", "it's", "42%", "reads",
)  # fmt: skip
DEFINITION_LINES = (
    "### FR-{0:03d}: x", "- FR-{0:03d}: x", "### NFR-{0:03d}: x", "### AC-{0}: x", "- AC-{0}: x", "### REQ-{0}: x",
    "- T{0}: x", "## T{0}: x", "- [ ] {0}: x", "{0}. x", "[x{0}]", "x{0}",
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
    """A generated artifact: title and sections of a Markdown artifact, items of a JSON one."""

    rules: RuleSet
    limits: Limits
    title: str = ""
    parts: tuple[Part, ...] = ()
    items: tuple[dict[str, Any], ...] = ()
    other_artifacts: dict[str, str] = {}
    """Texts of other artifacts that the rules refer to, by name."""

    @property
    def text(self) -> str:
        return to_json(self) if self.rules.form == "json" else to_markdown(self)

    def limit(self, limit: Limit) -> int:
        return resolve_limit(limit, self.limits)


def generate_artifact(rules: RuleSet, limits: Limits, seed: int) -> GeneratedArtifact:
    """Generate an artifact that should fulfil all rules. Raises CannotGenerate."""
    artifact = GeneratedArtifact(rules=rules, limits=limits)
    rng = random.Random(f"{rules.name}/{seed}")
    artifact = msgspec.structs.replace(artifact, other_artifacts=generate_other_artifacts(rules, rng))
    return _generate_json(artifact, rng) if rules.form == "json" else _generate_markdown(artifact, rng)


def random_words(rules: RuleSet, rng: random.Random, count: int) -> str:
    """Return random words that match no placeholder pattern. Raises CannotGenerate."""
    placeholders = [re.compile(p) for rule in rules.rules if isinstance(rule, NoPlaceholders) for p in rule.patterns]
    allowed = [word for word in SAMPLE_WORDS if not any(pattern.search(word) for pattern in placeholders)]
    if not allowed:
        raise CannotGenerate("its placeholder patterns match ordinary words")
    return " ".join(rng.choice(allowed) for _ in range(count))


# earlier artifacts ----------------------------------------------------------------------------------------------------
def generate_other_artifacts(rules: RuleSet, rng: random.Random) -> dict[str, str]:
    """Generate the texts of other artifacts that the rules refer to, by name, each with ids."""
    fields: dict[str, set[str]] = {}
    texts: dict[str, str] = {}
    numbers = range(1, rng.randint(2, 4))
    for rule in rules.rules:
        if isinstance(rule, CoversIds) and rule.pattern:
            lines = [definition(rule.pattern, number) for number in numbers]
            texts[rule.artifact] = "\n\n".join(f"{line}\n\nwords" for line in lines if line) + "\n"
        elif isinstance(rule, CoversIds) and rule.field:
            fields.setdefault(rule.artifact, set()).add(rule.field)
        elif isinstance(rule, ReferencesIds) and rule.artifact:
            fields.setdefault(rule.artifact, set()).add(rule.to)
    for artifact, names in fields.items():
        texts[artifact] = json.dumps([dict.fromkeys(names, f"T{number}") for number in numbers])
    return texts


def definition(pattern: str, number: int) -> str | None:
    """Return a line that defines an id for the pattern; None if no known form does."""
    lines = (line.format(number) for line in DEFINITION_LINES)
    return next((line for line in lines if ids_of(pattern, line)), None)


def ids_of(pattern: str, text: str) -> tuple[str, ...]:
    return tuple(name for name in defined_ids(pattern, read_markdown(text)) if name)


def required_ids(rule: CoversIds, other_artifacts: dict[str, str]) -> tuple[str, ...]:
    """Return the ids that the artifact must mention."""
    text = other_artifacts.get(rule.artifact, "")
    if rule.field:
        return tuple(str(item[rule.field]) for item in json.loads(text or "[]"))
    return ids_of(rule.pattern or "", text)


def required_mentions(artifact: GeneratedArtifact) -> str:
    other_artifacts = artifact.other_artifacts
    rules = (rule for rule in artifact.rules.rules if isinstance(rule, CoversIds))
    return " ".join(dict.fromkeys(name for rule in rules for name in required_ids(rule, other_artifacts)))


# Markdown -------------------------------------------------------------------------------------------------------------
def _generate_markdown(artifact: GeneratedArtifact, rng: random.Random) -> GeneratedArtifact:
    sections = [rule for rule in artifact.rules.rules if isinstance(rule, SectionRule)]
    room = min((artifact.limit(rule.max) for rule in artifact.rules.rules if isinstance(rule, WordCount)), default=1000)
    count = max(1, min(SECTION_WORDS, room // (2 * len(sections) + 2)))
    lists = {rule.section: rule for rule in artifact.rules.rules if isinstance(rule, FileList)}
    parts = [
        Part(
            rule=rule.id,
            heading_line=heading_line_of(rule, sections, rng),
            body=random_file_list(artifact, lists[rule.id], rng)
            if rule.id in lists
            else random_words(artifact.rules, rng, count),
        )
        for rule in sections
    ]
    title = ""
    for rule in artifact.rules.rules:
        if isinstance(rule, TitleRule):
            title = random_words(artifact.rules, rng, 3)[: artifact.limit(rule.max)].strip()
    artifact = msgspec.structs.replace(
        artifact, title=title or random_words(artifact.rules, rng, 3), parts=tuple(parts)
    )
    return pad_to_size(add_paragraph(artifact, required_mentions(artifact)))


def heading_line_of(rule: SectionRule, sections: list[SectionRule], rng: random.Random) -> str:
    """Return a heading that fulfils this rule and no other, or a key line. Raises CannotGenerate."""
    aliases = [alias for alias in rule.aliases if find_owning_section(sections, heading(alias)) is rule]
    if aliases:
        number = rng.choice(("", "1. ", "2.1 "))
        alias = rng.choice(aliases)
        return f"## {number}{rng.choice((alias, alias.upper(), alias.lower()))}{rng.choice(('', ':', ' in short'))}"
    if rule.keys:
        return f"{rule.keys[0]}:"
    raise CannotGenerate(f"no heading fulfils {rule.id}: all its aliases belong to other rules")


def heading(text: str) -> Heading:
    return Heading(level=2, text=text, line=0, body_start=1, body_end=1)


def random_file_list(artifact: GeneratedArtifact, rule: FileList, rng: random.Random) -> str:
    least, most = artifact.limit(rule.min), artifact.limit(rule.max)
    return file_list(rng.randint(max(1, least), max(1, least, min(most, 5))), rng.random() < 0.5)


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
    lists = {rule.section for rule in artifact.rules.rules if isinstance(rule, FileList)}
    positions = [at for at, part in enumerate(artifact.parts) if part.rule not in lists]
    if not positions:
        return msgspec.structs.replace(
            artifact, parts=(*artifact.parts, Part(rule="", heading_line=neutral_heading(artifact.rules), body=text))
        )
    at, parts = positions[-1], list(artifact.parts)
    parts[at] = msgspec.structs.replace(parts[at], body=f"{parts[at].body}\n\n{text}")
    return msgspec.structs.replace(artifact, parts=tuple(parts))


def neutral_heading(rules: RuleSet) -> str:
    """Return a heading that fulfils no rule."""
    sections = [rule for rule in rules.rules if isinstance(rule, SectionRule)]
    names = ("Further words", "More besides", "Zz", "Qx", "---")
    return f"## {next(name for name in names if find_owning_section(sections, heading(name)) is None or name == '---')}"


def pad_to_size(artifact: GeneratedArtifact) -> GeneratedArtifact:
    """Pad an artifact that is too small with a very long word."""
    missing_bytes = bytes_min(artifact) - len(artifact.text.encode())
    return add_paragraph(artifact, "-".join(["word"] * (missing_bytes // 5 + 2))) if missing_bytes > 0 else artifact


def bytes_min(artifact: GeneratedArtifact) -> int:
    return max((artifact.limit(rule.min) for rule in artifact.rules.rules if isinstance(rule, ByteSize)), default=0)


def to_markdown(artifact: GeneratedArtifact) -> str:
    parts = [f"# {artifact.title}"] if artifact.title else []
    return "\n\n".join([*parts, *(f"{part.heading_line}\n\n{part.body}" for part in artifact.parts)]) + "\n"


# JSON -----------------------------------------------------------------------------------------------------------------
def _generate_json(artifact: GeneratedArtifact, rng: random.Random) -> GeneratedArtifact:
    single = any(isinstance(rule, JsonForm) and rule.root == "object" for rule in artifact.rules.rules)
    references = [rule for rule in artifact.rules.rules if isinstance(rule, ReferencesIds) and rule.artifact]
    most = min(
        (len(json.loads(artifact.other_artifacts[rule.artifact or ""])) for rule in references), default=ITEMS_MAX
    )
    count = 1 if single else rng.randint(1, most)
    items = [_generate_item(artifact, None, number, rng) for number in range(count)]
    for rule in artifact.rules.rules:
        if isinstance(rule, MaximumField):
            for item in items:
                item[rule.field] = maximum_of(artifact.rules, rule, item)
    return msgspec.structs.replace(artifact, items=tuple(_add_mentions(artifact, items)))


def _generate_item(artifact: GeneratedArtifact, within: str | None, number: int, rng: random.Random) -> dict[str, Any]:
    linked = {part for rule in artifact.rules.rules for part in _linked_fields(rule)}
    item: dict[str, Any] = {}
    for rule in artifact.rules.rules:
        if isinstance(rule, FieldRule) and rule.within == within and not (rule.optional and rng.random() < 0.5):
            name = rule.field if rule.field in linked else rng.choice((rule.field, *rule.aliases))
            item[name] = generate_value(artifact, rule, number, rng)
    return item


def _linked_fields(rule: Rule) -> tuple[str, ...]:
    """Return fields that must be written under their own name, since rules link them."""
    match rule:
        case UniqueIds(field=str() as field):
            return (field,)
        case ReferencesIds():
            return (rule.field, rule.to)
        case MaximumField():
            return (rule.field, rule.within)
    return ()


def generate_value(artifact: GeneratedArtifact, rule: FieldRule, number: int, rng: random.Random) -> Any:
    """Return a valid value of a field; `number` makes items distinct."""
    least = artifact.limit(rule.min)
    most = artifact.limit(rule.max) if rule.max is not None else least + 10
    many = rng.randint(max(least, 1), max(least, 1, min(most, least + 3)))
    match rule.type:
        case "text":
            return generate_text(artifact, least, most, number, rng)
        case "name":
            return f"T{number + 1}"
        case "choice":
            return rng.choice(rule.values or ("x",))
        case "number":
            return rng.randint(least, max(least, most))
        case "texts":
            return [generate_text(artifact, 1, 60, number * 100 + at, rng) for at in range(many)]
        case "names":
            own = any(isinstance(other, ReferencesIds) and other.field == rule.field for other in artifact.rules.rules)
            return [f"T{at + 1}" for at in range(number if own else many)][:most]
        case "paths":
            return [f"src/file_{at}.py" for at in range(many)]
    return [_generate_item(artifact, rule.field, at, rng) for at in range(rng.randint(least, max(least, min(most, 2))))]


def generate_text(artifact: GeneratedArtifact, least: int, most: int, number: int, rng: random.Random) -> str:
    text = f"{number} {random_words(artifact.rules, rng, SECTION_WORDS)}"
    while len(text) < least:
        text += f" {random_words(artifact.rules, rng, 4)}"
    shortened = text[: max(most, 1)]
    return shortened.strip() + "x" * (len(shortened) - len(shortened.strip()))


def maximum_of(rules: RuleSet, rule: MaximumField, item: dict[str, Any]) -> str:
    """Return the maximum of a field over the item's list, by the order of the choice's values."""
    choice = choice_field(rules, rule)
    values = [str(entry[rule.field]) for entry in item.get(rule.within, ()) if entry.get(rule.field) in choice.values]
    return max(values, key=choice.values.index, default=choice.values[0])


def choice_field(rules: RuleSet, rule: MaximumField) -> FieldRule:
    """Return the choice field of a rule. Raises CannotGenerate if the field is no choice."""
    for other in rules.rules:
        if isinstance(other, FieldRule) and other.field == rule.field and other.within is None and other.values:
            return other
    raise CannotGenerate(f"{rule.id} refers to `{rule.field}`, which is no choice")


def _add_mentions(artifact: GeneratedArtifact, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add all ids that must be mentioned to the longest text field."""
    ids = required_mentions(artifact)
    texts = [
        rule
        for rule in artifact.rules.rules
        if isinstance(rule, FieldRule) and not rule.within and rule.type == "text" and not rule.optional
    ]
    if ids and texts:
        rule = max(texts, key=lambda rule: 10**9 if rule.max is None else artifact.limit(rule.max))
        name = next(name for name in (rule.field, *rule.aliases) if name in items[-1])
        items[-1][name] = f"{ids} {items[-1][name]}"
    return items


def to_json(artifact: GeneratedArtifact) -> str:
    """Serialise as the rules require, padded with blanks to the minimum size."""
    single = any(isinstance(rule, JsonForm) and rule.root == "object" for rule in artifact.rules.rules)
    value = artifact.items[0] if single and artifact.items else list(artifact.items)
    text = json.dumps(value, ensure_ascii=False, indent=1)
    return text + " " * (bytes_min(artifact) - len(text.encode())) + "\n"
