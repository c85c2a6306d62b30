"""Adapter: `mz demo`: a whole run of the real engine, in a scratch repository, with recorded agents."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from shlex import quote

import click
from mz_engine.adapters.environment import INHERITED
from mz_engine.agents.registry import built_in
from mz_engine.errors import MzError
from mz_engine.home import HOME
from mz_projections.views import RunView
from mz_recordings.cassette import Cassette
from mz_recordings.files.library import load
from mz_recordings.playing.sample import make_sample
from mz_recordings.playing.stage import programs_of
from mz_recordings.playing.standin import install

from mz_cli.driving import carry_out
from mz_cli.help import command
from mz_cli.render.console import answer, is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.shapes.run import DemoResult
from mz_cli.summary import closing_table, exit_of, feature_summary, heading
from mz_cli.viewing import view_options

AGENTS = ("claude-code", "codex")
"""Whose answers come with `mz`, as bundled cassettes `monozukuri-<agent>`."""
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


@command(
    "demo",
    examples=(
        ("mz demo", "three features, from backlog to branches, in less than a minute"),
        ("mz demo --agent codex", "the same work, as another agent did it"),
        ("mz demo --keep ./tally", "the same, in a repository of your choice"),
        ("mz demo --json | jq '.features[].attempts'", "for programs"),
    ),
    following="`mz init` in your own repository.",
)
@click.option("--agent", type=click.Choice(AGENTS), default=AGENTS[0], help="Whose recorded answers are played.")
@click.option("--keep", metavar="DIR", type=click.Path(path_type=Path), help="Where the repository is made.")
@view_options
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.demo/1.")
def demo(agent: str, keep: Path | None, as_json: bool) -> int:
    """Watch a whole run, with recorded agents, for nothing.

    Makes a small repository with a backlog and delivers it: the engine, its checks, git and the tests are real; what
    the agents answer was recorded. Nothing is sent anywhere, nothing is paid. The repository stays, to look around in.
    """
    home = (keep or Path(tempfile.mkdtemp(prefix="mz-demo-")) / "tally").absolute()
    make_repository(home)
    with as_file(files("mz_recordings") / "bundled" / f"monozukuri-{agent}") as folder:
        cassette = load(folder)
        environment = stand_in(home, agent, cassette, folder, os.environ)
        note(f"a scratch repository: {home}")
        view = carry_out(home, environment, lambda session, _: session.begin({"agent": agent}, ()))
        provenance = cassette.manifest.provenance
    if as_json:
        features = tuple(feature_summary(feature) for feature in view.features)
        show_document("demo", DemoResult(repository=str(home), run=view.run, features=features))
    else:
        show_ending(view, home, provenance)
    return int(exit_of(view))


def make_repository(home: Path) -> None:
    """Raises MzError: MZ1003 where the place is taken or cannot be used, MZ1004 without git."""
    if home.exists():
        raise MzError("MZ1003", f"{home} is there already", hint="name a directory that is not there yet")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        make_sample(home, os.environ)
    except FileNotFoundError as error:
        raise MzError("MZ1004", "`git` is not on PATH", hint="install git") from error
    except OSError as error:
        message = f"{home} cannot be made: {error.strerror or error}"
        raise MzError("MZ1003", message, hint="choose another place with --keep") from error
    except subprocess.SubprocessError as error:
        hint = "`git --version` should be 2.30 or newer"
        raise MzError("MZ1003", f"git could not make {home}: {error}", hint=hint) from error


def stand_in(home: Path, agent: str, cassette: Cassette, folder: Path, outside: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the recorded agent is called: a home of its own, a stand-in first on PATH, and a value
    in every variable that it may log in by."""
    own = home / HOME / "demo"
    install(own / "bin", folder, programs_of(cassette, {}), INHERITED.pattern)
    (own / "home").mkdir()
    kept = {name: value for name, value in outside.items() if INHERITED.fullmatch(name)}
    path = os.pathsep.join([str(own / "bin"), outside.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    keys = {
        name: "a-recording-needs-no-key" for name in built_in()[agent].capabilities().auth if VARIABLE.fullmatch(name)
    }
    return {**kept, **keys, "PATH": path, "HOME": str(own / "home")}


def program() -> str:
    """How this program is called: by name where it is on PATH, else by its place."""
    here = Path(sys.argv[0]).absolute()
    found = shutil.which("mz")
    return "mz" if found and Path(found).resolve() == here.resolve() else str(here)


def show_ending(view: RunView, home: Path, provenance: str) -> None:
    terminal = is_terminal(sys.stdout)
    if terminal:
        answer(heading(view, held=False) + "\n")
    show(closing_table(view.features, whole=not terminal))
    note(f"\nThe agents' answers are recordings ({provenance}): the money is what they say, and none was spent.")
    branch = next((feature.branch for feature in view.features if feature.branch), "main")
    if view.status != "finished":
        note("\nThe demo did not come to its end; `mz demo` begins another. `mz resume` would call your own agent.")
    mz = program()
    note(
        f"\nTry next:\n"
        f"  cd {quote(str(home))}\n"
        f"  {mz} show {view.features[0].feature if view.features else ''}\n"
        f"  {mz} log\n"
        f"  git log --stat {branch}"
    )
