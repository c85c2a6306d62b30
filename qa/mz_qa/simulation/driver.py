"""Simulated run: the real coordinator and effects in one seeded loop instead of threads, in any interleaving."""

from __future__ import annotations

from random import Random

from mz_engine.coordinator import Coordinator
from mz_engine.decide.run import Await
from mz_engine.effects.steps import ClaimPaths, ReserveCall, SettleCall
from mz_engine.pins import Pins
from mz_engine.runner import Appended, FeatureRun
from mz_engine.watch import Noticed, look
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.run import FeatureAdmitted
from mz_events.names import FeatureId
from mz_projections.run import Message

from mz_qa.simulation.world import SimulatedPorts, World


def _noticed(world: World, coordinator: Coordinator, ports: SimulatedPorts) -> Noticed | None:
    """Return the first change outside that the run waits for; None if there is none."""
    for watch in coordinator.watched():
        if result := look(watch, coordinator.state, coordinator.pins, world.store, ports):
            return result
    return None


def _later(world: World, coordinator: Coordinator, action: Await) -> int:
    """Return the time of the next poll or timer, whichever is first."""
    until_us = action.until_us or world.now_us
    if coordinator.watched():
        poll_us = coordinator.pins.config.pull_requests.checks_poll_seconds * 1_000_000
        until_us = min(until_us, world.now_us + poll_us)
    return max(world.now_us, until_us)


class Inline:
    """Direct access to the coordinator, since there is only one thread."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator

    def messages(self, feature: FeatureId, after: int) -> tuple[tuple[int, Message], ...]:
        return self.coordinator.messages(feature, after)

    def start_of(self, feature: FeatureId, version: int, message: FeatureAdmitted) -> FeatureStarted:
        return self.coordinator.start_of(feature, version, message)

    def ask(self, feature: FeatureId, version: int, step: ReserveCall | SettleCall | ClaimPaths) -> Appended:
        return self.coordinator.ask(feature, version, step)

    def features(self) -> tuple[FeatureId, ...]:
        return self.coordinator.features()

    def base(self) -> str:
        return self.coordinator.base()

    def stopping(self) -> bool:
        return self.coordinator.stopping()


def drive(world: World, run: str, pins: Pins, seed: int) -> Coordinator:
    """Drive the run until it is idle; the seed chooses which feature takes the next step. Raises Crash."""
    rng, ports = Random(seed), SimulatedPorts(world)
    coordinator = Coordinator(run, pins, world.store, ports, lambda recorded: None)
    active: dict[FeatureId, FeatureRun] = {}
    finished: dict[FeatureId, FeatureRun] = {}
    """Finished features that the coordinator does not know of yet."""
    decided_at, action = -1, coordinator.decide()
    while True:
        if coordinator.state.version != decided_at:
            action, decided_at = coordinator.decide(), coordinator.state.version
        for feature in coordinator.runnable(frozenset((*active, *finished))):
            active[feature] = FeatureRun(
                run, feature, pins, world.store, ports, Inline(coordinator), lambda recorded: None
            )
        if active or finished:
            feature = rng.choice([*sorted(active), *sorted(finished)])
            if feature in finished:
                coordinator.rested(finished.pop(feature))
            elif not active[feature].step():
                finished[feature] = active.pop(feature)
        elif watch_result := _noticed(world, coordinator, ports):
            coordinator.noticed(watch_result)
        elif world.on_wait is not None:
            callback, world.on_wait, decided_at = world.on_wait, None, -1
            callback()
        elif isinstance(action, Await) and not coordinator.over():
            world.now_us, decided_at = _later(world, coordinator, action), -1
        else:
            if not isinstance(action, Await):
                coordinator.close(action)
            return coordinator
