"""Simulated log, blobs, git, agents, commands, forge and clock in memory. They outlive the simulated process.

`World.tick` is called before and after every side effect and may raise `Crash`; earlier side effects persist. A new
side effect is a method of a simulated port that calls it too: `tests/engine/test_recovery.py` then crashes there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence

import msgspec
from mz_engine.forge.github import find_keys
from mz_engine.model.config import Sources
from mz_engine.ports import (
    Agents,
    CallResult,
    CallSpec,
    Capture,
    Checkout,
    CiCheck,
    CommandResult,
    CreatedCommit,
    DeliveryRefused,
    FeatureWorktree,
    MergeConflict,
    MergeResult,
    ParsedReply,
    Price,
    PullRequest,
    Secrets,
    SourceChange,
    Workspace,
    WorkspaceCreated,
)
from mz_engine.run.memory import LogMemory, UserMemory
from mz_engine.sources import FileChange, sum_changes
from mz_events.adapters.memory import MemoryBlobs, MemoryStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import ForbiddenChange, Problem, ProblemClass, Usage
from mz_events.catalog.validation import Change
from mz_events.codec import CODEC
from mz_events.names import Commit, Path
from mz_events.store import Append, Recorded

Files = dict[str, bytes]
STEP_US = 1_000
NANO_PER_TOKEN = 1_000
NO_TERMINAL = Problem(kind=ProblemClass.PHASE, code="no-terminal")
NO_SESSION = Problem(kind=ProblemClass.PHASE, code="session-missing")


class Crash(BaseException):
    """The simulated process crashed. A BaseException, so that only the test catches it."""


class ScriptedReply(msgspec.Struct, frozen=True, kw_only=True):
    """Actions of a scripted agent in one call."""

    files: Mapping[str, str | None] = {}
    """Content to write by path; None deletes the file."""
    text: str = "done"
    problem: Problem | None = None
    """The call ends with this problem instead of a reply."""
    stdout: bytes | None = None
    """Output instead of one that has the text."""


Tick = Callable[[str], None]
Script = Callable[[CallSpec, Files], ScriptedReply]
Commands = Callable[[str, Files], tuple[int | None, str]]
Checks = Callable[[Commit, int], tuple[CiCheck, ...] | None]
"""From the head of a pull request and the number of earlier polls."""


class Tree(msgspec.Struct, frozen=True):
    files: Mapping[str, bytes]
    parent: Commit | None
    message: bytes = b""
    merged: Commit | None = None
    """The second parent."""


class SimulatedStore(MemoryStore):
    """Encodes and decodes events with the real codec; appending is a side effect."""

    def __init__(self, tick: Tick) -> None:
        super().__init__()
        self.tick = tick

    def append(self, appends: Sequence[Append], now_us: int) -> tuple[Recorded[Event], ...]:
        self.tick("append.before")
        added = super().append(appends, now_us)
        self.tick("append.after")
        return added

    def _sequence(self, append: Append, now_us: int, added: tuple[Recorded[Event], ...]) -> Iterator[Recorded[Event]]:
        for recorded in super()._sequence(append, now_us, added):
            event = CODEC.decode(*CODEC.encode(recorded.event), recorded.event_ref)
            yield msgspec.structs.replace(recorded, event=event)


class World:
    """State that outlives a process."""

    def __init__(self, files: Mapping[str, str], script: Script, commands: Commands) -> None:
        self.script, self.commands = script, commands
        self.steps = 0
        self.crash_at_step: int | None = None
        self.now_us = 1_000_000
        self.store, self.blobs = SimulatedStore(self.tick), MemoryBlobs()
        self.objects: MutableMapping[Commit, Tree] = {}
        self.base = self.write(Tree({name: text.encode() for name, text in files.items()}, None))
        self.refs: dict[str, Commit] = {"refs/heads/main": self.base}
        self.remote: dict[str, Commit] = {}
        self.worktrees: dict[str, Files] = {}
        self.forbidden_changes: dict[str, tuple[ForbiddenChange, ...]] = {}
        """By feature, changes that no tree can hold; the next capture reports them."""
        self.set_up_features: set[str] = set()
        """Features whose worktrees are set up."""
        self.spools: dict[str, CallResult] = {}
        self.call_keys: list[str] = []
        """Keys of the agent calls made, in order."""
        self.agents_without_sessions: set[str] = set()
        self.session_naming_agents: set[str] = set()
        """Agents that name their sessions themselves."""
        self.count_tokens: Callable[[CallSpec], int | None] = lambda spec: None
        """Token count of a call's first request, as the agent reports it."""
        self.session_prompts: dict[tuple[str, str], list[str]] = {}
        """Prompts of the calls by agent and session."""
        self.pushes: list[Commit] = []
        self.landings: list[Commit] = []
        """Merges to which a target moved, in order."""
        self.in_the_way = False
        """A person has files in a checkout of the target that a merge would overwrite."""
        self.pull_requests: dict[str, PullRequest] = {}
        """By key."""
        self.targets: dict[int, str] = {}
        """Branch that each pull request targets, by number."""
        self.checks: Checks = lambda head, looks: (CiCheck(name="ci", state="green", run="1"),)
        self.poll_counts: Counter[Commit] = Counter()
        self.reruns: list[str] = []
        self.on_wait: Callable[[], None] | None = None
        """Action of a person, taken once, when the run waits."""
        self.user_memory: UserMemory | None = None
        self.merged_branches: set[str] = set()
        """Branches whose pull requests were merged."""

    def tick(self, name: str) -> None:
        """Advance the clock by a step; the process may crash here. Raises Crash."""
        self.steps += 1
        self.now_us += STEP_US
        if self.steps == self.crash_at_step:
            raise Crash(name)

    def look(self, name: str) -> None:
        """Do nothing: called before the world is only read, where nothing can be left undone."""

    def write(self, tree: Tree) -> Commit:
        digest = hashlib.sha1(repr((tree.parent, tree.message, tree.merged)).encode())
        for name, data in sorted(tree.files.items()):
            digest.update(b"%s\0%d\0%s" % (name.encode("utf-8", "surrogateescape"), len(data), data))
        commit = Commit(digest.hexdigest())
        self.objects[commit] = tree
        return commit

    def commits(self, branch: str) -> list[Tree]:
        """Return the commits of a branch, newest first."""
        trees, commit = [], self.refs.get(f"refs/heads/{branch}")
        while commit is not None:
            trees.append(self.objects[commit])
            commit = self.objects[commit].parent
        return trees


class SimulatedPort:
    """A port of one process over a world that outlives it."""

    def __init__(self, world: World) -> None:
        self.world = world


class SimulatedWorkspace(SimulatedPort):
    """Implements the Workspace port over the world's objects and refs."""

    def open(self, worktree: FeatureWorktree, starts_from: tuple[Commit, ...]) -> WorkspaceCreated | MergeConflict:
        self.world.tick("open.before")
        head = starts_from[0]
        for commit in starts_from[1:]:
            if self.contains(commit, head):
                head = commit
            elif not self.contains(head, commit):
                files = {**self.world.objects[head].files, **self.world.objects[commit].files}
                head = self.world.write(Tree(files, head, b"merge", commit))
        self.world.refs.setdefault(f"refs/heads/{worktree.branch}", head)
        self.world.worktrees[worktree.feature] = dict(self.world.objects[head].files)
        self.world.tick("open.after")
        return WorkspaceCreated(head=head, tree=head)

    def ensure(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> bool:
        self.world.tick("ensure.before")
        if worktree.feature not in self.world.worktrees:
            self.world.set_up_features.discard(worktree.feature)
        self.world.refs[f"refs/heads/{worktree.branch}"] = head
        self.world.worktrees[worktree.feature] = dict(self.world.objects[tree].files)
        self.world.tick("ensure.after")
        return worktree.feature not in self.world.set_up_features

    def checkout(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> Checkout:
        self.ensure(worktree, head, tree)
        return Checkout(worktree=worktree, environment="", needs_setup=False)

    def release(self, worktree: FeatureWorktree) -> None:
        self.world.tick("release.before")

    def capture(self, worktree: FeatureWorktree, before: Commit) -> Capture:
        self.world.tick("capture.before")
        return Capture(
            tree=self.world.write(Tree(dict(self.world.worktrees[worktree.feature]), before)),
            forbidden_changes=self.world.forbidden_changes.pop(worktree.feature, ()),
        )

    def lay_out(self, worktree: FeatureWorktree, tree: Commit, paths: tuple[Path, ...]) -> Commit:
        self.world.tick("lay_out.before")
        files = self.world.objects[tree].files
        self.world.worktrees[worktree.feature] = {path: files[path] for path in paths}
        self.world.tick("lay_out.after")
        return self.world.write(Tree({path: files[path] for path in paths}, tree))

    def collect(self, worktree: FeatureWorktree, tree: Commit, laid_out: Commit) -> Capture:
        self.world.tick("collect.before")
        files, before = self.world.objects[tree].files, self.world.objects[laid_out].files
        others = {path: data for path, data in files.items() if path not in before}
        now = self.world.worktrees[worktree.feature]
        hidden = tuple(ForbiddenChange(kind="hidden", path=path) for path in sorted(now.keys() & others.keys()))
        return Capture(
            tree=self.world.write(Tree({**now, **others}, tree)),
            forbidden_changes=(*hidden, *self.world.forbidden_changes.pop(worktree.feature, ())),
        )

    def adopt(self, worktree: FeatureWorktree, tree: Commit) -> None:
        self.world.tick("adopt.before")
        self.world.set_up_features.add(worktree.feature)

    def provide(self, worktree: FeatureWorktree, files: Mapping[Path, bytes]) -> None:
        self.world.tick("provide.before")

    def revert_paths(self, worktree: FeatureWorktree, tree: Commit, before: Commit, revert: tuple[Path, ...]) -> Commit:
        self.world.look("git")
        files, old = dict(self.world.objects[tree].files), self.world.objects[before].files
        for path in revert:
            files.pop(path, None)
            if path in old:
                files[path] = old[path]
        return self.world.write(Tree(files, tree))

    def edit(
        self, worktree: FeatureWorktree, tree: Commit, deleted: tuple[Path, ...], files: Mapping[Path, bytes]
    ) -> Commit:
        self.world.look("git")
        kept = {path: data for path, data in self.world.objects[tree].files.items() if path not in deleted}
        return self.world.write(Tree(kept | {str(path): data for path, data in files.items()}, tree))

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]:
        self.world.look("git")
        before, after = self.world.objects[old].files, self.world.objects[new].files
        return tuple(
            Change(path=Path(path), kind="added" if path not in before else "modified" if path in after else "deleted")
            for path in sorted(before.keys() | after.keys())
            if before.get(path) != after.get(path)
        )

    def source_change(self, old: Commit, new: Commit, sources: Sources) -> SourceChange:
        """Count lines by their text, wherever they are in a file."""
        changes = []
        for change in self.changes(old, new):
            before, after = (Counter((self.read(tree, change.path) or b"").splitlines()) for tree in (old, new))
            added, removed = (after - before).total(), (before - after).total()
            changes.append(FileChange(change.path, added=added, removed=removed))
        return sum_changes(changes, sources)

    def read(self, tree: Commit, path: Path) -> bytes | None:
        self.world.look("git")
        return self.world.objects[tree].files.get(path)

    def paths(self, tree: Commit) -> tuple[Path, ...]:
        return tuple(Path(path) for path in sorted(self.world.objects[tree].files))

    def find_commit(self, worktree: FeatureWorktree, key: str) -> CreatedCommit | None:
        commit = self.world.refs.get(f"refs/heads/{worktree.branch}")
        while commit is not None:
            tree = self.world.objects[commit]
            if f"Mz-Key: {key}\n".encode() in tree.message and tree.parent is not None:
                return self._made_commit(commit, tree.parent)
            commit = tree.parent
        return None

    def commit(self, worktree: FeatureWorktree, tree: Commit, parent: Commit, message: bytes) -> CreatedCommit:
        self.world.tick("commit.before")
        commit = self.world.write(Tree(self.world.objects[tree].files, parent, message))
        self.world.refs[f"refs/heads/{worktree.branch}"] = commit
        self.world.tick("commit.after")
        return self._made_commit(commit, parent)

    def _made_commit(self, commit: Commit, parent: Commit) -> CreatedCommit:
        return CreatedCommit(commit=commit, files=len(self.changes(parent, commit)), insertions=0, deletions=0)

    def target_head(self, remote: str | None, branch: str) -> Commit | None:
        self.world.look("forge")
        remote_head = self.world.remote.get(branch) if remote else None
        return remote_head or self.world.refs.get(f"refs/heads/{branch}")

    def is_newest(self, head: Commit, path: Path, request: Path, inputs: tuple[Path, ...]) -> bool:
        return False

    def contains(self, head: Commit, commit: Commit) -> bool:
        return commit in self._history(head)

    def _history(self, head: Commit) -> Iterator[Commit]:
        """Yield the commit and all before it, the nearest first."""
        commits = [head]
        for commit in commits:  # It grows.
            yield commit
            tree = self.world.objects[commit]
            parents = (parent for parent in (tree.parent, tree.merged) if parent is not None)
            commits += [parent for parent in parents if parent not in commits]

    def merge(self, worktree: FeatureWorktree, head: Commit, other: Commit, message: bytes) -> MergeResult:
        """Merge by file; a file changed on both sides since both were the same conflicts."""
        if self.contains(head, other):
            return MergeResult(commit=head, tree=head, changed=False)
        ours, theirs = self.world.objects[head].files, self.world.objects[other].files
        of_both = frozenset(self._history(head)).intersection(self._history(other))
        newest = max(of_both, key=lambda commit: len(list(self._history(commit))))
        base = self.world.objects[newest].files
        files, conflicts = {**base, **ours}, []
        for path in theirs:
            if base.get(path) == theirs[path]:
                continue
            if path in ours and ours[path] not in (base.get(path), theirs[path]):
                files[path] = b"<<<<<<< ours\n" + ours[path] + b"\n=======\n" + theirs[path] + b"\n>>>>>>> theirs\n"
                conflicts.append(Path(path))
            else:
                files[path] = theirs[path]
        self.world.tick("merge.before")
        commit = self.world.write(Tree(files, head, message, other))
        self.world.refs[f"refs/heads/{worktree.branch}"] = commit
        self.world.worktrees[worktree.feature] = dict(files)
        self.world.tick("merge.after")
        return MergeResult(commit=commit, tree=commit, changed=True, conflicts=tuple(conflicts))

    def join(self, target: Commit, head: Commit, message: bytes) -> CreatedCommit:
        self.world.look("git")
        commit = self.world.write(Tree(self.world.objects[head].files, target, message, head))
        return self._made_commit(commit, target)

    def advance(self, branch: str, old: Commit, commit: Commit) -> Commit | None:
        self.world.tick("advance.before")
        ref = f"refs/heads/{branch}"
        if self.world.refs.get(ref) == old:
            if self.world.in_the_way:
                raise DeliveryRefused("a file is in the way", "checkout-in-the-way")
            self.world.refs[ref] = commit
            self.world.landings.append(commit)
        self.world.tick("advance.after")
        now = self.world.refs[ref]
        return None if self.contains(now, commit) else now

    def tagged(self, name: str) -> Commit | None:
        self.world.look("git")
        return self.world.refs.get(f"refs/tags/{name}")

    def tag(self, name: str, commit: Commit) -> None:
        self.world.tick("tag.before")
        assert f"refs/tags/{name}" not in self.world.refs
        self.world.refs[f"refs/tags/{name}"] = commit
        self.world.tick("tag.after")

    def close_branch(self, worktree: FeatureWorktree, head: Commit) -> None:
        self.world.tick("close_branch.before")
        if (at := self.world.refs.pop(f"refs/heads/{worktree.branch}", None)) is not None:
            assert self.contains(head, at)
            self.world.refs[f"refs/mz/{worktree.run}/closed/heads/{worktree.branch}/{head}"] = head
        self.world.tick("close_branch.after")

    def remote_head(self, remote: str, branch: str) -> Commit | None:
        self.world.look("forge")
        return self.world.remote.get(branch)

    def push(self, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
        self.world.tick("push.before")
        assert self.world.remote.get(branch) == old
        self.world.remote[branch] = commit
        self.world.pushes.append(commit)
        self.world.tick("push.after")

    def changed_paths(self, base: Commit, head: Commit) -> tuple[Path, ...]:
        return tuple(change.path for change in self.changes(base, head))

    def close(self, worktree: FeatureWorktree) -> None:
        self.world.tick("close.before")
        self.world.worktrees.pop(worktree.feature, None)


class SimulatedAgents(SimulatedPort):
    """Implements the Agents port; the world's script acts as the model."""

    def call(self, spec: CallSpec) -> CallResult:
        self.world.tick("call.before")
        self.world.call_keys.append(spec.key)
        session = self._session(spec)
        if session is None:
            self.world.tick("call.after")
            return CallResult(stdout=b"", stderr=b"", exit=1, duration_ms=5, problem=NO_SESSION)
        files = self.world.worktrees[spec.worktree.feature]
        scripted_reply = self.world.script(spec, dict(files))
        for path, text in scripted_reply.files.items():
            if text is None:
                files.pop(path, None)
            else:
                files[path] = text.encode()
        reply = {"text": scripted_reply.text, "tokens": len(spec.prompt) // 4, "session": session}
        stdout = msgspec.json.encode(reply) if scripted_reply.stdout is None else scripted_reply.stdout
        result = CallResult(stdout=stdout, stderr=b"", exit=0, duration_ms=5, problem=scripted_reply.problem)
        self.world.spools[spec.key] = result
        self.world.tick("call.after")
        return result

    def _session(self, spec: CallSpec) -> str | None:
        """Return the session of the call and add its prompt; None if the session does not exist."""
        sessions, session = self.world.session_prompts, spec.session
        if session is None or spec.agent in self.world.agents_without_sessions:
            return ""
        if spec.resumes:
            if (spec.agent, session) not in sessions:
                return None
        else:
            session = f"{spec.agent}-{len(sessions)}" if spec.agent in self.world.session_naming_agents else session
            assert (spec.agent, session) not in sessions, "a session was begun twice"
        sessions.setdefault((spec.agent, session), []).append(spec.prompt)
        return session

    def salvage(self, key: str) -> CallResult | None:
        return self.world.spools.get(key)

    def adapter(self, agent: str) -> SimulatedAdapter:
        return SimulatedAdapter()

    def count_tokens(self, spec: CallSpec) -> int | None:
        return self.world.count_tokens(spec)

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        return agent not in self.world.agents_without_sessions


class SimulatedAdapter:
    """Of every simulated agent; all tiers have one model."""

    sessions = True
    skills = ""
    models: Mapping[str, str] = dict.fromkeys(("cheap", "mid", "premium"), "simulated")

    def capabilities(self) -> SimulatedAdapter:
        return self

    def parse_output(self, result: CallResult) -> ParsedReply:
        try:
            reply = msgspec.json.decode(result.stdout)
        except ValueError:
            return ParsedReply(
                parser="simulated/1", ending="no-terminal", text="", problem=result.problem or NO_TERMINAL
            )
        usage = Usage(model="simulated", input=reply["tokens"], output=len(reply["text"]) // 4)
        return ParsedReply(
            parser="simulated/1", ending="success" if result.problem is None else "error", text=reply["text"],
            session=reply["session"] or None, usage=(usage,), problem=result.problem, version="1",
        )  # fmt: skip

    def estimate_tokens(self, prompt: str) -> int:
        return len(prompt) // 4

    def format_prompt(self, prompt: str) -> str:
        return prompt


class SimulatedForge(SimulatedPort):
    def find(self, branch: str, key: str) -> PullRequest | None:
        self.world.look("forge")
        return next((pull for pull_key, pull in self.world.pull_requests.items() if pull_key.startswith(key)), None)

    def open(self, branch: str, target: str, title: str, body: str, draft: bool) -> PullRequest:
        self.world.tick("open_pr.before")
        key, number = find_keys(body)[0], len(self.world.pull_requests) + 1
        assert key not in self.world.pull_requests, "opened twice"
        opened = PullRequest(url=f"forge/{number}", number=number, key=key)
        self.world.pull_requests[key] = opened
        self.world.targets[number] = target
        self.world.tick("open_pr.after")
        return opened

    def update(self, number: int, target: str, title: str, body: str) -> None:
        self.world.tick("update.before")
        pulls = self.world.pull_requests
        old_key = next(key for key, pull in pulls.items() if pull.number == number)
        key = find_keys(body)[0]
        pulls[key] = msgspec.structs.replace(pulls.pop(old_key), key=key)
        self.world.targets[number] = target
        self.world.tick("update.after")

    def checks(self, number: int, head: Commit) -> tuple[CiCheck, ...] | None:
        self.world.look("forge")
        checks = self.world.checks(head, self.world.poll_counts[head])
        self.world.poll_counts[head] += 1
        return checks

    def failed_log(self, check: CiCheck) -> str:
        return f"{check.name} is broken"

    def rerun(self, run: str) -> None:
        self.world.tick("rerun.before")
        self.world.reruns.append(run)

    def merged(self, branch: str) -> Commit | None:
        self.world.look("forge")
        return self.world.remote.get("main", self.world.base) if branch in self.world.merged_branches else None

    def write_description(self, worktree: FeatureWorktree, target: str, title: str, body: str) -> str:
        self.world.tick("hand_over.before")
        return f"{worktree.feature}.md"


class SimulatedPorts:
    """All ports of one process over a world that outlives it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.workspace: Workspace = SimulatedWorkspace(world)
        self.agents: Agents = SimulatedAgents(world)
        self.forge, self.blobs = SimulatedForge(world), world.blobs
        self.executor = self.prices = self.clock = self
        self.secrets: Secrets = self
        self.memory = LogMemory(world.store, world.blobs, self, self, lambda before, after: b"", world.user_memory)

    def run(self, worktree: FeatureWorktree, command: str, timeout_seconds: int, key: str) -> CommandResult:
        self.world.tick("command.before")
        code, output = self.world.commands(command, dict(self.world.worktrees[worktree.feature]))
        return CommandResult(exit=code, output=output.encode(), duration_ms=3)

    def price(self, usage: tuple[Usage, ...], at_us: int) -> Price:
        tokens = sum(entry.input + entry.output for entry in usage)
        return Price(nanousd=tokens * NANO_PER_TOKEN, unpriced=(), prices="simulated/1")

    def price_entry(self, usage: Usage, at_us: int) -> int | None:
        return (usage.input + usage.output) * NANO_PER_TOKEN

    def redact(self, text: str) -> str:
        return text

    def names_in(self, data: bytes) -> tuple[str, ...]:
        return ("secret",) if b"SECRET" in data else ()

    def now_us(self) -> int:
        return self.world.now_us

    def skip_to(self, until_us: int) -> None:
        self.world.now_us = max(self.world.now_us, until_us)
