"""Replay in memory: the current engine, with a repository, agents and commands that start no process.

The decisions, effects, prompts, parsers, rules and prices are the engine's own; calls are compared as the stand-in
compares them. A recorded result answers only a command with the same text, tree and environment; any other command is
executed for real, in a scratch repository that is made when it is first needed. What cannot be exactly the same here
raises NotInMemory.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from functools import lru_cache
from importlib.resources import as_file, files
from itertools import repeat
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from msgspec.structs import replace
from mz_engine.agents.contract import Adapter, Invocation
from mz_engine.agents.process import PROBLEM_BY_REASON
from mz_engine.forge.github import GhForge, description_file
from mz_engine.git import content
from mz_engine.git.content import TreeEntry, event_path
from mz_engine.git.process import NO_USER_CONFIG, run_git, safe_environment
from mz_engine.model.config import Config, Sources
from mz_engine.path_patterns import IgnoreRules
from mz_engine.ports import (
    FILE_BYTES_MAX,
    CallResult,
    CallSpec,
    Capture,
    Checkout,
    CommandResult,
    CreatedCommit,
    FeatureWorktree,
    MergeConflict,
    MergeResult,
    SourceChange,
    WorkspaceCreated,
)
from mz_engine.processes.environment import INHERITED_VARIABLES, worktree_path
from mz_engine.processes.supervise import EndReason
from mz_engine.sources import sum_changes
from mz_events.adapters.memory import MemoryBlobs
from mz_events.catalog.call import ForbiddenChange
from mz_events.catalog.validation import Change
from mz_events.names import Commit
from mz_events.names import Path as TreePath
from mz_events.redaction.redactor import Redactor, Secrets

from mz_recordings.cassette.model import Cassette, RecordedCall
from mz_recordings.cassette.placeholders import expand
from mz_recordings.cassette.repository import (
    AUTHOR,
    AUTHOR_EMAIL,
    COMMIT_TIME,
    DELIVERED,
    SAMPLE,
    SAMPLE_MESSAGE,
    unpack,
)
from mz_recordings.cassette.trace import features_with_copied_environment, kept_artifacts
from mz_recordings.findings.model import CallMismatch
from mz_recordings.replay.agents import ReplayAgents, rejected_result
from mz_recordings.replay.commands import CommandKey, answers, environment_digest, is_setup, machine_values
from mz_recordings.replay.memory_objects import (
    MemoryObjects,
    NotInMemory,
    apply_patch,
    count_lines,
    read_bundle,
    read_folder,
)
from mz_recordings.replay.ports import ReplayClock, ReplayFolders, ReplayPorts, ScratchPorts, recorded_programs
from mz_recordings.replay.stand_in import HANGING_FAILURES, SESSION, SESSION_ID, CallInput, input_differences

BRANCH = re.compile(r"(?!.*(?:\.\.|//|/\.|\.lock(?:/|\Z)))\w[\w./-]*(?<![./])", re.ASCII)
"""Names that git certainly accepts."""
HANGING_PROBLEMS = {code: PROBLEM_BY_REASON[EndReason(code)] for code in HANGING_FAILURES}
"""Problems of replies that hung until a limit ended them, by code."""
BUNDLE_HEADS = "refs/heads/"
PREPARED_MAX = 8
"""Repositories of cassettes that are kept: cassettes often share theirs."""


class Repository(NamedTuple):
    objects: MemoryObjects
    base: str
    heads: Mapping[str, str]
    """Commits of delivered dependencies, by branch."""


@lru_cache(PREPARED_MAX)
def read_repository(bundle: bytes, environment: tuple[tuple[str, str], ...]) -> Repository:
    """Return the repository in a bundle; empty: the sample project. `environment`: that of git. Raises NotInMemory."""
    if not bundle:
        objects = MemoryObjects()
        with as_file(files("mz_recordings") / "bundled" / SAMPLE) as folder:
            tree = read_folder(objects, folder)
        identity = f"{AUTHOR} <{AUTHOR_EMAIL}> {COMMIT_TIME} +0000".encode()
        return Repository(objects, objects.commit(tree, (), f"{SAMPLE_MESSAGE}\n".encode(), identity), {})
    objects, refs = read_bundle(bundle, dict(environment))
    heads = {ref.removeprefix(BUNDLE_HEADS): oid for ref, oid in refs.items()}
    if "base" not in heads:
        raise NotInMemory("its bundle has no base")
    return Repository(objects, heads["base"], heads)


class MemoryWorkspace:
    """Implements `mz_engine.ports.Workspace`. Captures are commits that no branch has."""

    def __init__(self, cassette: Cassette, environment: Mapping[str, str]) -> None:
        fixture = cassette.manifest.fixture
        if not BRANCH.fullmatch(fixture.base):
            raise NotInMemory("its base has an unusual name")
        if fixture.template not in ("", SAMPLE) or not (fixture.template or cassette.bundle):
            raise NotInMemory("its repository is not here")
        bundle = b"" if fixture.template else cassette.bundle
        repository = read_repository(bundle, tuple(environment.items()))
        self.exported = set(repository.objects.objects)
        """Objects that the scratch repository has, once it is made."""
        self.objects, self.base = repository.objects.copy(), Commit(repository.base)
        if self.objects.tree_of(self.base) != fixture.base_tree:
            raise NotInMemory("its repository is not the recorded one")
        features = [dependency.feature for dependency in fixture.delivered]
        if not all(f"{DELIVERED}{feature}" in repository.heads for feature in features):
            raise NotInMemory("its bundle lacks a delivered dependency")
        self.heads = {feature: Commit(repository.heads[f"{DELIVERED}{feature}"]) for feature in features}
        self.branches = {fixture.base: self.base}
        self.tags = dict[str, Commit]()
        self.contents: dict[str, str] = {}
        """Tree of each feature's worktree."""
        self.starts: dict[str, str] = {}
        """Tree with which each worktree began."""
        self.captures: dict[str, Commit] = {}
        """A commit with that tree."""
        self.features_set_up: set[str] = set()
        self.copied_environments = features_with_copied_environment(cassette)
        self.kept_artifacts = kept_artifacts(cassette)
        self.forbidden_changes: dict[str, tuple[ForbiddenChange, ...]] = {}
        self._environment = {**safe_environment(environment), **NO_USER_CONFIG}

    def fork(self, branches: Mapping[str, Commit], features_set_up: Collection[str]) -> MemoryWorkspace:
        """Return a separate workspace with the same objects and these branches."""
        workspace = copy(self)
        workspace.branches, workspace.features_set_up = dict(branches), set(features_set_up)
        workspace.contents, workspace.captures, workspace.forbidden_changes = {}, {}, {}
        workspace.tags = {}
        return workspace

    # worktrees --------------------------------------------------------------------------------------------------------
    def open(self, worktree: FeatureWorktree, starts_from: tuple[Commit, ...]) -> WorkspaceCreated | MergeConflict:
        start = starts_from[0]
        for commit in starts_from[1:]:
            if self.contains(commit, start):
                start = commit
            elif not self.contains(start, commit):
                content = self.objects.merge(start, commit, self._environment)
                if content.conflicts:
                    return MergeConflict(paths=content.conflicts)
                message = f"Merge what {worktree.feature} builds upon\n".encode()
                start = Commit(self.objects.commit(content.tree, (start, commit), message))
        if worktree.branch in self.branches or worktree.feature == "rescue":
            raise NotInMemory("a branch exists already")
        self.branches[worktree.branch] = start
        self.starts[worktree.feature] = self.objects.tree_of(start)
        self.ensure(worktree, start, start)
        environment = "" if worktree.feature in self.copied_environments else None
        return WorkspaceCreated(head=start, tree=start, environment=environment)

    def ensure(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> bool:
        self.branches[worktree.branch] = head
        self.contents[worktree.feature], self.captures[worktree.feature] = self.objects.tree_of(tree), tree
        return worktree.feature not in self.features_set_up | self.copied_environments

    def checkout(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> Checkout:
        """Return the feature's worktree: nothing here holds files that no tree has."""
        self.ensure(worktree, head, tree)
        return Checkout(worktree=worktree, environment="", needs_setup=False)

    def release(self, worktree: FeatureWorktree) -> None:
        """Do nothing: no checkout is shared."""

    def capture(self, worktree: FeatureWorktree, before: Commit) -> Capture:
        capture = self._commit_of(self.contents[worktree.feature], before)
        return Capture(tree=capture, forbidden_changes=self.forbidden_changes.pop(worktree.feature, ()))

    def lay_out(self, worktree: FeatureWorktree, tree: Commit, paths: tuple[TreePath, ...]) -> Commit:
        """Let the worktree hold these files alone, until it is given a tree again."""
        content, names = self.objects.tree_of(tree), {os.fsencode(path) for path in paths}
        others = dict.fromkeys(path for path, _ in self.objects.files(content) if path not in names)
        self.contents[worktree.feature] = self.objects.edit(content, others)
        return self._commit_of(self.contents[worktree.feature], tree)

    def collect(self, worktree: FeatureWorktree, tree: Commit, laid_out: Commit) -> Capture:
        changed = self.objects.differences(self.objects.tree_of(laid_out), self.contents[worktree.feature])
        content = self.objects.edit(self.objects.tree_of(tree), {path: entry for path, _, entry in changed})
        forbidden_changes = self.forbidden_changes.pop(worktree.feature, ())
        return Capture(tree=self._commit_of(content, tree), forbidden_changes=forbidden_changes)

    def _commit_of(self, tree: str, before: Commit) -> Commit:
        if self.objects.tree_of(before) == tree:
            return before
        return Commit(self.objects.commit(tree, (before,), b"capture"))

    def apply(self, feature: str, patch: bytes) -> None:
        """Apply the recorded changes of a call to the worktree. Raises NotInMemory."""
        before = self.contents[feature]
        try:
            tree, added = apply_patch(self.objects, before, patch)
        except (IndexError, ValueError) as error:
            raise NotInMemory("a patch is damaged") from error
        for path, _, entry in self.objects.differences(before, tree):
            if event_path(path) is None or (entry and len(self.objects.get(entry.oid, b"blob")) > FILE_BYTES_MAX):
                raise NotInMemory("a patch adds a file that no capture holds")
        if added and any(map(self._ignore_rules(before).ignores, added, repeat(False))):
            raise NotInMemory("a patch adds an ignored file")
        self.contents[feature] = tree

    def _ignore_rules(self, tree: str) -> IgnoreRules:
        texts = {
            path.rpartition(b"/")[0]: self.objects.get(entry.oid, b"blob")
            for path, entry in self.objects.files(tree)
            if path.rpartition(b"/")[2] == b".gitignore"
        }
        return IgnoreRules(texts)

    def adopt(self, worktree: FeatureWorktree, tree: Commit) -> None:
        self.features_set_up.add(worktree.feature)

    def revert_paths(
        self, worktree: FeatureWorktree, tree: Commit, before: Commit, revert: tuple[TreePath, ...]
    ) -> Commit:
        old = self.objects.tree_of(before)
        edits = {key: self.objects.find(old, key) for key in map(os.fsencode, revert)}
        return self._commit_of(self.objects.edit(self.objects.tree_of(tree), edits), tree)

    def edit(
        self, worktree: FeatureWorktree, tree: Commit, deleted: tuple[TreePath, ...], files: Mapping[TreePath, bytes]
    ) -> Commit:
        old, edits = self.objects.tree_of(tree), dict[bytes, TreeEntry | None](dict.fromkeys(map(os.fsencode, deleted)))
        for path, data in files.items():
            before = self.objects.find(old, os.fsencode(path))
            mode = content.EXECUTABLE if before and before.mode == content.EXECUTABLE else content.FILE
            edits[os.fsencode(path)] = TreeEntry(mode, self.objects.add(b"blob", data))
        return self._commit_of(self.objects.edit(old, edits), tree)

    def provide(self, worktree: FeatureWorktree, files: Mapping[TreePath, bytes]) -> None:
        """Skip files below `.mz/`, which no capture holds and no recorded agent reads."""

    def close(self, worktree: FeatureWorktree) -> None:
        self.contents.pop(worktree.feature, None)
        self.features_set_up.discard(worktree.feature)

    # contents ---------------------------------------------------------------------------------------------------------
    def _differences(self, old: Commit, new: Commit) -> Iterator[tuple[bytes, TreeEntry | None, TreeEntry | None]]:
        return self.objects.differences(self.objects.tree_of(old), self.objects.tree_of(new))

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]:
        differences = list(self._differences(old, new))
        before = {path: entry for path, entry, _ in differences if entry}
        after = {path: entry for path, _, entry in differences if entry}
        return tuple(content.changes(before, after))

    def source_change(self, old: Commit, new: Commit, sources: Sources) -> SourceChange:
        """Count nothing: only messages of merges have the lines, and no trace has a message."""
        return sum_changes((), sources)

    def read(self, tree: Commit, path: TreePath) -> bytes | None:
        entry = self.objects.find(self.objects.tree_of(tree), os.fsencode(path))
        return None if entry is None else self.objects.get(entry.oid, b"blob")

    def paths(self, tree: Commit) -> tuple[TreePath, ...]:
        names = (event_path(path) for path, _ in self.objects.files(self.objects.tree_of(tree)))
        return tuple(sorted(path for path in names if path))

    # branches and commits ---------------------------------------------------------------------------------------------
    def find_commit(self, worktree: FeatureWorktree, key: str) -> CreatedCommit | None:
        raise NotInMemory("a commit is looked up after a crash")

    def commit(self, worktree: FeatureWorktree, tree: Commit, parent: Commit, message: bytes) -> CreatedCommit:
        commit = Commit(self.objects.commit(self.objects.tree_of(tree), (parent,), message))
        self.branches[worktree.branch] = commit
        return self._created(parent, commit)

    def _created(self, parent: Commit, commit: Commit) -> CreatedCommit:
        counts = [self._count_lines(old, new) for _, old, new in self._differences(parent, commit)]
        insertions, deletions = (sum(count[at] for count in counts) for at in (0, 1))
        return CreatedCommit(commit=commit, files=len(counts), insertions=insertions, deletions=deletions)

    def _count_lines(self, old: TreeEntry | None, new: TreeEntry | None) -> tuple[int, int]:
        """Return the added and deleted lines of a file."""
        absent, counts = "0" * len(self.base), self.objects.line_counts
        key = old.oid if old else absent, new.oid if new else absent
        if key in counts or key[0] == key[1]:
            return counts.get(key, (0, 0))
        if self.objects.has_diff_attributes:
            raise NotInMemory("git attributes change which lines count")
        before, after = (self.objects.get(entry.oid, b"blob") if entry else b"" for entry in (old, new))
        if old is None or new is None:
            return count_lines(after), count_lines(before)
        if (old.mode ^ new.mode) & 0o170000:
            raise NotInMemory("a file becomes a link")
        counts[key] = self._compare_with_git(before, after)
        return counts[key]

    def _compare_with_git(self, before: bytes, after: bytes) -> tuple[int, int]:
        """Count the lines of a change that no recorded patch describes: of several calls that one commit holds."""
        with tempfile.TemporaryDirectory(prefix="mz-lines-") as name:
            for file, data in (("old", before), ("new", after)):
                Path(name, file).write_bytes(data)
            arguments = ("diff", "--no-index", "--numstat", "--no-ext-diff", "--no-textconv", "old", "new")
            row = run_git(arguments, Path(name), self._environment).stdout.split(b"\t")
        if len(row) != 3:
            raise NotInMemory("git cannot compare two files")
        return (0, 0) if row[0] == b"-" else (int(row[0]), int(row[1]))

    def target_head(self, remote: str | None, branch: str) -> Commit | None:
        return self.branches.get(branch)

    def merge(self, worktree: FeatureWorktree, head: Commit, other: Commit, message: bytes) -> MergeResult:
        if self.contains(head, other):
            return MergeResult(commit=head, tree=head, changed=False)
        content = self.objects.merge(head, other, self._environment)
        commit = Commit(self.objects.commit(content.tree, (head, other), message))
        self.ensure(worktree, commit, commit)
        return MergeResult(commit=commit, tree=commit, conflicts=content.conflicts, changed=True)

    def join(self, target: Commit, head: Commit, message: bytes) -> CreatedCommit:
        commit = Commit(self.objects.commit(self.objects.tree_of(head), (target, head), message))
        return self._created(target, commit)

    def advance(self, branch: str, old: Commit, commit: Commit) -> Commit | None:
        if self.branches.get(branch) != old:
            raise NotInMemory("a base moved")
        self.branches[branch] = commit
        return None

    def tagged(self, name: str) -> Commit | None:
        return self.tags.get(name)

    def tag(self, name: str, commit: Commit) -> None:
        self.tags[name] = commit

    def close_branch(self, worktree: FeatureWorktree, head: Commit) -> None:
        self.branches.pop(worktree.branch, None)

    def is_newest(self, head: Commit, path: TreePath, request: TreePath, inputs: tuple[TreePath, ...]) -> bool:
        return path in self.kept_artifacts

    def contains(self, head: Commit, commit: Commit) -> bool:
        return self.objects.contains(head, commit)

    def changed_paths(self, base: Commit, head: Commit) -> tuple[TreePath, ...]:
        if not self.contains(head, base):
            raise NotInMemory("a base moved")
        names = (event_path(path) for path, _, _ in self._differences(base, head))
        return tuple(sorted(path for path in names if path))

    def remote_head(self, remote: str, branch: str) -> Commit | None:
        raise NotInMemory("a remote is needed")

    def push(self, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
        raise NotInMemory("a remote is needed")


class MemoryForge(GhForge):
    """The forge of a replay, which opens no pull request."""

    def write_description(self, worktree: FeatureWorktree, target: str, title: str, body: str) -> str:
        return description_file(worktree)


class _Rejected(Exception):
    """The call does not start from the recorded tree."""


class MemoryAgents(ReplayAgents):
    """The agents of one cassette, without processes."""

    def __init__(
        self,
        cassette: Cassette,
        folders: ReplayFolders,
        workspace: MemoryWorkspace,
        secrets: Secrets,
        adapters: Mapping[str, Adapter],
    ) -> None:
        super().__init__(cassette, folders.root, self, folders.journal, folders.agent_environment, adapters)
        self.workspace, self._secrets = workspace, secrets
        self.forbidden_changes = workspace.forbidden_changes

    def fork(self, workspace: MemoryWorkspace) -> Self:
        """Return separate agents that work in this workspace."""
        agents = copy(self)
        agents._processes, agents.workspace, agents.mismatches = agents, workspace, {}
        agents.forbidden_changes = workspace.forbidden_changes
        return agents

    def salvage(self, key: str) -> CallResult | None:
        recorded_call = self._recorded_calls.get(self._identity(key))
        is_lost = recorded_call is not None and recorded_call.recording.outcome == "lost"
        return super().salvage(key) if is_lost else None

    def query(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        raise NotInMemory("the agent is asked for something besides a call")

    def _reply(self, spec: CallSpec, recorded_call: RecordedCall) -> CallResult:
        try:
            result = super(ReplayAgents, self).call(spec)
        except _Rejected:
            return rejected_result("drift")
        self.forbidden_changes[spec.worktree.feature] = recorded_call.recording.forbidden_changes
        return result

    def spawn(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        """Compare the call as a stand-in does, and return the recorded reply."""
        recorded_call = self._recorded_calls[self._identity(spec.key)]
        recording, machine_values = recorded_call.recording, self._machine_values(spec)
        if not recording.argv:
            raise NotInMemory("a recording names no program")
        program, *expected = recording.argv
        if invocation.argv[0] != program:
            raise NotInMemory("the agent's program has another name")
        position = expected.index(SESSION) if SESSION in expected else len(invocation.argv)
        session = invocation.argv[1:][position] if position < len(invocation.argv) - 1 else ""
        machine_values = machine_values._replace(session=session)
        if SESSION in expected and not SESSION_ID.fullmatch(session):
            raise NotInMemory("a session has an unusual name")
        recorded = CallInput(recording.argv, recording.environment, recorded_call.content("prompt"))
        current = CallInput(invocation.argv, invocation.env, invocation.stdin)
        differences = input_differences(recorded, current, INHERITED_VARIABLES, machine_values)
        mismatch = msgspec.convert({item.field: item.value for item in differences}, CallMismatch)
        tree = self.workspace.contents[spec.worktree.feature]
        mismatch = replace(mismatch, tree=tree if tree != recording.tree_before else None)
        self._note(recorded_call.identity, mismatch)
        if mismatch.tree is not None:
            raise _Rejected
        self.workspace.apply(spec.worktree.feature, recorded_call.content("patch"))
        stdout = expand(recorded_call.content("stdout"), machine_values, in_json=True)
        stderr = expand(recorded_call.content("stderr"), machine_values)
        return CallResult(
            stdout=self._redact(stdout),
            stderr=self._redact(stderr),
            exit=recording.exit or 0,
            duration_ms=recording.duration_ms,
            problem=HANGING_PROBLEMS.get(recording.failure.code) if recording.failure else None,
            version=spec.version,
        )

    def _redact(self, data: bytes) -> bytes:
        redactor = Redactor(self._secrets)
        return redactor.feed(data) + redactor.finish()

    def _apply(self, recorded_call: RecordedCall, worktree: FeatureWorktree) -> str:
        self.workspace.apply(worktree.feature, recorded_call.content("patch"))
        return ""

    def _version(self, agent: str) -> str:
        """Return the version that the stand-in prints for the agent's program."""
        adapter = self.adapter(agent)
        if adapter.version_command == ():
            return ""
        if adapter.version_command is not None and "--version" not in adapter.version_command:
            raise NotInMemory("the agent's version is read by another command than --version")
        paths = {Path(f"{call.identity.path}.json"): call.recording for call in self._cassette.calls}
        recordings = (recording for _, recording in sorted(paths.items()))
        programs = (entry.version for entry in recordings if entry.version and entry.argv[:1] == (adapter.command,))
        match = adapter.version_pattern.search(f"{next(programs, '')} (recorded)\n".encode())
        return match[adapter.version_pattern.groups].decode() if match else ""


# commands -------------------------------------------------------------------------------------------------------------
class MemoryExecutor:
    """Implements `mz_engine.ports.Executor`: answers from the record, or executes."""

    def __init__(self, cassette: Cassette, config: Config, folders: ReplayFolders, ports: MemoryPorts) -> None:
        self._cassette, self._config, self._folders, self.ports = cassette, config, folders, ports
        self._answers = answers(cassette.commands)
        self.answered = self.executed = 0
        self._scratch: ScratchPorts | None = None

    def run(self, worktree: FeatureWorktree, command: str, timeout_seconds: int, key: str) -> CommandResult:
        workspace, setup = self.ports.workspace, is_setup(key)
        tree, head = workspace.contents[worktree.feature], workspace.branches[worktree.branch]
        environment = environment_digest(
            self._config, workspace.objects.history(head), workspace.starts.get(worktree.feature, "")
        )
        recorded = self._answers.get(CommandKey(tree, command, timeout_seconds, setup, environment))
        if recorded is None:
            if self._config.workspace.setup:
                raise NotInMemory("it has set-up commands, and no result of a command")
            self.executed += 1
            return self._execute(worktree, command, timeout_seconds, key)
        self.answered += 1
        root = str(worktree_path(self._folders.root, worktree))
        values = machine_values(root, self._folders.command_environment)
        output = self.ports.secrets.clean(expand(recorded.output, values))
        return CommandResult(
            exit=recorded.exit,
            output=output,
            duration_ms=0,
            root=root,
            passed_tests=recorded.passed_tests,
            failed_tests=recorded.failed_tests,
            coverage=recorded.coverage,
        )

    def _execute(self, worktree: FeatureWorktree, command: str, timeout_seconds: int, key: str) -> CommandResult:
        """Execute a command in a worktree with processes, in a scratch repository that gets all new objects."""
        workspace, objects, folders = self.ports.workspace, self.ports.workspace.objects, self._folders
        if self._scratch is None:
            unpack(self._cassette, folders.create().root, folders.command_environment)
            self._scratch = ScratchPorts(folders, self._config, self.ports.blobs)
        scratch = self._scratch
        objects.write(objects.objects.keys() - workspace.exported, folders.root / ".git" / "objects")
        workspace.exported |= objects.objects.keys()
        if worktree.feature not in scratch.workspace.contents:
            scratch.workspace.open(worktree, (workspace.base,))
        tree = workspace.captures[worktree.feature]
        scratch.workspace.ensure(worktree, workspace.branches[worktree.branch], tree)
        result = scratch.executor.run(worktree, command, timeout_seconds, key)
        self.ports.network_attempts.counts_by_key.update(scratch.network_attempts.counts_by_key)
        if scratch.workspace.keeps_files:
            raise NotInMemory("a command leaves ignored files for later ones")
        return result


class MemoryPorts(ReplayPorts):
    """Implements `mz_engine.ports.Ports` for one replay. Raises NotInMemory."""

    clock: ReplayClock
    agents: MemoryAgents
    workspace: MemoryWorkspace
    executor: MemoryExecutor
    blobs: MemoryBlobs
    agents_type: type[MemoryAgents] = MemoryAgents
    executor_type: type[MemoryExecutor] = MemoryExecutor

    def __init__(self, cassette: Cassette, folders: ReplayFolders, config: Config) -> None:
        if cassette.commands is None:
            raise NotInMemory("it has no results of commands; mz replay --keep adds them")
        super().__init__(folders, config, MemoryBlobs())
        recorded_programs(cassette, self.adapters)
        self.clock = ReplayClock(cassette.manifest.fixture.clock_start)
        self.workspace = MemoryWorkspace(cassette, folders.command_environment)
        self.forge = MemoryForge(folders.root, config.pull_requests.remote, folders.command_environment)
        self.executor = self.executor_type(cassette, config, folders, self)
        self.agents = self.agents_type(cassette, folders, self.workspace, self.secrets, self.adapters)
