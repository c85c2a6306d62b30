"""The simulation finds what it is there to find: a world that cannot be asked makes crashes visible."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from mz_engine.model.pins import Pins
from mz_engine.ports import CallResult, PullRequest
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Crash, SimulatedAgents, SimulatedForge, World

from tests.engine.test_recovery import ITEMS, clean, nothing_twice, outcome
from tests.support import driving


def forgets_pull_requests(self: SimulatedForge, branch: str, key: str) -> PullRequest | None:
    return None


def forgets_calls(self: SimulatedAgents, key: str) -> CallResult | None:
    return None


def unharmed(world: World, pinned: Pins, expected: dict[str, object]) -> bool:
    try:
        driving.deliver(world, pinned, 5)
        nothing_twice(world)
    except AssertionError:
        return False
    return outcome(world) == expected


@pytest.mark.parametrize(
    ("port", "method", "stand_in", "after"),
    [
        (SimulatedForge, "find", forgets_pull_requests, "open_pr.after"),
        (SimulatedAgents, "salvage", forgets_calls, "call.after"),
    ],
)
@pytest.mark.slow
def test_an_effect_that_cannot_be_found_again_is_noticed(
    monkeypatch: pytest.MonkeyPatch, port: type, method: str, stand_in: Callable[..., object], after: str
) -> None:
    pinned = trial.pins()
    expected = outcome(clean(pinned, 5))
    monkeypatch.setattr(port, method, stand_in)
    world = driving.new_world()
    trial.begin(world, pinned, ITEMS)
    died = False

    def dies_once(name: str) -> None:
        nonlocal died
        world.steps += 1
        if name == after and not died:
            died = True
            raise Crash(name)

    world.tick = dies_once  # type: ignore[method-assign]
    with suppress(Crash):
        driving.deliver(world, pinned, 5)
    assert died
    assert not unharmed(world, pinned, expected)


def test_the_seed_decides_the_order_and_nothing_else_does() -> None:
    logs = []
    for _ in range(2):
        world = driving.new_world()
        trial.begin(world, trial.pins(), ITEMS)
        drive_run(world, trial.RUN, trial.pins(), 11)
        logs.append(list(world.store.log))
    assert logs[0] == logs[1]
