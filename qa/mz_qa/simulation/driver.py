"""Driver: one loop with a seed, instead of threads. The same core, coordinator and effects, in any interleaving."""

from __future__ import annotations

from random import Random

from mz_engine.coordinator import Coordinator
from mz_engine.decide.run import Await
from mz_engine.effects.steps import ClaimPaths, ReserveCall, SettleCall
from mz_engine.pins import Pins
from mz_engine.runner import Appended, FeatureRun
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.run import FeatureAdmitted
from mz_events.names import FeatureId
from mz_projections.run import Message

from mz_qa.simulation.world import SimulatedPorts, World


class Inline:
    """The coordinator, asked directly: there is one thread."""

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

    def stopping(self) -> bool:
        return self.coordinator.stopping()


def drive(world: World, run: str, pins: Pins, seed: int) -> Coordinator:
    """Carry the run on until it rests; the seed chooses which feature takes the next step. Raises Crash."""
    random, ports = Random(seed), SimulatedPorts(world)
    coordinator = Coordinator(run, pins, world.store, ports, lambda recorded: None)
    alive: dict[FeatureId, FeatureRun] = {}
    ended: dict[FeatureId, FeatureRun] = {}
    """Their threads are over, and the coordinator has not heard of it yet."""
    decided_at, action = -1, coordinator.decide()
    while True:
        if coordinator.state.version != decided_at:
            action, decided_at = coordinator.decide(), coordinator.state.version
        for feature in coordinator.runnable(frozenset((*alive, *ended))):
            alive[feature] = FeatureRun(
                run, feature, pins, world.store, ports, Inline(coordinator), lambda recorded: None
            )
        if alive or ended:
            feature = random.choice([*sorted(alive), *sorted(ended)])
            if feature in ended:
                coordinator.rested(ended.pop(feature))
            elif not alive[feature].step():
                ended[feature] = alive.pop(feature)
        elif isinstance(action, Await) and not coordinator.stopping():
            world.now_us, decided_at = max(world.now_us, action.until_us or 0), -1
        else:
            if not isinstance(action, Await):
                coordinator.close(action)
            return coordinator
