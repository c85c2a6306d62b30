"""Types of rule sets. Rules are data: validators enforce them, prompts state them, runs pin them.

A number in a rule is a literal or the name of a field of `mz_engine.model.config.Limits`. A rule's texts may contain
`{min}`, `{max}`, `{aliases}`, `{values}` and, in messages only, `{item}` and `{found}`."""

from __future__ import annotations

from typing import Literal

import msgspec
from mz_events.catalog.validation import Change, Unit, Violation
from mz_events.names import Path

from mz_engine.model.config import Limits
from mz_engine.model.pipeline import Limit

JUDGED = "judged"
"""List in a verdict with an answer to each rule that its reviewer judges."""


class RuleBase(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"
):
    """Fields of all kinds of rules."""

    id: str
    """`<artifact>.<rule>`; never reused for another rule, since events cite it."""
    requirement: str
    """Instruction to the agent before it writes."""
    message: str
    """Message to the agent when it broke the rule."""
    example: str = ""


class FileRule(RuleBase, frozen=True, kw_only=True, tag="file"):
    """The artifact exists. After a violation of this kind, `bytes`, `json` or `yaml`, later rules are skipped."""


class ByteSize(RuleBase, frozen=True, kw_only=True, tag="bytes"):
    """Size of the text in bytes of UTF-8."""

    min: Limit
    max: Limit


class WordCount(RuleBase, frozen=True, kw_only=True, tag="words"):
    """Number of words below the first section heading, without headings, front matter and comments."""

    max: Limit


class NoPlaceholders(RuleBase, frozen=True, kw_only=True, tag="placeholders"):
    """No placeholder of a template remains. Code spans and code blocks are not searched."""

    patterns: tuple[str, ...]
    aliases: tuple[str, ...]
    """The patterns as a person would write them."""


class TitleRule(RuleBase, frozen=True, kw_only=True, tag="title"):
    """The first heading is of level 1 and within a number of characters."""

    max: Limit


class SectionRule(RuleBase, frozen=True, kw_only=True, tag="section"):
    """A non-empty section under a level 2 or 3 heading that begins with one of the aliases, in any case."""

    aliases: tuple[str, ...]
    keys: tuple[str, ...] = ()
    """A line that begins with `key:` counts as a heading."""


class FileList(RuleBase, frozen=True, kw_only=True, tag="files"):
    """A section lists files, as list items or table rows; entries marked with an `ignored` word do not count."""

    section: str
    """Id of a section rule of the same set."""
    min: Limit
    max: Limit
    ignored: tuple[str, ...] = ()


class FilePaths(RuleBase, frozen=True, kw_only=True, tag="paths"):
    """Every file that the `files` rule finds is a single file inside the repository."""

    files: str
    """Id of a files rule of the same set."""


class UniqueIds(RuleBase, frozen=True, kw_only=True, tag="unique"):
    """No duplicate definitions: of a field over all items, or of the first group of a pattern over the lines of
    prose."""

    field: str | None = None
    ignore_case: bool = False
    """Values of the field that differ in case and white space alone are equal."""
    pattern: str | None = None


class CoversIds(RuleBase, frozen=True, kw_only=True, tag="covers"):
    """Every id that an earlier artifact defines, or a field of the present unit holds, is mentioned here; ranges
    (`FR-001 to FR-004`) count."""

    artifact: str = ""
    of: Literal["artifact", "unit"] = "artifact"
    field: str | None = None
    """Field of the unit, or of the items, if that artifact is JSON."""
    pattern: str | None = None
    """Its first group is the id, if that artifact is Markdown."""


class JsonForm(RuleBase, frozen=True, kw_only=True, tag="json"):
    """The text is JSON: a list of objects, one object, or a map of objects by their `id`. A list may be the only list
    in an object; one object is accepted as a list of one."""

    root: Literal["list", "object", "map"]
    embedded: bool = False
    """The JSON may be in a code block of a longer text, as in a reply."""
    min: Literal[0, 1] = 1
    """0: a list may be empty."""
    max: Limit | None = None
    """Most entries of a list."""


class YamlForm(JsonForm, frozen=True, kw_only=True, tag="yaml"):
    """The same for YAML, of which JSON is a part."""


class ItemList(RuleBase, frozen=True, kw_only=True, tag="items"):
    """A section of Markdown holds items, whose fields other rules check: the rows of a table, with its headings as
    names; the entries of a checklist such as `- [x] AC-1: text` (`id`, `text`, `done`: yes or no); or headings below
    the section's own (`id`), each with a YAML mapping in a code block. A rule set has at most one list."""

    section: str
    """Id of a section rule of the same set."""
    shape: Literal["table", "checklist", "entries"]
    min: Limit = 1
    max: Limit | None = None


class ExactIds(RuleBase, frozen=True, kw_only=True, tag="exactly"):
    """The values of a field over all items are exactly these, or the ids that an earlier artifact defines: see
    CoversIds."""

    field: str
    within: str | None = None
    """Name of the list field whose objects have the field, instead of the items themselves."""
    values: tuple[str, ...] = ()
    artifact: str | None = None
    artifact_field: str | None = None
    pattern: str | None = None


class FieldCondition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Holds for an item whose field has one of these values, in any case; for all items without a field."""

    field: str = ""
    values: tuple[str, ...] = msgspec.field(default=(), name="in")


EVERY_ITEM = FieldCondition()


class FieldRule(RuleBase, frozen=True, kw_only=True, tag="field"):
    """One field of every item. `min` and `max` count characters of texts, entries of lists, or bound a number.
    `entries` are texts, or objects with `text` and an `id` that no other has."""

    field: str
    """`verification.method` is a field of the mapping in another one."""
    when: FieldCondition = EVERY_ITEM
    """Only items for which this holds have to fulfil the rule."""
    aliases: tuple[str, ...] = ()
    """Other accepted names."""
    type: Literal["text", "name", "texts", "names", "paths", "number", "choice", "objects", "entries"]
    optional: bool = False
    min: Limit = 0
    max: Limit | None = None
    values: tuple[str, ...] = ()
    within: str | None = None
    """Name of the list field whose objects are checked, instead of the items themselves."""


class ReferencesIds(RuleBase, frozen=True, kw_only=True, tag="references"):
    """Every value of a field is an id that items define: here, or in an earlier artifact."""

    field: str
    to: str
    artifact: str | None = None


class AcyclicItems(RuleBase, frozen=True, kw_only=True, tag="acyclic"):
    """Dependencies between items have no cycle."""

    field: str
    to: str


class MaximumField(RuleBase, frozen=True, kw_only=True, tag="worst"):
    """A choice is the maximum (latest in its values) over the objects of a list, or the first value if the list is
    empty."""

    field: str
    within: str


class ExistingPaths(RuleBase, frozen=True, kw_only=True, tag="exists"):
    """Every path in a field of the items is a file of the tree, or one that the items declare as new."""

    field: str
    new: str | None = None
    """Field with the paths of new files."""


class MatchingText(RuleBase, frozen=True, kw_only=True, tag="pattern"):
    """A line of the text, or every value of a field, matches a regular expression (RE2)."""

    pattern: str
    where: str | None = None
    """The field; absent: the text."""


class ProseRule(RuleBase, frozen=True, kw_only=True, tag="prose"):
    """A requirement that only a reviewer can judge; its verdict has to answer it by id."""

    message: str = ""


TextRule = FileRule | ByteSize | WordCount | NoPlaceholders | TitleRule | SectionRule | FileList | FilePaths
FormRule = JsonForm | YamlForm | ItemList
ItemRule = (
    UniqueIds
    | CoversIds
    | ExactIds
    | FieldRule
    | ReferencesIds
    | AcyclicItems
    | MaximumField
    | ExistingPaths
    | MatchingText
    | ProseRule
)
Rule = TextRule | FormRule | ItemRule


class UnitFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Fields of an item that make a unit of work."""

    id: str
    depends_on: str
    files: str
    fields: tuple[str, ...] = ()
    """Enum-like fields that decisions need."""


class ItemCount(FieldCondition, frozen=True, kw_only=True):
    """The number of items for which the condition holds."""

    name: str


class Extraction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Data extracted from an artifact for decisions."""

    files: str | None = None
    """Id of a files rule."""
    units: UnitFields | None = None
    fields: tuple[str, ...] = ()
    names: str | None = None
    """Field of the first item whose names decisions need."""
    ids: str | None = None
    """Field of the items whose names are the ids that the artifact defines."""
    counts: tuple[ItemCount, ...] = ()
    criteria: str | None = None
    """Id of the section rule whose entries are acceptance criteria."""
    learnings: bool = False
    """The items are learnings, with `key`, `kind`, `statement`, and perhaps `tags` and `phases`."""


class RuleSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All rules for one kind of artifact, in the order of evaluation."""

    name: str
    version: int
    form: Literal["markdown", "json", "yaml"]
    extract: Extraction = Extraction()
    rules: tuple[Rule, ...]

    @property
    def judged_rules(self) -> tuple[ProseRule, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, ProseRule))

    @property
    def depends_on_feature(self) -> bool:
        """Return True if a rule looks at more than artifacts: at the tree, or at the present unit."""
        return any(isinstance(rule, ExistingPaths) or getattr(rule, "of", "") == "unit" for rule in self.rules)


class ParsedArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """Data extracted from an artifact; contains only legal names and paths."""

    units: tuple[Unit, ...] = ()
    files: tuple[Path, ...] = ()
    fields: dict[str, str] = {}
    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    counts: dict[str, int] = {}
    criteria: int = 0
    """Number of acceptance criteria."""
    breaking: tuple[str, ...] = ()
    """Announced breaking changes: the lines that begin with `BREAKING CHANGE`."""


class StatedLearning(msgspec.Struct, frozen=True, kw_only=True):
    """A learning that an artifact states."""

    kind: str
    key: str
    statement: str
    tags: tuple[str, ...]
    phases: tuple[str, ...]


class RuleFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One broken rule: the violation for decisions, and a message for agents and people."""

    violation: Violation
    message: str


class FeatureRuleInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input of rules over a feature as a whole."""

    artifacts: dict[str, ParsedArtifact]
    """The newest version of each, by name."""
    changes: tuple[Change, ...]
    """Against the tree before the call."""
    limits: Limits
    outputs: tuple[str, ...] = ()
    """Patterns of the phase's own artifacts, to which rules about changes do not apply."""
