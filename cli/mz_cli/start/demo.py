"""Command `mz demo`: a complete run of the real engine in a scratch repository, with recorded agents."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from shlex import quote
from threading import Thread
from time import sleep
from typing import Any

import click
import msgspec
from mz_engine.agents.catalog import AGENTS as CATALOG
from mz_engine.agents.process import load_spool, spool_directory
from mz_engine.agents.registry import built_in_adapters
from mz_engine.decoding.quantity import encode_quantity
from mz_engine.decoding.yaml import format_yaml
from mz_engine.effects.steps import ReserveCall, Step
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import FILE_NAME, Limits
from mz_engine.paths import MZ_FOLDER, SPOOL_FOLDER
from mz_engine.pipelines.load import built_in_pipelines
from mz_engine.processes.environment import INHERITED_VARIABLES
from mz_engine.run.process import RunProcess
from mz_engine.run.settings import MEMORY_FILE
from mz_events.catalog.inbox import AnswerPosted
from mz_events.names import FeatureId, inbox_stream
from mz_events.store import Append
from mz_projections.views.model import RunView
from mz_recordings.cassette.files import load
from mz_recordings.cassette.model import VERDICTS, Cassette, RecordedDecision, identity_of
from mz_recordings.cassette.repository import create_sample
from mz_recordings.replay.driver import ANONYMOUS, ReplayFeature
from mz_recordings.replay.ports import recorded_programs
from mz_recordings.replay.stand_in import install

from mz_cli.app.context import open_log
from mz_cli.app.help import command, format_options, view_options
from mz_cli.common.advice import run_context
from mz_cli.common.run_text import FeatureSummary, feature_summary, print_run, run_exit
from mz_cli.live.driver import execute
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import Shape, print_document

BUNDLED = files("mz_recordings") / "bundled"
AGENTS = tuple(name for name in CATALOG if (BUNDLED / f"monozukuri-{name}").is_dir())
"""Agents with bundled cassettes `monozukuri-<agent>`."""
PIPELINES = tuple(name for name in built_in_pipelines()[::-1] if (BUNDLED / f"{name}-{AGENTS[0]}").is_dir())
"""Pipelines with bundled cassettes of the first agent at least."""
POLL_SECONDS, POLLS_MAX = 0.02, 500
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


class DemoResult(Shape, frozen=True, kw_only=True):
    """`mz demo --json`."""

    repository: str
    run: str
    features: tuple[FeatureSummary, ...]


@command(
    "demo",
    examples=(
        ("mz demo", "three features, from backlog to branches, in less than a minute"),
        ("mz demo --agent codex", "the same work by another agent"),
        ("mz demo --pipeline agentswe", "one feature in eight phases, with a finding that a person looks at"),
        ("mz demo --pipeline generation", "tasks that an agent proposes, with a conflict, a failure and a lost call"),
        ("mz demo --keep ./tally", "the same, in a folder of your choice"),
        ("mz demo --json | jq '.features[].attempts'", "for programs"),
    ),
    next_command="run `mz init` in your own repository.",
)
@click.option("--agent", type=click.Choice(AGENTS), default=AGENTS[0], help="Agent whose recorded replies are played.")
@click.option("--pipeline", type=click.Choice(PIPELINES), default=PIPELINES[0], help="Pipeline of the recorded run.")
@click.option("--keep", metavar="DIR", type=click.Path(path_type=Path), help="Folder of the demo repository.")
@view_options
@format_options("Print one object with the schema mz.demo/1.", default="table")
def demo(agent: str, pipeline: str, keep: Path | None, as_json: bool) -> int:
    """Watch a complete run with recorded agents, offline and free.

    Creates a small repository with a backlog and delivers it: the engine, its gates, git and the tests are real; the
    agents' replies are recordings. Uses no network and costs nothing. The repository is kept for you to explore.
    """
    if not (BUNDLED / f"{pipeline}-{agent}").is_dir():
        raise click.UsageError(f"there is no recording of {agent} with the pipeline {pipeline}")
    root = (keep or Path(tempfile.mkdtemp(prefix="mz-demo-")) / "tally").absolute()
    make_repository(root)
    with as_file(BUNDLED / f"{pipeline}-{agent}") as folder:
        cassette = load(folder)
        config = cassette.manifest.fixture.config
        recorded, usual = config["limits"], msgspec.to_builtins(Limits(), enc_hook=encode_quantity)
        assert isinstance(recorded, dict)
        limits = {key: value for key, value in recorded.items() if value != usual[key]}
        settings = {"pipeline": pipeline, "request": config.get("request", ""), "limits": limits}
        with (root / FILE_NAME).open("a") as file:
            file.write(format_yaml({name: value for name, value in settings.items() if value}))
        rules = msgspec.to_builtins(cassette.manifest.fixture.memory)
        if rules:
            (root / MEMORY_FILE).write_text(format_yaml(rules))
        environment = recorded_agent_environment(root, agent, cassette, folder, os.environ)
        print_note(f"a scratch repository: {root}")
        provenance, fixture = cassette.manifest.provenance, cassette.manifest.fixture
        course = RecordedCourse(cassette)

        def play(act: Callable[[RunProcess], object]) -> RunView:
            def start(process: RunProcess, _: object) -> None:
                process.provenance, process.loop_type = provenance, partial(RecordedLoop, process, course)
                act(process)

            return execute(root, environment, start)

        items = tuple(item.feature for item in fixture.items if item.feature in cassette.traces and not item.is_own)
        view = play(lambda process: process.start({"agent": agent, "integration": fixture.integration or None}, items))
        run, how = view.run, fixture.closing
        while course.was_interrupted:
            course.was_interrupted = False
            print_note(f"mz was killed in this call, and the run resumed: mz resume {run}")
            view = play(lambda process: process.resume(run))
        for decision in fixture.decisions:
            if view.status != "idle":
                break
            print_note(f"{decision.feature}: the recorded answer of a person: {decision.action}; {decision.note or ''}")
            view = play(partial(answer, run, decision))
        if how and view.status == "idle":
            print_note(f"{len(view.features)} items are done, and a person ends the run: mz {how}")
            view = play(lambda process: process.close(run, how, ANONYMOUS.decode()))
    if as_json:
        features = tuple(feature_summary(feature) for feature in view.features)
        print_document("demo", DemoResult(repository=str(root), run=view.run, features=features))
    else:
        with open_log(root) as log:
            print_run(view, run_context(log, view.run))
        print_next_steps(view, root, provenance)
    return int(run_exit(view))


class RecordedCourse:
    """What the course of a recorded run depends on besides its replies."""

    def __init__(self, cassette: Cassette) -> None:
        self.pipeline, self.order = cassette.manifest.pipeline, list(cassette.manifest.fixture.order)
        lost = (call for call in cassette.calls if call.recording.outcome == "lost")
        self.lost_lines = {call.identity: len(call.content("stdout").splitlines()) for call in lost}
        """How many lines each lost call printed."""
        self.was_interrupted = False


class RecordedLoop(ReplayFeature):
    """Lets features go on in the order in which they merged, and stops the run in a call that was lost."""

    def __init__(self, process: RunProcess, course: RecordedCourse, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._process, self._course, self.order = process, course, course.order

    def step(self) -> bool:
        if self._course.was_interrupted:
            return False
        if self.feature in self.order and self.order[0] != self.feature and not self.run_side.is_stopping():
            sleep(POLL_SECONDS)
            return True
        return super().step()

    def _execute(self, step: Step) -> None:
        super()._execute(step)
        if isinstance(step, ReserveCall):
            ref = step.request.ref
            lines = self._course.lost_lines.get(identity_of(self._course.pipeline, self.feature, ref))
            if lines is not None:
                Thread(target=self._interrupt, args=(ref.key, lines), daemon=True).start()

    def _interrupt(self, key: str, lines: int) -> None:
        """Stop the run at once when the call has printed all that was recorded of it."""
        wait_for_lines(spool_directory(self._process.root / MZ_FOLDER / SPOOL_FOLDER, key), lines)
        self._course.was_interrupted = True
        self._process.scheduler.stop()
        self._process.kill()


def wait_for_lines(spool: Path, lines: int) -> None:
    """Wait for the output of a call, but not forever."""
    for _ in range(POLLS_MAX):
        result = load_spool(spool)
        if result is not None and len(result.stdout.splitlines()) >= lines:
            break
        sleep(POLL_SECONDS)


def answer(run: str, decision: RecordedDecision, process: RunProcess) -> None:
    """Answer the question of a feature as in the recorded run, and continue."""
    note = process.blobs.put(decision.note.encode()) if decision.note else None
    event = AnswerPosted(
        feature=FeatureId(decision.feature),
        verdict=VERDICTS[decision.action],  # type: ignore[index]  # A demo has answers only.
        note=note,
        actor=process.blobs.put(ANONYMOUS),
    )
    process.store.append([Append(inbox_stream(run), None, (event,))], process.clock.now_us())
    process.resume(run)


def make_repository(root: Path) -> None:
    """Create the sample repository. Raises MzError (MZ1003) if the folder exists or is unusable, and
    RepositoryUnusable."""
    if root.exists():
        raise MzError("MZ1003", f"{root} already exists", hint="name a directory that does not exist yet")
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        create_sample(root, os.environ)
    except OSError as error:
        message = f"{root} cannot be created: {error.strerror or error}"
        raise MzError("MZ1003", message, hint="choose another folder with --keep") from error


def recorded_agent_environment(
    root: Path, agent: str, cassette: Cassette, folder: Path, outside: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the recorded agent: a separate home, a stand-in first on PATH, and a value for each of
    its login variables."""
    scratch = root / MZ_FOLDER / "demo"
    install(scratch / "bin", folder, recorded_programs(cassette, built_in_adapters()), INHERITED_VARIABLES.pattern)
    (scratch / "home").mkdir()
    inherited = {name: value for name, value in outside.items() if INHERITED_VARIABLES.fullmatch(name)}
    path = os.pathsep.join([str(scratch / "bin"), outside.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    keys = {
        name: "a-recording-needs-no-key"
        for name in built_in_adapters()[agent].capabilities().auth
        if VARIABLE.fullmatch(name)
    }
    return {**inherited, **keys, "PATH": path, "HOME": str(scratch / "home")}


def mz_command() -> str:
    """Return the command for `mz`: its name if it is on PATH, otherwise its path."""
    running = Path(sys.argv[0]).absolute()
    installed = shutil.which("mz")
    return "mz" if installed and Path(installed).resolve() == running.resolve() else str(running)


def print_next_steps(view: RunView, root: Path, provenance: str) -> None:
    print_note(
        f"\nThe agents' replies are recordings ({provenance}): the cost shown is the recorded one; nothing was spent."
    )
    if view.status != "finished":
        print_note("\nThe demo did not finish; start another with `mz demo`. `mz resume` would call your own agent.")
    mz, first = mz_command(), view.features[0].feature if view.features else ""
    branch = next((feature.branch for feature in view.features if feature.branch and not view.closing), view.base)
    commands = (
        f"cd {quote(str(root))}", f"{mz} show {first}", f"{mz} log", f"{mz} memory list", f"git log --stat {branch}"
    )  # fmt: skip
    print_note("\nTry next:\n  " + "\n  ".join(commands))
