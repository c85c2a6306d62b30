"""Adapter: `mz resume`."""

from __future__ import annotations

from pathlib import Path

import click
from mz_engine.errors import MzError
from mz_events.catalog.inbox import AnswerLeft
from mz_events.catalog.run import Verdict
from mz_events.names import FeatureId
from mz_projections.views import RunView

from mz_cli.context import Reading, find_home, is_held, reading
from mz_cli.driving import drive
from mz_cli.help import command, did_you_mean
from mz_cli.inbox import keep, leave, who
from mz_cli.render.console import note

ANSWERS = tuple(verdict.value for verdict in Verdict)


@command(
    "resume",
    examples=(
        ("mz resume", "go on with the newest run that is not finished"),
        ("mz resume --feature login --answer approve", "answer the question that login waits with, and go on"),
        ("mz resume --feature login --answer retry --ack 'use SQLite'", "once more, with a word for the agent"),
    ),
    following="`mz status` shows what still waits.",
)
@click.argument("run", required=False)
@click.option("--feature", "features", metavar="ID", multiple=True, help="The feature that is answered; repeatable.")
@click.option("--answer", type=click.Choice(ANSWERS), help="Go on as it stands, once more, or not like this.")
@click.option("--ack", metavar="WHY", help="Why; goes into the next prompt. Alone it approves.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.resume/1.")
@click.pass_context
def resume(
    context: click.Context, run: str | None, features: tuple[str, ...], answer: str | None, ack: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Go on with a run, with an answer where it waits for one.

    Picks up exactly where the log ends, after a stop, a crash or a question; nothing that was paid for is paid again.
    An answer is for the features named, or for the one that waits where there is only one. If a process works on
    the run already, the answer is left for it. RUN is a run's id or the beginning of one.
    """
    home = find_home(Path.cwd())
    chosen = run
    if run is not None or features or answer or ack:
        with reading(home) as log:
            chosen = log.find_run(run)
            if features or answer or ack:
                answered = waiting(log.view(chosen), features, context)
                leave_answers(log, chosen, answered, Verdict(answer or "approve"), ack)
                if is_held(log.home):
                    note(f"the process that works on run {chosen} takes the answer for {', '.join(answered)} now")
                    return 0
    return drive(home, lambda session, _: session.resume(chosen), "resume", as_json)


def waiting(view: RunView, features: tuple[str, ...], context: click.Context) -> tuple[str, ...]:
    """The features that an answer is for. Raises MzError (MZ4010) and UsageError."""
    asking = [feature.feature for feature in view.features if feature.status == "waiting"]
    if not features:
        if len(asking) != 1:
            names = f": {', '.join(asking)}; name one" if asking else ""
            raise click.UsageError(f"{len(asking)} features of run {view.run} wait for an answer{names}", context)
        return (asking[0],)
    for feature in features:
        found = view.find(feature)
        if found is None:
            known = [each.feature for each in view.features]
            problem = f"run {view.run} has no feature {feature!r}{did_you_mean(feature, known)}"
            raise MzError("MZ4010", problem, hint=f"waiting for an answer: {', '.join(asking) or 'none'}")
        if feature not in asking:
            raise click.UsageError(f"{feature} waits for no answer: it is {found.status}", context)
    return features


def leave_answers(log: Reading, run: str, features: tuple[str, ...], verdict: Verdict, ack: str | None) -> None:
    text, person = keep(log, ack), who(log)
    answers = [AnswerLeft(feature=FeatureId(each), verdict=verdict, note=text, who=person) for each in features]
    leave(log, run, answers)
