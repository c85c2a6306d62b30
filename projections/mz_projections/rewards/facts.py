"""What rewards and metrics count of one feature, folded from its stream; read model `FACTS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallSettled, ContextComposed
from mz_events.catalog.feature import (
    Blocked,
    FeatureCancelled,
    FeatureDelivered,
    FeatureFailed,
    FeatureRetried,
    HumanAnswered,
    HumanRequested,
    PhaseSkipped,
    PhaseStarted,
    QuestionKind,
    RolledBack,
    UnitCompleted,
)
from mz_events.catalog.validation import ArtifactParsed, ArtifactValidated, ChangesChecked, CommandRan, GateChecked
from mz_events.names import BUILDER, Path
from mz_events.store import FEATURE_DEPTH, Recorded

from mz_projections.feature.state import has_passed
from mz_projections.feature.unit import BLOCK, DENIED_COMMANDS, RAISED
from mz_projections.read_models.model import Key, ReadModel

PLANNED_QUESTIONS = (QuestionKind.APPROVAL, QuestionKind.WITHHELD)
"""Questions that the pipeline or the screen of requests asks by design; all others are unplanned."""
ROLLED_BACK = "rolled_back"
"""Name of the condition that asks for a better tier after rollbacks."""
UNKNOWN_SEVERITY = "unknown"


class PhaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One phase in all its iterations."""

    iterations: int = 0
    """How often it was started."""
    rejections: int = 0
    """Replies that broke rules, and gates that failed."""
    rollbacks: int = 0
    """Rollbacks that led to it."""
    questions: int = 0
    skipped: bool = False
    cause: str = ""
    """Cause of the last rollback to it, else of what happened last: a gate, a question, the reason for a skip."""
    agent: str = ""
    """Agent of its last builder call."""
    tiers: dict[str, int] = {}
    """Number of builder calls by the tier that a condition or routing asked for; empty: the phase's own."""
    prompts: tuple[int, ...] = ()
    """Estimated tokens of each prompt, without instructions."""
    tokens_max: int | None = None


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    to: str
    units: tuple[str, ...] = ()
    cause: str = ""
    check: str = ""
    fix: tuple[Path, ...] = ()
    """Paths that its target changed afterwards."""


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """The last run of a command in a phase or unit."""

    passed: bool
    counted: bool
    """It counted tests."""


class CellFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The work on one unit of a phase, or on a phase without units, in all iterations."""

    agent: str
    """Of its last builder call; so is `tier`."""
    tier: str = ""
    """Tier that a condition or routing asked for; empty: the phase's own."""
    fields: dict[str, str] = {}
    """Of the unit."""
    nanousd: int = 0
    """Charged for its builder."""
    accepted: bool = False
    sent_back: bool = False
    """A rollback led to it."""


class FeatureFacts(msgspec.Struct, frozen=True):
    """One feature of one run."""

    run: str
    feature: str
    outcome: str = ""
    """delivered, failed or cancelled; empty: it goes on."""
    position: int = 0
    """Position of its last counted event in the log."""
    failure: str = ""
    """Code of the last failure."""
    waiting: str = ""
    """Subject of the open question."""
    is_fork: bool = False
    phases: dict[str, PhaseFacts] = {}
    """In the order of their first start."""
    rollbacks: tuple[Rollback, ...] = ()
    blocks: tuple[tuple[str, str, str], ...] = ()
    """Phase, cause and check of each."""
    findings: dict[str, int] = {}
    """Number of blocks that agents raised, by severity."""
    questions: int = 0
    """Unplanned ones."""
    offences: int = 0
    """Forbidden changes that were reverted, and denied commands that agents ran."""
    overruns: int = 0
    """Prompts above the limit of their phase, and tiers raised because of rollbacks."""
    commands: dict[str, CommandResult] = {}
    """By `phase/unit/name`."""
    coverage: dict[str, tuple[int, ...]] = {}
    """By command: lines covered and lines in all, of its first run with coverage, then of its last one of several."""
    numbers: dict[str, int] = {}
    """By `artifact.ids` and `artifact.COUNT`: how many ids its last version defines, and what its rule set counts."""
    cells: dict[str, CellFacts] = {}
    """By `phase/unit`."""
    unit_fields: dict[str, dict[str, str]] = {}
    """Fields of the units that artifacts list, by unit."""
    severity: str = ""
    """Of the block that is about to be raised."""


def evolve(find: Callable[[Key], FeatureFacts | None], recorded: Recorded[Event]) -> tuple[FeatureFacts, ...]:
    """Return the facts of the feature that the event belongs to; none for an event of no feature."""
    names = recorded.stream.split("/")
    if len(names) != FEATURE_DEPTH + 1:
        return ()
    facts = find((names[1], names[2])) or FeatureFacts(names[1], names[2])
    changed: FeatureFacts = HANDLERS[type(recorded.event)](facts, recorded.event)
    is_fork = facts.is_fork or recorded.is_forked_copy
    return (replace(changed, position=recorded.position, is_fork=is_fork),)


def _phase(facts: FeatureFacts, name: str, *counted: str, **changes: object) -> FeatureFacts:
    """Change a phase, and count one more of what is `counted`; a phase that was never started has no facts."""
    before = facts.phases.get(name)
    if before is None:
        return facts
    more: dict[str, Any] = {field: getattr(before, field) + 1 for field in counted} | changes
    return replace(facts, phases={**facts.phases, name: replace(before, **more)})


def _on_phase_started(facts: FeatureFacts, event: PhaseStarted) -> FeatureFacts:
    started = replace(facts, phases={**facts.phases, event.phase: facts.phases.get(event.phase, PhaseFacts())})
    return _phase(started, event.phase, "iterations", skipped=False)


def _on_requested(facts: FeatureFacts, event: AgentRequested) -> FeatureFacts:
    before = facts.phases.get(event.ref.phase, PhaseFacts())
    tiers, agent = before.tiers, before.agent
    if event.ref.role == BUILDER:
        tiers, agent = {**tiers, event.tier: tiers.get(event.tier, 0) + 1}, event.agent
        key, fields = f"{event.ref.phase}/{event.ref.unit}", facts.unit_fields.get(event.ref.unit, {})
        cell = replace(facts.cells.get(key, CellFacts(agent="")), agent=event.agent, tier=event.tier, fields=fields)
        facts = replace(facts, cells={**facts.cells, key: cell})
    was_raised = event.escalated_by == ROLLED_BACK and event.ref.attempt == 1
    return replace(_phase(facts, event.ref.phase, tiers=tiers, agent=agent), overruns=facts.overruns + was_raised)


def _on_composed(facts: FeatureFacts, event: ContextComposed) -> FeatureFacts:
    name = event.key.split("/")[2]
    tokens = sum(part.tokens for part in event.parts if not part.left_out and part.source != "instructions")
    prompts = (*facts.phases.get(name, PhaseFacts()).prompts, tokens)
    facts = _phase(facts, name, prompts=prompts, tokens_max=event.tokens_max)
    return replace(facts, overruns=facts.overruns + (event.over > 0))


def _on_validated(facts: FeatureFacts, event: ArtifactValidated) -> FeatureFacts:
    if not event.violations:
        return facts
    return _phase(facts, event.ref.phase, "rejections", cause=event.violations[0].rule)


def _on_gate(facts: FeatureFacts, event: GateChecked) -> FeatureFacts:
    if event.passed:
        return facts
    offences = facts.offences + (event.gate == DENIED_COMMANDS)
    return replace(_phase(facts, event.phase, "rejections", cause=event.gate), offences=offences)


def _on_changes(facts: FeatureFacts, event: ChangesChecked) -> FeatureFacts:
    rollbacks = facts.rollbacks
    if rollbacks and rollbacks[-1].to == event.ref.phase:
        paths = dict.fromkeys((*rollbacks[-1].fix, *(change.path for change in event.changes)))
        rollbacks = (*rollbacks[:-1], replace(rollbacks[-1], fix=tuple(paths)))
    return replace(facts, rollbacks=rollbacks, offences=facts.offences + len(event.forbidden_changes))


def _on_blocked(facts: FeatureFacts, event: Blocked) -> FeatureFacts:
    findings, severity = facts.findings, facts.severity or UNKNOWN_SEVERITY
    if event.check.startswith(RAISED):
        findings = {**findings, severity: findings.get(severity, 0) + 1}
    blocks = (*facts.blocks, (event.phase, event.cause, event.check))
    return replace(_phase(facts, event.phase, cause=event.cause), blocks=blocks, findings=findings, severity="")


def _on_rolled_back(facts: FeatureFacts, event: RolledBack) -> FeatureFacts:
    _, cause, check = facts.blocks[-1] if facts.blocks else ("", "", "")
    rollback = Rollback(source=event.source, to=event.to, units=event.units, cause=cause, check=check)
    facts = replace(facts, rollbacks=(*facts.rollbacks, rollback))
    names = [f"{event.to}/{unit}" for unit in event.units]
    keys = names or [key for key in facts.cells if key.startswith(f"{event.to}/")]
    return _phase(_cells(facts, keys, sent_back=True), event.to, "rollbacks", cause=cause)


def _cells(facts: FeatureFacts, keys: Iterable[str], **changes: Any) -> FeatureFacts:
    changed = {key: replace(facts.cells[key], **changes) for key in keys if key in facts.cells}
    return replace(facts, cells={**facts.cells, **changed})


def _on_settled(facts: FeatureFacts, event: CallSettled) -> FeatureFacts:
    _, _, phase, unit, *_ = (*event.key.split("/"), "", "", "")
    key = f"{phase}/{'' if unit == '-' else unit}"
    if key not in facts.cells or not event.key.endswith(f".{BUILDER}"):
        return facts
    return _cells(facts, (key,), nanousd=facts.cells[key].nanousd + event.nanousd)


def _on_question(facts: FeatureFacts, event: HumanRequested) -> FeatureFacts:
    subject = event.subject or event.question_kind.value
    facts = _phase(facts, event.phase, "questions", cause=subject)
    questions = facts.questions + (event.question_kind not in PLANNED_QUESTIONS)
    return replace(facts, waiting=subject, questions=questions)


def _on_command(facts: FeatureFacts, event: CommandRan) -> FeatureFacts:
    if event.stage not in ("prepare", "gate"):
        return facts
    result, coverage = CommandResult(passed=has_passed(event), counted=event.passed is not None), facts.coverage
    if event.coverage:
        coverage = {**coverage, event.name: (*coverage.get(event.name, ())[:2], *event.coverage)}
    commands = {**facts.commands, f"{event.phase}/{event.unit}/{event.name}": result}
    return replace(facts, commands=commands, coverage=coverage)


def _on_artifact(facts: FeatureFacts, event: ArtifactParsed) -> FeatureFacts:
    numbers = {f"{event.artifact}.{name}": count for name, count in event.counts.items()}
    numbers |= {f"{event.artifact}.ids": len(event.ids)} if event.ids else {}
    severity = event.fields.get("severity", "") if event.artifact == BLOCK else facts.severity
    unit_fields = {**facts.unit_fields, **{unit.id: unit.fields for unit in event.units}}
    return replace(facts, numbers={**facts.numbers, **numbers}, severity=severity, unit_fields=unit_fields)


HANDLERS: dict[type[Event], Callable[[FeatureFacts, Any], FeatureFacts]] = {
    PhaseStarted: _on_phase_started,
    AgentRequested: _on_requested,
    ContextComposed: _on_composed,
    ArtifactValidated: _on_validated,
    GateChecked: _on_gate,
    ChangesChecked: _on_changes,
    Blocked: _on_blocked,
    RolledBack: _on_rolled_back,
    HumanRequested: _on_question,
    CommandRan: _on_command,
    ArtifactParsed: _on_artifact,
    CallSettled: _on_settled,
    UnitCompleted: lambda facts, event: _cells(facts, (f"{event.phase}/{event.unit}",), accepted=True),
    PhaseSkipped: lambda facts, event: _phase(facts, event.phase, cause=event.code, skipped=True),
    FeatureDelivered: lambda facts, _: replace(facts, outcome="delivered"),
    FeatureFailed: lambda facts, event: replace(facts, outcome="failed", failure=event.code, waiting=""),
    FeatureCancelled: lambda facts, _: replace(facts, outcome="cancelled", waiting=""),
    FeatureRetried: lambda facts, _: replace(facts, outcome="", waiting=""),
    HumanAnswered: lambda facts, _: replace(facts, waiting=""),
}
FACTS = ReadModel(name="facts", row=FeatureFacts, key=("run", "feature"), types=tuple(HANDLERS), evolve=evolve)
"""Over all runs: one row per feature."""


def fold_facts(events: Iterable[Recorded[Event]]) -> FeatureFacts | None:
    """Return the facts of a feature from its stream; None if nothing counted happened."""
    return next(iter(FACTS.fold(events)), None)
