"""Facts of one agent call: intent, boundary outcome, what was read, what it cost."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from mz_events.catalog.base import Event, Fact, Role
from mz_events.names import Commit, Digest, FeatureId


class ProblemClass(Enum):
    """Of a failed call; decides what happens next."""

    TRANSIENT = "transient"
    """Try again, after `retry_after_seconds` where that is known."""
    PHASE = "phase"
    """The reply is unusable; try again."""
    FATAL = "fatal"
    """No other call would fare better: the run stops."""
    UNKNOWN = "unknown"
    """Treated as `phase`."""
    HUMAN = "human"
    """The agent asks for a person."""


class CallRef(Fact, frozen=True, kw_only=True):
    """Which call: unique within a run."""

    key: str
    """`run/feature/phase/unit/iteration/attempt/agent.role`; an empty unit is written `-`."""
    phase: str
    unit: str
    iteration: int
    attempt: int
    """Every request in this iteration counts, failed and lost ones too, per phase, unit and role; from 1."""
    role: str
    """`builder` is the phase's own agent; a review names its role."""


class Usage(Fact, frozen=True, kw_only=True):
    """Tokens of one model request, or of all requests to one model where the agent says no more."""

    model: str
    input: int
    """All of it: uncached, cache reads and cache writes."""
    output: int
    """Reasoning included."""
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    requests: int | None = None
    """How many requests this sums up; None: unknown."""
    tier: str = ""
    """Service tier that the API named where it is not the standard one: batch, flex, priority, fast."""
    part: str = ""
    """Name of the sub-agent whose requests these are; empty: the main conversation, or not told."""


class Problem(Fact, frozen=True, kw_only=True):
    kind: ProblemClass
    code: str
    """Such as rate-limit, auth-failure, tool-missing, timeout, idle, no-terminal, agent-blocker, exit-N."""
    retry_after_seconds: int | None = None
    detail: Digest | None = None
    """Blob: the agent's own words, redacted."""


class Offence(Fact, frozen=True, kw_only=True):
    """Something that the agent did outside its contract."""

    kind: Literal["outside", "denied", "special", "nested-git", "too-big", "commit", "secret"]
    """Outside the phase's mutations; on a denied path; FIFO or device; a repository inside; over 50 MB; a commit of
    its own, so that the branch moved; a file that holds a secret."""
    path: str
    size_bytes: int | None = None


class CallReserved(Event, frozen=True, kw_only=True, tag="call.reserved"):
    """Money set aside for a call; in the run's stream and in the feature's, in one transaction with the request."""

    ROLE = Role.DERIVED
    feature: FeatureId
    key: str
    nanousd: int | None
    """None: the model has no price, so nothing could be set aside."""


class CallHeld(Event, frozen=True, kw_only=True, tag="call.held"):
    """The budget has no room for the call; in both streams."""

    ROLE = Role.DERIVED
    feature: FeatureId
    key: str
    role: str
    """Whose call it is."""
    nanousd: int | None


class AgentRequested(Event, frozen=True, kw_only=True, omit_defaults=True, tag="agent.requested"):
    """Intent: durable before anything is spawned, and appended once. What has a default is written only where it is
    another, so that calls without a kept session read as they always did."""

    ROLE = Role.INTENT
    MEASURED = frozenset({"tree", "session", "refs"})
    ref: CallRef
    agent: str
    model: str
    prompt: Digest
    template: str
    """Name of the template in the pins."""
    whole: bool
    """False: the prompt is a continuation of the session."""
    session: str | None
    """Session to start (fresh) or to continue."""
    resumes: bool
    tree: Commit
    """Capture that the call starts from."""
    refs: Digest
    """Blob: JSON object of all refs, `.git/config` and hooks before the call, so that what moved is found after a
    crash too."""
    estimated_tokens: int
    """Input and output together: the prompt with the session that it goes on in, and a reply."""
    estimated_nanousd: int | None
    kept: bool = False
    """The feature's own session: later calls of its builder go on in it."""
    shown: tuple[str, ...] = ()
    """Marks of what the prompt shows, where the session is kept: later prompts of the session leave it out."""
    prompt_tokens: int | None = None
    """Estimate of the prompt alone, where it goes on in a session."""
    whole_tokens: int | None = None
    """The same of this prompt with everything in it."""
    counted: int | None = None
    """What the agent's API counted of the call's first request, the session included; None: it was not told."""


class SessionEnd(Enum):
    """Why a session cannot be continued."""

    ROLLBACK = "rollback"
    """The work that it tells of was taken back, by a rollback, a retry or a person."""
    LOST = "lost"
    """Nobody knows how its last call ended: the machine or `mz` died."""
    FAILED = "failed"
    """Its last call failed or was ended by us."""
    MISSING = "missing"
    """The agent does not know it: it was removed, or lies in another home or directory."""
    FORK = "fork"
    """It belongs to another run."""
    AGENT = "agent"
    """Another agent goes on."""
    MODEL = "model"
    """Another model goes on."""
    ELSEWHERE = "elsewhere"
    """Its last call was answered from a recording, and the agent itself never had it."""


class SessionBroken(Event, frozen=True, kw_only=True, tag="session.broken"):
    """The next prompt is whole, in a new session."""

    ROLE = Role.DERIVED
    MEASURED = frozenset({"session"})
    key: str
    """Of the call that would have gone on in it."""
    session: str
    reason: SessionEnd


class AgentSwitched(Event, frozen=True, kw_only=True, tag="agent.switched"):
    """Failover: the feature goes on with the next agent of the settings."""

    ROLE = Role.DERIVED
    ref: CallRef
    """The call after which it was given up."""
    source: str
    to: str
    code: str
    """The problem that the agent met."""


class AgentReplied(Event, frozen=True, kw_only=True, tag="agent.replied"):
    """Outcome, at the boundary: what came out, uninterpreted."""

    ROLE = Role.OUTCOME
    MEASURED = frozenset({"stdout", "stderr", "duration_ms", "tree", "salvaged", "exit", "version"})
    ref: CallRef
    stdout: Digest
    stderr: Digest
    exit: int | None
    """None where the call was salvaged from its spool after a crash. Negative: the signal that ended it."""
    duration_ms: int
    tree: Commit
    """Capture after the call."""
    offences: tuple[Offence, ...] = ()
    """Seen at capture: what no tree can hold, and commits of its own."""
    salvaged: bool = False
    version: str = ""
    """Of the agent's CLI, as `check_auth` or the stream told it."""


class AgentFailed(Event, frozen=True, kw_only=True, tag="agent.failed"):
    """The call was ended by us, or never began."""

    ROLE = Role.OUTCOME
    MEASURED = frozenset({"stdout", "stderr", "duration_ms", "tree"})
    ref: CallRef
    problem: Problem
    stdout: Digest
    stderr: Digest
    duration_ms: int
    tree: Commit


class AgentLost(Event, frozen=True, kw_only=True, tag="agent.lost"):
    """Outcome of an intent that a crash left open and whose end is nowhere to be found."""

    ROLE = Role.OUTCOME
    MEASURED = frozenset({"stdout"})
    ref: CallRef
    stdout: Digest
    """What the spool held."""


class ReplyRead(Event, frozen=True, kw_only=True, tag="reply.read"):
    """What the adapter's parser made of the output. A better parser appends a newer one; the last one counts."""

    ROLE = Role.DERIVED
    MEASURED = frozenset({"session", "text"})
    ref: CallRef
    parser: str
    """`adapter/version`."""
    terminal: str
    """success, error, or no-terminal."""
    session: str | None
    usage: tuple[Usage, ...] = ()
    reported_nanousd: int | None = None
    text: Digest
    """Blob: the final text."""
    problem: Problem | None = None
    bad_lines: int = 0


class CallPriced(Event, frozen=True, kw_only=True, tag="call.priced"):
    ROLE = Role.DERIVED
    key: str
    computed_nanousd: int | None
    """None: nothing is known of the usage, or at least one model has no price."""
    unpriced: tuple[str, ...] = ()
    prices: str = ""
    """Name, version and digest of the price table."""


class CallSettled(Event, frozen=True, kw_only=True, tag="call.settled"):
    """The reservation is replaced by the worst of what is known; in both streams."""

    ROLE = Role.DERIVED
    feature: FeatureId
    key: str
    nanousd: int
