"""Makes the project's recordings again from nothing: `python -m tests.support.rerecord [NAME...]`.

The real CLI is driven by a run against a scripted model endpoint, in a fresh HOME and a fresh repository, with people
who answer as the scene says; the run is then recorded. A scene fails, and changes nothing, when its script was
surprised or a feature did not end as it was meant to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Event as Signal
from typing import NamedTuple

import mz_recordings
from mz_engine.run.process import RunProcess
from mz_engine.run.settings import MEMORY_FILE
from mz_events.catalog.base import Event
from mz_events.catalog.feature import PhaseCompleted
from mz_events.catalog.inbox import AnswerPosted, CancelPosted
from mz_events.catalog.run import FeatureOutcome, Verdict
from mz_events.names import Digest, FeatureId, inbox_stream
from mz_events.store import Append, Recorded
from mz_projections.run.fold import DELIVERED_OUTCOMES, RunState
from mz_recordings.cassette.files import save
from mz_recordings.cassette.model import Cassette
from mz_recordings.cassette.repository import SAMPLE, create_sample
from mz_recordings.record.recorder import RecordSources, record_run

from tests.support import aider_cli, anthropic_cli, claude_cli, codex_cli, gemini_cli
from tests.support.bench import MZ
from tests.support.claude_cli import SETTLE_SECONDS
from tests.support.endpoint import Endpoint, Script
from tests.support.record_trial import make_project
from tests.support.script_agentswe import Generation, eight_phases
from tests.support.script_demo import demo
from tests.support.script_people import FEATURE_NAME, Troubles, questions
from tests.support.script_trial import trial
from tests.support.tree import ROOT

NAME = "monozukuri-claude-code"
BUNDLED = Path(str(mz_recordings.__path__[0])) / "bundled" / NAME
LIBRARY = ROOT / "recordings" / "library"


class Player(NamedTuple):
    """A real agent, as recordings are made of it."""

    installed: Callable[[], bool]
    environment: Callable[[Path, str], dict[str, str]]
    """What it finds around it, given its HOME and the endpoint's address."""
    optional: bool = False
    """Its scenes are left out where it is missing, unless they are named."""


PLAYERS = {
    "aider": Player(aider_cli.installed, aider_cli.environment, optional=True),
    "anthropic": Player(anthropic_cli.installed, anthropic_cli.environment),
    "claude-code": Player(claude_cli.installed, claude_cli.environment),
    "codex": Player(codex_cli.installed, codex_cli.environment),
    "gemini": Player(gemini_cli.installed, gemini_cli.environment),
}


class NotRecorded(Exception):
    """The run did not go as the script wants it; says how."""


class Reply(NamedTuple):
    """What a person says when a feature waits; no verdict: give it up."""

    verdict: Verdict | None
    note: str = ""


class Scene(NamedTuple):
    """One cassette, and how it comes about."""

    path: Path
    script: Callable[[], Script]
    make: Callable[[Path], None]
    ends: Mapping[str, FeatureOutcome]
    """By feature of the backlog."""
    agent: str = "claude-code"
    template: str = ""
    flags: Mapping[str, object] = {}
    output: Mapping[str, tuple[Reply, ...]] = {}
    """By feature, in order; the run is resumed after each."""
    is_finished: bool = False
    """A person finishes the run at its end."""
    is_killed: bool = False
    """`mz run` is killed while its agent waits for an answer that never comes; then the run is resumed."""


def _sample(path: Path) -> None:
    create_sample(path, os.environ)


def _promoting(path: Path) -> None:
    """The sample project, with a memory that lifts a learning to all features after one."""
    _sample(path)
    (path / MEMORY_FILE).write_text("project_features: 1\n", "utf-8")


def _demo(agent: str, folder: Path = BUNDLED.parent) -> Scene:
    """The whole backlog of the sample project, delivered."""
    delivered = dict.fromkeys(("month-filter", "month-compare", "group-thousands"), FeatureOutcome.DELIVERED)
    return Scene(folder / f"monozukuri-{agent}", lambda: demo, _sample, delivered, agent, SAMPLE)


def _generation(path: Path) -> Scene:
    """A generation of two cycles, with a conflict of two tasks and one that fails in the first, and is lost in the
    second, as mz is killed."""
    flags = {
        "pipeline": "generation",
        "integration": "generation-a",
        "limits.item_parallel_max": 2,
        "request": "Totals as CSV, also by an option of the command; the share of each category.",
    }
    ends = {"group-thousands": FeatureOutcome.MERGED}
    return Scene(path, Generation, _sample, ends, template=SAMPLE, flags=flags, is_finished=True, is_killed=True)


SCENES = {
    scene.path.name: scene
    for scene in (
        _demo("claude-code"),
        _demo("codex"),
        _demo("anthropic", LIBRARY),
        _demo("gemini", LIBRARY),
        Scene(
            BUNDLED.parent / "agentswe-claude-code",
            lambda: eight_phases,
            _promoting,
            {"group-thousands": FeatureOutcome.DELIVERED},
            template=SAMPLE,
            flags={"pipeline": "agentswe"},
            output={"group-thousands": (Reply(Verdict.APPROVE, "Yes: limit it."),)},
        ),
        _generation(BUNDLED.parent / "generation-claude-code"),
        Scene(
            LIBRARY / "monozukuri-aider",
            lambda: aider_cli.AtOnce(demo),
            _sample,
            {"group-thousands": FeatureOutcome.DELIVERED},
            "aider",
            SAMPLE,
        ),
        Scene(
            LIBRARY / f"{NAME}-sessions",
            lambda: demo,
            _sample,
            {"group-thousands": FeatureOutcome.DELIVERED},
            template=SAMPLE,
            flags={"sessions": "continue"},
        ),
        Scene(
            LIBRARY / "trial-claude-code",
            lambda: trial,
            make_project,
            dict.fromkeys(("bread", "soup", "menu"), FeatureOutcome.DELIVERED),
            output={"bread": (Reply(Verdict.REJECT, "Say how hot the oven is."), Reply(Verdict.APPROVE))},
        ),
        Scene(
            LIBRARY / f"{NAME}-questions",
            lambda: questions,
            _sample,
            {FEATURE_NAME: FeatureOutcome.FAILED},
            template=SAMPLE,
            flags={"autonomy": "supervised"},
            output={
                FEATURE_NAME: (
                    Reply(Verdict.APPROVE, "It shows a total of 0.00, and no category."),
                    Reply(Verdict.REJECT, "Say what an empty month shows."),
                    Reply(Verdict.APPROVE),
                    Reply(Verdict.APPROVE),
                    Reply(Verdict.REJECT, "We do this by hand."),
                )
            },
        ),
        Scene(
            LIBRARY / f"{NAME}-troubles",
            Troubles,
            _sample,
            {FEATURE_NAME: FeatureOutcome.CANCELLED},
            template=SAMPLE,
            output={FEATURE_NAME: (Reply(None),)},
        ),
    )
}


def record_scene(scene: Scene, directory: Path) -> Cassette:
    """Plays the scene in `directory`, which is empty, and records it. Raises NotRecorded."""
    home, root = directory / "home", directory / "project"
    home.mkdir()
    scene.make(root)
    with ExitStack() as stack:
        script = scene.script()
        endpoint = stack.enter_context(Endpoint(script, apart=True))
        outside, flags = PLAYERS[scene.agent].environment(home, endpoint.url), {**scene.flags, "agent": scene.agent}
        if scene.is_killed:
            assert isinstance(script, Generation)
            _run_and_kill(root, outside, flags, tuple(scene.ends), script.hangs)
        session = stack.enter_context(RunProcess(root, outside, _tell))
        if scene.is_killed:
            session.resume(None)
        else:
            session.start(flags, tuple(scene.ends))
        state = _drive(session, scene)
        _check(state, scene, endpoint)
        sources = RecordSources(root, outside, session.store, session.blobs)
        assert state.started is not None
        run, name = state.started.run, scene.path.name
        return record_run(sources, run, name=name, provenance="scripted-model", template=scene.template).cassette


def _run_and_kill(
    root: Path, outside: Mapping[str, str], flags: Mapping[str, object], features: tuple[str, ...], hangs: Signal
) -> None:
    """Run the program until the agent waits, and kill its process group, as a crash of the machine would."""
    settings = {f"MZ_{name.replace('.', '_').upper()}": str(value) for name, value in flags.items()}
    only = [f"--feature={feature}" for feature in features]
    run = subprocess.Popen([MZ, "run", *only], cwd=root, env={**outside, **settings}, start_new_session=True)
    while not hangs.wait(0.5):
        if run.poll() is not None:
            raise NotRecorded(f"mz ended before it was to be killed, with exit code {run.returncode}")
    time.sleep(SETTLE_SECONDS)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()


def _drive(session: RunProcess, scene: Scene) -> RunState:
    """To the end, with people who say what they are to say, and come back after the run was halted."""
    left = {feature: list(saids) for feature, saids in scene.output.items()}
    while True:
        state = session.drive()
        waiting = [feature for feature in left if _waits(state, feature) and left[feature]]
        assert state.started is not None
        if not waiting and not state.halt and scene.is_finished and not state.finished:
            session.close(state.started.run, "finish", "Ada")
            continue
        if not waiting and not state.halt:
            return state
        for feature in waiting:
            message = _message(session, feature, left[feature].pop(0))
            session.store.append([Append(inbox_stream(state.started.run), None, (message,))], session.clock.now_us())
        session.resume(state.started.run)


def _waits(state: RunState, feature: str) -> bool:
    track = state.tracks[FeatureId(feature)]
    return not track.active and track.last_stop is not None and track.last_stop.status is FeatureOutcome.WAITING


def _message(session: RunProcess, feature: str, output: Reply) -> Event:
    def put(text: str) -> Digest:
        return session.blobs.put(text.encode())

    name, who, note = FeatureId(feature), put("Ada"), put(output.note) if output.note else None
    if output.verdict is None:
        return CancelPosted(feature=name, note=note, actor=who)
    return AnswerPosted(feature=name, verdict=output.verdict, note=note, actor=who)


def _check(state: RunState, scene: Scene, endpoint: Endpoint) -> None:
    if endpoint.complaints:
        raise NotRecorded("\n".join(endpoint.complaints))
    for feature, track in state.tracks.items():
        is_own = track.item.source.startswith(f"{state.started.run}#") if state.started else False
        ends = DELIVERED_OUTCOMES if is_own else {scene.ends[feature]}
        if track.last_stop is None or track.last_stop.status not in ends:
            raise NotRecorded(f"{feature} did not end as it was to: {track.last_stop}")


def _tell(recorded: Recorded[Event]) -> None:
    if isinstance(recorded.event, PhaseCompleted):
        sys.stderr.write(f"{recorded.stream.rpartition('/')[2]}: {recorded.event.phase}\n")


def main(names: list[str]) -> None:
    if unknown := set(names) - set(SCENES):
        sys.exit(f"there is no recording {', '.join(sorted(unknown))}; there are {', '.join(SCENES)}")
    players = {name: PLAYERS[scene.agent] for name, scene in SCENES.items()}
    usual = [name for name, player in players.items() if not player.optional or player.installed()]
    scenes = [SCENES[name] for name in names or usual]
    if missing := {scene.agent for scene in scenes if not PLAYERS[scene.agent].installed()}:
        sys.exit(f"not installed: {', '.join(sorted(missing))}; `make clis` does that")
    for scene in scenes:
        with tempfile.TemporaryDirectory(prefix="mz-") as directory:
            made = record_scene(scene, Path(directory))
        save(made, scene.path, replace=True)
        sys.stderr.write(f"{len(made.calls)} calls recorded in {scene.path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
