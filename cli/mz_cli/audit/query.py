"""`mz audit`: the audit of a run and the verification of its log, as one JSON document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mz_events.catalog.validation import ArtifactValidated, CommandRan, GateChecked
from mz_events.store import Recorded
from mz_projections.audit.model import ArtifactMade, FeatureAudit, Gap, GateDecision, RunAudit, broken_rules
from mz_projections.cost.totals import Totals
from mz_projections.views.messages import Decision
from mz_projections.views.model import ArtifactView, CommitView, Landing
from mz_projections.views.timeline import Line

from mz_cli.app.context import TextLoader
from mz_cli.common.feature_query import report_messages
from mz_cli.common.verification import IntegrityResult, VerifyResult
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.text import single_line


class RequestedItemShape(Shape, frozen=True, kw_only=True):
    """An item of the backlog as the run read it."""

    title: str
    source: str | None
    body_digest: str | None
    skipped_for: str | None
    """The earlier run's delivery because of which the item was skipped."""
    event_ref: str


class CommitEvidence(CommitView, frozen=True, kw_only=True):
    event_ref: str


class TestEvidence(Shape, frozen=True, kw_only=True):
    """Test counts of one command of mz.yaml."""

    name: str
    passed: int
    failed: int
    new_failures: int | None
    """Failed tests whose failure is not known from the base or accepted by a person; null: not compared."""
    missing: tuple[str, ...]
    """Tests that passed on the base and now neither pass nor fail, as reports name them."""
    event_ref: str


class CommandEvidence(Shape, frozen=True, kw_only=True):
    """The process whose result decided a gate."""

    stage: str
    """`gate`, or `setup`: it failed, so the gate did not run."""
    name: str
    exit: int | None
    """Null: killed at its time limit."""
    passed: int | None
    failed: int | None
    new_failures: int | None
    duration_ms: int
    environment: str | None
    """Digest of the set-up of the clean checkout, and of the files that the set-up reads; null: it has no set-up."""
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
    judged_by: str | None
    """Key, without the run, of the call of the reviewer that judged; null: mz checked it itself."""
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


class ArtifactEvidence(ArtifactView, frozen=True, kw_only=True):
    """A current artifact: the agent, prompt and cost that produced it."""

    agent: str | None
    model: str | None
    attempt: int | None
    prompt_digest: str | None
    template: str | None
    estimated_nanousd: int | None
    reported_nanousd: int | None
    computed_nanousd: int | None
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
    recorded_at_us: int
    reason: str | None
    phase: str | None
    head: str | None
    """For a revision: the last commit of people that the branch had; null: none."""
    question_kind: str | None
    """Kind of the question; null: none was open."""
    code: str | None
    question: str | None
    event_ref: str


class GapShape(Gap, frozen=True, kw_only=True):
    """Missing evidence, or an event that should not have happened; see docs/audit.md."""

    fault: bool
    """The gap makes the verdict no."""


class AuditFeature(Shape, frozen=True, kw_only=True):
    id: str
    status: str
    code: str | None
    requested_item: RequestedItemShape | None
    branch: str | None
    target: str | None
    pull_request: str | None
    landed: Landing | None
    """Where the branch was merged into its target."""
    tags: tuple[str, ...]
    changed_paths: tuple[str, ...]
    """Files that differ from the feature's starting commit; set once it is delivered."""
    commits: tuple[CommitEvidence, ...]
    tests_before: tuple[TestEvidence, ...]
    tests_after: tuple[TestEvidence, ...]
    artifacts: tuple[ArtifactEvidence, ...]
    replies: tuple[ReplyEvidence, ...]
    gates: tuple[GateEvidence, ...]
    decisions: tuple[DecisionEvidence, ...]
    cost: Totals
    wasted: Totals
    event_ref: str | None
    """The feature's last event."""


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
    process_running: bool
    """As in mz.status/1."""
    pipeline: str
    base: str
    base_commit: str
    mz_version: str
    isolation: tuple[str, ...]
    """Levels of isolation that agents and commands had; empty: unknown."""
    started_event_ref: str
    """Event that started the run."""
    last_event_ref: str
    """Last event of the run's own stream."""
    record: IntegrityResult
    """Integrity of the run's events and of the blobs that they cite."""
    setting_changes: dict[str, tuple[str, ...]]
    """Corrected settings that a resume took over, as lines of a diff, by event ref."""
    gaps: tuple[GapShape, ...]
    decisions: tuple[DecisionEvidence, ...]
    """Decisions on the run as a whole."""
    features: tuple[AuditFeature, ...]
    cost: Totals
    wasted: Totals
    timeline: tuple[Line, ...]


def audit_report(
    audit: RunAudit,
    record: VerifyResult,
    timeline: Iterable[Line],
    repository: str,
    feature: str | None,
    load_text: TextLoader,
    process_running: bool,
    setting_changes: dict[str, tuple[str, ...]],
) -> AuditReport:
    """Return the document. `record`: result of verifying the run's events and blobs; `feature`: the only one included,
    or None for all; `process_running`: a process drives the run."""
    return shape_of(
        AuditReport,
        audit.view,
        repository=repository,
        feature=feature,
        process_running=process_running,
        setting_changes=setting_changes,
        verdict="yes" if record.intact and not audit.faults else "no",
        started_event_ref=audit.started_ref,
        last_event_ref=audit.last_ref,
        record=shape_of(IntegrityResult, record),
        gaps=tuple(shape_of(GapShape, gap) for gap in audit.all_gaps),
        decisions=tuple(_decision_shape(decision, load_text) for decision in audit.decisions),
        features=tuple(_feature_shape(audited, load_text) for audited in audit.features),
        cost=audit.spending.total,
        wasted=audit.spending.wasted,
        timeline=tuple(timeline),
    )


def _feature_shape(feature: FeatureAudit, load_text: TextLoader) -> AuditFeature:
    item = feature.requested
    return shape_of(
        AuditFeature,
        feature.view,
        id=feature.view.feature,
        requested_item=shape_of(RequestedItemShape, item, title=single_line(load_text(item.title))) if item else None,
        commits=tuple(shape_of(CommitEvidence, made.event, made, request) for request, made in feature.commits),
        tests_before=tuple(_tests(ran, load_text) for ran in feature.tests_before),
        tests_after=tuple(_tests(ran, load_text) for ran in feature.tests_after),
        artifacts=tuple(map(_artifact_shape, feature.artifacts)),
        replies=tuple(_reply_shape(reply, load_text) for reply in feature.replies),
        gates=tuple(_gate_shape(gate, load_text) for gate in feature.gates),
        decisions=tuple(_decision_shape(decision, load_text) for decision in feature.decisions),
        cost=feature.spending.total,
        wasted=feature.spending.wasted,
        event_ref=feature.last_ref or None,
    )


def _tests(ran: Recorded[CommandRan], load_text: TextLoader) -> TestEvidence:
    event, missing = ran.event, report_messages(load_text(ran.event.missing))
    return shape_of(TestEvidence, event, ran, passed=event.passed or 0, failed=event.failed or 0, missing=missing)


def _artifact_shape(artifact: ArtifactMade) -> ArtifactEvidence:
    parsed, call = artifact
    request_event_ref, prompt_digest = (call.event_ref, call.prompt) if call else (None, None)
    values = {"request_event_ref": request_event_ref, "prompt_digest": prompt_digest}
    return shape_of(ArtifactEvidence, parsed.event, parsed, call, **values)


def _verdict_values(event: ArtifactValidated | GateChecked, load_text: TextLoader) -> dict[str, Any]:
    return {"rules": broken_rules(event.violations), "messages": report_messages(load_text(event.report))}


def _reply_shape(reply: Recorded[ArtifactValidated], load_text: TextLoader) -> ReplyEvidence:
    values = _verdict_values(reply.event, load_text)
    return shape_of(ReplyEvidence, reply.event.ref, reply, valid=not reply.event.violations, **values)


def _gate_shape(gate: GateDecision, load_text: TextLoader) -> GateEvidence:
    checked, ran = gate
    command = shape_of(CommandEvidence, ran.event, ran, output_digest=ran.event.output) if ran else None
    return shape_of(GateEvidence, checked.event, checked, command=command, **_verdict_values(checked.event, load_text))


def _decision_shape(decision: Decision, load_text: TextLoader) -> DecisionEvidence:
    question = decision.question
    return shape_of(
        DecisionEvidence,
        decision,
        question,
        actor=single_line(load_text(decision.actor)) or "unknown",
        reason=load_text(decision.note) or None,
        phase=decision.phase or (question.phase if question else None) or None,
        head=decision.commits.head if decision.commits else None,
        question=question.event_ref if question else None,
    )
