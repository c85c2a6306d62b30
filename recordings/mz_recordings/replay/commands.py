"""Results of the user's commands: kept from a replay with processes, and used as answers while their inputs are equal.

A result depends on the content of the worktree, the command, its time limit and the environment: settings of worktrees,
passed variables, the history of the branch and, with set-up commands, the tree on which they ran.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict
from mz_engine.decoding.quantity import encode_quantity
from mz_engine.git.repository import run_git_as_user
from mz_engine.model.config import Config
from mz_engine.paths import MZ_FOLDER
from mz_engine.ports import CommandResult, FeatureWorktree
from mz_events.names import Commit

from mz_recordings.cassette.model import RecordedCommand
from mz_recordings.cassette.placeholders import MachineValues
from mz_recordings.record.recorder import without_paths

OUTPUT_BYTES_MAX, OUTPUTS_BYTES_MAX = 1_000_000, 16_000_000
"""Kept bytes of one output, and of all of a cassette."""
EFFECT_KEY = re.compile(r"[^/]+/([^/]+)/([^/]+)/([^/]+)/\d+/\d+/((?:agent|gate|prepare)\..+)", re.DOTALL)
"""Key of an effect within a phase: feature, phase, unit, effect."""


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
    start: Commit
    """A commit with its content when it was created."""
    history: bytes
    """Tree and subject of each commit of the branch."""
    result: CommandResult
    after: Commit | None = None
    """Of a set-up command: a commit with the content that it left."""


def environment_digest(config: Config, history: bytes, start_tree: str) -> str:
    """Return a digest of everything besides tree, command and time limit that influences a command."""
    # Cassettes that are older than the setting have the digest without it.
    workspace = {name: value for name, value in asdict(config.workspace).items() if value or name != "inputs"}
    values = workspace, config.pass_environment, history.hex(), start_tree if config.workspace.setup else ""
    return sha256(msgspec.json.encode(values, enc_hook=encode_quantity, order="sorted")).hexdigest()


def parse_effect_key(key: str) -> tuple[str, str, str]:
    """Return feature, phase with unit, and effect of a key. A set-up command has an empty phase and is the effect."""
    if match := EFFECT_KEY.fullmatch(key):
        feature, phase, unit, effect = match.groups()
        return feature, phase if unit == "-" else f"{phase} {unit}", effect
    _, feature, effect = (*key.split("/", 2), "", "")[:3]
    return feature, "", effect.removeprefix("setup/")


def is_setup(key: str) -> bool:
    """Return True if the key is that of a set-up command."""
    return not parse_effect_key(key)[1]


def machine_values(worktree: str, environment: Mapping[str, str]) -> MachineValues:
    """Return the paths that an output may name, from that of the worktree and the environment of commands."""
    home = environment.get("HOME", "")
    user = environment.get("USER") or Path(home).name
    return MachineValues(worktree, worktree.partition(f"/{MZ_FOLDER}/")[0], home, user)


def answers(commands: Iterable[RecordedCommand] | None) -> dict[CommandKey, RecordedCommand]:
    """Return the recorded results by their inputs."""
    return {
        CommandKey(entry.tree, entry.command, entry.timeout_seconds, entry.is_setup, entry.environment): entry
        for entry in commands or ()
    }


def recorded_commands(
    runs: Sequence[CommandRun], root: Path, variables: Mapping[str, str], denied: Mapping[str, int], config: Config
) -> tuple[RecordedCommand, ...]:
    """Return the results that a later replay may use. Left out are those of commands that were killed, that tried to
    reach the network (keys in `denied`), that changed files in a set-up, or that ended in several ways. `variables`:
    environment of commands."""
    entries, size = dict[CommandKey, RecordedCommand | None](), 0
    trees = _tree_ids(root, variables, runs)
    home = MachineValues(home=os.path.realpath(variables["HOME"])) if variables.get("HOME") else MachineValues()
    for run in runs:
        setup, tree = is_setup(run.key), trees.get(run.before, "")
        output = without_paths(run.result.output, (machine_values(run.result.root, variables), home))
        changes_files = setup and (run.after is None or trees.get(run.after) != tree)
        is_large = len(output) > OUTPUT_BYTES_MAX or size + len(output) > OUTPUTS_BYTES_MAX
        if run.result.exit is None or run.key in denied or not tree or changes_files or is_large:
            continue
        environment = environment_digest(config, run.history, trees.get(run.start, ""))
        key = CommandKey(tree, run.command, int(run.timeout_seconds), setup, environment)
        fields = {name: getattr(run.result, name) for name in ("exit", "passed_tests", "failed_tests", "coverage")}
        entry = RecordedCommand.of(output, **fields, **key._asdict())
        earlier = entries.setdefault(key, entry)
        size += len(output)
        if earlier is None or earlier.exit != entry.exit:
            entries[key] = None
    return tuple(entry for _, entry in sorted(entries.items()) if entry is not None)


def _tree_ids(root: Path, environment: Mapping[str, str], runs: Iterable[CommandRun]) -> dict[Commit, str]:
    """Return git's tree ids of the commits that the runs name."""
    commits = sorted({commit for run in runs for commit in (run.before, run.after, run.start) if commit})
    if not commits:
        return {}
    done = run_git_as_user(root, environment, "rev-parse", *(f"{commit}^{{tree}}" for commit in commits))
    return dict(zip(commits, done.text.splitlines(), strict=False))
