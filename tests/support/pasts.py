"""Pure: a past run in a simulated world, and what replays it; edits of its streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.agents.contract import Capabilities
from mz_engine.pins import Pins
from mz_engine.ports import CallResult, Reading
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_events.names import feature_stream, run_stream
from mz_qa.simulation.world import SimulatedAgents, SimulatedPorts, World
from mz_recordings.history.answers import Means
from mz_recordings.history.changes import Change
from mz_recordings.history.divergence import Replayed
from mz_recordings.history.feature import replay_stream
from mz_recordings.history.run import replay_run_stream

from tests.support import trial

Stream = list[Recorded[Event]]


class Parser:
    """The simulated agent's adapter, as far as a replay asks it."""

    def __init__(self, world: World) -> None:
        self._agents = SimulatedAgents(world)

    def capabilities(self) -> Capabilities:
        return Capabilities(
            agent="simulated", sessions=False, streaming=False, token_counting="estimate", reports_money=False,
            tools=(), models=dict.fromkeys(("cheap", "mid", "premium"), "simulated"), auth=(),
        )  # fmt: skip

    def estimate_tokens(self, prompt: str) -> int:
        return self._agents.estimate_tokens("", prompt)

    def format_prompt(self, prompt: str) -> str:
        return self._agents.format_prompt("", prompt)

    def parse_output(self, result: CallResult) -> Reading:
        return self._agents.read("", result)


class Past(NamedTuple):
    """One run of the trial pipeline: units, a reviewer, files that two features want, reworks and a rollback."""

    world: World
    pins: Pins
    means: Means

    def stream(self, feature: str = "a") -> Stream:
        return list(self.world.store.read(feature_stream(trial.RUN, feature)))

    def run(self) -> Stream:
        return list(self.world.store.read(run_stream(trial.RUN)))

    def replay(self, events: Stream, answered: bool = False, changes: tuple[Change, ...] = ()) -> Replayed:
        return replay_stream(events, self.pins, answered, self.means, "main", changes)

    def replay_run(self, events: Stream) -> Replayed:
        return replay_run_stream(events, self.pins, {feature: self.stream(feature) for feature in "abc"})


def trial_past() -> Past:
    """Three features, delivered."""
    world, pins = trial.new_world(), trial.pins()
    trial.begin(world, pins, {"a": (), "b": ("a",), "c": ()})
    trial.deliver(world, pins, seed=3)
    ports = SimulatedPorts(world)
    readers = {"simulated": Parser(world)}
    return Past(world, pins, Means(blobs=world.blobs, trees=ports.workspace, adapters=readers, prices=ports))


def renumbered(events: Sequence[Recorded[Event]]) -> Stream:
    return [replace(one, version=at) for at, one in enumerate(events, start=1)]


def index_of(events: Stream, kind: type[Event], number: int = 0) -> int:
    return [at for at, one in enumerate(events) if isinstance(one.event, kind)][number]


def edited(events: Stream, at: int, **fields: object) -> Stream:
    event = replace(events[at].event, **fields)
    return [*events[:at], replace(events[at], event=event), *events[at + 1 :]]
