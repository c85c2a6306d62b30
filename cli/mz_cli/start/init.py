"""Command `mz init`: create the first files of a repository. Existing files are completed, never replaced."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import click
import msgspec
from mz_engine.agents.contract import AuthCheck
from mz_engine.config.schema import schema_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import FILE_NAME, SCHEMA_PATH
from mz_engine.paths import MZ_FOLDER
from mz_engine.run.settings import load_config
from mz_engine.setup.detect import detect, installed_agents
from mz_engine.setup.templates import (
    WORKFLOW_PATH,
    DetectedProject,
    InitChoices,
    starter_backlog,
    starter_config,
    workflow_text,
)
from mz_engine.setup.workflow import checked_requirement, installed_requirement, program_installs, refusal
from mz_recordings.cassette.model import MANIFEST
from mz_recordings.replay.replay import ReplayJob, replay_all, without_git_variables

from mz_cli.app.context import find_root
from mz_cli.app.help import command
from mz_cli.app.input import ask_choices, may_ask
from mz_cli.common.recording import display_path, library_path
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import print_output

BACKLOG = "features.md"
IGNORE = ".gitignore"
IGNORED = tuple(line.encode() for line in (MZ_FOLDER, f"{MZ_FOLDER}/", f"/{MZ_FOLDER}", f"/{MZ_FOLDER}/"))


class InitFile(Shape, frozen=True, kw_only=True):
    path: str
    """Relative to the repository."""
    action: Literal["keep", "make", "add to", "renew"]
    """Action on the file; in a dry run, the planned one."""
    about: str
    content: str | None = None
    """Text written; with `add to`, the added text. Null: nothing is written."""


class InitShape(Shape, frozen=True, kw_only=True):
    """`mz init --json`."""

    repository: str
    dry_run: bool
    stacks: tuple[str, ...]
    base: str | None
    commands: dict[str, str]
    setup: tuple[str, ...]
    agent: str
    agents: tuple[str, ...]
    """Installed agents."""
    files: tuple[InitFile, ...]
    hints: tuple[str, ...]
    """Steps left to do by hand."""


ACTIONS_DONE = {"keep": "kept", "make": "created", "add to": "added to", "renew": "updated"}
ACTIONS_PLANNED = {"make": "create", "add to": "add to", "renew": "update"}
MODES = {"make": "xb", "add to": "ab", "renew": "wb"}


@command(
    "init",
    examples=(
        ("mz init --dry-run", "the exact text of the files, without writing"),
        ("mz init", "answer a few questions, then write the files"),
        ("mz init --yes", "write what was detected, without questions"),
        ("mz init --ci --dry-run", "also a CI workflow that replays recordings on every push"),
    ),
    next_command="`mz doctor` checks what is missing; `mz run --dry-run` shows the plan.",
)
@click.option("--dry-run", is_flag=True, help="Print the files; write nothing.")
@click.option("--yes", "-y", "--no-input", "silent", is_flag=True, help="Ask nothing; use what was detected.")
@click.option("--ci", is_flag=True, help="Also write a GitHub Actions workflow that replays all recordings.")
@click.option("--install", metavar="TEXT", help="With --ci: what pip installs as mz there; checked, and pinned.")
@click.option("--unchecked", is_flag=True, help="With --install: take it as it is, for example offline.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.init/1; asks nothing.")
def init(dry_run: bool, silent: bool, ci: bool, install: str | None, unchecked: bool, as_json: bool) -> None:
    """Write mz.yaml and a starter backlog.

    Detects the commands for test, lint, build and set-up, the base branch and the installed agents; on a terminal it
    asks for confirmation. Writes mz.yaml, a features.md with one example, and an entry for .mz/ in .gitignore; with
    --ci also .github/workflows/mz.yml, if it would be green on its first push. Existing files are not changed.
    """
    root = find_root(Path.cwd())
    detected, agents = detect(root), installed_agents(os.environ)
    choices = default_choices(detected, agents)
    if not (dry_run or silent or as_json or os.path.lexists(root / FILE_NAME)) and may_ask(os.environ):
        choices = ask_choices(choices, tuple(agents), forge=detected.remote is not None and bool(shutil.which("gh")))
    actions: tuple[InitFile, ...] = (
        _create_action(root, FILE_NAME, starter_config(detected, choices), _detected_text(detected, choices)),
        _create_action(root, BACKLOG, starter_backlog(), "one example feature"),
        _gitignore_action(root),
        _schema_action(root),
    )
    if ci:
        if install and not unchecked:
            install = checked_requirement(install, root, os.environ)
        actions += (workflow_action(root, detected, choices, install),)
    for file in actions:
        if not dry_run and file.action != "keep":
            write_file(root, file)
    remaining_steps = hints(detected, choices if actions[0].action == "make" else None, agents)
    if (folder := os.path.relpath(Path.cwd().resolve(), root.resolve())) != ".":
        remaining_steps += (
            f"the files belong to the whole repository, so they are in {root}; for features of {folder} alone, set "
            f"`scope: {folder}` and `backlog: {folder}/{BACKLOG}` in {FILE_NAME}",
        )
    if ci and not any(library_path(root).glob(f"*/{MANIFEST}")):
        remaining_steps += (
            "CI has no recording to replay yet: record a run with `mz run --record`, then commit the cassette",
        )
    values = {"repository": str(root), "dry_run": dry_run, "agents": tuple(agents)}
    shape = shape_of(InitShape, detected, choices, **values, files=actions, hints=remaining_steps)
    lines = [line for file in actions for line in action_lines(file, dry_run)]
    print_output(as_json, "init", shape, lines, (f"hint: {hint}" for hint in remaining_steps))


def default_choices(detected: DetectedProject, agents: Mapping[str, AuthCheck]) -> InitChoices:
    """Return the default choices. The agent is the standard one if it is usable, else the first usable one; usable
    agents are those with a login, or all installed ones if none has a login."""
    default = InitChoices(test=detected.commands.get("test", ""))
    ready = [name for name, check in agents.items() if not check.code] or list(agents)
    return default if default.agent in ready or not ready else msgspec.structs.replace(default, agent=ready[0])


def hints(detected: DetectedProject, choices: InitChoices | None, agents: Mapping[str, AuthCheck]) -> tuple[str, ...]:
    """Return the steps left to do by hand; `choices` is None if mz.yaml existed already."""
    steps = []
    if choices and not choices.test:
        steps.append(f"no test command was detected; set it under `commands:` in {FILE_NAME}")
    if choices and choices.agent not in agents:
        steps.append(f"no agent is installed; `mz doctor` shows how to install {choices.agent}")
    elif choices and agents[choices.agent].code:
        steps.append(f"{agents[choices.agent].message}: {agents[choices.agent].fix}")
    if not detected.has_commit:
        steps.append("commit once before `mz run`: worktrees start from a commit")
    return tuple(steps)


def action_lines(file: InitFile, dry_run: bool) -> Iterator[str]:
    """Yield the action; in a dry run also the text, except for the schema, which `mz schema config` prints."""
    if file.action == "keep" or not dry_run:
        yield f"{ACTIONS_DONE[file.action]} {file.path}: {file.about}"
        return
    yield f"would {ACTIONS_PLANNED[file.action]} {file.path}: {file.about}"
    if file.path != SCHEMA_PATH:
        yield textwrap.indent((file.content or "").rstrip(), "    ", lambda line: True)


def workflow_action(root: Path, detected: DetectedProject, choices: InitChoices, install: str | None) -> InitFile:
    """Return the action on the workflow. Raises MzError (MZ2021) if a new one would not be green."""
    if os.path.lexists(root / WORKFLOW_PATH):
        return _create_action(root, WORKFLOW_PATH, "", "")
    setup, commands = detected.setup, (*detected.commands.values(), choices.test)
    config = load_config(root, os.environ, {}).config
    if os.path.lexists(root / FILE_NAME):
        setup, commands = config.workspace.setup, tuple(command.run for command in config.commands.values())
    requirement, programs = install or installed_requirement(os.environ), program_installs(setup, commands)
    check_replays(root)
    about = f"replays all recordings, on every push and pull request, with {', '.join((requirement, *programs))}"
    text = workflow_text(requirement, programs, setup, config.base or detected.base, config.recordings)
    return InitFile(path=WORKFLOW_PATH, action="make", about=about, content=text)


def check_replays(root: Path) -> None:
    """Replay the library as the workflow will. Raises MzError (MZ2021) if a recording does not match."""
    cassettes = sorted(manifest.parent for manifest in library_path(root).glob(f"*/{MANIFEST}"))
    environment, today = without_git_variables(os.environ), datetime.now(UTC)
    jobs = tuple(
        ReplayJob(path=str(path), project=str(root), environment=environment, today=today, real=index == 0)
        for index, path in enumerate(cassettes)
    )
    for result in replay_all(jobs, 1, lambda result: None):
        if kinds := sorted({finding.kind for finding in result.findings if finding.fails}):
            path = display_path(Path(result.path))
            raise refusal(f"the replay of {path} differs ({', '.join(kinds)})", f"see `mz replay --real {path}`")


def _create_action(root: Path, name: str, text: str, description: str) -> InitFile:
    if os.path.lexists(root / name):
        return InitFile(path=name, action="keep", about="already exists")
    return InitFile(path=name, action="make", about=description, content=text)


def _detected_text(detected: DetectedProject, choices: InitChoices) -> str:
    commands = {**detected.commands, "test": choices.test} if choices.test else detected.commands
    parts = [f"{name} is `{line}`" for name, line in commands.items()]
    parts += [f"set-up is `{line}`" for line in detected.setup]
    parts += [f"base is {detected.base}"] if detected.base else []
    return ", ".join([*parts, f"agent is {choices.agent}"])


def _gitignore_action(root: Path) -> InitFile:
    """Return the action on .gitignore. Git ignores `.mz/` anyway; the entry is for tools that read only the root's
    .gitignore and would take the worktrees in `.mz/` for project files."""
    path = root / IGNORE
    try:
        before = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise unusable_file_error(path, error) from error
    if any(line.strip() in IGNORED for line in before.splitlines()):
        return InitFile(path=IGNORE, action="keep", about=f"contains {MZ_FOLDER}/")
    end = "\r\n" if b"\r\n" in before else "\n"
    gap = end if before and not before.endswith(b"\n") else ""
    about = f"{MZ_FOLDER}/, the folder of runs"
    return InitFile(path=IGNORE, action="add to", about=about, content=f"{gap}{MZ_FOLDER}/{end}")


def _schema_action(root: Path) -> InitFile:
    """Return the action on the schema for editors; mz owns the file and updates it."""
    data, path = schema_text(), root / SCHEMA_PATH
    if path.is_file() and path.read_bytes() == data:
        return InitFile(path=SCHEMA_PATH, action="keep", about="up to date")
    about = f"editors check {FILE_NAME} with it"
    return InitFile(path=SCHEMA_PATH, action="renew" if path.exists() else "make", about=about, content=data.decode())


def write_file(root: Path, action: InitFile) -> None:
    """Write the file. Raises MzError (MZ1003), also if a file to be created exists meanwhile."""
    path = root / action.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, MODES[action.action]) as file:
            file.write((action.content or "").encode())
    except OSError as error:
        raise unusable_file_error(path, error) from error


def unusable_file_error(path: Path, error: OSError) -> MzError:
    message = f"{path} cannot be used: {error.strerror or error}"
    return MzError("MZ1003", message, hint="make it writable, then run `mz init` again")
