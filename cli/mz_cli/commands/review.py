"""Command `mz review`."""

from __future__ import annotations

import sys

import click
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import AnswerLeft
from mz_events.catalog.run import Verdict
from mz_events.names import FeatureId, feature_stream
from mz_projections.queue import Question
from mz_projections.views import FeatureView

from mz_cli.advice import waits
from mz_cli.cases import Desk, desk, find_desk, pipeline_of, state_of, the_question, unfinished
from mz_cli.changes import patch
from mz_cli.context import Reading, is_held, reading
from mz_cli.evidence import Piece, evidence
from mz_cli.help import section
from mz_cli.inbox import keep, leave, who
from mz_cli.questions import effects, question_words
from mz_cli.render.console import answer as say
from mz_cli.render.console import is_terminal, put_lines
from mz_cli.render.document import show_document
from mz_cli.render.draw import show as draw
from mz_cli.reviewpage import (
    decision_shape,
    effect_shapes,
    evidence_shapes,
    halted_shape,
    hints,
    letter_shape,
    page,
    question_shape,
    questions_table,
)
from mz_cli.sent import show_sent
from mz_cli.shapes.people import QuestionShape, ReviewDetail, ReviewList
from mz_cli.wording import given, written
from mz_cli.worktrees import around

DETAIL_MAX = 300
LINES_MAX = 40
"""Maximum of lines per text on a terminal."""
WILL = {
    Verdict.APPROVE: "approved",
    Verdict.RETRY: "answered",
    Verdict.REJECT: "rejected",
}


@section(
    "review",
    examples=(
        ("mz review list", "the open questions of all runs"),
        ("mz review show login", "everything needed to decide"),
        ("mz review answer login 'use SQLite'", "answer the agent, which then continues"),
    ),
    following="`mz review list` shows the open questions.",
)
def review() -> None:
    """List and answer open questions.

    An answer is a message for the run; the first answer to a question counts. A running process reads it at once,
    otherwise the next `mz resume` does. The log keeps who answered what, when and why.
    """


@review.page(
    "list",
    examples=(
        ("mz review list", "all open questions of all unfinished runs"),
        ("mz review list --json | jq -r '.questions[].feature'", "for programs"),
    ),
    following="`mz review show FEATURE` shows the details of a question.",
)
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.review-list/1.")
def list_(run: str | None, as_json: bool) -> None:
    """List open questions and how to answer them.

    RUN is a run's id or its beginning (default: all unfinished runs).
    """
    with reading() as log:
        runs = unfinished(log) if run is None else (log.find_run(run),)
        questions = tuple(each for one in runs for each in asked(log, desk(log, one)))
    if as_json:
        show_document("review-list", ReviewList(questions=questions))
        return
    terminal = is_terminal(sys.stdout)
    draw(questions_table(questions, whole=not terminal))
    for text in hints(questions, DETAIL_MAX) if terminal else ():
        say(text)


def asked(log: Reading, found: Desk) -> tuple[QuestionShape, ...]:
    """Return the run's open questions, the oldest first, then features that no answer can continue."""
    shapes = [shape_of(log, found, each) for each in found.questions if found.question(each.feature) is not None]
    halted = [halted_shape(found.run, view, log.words) for view in found.run.features]
    return (*shapes, *(shape for shape in halted if shape is not None))


def shape_of(log: Reading, found: Desk, question: Question) -> QuestionShape:
    view = found.run.find(question.feature)
    can = effects(state_of(log, question.run, question.feature), pipeline_of(log, found.run))
    verdicts = [verdict for verdict, _ in can]
    return question_shape(question, view.title if view else None, found.pending(question.feature), verdicts, log.words)


@review.page(
    "show",
    examples=(
        ("mz review show login", "the question, the work concerned, the effect of each answer"),
        ("mz review show login --whole | less", "without cutting texts"),
    ),
    following="answer with `mz review approve FEATURE`, `mz review answer FEATURE` or `mz review reject FEATURE`.",
)
@click.argument("feature")
@click.option("--run", metavar="RUN", help="The run. [default: the newest with an open question of the feature]")
@click.option("--whole", is_flag=True, help="Do not cut texts; a pipe always gets them complete.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.review-show/1.")
def show(feature: str, run: str | None, whole: bool, as_json: bool) -> None:
    """Show everything needed to answer a question.

    Prints the question; the artifact, patch, violations or output concerned; the effect of each answer; and earlier
    decisions with person, time and reason.
    """
    with reading() as log:
        found, _ = find_desk(log, run, feature)
        detail = detail_of(log, found, feature)
    if as_json:
        show_document("review-show", detail)
    else:
        cut = LINES_MAX if is_terminal(sys.stdout) and not whole else None
        put_lines(sys.stdout, page(detail, cut))


def detail_of(log: Reading, found: Desk, feature: str) -> ReviewDetail:
    view, question, run = found.run.find(feature), found.question(feature), found.run.run
    assert view is not None
    state = state_of(log, run, feature)
    can = effects(state, pipeline_of(log, found.run)) if question else ()
    events = tuple(log.store.read(feature_stream(run, feature)))
    pieces = evidence(question, state, events, log.words) if question else ()
    shape = shape_of(log, found, question) if question else halted_shape(found.run, view, log.words)
    halt, helps = (None, None) if shape else halting(log, found, view)

    def changed(piece: Piece) -> str:
        assert piece.span is not None
        return patch(log.home, *piece.span, piece.without)

    return ReviewDetail(
        run=run,
        feature=feature,
        title=log.words(view.title),
        status=view.status,
        branch=view.branch or None,
        question=shape,
        halt=halt,
        helps=helps,
        effects=effect_shapes(can, feature),
        evidence=evidence_shapes(pieces, log.words, changed),
        decisions=tuple(
            decision_shape(decision, log.words) for decision in found.decisions if decision.feature == feature
        ),
        letters=tuple(
            letter_shape(message, log.words)
            for message in found.letters
            if message.feature in (feature, None) and message.kind != "pause" and message.fate != "taken"
        ),
    )


def halting(log: Reading, found: Desk, view: FeatureView) -> tuple[str | None, str | None]:
    """Return the reason why a feature without a question does not continue, and the fix, as in `mz status`."""
    alone, beside = replace(found.run, features=(view,)), around(log.home, found.letters)
    return next(iter(waits(alone, is_held(log.home), log.words, beside)), (None, None)) if view.hold else (None, None)


@review.page(
    "approve",
    examples=(("mz review approve login", "continue with the work as it is"),),
    following="`mz status` shows the feature's progress.",
)
@click.argument("feature")
@click.option("--note", metavar="TEXT", help="Reason, kept in the log; - reads it from stdin.")
@click.option("--run", metavar="RUN", help="The run. [default: the newest with an open question of the feature]")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.review-answer/1.")
def approve(feature: str, note: str | None, run: str | None, as_json: bool) -> None:
    """Approve, and let the feature continue.

    After a failure, where there is no work to approve, the agent tries again with the note.
    """
    left_for(feature, run, Verdict.APPROVE, given(note, "the note"), as_json)


@review.page(
    "reject",
    examples=(("mz review reject login --note 'we keep the old format'", "reject the work, with a reason"),),
    following="`mz review list` shows the next questions.",
)
@click.argument("feature")
@click.option(
    "--note",
    metavar="WHY",
    required=True,
    help="Reason; goes into the agent's next prompt; - reads it from stdin.",
)
@click.option("--run", metavar="RUN", help="The run. [default: the newest with an open question of the feature]")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.review-answer/1.")
def reject(feature: str, note: str, run: str | None, as_json: bool) -> None:
    """Reject the work.

    Rejecting an approval sends the feature to the phase named in the pipeline, with the note; any other rejection ends
    the feature.
    """
    left_for(feature, run, Verdict.REJECT, given(note, "the note"), as_json)


@review.page(
    "answer",
    examples=(
        ("mz review answer login 'use SQLite'", "the text is added to the agent's next prompt"),
        ("mz review answer login - < answer.md", "from a file"),
        ("mz review answer login", "in your editor"),
    ),
    following="`mz status` shows the feature's progress.",
)
@click.argument("feature")
@click.argument("text", required=False)
@click.option("--run", metavar="RUN", help="The run. [default: the newest with an open question of the feature]")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.review-answer/1.")
def answer(feature: str, text: str | None, run: str | None, as_json: bool) -> None:
    """Answer the agent, and let it try again.

    TEXT is added to the agent's next prompt; - reads it from stdin. Without TEXT, your editor opens.
    """
    words = given(text, "the answer")
    if words is None:
        with reading() as log:
            found, view = find_desk(log, run, feature)
            question = the_question(log, found, view)
            words = written(f"{question_words(question)}\n\n{log.words(question.detail)}")
    left_for(feature, run, Verdict.RETRY, words, as_json)


def left_for(feature: str, run: str | None, verdict: Verdict, note: str | None, as_json: bool) -> None:
    """Post the answer to the currently open question. Raises MzError (MZ5001, MZ4010, MZ5004)."""
    with reading() as log:
        chosen = find_desk(log, run, feature)[0].run.run

        def write() -> tuple[Event, ...]:
            queue, view = find_desk(log, chosen, feature)
            question = the_question(log, queue, view)
            text, person = keep(log, note), who(log)
            return (
                AnswerLeft(
                    feature=FeatureId(feature), verdict=verdict, note=text, who=person, question=question.version
                ),
            )

        left = leave(log, chosen, write)
        show_sent(
            "review-answer", left, "answer", f"{WILL[verdict]}: {feature}", as_json, feature=feature, verdict=verdict
        )
