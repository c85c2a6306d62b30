"""Commands `mz pause`, `mz cancel` and `mz retry`, which post messages to a run."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import click
from msgspec import DecodeError
from msgspec.structs import replace
from mz_engine.errors.diagnostics import MzError
from mz_engine.ports import RepositoryUnusable
from mz_engine.run.process import RunProcess
from mz_events.catalog.base import Event
from mz_events.catalog.inbox import CancelPosted, PausePosted, RetryPosted
from mz_events.names import FeatureId, run_stream
from mz_events.store import BlobMissing
from mz_projections.feature.state import progress_of
from mz_projections.run.fold import RETRIABLE_OUTCOMES, fold_run
from mz_projections.views.model import FeatureView, RunView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, did_you_mean, message_option
from mz_cli.app.input import read_text_option
from mz_cli.app.selectors import check_phase, select, select_one_run
from mz_cli.common.advice import ENDED_STATUSES
from mz_cli.people.inbox import (
    PostedMessage,
    active_run,
    post_message,
    posted_text,
    print_posted,
    store_text,
    store_user_name,
)
from mz_cli.people.questions import ReviewQueue, action_text, pipeline_of, review_queue, state_of, unfinished_runs
from mz_cli.terminal.console import print_line
from mz_cli.terminal.json import print_document, shape_of

RETRIABLE_STATUSES = frozenset(status.value for status in RETRIABLE_OUTCOMES)
"""Statuses of features that can be retried."""
NOT_RETRIABLE = {
    "queued": ("has not started", "see the reason with `mz status`"),
    "working": ("is in progress", "cancel it with `mz cancel {}`"),
    "interrupted": ("was interrupted and continues with its run", "mz resume {run}"),
    "paused": ("is paused and continues with its run", "mz resume {run}"),
}
DELIVERED = ("is already {}", "take it up again with `mz revise {}`")


class CancelResult(PostedMessage, frozen=True, kw_only=True):
    """`mz cancel --json`."""

    features: tuple[str, ...]
    """Empty: all features of the run."""


@command("pause", examples=(("mz pause", "pause the running run"),), next_command="`mz resume` continues.")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.pause/1.")
def pause(run: str | None, as_json: bool) -> None:
    """Pause a run; its process stays alive.

    Current agent calls and commands finish; nothing new is started until `mz resume`. Signals to the process do the
    same: SIGUSR1 pauses, SIGUSR2 continues.
    """
    with open_log() as log:
        run_id, running_id = log.find_run(run), active_run(log)
        if running_id is None or (run is not None and run_id != running_id):
            problem = f"no process is running run {run_id}"
            hint = f"continue it with: mz resume {run_id}"
            if fold_run(log.store.read(run_stream(run_id))).finished:
                hint = "it is finished; start another with `mz run`"
            raise MzError("MZ5005", problem, hint=hint)
        resume = f"mz resume {running_id}"
        posted = PostedMessage(run=running_id, event_refs=(), process_running=True, messages_read=True, resume=resume)
        summary = f"run {running_id} is already paused"
        if not fold_run(log.store.read(run_stream(running_id))).paused:
            posted = post_message(log, running_id, lambda: (PausePosted(actor=store_user_name(log)),))
            summary = f"run {running_id} is pausing after its current calls; continue with `mz resume`"
        print_posted("pause", posted, "pause", summary, as_json)


# cancel ---------------------------------------------------------------------------------------------------------------
@command(
    "cancel",
    examples=(
        ("mz cancel login export", "cancel two features of the newest run"),
        ("mz cancel r4f1a2b3c -m 'wrong base'", "cancel the rest of a run"),
    ),
    next_command="`mz status` shows whether the run has read the message.",
)
@click.argument("selectors", metavar="FEATURE... | RUN", nargs=-1)
@message_option("why", "Reason, kept in the log; - reads it from stdin.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.cancel/1.")
def cancel(selectors: tuple[str, ...], why: str | None, as_json: bool) -> None:
    """Cancel features, or the rest of a run.

    Posts a message to the run. The process that runs it reads the message within a second; the features of a run at
    rest are cancelled at once. Branches and worktrees are kept, and `mz retry` resumes a feature. FEATURE is a
    feature or RUN/FEATURE (default: the newest unfinished run with the feature); RUN alone cancels the rest of the run.
    """
    if not selectors:
        raise click.UsageError("name a run or a feature to cancel")
    reason = read_text_option(why, "the reason")
    with open_log() as log:
        run_id, features = find_features(log, selectors)
        targets: list[FeatureId | None] = [FeatureId(feature) for feature in features] or [None]

        def write() -> tuple[Event, ...]:
            check_open(log.view(run_id), features)
            note, person = store_text(log, reason), store_user_name(log)
            return tuple(CancelPosted(feature=feature, note=note, actor=person) for feature in targets)

        posted = post_message(log, run_id, write)
        if not posted.process_running and cancel_at_once(log.root, run_id):
            posted = replace(posted, messages_read=True)
    if as_json:
        print_document("cancel", shape_of(CancelResult, posted, features=features))
    else:
        subject = ", ".join(features) or f"the rest of run {posted.run}"
        was_done = posted.messages_read and not posted.process_running
        print_line(
            f"cancelled: {subject}" if was_done else f"cancellation of {subject} requested; {posted_text(posted)}"
        )


def cancel_at_once(root: Path, run: str) -> bool:
    """Record the posted cancellations of a run at rest. Return False if that is impossible now, as while another run is
    driven; the next `mz resume` reads them then."""
    with suppress(MzError, RepositoryUnusable, BlobMissing, DecodeError):
        with RunProcess(root, os.environ, lambda recorded: None) as process:
            process.record_cancellations(run)
        return True
    return False


def find_features(log: ProjectLog, selectors: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the run and its features to cancel; none: all that remains. Raises MzError (MZ1002, MZ4010, MZ5001)."""
    chosen = [select(log, text) for text in selectors]
    if not any(selector.names_run for selector in chosen):
        features = {selector.feature for selector in chosen}
        unfinished = next((run for run in unfinished_runs(log) if features <= set(log.features(run))), None)
        chosen = [replace(selector, run=unfinished or selector.run) for selector in chosen]
    run_id, features_to_cancel = select_one_run(chosen), tuple(filter(None, (selector.feature for selector in chosen)))
    if any(selector.phase or selector.version for selector in chosen):
        raise MzError("MZ1002", "a phase or an event cannot be cancelled", hint="name a feature or a run")
    if features_to_cancel and len(features_to_cancel) < len(chosen):
        raise MzError("MZ1002", f"{run_id} is a run", hint="name either a run, or only features: RUN/FEATURE")
    return run_id, tuple(dict.fromkeys(features_to_cancel))


def check_open(view: RunView, features: tuple[str, ...]) -> None:
    """Raise UsageError if there is nothing left to cancel."""
    selected = [feature for feature in view.features if not features or feature.feature in features]
    ended_features = [feature for feature in selected if feature.status in ENDED_STATUSES]
    if features and ended_features:
        raise click.UsageError(f"{ended_features[0].feature} is already {ended_features[0].status}")
    if len(ended_features) == len(selected):
        raise click.UsageError(f"all features of run {view.run} have ended")


# retry ----------------------------------------------------------------------------------------------------------------
@command(
    "retry",
    examples=(
        ("mz retry login", "retry from the current phase"),
        ("mz retry login/techspec -m 'use SQLite'", "from an earlier phase, with a note for the agent"),
    ),
    next_command="`mz resume` continues the run if no process is running it.",
)
@click.argument("feature", metavar="FEATURE[/PHASE]")
@message_option("note", "Note for the next prompt; - reads it from stdin.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.retry/1.")
def retry(feature: str, note: str | None, as_json: bool) -> None:
    """Retry a failed, cancelled, waiting or held feature.

    FEATURE is a feature or RUN/FEATURE (default: the newest run with the feature); PHASE is the first phase to repeat
    (default: the current one).

    Restores the tree from before the phase in a new commit on the branch, discards later results, and resets the
    attempt counters. After the merge of a moved base, the tree is not restored, because that would undo the work of
    others.
    """
    note_text = read_text_option(note, "the note")
    with open_log() as log:
        selector = select(log, feature, feature_only=True)
        check_phase(selector, feature)
        run_id, feature, phase = selector.run, str(selector.feature), selector.phase

        def write() -> tuple[Event, ...]:
            check_retriable(log, review_queue(log, run_id), feature, phase)
            text, person = store_text(log, note_text), store_user_name(log)
            return (RetryPosted(feature=FeatureId(feature), phase=phase, note=text, actor=person),)

        posted = post_message(log, run_id, write)
        summary = f"retry of {feature} requested" + (f", from {phase}" if phase else "")
        print_posted("retry", posted, "retry", summary, as_json, feature=feature, phase=phase)


def check_retriable(log: ProjectLog, queue: ReviewQueue, feature: str, phase: str | None) -> None:
    """Raise MzError (MZ5006) if the feature cannot be retried, or not from that phase."""
    view = queue.run.find_feature(feature) or FeatureView(feature=feature)
    if view.status not in RETRIABLE_STATUSES:
        state, hint = NOT_RETRIABLE.get(view.status, DELIVERED)
        hint = hint.format(feature, run=queue.run.run)
        raise MzError("MZ5006", f"{feature} {state.format(view.status)}", hint=hint)
    if view.status == "held" and view.blocked_by and view.started_us is None:
        raise MzError("MZ5006", f"{feature} waits for {view.blocked_by}", hint=f"mz retry {view.blocked_by}")
    message = queue.context.pending_message(view)
    if message is not None:
        hint = f"continue the run with: mz resume {queue.run.run}"
        raise MzError("MZ5006", f"{feature} has a pending message: {action_text(log, message)}", hint=hint)
    progress, pipeline = progress_of(state_of(log, queue.run.run, feature)), pipeline_of(log, queue.run)
    started_phases = list(progress.start_trees) if progress is not None else []
    if phase is None or phase in started_phases:
        return
    phases = [phase_spec.phase for phase_spec in pipeline.phases] if pipeline is not None else started_phases
    problem = f"{feature} has not started {phase}"
    if phase not in phases:
        problem = f"the pipeline of run {queue.run.run} has no phase {phase!r}{did_you_mean(phase, phases)}"
    raise MzError("MZ5006", problem, hint=f"phases started by {feature}: {', '.join(started_phases) or 'none'}")
