"""Results of the user's commands: kept from a replay with processes, and used as answers while their inputs are equal.

A result depends on the content of the worktree, the command, its time limit and the environment: set-up commands, files
kept or copied into a worktree, and passed variables. Only what ended by itself, offline, is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from mz_engine.decoding.quantity import encode_quantity
from mz_engine.git.repository import run_git_as_user
from mz_engine.model.config import Config
from mz_engine.paths import MZ_FOLDER
from mz_engine.ports import CommandResult, FeatureWorktree
from mz_events.names import Commit

from mz_recordings.cassette.model import Cassette, RecordedCommand
from mz_recordings.cassette.placeholders import MachineValues, scrub

SETUP_KEY = "setup"


class CommandKey(NamedTuple):
    """The inputs of a command."""

    tree: str
    """git's tree id."""
    command: str
    timeout_seconds: int
    is_setup: bool
    environment: str


class CommandRun(msgspec.Struct):
    """A command that a replay executed."""

    worktree: FeatureWorktree
    key: str
    command: str
    timeout_seconds: int
    before: Commit
    """A commit with the content of the worktree."""
    result: CommandResult
    after: Commit | None = None
    """Of a set-up command: a commit with the content that it left."""


def environment_digest(config: Config) -> str:
    """Return a digest of the settings that influence commands besides their own."""
    values = config.workspace, config.pass_environment
    return sha256(msgspec.json.encode(values, enc_hook=encode_quantity, order="sorted")).hexdigest()


def is_setup(key: str) -> bool:
    """Return True if the call key is that of a set-up command."""
    return key.split("/")[2] == SETUP_KEY


def machine_values(worktree: str) -> MachineValues:
    """Return the paths that an output may name, from that of the worktree."""
    return MachineValues(worktree=worktree, repository=worktree.partition(f"/{MZ_FOLDER}/")[0])


def answers(cassette: Cassette) -> dict[CommandKey, RecordedCommand]:
    """Return the recorded results by their inputs."""
    return {
        CommandKey(entry.tree, entry.command, entry.timeout_seconds, entry.is_setup, entry.environment): entry
        for entry in cassette.commands or ()
    }


def tree_ids(root: Path, environment: Mapping[str, str], runs: Iterable[CommandRun]) -> dict[Commit, str]:
    """Return git's tree ids of the commits that the runs name."""
    commits = sorted({commit for run in runs for commit in (run.before, run.after) if commit})
    if not commits:
        return {}
    done = run_git_as_user(root, environment, "rev-parse", *(f"{commit}^{{tree}}" for commit in commits))
    return dict(zip(commits, done.text.splitlines(), strict=False))


def recorded_commands(
    runs: Iterable[CommandRun], trees: Mapping[Commit, str], denied_keys: Mapping[str, int], config: Config
) -> tuple[RecordedCommand, ...]:
    """Return the results that a later replay may use. Left out are commands that were killed, that tried to reach the
    network, that changed files in a set-up, or whose results differ. `trees`: tree id by commit."""
    environment, entries = environment_digest(config), dict[CommandKey, RecordedCommand | None]()
    for run in runs:
        setup = is_setup(run.key)
        tree = trees.get(run.before, "")
        if run.result.exit is None or run.key in denied_keys or not tree:
            continue
        if setup and (run.after is None or trees.get(run.after) != tree):
            continue
        key = CommandKey(tree, run.command, int(run.timeout_seconds), setup, environment)
        output = scrub(run.result.output, (machine_values(run.result.root),))
        entry = RecordedCommand.of(output, exit=run.result.exit, **key._asdict())
        earlier = entries.setdefault(key, entry)
        if earlier is None or earlier.exit != entry.exit:
            entries[key] = None
    return tuple(entry for _, entry in sorted(entries.items()) if entry is not None)
