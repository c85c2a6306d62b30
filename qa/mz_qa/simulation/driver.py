"""Simulated run: the real coordinator and effects in one seeded loop instead of threads, in any interleaving."""

from __future__ import annotations

from random import Random

from mz_engine.decide.run import AwaitEvents
from mz_engine.model.pins import Pins
from mz_engine.run.coordinator import Coordinator, ForgeChange
from mz_engine.run.feature_loop import FeatureLoop
from mz_events.names import FeatureId

from mz_qa.simulation.world import SimulatedPorts, World


def _first_watch_result(coordinator: Coordinator, ports: SimulatedPorts) -> ForgeChange | None:
    """Return the first change outside that the run waits for; None if there is none."""
    for watch in coordinator.forge_polls():
        if result := coordinator.poll_forge(watch, ports):
            return result
    return None


def _next_wakeup_us(world: World, coordinator: Coordinator, action: AwaitEvents) -> int:
    """Return the time of the next poll or timer, whichever is first."""
    until_us = action.until_us or world.now_us
    if coordinator.forge_polls():
        poll_us = coordinator.pins.config.pull_requests.checks_poll * 1_000_000
        until_us = min(until_us, world.now_us + poll_us)
    return max(world.now_us, until_us)


def drive_run(world: World, run: str, pins: Pins, seed: int, *, resumes: bool = False) -> Coordinator:
    """Drive the run until it is idle, as a process that starts or `resumes` it. The seed chooses which feature takes
    the next step. Raises Crash."""
    rng, ports = Random(seed), SimulatedPorts(world)
    coordinator = Coordinator(run, pins, world.store, ports, lambda recorded: None)
    if resumes:
        coordinator.resume()
    active: dict[FeatureId, FeatureLoop] = {}
    finished: dict[FeatureId, FeatureLoop] = {}
    """Finished features that the coordinator does not know of yet."""
    decided_at, action = -1, coordinator.decide()
    started_at, driven = None, 0
    while True:
        if coordinator.state.version != decided_at:
            action, decided_at = coordinator.decide(), coordinator.state.version
        if started_at is not coordinator.state or driven != len(active) + len(finished):  # Else nothing can start.
            for feature in coordinator.runnable_features(frozenset((*active, *finished))):
                active[feature] = FeatureLoop(
                    run, feature, pins, world.store, ports, coordinator, lambda recorded: None
                )
            started_at, driven = coordinator.state, len(active) + len(finished)
        if active or finished:
            feature = rng.choice([*sorted(active), *sorted(finished)])
            if feature in finished:
                coordinator.worker_stopped(finished.pop(feature))
            elif not active[feature].step():
                finished[feature] = active.pop(feature)
        elif watch_result := _first_watch_result(coordinator, ports):
            coordinator.record_change(watch_result)
        elif world.on_wait is not None:
            callback, world.on_wait, decided_at = world.on_wait, None, -1
            callback()
        elif isinstance(action, AwaitEvents) and not coordinator.state.is_ending:
            world.look("wait")
            world.now_us, decided_at = _next_wakeup_us(world, coordinator, action), -1
        else:
            if not isinstance(action, AwaitEvents):
                coordinator.record_end(action)
            return coordinator
