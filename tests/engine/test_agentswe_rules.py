"""The rule sets of the pipeline with eight phases: the samples keep them, and each edit of a sample breaks one rule."""

from __future__ import annotations

import pytest
from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.parse import parse_artifact
from mz_engine.artifacts.validate import validate
from mz_engine.model.config import Limits
from mz_events.catalog.validation import Unit
from mz_events.names import Path

from tests.support.agentswe import SAMPLES, agentswe

EDITS = [
    ("spec", "## Intent", "## Why", "spec.intent"),
    ("spec", "AC-003: the", "the", "spec.id"),
    ("spec", "AC-003", "AC-3", "spec.form"),
    ("spec", "AC-003", "AC-001", "spec.unique"),
    ("spec", "None\n", "- Is five the limit?\n", "spec.answered"),
    ("spec", "## Open Questions\nNone\n", "", "spec.open"),
    ("criteria", "- id: AC-003", "- id: AC-004", "criteria.all"),
    ("criteria", "unit_test\n", "by_hand\n", "criteria.method"),
    ("criteria", "- id", "```yaml\n- id", "criteria.yaml"),
    ("criteria", "  test_file: tests/test_limit.py\n", "", "criteria.test_file"),
    ("constraints", "## Constraints", "Constraints", "constraints.list"),
    ("adr", "## Alternatives Rejected", "## More", "adr.alternatives"),
    ("adr", "# ADR", "## ADR", "adr.title"),
    ("adr", "# ADR-001: Wait", "# Wait", "adr.number"),
    ("adr", "Accepted", "Maybe", "adr.state"),
    ("interfaces", "errors: []", "error: []", "interfaces.errors"),
    ("interfaces", "```", "", "interfaces.entries"),
    ("services", "  rate_limit: five calls in ten seconds\n", "", "services.rate_limit"),
    ("services", "  state: known", "  state: new", "services.worst"),
    ("graph", '"auth_client"]', '"nobody"]', "graph.known"),
    ("risks", "## Rollback Path", "## Way back", "risks.rollback"),
    ("work", "type: auth", "type: login", "work.type"),
    ("work", "size_estimate: small", "size_estimate: huge", "work.estimate"),
    ("work", "[AC-003]", "[AC-009]", "work.known_criteria"),
    ("work", "[AC-003]", "[AC-002]", "work.coverage"),
    ("work", "[AC-001]", "[AC-001, AC-002, AC-003, AC-001]", "work.criteria"),
    ("work", "[unit-002]", "[unit-009]", "work.known"),
    ("work", "depends_on: []\n", "depends_on: [unit-001]\n", "work.order"),
    ("work", "coverage_threshold: 80", "coverage_threshold: 101", "work.threshold"),
    ("work", "  test_file: tests/test_limit.py\n", "", "work.test_file"),
    ("work", "  fixtures: a journal with three waits\n", "", "work.fixtures"),
    ("work", "method: unit_tests", "method: migration_runs_clean", "work.rollback"),
    ("work", "security: sensitive", "security: ordinary", "work.sensitive"),
    ("work", "  new_files: [pager/limit.py, tests/test_limit.py]\n", "", "work.present"),
    ("commit_message", "feat(pager): wait", "Wait", "commit_message.subject"),
    ("commit_message", "AC-002, ", "", "commit_message.criteria"),
    ("execution_plan", "| unit-003 | shows what the others do |\n", "", "execution_plan.all"),
    ("self_check", "- [x] only", "- [ ] only", "self_check.done"),
    ("self_check", "- [x] only files of the unit changed\n", "", "self_check.list"),
    ("fidelity", "| met |", "| not met |", "fidelity.status"),
    ("fidelity", "| AC-003 |", "| AC-002 |", "fidelity.all"),
    ("report", "| REVIEW | NIT |", "| REVIEW | MAJOR |", "report.severity"),
    ("report", "| Security |", "| Safety |", "report.axes"),
    ("owasp", '"blocking_findings": []', '"blocking_findings": ["a token is logged"]', "owasp.blocking"),
    ("owasp", '"id": "A10"', '"id": "A1"', "owasp.all"),
    ("owasp", '"status": "PASS", "notes": "one', '"status": "REVIEW", "notes": "one', "owasp.worst"),
    ("owasp", '"notes": "no new ones"', '"note": "no new ones"', "owasp.item_notes"),
    ("auth_paths", "## Auth Paths", "## Paths", "auth_paths.paths"),
    ("merge_plan", "## Merge Status", "## Result", "merge_plan.status"),
    ("merge_plan", "APPROVED", "APPROVABLE", "merge_plan.approved"),
    ("report", "PASSED", "FAILED", "report.passed"),
    ("compatibility", '"PASS"', '"BROKEN"', "compatibility.result"),
    ("deployment", "## Rollback", "## Back", "deployment.rollback"),
    ("threats", "## Mitigations", "## What helps", "threats.mitigations"),
    ("root_cause", "## Recommendation", "## Advice", "root_cause.recommendation"),
    ("lessons", "kind: pattern", "kind: rule", "lessons.kind"),
    ("lessons", "key: declared-limits", "key: declared limits", "lessons.key"),
]


def broken(artifact: str, text: str) -> set[str]:
    unit = {"criteria_covered": ["AC-001", "AC-002"]}
    findings = validate(load_rules()[artifact], text, artifact, Limits(), SAMPLES, unit, paths=("README.md",))
    return {finding.violation.rule for finding in findings}


def test_each_artifact_of_the_pipeline_has_a_sample_that_keeps_its_rules() -> None:
    outputs = [output for phase in agentswe().phases for output in phase.outputs]
    assert {output.artifact for output in outputs} == SAMPLES.keys()
    assert all(output.rules == output.artifact for output in outputs)
    assert {name: broken(name, text) for name, text in SAMPLES.items() if broken(name, text)} == {}


@pytest.mark.parametrize(("artifact", "old", "new", "rule"), EDITS, ids=[edit[3] for edit in EDITS])
def test_an_edit_breaks_the_rule(artifact: str, old: str, new: str, rule: str) -> None:
    assert old in SAMPLES[artifact]
    assert rule in broken(artifact, SAMPLES[artifact].replace(old, new))


def test_what_decisions_need_is_extracted() -> None:
    parsed = {name: parse_artifact(load_rules()[name], text) for name, text in SAMPLES.items()}
    assert parsed["work"].units[1:] == (
        Unit(
            id="unit-002",
            files=(Path("pager/auth_client.py"), Path("tests/test_auth_client.py")),
            fields={"type": "auth", "security": "sensitive"},
        ),
        Unit(
            id="unit-003",
            depends_on=("unit-002",),
            files=(Path("pager/report.py"), Path("tests/test_report.py")),
            fields={"type": "boilerplate", "security": "ordinary"},
        ),
    )
    assert parsed["owasp"].fields == {"status": "PASS"}
    assert (parsed["spec"].ids, parsed["spec"].criteria) == (("AC-001", "AC-002", "AC-003"), 3)
    assert parsed["services"].fields == {"state": "known"}
