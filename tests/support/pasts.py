"""A past run in a simulated world, and what replays it; edits of its streams."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.model.pins import Pins
from mz_engine.ports import CallSpec
from mz_events.catalog.base import Event
from mz_events.catalog.call import Problem, ProblemClass
from mz_events.names import feature_stream, run_stream
from mz_events.store import Recorded
from mz_qa.simulation import trial
from mz_qa.simulation.world import Crash, Files, ScriptedReply, SimulatedAdapter, SimulatedPorts, World
from mz_recordings.past_runs.model import IntendedChange, StreamReplay
from mz_recordings.past_runs.ports import ReplayInputs
from mz_recordings.past_runs.replay import FeatureReplay, RunStreamReplay

from tests.support import driving

Stream = list[Recorded[Event]]


class Past(NamedTuple):
    """One run of the trial pipeline: units, a reviewer, files that two features want, reworks and a rollback."""

    world: World
    pins: Pins
    means: ReplayInputs

    def stream(self, feature: str = "a") -> Stream:
        return list(self.world.store.read(feature_stream(trial.RUN, feature)))

    def run(self) -> Stream:
        return list(self.world.store.read(run_stream(trial.RUN)))

    def replay(self, events: Stream, changes: tuple[IntendedChange, ...] = ()) -> StreamReplay:
        return FeatureReplay(events, self.pins, self.means, "main", changes).run()

    def replay_run(self, events: Stream) -> StreamReplay:
        return RunStreamReplay(events, self.pins, {feature: self.stream(feature) for feature in "abc"}).run()


def trial_past() -> Past:
    """Three features, delivered."""
    world, pins = driving.new_world(), trial.pins()
    trial.begin(world, pins, {"a": (), "b": ("a",), "c": ()})
    driving.deliver(world, pins, seed=3)
    ports = SimulatedPorts(world)
    readers = {"simulated": SimulatedAdapter()}
    return Past(world, pins, ReplayInputs(blobs=world.blobs, trees=ports.workspace, adapters=readers, prices=ports))


def talking_past() -> Past:
    """Three features, delivered in sessions: one that the agent forgot, one that a crash ended, one that another agent
    took over. Some calls are counted beforehand."""
    config = trial.trial_config("continue", failover=("other",))
    pins = replace(trial.pins(config), templates=trial.pipeline_and_files()[1].templates)
    world = Forgets({"README.md": "a project"}, _without_login, trial.commands)
    world.count_tokens = _counted
    trial.begin(world, pins, {"a": (), "b": ("a",), "c": ()})
    with suppress(Crash):
        driving.deliver(world, pins, seed=3)
    driving.deliver(world, pins, seed=3)
    ports = SimulatedPorts(world)
    readers = {"simulated": SimulatedAdapter(), "other": SimulatedAdapter()}
    return Past(world, pins, ReplayInputs(blobs=world.blobs, trees=ports.workspace, adapters=readers, prices=ports))


class Forgets(World):
    """The agent's sessions are gone before its sixth call; the machine dies before the fourth."""

    died = False

    def tick(self, name: str) -> None:
        if name == "call.before" and len(self.call_keys) == 3 and not self.died:
            self.died = True
            raise Crash(name)
        if name == "call.before" and len(self.call_keys) == 5:
            self.session_prompts.clear()
        super().tick(name)


def _without_login(spec: CallSpec, files: Files) -> ScriptedReply:
    """The first agent loses its login while it works on `c`; a rework may be a continuation."""
    if spec.agent == "simulated" and spec.key.split("/")[1:3] == ["c", "build"]:
        return ScriptedReply(problem=Problem(kind=ProblemClass.FATAL, code="auth-failure"))
    return trial.script(replace(spec, prompt=spec.prompt.replace("## Rework", "MEND")), files)


def _counted(spec: CallSpec) -> int | None:
    """Only what a first attempt is asked."""
    return 900 + len(spec.prompt) if spec.key.split("/")[5] == "1" else None


def renumbered(events: Sequence[Recorded[Event]]) -> Stream:
    return [replace(recorded, version=at) for at, recorded in enumerate(events, start=1)]


def index_of(events: Stream, kind: type[Event], number: int = 0) -> int:
    return [at for at, recorded in enumerate(events) if isinstance(recorded.event, kind)][number]


def edited(events: Stream, at: int, **fields: object) -> Stream:
    event = replace(events[at].event, **fields)
    return [*events[:at], replace(events[at], event=event), *events[at + 1 :]]
