"""Command `mz resume`."""

from __future__ import annotations

from pathlib import Path

import click
from mz_engine.errors import MzError
from mz_engine.home import HOME, LOG
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import AnswerLeft, ResumeLeft
from mz_events.catalog.run import Verdict
from mz_events.names import FeatureId, run_stream
from mz_projections.run import fold_run
from mz_projections.views import FeatureView, RunView

from mz_cli.cases import desk, the_question, unfinished
from mz_cli.context import Reading, find_home, reading
from mz_cli.driving import drive
from mz_cli.help import command, did_you_mean
from mz_cli.inbox import Left, holder, keep, leave, who
from mz_cli.render.console import note
from mz_cli.render.document import show_document
from mz_cli.sent import became
from mz_cli.summary import run_status
from mz_cli.viewing import view_options
from mz_cli.wording import given

ANSWERS = tuple(verdict.value for verdict in Verdict)


@command(
    "resume",
    examples=(
        ("mz resume", "continue the paused run, or the newest unfinished one"),
        ("mz resume --feature login --answer approve", "answer the question of login, and continue"),
        ("mz resume --feature login --answer retry --ack 'use SQLite'", "try again, with a note for the agent"),
    ),
    following="`mz review list` shows open questions.",
)
@click.argument("run", required=False)
@click.option("--feature", "features", metavar="ID", multiple=True, help="Feature to answer; repeatable.")
@click.option("--answer", type=click.Choice(ANSWERS), help="Verdict: continue, try again, or reject.")
@click.option("--ack", metavar="WHY", help="Reason, for the next prompt; approves if alone; - reads it from stdin.")
@view_options
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.resume/1.")
@click.pass_context
def resume(
    context: click.Context, run: str | None, features: tuple[str, ...], answer: str | None, ack: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Continue a run.

    Continues exactly where the log ends, after a stop, a crash or a question; paid calls are not repeated. An answer
    applies to the named features, or to the only waiting one. If a process is already running the run, it gets the
    answer, and continues if it was paused. RUN is a run's id or its beginning.
    """
    home, chosen, answers = find_home(Path.cwd()), run, bool(features or answer or ack)
    if run is not None or answers or (home / HOME / LOG).is_file():
        with reading(home) as log:
            chosen = the_run(log, run)
            told = []
            if answers:
                asked = waiting(log.view(chosen), features, context)
                left = leave_answers(log, chosen, asked, Verdict(answer or "approve"), given(ack, "the reason"))
                told += [f"answered: {', '.join(asked)}; {became(left)}"] if left.held else []
            if holder(log) == chosen and fold_run(log.store.read(run_stream(chosen))).paused:
                left = leave(log, chosen, lambda: (ResumeLeft(who=who(log)),))
                told += [f"run {chosen} continues; {became(left)}"] if left.held else []
            if told:
                return tell(log, chosen, told, as_json)
    return drive(home, lambda session, _: session.resume(chosen), "resume", as_json)


def the_run(log: Reading, run: str | None) -> str:
    """Return the named run, else the running one, else the newest unfinished one, else the newest.

    Raises MzError (MZ5001).
    """
    if run is not None:
        return log.find_run(run)
    return holder(log) or next(iter(unfinished(log)), None) or log.find_run(None)


def tell(log: Reading, run: str, told: list[str], as_json: bool) -> int:
    """Print the result for a run that another process is running."""
    for words in told:
        note(words)
    if as_json:
        show_document("resume", run_status(log.view(run), str(log.home), True, log.words))
    return 0


def waiting(view: RunView, features: tuple[str, ...], context: click.Context) -> tuple[str, ...]:
    """Return the features to answer. Raises MzError (MZ4010) and UsageError."""
    asking = [feature.feature for feature in view.features if feature.status == "waiting"]
    if not features:
        if len(asking) != 1:
            names = f": {', '.join(asking)}; name one" if asking else ""
            raise click.UsageError(f"{len(asking)} features of run {view.run} wait for an answer{names}", context)
        return (asking[0],)
    for feature in features:
        if view.find(feature) is None:
            known = [each.feature for each in view.features]
            problem = f"run {view.run} has no feature {feature!r}{did_you_mean(feature, known)}"
            raise MzError("MZ4010", problem, hint=f"waiting for an answer: {', '.join(asking) or 'none'}")
    return tuple(dict.fromkeys(features))


def leave_answers(log: Reading, run: str, features: tuple[str, ...], verdict: Verdict, ack: str | None) -> Left:
    """Post the same answer to all features, or to none. Raises MzError (MZ5004)."""

    def write() -> tuple[Event, ...]:
        queue = desk(log, run)
        questions = [
            the_question(log, queue, queue.run.find(feature) or FeatureView(feature=feature)) for feature in features
        ]
        text, person = keep(log, ack), who(log)
        return tuple(
            AnswerLeft(
                feature=FeatureId(question.feature), verdict=verdict, note=text, who=person, question=question.version
            )
            for question in questions
        )

    return leave(log, run, write)
