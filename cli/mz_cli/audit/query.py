"""`mz audit`: the audit of a run and the verification of its log, as one JSON document."""

from __future__ import annotations

from collections.abc import Iterable

from mz_events.catalog.validation import ArtifactValidated, CommandRan
from mz_events.envelope import Recorded
from mz_projections.audit.model import ArtifactMade, CommitMade, FeatureAudit, Gap, GateDecision, RunAudit, broken_rules
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
from mz_cli.terminal.json import shape_of
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
        run=audit.view.run,
        feature=feature,
        verdict="yes" if is_intact else "no",
        status=audit.view.status,
        pipeline=audit.view.pipeline,
        base=audit.view.base,
        base_commit=audit.view.base_commit,
        mz=audit.view.mz_version,
        begun=audit.started_ref,
        settled=audit.last_ref,
        record=checked_record(record),
        gaps=tuple(_gap_shape(gap) for gap in audit.all_gaps),
        decisions=tuple(_decision_shape(decision, load_text) for decision in audit.decisions),
        features=tuple(_feature_shape(audited, load_text) for audited in audit.features),
        cost=audit.spending.total,
        thrown_away=audit.spending.wasted,
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
    view, item = feature.view, feature.requested
    return AuditFeature(
        id=view.feature,
        status=view.status,
        code=view.code or None,
        requested_item=RequestedItemShape(
            title=single_line(load_text(item.title)),
            source=item.source or None,
            body_digest=item.body,
            skipped=item.skipped_for or None,
            event_ref=item.event_ref,
        )
        if item
        else None,
        branch=view.branch or None,
        target=view.target or None,
        pull_request=view.pull_request or None,
        files=view.changed_paths,
        commits=tuple(map(_commit, feature.commits)),
        tests_before=tuple(map(_tests, feature.tests_before)),
        tests_after=tuple(map(_tests, feature.tests_after)),
        artifacts=tuple(map(_artifact_shape, feature.artifacts)),
        replies=tuple(_reply_shape(reply, load_text) for reply in feature.replies),
        gates=tuple(_gate_shape(gate, load_text) for gate in feature.gates),
        decisions=tuple(_decision_shape(decision, load_text) for decision in feature.decisions),
        cost=feature.spending.total,
        thrown_away=feature.spending.wasted,
        event_ref=feature.last_ref or None,
    )


def _commit(commit: CommitMade) -> CommitEvidence:
    request, committed = commit.request, commit.committed
    return shape_of(
        CommitEvidence,
        committed.event,
        phase=request.phase,
        unit=request.unit or None,
        purpose=request.purpose,
        event_ref=committed.event_ref,
    )


def _tests(ran: Recorded[CommandRan]) -> TestEvidence:
    passed, failed = ran.event.passed or 0, ran.event.failed or 0
    return TestEvidence(name=ran.event.name, passed=passed, failed=failed, event_ref=ran.event_ref)


def _artifact_shape(artifact: ArtifactMade) -> ArtifactEvidence:
    call = artifact.call
    return shape_of(
        ArtifactEvidence,
        artifact.parsed.event,
        agent=call.agent if call else None,
        model=call.model if call else None,
        attempt=call.attempt if call else None,
        prompt_digest=call.prompt if call else None,
        template=(call.template if call else "") or None,
        estimated_usd=exact_usd(call.estimated_nanousd) if call else None,
        reported_usd=exact_usd(call.reported_nanousd) if call else None,
        computed_usd=exact_usd(call.computed_nanousd) if call else None,
        event_ref=artifact.parsed.event_ref,
        request_event_ref=call.event_ref if call else None,
    )


def _reply_shape(reply: Recorded[ArtifactValidated], load_text: TextLoader) -> ReplyEvidence:
    rules = broken_rules(reply.event.violations)
    return shape_of(
        ReplyEvidence,
        reply.event.ref,
        valid=not rules,
        rules=rules,
        messages=report_messages(load_text(reply.event.report)),
        event_ref=reply.event_ref,
    )


def _gate_shape(gate: GateDecision, load_text: TextLoader) -> GateEvidence:
    checked, command = gate.checked, gate.command
    return shape_of(
        GateEvidence,
        checked.event,
        rules=broken_rules(checked.event.violations),
        messages=report_messages(load_text(checked.event.report)),
        command=shape_of(
            CommandEvidence, command.event, output_digest=command.event.output, event_ref=command.event_ref
        )
        if command
        else None,
        event_ref=checked.event_ref,
    )


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
