"""Records of a feature: documents computed from its stream, which phases take as inputs and people read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mz_events.catalog.feature import (
    Blocked,
    FeatureRetried,
    HumanAnswered,
    HumanRequested,
    PhaseCompleted,
    PhaseSkipped,
    PhaseStarted,
    RolledBack,
)
from mz_events.catalog.run import Verdict
from mz_events.catalog.validation import ChangesChecked, CommandRan, ConditionsChecked
from mz_events.names import Digest
from mz_projections.feature.state import FeatureProgress
from mz_projections.views.timeline import list_names, unit_name

from mz_engine.decide.units import dependency_order, iteration, listed_units
from mz_engine.model.pipeline import Phase, Record

NOTES_LINES_MAX = 150
Texts = Mapping[Digest, str]
"""Texts that the history cites."""


def cited_texts(progress: FeatureProgress) -> tuple[Digest, ...]:
    """Return the digests of the texts that records quote."""
    digests = (getattr(event, "note", None) for event in progress.history)
    return tuple(dict.fromkeys(digest for digest in digests if digest is not None))


def record_text(
    record: Record, of: str | None, progress: FeatureProgress, phases: Iterable[Phase], texts: Texts
) -> str:
    """Return a record of the feature, or of its phase `of`. `phases` are those of its pipeline, `texts`
    those of `cited_texts`."""
    match record:
        case "approvals":
            lines = _approvals(of, progress, phases, texts)
        case "order":
            lines = _order(of, progress, phases)
        case "history":
            lines = (line for phase, line in _history(progress, texts) if of in (None, phase))
        case "secrets":
            lines = _secrets(of, progress)
        case _:
            lines = _notes(progress, phases, texts)
    return "\n".join(lines) or "nothing"


def result_text(ran: CommandRan) -> str:
    """Return how a command ended and how many tests it counted."""
    ending = "ran out of time" if ran.exit is None else f"exit {ran.exit}"
    tests = "" if ran.passed is None else f", {ran.passed} tests passed, {ran.failed} failed"
    return ending + tests + ", all of them known failures" * bool(ran.exit and ran.new_failures == 0)


def _answers(progress: FeatureProgress, texts: Texts) -> Iterator[tuple[HumanRequested, HumanAnswered, str]]:
    """Yield each question with its answer, and both in words."""
    question = None
    for event in progress.history:
        if isinstance(event, HumanAnswered) and question is not None:
            note = f": {' '.join(texts[event.note].split())}" if event.note is not None else ""
            about = question.subject or question.question_kind.value
            yield question, event, f"{about}: {event.verdict.value} by a person{note}"
        question = event if isinstance(event, HumanRequested) else question


def _endings(progress: FeatureProgress) -> Iterator[tuple[PhaseCompleted | PhaseSkipped, str]]:
    """Yield the end of each iteration of a phase, with what it was."""
    is_skipped = False
    for event in progress.history:
        match event:
            case PhaseCompleted():
                yield event, "skipped" if is_skipped else "completed"
            case PhaseSkipped():
                yield event, "left out"
            case PhaseStarted() | HumanAnswered(verdict=Verdict.RETRY):
                is_skipped = False
            case ConditionsChecked(of="phase", unit=""):
                is_skipped = not event.met


def _approvals(of: str | None, progress: FeatureProgress, phases: Iterable[Phase], texts: Texts) -> Iterator[str]:
    """Yield for each completed phase what accepted it: rules, commands, a reviewer, people."""
    reviews = {other.phase: other.agent_review for other in phases}
    endings = {event.phase: ending for event, ending in _endings(progress)}
    for phase in (phase for phase in progress.completed_phases if of in (None, phase)):
        yield f"- {phase}: {endings[phase]} in iteration {iteration(progress, phase, '')}"
        for key, runs in progress.unit_results.items():
            if key.partition("/")[0] == phase:
                yield from (f"  - {key.removesuffix('/')}: {ran.stage} {ran.name}: {result_text(ran)}" for ran in runs)
        for key, call in progress.judged_by.items():
            if key.partition("/")[0] == phase:
                yield f"  - {key.removesuffix('/')}: judged by {call}"
        review = reviews.get(phase)
        for unit, verdict in progress.artifacts_by_unit(review.output).items() if review else ():
            fields = ", ".join(f"{name} {value}" for name, value in sorted(verdict.fields.items()))
            yield f"  - {'/'.join(filter(None, (phase, unit)))}: review by {review.role if review else ''}: {fields}"
        for question, answer, text in _answers(progress, texts):
            if question.phase == phase and answer.verdict in (Verdict.APPROVE, Verdict.ACCEPT):
                yield f"  - {unit_name(question)}: {text}"


def _order(of: str | None, progress: FeatureProgress, phases: Iterable[Phase]) -> Iterator[str]:
    """Yield the units of each phase that has some, those that others need first."""
    for phase in (phase for phase in phases if of in (None, phase.phase)):
        units = listed_units(progress, phase)
        for name in dependency_order(tuple(units.values())):
            needed = f", after {', '.join(units[name].depends_on)}" if units[name].depends_on else ""
            yield f"- {phase.phase}/{name}{needed}"


def _history(progress: FeatureProgress, texts: Texts) -> Iterator[tuple[str, str]]:
    """Yield a line about each event of the history, with its phase."""
    answers, phase = {id(answer): text for _, answer, text in _answers(progress, texts)}, ""
    endings = {id(event): ending for event, ending in _endings(progress)}
    for event in progress.history:
        match event:
            case PhaseStarted():
                text = f"{event.phase}: started, iteration {event.iteration}"
            case PhaseCompleted():
                text = f"{event.phase}: {endings[id(event)]}"
            case ConditionsChecked(of="phase", met=()) if event.unit:
                text = f"{unit_name(event)}: skipped"
            case PhaseSkipped():
                text = f"{unit_name(event)}: left out, {event.code}"
            case Blocked():
                path = f", {event.path}" if event.path else ""
                text = f"{unit_name(event)}: blocked by {event.check}, cause {event.cause}{path}"
            case RolledBack():
                units = f", units {list_names(event.units)}" if event.units else ""
                text, phase = f"{event.source}: back to {event.to}{units}", event.source
            case HumanRequested():
                text = f"{unit_name(event)}: a person is asked, {event.question_kind.value} {event.subject}".rstrip()
            case HumanAnswered():
                text = f"a person answers, {answers.get(id(event), event.verdict.value)}"
            case FeatureRetried():
                text, phase = f"a person starts again from {event.to or 'the beginning'}", event.to
            case _:
                continue
        phase = phase if isinstance(event, HumanAnswered) else getattr(event, "phase", phase)
        yield phase, f"- {text}"


def _secrets(of: str | None, progress: FeatureProgress) -> Iterator[str]:
    for event in progress.history:
        if isinstance(event, ChangesChecked) and of in (None, event.ref.phase):
            paths = (change.path for change in event.forbidden_changes if change.kind == "secret")
            yield from (f"- {path}: a secret, written by {event.ref.key.partition('/')[2]}" for path in paths)


def _notes(progress: FeatureProgress, phases: Iterable[Phase], texts: Texts) -> Iterator[str]:
    """Yield state, decisions, risks and hand-offs; of too many the oldest entries are left out."""
    blocks = [event for event in progress.history if isinstance(event, Blocked)]
    endings = {event.phase: ending for event, ending in _endings(progress) if event.phase in progress.completed_phases}
    sections = {
        "State": [f"- {phase.phase}: {endings.get(phase.phase, 'open')}" for phase in phases],
        "Decisions": [f"- {unit_name(question)}: {text}" for question, _, text in _answers(progress, texts)],
        "Risks": [f"- {gate.gate} failed, and was accepted as it is" for gate in progress.accepted_gates],
        "Hand-offs": [
            f"- {unit_name(block)}, cause {block.cause}: "
            f"{' '.join(texts[block.note].split()) if block.note else block.check}"
            for block in blocks
        ],
    }
    sections["Risks"] += [f"- {cause}: blocked {count} times" for cause, count in progress.block_counts.items()]
    while sum(len(lines) + 2 for lines in sections.values() if lines) > NOTES_LINES_MAX:
        max(sections.values(), key=len).pop(0)
    for name, lines in sections.items():
        yield from (f"## {name}", *lines, "") if lines else ()
