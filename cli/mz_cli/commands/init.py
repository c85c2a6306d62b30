"""Adapter: `mz init`: the first files of a repository. What is there already is never changed, only completed."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import click
import msgspec
from mz_engine.agents.contract import AuthCheck
from mz_engine.ciworkflow import WORKFLOW, workflow
from mz_engine.configform import FILE_NAME, SCHEMA_PATH
from mz_engine.configure import schema_text
from mz_engine.detect import detect, installed_agents
from mz_engine.errors import MzError
from mz_engine.home import HOME
from mz_engine.starter import Choices, Detected, starter_backlog, starter_config
from mz_engine.version import VERSION
from mz_recordings.cassette import MANIFEST

from mz_cli.asking import ask_choices, may_ask
from mz_cli.context import find_home
from mz_cli.help import command
from mz_cli.recording import library_of
from mz_cli.render.console import answer, note
from mz_cli.render.document import show_document
from mz_cli.shapes.project import FirstFile, InitShape

BACKLOG = "features.md"
IGNORE = ".gitignore"
IGNORED = tuple(line.encode() for line in (HOME, f"{HOME}/", f"/{HOME}", f"/{HOME}/"))


class Step(msgspec.Struct, frozen=True):
    """One file, and what becomes of it."""

    does: Literal["keep", "make", "add to", "renew"]
    path: str
    about: str
    data: bytes = b""


DONE = {"keep": "kept", "make": "made", "add to": "added to", "renew": "renewed"}
MODES = {"make": "xb", "add to": "ab", "renew": "wb"}


@command(
    "init",
    examples=(
        ("mz init --dry-run", "what would be written, to the letter"),
        ("mz init", "answer a few questions, and write it"),
        ("mz init --yes", "write it as it was recognised, without a question"),
        ("mz init --ci --dry-run", "the workflow too, that replays recordings on every push"),
    ),
    following="`mz doctor` says what is missing; `mz run --dry-run` shows the plan.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be written, and write nothing.")
@click.option("--yes", "-y", "--no-input", "silent", is_flag=True, help="Ask nothing; take what was recognised.")
@click.option("--ci", is_flag=True, help="Write a workflow for GitHub Actions, too, that replays all recordings.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.init/1; asks nothing.")
def init(dry_run: bool, silent: bool, ci: bool, as_json: bool) -> None:
    """Write mz.yaml and a starter backlog.

    Looks how the repository is tested, linted, built and set up, which branch is its base and which agents are
    installed; on a terminal it asks whether that is right. Writes mz.yaml with it and a features.md with one example,
    and keeps .mz/ out of git; with --ci also .github/workflows/mz.yml. Files that are there stay as they are.
    """
    root = find_home(Path.cwd())
    detected, agents = detect(root), installed_agents(os.environ)
    choices = propose(detected, agents)
    if not (dry_run or silent or as_json or os.path.lexists(root / FILE_NAME)) and may_ask(os.environ):
        choices = ask_choices(choices, tuple(agents), forge=detected.remote is not None and bool(shutil.which("gh")))
    planned = (*steps(root, detected, choices), *([_workflow(root, detected)] if ci else []))
    for step in planned:
        if not dry_run and step.does != "keep":
            write(root, step)
    missing = hints(detected, choices if planned[0].does == "make" else None, agents)
    if ci and not any(library_of(root).glob(f"*/{MANIFEST}")):
        missing += ("nothing is recorded that CI could replay: `mz run --record` records a run; commit what it makes",)
    if as_json:
        show_document("init", init_shape(root, detected, choices, tuple(agents), planned, dry_run, missing))
        return
    for step in planned:
        tell(step, dry_run)
    for each in missing:
        note(f"hint: {each}")


def propose(detected: Detected, agents: Mapping[str, AuthCheck]) -> Choices:
    """What is taken where nobody says otherwise: of the agents with a login, or else of all that are installed, the
    usual one, else the first."""
    usual = Choices(test=detected.commands.get("test", ""))
    ready = [name for name, check in agents.items() if not check.code] or list(agents)
    return usual if usual.agent in ready or not ready else msgspec.structs.replace(usual, agent=ready[0])


def hints(detected: Detected, choices: Choices | None, agents: Mapping[str, AuthCheck]) -> tuple[str, ...]:
    """What is still to be done by hand; `choices` is None where the settings were there already."""
    found = []
    if choices and not choices.test:
        found.append(f"how this repository is tested is not known; say it under `commands:` in {FILE_NAME}")
    if choices and choices.agent not in agents:
        found.append(f"no agent is installed; `mz doctor` says how to get {choices.agent}")
    elif choices and agents[choices.agent].code:
        found.append(f"{agents[choices.agent].message}: {agents[choices.agent].fix}")
    if not detected.has_commit:
        found.append("commit once before `mz run`: worktrees start from a commit")
    return tuple(found)


def tell(step: Step, dry_run: bool) -> None:
    """One line; in a dry run the text below it too, but for the schema, which `mz schema config` prints."""
    if step.does == "keep" or not dry_run:
        answer(f"{DONE[step.does]} {step.path}: {step.about}")
        return
    answer(f"would {step.does} {step.path}: {step.about}")
    if step.path != SCHEMA_PATH:
        answer(textwrap.indent(step.data.decode().rstrip(), "    ", lambda line: True))


def init_shape(
    root: Path, detected: Detected, choices: Choices, agents: tuple[str, ...], planned: Sequence[Step], dry_run: bool,
    missing: tuple[str, ...],
) -> InitShape:  # fmt: skip
    return InitShape(
        repository=str(root),
        dry_run=dry_run,
        stacks=detected.stacks,
        base=detected.base,
        commands=detected.commands,
        setup=detected.setup,
        agent=choices.agent,
        agents=agents,
        files=tuple(
            FirstFile(path=each.path, does=each.does, about=each.about, content=each.data.decode() or None)
            for each in planned
        ),
        hints=missing,
    )


def steps(root: Path, detected: Detected, choices: Choices) -> Iterator[Step]:
    """What is missing, file by file. Raises MzError (MZ1003)."""
    yield _new(root, FILE_NAME, starter_config(detected, choices), _recognised(detected, choices))
    yield _new(root, BACKLOG, starter_backlog(), "one example feature")
    yield _ignore(root)
    yield _schema(root)


def _workflow(root: Path, detected: Detected) -> Step:
    return _new(root, WORKFLOW, workflow(detected, VERSION), "replays all recordings, on every push and pull request")


def _new(root: Path, name: str, text: str, about: str) -> Step:
    if os.path.lexists(root / name):
        return Step("keep", name, "it is there already")
    return Step("make", name, about, text.encode())


def _recognised(detected: Detected, choices: Choices) -> str:
    named = {**detected.commands, "test": choices.test} if choices.test else detected.commands
    found = [f"{name} is `{line}`" for name, line in named.items()]
    found += [f"set-up is `{line}`" for line in detected.setup]
    found += [f"base is {detected.base}"] if detected.base else []
    return ", ".join([*found, f"agent is {choices.agent}"])


def _ignore(root: Path) -> Step:
    """`.mz/` ignores itself for git; this line is for tools that read no other ignore file, and would take the
    worktrees in there for more of the project."""
    path = root / IGNORE
    try:
        before = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise refused(path, error) from error
    if any(line.strip() in IGNORED for line in before.splitlines()):
        return Step("keep", IGNORE, f"it has {HOME}/")
    end = b"\r\n" if b"\r\n" in before else b"\n"
    gap = end if before and not before.endswith(b"\n") else b""
    return Step("add to", IGNORE, f"{HOME}/, where runs are kept", gap + f"{HOME}/".encode() + end)


def _schema(root: Path) -> Step:
    """For editors. It is ours alone, so that it is renewed whenever it is old."""
    data = schema_text()
    path = root / SCHEMA_PATH
    if path.is_file() and path.read_bytes() == data:
        return Step("keep", SCHEMA_PATH, "it is up to date")
    return Step("renew" if path.exists() else "make", SCHEMA_PATH, f"editors check {FILE_NAME} with it", data)


def write(root: Path, step: Step) -> None:
    """Raises MzError (MZ1003); a file that is to be made and has appeared meanwhile is not touched."""
    path = root / step.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, MODES[step.does]) as file:
            file.write(step.data)
    except OSError as error:
        raise refused(path, error) from error


def refused(path: Path, error: OSError) -> MzError:
    message = f"{path} cannot be used: {error.strerror or error}"
    return MzError("MZ1003", message, hint="make it writable, then run `mz init` again")
