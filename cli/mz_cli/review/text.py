"""Questions to people and their answers, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import field
from mz_events.catalog.run import Hold
from mz_projections.views.messages import Decision, HumanMessage, InboxMessage
from mz_projections.views.model import FeatureView
from mz_projections.views.timeline import code_suffix

from mz_cli.app.context import TextLoader
from mz_cli.common.advice import is_dependency_lost, over_budget_text, review_commands
from mz_cli.common.feature_text import patch_style, section
from mz_cli.people.questions import ReviewQueue, question_text, unit_text
from mz_cli.review.evidence import EvidenceShape
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import Cell, Table, columns, time_cell
from mz_cli.terminal.text import Line, Span, format_time, shorten, single_line, strip_escapes, styled_line

DETAIL_MAX = 300


class PersonMessage(Shape, frozen=True, kw_only=True):
    """A message from a person to a run."""

    kind: str
    """`answer`, `retry`, `cancel`, `pause` or `resume`."""
    verdict: str | None
    """For an answer: `approve`, `retry`, `accept` or `reject`."""
    phase: str | None
    """For a retry: the first phase; null: the current phase."""
    actor: str
    recorded_at_us: int
    note: str | None
    event_ref: str


class MessageShape(PersonMessage, frozen=True, kw_only=True):
    status: str
    """`pending`, `accepted` or `rejected`."""
    rejection_code: str | None
    """Code of the reason for rejecting the message."""


class AcceptedMessage(PersonMessage, frozen=True, kw_only=True):
    """A person's message that the run accepted."""

    question_kind: str | None
    """Kind of the answered question."""
    code: str | None


class QuestionShape(Shape, frozen=True, kw_only=True):
    """An open question of a feature."""

    run: str
    feature: str
    title: str
    phase: str | None = None
    unit: str | None = None
    question_kind: str
    """Kind of the question; `dependency`: a required feature was not delivered; `budget`: the budget is used up."""
    code: str | None = None
    """Subject of the question: a rule, gate, problem, check or feature."""
    text: str
    """Text of the question."""
    detail: str | None = None
    since_us: int | None = field(name="since", default=None)
    event_ref: str | None = None
    answered: MessageShape | None = None
    """A posted answer, retry or cancellation that the run has not read yet."""
    commands: tuple[str, ...]
    """Commands that answer it, the most likely first."""


class ReviewList(Shape, frozen=True, kw_only=True):
    """`mz review list --json`."""

    questions: tuple[QuestionShape, ...]
    """The newest run first; within a run the oldest question first."""


class EffectShape(Shape, frozen=True, kw_only=True):
    answer: str
    effect: str
    command: str


class ReviewDetail(Shape, frozen=True, kw_only=True):
    """`mz review show FEATURE --json`."""

    run: str
    feature: str
    title: str
    status: str
    branch: str | None
    question: QuestionShape | None
    """Null: no question is open."""
    halt: str | None
    """Reason why the feature does not continue, if no question is open."""
    hint: str | None
    """Suggested fix for `halt`."""
    effects: tuple[EffectShape, ...]
    """Effect of each answer, the most likely first."""
    evidence: tuple[EvidenceShape, ...]
    decisions: tuple[AcceptedMessage, ...]
    """Decisions about the feature, the oldest first."""
    messages: tuple[MessageShape, ...]
    """Messages for the feature that are unread or were rejected."""


def question_shape(queue: ReviewQueue, view: FeatureView) -> QuestionShape | None:
    """Return the open question of the feature, or what a held one needs; None if it needs nothing."""
    run, feature, load_text, question = queue.run.run, view.feature, queue.context.load_text, queue.question(view)
    title, cancel = single_line(load_text(view.title)), f"mz cancel {run}/{feature}"
    if question is not None:
        message = queue.context.pending_message(view)
        return shape_of(
            QuestionShape,
            question,
            title=title,
            text=question_text(question),
            detail=load_text(question.detail) or None,
            answered=message_shape(message, load_text) if message else None,
            commands=(f"mz resume {run}",) if message else review_commands(view),
        )
    if is_dependency_lost(view):
        return QuestionShape(
            run=run, feature=feature, title=title, question_kind="dependency", code=view.blocked_by,
            text=f"its dependency {view.blocked_by} was not delivered",
            commands=(f"mz retry {view.blocked_by}", cancel),
        )  # fmt: skip
    if view.status == "held" and view.hold is Hold.BUDGET:
        return QuestionShape(
            run=run, feature=feature, title=title, phase=view.phase or None, question_kind="budget",
            text=f"{over_budget_text(view) or 'the budget is used up'}: raise it in mz.yaml, then continue",
            commands=(f"mz resume {run}", cancel),
        )  # fmt: skip
    return None


def message_shape(message: InboxMessage, load_text: TextLoader) -> MessageShape:
    return shape_of(MessageShape, message, **_message_texts(message, load_text))


def decision_shape(decision: Decision, load_text: TextLoader) -> AcceptedMessage:
    return shape_of(AcceptedMessage, decision, decision.question, **_message_texts(decision, load_text))


def _message_texts(message: HumanMessage, load_text: TextLoader) -> dict[str, str | None]:
    return {"actor": single_line(load_text(message.actor)), "note": load_text(message.note) or None}


# for people -----------------------------------------------------------------------------------------------------------
def questions_table(questions: Sequence[QuestionShape]) -> Table:
    """Return the open questions; a pipe also gets everything that a terminal shows below the table."""
    run = "run" if len({question.run for question in questions}) > 1 else "|run"
    rows = tuple(
        (
            question.run, question.feature, Cell(_unit_cell(question), question.phase or ""), question.unit or "",
            question.question_kind, question.code or "", time_cell(question.since_us),
            question.text, question.event_ref or "", (question.answered.verdict or "") if question.answered else "",
            question.commands[0], question.detail or "",
        )
        for question in questions
    )  # fmt: skip
    heads = (run, "feature", "phase", "|unit", "|asks", "|code", "since", "~asks|", "|event_ref", "|answered", "|next")
    return Table(columns=columns(*heads, "|detail"), rows=rows, empty="There are no open questions.")


def _unit_cell(question: QuestionShape) -> str:
    return "-" if question.question_kind == "dependency" else unit_text(question.phase or "", question.unit or "")


def answer_hints(questions: Sequence[QuestionShape]) -> Iterator[str]:
    """Yield the lines below the table: each question and the commands that answer it."""
    for question in questions:
        detail = shorten(single_line(question.detail or ""), DETAIL_MAX)
        yield f"\n{question.feature}: {question.text}{': ' if detail else ''}{detail}"
        if question.answered:
            yield f"  {message_line(question.answered)}; pending until the run continues"
        yield from (f"  {command}" for command in question.commands)


def render_text(detail: ReviewDetail, lines_max: int | None) -> Iterator[Line]:
    """Yield everything needed for a decision. Texts are cut after `lines_max` lines; None: no limit."""
    question = detail.question
    yield (Span(detail.feature, "bold"), Span(f": {detail.title}"))
    yield from map(styled_line, _head_lines(detail))
    yield ()
    if question:
        yield styled_line(f"Waiting for you: {question.text}.", "bold")
    else:
        yield styled_line("There is no open question.")
    if detail.halt:
        yield from (styled_line(detail.halt), styled_line(f"  {detail.hint}"))
    for piece in detail.evidence:
        yield from section(piece.title, _evidence_lines(piece, lines_max, detail.feature))
    if question is not None and question.answered is not None:
        commands = (styled_line(f"  {command}") for command in question.commands)
        yield from section("answered; pending until the run continues", commands)
    else:
        yield from section("answers", map(styled_line, _effect_lines(detail.effects)))
    yield from section("decisions so far", (styled_line(f"  {message_line(made)}") for made in detail.decisions))
    yield from section("unread messages", (styled_line(f"  {message_line(sent)}") for sent in detail.messages))


def _head_lines(detail: ReviewDetail) -> list[str]:
    lines = [f"  run: {detail.run}", f"  status: {detail.status}"]
    lines += [f"  branch: {detail.branch}"] if detail.branch else []
    if detail.question is not None and detail.question.since_us is not None:
        since = f"{format_time(detail.question.since_us)}, {detail.question.event_ref}"
        lines += [f"  phase: {_unit_cell(detail.question)}", f"  since: {since}"]
    return lines


def _evidence_lines(piece: EvidenceShape, lines_max: int | None, feature: str) -> Iterator[Line]:
    text_lines = strip_escapes(piece.text).strip("\n").split("\n")
    shown_lines = text_lines if lines_max is None else text_lines[:lines_max]
    for text in shown_lines:
        yield (Span("  | "), Span(text, patch_style(text) if piece.kind == "diff" else ""))
    if len(shown_lines) < len(text_lines):
        yield styled_line(f"  ... {len(text_lines) - len(shown_lines)} more lines: mz review show {feature} --full")


def _effect_lines(effects: Sequence[EffectShape]) -> list[str]:
    lines = []
    for index, effect in enumerate(effects):
        same_command = next((other.command for other in effects[:index] if other.effect == effect.effect), "")
        effect_text = f"the same as `{' '.join(same_command.split()[:3])}`" if same_command else effect.effect
        lines += [f"  {effect.command}", f"      {effect_text}"]
    return lines


def message_line(message: MessageShape | AcceptedMessage) -> str:
    """Return time, actor, action, what it answered or why it was rejected, and the note of a message."""
    action = message.verdict or message.kind + (f" from {message.phase}" if message.phase else "")
    if isinstance(message, MessageShape):
        suffix = f", rejected: {message.rejection_code}" if message.status == "rejected" else ""
    else:
        suffix = f" to {message.question_kind}{code_suffix(message.code)}" if message.question_kind else ""
    note = f": {single_line(message.note)}" if message.note else ""
    return f"{format_time(message.recorded_at_us)} {message.actor}: {action}{suffix}{note}  [{message.event_ref}]"
