"""Folds what features experienced: evidence for learnings, and their uses in prompts.

A row holds facts only; `learnings.py` interprets them by rules, so a changed rule applies to all history. A failed gate
is identified by the gate and the signature of its output, a violated rule by its name, a question by phase, subject and
text. The changes of the reply that passes a failed gate mended it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import ContextComposed
from mz_events.catalog.feature import (
    Blocked,
    FeatureCancelled,
    FeatureDelivered,
    FeatureFailed,
    HumanAnswered,
    HumanRequested,
    QuestionKind,
    RolledBack,
    UnitCompleted,
    UnitStarted,
)
from mz_events.catalog.memory import (
    LearningArchived,
    LearningOffered,
    LearningPromoted,
    LearningsCaptured,
    LearningShared,
)
from mz_events.catalog.validation import ArtifactValidated, ChangesChecked, CommandRan, GateChecked
from mz_events.names import PROJECT_STREAM, USER_STREAM, Commit, Digest, Path
from mz_events.store import FEATURE_DEPTH, Recorded

from mz_projections.read_models.model import Key, ReadModel

Kind = Literal["failure", "rule", "answer", "pattern", "anti_pattern", "convention"]
LESSON_KINDS: tuple[Kind, ...] = ("pattern", "anti_pattern", "convention")
Ending = Literal["", "delivered", "failed", "cancelled"]


def learning_id(kind: str, key: str) -> str:
    """Return the id of a learning: the same for the same kind and key."""
    digest = sha256(f"{kind}\0{key}".encode()).hexdigest()
    return f"L-{digest[:10]}"


def rule_signature(rule: str) -> str:
    """Return the signature of violating a rule, beside those of failed gates."""
    return f"rule {rule}"


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one feature experienced about one learning."""

    kind: Kind
    key: str
    event_ref: str
    """Its first event; `at_us` is the time of its last."""
    at_us: int
    phase: str
    unit: str
    times: int = 1
    """Replies with that failure or broken rule."""
    report: Digest | None = None
    """Blob: JSON array with the message, at `index`."""
    index: int = 0
    text: Digest | None = None
    """Blob: the question, or a statement of an artifact; of a shared learning, what an agent is told."""
    note: Digest | None = None
    """Blob: what a person answered, or why one shared it."""
    project: Digest | None = None
    """Blob: the project that shared it last; None: it happened in this project."""
    offered_by: tuple[Digest, ...] = ()
    """Blobs: the projects that offer it, as long as no person shared it."""
    actor: Digest | None = None
    """Blob: who shared it."""
    paths: tuple[Path, ...] = ()
    """What mended it changed these paths, between two trees."""
    before: Commit | None = None
    after: Commit | None = None
    mended: str = ""
    """Event ref."""
    exhausted: bool = False
    """All attempts of a unit failed with it."""
    tags: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    is_copy: bool = False
    """It happened in the run that this one was forked from."""


class Use(msgspec.Struct, frozen=True, omit_defaults=True):
    """A learning that a call was given, or that was left out of its prompt for a reason."""

    id: str
    key: str
    phase: str
    unit: str
    version: int
    event_ref: str
    at_us: int
    left_out: str = ""
    is_repeated: bool = False
    """The call had to fix what it is about."""


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """Work on one unit of a phase, from one version of the stream to another; 0: not completed."""

    phase: str
    unit: str
    version: int
    at_us: int
    end: int = 0


class Problem(msgspec.Struct, frozen=True):
    """A failure, a broken rule or a question, by the id of the learning about it."""

    id: str
    phase: str
    unit: str
    version: int


class Decision(msgspec.Struct, frozen=True):
    """What a person decided about a learning."""

    id: str
    is_promoted: bool
    actor: Digest
    reason: Digest
    event_ref: str


class FeatureMemory(msgspec.Struct, frozen=True):
    """What one feature of one run experienced; with empty names, what people decided; of the stream `user/memory`, what
    people shared."""

    run: str
    feature: str
    evidence: dict[str, Evidence] = {}
    """By id of the learning."""
    uses: tuple[Use, ...] = ()
    cells: tuple[Cell, ...] = ()
    problems: tuple[Problem, ...] = ()
    rollbacks: tuple[Problem, ...] = ()
    """With the phase that each leads to; without an id."""
    ending: Ending = ""
    has_green_tests: bool = False
    """Tests that were counted passed as a gate."""
    failing: str = ""
    """Id of the failure that the feature has to mend."""
    question: str = ""
    """Id of the learning that the next answer is about."""
    changes: tuple[Path, ...] = ()
    tree: Commit | None = None
    """Of the last check of changes."""
    decisions: tuple[Decision, ...] = ()


def add_evidence(row: FeatureMemory, recorded: Recorded[Event], kind: Kind, key: str, **values: Any) -> FeatureMemory:
    """Return the row with evidence added, or what there is of this learning changed."""
    known_id = learning_id(kind, key)
    earlier = row.evidence.get(known_id)
    if earlier is None:
        earlier = Evidence(kind=kind, key=key, event_ref=recorded.event_ref, at_us=0, phase="", unit="")
    changed = replace(earlier, **values, at_us=recorded.observed_at_us, is_copy=recorded.is_forked_copy)
    return replace(row, evidence={**row.evidence, known_id: changed})


def _has_problem(row: FeatureMemory, recorded: Recorded[Event], kind: Kind, key: str, **values: Any) -> FeatureMemory:
    known_id = learning_id(kind, key)
    problem = Problem(known_id, values.get("phase", ""), values.get("unit", ""), recorded.version)
    row = replace(row, problems=(*row.problems, problem))
    times = row.evidence[known_id].times + 1 if known_id in row.evidence else 1
    return add_evidence(row, recorded, kind, key, times=times, **values)


def _on_gate(row: FeatureMemory, recorded: Recorded[Event], gate: GateChecked) -> FeatureMemory:
    if not gate.passed:
        if not gate.signature:
            return row
        key = f"{gate.gate} {gate.signature}"
        row = _has_problem(
            row, recorded, "failure", key, phase=gate.phase, unit=gate.unit, report=gate.report, before=row.tree
        )
        return replace(row, failing=learning_id("failure", key))
    failure = row.evidence.get(row.failing)
    if failure is None or (failure.key.split()[0], failure.phase, failure.unit) != (gate.gate, gate.phase, gate.unit):
        return row
    values = {"paths": row.changes, "after": row.tree, "mended": recorded.event_ref}
    return replace(add_evidence(row, recorded, "failure", failure.key, **values), failing="")


def _on_validated(row: FeatureMemory, recorded: Recorded[Event], event: ArtifactValidated) -> FeatureMemory:
    messages = {violation.rule: at for at, violation in reversed([*enumerate(event.violations)])}
    for rule, index in messages.items():
        values = {"phase": event.ref.phase, "unit": event.ref.unit, "report": event.report, "index": index}
        row = _has_problem(row, recorded, "rule", rule, **values)
    return row


def _on_question(row: FeatureMemory, recorded: Recorded[Event], event: HumanRequested) -> FeatureMemory:
    cell = {"phase": event.phase, "unit": event.unit}
    if event.question_kind is QuestionKind.EXHAUSTED:
        row = add_evidence(row, recorded, "rule", event.code, exhausted=True, **cell)
        return replace(row, question=learning_id("rule", event.code))
    if row.question:
        return row  # It is about the failure that blocked the phase.
    key = f"{event.phase or '-'} {event.code or event.question_kind.value} {(event.detail or '-')[:10]}"
    row = _has_problem(row, recorded, "answer", key, text=event.detail, **cell)
    return replace(row, question=learning_id("answer", key))


def _on_captured(row: FeatureMemory, recorded: Recorded[Event], event: LearningsCaptured) -> FeatureMemory:
    for item in event.learnings:
        kind = next((kind for kind in LESSON_KINDS if kind == item.kind), None)
        if kind is not None:
            values = {"text": item.text, "tags": item.tags, "phases": item.phases or (event.phase,)}
            row = add_evidence(row, recorded, kind, item.key, phase=event.phase, unit=event.unit, **values)
    return row


def _on_composed(row: FeatureMemory, recorded: Recorded[Event], event: ContextComposed) -> FeatureMemory:
    parts = event.key.split("/")
    phase, unit = parts[2] if len(parts) > 2 else "", parts[3].removeprefix("-") if len(parts) > 3 else ""
    named = [(item.id, "", item.is_repeated) for item in event.learnings]
    named += [(item.id, item.reason, False) for item in event.left_out]
    details = phase, unit, recorded.version, recorded.event_ref, recorded.observed_at_us
    uses = [
        Use(name, event.key, *details, reason, again) for name, reason, again in named if not recorded.is_forked_copy
    ]
    return replace(row, uses=(*row.uses, *uses))


def _evolve_feature(row: FeatureMemory, recorded: Recorded[Event]) -> FeatureMemory:
    match recorded.event:
        case ChangesChecked() as event:
            return replace(row, changes=tuple(change.path for change in event.changes), tree=event.tree)
        case GateChecked() as event:
            return _on_gate(row, recorded, event)
        case ArtifactValidated() as event:
            return _on_validated(row, recorded, event)
        case ContextComposed() as event:
            return _on_composed(row, recorded, event)
        case LearningsCaptured() as event:
            return _on_captured(row, recorded, event)
        case Blocked(check=check) if (failure := row.evidence.get(row.failing)) and failure.key.split()[0] == check:
            row = replace(row, question=row.failing)
            return add_evidence(row, recorded, "failure", failure.key, exhausted=True)
        case HumanRequested() as event:
            return _on_question(row, recorded, event)
        case HumanAnswered(note=note) if (subject := row.evidence.get(row.question)) is not None:
            note = subject.note if note is None else note
            return replace(add_evidence(row, recorded, subject.kind, subject.key, note=note), question="")
        case CommandRan(stage="gate", exit=0, passed=passed) if passed:
            return replace(row, has_green_tests=True)
        case UnitStarted(phase=phase, unit=unit) if not recorded.is_forked_copy:
            return replace(row, cells=(*row.cells, Cell(phase, unit, recorded.version, recorded.observed_at_us)))
        case UnitCompleted(phase=phase, unit=unit):
            cells = [
                replace(cell, end=recorded.version)
                if not cell.end and (cell.phase, cell.unit) == (phase, unit)
                else cell
                for cell in row.cells
            ]
            return replace(row, cells=tuple(cells))
        case RolledBack(to=to):
            return replace(row, question="", rollbacks=(*row.rollbacks, Problem("", to, "", recorded.version)))
        case FeatureDelivered():
            return replace(row, ending="delivered")
        case FeatureFailed():
            return replace(row, ending="failed")
        case FeatureCancelled():
            return replace(row, ending="cancelled")
    return row


def _evolve_shared(row: FeatureMemory, recorded: Recorded[Event]) -> FeatureMemory:
    match recorded.event:
        case LearningShared(learning=item) as event:
            row = _without(row, learning_id(item.kind, item.key))
            values = {"text": item.text, "note": event.reason, "project": event.project, "actor": event.actor}
            lists = {"tags": item.tags, "phases": item.phases}
            return add_evidence(row, recorded, cast(Kind, item.kind), item.key, **values, **lists)
        case LearningOffered(learning=item, project=project):
            earlier = row.evidence.get(learning_id(item.kind, item.key))
            if earlier is not None and earlier.actor is not None:
                return row
            offers = tuple(dict.fromkeys((*(earlier.offered_by if earlier else ()), project)))
            values = {"text": item.text, "project": project}
            lists = {"tags": item.tags, "phases": item.phases, "offered_by": offers}
            return add_evidence(row, recorded, cast(Kind, item.kind), item.key, **values, **lists)
        case LearningArchived(id=name):
            return _without(row, name)
    return row


def _without(row: FeatureMemory, learning: str) -> FeatureMemory:
    return replace(row, evidence={name: item for name, item in row.evidence.items() if name != learning})


def evolve(find: Callable[[Key], FeatureMemory | None], recorded: Recorded[Event]) -> tuple[FeatureMemory, ...]:
    """Return the changed row; none for an event of another stream."""
    names, event = recorded.stream.split("/"), recorded.event
    if recorded.stream == PROJECT_STREAM and isinstance(event, LearningPromoted | LearningArchived):
        row = find(("", "")) or FeatureMemory("", "")
        is_promoted = isinstance(event, LearningPromoted)
        decision = Decision(event.id, is_promoted, event.actor, event.reason, recorded.event_ref)
        return (replace(row, decisions=(*row.decisions, decision)),)
    if recorded.stream == USER_STREAM:
        return (_evolve_shared(find(("user", "memory")) or FeatureMemory("user", "memory"), recorded),)
    if len(names) != FEATURE_DEPTH + 1:
        return ()
    _, run, feature = names
    return (_evolve_feature(find((run, feature)) or FeatureMemory(run, feature), recorded),)


MEMORY = ReadModel(
    name="memory",
    row=FeatureMemory,
    key=("run", "feature"),
    types=(
        *(ChangesChecked, GateChecked, ArtifactValidated, ContextComposed, LearningsCaptured, CommandRan),
        *(Blocked, HumanRequested, HumanAnswered, UnitStarted, UnitCompleted, RolledBack),
        *(FeatureDelivered, FeatureFailed, FeatureCancelled),
        *(LearningPromoted, LearningArchived, LearningShared, LearningOffered),
    ),
    evolve=evolve,
)
"""Over all runs: one row per feature, and one of people's decisions."""


def fold_memory(events: Iterable[Recorded[Event]]) -> tuple[FeatureMemory, ...]:
    """Return the rows of these events, of any number of streams, each in its order."""
    return MEMORY.fold(events)
