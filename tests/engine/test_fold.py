"""What the fold of a feature leaves out because it cannot change anything."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace
from mz_events.catalog.call import CallPriced, CallSettled, ReplyParsed
from mz_events.catalog.feature import PhaseStarted, UnitStarted
from mz_events.names import FeatureId, feature_stream
from mz_projections.feature import fold
from mz_projections.feature.state import Ended, NotStarted, State, progress_of
from mz_projections.feature.unit import UNIT_RUN_HANDLERS
from mz_qa.simulation import trial

from tests.support import driving, steps


@pytest.mark.parametrize("sessions", ["fresh", "continue"])
def test_events_that_are_not_applied_to_the_progress_do_not_change_it(
    sessions: Literal["fresh", "continue"], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, pins = driving.new_world(), trial.pins(trial.trial_config(sessions, failover=("two",)))
    trial.begin(world, pins, {"a": ()})
    driving.deliver(world, pins, 1)

    def states() -> list[State]:
        passed: list[State] = [NotStarted()]
        for recorded in world.store.read(feature_stream(trial.RUN, FeatureId("a"))):
            passed.append(fold.evolve(passed[-1], recorded))
        return passed

    usual = states()
    assert isinstance(usual[-1], Ended)
    monkeypatch.setattr(fold, "PROGRESS_EVENTS", frozenset(UNIT_RUN_HANDLERS))
    assert states() == usual


@pytest.mark.parametrize(
    ("reported", "computed", "cost"), [(5, 7, 7), (5, None, 5), (None, 7, 7), (None, None, 0), (7, 5, 5), (7, 0, 0)]
)
def test_the_cost_of_a_feature_is_computed_else_reported(reported: int | None, computed: int | None, cost: int) -> None:
    call = steps.ref("plan")
    *begun, parsed = steps.replied(call)
    assert isinstance(parsed, ReplyParsed)
    events = (
        *steps.OPENED,
        PhaseStarted(phase="plan", iteration=1),
        UnitStarted(phase="plan", unit="", iteration=1),
        *begun,
        replace(parsed, reported_nanousd=reported),
        CallPriced(key=call.key, computed_nanousd=computed),
        CallSettled(feature=steps.A, key=call.key, nanousd=9),
    )
    progress = progress_of(steps.state_after(*events))
    assert progress is not None
    assert progress.usage.nanousd == cost
