"""Facts: what a cassette is: recorded agent calls, each with its identity, and the world that they happened in.

The key of a recording is its identity; digests are asserted after it was found, never searched for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

import msgspec
from mz_events.catalog.call import CallRef, Offence, Usage

FORMAT = 2
MANIFEST = "cassette.yaml"
BUNDLE = "world.bundle"
EVENTS = "events.jsonl"
BUILDER = "builder"
"""The role that file names leave out: the phase's own agent."""

Provenance = Literal["live", "scripted-model", "documented", "seeded"]
"""Recorded from the agent and its model; the real CLI against a scripted endpoint; written after a tool's
documentation; copied from another agent's."""
Kind = Literal["prompt", "stdout", "stderr", "artifact", "patch"]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what is written to a cassette."""


class Identity(Record, frozen=True, kw_only=True):
    """Which call: unique within a cassette."""

    pipeline: str
    feature: str
    phase: str
    unit: str = ""
    iteration: int = 1
    attempt: int = 1
    role: str = BUILDER

    @property
    def name(self) -> str:
        """`code.U1.i2.a3.reviewer`: how its files are called, without an ending. What is usual is left out."""
        # A unit that looks like an iteration or an attempt must not be taken for one.
        unit = f"unit={self.unit}" if re.fullmatch(r"[ia]\d+", self.unit) else self.unit
        parts = (
            self.phase,
            unit,
            f"i{self.iteration}" if self.iteration > 1 else "",
            f"a{self.attempt}" if self.attempt > 1 else "",
            self.role if self.role != BUILDER else "",
        )
        return ".".join(part for part in parts if part)

    @property
    def path(self) -> str:
        """Relative to the cassette, without an ending."""
        return f"{self.feature}/{self.name}"


def identity_of(pipeline: str, feature: str, ref: CallRef) -> Identity:
    return Identity(
        pipeline=pipeline,
        feature=feature,
        phase=ref.phase,
        unit=ref.unit,
        iteration=ref.iteration,
        attempt=ref.attempt,
        role=ref.role,
    )


class StoredFile(Record, frozen=True, kw_only=True):
    """One of the files beside a recording."""

    kind: Kind
    name: str
    """Beside the recording's own file."""
    sha256: str
    """Of the file as it is stored, with tokens in place of paths and sessions."""
    artifact: str = ""
    """Kind `artifact`: its name in the pipeline."""
    path: str = ""
    """Kind `artifact`: where it lay in the worktree."""


class Failure(Record, frozen=True, kw_only=True):
    """A call that we ended, or that never began."""

    kind: str
    code: str


class Accepted(Record, frozen=True, kw_only=True):
    """What went in was renewed by a person, and the answer kept: it answers another question than it was asked."""

    what: tuple[str, ...]
    """Classes of drift: PROMPT, CONFIG, EVENT."""
    reason: str
    at: str
    """UTC, `2026-11-21T10:28:00Z`."""


class Pace(Record, frozen=True, kw_only=True):
    """How output comes where that matters: in pieces, with a pause after each."""

    piece_bytes: Annotated[int, msgspec.Meta(ge=1)]
    pause_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)]


class Recording(Record, frozen=True, kw_only=True):
    """One agent call at the boundary of its process."""

    format: int
    identity: Identity
    agent: str
    version: str
    """Of the agent's CLI."""
    model: str
    argv: tuple[str, ...]
    """With `<SESSION>` where the session stood."""
    environment: tuple[str, ...]
    """Names that the call may see, beyond those that every command gets."""
    tree_before: str
    """git's id of the worktree's content; the same on any machine."""
    tree_after: str
    outcome: Literal["replied", "failed", "lost"]
    exit: int | None
    """Negative: signal. None: nobody saw its end."""
    failure: Failure | None = None
    recorded_at: str
    """UTC, `2026-11-21T10:28:00Z`."""
    duration_ms: int
    files: tuple[StoredFile, ...]
    offences: tuple[Offence, ...] = ()
    """What the agent left that no patch holds: special files, repositories, commits of its own."""
    earlier: tuple[Usage, ...] = ()
    """Where the call continued a session: what that had used before, of agents whose counts go on."""
    accepted: Accepted | None = None
    pace: Pace | None = None
    """None: all at once. Nobody measures it: variants and faults are made with it."""

    def find(self, kind: Kind) -> StoredFile | None:
        return next((file for file in self.files if file.kind == kind), None)


class Item(Record, frozen=True, kw_only=True):
    """A piece of the backlog, as the run took it in."""

    feature: str
    title: str
    body: str
    priority: int
    depends_on: tuple[str, ...] = ()


class Said(Record, frozen=True, kw_only=True):
    """What a person decided about a feature that had come to rest."""

    feature: str
    after: int
    """Events of the feature's story before it."""
    what: Literal["approve", "retry", "reject", "again", "cancel"]
    """An answer to a question; done once more from a phase; given up."""
    phase: str = ""
    """Of `again`."""
    note: str | None = None


class Hint(Record, frozen=True, kw_only=True):
    """What the log knew about a failure when a call was to mend it. In the order in which it was asked."""

    feature: str
    signature: str
    text: str
    """Empty: nothing was known yet."""


class Delivered(Record, frozen=True, kw_only=True):
    """A dependency that an earlier run had delivered."""

    feature: str
    tree: str
    """git's id of its content. In the bundle it is the branch `delivered/<feature>`."""


class World(Record, frozen=True, kw_only=True):
    """What a replay needs that is not the agent's."""

    run: str
    """Id of the run: keys of calls are made of it."""
    template: str = ""
    """A project that comes with `mz`; empty: the base commit's content lies in `world.bundle`."""
    bundle_sha256: str = ""
    base: str
    """Name of the base branch."""
    base_commit: str
    base_tree: str
    """git's id of the base commit's content."""
    clock_start: str
    """UTC, `2026-11-21T10:28:00Z`."""
    items: tuple[Item, ...]
    config: dict[str, object]
    """The keys of the configuration that belong to the world."""
    said: tuple[Said, ...] = ()
    """Feature by feature, in the order in which it was said."""
    hints: tuple[Hint, ...] = ()
    delivered: tuple[Delivered, ...] = ()


class Manifest(Record, frozen=True, kw_only=True):
    """`cassette.yaml`."""

    format: int
    name: str
    pipeline: str
    agent: str
    provenance: Provenance
    mz: str
    """Version of `mz` that recorded it."""
    max_age_days: int | None = None
    """How long its answers are believed; None: for ever."""
    stories: dict[str, str]
    """By feature, the log digest of its story: sha256 of its `events.jsonl`."""
    world: World
    evidence: dict[str, object]
    """Pipeline, rules, templates and configuration of that run. They name the cause of a drift; they are never run."""


class Taken(NamedTuple):
    """A recording and the contents of its files, by name."""

    recording: Recording
    contents: Mapping[str, bytes]


class Cassette(NamedTuple):
    manifest: Manifest
    taken: tuple[Taken, ...]
    """In the order in which the calls were made, feature by feature."""
    stories: Mapping[str, bytes] = MappingProxyType({})
    """By feature: what happened, an event a line, as `mz_recordings.recording.story` tells it."""
    bundle: bytes = b""
    """The repository, as `git bundle` writes it; empty where the world is a template."""


STAMP = "%Y-%m-%dT%H:%M:%SZ"
"""How times are written: `2026-11-21T10:28:00Z`."""


def parse_time(text: str) -> datetime:
    """Raises ValueError."""
    return datetime.strptime(text, STAMP).replace(tzinfo=UTC)


WORLD_KEYS = (
    "base", "workspace", "commands", "autonomy", "limits", "sanitize", "denied_paths", "branch_prefix", "sessions",
    "failover",
)  # fmt: skip
"""Keys of the configuration that a replay takes from the cassette; all others are today's."""
