"""JSON documents of `mz audit --verify` and `mz audit`."""

from __future__ import annotations

from mz_projections.cost.totals import Totals

from mz_cli.common.verification import IntegrityFinding
from mz_cli.terminal.json import Shape


class IntegrityResult(Shape, frozen=True, kw_only=True):
    """Result of checking the log's integrity."""

    intact: bool
    """No damage was found."""
    events: int
    streams: int
    blobs: int
    findings: tuple[IntegrityFinding, ...]


class VerifyResult(IntegrityResult, frozen=True, kw_only=True):
    """`mz audit --verify --json`."""

    repository: str
    run: str | None
    """Null: the whole log."""
    elsewhere: int
    """Number of findings in other runs."""


class RequestedItemShape(Shape, frozen=True, kw_only=True):
    """An item of the backlog as the run read it."""

    title: str
    source: str | None
    body_digest: str | None
    skipped: str | None
    """The earlier run's delivery because of which the item was skipped."""
    event_ref: str


class CommitEvidence(Shape, frozen=True, kw_only=True):
    commit: str
    phase: str
    unit: str | None
    purpose: str
    """work, or restore: the tree was reset to an earlier state."""
    files: int
    insertions: int
    deletions: int
    event_ref: str


class TestEvidence(Shape, frozen=True, kw_only=True):
    """Test counts of one command of mz.yaml."""

    name: str
    passed: int
    failed: int
    event_ref: str


class CommandEvidence(Shape, frozen=True, kw_only=True):
    """The process whose result decided a gate."""

    name: str
    exit: int | None
    """Null: killed at its time limit."""
    passed: int | None
    failed: int | None
    duration_ms: int
    output_digest: str
    event_ref: str


class GateEvidence(Shape, frozen=True, kw_only=True):
    phase: str
    unit: str | None
    gate: str
    passed: bool
    rules: tuple[str, ...]
    """Rules that were broken."""
    messages: tuple[str, ...]
    command: CommandEvidence | None
    """Null: a rule over artifacts and tree decided."""
    event_ref: str


class ReplyEvidence(Shape, frozen=True, kw_only=True):
    """Verdict of the rules on the artifacts of one reply."""

    phase: str
    unit: str | None
    iteration: int
    attempt: int
    role: str
    valid: bool
    rules: tuple[str, ...]
    messages: tuple[str, ...]
    event_ref: str


class ArtifactEvidence(Shape, frozen=True, kw_only=True):
    """A current artifact: the agent, prompt and cost that produced it."""

    artifact: str
    phase: str
    unit: str | None
    path: str | None
    """Null: the artifact is the reply itself."""
    digest: str
    agent: str | None
    model: str | None
    attempt: int | None
    prompt_digest: str | None
    template: str | None
    estimated_usd: str | None
    reported_usd: str | None
    computed_usd: str | None
    """Cost of the call that produced it."""
    event_ref: str
    """Event that recorded the artifact."""
    request_event_ref: str | None
    """Event of the agent's request."""


class DecisionEvidence(Shape, frozen=True, kw_only=True):
    """A person's decision."""

    kind: str
    """answer, cancel or retry."""
    verdict: str | None
    """For an answer: approve, retry or reject."""
    actor: str
    at: str | None
    why: str | None
    phase: str | None
    question_kind: str | None
    """Kind of the question; null: none was open."""
    code: str | None
    question: str | None
    event_ref: str


class GapShape(Shape, frozen=True, kw_only=True):
    """Missing evidence, or an event that should not have happened."""

    kind: str
    """See docs/audit.md."""
    feature: str | None
    """Null: the gap concerns the run."""
    what: str
    fault: bool
    """The gap makes the verdict no."""
    allowed: str | None
    """Event of the person's decision that permits it."""
    event_refs: tuple[str, ...]


class AuditFeature(Shape, frozen=True, kw_only=True):
    id: str
    status: str
    code: str | None
    requested_item: RequestedItemShape | None
    branch: str | None
    target: str | None
    pull_request: str | None
    files: tuple[str, ...]
    """Files that differ from the feature's starting commit; set once it is delivered."""
    commits: tuple[CommitEvidence, ...]
    tests_before: tuple[TestEvidence, ...]
    tests_after: tuple[TestEvidence, ...]
    artifacts: tuple[ArtifactEvidence, ...]
    replies: tuple[ReplyEvidence, ...]
    gates: tuple[GateEvidence, ...]
    decisions: tuple[DecisionEvidence, ...]
    cost: Totals
    thrown_away: Totals
    event_ref: str | None
    """The feature's last event."""


class TimelineEntry(Shape, frozen=True, kw_only=True):
    at: str | None
    event_ref: str
    type: str
    text: str


class AuditReport(Shape, frozen=True, kw_only=True):
    """`mz audit --json`."""

    repository: str
    run: str
    feature: str | None
    """With `--feature`: the only feature reported."""
    verdict: str
    """yes or no."""
    status: str
    """As in mz.status/1."""
    pipeline: str
    base: str
    base_commit: str
    mz: str
    begun: str
    """Event that started the run."""
    settled: str
    """Last event of the run's own stream."""
    record: IntegrityResult
    """Integrity of the run's events and of the blobs that they cite."""
    gaps: tuple[GapShape, ...]
    decisions: tuple[DecisionEvidence, ...]
    """Decisions on the run as a whole."""
    features: tuple[AuditFeature, ...]
    cost: Totals
    thrown_away: Totals
    timeline: tuple[TimelineEntry, ...]
