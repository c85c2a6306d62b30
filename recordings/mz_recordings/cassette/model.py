"""Contents of a cassette: recorded agent calls, each with its identity, and the fixture in which they were made.

A recording is looked up by its identity. Digests are verified after the lookup and are never a search key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
from mz_engine.ports import CallResult
from mz_events.catalog.call import CallRef, ForbiddenChange, Problem, ProblemClass, Usage
from mz_events.catalog.run import Verdict
from mz_projections.memory.learnings import DEFAULT_RULES, MemoryRules

from mz_recordings.cassette.placeholders import BUILDER as BUILDER
from mz_recordings.cassette.placeholders import call_name

FORMAT = 3
MANIFEST = "cassette.yaml"
BUNDLE = "repository.bundle"
EVENTS = "events.jsonl"
COMMANDS = "commands.jsonl"

Provenance = Literal["live", "scripted-model", "unknown", "documented", "copied"]
"""How the replies came about: recorded from the agent and its model; recorded from the real CLI with a scripted
endpoint; recorded from an agent whose endpoint may not be its own; written from a tool's documentation; copied from
another agent's recordings."""
Kind = Literal["prompt", "stdout", "stderr", "artifact", "patch"]


class CassetteStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all structs that are written to a cassette."""


class Identity(CassetteStruct, frozen=True, kw_only=True):
    """Identity of a call, unique within a cassette."""

    pipeline: str
    feature: str
    phase: str
    unit: str = ""
    iteration: int = 1
    attempt: int = 1
    role: str = BUILDER

    @property
    def name(self) -> str:
        """Return the base name of the call's files, such as `code.U1.i2.a3.reviewer`. Defaults are left out."""
        return call_name(self.phase, self.unit, self.iteration, self.attempt, self.role)

    @property
    def path(self) -> str:
        """Return the path relative to the cassette, without a suffix."""
        return f"{self.feature}/{self.name}"


CALL_FIELDS = ("phase", "unit", "iteration", "attempt", "role")


def identity_of(pipeline: str, feature: str, ref: CallRef) -> Identity:
    return Identity(pipeline=pipeline, feature=feature, **{name: getattr(ref, name) for name in CALL_FIELDS})


class StoredFile(CassetteStruct, frozen=True, kw_only=True):
    """A file that belongs to a recording."""

    kind: Kind
    name: str
    """File name, in the folder of the recording."""
    sha256: str
    """Digest of the stored bytes, which hold tokens instead of paths and sessions."""
    artifact: str = ""
    """Kind `artifact` only: its name in the pipeline."""
    path: str = ""
    """Kind `artifact` only: its path in the worktree."""


class Failure(CassetteStruct, frozen=True, kw_only=True):
    """Why a call failed without a reply."""

    kind: str
    code: str


class Accepted(CassetteStruct, frozen=True, kw_only=True):
    """A person updated the inputs of the recording and kept the reply, which answers the earlier inputs."""

    kinds: tuple[str, ...]
    """Accepted finding kinds: PROMPT, CONFIG."""
    reason: str
    at: str
    """UTC, `2026-11-21T10:28:00Z`."""


class Recording(CassetteStruct, frozen=True, kw_only=True):
    """One agent call, recorded at the boundary of its process."""

    format: int
    identity: Identity
    agent: str
    version: str
    """Version of the agent's CLI."""
    model: str
    argv: tuple[str, ...]
    """Arguments, with `<SESSION>` in place of the session id."""
    environment: tuple[str, ...]
    """Names of the variables that the call may see, besides those that every command gets."""
    tree_before: str
    """git's tree id of the worktree; equal on every machine."""
    tree_after: str
    outcome: Literal["replied", "failed", "lost"]
    exit: int | None
    """Negative: a signal. None: the end was not observed."""
    failure: Failure | None = None
    recorded_at: str
    """UTC, `2026-11-21T10:28:00Z`."""
    duration_ms: int
    files: tuple[StoredFile, ...]
    forbidden_changes: tuple[ForbiddenChange, ...] = ()
    """Changes that no patch can hold: special files, repositories, commits by the agent."""
    earlier: tuple[Usage, ...] = ()
    """For a continued session of an agent with cumulative counts: usage of the session before this call."""
    accepted: Accepted | None = None

    def find(self, kind: Kind) -> StoredFile | None:
        return next((file for file in self.files if file.kind == kind), None)


class Item(CassetteStruct, frozen=True, kw_only=True):
    """A backlog item as the run read it."""

    feature: str
    title: str
    body: str
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)]
    depends_on: tuple[str, ...] = ()
    source: str = ""
    """Address of the issue that it is."""
    kind: str = ""
    """As the pipeline defines it; empty: it defines none."""
    is_own: bool = False
    """The run adds it itself, as its pipeline and outputs say."""


class RecordedDecision(CassetteStruct, frozen=True, kw_only=True):
    """A person's decision about a stopped feature."""

    feature: str
    after: int
    """Number of trace events before the decision."""
    action: Literal["approve", "retry", "reject", "accept", "retry-phase", "revise", "cancel"]
    """Approve, retry, reject and accept answer a question; retry-phase retries from a phase; revise takes delivered
    work up again from a phase; cancel cancels the feature."""
    phase: str = ""
    """Phase of a retry (`retry-phase`) or a revision only."""
    note: str | None = None


VERDICTS: Mapping[Literal["approve", "retry", "reject", "accept"], Verdict] = {
    "approve": Verdict.APPROVE,
    "retry": Verdict.RETRY,
    "reject": Verdict.REJECT,
    "accept": Verdict.ACCEPT,
}
"""Answers to questions, by `RecordedDecision.action`."""


class RecordedLearning(CassetteStruct, frozen=True, kw_only=True):
    """Learning that a call was given. Stored in the order of the requests."""

    feature: str
    call: str = ""
    """The call's key after run and feature; empty in older recordings, which name the failure to fix instead."""
    id: str = ""
    kind: str = ""
    is_repeated: bool = False
    signature: str = ""
    text: str
    """Empty, with a signature: nothing was known yet."""


class DeliveredDependency(CassetteStruct, frozen=True, kw_only=True):
    """A dependency that an earlier run had delivered."""

    feature: str
    tree: str
    """git's tree id. In the bundle it is the branch `delivered/<feature>`."""


class Fixture(CassetteStruct, frozen=True, kw_only=True):
    """Everything besides the agent that a replay needs."""

    run: str
    """Id of the run, a part of all call keys."""
    template: str = ""
    """Name of a project that is part of `mz`; empty: the base commit is in `repository.bundle`."""
    bundle_sha256: str = ""
    base: str
    """Name of the base branch."""
    base_commit: str
    base_tree: str
    """git's tree id of the base commit."""
    clock_start: str
    """UTC, `2026-11-21T10:28:00Z`."""
    items: tuple[Item, ...]
    config: dict[str, object]
    """The configuration keys named in FIXTURE_KEYS."""
    memory: MemoryRules = DEFAULT_RULES
    """Rules of the memory that the run pinned."""
    decisions: tuple[RecordedDecision, ...] = ()
    """Ordered by feature, then by time."""
    hints: tuple[RecordedLearning, ...] = ()
    delivered: tuple[DeliveredDependency, ...] = ()
    base_results: dict[str, object] = {}
    """How each command ended on the base, with which gates are compared: `mz_engine.effects.commands.Counts`."""
    delivered_ids: dict[str, tuple[str, ...]] = {}
    """By `feature/artifact`, its ids that features delivered earlier had too, where a check asks which are new."""
    known_failures: dict[str, tuple[str, ...]] = {}
    """Ids of the tests that failed on the base, by command; gates passed in spite of them."""
    integration: str = ""
    """Name of the run's integration branch."""
    cycles: int = 0
    """How many cycles it went through."""
    order: tuple[str, ...] = ()
    """Items in the order in which they merged, were merged, or stopped: what they merge depends on it."""
    parallel: int = 0
    """How many were worked on at the same time, where there is such an order."""
    closing: Literal["", "finish", "cancel"] = ""
    """How a person ended it, after all else."""

    def dependencies(self, features: Iterable[str]) -> tuple[str, ...]:
        """Return the features and everything that they depend on, the nearest first."""
        reached, needs = dict.fromkeys(features), {item.feature: item.depends_on for item in self.items}
        for _ in needs:
            reached |= dict.fromkeys(other for feature in tuple(reached) for other in needs.get(feature, ()))
        return tuple(reached)

    def dependents(self, features: Iterable[str]) -> set[str]:
        """Return the features and everything that depends on them."""
        reached = set(features)
        for _ in self.items:
            reached |= {item.feature for item in self.items if reached & set(item.depends_on)}
        return reached


class Manifest(CassetteStruct, frozen=True, kw_only=True):
    """The content of `cassette.yaml`."""

    format: int
    name: str
    pipeline: str
    agent: str
    provenance: Provenance
    mz: str
    """Version of `mz` that recorded it."""
    seal: str = ""
    """Seal of the run's log when it was recorded; empty: recorded before there were seals."""
    max_age_days: Annotated[int, msgspec.Meta(ge=1, le=36_500)] | None = None
    """Age after which the replies expire; None: never."""
    traces: dict[str, str]
    """By feature, the log digest of its trace: sha256 of its `events.jsonl`."""
    fixture: Fixture
    evidence: dict[str, object]
    """Pipeline, rules, templates and configuration of the recorded run. Used to explain drift, never executed."""


class RecordedCall(NamedTuple):
    """A recording and the contents of its files, by file name."""

    recording: Recording
    contents: Mapping[str, bytes]

    @property
    def identity(self) -> Identity:
        return self.recording.identity

    def content(self, kind: Kind) -> bytes:
        """Return the content of the first file of this kind; empty if there is none."""
        file = self.recording.find(kind)
        return b"" if file is None else self.contents[file.name]

    def result(self) -> CallResult:
        """Return the result of the call, with tokens in place of paths and sessions."""
        recording, failure = self.recording, self.recording.failure
        return CallResult(
            stdout=self.content("stdout"),
            stderr=self.content("stderr"),
            exit=recording.exit,
            duration_ms=recording.duration_ms,
            problem=Problem(kind=ProblemClass(failure.kind), code=failure.code) if failure else None,
            version=recording.version,
            model=recording.model,
            session_usage_before=recording.earlier,
        )

    def lines(self, kind: Kind) -> list[str]:
        return self.content(kind).decode("utf-8", "replace").splitlines()

    def artifacts(self) -> dict[StoredFile, str]:
        return {
            file: self.contents[file.name].decode("utf-8", "replace")
            for file in self.recording.files
            if file.kind == "artifact"
        }


class RecordedCommand(CassetteStruct, frozen=True, kw_only=True):
    """Result of one of the user's commands in a replay with processes."""

    tree: str
    """git's tree id of the worktree."""
    command: str
    timeout_seconds: int
    is_setup: bool = False
    environment: str
    """Digest of the settings that influence commands."""
    exit: int
    """Negative: a signal."""
    text: str = ""
    """The output, with tokens instead of paths."""
    data: bytes = b""
    """The output if it is not text."""
    passed_tests: tuple[str, ...] = ()
    failed_tests: tuple[str, ...] = ()
    coverage: tuple[int, ...] = ()
    """All as in `CommandResult`."""

    @classmethod
    def of(cls, output: bytes, **fields: Any) -> Self:
        try:
            return cls(text=output.decode(), **fields)
        except UnicodeDecodeError:
            return cls(data=output, **fields)

    @property
    def output(self) -> bytes:
        return self.data or self.text.encode()


class Cassette(NamedTuple):
    manifest: Manifest
    calls: tuple[RecordedCall, ...]
    """Ordered by feature, then by time of the call."""
    traces: Mapping[str, bytes] = MappingProxyType({})
    """By feature, its events as JSON lines; see `mz_recordings.cassette.trace`."""
    bundle: bytes = b""
    """The repository as a `git bundle`; empty if the fixture names a template."""
    commands: tuple[RecordedCommand, ...] | None = None
    """None: results of commands were never kept."""

    def by_identity(self) -> dict[Identity, RecordedCall]:
        return {call.identity: call for call in self.calls}


TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""Format of all times: `2026-11-21T10:28:00Z`."""


def format_time(at_us: int) -> str:
    """Return a time in microseconds since the epoch, UTC, in this format."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime(TIME_FORMAT)


def parse_time(text: str) -> datetime:
    """Parse a UTC time. Raises ValueError."""
    return datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC)


FIXTURE_KEYS = (
    "base", "workspace", "commands", "autonomy", "limits", "injection_screen", "denied_paths", "branch_prefix",
    "sessions", "failover", "gates", "papers", "commits", "scope", "routing", "skills", "request", "edits",
)  # fmt: skip
"""Configuration keys that a replay takes from the cassette; all others come from the current project."""
FIXTURE_DEFAULTS: Mapping[str, object] = {"routing": {}, "skills": "text", "request": "", "edits": {}}
"""Values of a cassette that does not say, as older ones do not."""
