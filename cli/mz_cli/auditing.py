"""`mz audit`: the audit of a run and the verification of its log, as one JSON document."""

from __future__ import annotations

from collections.abc import Iterable

from mz_projections.audit import (
    ArtifactMade,
    CommitMade,
    FeatureAudit,
    Gap,
    GateDecision,
    ReplyDecision,
    RunAudit,
    Tests,
)
from mz_projections.queue import Decision
from mz_projections.timeline import Line

from mz_cli.advice import Words
from mz_cli.costs import amounts
from mz_cli.detail import messages
from mz_cli.render.text import instant, line, usd
from mz_cli.shapes.audit import (
    AskedShape,
    AuditFeature,
    AuditReport,
    Checked,
    CommandEvidence,
    CommitEvidence,
    CountedTests,
    DecisionShape,
    FindingShape,
    GapShape,
    GateShape,
    MadeShape,
    ReplyShape,
    TimelineEntry,
)
from mz_cli.verification import Verification


def audit_report(
    audit: RunAudit, record: Verification, timeline: Iterable[Line], repository: str, feature: str | None, words: Words
) -> AuditReport:
    """Return the document. `record`: result of verifying the run's events and blobs; `feature`: the only one included,
    or None for all."""
    fine = record.whole and not audit.faults
    return AuditReport(
        repository=repository, run=audit.run, feature=feature, verdict="yes" if fine else "no", status=audit.status,
        pipeline=audit.pipeline, base=audit.base, base_commit=audit.base_commit, mz=audit.core, begun=audit.begun,
        settled=audit.settled, record=checked(record), gaps=tuple(_gap(gap) for gap in audit.all_gaps),
        decisions=tuple(_decision(decision, words) for decision in audit.decisions),
        features=tuple(_feature(audited, words) for audited in audit.features),
        cost=amounts(audit.spent.total), thrown_away=amounts(audit.spent.wasted),
        timeline=tuple(
            TimelineEntry(at=instant(entry.at_us), place=entry.place, type=entry.type, text=entry.text)
            for entry in timeline
        ),
    )  # fmt: skip


def checked(record: Verification) -> Checked:
    return Checked(
        whole=record.whole, events=record.events, streams=record.streams, blobs=record.blobs,
        findings=tuple(
            FindingShape(place=finding.place, kind=finding.kind, what=finding.what, hint=finding.hint)
            for finding in record.findings
        ),
    )  # fmt: skip


def _gap(gap: Gap) -> GapShape:
    return GapShape(
        kind=gap.kind, feature=gap.feature or None, what=gap.what, fault=gap.fault, allowed=gap.allowed or None,
        places=gap.places,
    )  # fmt: skip


def _feature(feature: FeatureAudit, words: Words) -> AuditFeature:
    asked = feature.asked
    return AuditFeature(
        id=feature.feature, status=feature.status, code=feature.code or None,
        asked=AskedShape(
            title=line(words(asked.title)), source=asked.source or None, body_digest=asked.body,
            skipped=asked.skipped or None, place=asked.place,
        ) if asked else None,
        branch=feature.branch or None, target=feature.target or None, pull_request=feature.pull_request or None,
        files=feature.touched,
        commits=tuple(map(_commit, feature.commits)), tests_before=tuple(map(_tests, feature.before)),
        tests_after=tuple(map(_tests, feature.after)), artifacts=tuple(map(_made, feature.artifacts)),
        replies=tuple(_reply(reply, words) for reply in feature.replies),
        gates=tuple(_gate(gate, words) for gate in feature.gates),
        decisions=tuple(_decision(decision, words) for decision in feature.decisions),
        cost=amounts(feature.spent.total), thrown_away=amounts(feature.spent.wasted), place=feature.settled or None,
    )  # fmt: skip


def _commit(commit: CommitMade) -> CommitEvidence:
    return CommitEvidence(
        commit=commit.commit, phase=commit.phase, unit=commit.unit or None, purpose=commit.purpose, files=commit.files,
        insertions=commit.insertions, deletions=commit.deletions, place=commit.place,
    )  # fmt: skip


def _tests(tests: Tests) -> CountedTests:
    return CountedTests(name=tests.name, passed=tests.passed, failed=tests.failed, place=tests.place)


def _made(made: ArtifactMade) -> MadeShape:
    call = made.call.call if made.call else None
    return MadeShape(
        artifact=made.artifact, phase=made.phase, unit=made.unit or None, path=made.path, digest=made.digest,
        agent=call.agent if call else None, model=call.model if call else None,
        attempt=call.attempt if call else None, prompt_digest=made.prompt, template=made.template or None,
        estimated_usd=usd(call.estimated_nanousd) if call else None,
        reported_usd=usd(call.reported_nanousd) if call else None,
        computed_usd=usd(call.computed_nanousd) if call else None, place=made.place, asked=made.asked or None,
    )  # fmt: skip


def _reply(reply: ReplyDecision, words: Words) -> ReplyShape:
    return ReplyShape(
        phase=reply.phase, unit=reply.unit or None, iteration=reply.iteration, attempt=reply.attempt, role=reply.role,
        valid=not reply.rules, rules=reply.rules, messages=messages(words(reply.report)), place=reply.place,
    )  # fmt: skip


def _gate(gate: GateDecision, words: Words) -> GateShape:
    command = gate.command
    return GateShape(
        phase=gate.phase, unit=gate.unit or None, gate=gate.gate, passed=gate.passed, rules=gate.rules,
        messages=messages(words(gate.report)), place=gate.place,
        command=CommandEvidence(
            name=command.name, exit=command.exit, passed=command.passed, failed=command.failed,
            duration_ms=command.duration_ms, output_digest=command.output, place=command.place,
        ) if command else None,
    )  # fmt: skip


def _decision(decision: Decision, words: Words) -> DecisionShape:
    asked = decision.question
    return DecisionShape(
        kind=decision.kind, verdict=decision.verdict.value if decision.verdict else None,
        who=line(words(decision.who)) or "unknown", at=instant(decision.at_us), why=words(decision.note) or None,
        phase=decision.phase or (asked.phase if asked else None) or None, ask=asked.ask.value if asked else None,
        code=(asked.code if asked else "") or None, question=asked.place if asked else None, place=decision.place,
    )  # fmt: skip
