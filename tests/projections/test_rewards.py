"""Rewards: each measure, the composite, the health of phases, and what the last rollback is put down to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from mz_engine.pipelines.load import built_in_rewards
from mz_events.catalog.base import Event
from mz_events.catalog.call import ContextComposed, ContextPart, ForbiddenChange
from mz_events.catalog.feature import (
    Blocked,
    FeatureDelivered,
    HumanRequested,
    PhaseSkipped,
    PhaseStarted,
    QuestionKind,
    RolledBack,
)
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated, Change, ChangesChecked, Violation
from mz_events.names import FeatureId, Path, StreamId
from mz_projections.rewards.facts import FeatureFacts, fold_facts
from mz_projections.rewards.reward import (
    BlocksMeasure,
    Bounds,
    CommandsMeasure,
    Composite,
    CoverageMeasure,
    Dimension,
    DimensionScore,
    OffencesMeasure,
    OverrunsMeasure,
    RollbacksMeasure,
    ShareMeasure,
    composite,
    measure,
    reward_of,
)

from tests.support.steps import BASE, COMMAND, DIGEST, gate, recorded, ref, replied

ANY, ZERO = Bounds(), Bounds(max=0)
DELIVERED = FeatureDelivered(ending="delivered", head=BASE)
BLOCK = Blocked(phase="test", unit="", cause="design", check="raised.design")
BACK = RolledBack(source="test", to="build")


def started(phase: str) -> PhaseStarted:
    return PhaseStarted(phase=phase, iteration=1)


def parsed(artifact: str, phase: str = "test", **fields: object) -> ArtifactParsed:
    plain = ArtifactParsed(artifact=artifact, phase=phase, unit="", path=Path("x"), digest=DIGEST)
    return replace(plain, **fields)


def composed(over: int) -> ContextComposed:
    parts = (ContextPart(source="request", tokens=5), ContextPart(source="instructions", tokens=9))
    return ContextComposed(key="r1/a/build/-/1/1/agent.builder", parts=parts, tokens_max=3, over=over)


def changed(path: str, offences: int = 0) -> ChangesChecked:
    forbidden = (ForbiddenChange(kind="outside", path="x"),) * offences
    change = Change(path=Path(path), kind="modified")
    return ChangesChecked(ref=ref("build"), tree=BASE, changes=(change,), forbidden_changes=forbidden)


def facts_of(*events: Event) -> FeatureFacts:
    facts = fold_facts(recorded(*events, stream="run/r1/a"))
    assert facts is not None
    return facts


COMMANDS = CommandsMeasure(phases=("build",), plus=ANY, zero=ANY)
SHARE = ShareMeasure(of="fidelity.met", within="criteria.ids", plus=ANY, zero=ANY)
BLOCKS = BlocksMeasure(causes=("design",), plus=ANY, zero=ANY)
ROLLBACKS = RollbacksMeasure(sources=("test",), plus=ANY, zero=ANY)
OFFENCES, OVERRUNS = OffencesMeasure(plus=ANY, zero=ANY), OverrunsMeasure(plus=ANY, zero=ANY)
COVERAGE = CoverageMeasure(plus=ANY, zero=ANY)
COUNTED, FAILED = replace(COMMAND, passed=3, failed=0), replace(COMMAND, exit=1)
COVERED = replace(COMMAND, coverage=(8, 10))
CRITERIA, MET = parsed("criteria", ids=("a", "b", "c", "d", "e")), parsed("fidelity", counts={"met": 4})


@pytest.mark.parametrize(
    ("dimension", "events", "value"),
    [
        (COMMANDS, (DELIVERED,), None),
        (COMMANDS, (replace(COUNTED, phase="other"),), None),
        (COMMANDS, (COMMAND,), 0),
        (COMMANDS, (COUNTED, replace(COMMAND, name="lint")), 1),
        (COMMANDS, (COUNTED, replace(FAILED, name="lint")), -1),
        (COMMANDS, (FAILED, COUNTED), 1),
        (COMMANDS, (replace(COUNTED, exit=1, new_failures=0),), 1),
        (COMMANDS, (replace(COUNTED, stage="setup"), DELIVERED), None),
        (SHARE, (CRITERIA,), None),
        (SHARE, (MET,), None),
        (SHARE, (CRITERIA, MET), 0.8),
        (SHARE, (CRITERIA, MET, parsed("fidelity", counts={"met": 5})), 1),
        (BLOCKS, (started("test"),), None),
        (BLOCKS, (DELIVERED,), 0),
        (BLOCKS, (BLOCK, replace(BLOCK, cause="code")), 1),
        (ROLLBACKS, (BLOCK, BACK, replace(BACK, source="other")), 1),
        (ROLLBACKS, (DELIVERED,), 0),
        (OFFENCES, (changed("a", 2), gate("denied_commands", False)), 3),
        (OFFENCES, (DELIVERED,), 0),
        (OVERRUNS, (composed(0), composed(2)), 1),
        (OVERRUNS, (replace(replied(ref("build"))[0], escalated_to="premium", escalated_by="rolled_back"),), 1),
        (OVERRUNS, (replace(replied(ref("build", 2))[0], escalated_to="premium", escalated_by="rolled_back"),), None),
        (COVERAGE, (COVERED, DELIVERED), None),
        (COVERAGE, (COVERED, replace(COVERED, coverage=(5, 10)), replace(COVERED, coverage=(17, 20))), 5),
        (COVERAGE, (COVERED, replace(COVERED, coverage=(0, 0))), None),
    ],
)
def test_measures(dimension: Dimension, events: tuple[Event, ...], value: float | None) -> None:
    assert measure(dimension, facts_of(*events))[0] == value


@pytest.mark.parametrize(
    ("scores", "result"),
    [
        ("+++++", 1), ("+++--", 1), ("++0--", 0), ("--+-+", -1), ("+++-0", 1), ("++", None), ("??+++", 1), ("00000", 0),
        ("-++++", -1), ("0++++", 1),
    ],
)  # fmt: skip
def test_the_composite(scores: str, result: int | None) -> None:
    """The first dimension is decisive."""
    values = {"+": 1, "0": 0, "-": -1, "?": None}
    listed = tuple(
        DimensionScore(name=str(number), score=values[mark], value=None, reason="")
        for number, mark in enumerate(scores)
    )
    assert composite(listed, Composite(known_min=3, decisive=("0",))) == result


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ((), "clean 1"),
        ((ArtifactValidated(ref=ref("build"), violations=(Violation(rule="code.x"),)),), "reworked 1 code.x"),
        ((replace(gate("test", False), phase="build"),), "reworked 1 test"),
        ((BLOCK, BACK, started("build")), "rolled back 2 design"),
        ((HumanRequested(phase="build", unit="", question_kind=QuestionKind.APPROVAL, code="size"),), "asked 1 size"),
        ((PhaseSkipped(phase="build", unit="", code="given-up"),), "skipped 1 given-up"),
    ],
)
def test_the_health_of_a_phase(events: tuple[Event, ...], outcome: str) -> None:
    (health,) = reward_of(facts_of(started("build"), *events), None).phases
    assert f"{health.outcome} {health.iterations} {health.cause}".rstrip() == outcome


def test_the_last_rollback_is_put_down_to_what_made_it_and_what_fixed_it() -> None:
    again = (started("build"), *replied(ref("build")), changed("a.py"), changed("b.py"))
    reward = reward_of(facts_of(started("build"), started("test"), BLOCK, BACK, *again, DELIVERED), None)
    assert reward.attribution is not None
    assert (reward.attribution.phase, reward.attribution.agent, reward.attribution.cause, reward.attribution.check) == (
        ("build", "simulated", "design", "raised.design")
    )
    assert reward.attribution.fix == ("a.py", "b.py")
    assert (reward.composite, reward.tool_verified) == (None, False)


def test_only_raised_blocks_are_findings_with_their_severity() -> None:
    severe = parsed("block", fields={"severity": "MAJOR"})
    facts = facts_of(started("test"), severe, BLOCK, BLOCK, replace(BLOCK, check="test"))
    assert facts.findings == {"MAJOR": 1, "unknown": 1}


def test_the_reward_of_a_feature_is_that_of_its_own_stream() -> None:
    facts = fold_facts(recorded(DELIVERED, stream=StreamId("run/r1/b")))
    assert facts is not None
    assert (facts.feature, facts.outcome) == (FeatureId("b"), "delivered")
    rewards = built_in_rewards()["agentswe"]
    scores = {score.name: score.score for score in reward_of(facts, rewards).dimensions}
    assert scores == {
        "correctness": None, "spec_fidelity": None, "architectural_compliance": 1, "verification_cleanliness": 1,
        "phase_discipline": 1, "context_efficiency": 1, "rollback_stability": 1, "maintainability": None,
    }  # fmt: skip
