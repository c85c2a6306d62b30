"""Questions to people and their answers, as JSON and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from mz_events.catalog.run import Hold, Verdict
from mz_events.names import Digest
from mz_projections.views.messages import Decision, InboxMessage, Question
from mz_projections.views.model import FeatureView, RunView

from mz_cli.common.advice import TextLoader
from mz_cli.common.feature_text import patch_style
from mz_cli.people.json import (
    AcceptedMessage,
    EffectShape,
    EvidenceShape,
    MessageShape,
    QuestionShape,
    ReviewDetail,
)
from mz_cli.people.questions import Effects, question_text, unit_text
from mz_cli.review.evidence import EvidencePiece
from mz_cli.terminal.table import Table, columns
from mz_cli.terminal.text import iso_time, shorten, single_line, strip_escapes
from mz_cli.terminal.width import Line, Span, styled_line

PIPE_HEADS = ("run", "feature", "phase", "unit", "asks", "code", "since", "event_ref", "answered", "next", "detail")
VERDICT_COMMANDS = {
    Verdict.APPROVE: "approve {}",
    Verdict.RETRY: "answer {} TEXT",
    Verdict.REJECT: "reject {} -m WHY",
}
NO_QUESTIONS = "There are no open questions."
BUDGET_TEXT = "the budget is used up: raise it in mz.yaml, then continue"


def question_shape(
    question: Question,
    title: Digest | None,
    posted: InboxMessage | None,
    verdicts: Sequence[Verdict],
    load_text: TextLoader,
) -> QuestionShape:
    """Return a question. `posted`: an answer that the run has not read yet; `verdicts`: the possible ones, the
    likeliest first."""
    show_command = (f"mz review show {question.feature}",)
    answer_commands = tuple(verdict_command(verdict, question.feature) for verdict in verdicts)
    return QuestionShape(
        run=question.run, feature=question.feature, title=single_line(load_text(title)), phase=question.phase or None,
        unit=question.unit or None, question_kind=question.question_kind.value, code=question.code or None,
        text=question_text(question), detail=load_text(question.detail) or None, since=iso_time(question.since_us),
        event_ref=question.event_ref, answered=message_shape(posted, load_text) if posted else None,
        commands=(f"mz resume {question.run}",) if posted else (*show_command, *answer_commands),
    )  # fmt: skip


def question_of_held(run: RunView, view: FeatureView, load_text: TextLoader) -> QuestionShape | None:
    """Return a question for a held feature that needs a person; None for any other."""
    if is_dependency_lost(run, view):
        return dependency_question(run, view, load_text)
    return budget_question(run, view, load_text) if view.status == "held" and view.hold is Hold.BUDGET else None


def dependency_question(run: RunView, view: FeatureView, load_text: TextLoader) -> QuestionShape:
    """Return the question for an item whose dependency was not delivered: retry that, or cancel this?"""
    return QuestionShape(
        run=run.run,
        feature=view.feature,
        title=single_line(load_text(view.title)),
        phase=None,
        unit=None,
        question_kind="dependency",
        code=view.blocked_by,
        text=f"its dependency {view.blocked_by} was not delivered",
        detail=None,
        since=None,
        event_ref=None,
        answered=None,
        commands=(f"mz retry {view.blocked_by}", f"mz cancel {run.run}/{view.feature}"),
    )


def budget_question(run: RunView, view: FeatureView, load_text: TextLoader) -> QuestionShape:
    """Return the question for a feature whose next call exceeds the budget."""
    return QuestionShape(
        run=run.run,
        feature=view.feature,
        title=single_line(load_text(view.title)),
        phase=view.phase or None,
        unit=None,
        question_kind="budget",
        code=None,
        text=BUDGET_TEXT,
        detail=None,
        since=None,
        event_ref=None,
        answered=None,
        commands=(f"mz resume {run.run}", f"mz cancel {run.run}/{view.feature}"),
    )


def verdict_command(verdict: Verdict, feature: str) -> str:
    return f"mz review {VERDICT_COMMANDS[verdict].format(feature)}"


def is_dependency_lost(run: RunView, view: FeatureView) -> bool:
    """Return True if it is held for a feature that was not delivered."""
    dependency = run.find_feature(view.blocked_by) if view.status == "held" and view.hold is None else None
    return dependency is not None and (
        dependency.status in ("failed", "cancelled") or is_dependency_lost(run, dependency)
    )


def message_shape(message: InboxMessage, load_text: TextLoader) -> MessageShape:
    return MessageShape(
        kind=message.kind,
        verdict=message.verdict.value if message.verdict else None,
        phase=message.phase,
        actor=single_line(load_text(message.actor)),
        at=iso_time(message.at_us),
        note=load_text(message.note) or None,
        event_ref=message.event_ref,
        outcome=message.status,
        rejection_code=message.rejection_code or None,
    )


def decision_shape(decision: Decision, load_text: TextLoader) -> AcceptedMessage:
    question = decision.question
    return AcceptedMessage(
        kind=decision.kind,
        verdict=decision.verdict.value if decision.verdict else None,
        phase=decision.phase,
        actor=single_line(load_text(decision.actor)),
        at=iso_time(decision.at_us),
        note=load_text(decision.note) or None,
        event_ref=decision.event_ref,
        question_kind=question.question_kind.value if question else None,
        code=(question.code or None) if question else None,
    )


def effect_shapes(effects: Effects, feature: str) -> tuple[EffectShape, ...]:
    return tuple(
        EffectShape(answer=verdict.value, does=effect, command=verdict_command(verdict, feature))
        for verdict, effect in effects
    )


def evidence_shapes(
    pieces: Iterable[EvidencePiece], load_text: TextLoader, patch: Callable[[EvidencePiece], str]
) -> tuple[EvidenceShape, ...]:
    """Return the evidence with texts; pieces without text are left out. `patch` returns the text of a diff."""
    shapes = []
    for piece in pieces:
        text = patch(piece) if piece.span is not None else piece.text or load_text(piece.digest)
        if text:
            shapes.append(
                EvidenceShape(
                    kind=piece.kind, title=piece.title, event_ref=piece.event_ref, digest=piece.digest, text=text
                )
            )
    return tuple(shapes)


# for people -----------------------------------------------------------------------------------------------------------
def questions_table(questions: Sequence[QuestionShape], exact: bool) -> Table:
    """Return the open questions. `exact`: for a pipe, with everything that a terminal shows below the table."""
    if exact:
        return Table(
            columns=columns(*PIPE_HEADS), rows=tuple(_exact_row(question) for question in questions), empty=NO_QUESTIONS
        )
    with_run = len({question.run for question in questions}) > 1
    heads = (*(("run",) if with_run else ()), "feature", "phase", "since", "asks")
    rows = tuple(
        (
            *((question.run,) if with_run else ()),
            question.feature,
            _unit_cell(question),
            _short_time(question.since),
            question.text,
        )
        for question in questions
    )
    return Table(columns=columns(*heads), rows=rows, empty=NO_QUESTIONS)


def _exact_row(question: QuestionShape) -> tuple[str, ...]:
    verdict = question.answered.verdict or "" if question.answered else ""
    return (
        question.run,
        question.feature,
        question.phase or "",
        question.unit or "",
        question.question_kind,
        question.code or "",
        question.since or "",
        question.event_ref or "",
        verdict,
        question.commands[0],
        question.detail or "",
    )


def _unit_cell(question: QuestionShape) -> str:
    return "-" if question.question_kind == "dependency" else unit_text(question.phase or "", question.unit or "")


def _short_time(iso: str | None) -> str:
    """Return `2026-03-01 12:00:00Z` for an ISO time."""
    return f"{iso[:10]} {iso[11:19]}Z" if iso else "-"


def answer_hints(questions: Sequence[QuestionShape], detail_max: int) -> tuple[str, ...]:
    """Return the lines below the table: each question and the commands that answer it."""
    lines = []
    for question in questions:
        detail = shorten(single_line(question.detail or ""), detail_max)
        lines.append(f"\n{question.feature}: {question.text}{': ' if detail else ''}{detail}")
        if question.answered:
            lines.append(f"  {message_line(question.answered)}; pending until the run continues")
        lines += [f"  {command}" for command in question.commands]
    return tuple(lines)


def render_text(detail: ReviewDetail, lines_max: int | None) -> Iterator[Line]:
    """Yield everything needed for a decision. Texts are cut after `lines_max` lines; None: no limit."""
    question = detail.question
    yield (Span(detail.feature, "bold"), Span(f": {detail.title}"))
    yield from map(styled_line, _head_lines(detail))
    yield ()
    yield (
        styled_line(f"Waiting for you: {question.text}.", "bold")
        if question
        else styled_line("There is no open question.")
    )
    if detail.halt:
        yield from (styled_line(detail.halt), styled_line(f"  {detail.helps}"))
    for piece in detail.evidence:
        yield ()
        yield styled_line(f"{piece.title}:", "bold")
        yield from _evidence_lines(piece, lines_max, detail.feature)
    if question is not None and question.answered is not None:
        yield from _section_lines(
            "answered; pending until the run continues:", [f"  {command}" for command in question.commands]
        )
    else:
        yield from _section_lines("answers:", _effect_lines(detail.effects))
    yield from _section_lines("decisions so far:", [f"  {decision_line(decision)}" for decision in detail.decisions])
    yield from _section_lines("unread messages:", [f"  {message_line(message)}" for message in detail.messages])


def _head_lines(detail: ReviewDetail) -> list[str]:
    lines = [f"  run: {detail.run}", f"  status: {detail.status}"]
    lines += [f"  branch: {detail.branch}"] if detail.branch else []
    if detail.question is not None and detail.question.since is not None:
        since = f"{_short_time(detail.question.since)}, {detail.question.event_ref}"
        lines += [f"  phase: {_unit_cell(detail.question)}", f"  since: {since}"]
    return lines


def _evidence_lines(piece: EvidenceShape, lines_max: int | None, feature: str) -> Iterator[Line]:
    text_lines = strip_escapes(piece.text).strip("\n").split("\n")
    shown_lines = text_lines if lines_max is None else text_lines[:lines_max]
    for text in shown_lines:
        yield (Span("  | "), Span(text, patch_style(text) if piece.kind == "diff" else ""))
    if len(shown_lines) < len(text_lines):
        yield styled_line(f"  ... {len(text_lines) - len(shown_lines)} more lines: mz review show {feature} --full")


def _section_lines(head: str, lines: Sequence[str]) -> Iterator[Line]:
    if lines:
        yield from ((), styled_line(head, "bold"), *map(styled_line, lines))


def _effect_lines(effects: Sequence[EffectShape]) -> list[str]:
    lines = []
    for index, effect in enumerate(effects):
        same_command = next((other.command for other in effects[:index] if other.does == effect.does), "")
        effect_text = f"the same as `{' '.join(same_command.split()[:3])}`" if same_command else effect.does
        lines += [f"  {effect.command}", f"      {effect_text}"]
    return lines


def decision_line(decision: AcceptedMessage) -> str:
    """Return time, actor, verdict, question and note of a decision."""
    answered_question = (
        f" to {decision.question_kind}{f' ({decision.code})' if decision.code else ''}"
        if decision.question_kind
        else ""
    )
    return (
        _action_line(
            decision.kind,
            decision.verdict,
            decision.phase,
            answered_question,
            decision.actor,
            decision.at,
            decision.note,
        )
        + f"  [{decision.event_ref}]"
    )


def message_line(message: MessageShape) -> str:
    rejection = f", rejected: {message.rejection_code}" if message.outcome == "rejected" else ""
    return (
        _action_line(message.kind, message.verdict, message.phase, rejection, message.actor, message.at, message.note)
        + f"  [{message.event_ref}]"
    )


def _action_line(kind: str, verdict: str | None, phase: str | None, suffix: str, who: str, at: str | None,
          note: str | None) -> str:  # fmt: skip
    action = verdict or (f"retry from {phase}" if kind == "retry" and phase else kind)
    return f"{_short_time(at)} {who}: {action}{suffix}" + (f": {single_line(note)}" if note else "")
