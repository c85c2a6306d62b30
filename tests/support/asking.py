"""The trial pipeline in a simulated world, up to a question of each kind; and such a run in the log of a directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_engine.model.pins import Pins
from mz_engine.ports import CallSpec, CiCheck
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import Problem, ProblemClass
from mz_events.names import inbox_stream
from mz_events.store import Append
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, Tree, World

DATABASE = Path(".mz/mz.db")
"""Of the present directory."""

Script = Callable[[World, CallSpec, Files], ScriptedReply | None]
"""None: as the trial's own script says."""


class Clock:
    """Always says the same."""

    def now_us(self) -> int:
        return 2_000_000


def inbox() -> list[Event]:
    """What people left for the run in the log of the present directory."""
    with SqliteStore(DATABASE, read_only=True) as store:
        return [recorded.event for recorded in store.read(inbox_stream(trial.RUN))]


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """A world in which a feature asks, once it was driven."""

    feature: str = "b"
    script: Script = lambda world, spec, files: None
    pins: Pins
    checks: tuple[CiCheck, ...] = (CiCheck(name="ci", state="green", run="1"),)
    commands: Callable[[str, Files], tuple[int, str]] = trial.commands
    base: dict[str, str] = {}
    """What somebody else commits to the base branch after the run began."""

    def world(self) -> World:
        """Driven until the feature asks."""

        def script(spec: CallSpec, files: Files) -> ScriptedReply:
            return self.script(world, spec, files) or trial.script(spec, files)

        world = World({"README.md": "a project"}, script, self.commands)
        world.checks = lambda head, looks: self.checks
        trial.begin(world, self.pins, {self.feature: ()})
        content = {"README.md": b"a project", **{name: text.encode() for name, text in self.base.items()}}
        if self.base:
            moved = world.write(Tree(content, world.base, b"by somebody else"))
            world.refs["refs/heads/main"] = world.remote["main"] = moved
        drive_run(world, trial.RUN, self.pins, seed=1)
        return world


def at(phase: str, role: str, answer: Callable[[World, CallSpec], ScriptedReply]) -> Script:
    """Something else in the calls of one role in one phase, as long as no person has said anything."""

    def script(world: World, spec: CallSpec, files: Files) -> ScriptedReply | None:
        meant = spec.key.split("/")[2] == phase and spec.key.endswith(f"agent.{role}")
        return answer(world, spec) if meant and "NOTE" not in spec.prompt else None

    return script


def fails(kind: ProblemClass, code: str, retry_after_seconds: int | None = None) -> Script:
    def answer(world: World, spec: CallSpec) -> ScriptedReply:
        detail = world.blobs.put(b"Which database shall I use?")
        return ScriptedReply(
            problem=Problem(kind=kind, code=code, detail=detail, retry_after_seconds=retry_after_seconds)
        )

    return at("plan", "builder", answer)


def pins_with(**changes: object) -> Pins:
    """The trial's pins with another build phase."""
    pins = trial.pins()
    phases = tuple(replace(phase, **changes) if phase.phase == "build" else phase for phase in pins.pipeline.phases)
    return replace(pins, pipeline=replace(pins.pipeline, phases=phases))


def must_pass() -> Pins:
    (preparation,) = trial.pins().pipeline.find_phase("build").prepare
    return pins_with(prepare=(replace(preparation, must_pass=True),))


def no_way_back() -> Pins:
    """Nobody says where the work goes that a person rejects."""
    routes = trial.pins().pipeline.find_phase("build").on_block
    return pins_with(on_block=tuple(route for route in routes if route.cause != "person"))


def refuses(command: str, files: Files) -> tuple[int, str]:
    return 1, "nothing works\n2 failed, 1 passed"


def weird(world: World, spec: CallSpec) -> ScriptedReply:
    finding = {"severity": "MAJOR", "path": "b1.txt", "message": "This is odd."}
    return ScriptedReply(
        text=msgspec.json.encode({"severity": "MAJOR", "cause": "weird", "findings": [finding]}).decode()
    )


def broken(world: World, spec: CallSpec) -> ScriptedReply:
    feature, unit = spec.worktree.feature, spec.key.split("/")[3]
    return ScriptedReply(files={f"{feature}{unit[1]}.txt": "broken", f"notes/{feature}.{unit}.md": "first version"})


def writes(text: str) -> Script:
    """The plan, and nothing else."""
    return at("plan", "builder", lambda world, spec: ScriptedReply(files={"plans/b.json": text}))


def always(phase: str, answer: Callable[[World, CallSpec], ScriptedReply]) -> Script:
    def script(world: World, spec: CallSpec, files: Files) -> ScriptedReply | None:
        return answer(world, spec) if spec.key.split("/")[2] == phase and spec.key.endswith("builder") else None

    return script


def leaves_it(world: World, spec: CallSpec, files: Files) -> ScriptedReply | None:
    """The agent does nothing about a conflict."""
    meant = spec.key.split("/")[2:4] == ["build", "u1"] and "conflict markers" in spec.prompt
    return ScriptedReply(files={"notes/b.u1.md": "Nothing to do here."}) if meant else None


ASKING: dict[str, Asking] = {
    "exhausted": Asking(pins=trial.pins(), script=writes("no plan")),
    "retries": Asking(pins=trial.pins(), script=fails(ProblemClass.PHASE, "timeout")),
    "blocker": Asking(pins=trial.pins(), script=fails(ProblemClass.NEEDS_PERSON, "agent-blocker")),
    "limit": Asking(pins=trial.pins(), script=fails(ProblemClass.TRANSIENT, "rate-limit", 1_000_000)),
    "approval": Asking(pins=no_way_back(), feature="a"),
    "unrouted": Asking(pins=trial.pins(), script=at("build", "reviewer", weird)),
    "baseline": Asking(pins=must_pass(), commands=refuses),
    "rollbacks": Asking(pins=trial.pins(), script=always("build", broken)),
    "secret": Asking(pins=trial.pins(), script=writes("a SECRET")),
    "conflict": Asking(pins=trial.pins(), base={"b1.txt": "theirs"}, script=leaves_it),
    "checks": Asking(pins=trial.pins(), checks=(CiCheck(name="ci", state="red", run="1"),)),
}  # fmt: skip
"""By the kind of question; `baseline` is an unrouted one before any agent was called."""


def keep(world: World, home: Path) -> None:
    """The world's log and blobs, where commands look for them."""
    (home / ".mz").mkdir(exist_ok=True)
    blobs = FileBlobs(home / ".mz" / "blobs")
    for data in world.blobs.data_by_digest.values():
        blobs.put(data)
    appends = [Append(recorded.stream, None, (recorded.event,)) for recorded in world.store.read_all()]
    with SqliteStore(home / ".mz" / "mz.db") as store:
        store.append(appends, world.now_us)


class Shelf:
    """Logs of runs with a question, each written once and copied from then on."""

    def __init__(self, folder: Path) -> None:
        self._place = folder

    def keep(self, name: str, home: Path) -> str:
        """The log of that run in `home`; returns the feature that asks."""
        written = self._place / name
        if not written.exists():
            written.mkdir()
            keep(ASKING[name].world(), written)
        shutil.copytree(written, home, dirs_exist_ok=True)
        return ASKING[name].feature
