"""Suggestions of routing: the interval, the scores, and when something is proposed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from mz_events.catalog.call import CallSettled
from mz_events.catalog.feature import RolledBack, UnitCompleted
from mz_events.catalog.validation import Unit
from mz_events.names import FeatureId
from mz_projections.rewards.facts import CellFacts, FeatureFacts
from mz_projections.rewards.metrics import MeasuredFeature
from mz_projections.rewards.routing import scores, suggestions, wilson_lower

from tests.projections.test_rewards import facts_of, parsed
from tests.support.steps import ref, replied

GOOD, BAD = (
    CellFacts(agent="", accepted=True, nanousd=10),
    CellFacts(agent="", accepted=True, sent_back=True, nanousd=4),
)


@pytest.mark.parametrize(
    ("successes", "n", "expected"), [(0, 4, 0.0), (4, 4, 0.709), (8, 10, 0.6), (1, 1, 0.378), (50, 100, 0.437)]
)
def test_the_lower_end_of_the_interval(successes: int, n: int, expected: float) -> None:
    assert wilson_lower(successes, n) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({("a", "mid"): [GOOD] * 3}, ["a mid 3 of 3 None"]),
        ({("a", "mid"): [GOOD] * 4}, ["a mid 4 of 4 0.8254"]),
        ({("a", "mid"): [GOOD] * 4, ("b", "mid"): [BAD] * 4}, ["a mid 4 of 4 0.4254", "b mid 0 of 4 0.4"]),
        ({("a", "mid"): [GOOD] * 4, ("b", "mid"): [BAD] * 3}, ["a mid 4 of 4 0.8254", "b mid 0 of 3 None"]),
    ],
)
def test_scores(choices: dict[tuple[str, str], list[CellFacts]], expected: list[str]) -> None:
    texts = [f"{c.agent} {c.tier} {c.accepted} of {c.cells} {c.score}" for c in scores(choices)]
    assert texts == expected


def features(agent: str, cell: CellFacts, count: int) -> list[MeasuredFeature]:
    cells = {"code/u1": CellFacts(agent=agent, tier="mid", fields={"type": "auth"}, accepted=cell.accepted,
                                  sent_back=cell.sent_back, nanousd=5)}  # fmt: skip
    return [MeasuredFeature(facts=FeatureFacts("r", str(n), "delivered", cells=cells)) for n in range(count)]


@pytest.mark.parametrize(
    ("good", "bad", "now", "expected"),
    [
        (30, 20, "bad", "good"), (30, 20, "good", None), (30, 19, "bad", None), (47, 3, "bad", None),
        (30, 20, "other", None),
    ],
)  # fmt: skip
def test_a_proposal_needs_fifty_features_and_a_better_score(
    good: int, bad: int, now: str, expected: str | None
) -> None:
    tried = [*features("good", GOOD, good), *features("bad", BAD, bad)]
    result = suggestions(tried, {("code", ""): (now, "mid")}, ("good", "bad"))
    assert [(suggestion.phase, suggestion.unit) for suggestion in result] == [("code", ""), ("code", "type=auth")]
    assert {suggestion.propose and suggestion.propose.agent for suggestion in result} == {expected}
    without_good = suggestions(tried, {("code", ""): (now, "mid")}, ("bad",))
    assert {suggestion.propose for suggestion in without_good} == {None}, "an agent that is gone is never proposed"


def test_an_unknown_tier_is_never_proposed() -> None:
    good = [
        replace(item, facts=replace(item.facts, cells={"code/u1": replace(GOOD, agent="good", tier="")}))
        for item in features("good", GOOD, 30)
    ]
    (suggestion,) = suggestions([*good, *features("bad", BAD, 20)], {("code", ""): ("bad", "mid")}, ("good", "bad"))[:1]
    assert suggestion.candidates[0].agent == "good"
    assert suggestion.propose is None


def test_a_cell_is_what_happened_to_a_unit() -> None:
    call = ref("code", unit="u1")
    listed = parsed("work", units=(Unit(id="u1", fields={"type": "auth"}),))
    settled = CallSettled(feature=FeatureId("a"), key=call.key, nanousd=7)
    done = UnitCompleted(phase="code", unit="u1")
    cell = CellFacts(agent="simulated", fields={"type": "auth"}, nanousd=7, accepted=True)
    assert facts_of(listed, *replied(call), settled, done).cells == {"code/u1": cell}
    back = RolledBack(source="test", to="code", units=("u2",))
    assert not facts_of(listed, *replied(call), settled, done, back).cells["code/u1"].sent_back
    assert facts_of(*replied(call), RolledBack(source="test", to="code")).cells["code/u1"].sent_back
