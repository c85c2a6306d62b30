"""Events of one agent call: intent, outcome, parsed reply, cost."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from mz_events.catalog.base import DerivedEvent, EventPart, IntentEvent, OutcomeEvent
from mz_events.names import Commit, Digest, FeatureId


class ProblemClass(Enum):
    """Class of a failed call; decides what happens next."""

    TRANSIENT = "transient"
    """Retry, after `retry_after_seconds` if known."""
    PHASE = "phase"
    """The reply is unusable; retry."""
    FATAL = "fatal"
    """Every other call would fail too: the run halts."""
    UNKNOWN = "unknown"
    """Treated as `phase`."""
    NEEDS_PERSON = "needs-person"
    """The agent asks for a person."""


class CallRef(EventPart, frozen=True, kw_only=True):
    """Identifies a call within a run."""

    key: str
    """`run/feature/phase/unit/iteration/attempt/agent.role`; an empty unit is written `-`."""
    phase: str
    unit: str
    iteration: int
    attempt: int
    """From 1, per phase, unit and role. Counts every request of this iteration, failed and lost ones too."""
    role: str
    """`builder` is the phase's own agent; a review names its role."""


class Usage(EventPart, frozen=True, kw_only=True):
    """Tokens of one model request, or of all requests to one model if the agent reports only sums."""

    model: str
    input: int
    """All input: uncached, cache reads and cache writes."""
    output: int
    """Reasoning included."""
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    requests: int | None = None
    """Number of requests summed up here; None: unknown."""
    tier: str = ""
    """Service tier named by the API if not the standard one: batch, flex, priority, fast."""
    subagent: str = ""
    """Name of the subagent that made these requests; empty: the main conversation, or not reported."""


class Problem(EventPart, frozen=True, kw_only=True):
    kind: ProblemClass
    code: str
    """For example rate-limit, auth-failure, tool-missing, timeout, idle, no-terminal, agent-blocker, exit-N."""
    retry_after_seconds: int | None = None
    detail: Digest | None = None
    """Blob: the agent's own message, redacted."""


class ForbiddenChange(EventPart, frozen=True, kw_only=True):
    """A change by the agent outside its write scope."""

    kind: Literal["outside", "denied", "special", "nested-git", "too-big", "secret", "hidden"]
    """Outside the phase's write scope; on a denied path; FIFO or device; a nested repository; over 50 MB; a file that
    contains a secret; in the place of a file that the agent does not see."""
    path: str
    size_bytes: int | None = None


class SkillUse(EventPart, frozen=True, kw_only=True, omit_defaults=True):
    """A skill of a call."""

    name: str
    version: str = ""
    form: Literal["text", "native", "left-out"] = "text"
    """In the prompt; as a file that the agent's program loads; or not given: its condition does not hold."""


class CallReserved(DerivedEvent, frozen=True, kw_only=True, tag="call.reserved"):
    """Money reserved for a call; in the run's and the feature's stream, in one transaction with the request."""

    SCHEMA = 2
    feature: FeatureId
    key: str
    nanousd: int | None
    """None: the model has no price, so nothing could be reserved."""
    tokens: int = 0


class CallOverBudget(DerivedEvent, frozen=True, kw_only=True, tag="call.over-budget"):
    """The remaining budget is too small for the call; in both streams."""

    SCHEMA = 2
    feature: FeatureId
    key: str
    role: str
    """Role of the agent to call."""
    nanousd: int | None
    tokens: int = 0
    budget: str = ""
    """Which budget, as its setting is called, such as `day_tokens`; empty: an older mz did not say."""
    limit: int = 0
    """Nano-dollars, or tokens; so is `committed`."""
    committed: int = 0
    """Charged and reserved before the call; of the day, by all runs of the user."""
    until_us: int | None = None
    """When the call fits into the budget of the day if nothing else is spent; None: not by waiting."""


class ContextPart(EventPart, frozen=True, kw_only=True, omit_defaults=True):
    """What a prompt shows from one source."""

    source: str
    """persona, skill, request, unit, note, input, command, rework, failures, file or learning; instructions: everything
    else, such as the rules."""
    name: str = ""
    """Such as an artifact or a path; empty: the source has no parts."""
    tokens: int = 0
    """Estimate: characters / 4."""
    left_out: bool = False
    """It did not fit: the prompt does not show it."""


class ComposedLearning(EventPart, frozen=True, kw_only=True, omit_defaults=True):
    """A learning that a call was given."""

    id: str
    kind: str = ""
    """Empty: an older mz did not say."""
    text: Digest
    is_repeated: bool = False
    """It is about the very failure that the call has to fix."""


class LearningLeftOut(EventPart, frozen=True, kw_only=True):
    """A learning that concerns a call and that it was not given."""

    id: str
    reason: Literal["budget", "holdout", "suppressed", "archived", "expired", "withheld"]
    """Does not fit; left out to measure its effect; did not help; by a person; old; looks like an injection."""


class ContextComposed(OutcomeEvent, frozen=True, kw_only=True, omit_defaults=True, tag="context.composed"):
    """What the prompt of the request that follows consists of; the parts that are not left out add up to the prompt."""

    SCHEMA = 4
    key: str
    """Key of the call."""
    parts: tuple[ContextPart, ...] = ()
    tokens_max: int | None = None
    """Limit of the phase for all parts but the instructions; None: it has none."""
    over: int = 0
    """Tokens above the limit: what must not be left out is longer."""
    laid_out: tuple[ContextPart, ...] = ()
    """The files that the agent sees, if its phase names them, with their tokens; 0: not counted."""
    hidden_files: int = 0
    """Number of files that it does not see."""
    learnings: tuple[ComposedLearning, ...] = ()
    """From the memory as it was then: a replay reads them here. A continued session may have them already."""
    left_out: tuple[LearningLeftOut, ...] = ()


class AgentRequested(IntentEvent, frozen=True, kw_only=True, omit_defaults=True, tag="agent.requested"):
    """Intent, durable before anything is spawned, and appended once.

    Defaults are not written, so calls without a continued session have the same payload as before sessions existed.
    """

    SCHEMA = 6
    NON_DETERMINISTIC = frozenset({"tree", "session", "laid_out"})
    ref: CallRef
    agent: str
    model: str
    prompt: Digest
    template: str
    """Name of the template in the pins."""
    full_prompt: bool
    """False: the prompt is a continuation of the session."""
    session: str | None
    """Session to start or to continue."""
    resumes: bool
    tree: Commit
    """Capture that the call starts from."""
    estimated_tokens: int
    """Input and output: the prompt, the session that it continues, and a reply."""
    estimated_nanousd: int | None
    keeps_session: bool = False
    """This is the feature's own session: later calls of its builder continue it."""
    seen_marks: tuple[str, ...] = ()
    """Marks of the texts in the prompt, if the session is kept: later prompts of the session leave these out."""
    prompt_tokens: int | None = None
    """Estimate of the prompt without the session that it continues."""
    full_prompt_tokens: int | None = None
    """The same for the full prompt."""
    counted_tokens: int | None = None
    """Token count by the agent's API for the call's first request, session included; None: not reported."""
    escalated_to: str = ""
    """Tier, if it is better than the phase's own."""
    escalated_by: str = ""
    """Name of the condition that asked for it."""
    routed_to: str = ""
    """Tier that routing names, if no condition asked for a better one."""
    laid_out: Commit | None = None
    """Capture with only the files that the agent sees; None: all of `tree`."""
    card: str = ""
    """Card whose persona heads the prompt."""
    skills: tuple[SkillUse, ...] = ()

    @property
    def tier(self) -> str:
        """Return the tier, if it is not the phase's own."""
        return self.escalated_to or self.routed_to


class SessionDropReason(Enum):
    """Reason that a session cannot be continued."""

    ROLLBACK = "rollback"
    """Its work was undone by a rollback, a retry or a person."""
    LOST = "lost"
    """The end of its last call is unknown: the machine or `mz` died."""
    FAILED = "failed"
    """Its last call failed or was ended by us."""
    MISSING = "missing"
    """The agent does not know it: it was deleted, or is in another home or directory."""
    FORK = "fork"
    """It belongs to another run."""
    AGENT = "agent"
    """Another agent continues the work."""
    MODEL = "model"
    """Another model continues the work."""
    RECORDED = "recorded"
    """Its last call was replayed from a recording; the agent itself never had it."""


class SessionDropped(DerivedEvent, frozen=True, kw_only=True, tag="session.dropped"):
    """A session is no longer continued: the next prompt is a full one, in a new session."""

    NON_DETERMINISTIC = frozenset({"session"})
    key: str
    """Key of the call that would have continued it."""
    session: str
    reason: SessionDropReason


class AgentSwitched(DerivedEvent, frozen=True, kw_only=True, tag="agent.switched"):
    """Failover: the next agent of the settings continues the feature."""

    ref: CallRef
    """Last call of the agent that failed."""
    source: str
    to: str
    code: str
    """Code of that agent's problem."""


class AgentReplied(OutcomeEvent, frozen=True, kw_only=True, tag="agent.replied"):
    """Outcome: the agent's output, uninterpreted, as the process wrote it."""

    NON_DETERMINISTIC = frozenset({"stdout", "stderr", "duration_ms", "tree", "salvaged", "exit", "version"})
    ref: CallRef
    stdout: Digest
    stderr: Digest
    exit: int | None
    """None: the call was recovered from its spool after a crash. Negative: the signal that ended it."""
    duration_ms: int
    tree: Commit
    """Capture after the call."""
    forbidden_changes: tuple[ForbiddenChange, ...] = ()
    """Found at capture: content that no tree can hold, and the agent's own commits."""
    salvaged: bool = False
    version: str = ""
    """Version of the agent's CLI, from `check_auth` or the stream."""


class AgentFailed(OutcomeEvent, frozen=True, kw_only=True, tag="agent.failed"):
    """The call was ended by us, or never started."""

    NON_DETERMINISTIC = frozenset({"stdout", "stderr", "duration_ms", "tree"})
    ref: CallRef
    problem: Problem
    stdout: Digest
    stderr: Digest
    duration_ms: int
    tree: Commit


class AgentLost(OutcomeEvent, frozen=True, kw_only=True, tag="agent.lost"):
    """Outcome of an intent that a crash left open and whose end cannot be determined."""

    NON_DETERMINISTIC = frozenset({"stdout"})
    ref: CallRef
    stdout: Digest
    """Content of the spool."""


class ReplyParsed(DerivedEvent, frozen=True, kw_only=True, tag="reply.parsed"):
    """Result of parsing the output. A better parser appends a newer one; the last one counts."""

    NON_DETERMINISTIC = frozenset({"session", "text"})
    ref: CallRef
    parser: str
    """`adapter/version`."""
    ending: str
    """success, error, or no-terminal."""
    session: str | None
    usage: tuple[Usage, ...] = ()
    reported_nanousd: int | None = None
    text: Digest
    """Blob: the final text."""
    problem: Problem | None = None
    bad_lines: int = 0

    @property
    def is_question(self) -> bool:
        """True for a complete reply that asks a person something: a problem, but no failed call."""
        return self.ending == "success" and self.problem is not None and self.problem.kind is ProblemClass.NEEDS_PERSON


class CallPriced(DerivedEvent, frozen=True, kw_only=True, tag="call.priced"):
    key: str
    computed_nanousd: int | None
    """None: the usage is unknown, or at least one model has no price."""
    unpriced: tuple[str, ...] = ()
    prices: str = ""
    """Name, version and digest of the price table."""


class CallSettled(DerivedEvent, frozen=True, kw_only=True, tag="call.settled"):
    """The reservation is replaced by the charge, the highest of the known costs; in both streams."""

    SCHEMA = 2
    feature: FeatureId
    key: str
    nanousd: int
    tokens: int = 0
