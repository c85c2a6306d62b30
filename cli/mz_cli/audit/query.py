"""`mz audit`: the audit of a run and the verification of its log, as one JSON document."""

from __future__ import annotations

from collections.abc import Iterable

from mz_projections.audit.model import (
    ArtifactMade,
    CommitMade,
    FeatureAudit,
    Gap,
    GateDecision,
    ReplyDecision,
    RunAudit,
    TestCounts,
)
from mz_projections.views.messages import Decision
from mz_projections.views.timeline import Line

from mz_cli.app.context import TextLoader
from mz_cli.audit.json import (
    ArtifactEvidence,
    AuditFeature,
    AuditReport,
    CommandEvidence,
    CommitEvidence,
    DecisionEvidence,
    GapShape,
    GateEvidence,
    IntegrityResult,
    ReplyEvidence,
    RequestedItemShape,
    TestEvidence,
    TimelineEntry,
)
from mz_cli.common.feature_query import report_messages
from mz_cli.common.verification import Verification
from mz_cli.cost.report import amounts
from mz_cli.terminal.text import exact_usd, iso_time, single_line


def audit_report(
    audit: RunAudit,
    record: Verification,
    timeline: Iterable[Line],
    repository: str,
    feature: str | None,
    load_text: TextLoader,
) -> AuditReport:
    """Return the document. `record`: result of verifying the run's events and blobs; `feature`: the only one included,
    or None for all."""
    is_intact = record.is_intact and not audit.faults
    return AuditReport(
        repository=repository,
        run=audit.run,
        feature=feature,
        verdict="yes" if is_intact else "no",
        status=audit.status,
        pipeline=audit.pipeline,
        base=audit.base,
        base_commit=audit.base_commit,
        mz=audit.mz_version,
        begun=audit.started_ref,
        settled=audit.last_ref,
        record=checked_record(record),
        gaps=tuple(_gap_shape(gap) for gap in audit.all_gaps),
        decisions=tuple(_decision_shape(decision, load_text) for decision in audit.decisions),
        features=tuple(_feature_shape(audited, load_text) for audited in audit.features),
        cost=amounts(audit.spending.total),
        thrown_away=amounts(audit.spending.wasted),
        timeline=tuple(
            TimelineEntry(at=iso_time(entry.at_us), event_ref=entry.event_ref, type=entry.type, text=entry.text)
            for entry in timeline
        ),
    )


def checked_record(record: Verification) -> IntegrityResult:
    return IntegrityResult(
        intact=record.is_intact, events=record.events, streams=record.streams, blobs=record.blobs,
        findings=record.findings,
    )  # fmt: skip


def _gap_shape(gap: Gap) -> GapShape:
    return GapShape(
        kind=gap.kind,
        feature=gap.feature or None,
        what=gap.message,
        fault=gap.is_fault,
        allowed=gap.allowed_by or None,
        event_refs=gap.event_refs,
    )


def _feature_shape(feature: FeatureAudit, load_text: TextLoader) -> AuditFeature:
    item = feature.requested
    return AuditFeature(
        id=feature.feature,
        status=feature.status,
        code=feature.code or None,
        requested_item=RequestedItemShape(
            title=single_line(load_text(item.title)),
            source=item.source or None,
            body_digest=item.body,
            skipped=item.skipped_for or None,
            event_ref=item.event_ref,
        )
        if item
        else None,
        branch=feature.branch or None,
        target=feature.target or None,
        pull_request=feature.pull_request or None,
        files=feature.changed_paths,
        commits=tuple(map(_commit, feature.commits)),
        tests_before=tuple(map(_tests, feature.tests_before)),
        tests_after=tuple(map(_tests, feature.tests_after)),
        artifacts=tuple(map(_artifact_shape, feature.artifacts)),
        replies=tuple(_reply_shape(reply, load_text) for reply in feature.replies),
        gates=tuple(_gate_shape(gate, load_text) for gate in feature.gates),
        decisions=tuple(_decision_shape(decision, load_text) for decision in feature.decisions),
        cost=amounts(feature.spending.total),
        thrown_away=amounts(feature.spending.wasted),
        event_ref=feature.last_ref or None,
    )


def _commit(commit: CommitMade) -> CommitEvidence:
    return CommitEvidence(
        commit=commit.commit, phase=commit.phase, unit=commit.unit or None, purpose=commit.purpose, files=commit.files,
        insertions=commit.insertions, deletions=commit.deletions, event_ref=commit.event_ref,
    )  # fmt: skip


def _tests(tests: TestCounts) -> TestEvidence:
    return TestEvidence(name=tests.name, passed=tests.passed, failed=tests.failed, event_ref=tests.event_ref)


def _artifact_shape(artifact: ArtifactMade) -> ArtifactEvidence:
    call = artifact.call.call if artifact.call else None
    return ArtifactEvidence(
        artifact=artifact.artifact,
        phase=artifact.phase,
        unit=artifact.unit or None,
        path=artifact.path,
        digest=artifact.digest,
        agent=call.agent if call else None,
        model=call.model if call else None,
        attempt=call.attempt if call else None,
        prompt_digest=artifact.prompt,
        template=artifact.template or None,
        estimated_usd=exact_usd(call.estimated_nanousd) if call else None,
        reported_usd=exact_usd(call.reported_nanousd) if call else None,
        computed_usd=exact_usd(call.computed_nanousd) if call else None,
        event_ref=artifact.event_ref,
        request_event_ref=artifact.request_ref or None,
    )


def _reply_shape(reply: ReplyDecision, load_text: TextLoader) -> ReplyEvidence:
    return ReplyEvidence(
        phase=reply.phase,
        unit=reply.unit or None,
        iteration=reply.iteration,
        attempt=reply.attempt,
        role=reply.role,
        valid=not reply.broken_rules,
        rules=reply.broken_rules,
        messages=report_messages(load_text(reply.report)),
        event_ref=reply.event_ref,
    )


def _gate_shape(gate: GateDecision, load_text: TextLoader) -> GateEvidence:
    command = gate.command
    return GateEvidence(
        phase=gate.phase, unit=gate.unit or None, gate=gate.gate, passed=gate.passed, rules=gate.broken_rules,
        messages=report_messages(load_text(gate.report)), event_ref=gate.event_ref,
        command=CommandEvidence(
            name=command.name, exit=command.exit, passed=command.passed, failed=command.failed,
            duration_ms=command.duration_ms, output_digest=command.output, event_ref=command.event_ref,
        ) if command else None,
    )  # fmt: skip


def _decision_shape(decision: Decision, load_text: TextLoader) -> DecisionEvidence:
    question = decision.question
    return DecisionEvidence(
        kind=decision.kind,
        verdict=decision.verdict.value if decision.verdict else None,
        actor=single_line(load_text(decision.actor)) or "unknown",
        at=iso_time(decision.at_us),
        why=load_text(decision.note) or None,
        phase=decision.phase or (question.phase if question else None) or None,
        question_kind=question.question_kind.value if question else None,
        code=(question.code if question else "") or None,
        question=question.event_ref if question else None,
        event_ref=decision.event_ref,
    )
