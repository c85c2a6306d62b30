"""Extracts the statements of an audit from one feature's stream, each with its event ref."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.check import ArtifactParsed, ArtifactValidated, CommandRan, GateChecked, Violation
from mz_events.catalog.delivery import CommitRequested, Committed
from mz_events.envelope import Recorded

from mz_projections.audit import (
    ArtifactMade,
    CommandRun,
    CommitMade,
    GateDecision,
    ReplyDecision,
    Tests,
)
from mz_projections.fates import follow_phases
from mz_projections.spending import Judged

Stream = Sequence[Recorded[Event]]


def commits(stream: Stream) -> tuple[CommitMade, ...]:
    """Return the commits on the branch, in order."""
    asked: dict[str, CommitRequested] = {}
    found = []
    for recorded in stream:
        match recorded.event:
            case CommitRequested() as event:
                asked[event.key] = event
            case Committed() as event if event.key in asked:
                of = asked[event.key]
                found.append(
                    CommitMade(
                        phase=of.phase,
                        unit=of.unit,
                        purpose=of.purpose,
                        commit=event.commit,
                        files=event.files,
                        insertions=event.insertions,
                        deletions=event.deletions,
                        place=recorded.place,
                    )
                )
    return tuple(found)


def gates(stream: Stream) -> tuple[GateDecision, ...]:
    """Return every gate decision with the command behind it."""
    ran: dict[tuple[str, str, str], CommandRun] = {}
    found = []
    for recorded in stream:
        match recorded.event:
            case CommandRan(stage="gate") as event:
                ran[event.phase, event.unit, event.name] = _command(event, recorded.place)
            case GateChecked() as event:
                found.append(
                    GateDecision(
                        phase=event.phase,
                        unit=event.unit,
                        gate=event.gate,
                        passed=event.passed,
                        rules=_rules(event.violations),
                        report=event.report,
                        command=ran.pop((event.phase, event.unit, event.gate), None),
                        place=recorded.place,
                    )
                )
    return tuple(found)


def replies(stream: Stream) -> tuple[ReplyDecision, ...]:
    """Return every decision of the rules on an agent's artifacts."""
    return tuple(
        ReplyDecision(
            phase=event.ref.phase, unit=event.ref.unit, iteration=event.ref.iteration, attempt=event.ref.attempt,
            role=event.ref.role, rules=_rules(event.violations), report=event.report, place=recorded.place,
        )
        for recorded in stream
        if isinstance(event := recorded.event, ArtifactValidated)
    )  # fmt: skip


def tests_before(stream: Stream) -> tuple[Tests, ...]:
    """Return the first preparation of each command that counted tests."""
    found: dict[str, Tests] = {}
    for tests in _counted(stream, "prepare"):
        found.setdefault(tests.name, tests)
    return tuple(found.values())


def tests_after(stream: Stream) -> tuple[Tests, ...]:
    """Return the last gate of each command that counted tests."""
    return tuple({tests.name: tests for tests in _counted(stream, "gate")}.values())


def artifacts(stream: Stream, calls: Iterable[Judged]) -> tuple[ArtifactMade, ...]:
    """Return the latest artifact of each name and unit, without superseded ones."""
    judged = {each.call.key: each for each in calls}
    asked: dict[tuple[str, str], Recorded[Event]] = {}
    begun: tuple[str, ...] = ()
    found: dict[tuple[str, str], ArtifactMade] = {}
    for recorded in stream:
        begun, gone = follow_phases(begun, recorded.event)
        found = {name: made for name, made in found.items() if made.phase not in gone} if gone else found
        match recorded.event:
            case AgentRequested(ref=ref):
                asked[ref.phase, ref.unit] = recorded
            case ArtifactParsed() as event:
                found[event.artifact, event.unit] = _artifact(
                    event, recorded.place, asked.get((event.phase, event.unit)), judged
                )
    return tuple(found.values())


def _artifact(
    event: ArtifactParsed, place: str, asked: Recorded[Event] | None, judged: dict[str, Judged]
) -> ArtifactMade:
    request = asked.event if asked and isinstance(asked.event, AgentRequested) else None
    return ArtifactMade(
        artifact=event.artifact, phase=event.phase, unit=event.unit, path=event.path, digest=event.digest,
        place=place, call=judged.get(request.ref.key) if request else None, prompt=request.prompt if request else None,
        template=request.template if request else "", asked=asked.place if asked else "",
    )  # fmt: skip


def _counted(stream: Stream, stage: str) -> Iterable[Tests]:
    for recorded in stream:
        event = recorded.event
        if isinstance(event, CommandRan) and event.stage == stage and (event.passed, event.failed) != (None, None):
            yield Tests(name=event.name, passed=event.passed or 0, failed=event.failed or 0, place=recorded.place)


def _command(event: CommandRan, place: str) -> CommandRun:
    return CommandRun(
        name=event.name, exit=event.exit, passed=event.passed, failed=event.failed, output=event.output,
        duration_ms=event.duration_ms, place=place,
    )  # fmt: skip


def _rules(violations: tuple[Violation, ...]) -> tuple[str, ...]:
    """Return the distinct rule ids in the order of the report."""
    return tuple(dict.fromkeys(violation.rule for violation in violations))
