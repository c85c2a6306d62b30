"""Items of Markdown and YAML: tables, checklists, headings with a mapping, and maps, under the rules of JSON items."""

from __future__ import annotations

from typing import Any

import pytest
from mz_engine.artifacts.json_schema import artifact_schema
from mz_engine.artifacts.load import assemble_rules
from mz_engine.artifacts.markdown import read_markdown
from mz_engine.artifacts.parse import markdown_items, parse_artifact, read_items
from mz_engine.artifacts.validate import validate
from mz_engine.model.config import Limits
from mz_engine.model.rules import RuleSet, YamlForm
from mz_events.catalog.validation import Unit

TEXTS = {"requirement": "Be right.", "message": "{item} {found}"}


def rule_set(form: str, *rules: dict[str, Any], **extract: Any) -> RuleSet:
    numbered = [{"id": f"x.{number}", **TEXTS, **rule} for number, rule in enumerate(rules)]
    return assemble_rules({"name": "x", "version": 1, "form": form, "extract": extract, "rules": numbered}, {})


def listed(shape: str, *rules: dict[str, Any], **extract: Any) -> RuleSet:
    section = {"kind": "section", "id": "x.section", "aliases": ["Work"]}
    return rule_set(
        "markdown", section, {"kind": "items", "section": "x.section", "shape": shape, "max": 3}, *rules, **extract
    )


TABLE = """\
# Plan

| other | table |
|---|---|
| not | this |

## Work

| Unit | Depends on | Files touched |
|---|---|---|
| `u1` | - | `a.py`, b.py |
| **u2** | u1 | c.py |
"""
CHECKLIST = """\
## Work

- [x] AC-001: The month is checked.
- [ ] **AC-002** - An empty month
  shows nothing.
- [ ] no id here
- no checkbox
"""
ENTRIES = """\
## Work

### `unit-001`

Words.

```yaml
type: auth
depends_on: []
```

### unit-002

```yaml
type: page
depends_on: [unit-001]
```

## Other

### unit-003
"""
FILES = {"kind": "field", "field": "files_touched", "type": "paths"}
DEPENDS = {"kind": "field", "field": "depends_on", "type": "names"}


def items_of(rules: RuleSet, text: str) -> list[tuple[dict[str, Any], int | None]]:
    return [(dict(item.fields), item.line) for item in markdown_items(rules, read_markdown(text))]


def test_a_table_has_an_item_in_each_row() -> None:
    assert items_of(listed("table", FILES, DEPENDS), TABLE) == [
        ({"unit": "u1", "depends_on": [], "files_touched": ["a.py", "b.py"]}, 11),
        ({"unit": "u2", "depends_on": ["u1"], "files_touched": ["c.py"]}, 12),
    ]


def test_a_checklist_has_an_item_in_each_checkbox() -> None:
    assert items_of(listed("checklist"), CHECKLIST) == [
        ({"id": "AC-001", "text": "The month is checked.", "done": "yes"}, 3),
        ({"id": "AC-002", "text": "An empty month\nshows nothing.", "done": "no"}, 4),
        ({"id": "", "text": "no id here", "done": "no"}, 6),
    ]


def test_headings_with_a_mapping_are_items() -> None:
    assert items_of(listed("entries"), ENTRIES) == [
        ({"type": "auth", "depends_on": [], "id": "unit-001"}, 3),
        ({"type": "page", "depends_on": ["unit-001"], "id": "unit-002"}, 12),
    ]


def test_units_are_read_from_items_of_markdown() -> None:
    fields = {"id": "id", "depends_on": "depends_on", "files": "files", "fields": ["type"]}
    kind = {"kind": "field", "field": "type", "type": "choice", "values": ["auth", "page"]}
    assert parse_artifact(listed("entries", kind, units=fields), ENTRIES).units == (
        Unit(id="unit-001", fields={"type": "auth"}),
        Unit(id="unit-002", depends_on=("unit-001",), fields={"type": "page"}),
    )


UNKNOWN, CYCLE = TABLE.replace("| u1 |", "| u9 |"), TABLE.replace("| - |", "| u2 |")
CASES: list[tuple[str, str, dict[str, Any], list[int | None]]] = [
    ("table", TABLE, {"kind": "field", "field": "unit", "type": "choice", "values": ["u1"]}, [12]),
    ("table", TABLE, {"kind": "references", "field": "depends_on", "to": "unit"}, []),
    ("table", UNKNOWN, {"kind": "references", "field": "depends_on", "to": "unit"}, [12]),
    ("table", CYCLE, {"kind": "acyclic", "field": "depends_on", "to": "unit"}, [None]),
    ("checklist", CHECKLIST, {"kind": "unique", "field": "id"}, []),
    ("checklist", CHECKLIST.replace("002", "001"), {"kind": "unique", "field": "id"}, [4]),
    ("table", TABLE, {"kind": "exactly", "field": "unit", "values": ["u1", "u2"]}, []),
    ("table", TABLE, {"kind": "exactly", "field": "unit", "values": ["u1", "u3"]}, [None, None]),
    ("table", TABLE, {"kind": "exactly", "field": "unit", "artifact": "list", "artifact_field": "id"}, []),
    ("table", TABLE, {"kind": "exactly", "field": "unit", "artifact": "absent", "artifact_field": "id"}, []),
    ("table", TABLE, {"kind": "exactly", "field": "unit", "artifact": "text", "pattern": "(u[0-9])"}, [None]),
]
EARLIER = {"list": "- {id: u1}\n- {id: u2}\n", "text": "u1 u2 u3"}


@pytest.mark.parametrize(("shape", "text", "rule", "lines"), CASES)
def test_rules_about_items_hold_for_markdown(
    shape: str, text: str, rule: dict[str, Any], lines: list[int | None]
) -> None:
    rules = listed(shape, *([DEPENDS] if shape == "table" else []), rule)
    findings = validate(rules, text, "x.md", Limits(), EARLIER)
    assert {finding.violation.rule for finding in findings} <= {rules.rules[-1].id}
    assert [finding.violation.line for finding in findings] == lines


WORK = """\
- {id: u1, type: auth, verification: {method: unit_test, files: [a.py]}, files: [a.py, new.py], new: [./new.py]}
- {id: u2, type: Page, verification: {method: AC-002}, files: [gone.py, new.py]}
"""
METHOD = {"kind": "field", "field": "verification.method", "type": "choice", "values": ["unit_test"]}
OF_FEATURE: list[tuple[dict[str, Any], list[int | None]]] = [
    (METHOD, [2]),
    (METHOD | {"when": {"field": "type", "in": ["AUTH"]}}, []),
    (METHOD | {"when": {"field": "type", "in": ["page"]}}, [2]),
    (METHOD | {"when": {"field": "verification.files", "in": ["a.py"]}}, []),
    ({"kind": "field", "field": "verification.files", "type": "paths"}, [2]),
    ({"kind": "exists", "field": "files"}, [1, 2, 2]),
    ({"kind": "exists", "field": "files", "new": "new"}, [2]),
    ({"kind": "exists", "field": "verification.files"}, []),
    ({"kind": "covers", "of": "unit", "field": "criteria"}, [None]),
    ({"kind": "covers", "of": "unit", "field": "absent"}, []),
    ({"kind": "pattern", "pattern": "^- .*id: u2"}, []),
    ({"kind": "pattern", "pattern": "id: u3"}, [None]),
    ({"kind": "pattern", "pattern": "^[a-z]+$", "where": "type"}, [2]),
    ({"kind": "pattern", "pattern": "(a+)+$", "where": "absent"}, []),
]


@pytest.mark.parametrize(("rule", "lines"), OF_FEATURE)
def test_rules_about_some_items_and_about_the_feature(rule: dict[str, Any], lines: list[int | None]) -> None:
    rules, unit = rule_set("yaml", {"kind": "yaml", "root": "list"}, rule), {"criteria": ["AC-001", "AC-002"]}
    findings = validate(rules, WORK, "x.yaml", Limits(), {}, unit, ("a.py",))
    assert [finding.violation.line for finding in findings] == lines
    if rule["kind"] == "exists":
        assert validate(rules, WORK, "x.yaml", Limits(), {}) == (), "of an unknown tree nothing is missing"


def test_ids_and_counts_of_items_are_extracted() -> None:
    counts: list[dict[str, Any]] = [{"name": "all"}]
    counts += [{"name": name, "field": "type", "in": values} for name, values in (("auth", ["AUTH"]), ("none", []))]
    rules = rule_set("yaml", {"kind": "yaml", "root": "list"}, ids="id", counts=counts)
    parsed = parse_artifact(rules, WORK)
    assert (parsed.ids, parsed.counts) == (("u1", "u2"), {"all": 2, "auth": 1, "none": 0})
    units = {"id": "unit", "depends_on": "depends_on", "files": "files_touched"}
    done = [{"name": "done", "field": "done", "in": ["yes"]}]
    assert parse_artifact(listed("checklist", ids="id", counts=done), CHECKLIST).counts == {"done": 1}
    (first, second) = parse_artifact(listed("table", units=units), TABLE).units
    assert (first.files, second.depends_on) == (("a.py", "b.py"), ("u1",)), "columns of units are lists"


def test_an_entry_of_a_checklist_has_to_be_ticked() -> None:
    rule = {"kind": "field", "field": "done", "type": "choice", "values": ["yes"]}
    findings = validate(listed("checklist", rule), CHECKLIST, "x.md", Limits(), {})
    assert [finding.violation.line for finding in findings] == [4, 6]


def test_what_is_missing_and_what_is_too_much_is_named() -> None:
    rule = {"kind": "exactly", "field": "unit", "values": ["u1", "u3"]}
    messages = [finding.message for finding in validate(listed("table", rule), TABLE, "x.md", Limits(), {})]
    assert messages == ["x.md:  u3 is missing [x.2]", 'x.md:  "u2" is not one of them [x.2]']


@pytest.mark.parametrize(
    ("shape", "text", "message"),
    [
        ("checklist", "## Work\n\n- plain\n", "x.md:1:  none [x.1]"),
        ("checklist", "## Work\n\n" + "- [ ] a: b\n" * 4, "x.md:1:  4 [x.1]"),
        ("checklist", "## Work\n", "x.md:1:  nothing stands below the heading [x.section]"),
        ("entries", "## Work\n\n### a\n\nwords\n", "x.md:3:  below 'a' stands no YAML mapping in a code block [x.1]"),
        ("entries", "## Work\n\n### a\n\n```yaml\n- a\n```\n", "x.md:3:  below 'a' stands no YAML mapping"),
        ("entries", "## Work\n\n### a\n\n```yaml\n{\n```\n", "x.md:"),
    ],
)
def test_a_list_of_the_wrong_form_or_size_breaks_its_rule(shape: str, text: str, message: str) -> None:
    (finding,) = validate(listed(shape), text, "x.md", Limits(), {})
    assert finding.message.startswith(message)


def test_a_list_that_an_agent_made_to_take_long_is_read_at_once() -> None:
    text = "## Work\n\n" + f"- [ ] a{'_' * 200_000}\n" + f"- [ ] {'*' * 200_000}\n"
    assert len(items_of(listed("checklist"), text)) == 2


def test_a_map_has_an_item_for_each_key() -> None:
    form = YamlForm(id="x", requirement="", message="", root="map")
    text = "AC-001: {method: unit_test}\nAC-002: {method: migration}\n"
    assert [dict(item.fields) for item in read_items(form, text)] == [
        {"method": "unit_test", "id": "AC-001"}, {"method": "migration", "id": "AC-002"},
    ]  # fmt: skip
    method = {"kind": "field", "field": "method", "type": "choice", "values": ["unit_test"]}
    rules = rule_set("yaml", {"kind": "yaml", "root": "map"}, method)
    assert [f.violation.rule for f in validate(rules, text, "x.yaml", Limits(), {})] == ["x.1"]
    for text in ("a: 1", "{}", ""):
        assert [f.violation.rule for f in validate(rules, text, "x.yaml", Limits(), {})] == ["x.0"]
    assert artifact_schema(rules, Limits())["additionalProperties"]["required"] == ["method"]
