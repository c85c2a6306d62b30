"""Command `mz review`."""

from __future__ import annotations

import sys

import click
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import AnswerPosted
from mz_events.catalog.run import Verdict
from mz_events.names import FeatureId, feature_stream
from mz_projections.views.messages import Question
from mz_projections.views.model import FeatureView

from mz_cli.app.context import ProjectLog, is_process_running, open_log
from mz_cli.app.help import command_family, format_options, message_option
from mz_cli.app.input import edit_text, read_text_option
from mz_cli.common.advice import pending_actions, run_context
from mz_cli.common.worktree_diff import patch
from mz_cli.people.inbox import post_message, print_delivery, store_text, store_user_name
from mz_cli.people.json import QuestionShape, ReviewDetail, ReviewList
from mz_cli.people.questions import (
    ReviewQueue,
    answerable_question,
    find_review_queue,
    pipeline_of,
    question_text,
    review_queue,
    state_of,
    unfinished_runs,
    verdict_effects,
)
from mz_cli.review.evidence import EvidencePiece, evidence_pieces
from mz_cli.review.text import (
    answer_hints,
    decision_shape,
    effect_shapes,
    evidence_shapes,
    message_shape,
    question_of_held,
    question_shape,
    questions_table,
    render_text,
)
from mz_cli.terminal.console import print_line as say
from mz_cli.terminal.console import write_lines
from mz_cli.terminal.json import print_document
from mz_cli.terminal.table import print_table as draw
from mz_cli.terminal.table import prints_tsv

DETAIL_MAX = 300
LINES_MAX = 40
"""Maximum of lines per text on a terminal."""
VERDICT_TEXTS = {
    Verdict.APPROVE: "approved",
    Verdict.RETRY: "answered",
    Verdict.REJECT: "rejected",
}


@command_family(
    "review",
    examples=(
        ("mz review list", "the open questions of all runs"),
        ("mz review show login", "everything needed to decide"),
        ("mz review answer login 'use SQLite'", "answer the agent, which then continues"),
    ),
    next_command="`mz review list` shows the open questions.",
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
    next_command="`mz review show FEATURE` shows the details of a question.",
)
@click.argument("run", required=False)
@format_options("Print one object with the schema mz.review-list/1.")
def list_(run: str | None, as_json: bool) -> None:
    """List open questions and how to answer them.

    RUN is a run's id or its beginning (default: all unfinished runs).
    """
    with open_log() as log:
        runs = unfinished_runs(log) if run is None else (log.find_run(run),)
        questions = tuple(question for run_id in runs for question in open_questions(log, review_queue(log, run_id)))
    if as_json:
        print_document("review-list", ReviewList(questions=questions))
        return
    terminal = not prints_tsv(sys.stdout)
    draw(questions_table(questions, exact=not terminal))
    for text in answer_hints(questions, DETAIL_MAX) if terminal else ():
        say(text)


def open_questions(log: ProjectLog, queue: ReviewQueue) -> tuple[QuestionShape, ...]:
    """Return the run's open questions, the oldest first, then features that no answer can continue."""
    shapes = [
        open_question_shape(log, queue, question)
        for question in queue.questions
        if queue.question(question.feature) is not None
    ]
    halted = [question_of_held(queue.run, view, log.load_text) for view in queue.run.features]
    return (*shapes, *(shape for shape in halted if shape is not None))


def open_question_shape(log: ProjectLog, queue: ReviewQueue, question: Question) -> QuestionShape:
    view = queue.run.find_feature(question.feature)
    answer_effects = verdict_effects(state_of(log, question.run, question.feature), pipeline_of(log, queue.run))
    verdicts = [verdict for verdict, _ in answer_effects]
    return question_shape(
        question, view.title if view else None, queue.pending_message(question.feature), verdicts, log.load_text
    )


@review.page(
    "show",
    examples=(
        ("mz review show login", "the question, the work concerned, the effect of each answer"),
        ("mz review show login --full | less", "without cutting texts"),
    ),
    next_command="answer with `mz review approve FEATURE`, `mz review answer FEATURE` or `mz review reject FEATURE`.",
)
@click.argument("feature", metavar="[RUN/]FEATURE")
@click.option(
    "--full", "full_text", is_flag=True,
    help="Do not cut texts; a pipe always gets them complete.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.review-show/1.")
def show(feature: str, full_text: bool, as_json: bool) -> None:
    """Show everything needed to answer a question.

    Prints the question; the artifact, patch, violations or output concerned; the effect of each answer; and earlier
    decisions with person, time and reason.
    """
    with open_log() as log:
        queue, view = find_review_queue(log, feature)
        detail = review_detail(log, queue, view.feature)
    if as_json:
        print_document("review-show", detail)
    else:
        lines_max = LINES_MAX if not prints_tsv(sys.stdout) and not full_text else None
        write_lines(sys.stdout, render_text(detail, lines_max))


def review_detail(log: ProjectLog, queue: ReviewQueue, feature: str) -> ReviewDetail:
    view, question, run = queue.run.find_feature(feature), queue.question(feature), queue.run.run
    assert view is not None
    state = state_of(log, run, feature)
    answer_effects = verdict_effects(state, pipeline_of(log, queue.run)) if question else ()
    events = tuple(log.store.read(feature_stream(run, feature)))
    pieces = evidence_pieces(question, state, events, log.load_text) if question else ()
    shape = open_question_shape(log, queue, question) if question else question_of_held(queue.run, view, log.load_text)
    halt, helps = (None, None) if shape else stop_reason(log, queue, view)

    def changed(piece: EvidencePiece) -> str:
        assert piece.span is not None
        return patch(log.home, *piece.span, piece.excluded_paths)

    return ReviewDetail(
        run=run,
        feature=feature,
        title=log.load_text(view.title),
        status=view.status,
        branch=view.branch or None,
        question=shape,
        halt=halt,
        helps=helps,
        effects=effect_shapes(answer_effects, feature),
        evidence=evidence_shapes(pieces, log.load_text, changed),
        decisions=tuple(
            decision_shape(decision, log.load_text) for decision in queue.decisions if decision.feature == feature
        ),
        messages=tuple(
            message_shape(message, log.load_text)
            for message in queue.messages
            if message.feature in (feature, None) and message.kind != "pause" and message.status != "accepted"
        ),
    )


def stop_reason(log: ProjectLog, queue: ReviewQueue, view: FeatureView) -> tuple[str | None, str | None]:
    """Return the reason why a feature without a question does not continue, and the fix, as in `mz status`."""
    feature_run, run_info = replace(queue.run, features=(view,)), run_context(log.home, queue.messages)
    return (
        next(iter(pending_actions(feature_run, is_process_running(log.home), log.load_text, run_info)), (None, None))
        if view.hold
        else (None, None)
    )


@review.page(
    "approve",
    examples=(("mz review approve login", "continue with the work as it is"),),
    next_command="`mz status` shows the feature's progress.",
)
@click.argument("feature", metavar="[RUN/]FEATURE")
@message_option("note", "Reason, kept in the log; - reads it from stdin.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.review-answer/1.")
def approve(feature: str, note: str | None, as_json: bool) -> None:
    """Approve, and let the feature continue.

    After a failure, where there is no work to approve, the agent tries again with the note.
    """
    answer_question(feature, Verdict.APPROVE, read_text_option(note, "the note"), as_json)


@review.page(
    "reject",
    examples=(("mz review reject login -m 'we keep the old format'", "reject the work, with a reason"),),
    next_command="`mz review list` shows the next questions.",
)
@click.argument("feature", metavar="[RUN/]FEATURE")
@message_option("note", "Reason; goes into the agent's next prompt; - reads it from stdin.", required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.review-answer/1.")
def reject(feature: str, note: str, as_json: bool) -> None:
    """Reject the work.

    Rejecting an approval sends the feature to the phase named in the pipeline, with the note; any other rejection ends
    the feature.
    """
    answer_question(feature, Verdict.REJECT, read_text_option(note, "the note"), as_json)


@review.page(
    "answer",
    examples=(
        ("mz review answer login 'use SQLite'", "the text is added to the agent's next prompt"),
        ("mz review answer login - < answer.md", "from a file"),
        ("mz review answer login", "in your editor"),
    ),
    next_command="`mz status` shows the feature's progress.",
)
@click.argument("feature", metavar="[RUN/]FEATURE")
@click.argument("text", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.review-answer/1.")
def answer(feature: str, text: str | None, as_json: bool) -> None:
    """Answer the agent, and let it try again.

    TEXT is added to the agent's next prompt; - reads it from stdin. Without TEXT, your editor opens.
    """
    note = read_text_option(text, "the answer")
    if note is None:
        with open_log() as log:
            queue, view = find_review_queue(log, feature)
            question = answerable_question(log, queue, view)
            note = edit_text(f"{question_text(question)}\n\n{log.load_text(question.detail)}")
    answer_question(feature, Verdict.RETRY, note, as_json)


def answer_question(feature: str, verdict: Verdict, note: str | None, as_json: bool) -> None:
    """Post the answer to the currently open question. Raises MzError (MZ5001, MZ4010, MZ5004)."""
    with open_log() as log:
        queue_of_run, view_of_feature = find_review_queue(log, feature)
        run_id, feature = queue_of_run.run.run, view_of_feature.feature

        def write() -> tuple[Event, ...]:
            queue, view = find_review_queue(log, f"{run_id}/{feature}")
            question = answerable_question(log, queue, view)
            text, person = store_text(log, note), store_user_name(log)
            return (
                AnswerPosted(
                    feature=FeatureId(feature), verdict=verdict, note=text, actor=person, question=question.version
                ),
            )

        posted = post_message(log, run_id, write)
        print_delivery(
            "review-answer",
            posted,
            "answer",
            f"{VERDICT_TEXTS[verdict]}: {feature}",
            as_json,
            feature=feature,
            verdict=verdict,
        )
