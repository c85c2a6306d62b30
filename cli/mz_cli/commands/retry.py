"""Adapter: `mz retry`."""

from __future__ import annotations

import click
from mz_engine.errors import MzError
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import RetryLeft
from mz_events.names import FeatureId
from mz_projections.run import RETRIABLE
from mz_projections.state import book_of
from mz_projections.views import FeatureView

from mz_cli.cases import Desk, desk, pipeline_of, said, state_of
from mz_cli.context import Reading, reading
from mz_cli.help import command, did_you_mean
from mz_cli.inbox import keep, leave, who
from mz_cli.sent import show_sent
from mz_cli.wording import given

RESTS = frozenset(rest.value for rest in RETRIABLE)
"""As a view calls them."""
NOT = {
    "queued": ("has not begun", "`mz status` shows what it waits for"),
    "working": ("is being worked on", "`mz cancel --feature {}` gives it up"),
    "stopped": ("was stopped and goes on by itself", "mz resume {run}"),
    "paused": ("is paused and goes on with its run", "mz resume {run}"),
}
DONE = ("is {} already", "what is delivered is not done again")


@command(
    "retry",
    examples=(
        ("mz retry login", "once more, from the phase in which it stands"),
        ("mz retry login --from techspec --note 'use SQLite'", "from an earlier phase on, with a word for the agent"),
    ),
    following="`mz resume` goes on where no process works on the run.",
)
@click.argument("feature")
@click.option("--from", "phase", metavar="PHASE", help="From this phase on; without it, from where it stands.")
@click.option("--note", metavar="TEXT", help="Goes into the next prompt; - reads it from stdin.")
@click.option("--run", metavar="RUN", help="The run; without it, the newest that has the feature.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.retry/1.")
def retry(feature: str, phase: str | None, note: str | None, run: str | None, as_json: bool) -> None:
    """Have a feature that came to rest done once more.

    For features that failed, were given up, wait or are held. The tree from before the phase is put back on the
    branch in a new commit, what came after it counts no more, and all attempts begin anew. Once a base that moved was
    merged in, the tree stays as it is: putting an older one back would undo what others did.
    """
    words = given(note, "the note")
    with reading() as log:
        chosen = log.find_feature(run, feature)[0].run

        def write() -> tuple[Event, ...]:
            check(log, desk(log, chosen), feature, phase)
            return (RetryLeft(feature=FeatureId(feature), phase=phase, note=keep(log, words), who=who(log)),)

        left = leave(log, chosen, write)
        what = f"asked to do {feature} once more" + (f", from {phase} on" if phase else "")
        show_sent("retry", left, "retry", what, as_json, feature=feature, phase=phase)


def check(log: Reading, found: Desk, feature: str, phase: str | None) -> None:
    """Raises MzError (MZ5006) where the feature cannot be done once more, or not from there."""
    view = found.run.find(feature) or FeatureView(feature=feature)
    if view.status not in RESTS:
        state, helps = NOT.get(view.status, DONE)
        helps = helps.format(feature, run=found.run.run)
        raise MzError("MZ5006", f"{feature} {state.format(view.status)}", hint=helps)
    if view.status == "held" and view.because and view.started_us is None:
        raise MzError("MZ5006", f"{feature} waits for {view.because}", hint=f"mz retry {view.because}")
    letter = found.pending(feature)
    if letter is not None:
        hint = f"it is taken with: mz resume {found.run.run}"
        raise MzError("MZ5006", f"{feature} waits for something else: {said(log, letter)}", hint=hint)
    if phase is not None:
        check_phase(log, found, feature, phase)


def check_phase(log: Reading, found: Desk, feature: str, phase: str) -> None:
    book, pipeline = book_of(state_of(log, found.run.run, feature)), pipeline_of(log, found.run)
    begun = list(book.starts) if book is not None else []
    known = [each.phase for each in pipeline.phases] if pipeline is not None else begun
    if phase in begun:
        return
    names = f"{feature} has begun: {', '.join(begun) or 'none'}"
    if phase not in known:
        problem = f"the pipeline of run {found.run.run} has no phase {phase!r}{did_you_mean(phase, known)}"
        raise MzError("MZ5006", problem, hint=names)
    raise MzError("MZ5006", f"{feature} has not begun {phase}", hint=names)
