"""The rules of proposed tasks: what a plan may say, and what is sent back to its agent."""

from __future__ import annotations

import pytest
from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.parse import parse_artifact
from mz_engine.artifacts.validate import validate
from mz_engine.model.config import Limits

RULES = load_rules()["proposals"]
TASK = """\
- id: parse
  title: "FR-003: refuse a month outside 1 to 12"
  deliverable_type: code
  files: [src/period.py, tests/test_period.py]
  requirements: [R1 a, R2 b, R3 c, R4 d, R5 e]
  acceptance_criteria: [AC1 a, AC2 b, AC3 c, AC4 d, AC5 e]
- id: manual
  title: "FR-003: say it in the manual"
  deliverable_type: documentation
  files: [docs/manual.md]
  requirements: [R1 a, R2 b]
  acceptance_criteria: [AC1 a, AC2 b, AC3 c]
  depends_on: [parse]
"""


def broken(text: str) -> set[str]:
    findings = validate(RULES, f"Here:\n\n```yaml\n{text}```\n", "reply", Limits(items_max=2), {})
    return {finding.violation.rule.partition(".")[2] for finding in findings}


def test_a_plan_is_a_list_of_tasks_or_an_empty_one() -> None:
    assert (broken(TASK), broken("[]\n")) == (set(), set())
    assert validate(RULES, "[]", "reply", Limits(), {}) == ()
    units = parse_artifact(RULES, f"```yaml\n{TASK}```").units
    assert [(unit.id, unit.files, unit.depends_on) for unit in units] == [
        ("parse", ("src/period.py", "tests/test_period.py"), ()),
        ("manual", ("docs/manual.md",), ("parse",)),
    ]


@pytest.mark.parametrize(
    "before", ["Nothing is missing.", "Result: nothing is missing.", "- all is there: yes,", "{", ""]
)
@pytest.mark.parametrize("task", [TASK, "[]\n"])
def test_the_list_may_follow_sentences_that_are_yaml_too(before: str, task: str) -> None:
    text = f"{before}\n\n```yaml\n{task}```\n"
    assert validate(RULES, text, "reply", Limits(), {}) == ()
    assert len(parse_artifact(RULES, text).units) == task.count("title")


def test_a_code_block_that_cannot_be_read_is_what_the_message_is_about() -> None:
    (finding,) = validate(RULES, "Here: it is\n\n```yaml\n- id: [\n```\n", "reply", Limits(), {})
    assert "in the last code block: not YAML: while parsing a flow node" in finding.message


def test_lines_are_those_of_the_reply_and_not_of_its_code_block() -> None:
    text = TASK.replace("id: manual", "id: ../manual")
    reply = f"Here:\n\n```yaml\n{text}```\n"
    (finding,) = validate(RULES, reply, "reply", Limits(), {})
    assert finding.violation.line == 1 + reply.split("\n").index("- id: ../manual")
    (unreadable,) = validate(RULES, "Here: it is\n\n```yaml\n- id: a\n- id: [\n```\n", "reply", Limits(), {})
    assert unreadable.violation.line in (5, 6)


@pytest.mark.parametrize(("old", "new", "rule"), [
    ("- id: parse", "- name: parse", "id"),
    ("- id: manual", "- id: parse", "unique"),
    ("say it in the manual", "x" * 300, "title"),
    ("FR-003: say it in the manual", "fr-003: Refuse a  month outside 1 to 12", "titles"),
    ("requirements: [R1 a, R2 b]", "requirements: [{id: R1, text: a}, {id: R1, text: b}]", "document_requirements"),
    ("requirements: [R1 a, R2 b]", "requirements: [{id: R1}, R2 b]", "document_requirements"),
    ("requirements: [R1 a, R2 b]", "requirements: [{id: [], text: a}, R2 b]", "document_requirements"),
    ("deliverable_type: documentation", "deliverable_type: both", "type"),
    ("files: [docs/manual.md]", "files: [../manual.md]", "files"),
    ("requirements: [R1 a, R2 b, R3 c, R4 d, R5 e]", "requirements: [R1 a]", "requirements"),
    ("[AC1 a, AC2 b, AC3 c, AC4 d, AC5 e]", f"[{', '.join(f'AC{n}' for n in range(9))}]", "criteria"),
    ("requirements: [R1 a, R2 b]", "requirements: [R1 a]", "document_requirements"),
    ("acceptance_criteria: [AC1 a, AC2 b, AC3 c]\n", "acceptance_criteria: [AC1 a]\n", "document_criteria"),
    ("depends_on: [parse]", "depends_on: [other]", "known"),
    ("depends_on: [parse]", "depends_on: [manual]", "order"),
    ("depends_on: [parse]", "design_decisions: [D1 a]\n  depends_on: 7", "depends_on"),
    ("files: [src/period.py", "design_decisions: [D1 a]\n  files: [src/period.py", "decisions"),
    ("- id: manual", "- {id: more}\n- id: manual", "yaml"),
    ("R5 e]", "[TODO more]]", "placeholders"),
    ("- id: parse", "no list: [", "yaml"),
])  # fmt: skip
def test_an_edit_breaks_the_rule(old: str, new: str, rule: str) -> None:
    assert old in TASK
    assert rule in broken(TASK.replace(old, new))


def test_what_two_tasks_share_is_said_with_both() -> None:
    text = TASK.replace("say it in the manual", "Refuse a month outside 1 to 12")
    (finding,) = validate(RULES, text, "reply", Limits(), {})
    assert 'the tasks 1 (parse) and 2 (manual) have the same `title`: "FR-003: Refuse a month' in finding.message


def test_entries_may_be_sentences_or_objects_with_ids() -> None:
    mixed = TASK.replace("[R1 a, R2 b]", "[{id: R1, text: a}, R2 b]").replace(
        "[AC1 a, AC2 b,", "[{id: AC1, text: a}, AC2 b,"
    )
    assert broken(mixed) == set()
