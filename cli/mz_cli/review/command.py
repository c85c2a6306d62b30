"""Command `mz review`."""

from __future__ import annotations

import sys
from functools import partial

import click
from msgspec.structs import replace
from mz_events.catalog.run import Verdict
from mz_events.names import feature_stream
from mz_projections.views.model import FeatureView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command_family, format_options, message_option
from mz_cli.app.input import edit_text, read_text_option
from mz_cli.common.advice import REVIEW_COMMANDS, pending_actions
from mz_cli.common.worktree_diff import patch
from mz_cli.people.inbox import print_posted
from mz_cli.people.questions import (
    ReviewQueue,
    answerable_question,
    find_review_queue,
    pipeline_of,
    post_answers,
    question_text,
    review_queue,
    state_of,
    unfinished_runs,
    verdict_effects,
)
from mz_cli.review.evidence import collect_evidence, failed_output
from mz_cli.review.text import (
    EffectShape,
    QuestionShape,
    ReviewDetail,
    ReviewList,
    answer_hints,
    decision_shape,
    message_shape,
    question_shape,
    questions_table,
    render_text,
)
from mz_cli.terminal.console import print_line
from mz_cli.terminal.json import print_document, shape_of
from mz_cli.terminal.table import print_table, prints_tsv, write_output

LINES_MAX = 40
"""Maximum of lines per text on a terminal."""
VERDICT_TEXTS = {
    Verdict.APPROVE: "approved",
    Verdict.RETRY: "answered",
    Verdict.REJECT: "rejected",
    Verdict.ACCEPT: "accepted as it is",
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


@review.command(
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
        questions = tuple(question for run_id in runs for question in open_questions(review_queue(log, run_id)))
    if as_json:
        print_document("review-list", ReviewList(questions=questions))
        return
    print_table(questions_table(questions))
    if not prints_tsv():
        print_line(*answer_hints(questions))


def open_questions(queue: ReviewQueue) -> list[QuestionShape]:
    """Return the run's open questions, the oldest first, then features that no answer can continue."""
    shapes = filter(None, (question_shape(queue, view) for view in queue.run.features))
    return sorted(shapes, key=lambda shape: (shape.since_us is None, shape.since_us))


@review.command(
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
        detail = review_detail(log, queue, view)
    lines = render_text(detail, None if prints_tsv() or full_text else LINES_MAX)
    write_output(sys.stdout, as_json, "review-show", detail, lines)


def review_detail(log: ProjectLog, queue: ReviewQueue, view: FeatureView) -> ReviewDetail:
    question, run, feature = queue.question(view), queue.run.run, view.feature
    state, shape, load_text = state_of(log, run, feature), question_shape(queue, view), log.load_text
    # Without a question, the reason why the feature does not continue, and the fix, as in `mz status`.
    actions = pending_actions(replace(queue.run, features=(view,)), queue.context) if view.hold and not shape else ()
    halt, hint = next(iter(actions), (None, None))
    effects = verdict_effects(state, pipeline_of(log, queue.run)) if question else ()
    events = tuple(log.store.read(feature_stream(run, feature)))
    evidence = tuple(piece for piece in failed_output(events, load_text) if piece.text)
    if question is not None:
        evidence = collect_evidence(question, state, events, load_text, partial(patch, log.root))
    return shape_of(
        ReviewDetail,
        view,
        run=run,
        title=load_text(view.title),
        question=shape,
        halt=halt,
        hint=hint,
        effects=tuple(
            EffectShape(answer=verdict.value, effect=effect, command=REVIEW_COMMANDS[verdict].format(feature))
            for verdict, effect in effects
        ),
        evidence=evidence,
        decisions=tuple(decision_shape(made, load_text) for made in queue.decisions if made.feature == feature),
        messages=tuple(
            message_shape(message, load_text)
            for message in queue.context.messages
            if message.feature in (feature, None) and message.kind != "pause" and message.status != "accepted"
        ),
    )


@review.command(
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


@review.command(
    "accept",
    examples=(("mz review accept login -m 'the formatter is wrong here'", "continue in spite of a failed gate"),),
    next_command="`mz status` shows the feature's progress.",
)
@click.argument("feature", metavar="[RUN/]FEATURE")
@message_option("note", "Reason, kept in the log; - reads it from stdin.", required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.review-answer/1.")
def accept(feature: str, note: str, as_json: bool) -> None:
    """Accept the work as it is, although a gate failed.

    No call is made. The gate's present failures are known from here on: later phases of the feature pass with them, and
    with no others. Audit and pull request say who accepted what.
    """
    answer_question(feature, Verdict.ACCEPT, read_text_option(note, "the note"), as_json)


@review.command(
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


@review.command(
    "answer",
    examples=(
        ("mz review answer login 'use SQLite'", "the text is added to the agent's next prompt"),
        ("mz review answer login - < answer.md", "from a file"),
        ("mz review answer login", "in your editor"),
        ("mz review answer login 'use SQLite' --keep", "and tell all features, as `mz memory list` shows"),
    ),
    next_command="`mz status` shows the feature's progress.",
)
@click.argument("feature", metavar="[RUN/]FEATURE")
@click.argument("text", required=False)
@click.option("--keep", is_flag=True, help="Give question and answer to later calls of all features, as a learning.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.review-answer/1.")
def answer(feature: str, text: str | None, keep: bool, as_json: bool) -> None:
    """Answer the agent, and let it try again.

    TEXT is added to the agent's next prompt; - reads it from stdin. Without TEXT, your editor opens. An answer with a
    secret, or with what looks like an injection, is not kept.
    """
    note = read_text_option(text, "the answer")
    if note is None:
        with open_log() as log:
            queue, view = find_review_queue(log, feature)
            question = answerable_question(log, queue, view)
            note = edit_text(f"{question_text(question)}\n\n{log.load_text(question.detail)}")
    answer_question(feature, Verdict.RETRY, note, as_json, keep=keep)


def answer_question(selector: str, verdict: Verdict, note: str | None, as_json: bool, *, keep: bool = False) -> None:
    """Post the answer to the currently open question. Raises MzError (MZ5001, MZ4010, MZ5004)."""
    with open_log() as log:
        queue, view = find_review_queue(log, selector)
        posted = post_answers(log, queue.run.run, (view.feature,), verdict, note, keep=keep)
        text = f"{VERDICT_TEXTS[verdict]}: {view.feature}"
        print_posted("review-answer", posted, "answer", text, as_json, feature=view.feature, verdict=verdict)
