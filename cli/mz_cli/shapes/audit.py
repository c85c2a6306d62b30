"""Facts: the shapes of the JSON that vouches for a run: verify, audit."""

from __future__ import annotations

from mz_cli.shapes.base import Shape
from mz_cli.shapes.cost import Amounts


class FindingShape(Shape, frozen=True, kw_only=True):
    """One thing that is not as it was recorded."""

    place: str
    """`stream@version`, or `log`."""
    kind: str
    """chain, event, blob or file."""
    what: str
    hint: str


class Checked(Shape, frozen=True, kw_only=True):
    """What was checked of the record."""

    whole: bool
    """Nothing was found."""
    events: int
    streams: int
    blobs: int
    findings: tuple[FindingShape, ...]


class VerifyResult(Checked, frozen=True, kw_only=True):
    """`mz verify --json`."""

    repository: str
    run: str | None
    """Null: the whole log."""
    elsewhere: int
    """Findings in other runs than this one."""


class AskedShape(Shape, frozen=True, kw_only=True):
    """An item of the backlog, as it was read."""

    title: str
    source: str | None
    body_digest: str | None
    skipped: str | None
    """The delivery by an earlier run because of which nothing was done."""
    place: str


class CommitEvidence(Shape, frozen=True, kw_only=True):
    commit: str
    phase: str
    unit: str | None
    purpose: str
    """work, or restore: an earlier tree that was put back."""
    files: int
    insertions: int
    deletions: int
    place: str


class CountedTests(Shape, frozen=True, kw_only=True):
    """What one command of mz.yaml counted."""

    name: str
    passed: int
    failed: int
    place: str


class CommandEvidence(Shape, frozen=True, kw_only=True):
    """The process that a gate decided on."""

    name: str
    exit: int | None
    """Null: killed at its time limit."""
    passed: int | None
    failed: int | None
    duration_ms: int
    output_digest: str
    place: str


class GateShape(Shape, frozen=True, kw_only=True):
    phase: str
    unit: str | None
    gate: str
    passed: bool
    rules: tuple[str, ...]
    """Broken ones."""
    messages: tuple[str, ...]
    command: CommandEvidence | None
    """Null: a rule decided, over artifacts and tree."""
    place: str


class ReplyShape(Shape, frozen=True, kw_only=True):
    """The rules' answer to what an agent handed over."""

    phase: str
    unit: str | None
    iteration: int
    attempt: int
    role: str
    valid: bool
    rules: tuple[str, ...]
    messages: tuple[str, ...]
    place: str


class MadeShape(Shape, frozen=True, kw_only=True):
    """An artifact that stands, and who made it out of what for how much."""

    artifact: str
    phase: str
    unit: str | None
    path: str | None
    """Null: it is the reply itself."""
    digest: str
    agent: str | None
    model: str | None
    attempt: int | None
    prompt_digest: str | None
    template: str | None
    estimated_usd: str | None
    reported_usd: str | None
    computed_usd: str | None
    """Of the call that made it."""
    place: str
    """Where it was taken in."""
    asked: str | None
    """Where the agent was asked for it."""


class DecisionShape(Shape, frozen=True, kw_only=True):
    """What a person decided."""

    kind: str
    """answer, cancel or retry."""
    verdict: str | None
    """Of an answer: approve, retry or reject."""
    who: str
    at: str | None
    why: str | None
    phase: str | None
    ask: str | None
    """What was asked; null: nothing was."""
    code: str | None
    question: str | None
    place: str


class GapShape(Shape, frozen=True, kw_only=True):
    """Something that is missing, or that happened and should not have."""

    kind: str
    """See docs/audit.md."""
    feature: str | None
    """Null: it concerns the run."""
    what: str
    fault: bool
    """It makes the verdict no."""
    allowed: str | None
    """Place of the decision of a person that lets it pass."""
    places: tuple[str, ...]


class AuditFeature(Shape, frozen=True, kw_only=True):
    id: str
    status: str
    code: str | None
    asked: AskedShape | None
    branch: str | None
    target: str | None
    pull_request: str | None
    files: tuple[str, ...]
    """That differ from where the feature began; known once it is delivered."""
    commits: tuple[CommitEvidence, ...]
    tests_before: tuple[CountedTests, ...]
    tests_after: tuple[CountedTests, ...]
    artifacts: tuple[MadeShape, ...]
    replies: tuple[ReplyShape, ...]
    gates: tuple[GateShape, ...]
    decisions: tuple[DecisionShape, ...]
    cost: Amounts
    thrown_away: Amounts
    place: str | None
    """Of the last that was recorded of it."""


class TimelineEntry(Shape, frozen=True, kw_only=True):
    at: str | None
    place: str
    type: str
    text: str


class AuditReport(Shape, frozen=True, kw_only=True):
    """`mz audit --json`."""

    repository: str
    run: str
    feature: str | None
    """With `--feature`: what is said is about this one."""
    verdict: str
    """yes or no."""
    status: str
    """As in mz.status/1."""
    pipeline: str
    base: str
    base_commit: str
    mz: str
    begun: str
    """Place where the run was started."""
    settled: str
    """Place of the last event of the run's own stream."""
    record: Checked
    """Of what is recorded of the run: its events, and the blobs that they cite."""
    gaps: tuple[GapShape, ...]
    decisions: tuple[DecisionShape, ...]
    """On the run as a whole."""
    features: tuple[AuditFeature, ...]
    cost: Amounts
    thrown_away: Amounts
    timeline: tuple[TimelineEntry, ...]
