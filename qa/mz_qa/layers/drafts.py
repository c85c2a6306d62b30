"""Pure: valid artifacts, made from nothing but the rules that they are judged by. The same seed makes the same one."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import msgspec
from mz_engine.artifacts.document import Heading, read_markdown
from mz_engine.artifacts.rule import (
    Bytes,
    Covers,
    Field,
    Files,
    Json,
    Limit,
    Placeholders,
    References,
    Rule,
    RuleSet,
    Section,
    Title,
    Unique,
    Words,
    Worst,
)
from mz_engine.artifacts.sections import owner
from mz_engine.artifacts.subject import defined, resolve
from mz_engine.config import Limits

VOCABULARY = (
    "entry", "month", "report", "Größe", "naïve", "shows", "total-sum", "x1", "journal", "it's", "42%", "reads",
)  # fmt: skip
DEFINITIONS = (
    "### FR-{0:03d}: x", "- FR-{0:03d}: x", "### NFR-{0:03d}: x", "### AC-{0}: x", "- AC-{0}: x", "### REQ-{0}: x",
    "- T{0}: x", "## T{0}: x", "- [ ] {0}: x", "{0}. x", "[x{0}]", "x{0}",
)  # fmt: skip
"""Lines that may define an id, whatever the pattern is that looks for one."""
WORDS_OF_A_SECTION = 8
ITEMS_MAX = 3


class Unmakeable(Exception):
    """The rules leave no room for an artifact; says why."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A section of a Markdown artifact."""

    rule: str
    """Id of the rule that it answers; empty: of none."""
    head: str
    """The line that begins it."""
    body: str


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact before it is text: title and sections of a Markdown one, items of a JSON one."""

    rules: RuleSet
    limits: Limits
    title: str = ""
    parts: tuple[Part, ...] = ()
    items: tuple[dict[str, Any], ...] = ()
    others: dict[str, str] = {}
    """Texts of earlier artifacts, by name."""

    @property
    def text(self) -> str:
        return written_json(self) if self.rules.form == "json" else written_markdown(self)

    def limit(self, limit: Limit) -> int:
        return resolve(limit, self.limits)


def draft(rules: RuleSet, limits: Limits, seed: int) -> Draft:
    """An artifact that should obey all of the rules. Raises Unmakeable."""
    made = Draft(rules=rules, limits=limits)
    dice = random.Random(f"{rules.name}/{seed}")
    made = msgspec.structs.replace(made, others=earlier(rules, dice))
    return _json(made, dice) if rules.form == "json" else _markdown(made, dice)


def words(rules: RuleSet, dice: random.Random, count: int) -> str:
    """So many words, none of which a placeholder could be. Raises Unmakeable."""
    patterns = [re.compile(p) for rule in rules.rules if isinstance(rule, Placeholders) for p in rule.patterns]
    allowed = [word for word in VOCABULARY if not any(pattern.search(word) for pattern in patterns)]
    if not allowed:
        raise Unmakeable("its placeholders are ordinary words")
    return " ".join(dice.choice(allowed) for _ in range(count))


# earlier artifacts ----------------------------------------------------------------------------------------------------
def earlier(rules: RuleSet, dice: random.Random) -> dict[str, str]:
    """By name, the texts of artifacts that the rules look into, with an id or more in each."""
    fields: dict[str, set[str]] = {}
    others: dict[str, str] = {}
    numbers = range(1, dice.randint(2, 4))
    for rule in rules.rules:
        if isinstance(rule, Covers) and rule.pattern:
            lines = [definition(rule.pattern, number) for number in numbers]
            others[rule.artifact] = "\n\n".join(f"{line}\n\nwords" for line in lines if line) + "\n"
        elif isinstance(rule, Covers) and rule.field:
            fields.setdefault(rule.artifact, set()).add(rule.field)
        elif isinstance(rule, References) and rule.artifact:
            fields.setdefault(rule.artifact, set()).add(rule.to)
    for artifact, names in fields.items():
        others[artifact] = json.dumps([dict.fromkeys(names, f"T{number}") for number in numbers])
    return others


def definition(pattern: str, number: int) -> str | None:
    """A line that defines an id by the pattern; None where none of those that we know does."""
    lines = (line.format(number) for line in DEFINITIONS)
    return next((line for line in lines if ids_of(pattern, line)), None)


def ids_of(pattern: str, text: str) -> tuple[str, ...]:
    return tuple(found for found in defined(pattern, read_markdown(text)) if found)


def covered(rule: Covers, others: dict[str, str]) -> tuple[str, ...]:
    """Ids that the artifact must mention."""
    text = others.get(rule.artifact, "")
    if rule.field:
        return tuple(str(item[rule.field]) for item in json.loads(text or "[]"))
    return ids_of(rule.pattern or "", text)


def mentions(made: Draft) -> str:
    ids = [one for rule in made.rules.rules if isinstance(rule, Covers) for one in covered(rule, made.others)]
    return " ".join(dict.fromkeys(ids))


# Markdown -------------------------------------------------------------------------------------------------------------
def _markdown(made: Draft, dice: random.Random) -> Draft:
    sections = [rule for rule in made.rules.rules if isinstance(rule, Section)]
    room = min((made.limit(rule.max) for rule in made.rules.rules if isinstance(rule, Words)), default=1000)
    count = max(1, min(WORDS_OF_A_SECTION, room // (2 * len(sections) + 2)))
    lists = {rule.section: rule for rule in made.rules.rules if isinstance(rule, Files)}
    parts = [
        Part(
            rule=rule.id,
            head=head_of(rule, sections, dice),
            body=listing(made, lists[rule.id], dice) if rule.id in lists else words(made.rules, dice, count),
        )
        for rule in sections
    ]
    title = ""
    for rule in made.rules.rules:
        if isinstance(rule, Title):
            title = words(made.rules, dice, 3)[: made.limit(rule.max)].strip()
    made = msgspec.structs.replace(made, title=title or words(made.rules, dice, 3), parts=tuple(parts))
    return filled(with_words(made, mentions(made)))


def head_of(rule: Section, sections: list[Section], dice: random.Random) -> str:
    """A heading that answers this rule and no other, or the line of a key. Raises Unmakeable."""
    own = [alias for alias in rule.aliases if owner(sections, heading(alias)) is rule]
    if own:
        number = dice.choice(("", "1. ", "2.1 "))
        alias = dice.choice(own)
        return f"## {number}{dice.choice((alias, alias.upper(), alias.lower()))}{dice.choice(('', ':', ' in short'))}"
    if rule.keys:
        return f"{rule.keys[0]}:"
    raise Unmakeable(f"no heading answers {rule.id}: all that it understands belong to other rules")


def heading(text: str) -> Heading:
    return Heading(level=2, text=text, line=0, below=1, end=1)


def listing(made: Draft, rule: Files, dice: random.Random) -> str:
    least, most = made.limit(rule.min), made.limit(rule.max)
    return files(dice.randint(max(1, least), max(1, least, min(most, 5))), dice.random() < 0.5)


def files(count: int, as_table: bool = False, *named: str) -> str:
    """So many files as a section lists them, the named ones first."""
    paths = [*named, *(f"src/file_{number}.py" for number in range(count))][: max(count, len(named))]
    if as_table:
        return "\n".join(["| File | What |", "| --- | --- |", *(f"| `{path}` | x |" for path in paths)])
    return "\n".join(f"- `{path}`: x" for path in paths)


def with_words(made: Draft, text: str) -> Draft:
    """With a paragraph more, below the last section that is no list of files; without one, at the end."""
    if not text:
        return made
    lists = {rule.section for rule in made.rules.rules if isinstance(rule, Files)}
    places = [at for at, part in enumerate(made.parts) if part.rule not in lists]
    if not places:
        return msgspec.structs.replace(made, parts=(*made.parts, Part(rule="", head=neutral(made.rules), body=text)))
    at, parts = places[-1], list(made.parts)
    parts[at] = msgspec.structs.replace(parts[at], body=f"{parts[at].body}\n\n{text}")
    return msgspec.structs.replace(made, parts=tuple(parts))


def neutral(rules: RuleSet) -> str:
    """A heading that answers no rule."""
    sections = [rule for rule in rules.rules if isinstance(rule, Section)]
    names = ("Further words", "More besides", "Zz", "Qx", "---")
    return f"## {next(name for name in names if owner(sections, heading(name)) is None or name == '---')}"


def filled(made: Draft) -> Draft:
    """With one very long word more where it would be too small."""
    lacking = least_bytes(made) - len(made.text.encode())
    return with_words(made, "-".join(["word"] * (lacking // 5 + 2))) if lacking > 0 else made


def least_bytes(made: Draft) -> int:
    return max((made.limit(rule.min) for rule in made.rules.rules if isinstance(rule, Bytes)), default=0)


def written_markdown(made: Draft) -> str:
    parts = [f"# {made.title}"] if made.title else []
    return "\n\n".join([*parts, *(f"{part.head}\n\n{part.body}" for part in made.parts)]) + "\n"


# JSON -----------------------------------------------------------------------------------------------------------------
def _json(made: Draft, dice: random.Random) -> Draft:
    single = any(isinstance(rule, Json) and rule.root == "object" for rule in made.rules.rules)
    references = [rule for rule in made.rules.rules if isinstance(rule, References) and rule.artifact]
    most = min((len(json.loads(made.others[rule.artifact or ""])) for rule in references), default=ITEMS_MAX)
    count = 1 if single else dice.randint(1, most)
    items = [_item(made, None, number, dice) for number in range(count)]
    for rule in made.rules.rules:
        if isinstance(rule, Worst):
            for item in items:
                item[rule.field] = worst_of(made.rules, rule, item)
    return msgspec.structs.replace(made, items=tuple(_mentioning(made, items)))


def _item(made: Draft, within: str | None, number: int, dice: random.Random) -> dict[str, Any]:
    linked = {part for rule in made.rules.rules for part in _linked(rule)}
    item: dict[str, Any] = {}
    for rule in made.rules.rules:
        if isinstance(rule, Field) and rule.within == within and not (rule.optional and dice.random() < 0.5):
            name = rule.field if rule.field in linked else dice.choice((rule.field, *rule.aliases))
            item[name] = value_of(made, rule, number, dice)
    return item


def _linked(rule: Rule) -> tuple[str, ...]:
    """Fields that a rule finds by their own name only, or that are easier to follow by it."""
    match rule:
        case Unique(field=str() as field):
            return (field,)
        case References():
            return (rule.field, rule.to)
        case Worst():
            return (rule.field, rule.within)
    return ()


def value_of(made: Draft, rule: Field, number: int, dice: random.Random) -> Any:
    """A value that the field may have; `number` tells items apart."""
    least = made.limit(rule.min)
    most = made.limit(rule.max) if rule.max is not None else least + 10
    many = dice.randint(max(least, 1), max(least, 1, min(most, least + 3)))
    match rule.type:
        case "text":
            return text_of(made, least, most, number, dice)
        case "name":
            return f"T{number + 1}"
        case "choice":
            return dice.choice(rule.values or ("x",))
        case "number":
            return dice.randint(least, max(least, most))
        case "texts":
            return [text_of(made, 1, 60, number * 100 + at, dice) for at in range(many)]
        case "names":
            own = any(isinstance(other, References) and other.field == rule.field for other in made.rules.rules)
            return [f"T{at + 1}" for at in range(number if own else many)][:most]
        case "paths":
            return [f"src/file_{at}.py" for at in range(many)]
    return [_item(made, rule.field, at, dice) for at in range(dice.randint(least, max(least, min(most, 2))))]


def text_of(made: Draft, least: int, most: int, number: int, dice: random.Random) -> str:
    text = f"{number} {words(made.rules, dice, WORDS_OF_A_SECTION)}"
    while len(text) < least:
        text += f" {words(made.rules, dice, 4)}"
    cut = text[: max(most, 1)]
    return cut if cut == cut.strip() else cut.strip() + "x" * (len(cut) - len(cut.strip()))


def worst_of(rules: RuleSet, rule: Worst, item: dict[str, Any]) -> str:
    """What the worst of the objects in the item's list is, by the order of the choice's values."""
    choice = choice_of(rules, rule)
    found = [str(one[rule.field]) for one in item.get(rule.within, ()) if one.get(rule.field) in choice.values]
    return max(found, key=choice.values.index, default=choice.values[0])


def choice_of(rules: RuleSet, rule: Worst) -> Field:
    """Raises Unmakeable where the rule speaks of a field that is no choice."""
    for one in rules.rules:
        if isinstance(one, Field) and one.field == rule.field and one.within is None and one.values:
            return one
    raise Unmakeable(f"{rule.id} speaks of `{rule.field}`, which is no choice")


def _mentioning(made: Draft, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With all ids that must be named, in the field that has most room for them."""
    ids, rooms = mentions(made), [rule for rule in made.rules.rules if isinstance(rule, Field) and not rule.within]
    texts = [rule for rule in rooms if rule.type == "text" and not rule.optional]
    if ids and texts:
        rule = max(texts, key=lambda rule: 10**9 if rule.max is None else made.limit(rule.max))
        name = next(name for name in (rule.field, *rule.aliases) if name in items[-1])
        items[-1][name] = f"{ids} {items[-1][name]}"
    return items


def written_json(made: Draft) -> str:
    """As its rules want it; blanks at the end make a short one long enough."""
    single = any(isinstance(rule, Json) and rule.root == "object" for rule in made.rules.rules)
    value = made.items[0] if single and made.items else list(made.items)
    text = json.dumps(value, ensure_ascii=False, indent=1)
    return text + " " * (least_bytes(made) - len(text.encode())) + "\n"
