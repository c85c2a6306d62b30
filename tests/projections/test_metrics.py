"""The eleven metrics, each by a table of features, and what `mz health` calls a problem."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from mz_events.catalog.base import Event
from mz_events.names import StreamId
from mz_events.store import Recorded
from mz_projections.read_models.model import Key
from mz_projections.rewards.facts import FACTS, FeatureFacts, PhaseFacts, Rollback, fold_facts
from mz_projections.rewards.metrics import FEATURES_MAX, MeasuredFeature, PhasePlan, latest, metrics_of, problems
from mz_projections.rewards.reward import reward_of

from tests.projections.logs import logs

PLAN = {
    "spec": PhasePlan(tier="cheap", has_inputs=False),
    "build": PhasePlan(tier="mid"),
    "test": PhasePlan(tier="mid"),
}
PHASE = PhaseFacts(iterations=1)


def feature(composite: int | None = None, **fields: Any) -> MeasuredFeature:
    phases = {"spec": PHASE, "build": PHASE, "test": PHASE}
    facts = FeatureFacts("r1", "a", **{"phases": phases, **fields})
    return MeasuredFeature(facts=facts, composite=composite, plan=PLAN)


BUILD_TWICE = {"build": PhaseFacts(iterations=2, rollbacks=1)}
ROUTES = (("test", "build"), ("build", "spec"), ("test", "build"))
CASCADE = tuple(Rollback(source=source, to=to) for source, to in ROUTES)
PROMPTS = {"build": PhaseFacts(iterations=1, prompts=tuple(range(1, 21)), tokens_max=30)}
TIERS = {"build": PhaseFacts(iterations=1, tiers={"": 3, "premium": 1})}


@pytest.mark.parametrize(
    ("number", "features", "expected"),
    [
        (1, [], ["all rate None 0"]),
        (1, [feature(phases=BUILD_TWICE), feature(phases={"build": PHASE})], ["build rate 0.3333 3"]),
        (2, [feature(phases=BUILD_TWICE), feature(phases={"build": PHASE})], ["build median 1.5 2", "build worst 2 2"]),
        (3, [feature()], ["all rate None 0"]),
        (3, [feature(rollbacks=CASCADE)], ["all rate 0.3333 3"]),
        (4, [feature(questions=2), feature()], ["all rate 0.5 2"]),
        (5, [feature(blocks=(("spec", "a", "x"),)), feature(blocks=(("build", "a", "x"),))], ["all rate 0.5 2"]),
        (6, [feature(blocks=(("test", "design", "x"), ("test", "design", "y")))], ["design rate 2 1"]),
        (6, [feature()], ["all rate None 0"]),
        (7, [feature(findings={"MAJOR": 1}), feature()], ["MAJOR rate 0.5 2"]),
        (8, [feature()], ["all rate 0.25 4"]),
        (9, [feature(phases=PROMPTS)], ["build median 10.5 20", "build p95 19 20", "build ceiling 30 20"]),
        (10, [feature(phases=TIERS)], ["build mid share 0.75 4", "build premium share 0.25 4"]),
        (11, [feature()], ["1 to 1 back mean None 0"]),
        (11, [feature(-1), *[feature(1)] * 9, feature(0)], ["11 to 11 back mean -1 1", "1 to 10 back mean 0.9 10"]),
    ],
)  # fmt: skip
def test_metrics(number: int, features: list[MeasuredFeature], expected: list[str]) -> None:
    metric = metrics_of(features, candidates=4, verified=1)[number - 1]
    assert metric.number == number
    assert [
        f"{v.subject} {v.statistic} {v.value if v.value is None else f'{v.value:g}'} {v.n}" for v in metric.values
    ] == expected


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ([], []),
        ([feature()] * 4, []),
        ([feature(phases=BUILD_TWICE)], []),
        ([feature(phases={"build": PhaseFacts(iterations=2, rollbacks=1, cause="code")})] * 2,
         ["phase build: 2 rollbacks in 4 iterations, reworked in 0% of features; most often: code"]),
        ([feature(phases={"build": PhaseFacts(iterations=1, rejections=1)})] * 4,
         ["phase build: 0 rollbacks in 4 iterations, reworked in 100% of features"]),
        ([feature(waiting="size")], ["question r1/a: waits for a person: size"]),
        ([feature(outcome="failed", failure="rejected")], ["failed r1/a: failed: rejected"]),
        ([feature(1)] * 10 + [feature(0)] * 10, ["trend all: the mean composite fell from 1 to 0"]),
        ([feature(0)] * 10 + [feature(1)] * 10, []),
        ([feature(1)] * 10 + [feature(None)] * 10, []),
    ],
)  # fmt: skip
def test_problems(features: list[MeasuredFeature], expected: list[str]) -> None:
    assert [f"{problem.kind} {problem.subject}: {problem.text}" for problem in problems(features)] == expected


def test_the_last_features_count_without_forks_and_those_that_started_nothing() -> None:
    others = [feature(is_fork=True, position=99), MeasuredFeature(facts=FeatureFacts("r1", "b", position=98))]
    many = [feature(position=position) for position in range(FEATURES_MAX + 5, 0, -1)]
    assert [entry.facts.position for entry in latest([*others, *many])] == list(range(6, FEATURES_MAX + 6))


@given(logs)
def test_what_grew_event_by_event_equals_what_each_stream_gives_anew(entries: list[tuple[StreamId, Event]]) -> None:
    events = [Recorded(stream, n, n, n, n, event, "") for n, (stream, event) in enumerate(entries, 1)]
    rows: dict[Key, FeatureFacts] = {}
    for recorded in events:
        for row in FACTS.evolve(rows.get, recorded) if isinstance(recorded.event, FACTS.types) else ():
            rows[row.run, row.feature] = row
    streams = {recorded.stream for recorded in events}
    rebuilt = [fold_facts(recorded for recorded in events if recorded.stream == stream) for stream in sorted(streams)]
    anew = {(facts.run, facts.feature): facts for facts in rebuilt if facts is not None}
    assert rows == anew
    assert [reward_of(rows[key], None) for key in sorted(rows)] == [reward_of(anew[key], None) for key in sorted(anew)]
    measured = [latest(MeasuredFeature(facts=facts) for facts in source.values()) for source in (rows, anew)]
    assert metrics_of(measured[0], 0, 0) == metrics_of(measured[1], 0, 0)
