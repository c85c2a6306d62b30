"""Drives the trial pipeline in a simulated world, with a person who answers."""

from __future__ import annotations

from mz_engine.model.pins import Pins
from mz_engine.run.coordinator import Coordinator
from mz_events.catalog.inbox import AnswerPosted
from mz_events.catalog.run import FeatureOutcome, Verdict
from mz_events.names import FeatureId, inbox_stream
from mz_events.store import Append
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.trial import FILES, RUN, commands, script
from mz_qa.simulation.world import World


def new_world() -> World:
    return World(FILES, script, commands)


def answer(world: World, feature: str, verdict_: Verdict = Verdict.APPROVE, note: str | None = None) -> None:
    """What `mz resume -m` leaves in the inbox."""
    put = world.blobs.put
    left = AnswerPosted(
        feature=FeatureId(feature), verdict=verdict_, note=put(note.encode()) if note else None, actor=put(b"tester")
    )
    world.store.append([Append(inbox_stream(RUN), None, (left,))], world.now_us)


def deliver(world: World, pinned: Pins, seed: int) -> Coordinator:
    """Drive to the end, approving whatever a person is asked."""
    for _ in range(20):
        coordinator = drive_run(world, RUN, pinned, seed)
        stops = ((feature, track.last_stop) for feature, track in coordinator.state.tracks.items())
        waiting = [feature for feature, stop in stops if stop and stop.status is FeatureOutcome.WAITING]
        if not waiting:
            return coordinator
        for feature in waiting:
            answer(world, feature)
    raise AssertionError("a person is asked for ever")
