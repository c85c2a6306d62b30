"""Questions to people and their answers, as JSON and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from mz_events.catalog.run import Hold, Verdict
from mz_events.names import Digest
from mz_projections.queue import Decision, Letter, Question
from mz_projections.views import FeatureView, RunView

from mz_cli.advice import Words
from mz_cli.evidence import Piece
from mz_cli.page import patch_look
from mz_cli.questions import Effects, place_words, question_words
from mz_cli.render.styled import Line, Span, line_of
from mz_cli.render.table import Table, columns
from mz_cli.render.text import clean, instant, line, shorten
from mz_cli.shapes.people import (
    DecisionShape,
    EffectShape,
    EvidenceShape,
    LetterShape,
    QuestionShape,
    ReviewDetail,
)

WHOLE_HEADS = ("run", "feature", "phase", "unit", "asks", "code", "since", "event_ref", "answered", "next", "detail")
COMMANDS = {Verdict.APPROVE: "approve {}", Verdict.RETRY: "answer {} TEXT", Verdict.REJECT: "reject {} --note WHY"}
NOTHING = "There are no open questions."
SPENT = "the budget is used up: raise it in mz.yaml, then continue"


def question_shape(
    question: Question, title: Digest | None, answered: Letter | None, verdicts: Sequence[Verdict], words: Words
) -> QuestionShape:
    """Return a question. `posted`: an answer that the run has not read yet; `verdicts`: the possible ones, the
    likeliest first."""
    show = (f"mz review show {question.feature}",)
    ways = tuple(command_for(verdict, question.feature) for verdict in verdicts)
    return QuestionShape(
        run=question.run, feature=question.feature, title=line(words(title)), phase=question.phase or None,
        unit=question.unit or None, ask=question.ask.value, code=question.code or None,
        words=question_words(question), detail=words(question.detail) or None, since=instant(question.since_us),
        place=question.place, answered=letter_shape(answered, words) if answered else None,
        commands=(f"mz resume {question.run}",) if answered else (*show, *ways),
    )  # fmt: skip


def halted_shape(run: RunView, view: FeatureView, words: Words) -> QuestionShape | None:
    """Return a question for a held feature that needs a person; None for any other."""
    if is_stuck(run, view):
        return stuck_shape(run, view, words)
    return spent_shape(run, view, words) if view.status == "held" and view.hold is Hold.BUDGET else None


def stuck_shape(run: RunView, view: FeatureView, words: Words) -> QuestionShape:
    """Return the question for an item whose dependency was not delivered: retry that, or cancel this?"""
    return QuestionShape(
        run=run.run, feature=view.feature, title=line(words(view.title)), phase=None, unit=None, ask="dependency",
        code=view.because, words=f"its dependency {view.because} was not delivered", detail=None, since=None,
        place=None, answered=None,
        commands=(f"mz retry {view.because}", f"mz cancel {run.run} --feature {view.feature}"),
    )  # fmt: skip


def spent_shape(run: RunView, view: FeatureView, words: Words) -> QuestionShape:
    """Return the question for a feature whose next call exceeds the budget."""
    return QuestionShape(
        run=run.run, feature=view.feature, title=line(words(view.title)), phase=view.phase or None, unit=None,
        ask="budget", code=None, words=SPENT, detail=None, since=None, place=None, answered=None,
        commands=(f"mz resume {run.run}", f"mz cancel {run.run} --feature {view.feature}"),
    )  # fmt: skip


def command_for(verdict: Verdict, feature: str) -> str:
    return f"mz review {COMMANDS[verdict].format(feature)}"


def is_stuck(run: RunView, view: FeatureView) -> bool:
    """Return True if it is held for a feature that was not delivered."""
    needed = run.find(view.because) if view.status == "held" and view.hold is None else None
    return needed is not None and (needed.status in ("failed", "cancelled") or is_stuck(run, needed))


def letter_shape(letter: Letter, words: Words) -> LetterShape:
    return LetterShape(
        kind=letter.kind, verdict=letter.verdict.value if letter.verdict else None, phase=letter.phase,
        who=line(words(letter.who)), at=instant(letter.at_us), note=words(letter.note) or None, place=letter.place,
        fate=letter.fate, why=letter.why or None,
    )  # fmt: skip


def decision_shape(decision: Decision, words: Words) -> DecisionShape:
    asked = decision.question
    return DecisionShape(
        kind=decision.kind, verdict=decision.verdict.value if decision.verdict else None, phase=decision.phase,
        who=line(words(decision.who)), at=instant(decision.at_us), note=words(decision.note) or None,
        place=decision.place, ask=asked.ask.value if asked else None, code=(asked.code or None) if asked else None,
    )  # fmt: skip


def effect_shapes(found: Effects, feature: str) -> tuple[EffectShape, ...]:
    return tuple(
        EffectShape(answer=verdict.value, does=does, command=command_for(verdict, feature)) for verdict, does in found
    )


def evidence_shapes(pieces: Iterable[Piece], words: Words, patch: Callable[[Piece], str]) -> tuple[EvidenceShape, ...]:
    """Return the evidence with texts; pieces without text are left out. `patch` returns the text of a diff."""
    shapes = []
    for piece in pieces:
        text = patch(piece) if piece.span is not None else piece.text or words(piece.digest)
        if text:
            shapes.append(
                EvidenceShape(kind=piece.kind, title=piece.title, place=piece.place, digest=piece.digest, text=text)
            )
    return tuple(shapes)


# for people -----------------------------------------------------------------------------------------------------------
def questions_table(questions: Sequence[QuestionShape], whole: bool) -> Table:
    """Return the open questions. `exact`: for a pipe, with everything that a terminal shows below the table."""
    if whole:
        return Table(columns=columns(*WHOLE_HEADS), rows=tuple(_whole(each) for each in questions), empty=NOTHING)
    several = len({each.run for each in questions}) > 1
    heads = (*(("run",) if several else ()), "feature", "phase", "since", "asks")
    rows = tuple(
        (*((each.run,) if several else ()), each.feature, _place(each), _minute(each.since), each.words)
        for each in questions
    )
    return Table(columns=columns(*heads), rows=rows, empty=NOTHING)


def _whole(each: QuestionShape) -> tuple[str, ...]:
    answered = each.answered.verdict or "" if each.answered else ""
    return (
        each.run, each.feature, each.phase or "", each.unit or "", each.ask, each.code or "", each.since or "",
        each.place or "", answered, each.commands[0], each.detail or "",
    )  # fmt: skip


def _place(each: QuestionShape) -> str:
    return "-" if each.ask == "dependency" else place_words(each.phase or "", each.unit or "")


def _minute(iso: str | None) -> str:
    """Return `2026-03-01 12:00:00Z` for an ISO time."""
    return f"{iso[:10]} {iso[11:19]}Z" if iso else "-"


def hints(questions: Sequence[QuestionShape], detail_max: int) -> tuple[str, ...]:
    """Return the lines below the table: each question and the commands that answer it."""
    lines = []
    for each in questions:
        told = shorten(line(each.detail or ""), detail_max)
        lines.append(f"\n{each.feature}: {each.words}{': ' if told else ''}{told}")
        if each.answered:
            lines.append(f"  {letter_line(each.answered)}; pending until the run continues")
        lines += [f"  {command}" for command in each.commands]
    return tuple(lines)


def page(detail: ReviewDetail, lines_max: int | None) -> Iterator[Line]:
    """Yield everything needed for a decision. Texts are cut after `lines_max` lines; None: no limit."""
    asked = detail.question
    yield (Span(detail.feature, "bold"), Span(f": {detail.title}"))
    yield from map(line_of, _head(detail))
    yield ()
    yield line_of(f"Waiting for you: {asked.words}.", "bold") if asked else line_of("There is no open question.")
    if detail.halt:
        yield from (line_of(detail.halt), line_of(f"  {detail.helps}"))
    for piece in detail.evidence:
        yield ()
        yield line_of(f"{piece.title}:", "bold")
        yield from _text(piece, lines_max, detail.feature)
    if asked is not None and asked.answered is not None:
        yield from _part("answered; pending until the run continues:", [f"  {command}" for command in asked.commands])
    else:
        yield from _part("answers:", _effects(detail.effects))
    yield from _part("decisions so far:", [f"  {decision_line(decision)}" for decision in detail.decisions])
    yield from _part("unread messages:", [f"  {letter_line(message)}" for message in detail.letters])


def _head(detail: ReviewDetail) -> list[str]:
    lines = [f"  run: {detail.run}", f"  status: {detail.status}"]
    lines += [f"  branch: {detail.branch}"] if detail.branch else []
    if detail.question is not None and detail.question.since is not None:
        since = f"{_minute(detail.question.since)}, {detail.question.place}"
        lines += [f"  phase: {_place(detail.question)}", f"  since: {since}"]
    return lines


def _text(piece: EvidenceShape, lines_max: int | None, feature: str) -> Iterator[Line]:
    told = clean(piece.text).strip("\n").split("\n")
    shown = told if lines_max is None else told[:lines_max]
    for text in shown:
        yield (Span("  | "), Span(text, patch_look(text) if piece.kind == "diff" else ""))
    if len(shown) < len(told):
        yield line_of(f"  ... {len(told) - len(shown)} more lines: mz review show {feature} --whole")


def _part(head: str, lines: Sequence[str]) -> Iterator[Line]:
    if lines:
        yield from ((), line_of(head, "bold"), *map(line_of, lines))


def _effects(effects: Sequence[EffectShape]) -> list[str]:
    lines = []
    for index, each in enumerate(effects):
        same = next((other.command for other in effects[:index] if other.does == each.does), "")
        does = f"the same as `{' '.join(same.split()[:3])}`" if same else each.does
        lines += [f"  {each.command}", f"      {does}"]
    return lines


def decision_line(each: DecisionShape) -> str:
    """Return time, actor, verdict, question and note of a decision."""
    about = f" to {each.ask}{f' ({each.code})' if each.code else ''}" if each.ask else ""
    return _said(each.kind, each.verdict, each.phase, about, each.who, each.at, each.note) + f"  [{each.place}]"


def letter_line(each: LetterShape) -> str:
    became = f", rejected: {each.why}" if each.fate == "refused" else ""
    return _said(each.kind, each.verdict, each.phase, became, each.who, each.at, each.note) + f"  [{each.place}]"


def _said(kind: str, verdict: str | None, phase: str | None, more: str, who: str, at: str | None,
          note: str | None) -> str:  # fmt: skip
    what = verdict or (f"retry from {phase}" if kind == "retry" and phase else kind)
    return f"{_minute(at)} {who}: {what}{more}" + (f": {line(note)}" if note else "")
