"""Every artifact that is drawn from the rules passes them, and each way to break a rule is answered with that rule."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.parse import parse_artifact, title_and_body
from mz_engine.artifacts.validate import validate
from mz_engine.model.config import Limits
from mz_engine.model.rules import ParsedArtifact

from tests.support.agentswe import SAMPLES
from tests.support.artifact_strategies import drafts, mutations
from tests.support.examples import amount, first_of_each

KINDS = sorted(load_rules().keys() - SAMPLES.keys() - {"proposals"})
"""`mz_qa.generators` draws the others."""
MUTATIONS = [(kind, mutation) for kind in KINDS for mutation in mutations(kind)]
COLLATERAL = {
    "code.skipped": {"code.coverage"},
    "commit_summary.task": {"commit_summary.known"},
    "tasks.id": {"tasks.known"},
    "tasks.depends_on": {"tasks.known"},
    "tasks.description": {"tasks.coverage"},
    "verdict.findings": {"verdict.worst"},
    "verdict.finding_severity": {"verdict.worst"},
}
"""What may break as well, since it rests on the same words."""
QUICK = settings(max_examples=amount(20, 5), deadline=None, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(
    max_examples=amount(2, 1), phases=[Phase.generate], deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@QUICK
def test_what_is_drawn_from_the_rules_passes_them(kind: str, data: st.DataObject) -> None:
    draft = data.draw(drafts(kind))
    findings = validate(draft.rules, draft.text, "where", Limits(), draft.others)
    assert [finding.message for finding in findings] == []


@pytest.mark.parametrize(
    ("kind", "mutation"),
    first_of_each(MUTATIONS, lambda case: case[1].rule),
    ids=[f"{m.rule}-{m.what[:20]}" for _, m in MUTATIONS],
)
@given(data=st.data())
@FEW
def test_each_mutation_breaks_its_rule(kind: str, mutation: object, data: st.DataObject) -> None:
    [chosen] = [m for k, m in MUTATIONS if m is mutation]
    draft = data.draw(drafts(kind))
    text = chosen.apply(draft)
    broken = {finding.violation.rule for finding in validate(draft.rules, text, "where", Limits(), draft.others)}
    assert chosen.rule in broken
    assert broken - {chosen.rule} <= COLLATERAL.get(chosen.rule, set())


def test_every_rule_has_a_mutation() -> None:
    rules = {rule.id for kind in KINDS for rule in load_rules()[kind].rules}
    assert rules == {mutation.rule for _, mutation in MUTATIONS}


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text() | st.text(alphabet="#-*`|~<>[]{}():,\"'\\ \n\t\r\0\u2028aA1.!&\ud800", max_size=80))
@QUICK
def test_any_text_is_parsed_and_judged(kind: str, text: str) -> None:
    rules = load_rules()[kind]
    assert isinstance(parse_artifact(rules, text), ParsedArtifact)
    findings = validate(rules, text, "where", Limits(), {"prd": text, "tasks": text})
    assert all("\n" not in finding.violation.path for finding in findings)
    title_and_body(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", ["[" * 100_000, "> " * 20_000, "`" * 50_000, "<!--" * 30_000, "| a " * 20_000, "1" * 9_000, "- " * 9_000]
)
def test_hostile_texts_end_soon(kind: str, text: str) -> None:
    rules = load_rules()[kind]
    assert validate(rules, text, "where", Limits(), {})
    assert parse_artifact(rules, text).units == ()
