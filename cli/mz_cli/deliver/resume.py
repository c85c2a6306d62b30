"""Command `mz resume`."""

from __future__ import annotations

from pathlib import Path

import click
from mz_engine.errors.diagnostics import MzError
from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_events.catalog.inbox import ResumePosted
from mz_events.catalog.run import Verdict
from mz_events.names import run_stream
from mz_projections.run.fold import fold_run
from mz_projections.views.model import RunView

from mz_cli.app.context import find_home, open_log
from mz_cli.app.help import command, did_you_mean, format_options, message_option, view_options
from mz_cli.app.input import read_text_option
from mz_cli.app.selectors import select_part
from mz_cli.common.advice import run_context
from mz_cli.common.run_text import run_status
from mz_cli.live.driver import drive_run
from mz_cli.people.inbox import active_run, delivery_text, post_message, store_user_name
from mz_cli.people.questions import post_answers, unfinished_runs
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import print_document

ANSWERS = tuple(verdict.value for verdict in Verdict)


@command(
    "resume",
    examples=(
        ("mz resume", "continue the paused run, or the newest unfinished one"),
        ("mz resume login --answer approve", "answer the question of login, and continue"),
        ("mz resume login --answer retry -m 'use SQLite'", "try again, with a note for the agent"),
    ),
    next_command="`mz review list` shows open questions.",
)
@click.argument("selector", required=False)
@click.option("--feature", "features", metavar="ID", multiple=True, help="Feature to answer; repeatable.")
@click.option("--answer", type=click.Choice(ANSWERS), help="Verdict: continue, try again, or reject.")
@message_option("ack", "Reason, for the next prompt; approves if alone; - reads it from stdin.")
@view_options
@format_options("Print one object with the schema mz.resume/1.", default="table")
@click.pass_context
def resume(
    context: click.Context, selector: str | None, features: tuple[str, ...], answer: str | None, ack: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Continue a run.

    Continues exactly where the log ends, after a stop, a crash or a question; paid calls are not repeated. An answer
    applies to the named features, or to the only waiting one. If a process is already running the run, it gets the
    answer, and continues if it was paused. SELECTOR is a run's id or its beginning, or with an answer [RUN/]FEATURE.
    """
    home, run_id, answers = find_home(Path.cwd()), selector, bool(features or answer or ack)
    if selector is not None or answers or (home / MZ_FOLDER / LOG_FILE).is_file():
        with open_log(home) as log:
            selected = None if selector is None else select_part(log, selector)
            if selected is not None and selected.feature is not None:
                if not answers:
                    hint = f"`mz resume {selected.run}` continues the run; --answer or -m answers the feature"
                    raise MzError("MZ1002", f"{selected.feature} is a feature; runs are resumed as a whole", hint=hint)
                features = (selected.feature, *features)
            # Without a selector the running run, else the newest unfinished one, else the newest.
            run_id = (
                selected.run if selected else active_run(log) or next(iter(unfinished_runs(log)), log.find_run(None))
            )
            messages = []
            if answers:
                answered = features_to_answer(log.view(run_id), features, context)
                note = read_text_option(ack, "the reason")
                posted = post_answers(log, run_id, answered, Verdict(answer or "approve"), note)
                if posted.process_running:
                    messages.append(f"answered: {', '.join(answered)}; {delivery_text(posted)}")
            if active_run(log) == run_id and fold_run(log.store.read(run_stream(run_id))).paused:
                posted = post_message(log, run_id, lambda: (ResumePosted(actor=store_user_name(log)),))
                if posted.process_running:
                    messages.append(f"run {run_id} continues; {delivery_text(posted)}")
            for message in messages:
                print_note(message)
            if messages:
                if as_json:
                    print_document("resume", run_status(log.view(run_id), run_context(log, run_id)))
                return 0
    return drive_run(home, lambda session, _: session.resume(run_id), "resume", as_json)


def features_to_answer(view: RunView, features: tuple[str, ...], context: click.Context) -> tuple[str, ...]:
    """Return the features to answer. Raises MzError (MZ4010) and UsageError."""
    waiting_features = [feature.feature for feature in view.features if feature.status == "waiting"]
    if not features:
        if len(waiting_features) != 1:
            names = f": {', '.join(waiting_features)}; name one" if waiting_features else ""
            problem = f"{len(waiting_features)} features of run {view.run} wait for an answer{names}"
            raise click.UsageError(problem, context)
        return tuple(waiting_features)
    for feature in features:
        if view.find_feature(feature) is None:
            names = did_you_mean(feature, [other.feature for other in view.features])
            problem = f"run {view.run} has no feature {feature!r}{names}"
            raise MzError("MZ4010", problem, hint=f"waiting for an answer: {', '.join(waiting_features) or 'none'}")
    return tuple(dict.fromkeys(features))
