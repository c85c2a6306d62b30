"""What the fold of a feature leaves out because it cannot change anything."""

from __future__ import annotations

from typing import Literal

import pytest
from mz_events.names import FeatureId, feature_stream
from mz_projections.feature import fold
from mz_projections.feature.state import Ended, NotStarted, State
from mz_projections.feature.unit import UNIT_RUN_HANDLERS
from mz_qa.simulation import trial

from tests.support import driving


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
