"""Command `mz demo`: a complete run of the real engine in a scratch repository, with recorded agents."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from shlex import quote

import click
import msgspec
from mz_engine.agents.catalog import AGENTS as CATALOG
from mz_engine.agents.registry import built_in_adapters
from mz_engine.decoding.yaml import format_yaml
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import FILE_NAME
from mz_engine.paths import MZ_FOLDER
from mz_engine.pipelines.load import built_in_pipelines
from mz_engine.processes.environment import INHERITED_VARIABLES
from mz_engine.run.process import RunProcess
from mz_engine.run.settings import MEMORY_FILE
from mz_events.catalog.inbox import AnswerPosted
from mz_events.names import FeatureId, inbox_stream
from mz_events.store import Append
from mz_projections.views.model import RunView
from mz_recordings.cassette.files import load
from mz_recordings.cassette.model import VERDICTS, Cassette, RecordedDecision
from mz_recordings.cassette.repository import create_sample
from mz_recordings.replay.driver import ANONYMOUS
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
        ("mz demo --pipeline generation", "tasks that an agent proposes, merged one by one, in two cycles"),
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
        settings = {"pipeline": pipeline, "request": cassette.manifest.fixture.config.get("request", "")}
        with (root / FILE_NAME).open("a") as file:
            file.write(format_yaml({name: value for name, value in settings.items() if value}))
        rules = msgspec.to_builtins(cassette.manifest.fixture.memory)
        if rules:
            (root / MEMORY_FILE).write_text(format_yaml(rules))
        environment = recorded_agent_environment(root, agent, cassette, folder, os.environ)
        print_note(f"a scratch repository: {root}")
        provenance, fixture = cassette.manifest.provenance, cassette.manifest.fixture

        def begin(process: RunProcess, _: object) -> None:
            process.provenance = provenance
            items = tuple(item.feature for item in fixture.items if item.feature in cassette.traces and not item.is_own)
            process.start({"agent": agent, "integration": fixture.integration or None}, items)

        view = execute(root, environment, begin)
        for decision in fixture.decisions:
            print_note(f"{decision.feature}: the recorded answer of a person: {decision.action}; {decision.note or ''}")
            view = execute(root, environment, partial(answer, view.run, decision))
        if fixture.closing:
            print_note(f"{len(view.features)} items are done, and a person ends the run: mz {fixture.closing}")
            run, how = view.run, fixture.closing
            view = execute(root, environment, lambda process, _: process.close(run, how, ANONYMOUS.decode()))
    if as_json:
        features = tuple(feature_summary(feature) for feature in view.features)
        print_document("demo", DemoResult(repository=str(root), run=view.run, features=features))
    else:
        with open_log(root) as log:
            print_run(view, run_context(log, view.run))
        print_next_steps(view, root, provenance)
    return int(run_exit(view))


def answer(run: str, decision: RecordedDecision, process: RunProcess, _: object) -> None:
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
    branch = next((feature.branch for feature in view.features if feature.branch and not view.is_closed), view.base)
    commands = (
        f"cd {quote(str(root))}", f"{mz} show {first}", f"{mz} log", f"{mz} memory list", f"git log --stat {branch}"
    )  # fmt: skip
    print_note("\nTry next:\n  " + "\n  ".join(commands))
