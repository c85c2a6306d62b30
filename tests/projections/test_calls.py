"""Outcomes of agent calls, their totals, and the wasted part."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import get_args

import pytest
from hypothesis import given as given_data
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentLost, Problem, ProblemClass
from mz_events.catalog.delivery import CommitRequested
from mz_events.catalog.feature import (
    FeatureCancelled,
    FeatureFailed,
    FeatureRetried,
    PhaseCompleted,
    PhaseStarted,
    RolledBack,
    UnitStarted,
)
from mz_projections.cost.totals import GroupBy, Totals, group_name, priced_calls, spending, utc_day
from mz_projections.feature.calls import WASTED, FeatureCalls, evolve, paid_calls
from mz_projections.feature.state import progress_of

from tests.projections.logs import feature_events
from tests.support import steps
from tests.support.examples import examples
from tests.support.steps import BASE, DIGEST

FIRST, SECOND = steps.ref("plan"), steps.ref("plan", attempt=2)
BUILD = PhaseStarted(phase="build", iteration=1, units=("u1", "u2", "u3"))
PLAN = PhaseStarted(phase="plan", iteration=1)
TEST_FAILED = steps.gate("test", passed=False)
UNIT = UnitStarted(phase="build", unit="u1", iteration=1)
COMMIT = CommitRequested(
    key="k", purpose="work", phase="build", unit="u1", tree=BASE, parent=BASE, message=DIGEST
)  # fmt: skip

CANCELLED = FeatureCancelled(run_version=1)


def outcomes(*events: Event) -> list[str]:
    log = steps.recorded(*events)
    return [call.outcome for call in paid_calls(log)]


def calls_of(*events: Event) -> FeatureCalls:
    row: FeatureCalls | None = None
    for recorded in steps.recorded(*events):
        (row,) = evolve(lambda _, latest=row: latest, recorded)  # type: ignore[misc]
    assert row is not None
    return row


def built(attempt: int = 1) -> tuple[Event, ...]:
    return steps.accepted(steps.ref("build", attempt, unit="u1"))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((steps.requested(FIRST),), ["open"]),
        (steps.accepted(FIRST), ["kept"]),
        (steps.refused_reply(FIRST), ["rejected"]),
        ((*steps.refused_reply(FIRST), *steps.accepted(SECOND)), ["rejected", "kept"]),
        ((steps.requested(FIRST), AgentLost(ref=FIRST, stdout=DIGEST)), ["lost"]),
        (steps.replied(FIRST, Problem(kind=ProblemClass.TRANSIENT, code="rate-limit")), ["failed"]),
        (steps.replied(FIRST, Problem(kind=ProblemClass.NEEDS_PERSON, code="agent-blocker")), ["kept"]),
        ((*built(), TEST_FAILED), ["rejected"]),
        ((*built(), TEST_FAILED, *built(2), steps.gate("test", passed=True)), ["rejected", "kept"]),
        ((*built(), steps.gate("size", passed=False, cause="person"), COMMIT), ["kept"]),
        ((*built(), CANCELLED), ["superseded"]),
        ((*built(), steps.gate("size", passed=False, cause="person"), FeatureFailed(code="rejected")), ["rejected"]),
        ((*built(), COMMIT, CANCELLED), ["kept"]),
        ((*steps.planned(), BUILD, UNIT, *built(), CANCELLED), ["kept", "superseded"]),
        ((PLAN, *steps.accepted(FIRST), RolledBack(source="plan", to="plan")), ["superseded"]),
        ((PLAN, *steps.accepted(FIRST), FeatureRetried(run_version=1, to="plan", actor=DIGEST)), ["superseded"]),
    ],
)  # fmt: skip
def test_outcomes(events: Sequence[Event], expected: list[str]) -> None:
    assert outcomes(*events) == expected


def test_a_rollback_supersedes_what_began_at_or_after_its_phase() -> None:
    events = (*steps.planned(), BUILD, UNIT, *built(), RolledBack(source="build", to="build", units=("u1",)))
    assert outcomes(*events) == ["kept", "superseded"]
    other = (*steps.planned(), BUILD, UNIT, *built(), RolledBack(source="build", to="build", units=("u2",)))
    assert outcomes(*other) == ["kept", "kept"]
    full = (*steps.planned(), BUILD, UNIT, *built(), RolledBack(source="build", to="plan"))
    assert outcomes(*full) == ["superseded", "superseded"]


def test_calls_of_the_next_iteration_stand() -> None:
    again = steps.ref("plan", iteration=2)
    events = (PLAN, *steps.accepted(FIRST), RolledBack(source="plan", to="plan"), PLAN, *steps.accepted(again))
    assert outcomes(*events) == ["superseded", "kept"]


@pytest.mark.parametrize(
    "back",
    [
        RolledBack(source="build", to="plan"),
        RolledBack(source="build", to="build"),
        RolledBack(source="build", to="build", units=("u1", "u3")),
        RolledBack(source="build", to="plan", keeps_tree=True),
    ],
)
def test_it_counts_as_the_state_does(back: RolledBack) -> None:
    """The engine numbers iterations by its own count; the fold of calls marks those that it supersedes."""
    events = (*steps.planned(), BUILD, UNIT, *built(), TEST_FAILED, back)
    progress = progress_of(steps.state_after(*events))
    assert progress is not None
    row = calls_of(*events)
    assert row.current_phases == tuple(progress.start_trees)
    superseded = {call.key for call in row.calls if call.is_superseded}
    counts = progress.superseded_counts
    assert superseded == {
        call.key for call in row.calls
        if call.iteration <= counts.get(call.phase, 0) + counts.get(f"{call.phase}/{call.unit}", 0)
    }  # fmt: skip


def test_completed_phases_change_nothing() -> None:
    assert calls_of(PhaseCompleted(phase="plan")) == FeatureCalls("r1", "a")


# sums -----------------------------------------------------------------------------------------------------------------
@examples(40)
@given_data(st.lists(feature_events("r1", "a"), max_size=30), st.sampled_from(get_args(GroupBy)))
@pytest.mark.slow
def test_groups_and_outcomes_add_up(events: list[Event], by: GroupBy) -> None:
    log = steps.recorded(*events)
    calls = priced_calls(paid_calls(log))
    result = spending(calls, by)
    assert add(result.groups) == add([result.total])
    assert add(group.wasted for group in result.groups) == add([result.wasted])
    assert add(result.wasted_by_outcome) == add([result.wasted])
    kept = [priced.call for priced in calls if priced.call.outcome not in WASTED]
    assert result.total.calls == result.wasted.calls + len(kept)


def add(all_totals: object) -> list[int]:
    """Field by field; what is unknown counts nothing here."""
    listed = [part for part in all_totals if isinstance(part, Totals)]  # type: ignore[attr-defined]
    return [sum(getattr(part, name) or 0 for part in listed) for name in Totals.__struct_fields__]


def test_an_attempt_is_a_group_of_its_own() -> None:
    log = steps.recorded(*steps.refused_reply(FIRST), *steps.accepted(SECOND))
    result = spending(priced_calls(paid_calls(log)), "attempt")
    assert [(group.name, group.call.outcome if group.call else None) for group in result.groups] == [
        (FIRST.key, "rejected"), (SECOND.key, "kept")]  # fmt: skip


def test_whatever_was_for_nothing_is_counted_as_such() -> None:
    lost, failed, last = (steps.ref("plan", attempt) for attempt in (2, 3, 4))
    log = steps.recorded(
        *steps.refused_reply(FIRST), steps.requested(lost), AgentLost(ref=lost, stdout=DIGEST),
        *steps.replied(failed, Problem(kind=ProblemClass.PHASE, code="no-terminal")), *steps.accepted(last),
    )  # fmt: skip
    result = spending(priced_calls(paid_calls(log)), "phase")
    actual = [(sums.outcome, sums.calls) for sums in result.wasted_by_outcome]
    assert actual == [("rejected", 1), ("failed", 1), ("lost", 1)]
    assert (result.wasted.calls, result.wasted.estimated_nanousd, result.total.calls) == (3, 3, 4)
    assert result.groups[0].wasted == result.wasted


# groups ---------------------------------------------------------------------------------------------------------------
def test_groups_of_time_are_those_of_the_reader() -> None:
    log = steps.recorded(*steps.accepted(FIRST))
    (call,) = priced_calls(paid_calls(log))
    late = replace(call, call=replace(call.call, requested_at_us=1_767_225_600_000_000 - 1))

    def tomorrow(at_us: int) -> date:
        return utc_day(at_us) + timedelta(days=1)

    assert [group_name(late, by) for by in ("day", "week", "month")] == ["2025-12-31", "2026-W01", "2025-12"]
    assert [group_name(late, by, tomorrow) for by in ("day", "week", "month")] == ["2026-01-01", "2026-W01", "2026-01"]


def test_reasons_are_counted_with_their_differences() -> None:
    log = steps.recorded(*steps.accepted(FIRST), *steps.accepted(SECOND))
    calls = priced_calls(paid_calls(log))
    first = replace(calls[0], cause="tier", call=replace(calls[0].call, reported_nanousd=30, computed_nanousd=20))
    result = spending((first, replace(calls[1], cause="match")), "cause")
    assert [group.name for group in result.groups] == ["tier", "match"]
    assert [(cause.cause, cause.calls) for cause in result.causes] == [("match", 1), ("tier", 1)]
    assert result.causes[1].difference_nanousd == 10


def test_estimates_are_judged_by_the_median_call() -> None:
    log = steps.recorded(*steps.accepted(FIRST), *steps.accepted(SECOND))
    calls = priced_calls(paid_calls(log))
    paid = [replace(priced, call=replace(priced.call, estimated_nanousd=100, computed_nanousd=amount))
            for priced, amount in zip(calls, (50, 200), strict=True)]  # fmt: skip
    assert spending(paid, "run").estimate_error == 0.75
    blind = replace(calls[0], call=replace(calls[0].call, estimated_nanousd=None))
    assert spending([blind], "run").estimate_error is None
