"""Extracts the statements of an audit from one feature's stream, each with its event ref."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.delivery import CommitRequested, Committed
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated, CommandRan, GateChecked, Violation
from mz_events.envelope import Recorded

from mz_projections.audit.model import (
    ArtifactMade,
    CommandRun,
    CommitMade,
    GateDecision,
    ReplyDecision,
    TestCounts,
)
from mz_projections.cost.totals import PricedCall
from mz_projections.feature.rollback import track_phases

Stream = Sequence[Recorded[Event]]


def commits_made(stream: Stream) -> tuple[CommitMade, ...]:
    """Return the commits on the branch, in order."""
    requests_by_key: dict[str, CommitRequested] = {}
    commits = []
    for recorded in stream:
        match recorded.event:
            case CommitRequested() as event:
                requests_by_key[event.key] = event
            case Committed() as event if event.key in requests_by_key:
                request = requests_by_key[event.key]
                commits.append(
                    CommitMade(
                        phase=request.phase,
                        unit=request.unit,
                        purpose=request.purpose,
                        commit=event.commit,
                        files=event.files,
                        insertions=event.insertions,
                        deletions=event.deletions,
                        event_ref=recorded.event_ref,
                    )
                )
    return tuple(commits)


def gate_decisions(stream: Stream) -> tuple[GateDecision, ...]:
    """Return every gate decision with the command behind it."""
    commands: dict[tuple[str, str, str], CommandRun] = {}
    decisions = []
    for recorded in stream:
        match recorded.event:
            case CommandRan(stage="gate") as event:
                commands[event.phase, event.unit, event.name] = _command_run(event, recorded.event_ref)
            case GateChecked() as event:
                decisions.append(
                    GateDecision(
                        phase=event.phase,
                        unit=event.unit,
                        gate=event.gate,
                        passed=event.passed,
                        broken_rules=_rule_ids(event.violations),
                        report=event.report,
                        command=commands.pop((event.phase, event.unit, event.gate), None),
                        event_ref=recorded.event_ref,
                    )
                )
    return tuple(decisions)


def reply_decisions(stream: Stream) -> tuple[ReplyDecision, ...]:
    """Return every decision of the rules on an agent's artifacts."""
    return tuple(
        ReplyDecision(
            phase=event.ref.phase,
            unit=event.ref.unit,
            iteration=event.ref.iteration,
            attempt=event.ref.attempt,
            role=event.ref.role,
            broken_rules=_rule_ids(event.violations),
            report=event.report,
            event_ref=recorded.event_ref,
        )
        for recorded in stream
        if isinstance(event := recorded.event, ArtifactValidated)
    )


def tests_before(stream: Stream) -> tuple[TestCounts, ...]:
    """Return the first preparation of each command that counted tests."""
    first_by_command: dict[str, TestCounts] = {}
    for tests in _test_counts(stream, "prepare"):
        first_by_command.setdefault(tests.name, tests)
    return tuple(first_by_command.values())


def tests_after(stream: Stream) -> tuple[TestCounts, ...]:
    """Return the last gate of each command that counted tests."""
    return tuple({tests.name: tests for tests in _test_counts(stream, "gate")}.values())


def artifacts_made(stream: Stream, calls: Iterable[PricedCall]) -> tuple[ArtifactMade, ...]:
    """Return the latest artifact of each name and unit, without superseded ones."""
    calls_by_key = {priced.call.key: priced for priced in calls}
    requests: dict[tuple[str, str], Recorded[Event]] = {}
    current_phases: tuple[str, ...] = ()
    latest: dict[tuple[str, str], ArtifactMade] = {}
    for recorded in stream:
        current_phases, superseded_phases = track_phases(current_phases, recorded.event)
        latest = (
            {name: artifact for name, artifact in latest.items() if artifact.phase not in superseded_phases}
            if superseded_phases
            else latest
        )
        match recorded.event:
            case AgentRequested(ref=ref):
                requests[ref.phase, ref.unit] = recorded
            case ArtifactParsed() as event:
                latest[event.artifact, event.unit] = _artifact_made(
                    event, recorded.event_ref, requests.get((event.phase, event.unit)), calls_by_key
                )
    return tuple(latest.values())


def _artifact_made(
    event: ArtifactParsed, event_ref: str, recorded_request: Recorded[Event] | None, calls_by_key: dict[str, PricedCall]
) -> ArtifactMade:
    request = (
        recorded_request.event if recorded_request and isinstance(recorded_request.event, AgentRequested) else None
    )
    return ArtifactMade(
        artifact=event.artifact,
        phase=event.phase,
        unit=event.unit,
        path=event.path,
        digest=event.digest,
        event_ref=event_ref,
        call=calls_by_key.get(request.ref.key) if request else None,
        prompt=request.prompt if request else None,
        template=request.template if request else "",
        request_ref=recorded_request.event_ref if recorded_request else "",
    )


def _test_counts(stream: Stream, stage: str) -> Iterable[TestCounts]:
    for recorded in stream:
        event = recorded.event
        if isinstance(event, CommandRan) and event.stage == stage and (event.passed, event.failed) != (None, None):
            yield TestCounts(
                name=event.name, passed=event.passed or 0, failed=event.failed or 0, event_ref=recorded.event_ref
            )


def _command_run(event: CommandRan, event_ref: str) -> CommandRun:
    return CommandRun(
        name=event.name, exit=event.exit, passed=event.passed, failed=event.failed, output=event.output,
        duration_ms=event.duration_ms, event_ref=event_ref,
    )  # fmt: skip


def _rule_ids(violations: tuple[Violation, ...]) -> tuple[str, ...]:
    """Return the distinct rule ids in the order of the report."""
    return tuple(dict.fromkeys(violation.rule for violation in violations))
