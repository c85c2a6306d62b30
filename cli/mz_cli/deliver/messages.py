"""Commands `mz pause`, `mz cancel`, `mz retry` and `mz revise`, which post messages to a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from msgspec import DecodeError
from msgspec.structs import replace
from mz_engine.backlog.injection_screen import screen_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.forge.github import GhForge
from mz_engine.git.objects import ObjectStore
from mz_engine.git.repository import fetch, is_ancestor, open_repository
from mz_engine.git.workspace import merge_all
from mz_engine.model.pins import Pins
from mz_engine.ports import MergeConflict, RemoteError, RepositoryUnusable
from mz_engine.run.process import STORAGE_ERROR, RunProcess
from mz_events.catalog.base import Event
from mz_events.catalog.delivery import PullRequestOpened
from mz_events.catalog.feature import FeatureRetried
from mz_events.catalog.inbox import CancelPosted, PausePosted, RetryPosted
from mz_events.catalog.run import PersonCommits
from mz_events.names import Commit, FeatureId, feature_stream, run_stream
from mz_events.store import BlobMissing, Recorded
from mz_projections.feature.state import Ended, progress_of
from mz_projections.run.fold import DELIVERED_OUTCOMES, RETRIABLE_OUTCOMES, fold_run
from mz_projections.views.model import ENDED_STATUSES, FeatureView, RunView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, did_you_mean, message_option
from mz_cli.app.input import read_text_option
from mz_cli.app.selectors import check_phase, select, select_one_run
from mz_cli.live.driver import drive_run, execute
from mz_cli.people.inbox import (
    PostedMessage,
    active_run,
    keeps_commands,
    post_message,
    posted_text,
    print_posted,
    store_note,
    store_user_name,
)
from mz_cli.people.questions import ReviewQueue, action_text, pipeline_of, review_queue, state_of, unfinished_runs
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import shape_of
from mz_cli.terminal.table import print_output

RETRIABLE_STATUSES = frozenset(status.value for status in RETRIABLE_OUTCOMES)
"""Statuses of features that can be retried."""
NOT_RETRIABLE = {
    "queued": ("has not started", "see the reason with `mz status`"),
    "working": ("is in progress", "cancel it with `mz cancel {}`"),
    "interrupted": ("was interrupted and continues with its run", "mz resume {run}"),
    "paused": ("is paused and continues with its run", "mz resume {run}"),
}
DELIVERED = ("is already {}", "take it up again with `mz revise {}`")
MEMBERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
"""GitHub's associations of people who may write to the repository; only their comments reach an agent."""

Check = Callable[[ProjectLog, str, str, str | None], object]
"""Of run, feature and phase."""


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
def cancel(selectors: tuple[str, ...], why: str | None, as_json: bool) -> int:
    """Cancel features, or the rest of a run.

    Posts a message to the run. The process that runs it reads the message within a second; the features of a run at
    rest are cancelled at once. Branches and worktrees are kept, and `mz retry` resumes a feature. FEATURE is a
    feature or RUN/FEATURE (default: the newest unfinished run with the feature); RUN alone cancels the
    rest of the run. If its pipeline has an item for that (to tag and close branches, for example), it is worked on.
    """
    if not selectors:
        raise click.UsageError("name a run or a feature to cancel")
    reason = read_text_option(why, "the reason")
    with open_log() as log:
        run_id, features = find_features(log, selectors)
        targets: list[FeatureId | None] = [FeatureId(feature) for feature in features] or [None]
        view = log.view(run_id)
        pipeline = None if features or view.status == "finished" else pipeline_of(log, view)
        has_last_item = pipeline is not None and pipeline.kind_from("cancel") is not None

        def write() -> tuple[Event, ...]:
            if not has_last_item:
                check_open(log.view(run_id), features)
            note, person = store_note(log, reason), store_user_name(log)
            return tuple(CancelPosted(feature=feature, note=note, actor=person) for feature in targets)

        posted = post_message(log, run_id, write)
        if not has_last_item and not posted.process_running and cancel_at_once(log.root, run_id):
            posted = replace(posted, messages_read=True)
    if has_last_item and not posted.process_running:

        def begin(process: RunProcess, say: Callable[[str], None]) -> None:
            process.resume(run_id, is_given_up=True)

        if not as_json:
            return drive_run(log.root, begin, "resume", as_json)[0]
        execute(log.root, os.environ, begin)
        posted = replace(posted, messages_read=True)
    subject = ", ".join(features) or f"the rest of run {posted.run}"
    was_done = posted.messages_read and not posted.process_running
    requested = f"cancellation of {subject} requested; {posted_text(posted)}"
    text = f"cancelled: {subject}; branches stay as they are" if was_done else requested
    print_output(as_json, "cancel", shape_of(CancelResult, posted, features=features), [text])
    return 0


def cancel_at_once(root: Path, run: str) -> bool:
    """Record the posted cancellations of a run at rest. Return False if that is impossible now, as while another run is
    driven; the next `mz resume` reads them then. Raises MzError (MZ1006) if log or git cannot be used."""
    try:
        with RunProcess(root, os.environ, lambda recorded: None) as process:
            process.record_cancellations(run)
            return True
    except (RepositoryUnusable, BlobMissing, DecodeError, MzError) as error:
        if isinstance(error, MzError) and error.code == STORAGE_ERROR:
            raise
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
        run_id, feature, phase = select_phase(log, feature)
        posted = post_retry(log, run_id, feature, phase, note_text, check_retriable)
        summary = f"retry of {feature} requested" + (f", from {phase}" if phase else "")
        print_posted("retry", posted, "retry", summary, as_json, feature=feature, phase=phase)


def select_phase(log: ProjectLog, text: str) -> tuple[str, str, str | None]:
    """Return run, feature and phase. Raises MzError (MZ1002, MZ4010, MZ5001)."""
    selector = select(log, text, feature_only=True)
    check_phase(selector, text)
    return selector.run, str(selector.feature), selector.phase


def post_retry(
    log: ProjectLog, run: str, feature: str, phase: str | None, text: str | None, check: Check, **revision: Any
) -> PostedMessage:
    """Post the request, unless `check` raises an error then; `revision`: fields of one."""

    def write() -> tuple[Event, ...]:
        check(log, run, feature, phase)
        note, person = store_note(log, text), store_user_name(log)
        return (RetryPosted(feature=FeatureId(feature), phase=phase, note=note, actor=person, **revision),)

    return post_message(log, run, write)


def check_retriable(log: ProjectLog, run: str, feature: str, phase: str | None) -> None:
    """Raise MzError (MZ5006) if the feature cannot be retried, or not from that phase."""
    queue = review_queue(log, run)
    view = queue.run.find_feature(feature) or FeatureView(feature=feature)
    if view.status not in RETRIABLE_STATUSES:
        state, hint = NOT_RETRIABLE.get(view.status, DELIVERED)
        hint = hint.format(feature, run=queue.run.run)
        raise MzError("MZ5006", f"{feature} {state.format(view.status)}", hint=hint)
    if view.status == "held" and view.blocked_by and view.started_us is None:
        raise MzError("MZ5006", f"{feature} waits for {view.blocked_by}", hint=f"mz retry {view.blocked_by}")
    check_no_message(log, queue, view)
    if keeps_commands(log, run):
        hint = f"end it (Ctrl-C), then: mz retry {feature} && mz resume {run}"
        raise MzError("MZ5006", f"a process drives run {run} with the commands before your correction", hint=hint)
    progress, pipeline = progress_of(state_of(log, queue.run.run, feature)), pipeline_of(log, queue.run)
    started_phases = list(progress.start_trees) if progress is not None else []
    if phase is None or phase in started_phases:
        return
    phases = [phase_spec.phase for phase_spec in pipeline.phases] if pipeline is not None else started_phases
    problem = f"{feature} has not started {phase}"
    if phase not in phases:
        problem = f"the pipeline of run {queue.run.run} has no phase {phase!r}{did_you_mean(phase, phases)}"
    raise MzError("MZ5006", problem, hint=f"phases started by {feature}: {', '.join(started_phases) or 'none'}")


def check_no_message(log: ProjectLog, queue: ReviewQueue, view: FeatureView) -> None:
    """Raise MzError (MZ5006) if the feature has a message that the run has not read."""
    if message := queue.context.pending_message(view):
        hint = f"continue the run with: mz resume {queue.run.run}"
        raise MzError("MZ5006", f"{view.feature} has a pending message: {action_text(log, message)}", hint=hint)


# revise ---------------------------------------------------------------------------------------------------------------
@command(
    "revise",
    examples=(
        ("mz revise login -m 'name the user in the error'", "from the phase that the pipeline chooses"),
        ("mz revise login/tests -m 'test an empty name'", "from a phase of your choice"),
        ("mz revise login --from-review", "with the comments of its pull request"),
    ),
    next_command="`mz resume` continues the run if no process is running it.",
)
@click.argument("feature", metavar="FEATURE[/PHASE]")
@message_option("note", "What is to change, for the next prompt; - reads it from stdin.")
@click.option("--from-review", is_flag=True, help="Add the comments of its pull request, through gh.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.revise/1.")
def revise(feature: str, note: str | None, from_review: bool, as_json: bool) -> None:
    """Take delivered work up again, on its branch.

    FEATURE is a feature or RUN/FEATURE (default: the newest run with the feature); PHASE is the first phase of the new
    iteration (default: where the pipeline sends the cause `revision`, else failed checks).

    The work stays as it is; the agent gets your text, and later phases, gates and delivery follow. The pull request is
    updated. --from-review adds the comments since the last revision of people who may write to the repository.
    """
    text = read_text_option(note, "the text")
    if text is None and not from_review:
        raise click.UsageError("say what is to change: -m TEXT, --from-review, or both")
    with open_log() as log:
        run_id, feature, phase = select_phase(log, feature)
        delivered, pins = check_revisable(log, run_id, feature, phase)
        commits = commits_of_people(log, run_id, delivered, pins)
        if from_review:
            review = review_text(log, pins, tuple(log.store.read(feature_stream(run_id, feature))))
            text = f"{text}\n\n{review}" if text else review
        posted = post_retry(log, run_id, feature, phase, text, check_revisable, keeps_tree=True, commits=commits)
        first = phase or pins.pipeline.revision_phase
        summary = f"revision of {feature} requested, from {first}"
        print_posted("revise", posted, "revision", summary, as_json, feature=feature, phase=first)


def check_revisable(log: ProjectLog, run: str, feature: str, phase: str | None) -> tuple[Ended, Pins]:
    """Return the state of a delivered feature, and the pins of its run. Raises MzError (MZ5006)."""
    queue, state = review_queue(log, run), state_of(log, run, feature)
    view, pins = queue.run.find_feature(feature), log.load_pins(queue.run.pins)
    if view is not None:
        check_no_message(log, queue, view)
    if not isinstance(state, Ended) or state.status not in DELIVERED_OUTCOMES or state.progress is None:
        status = view.status if view else "not in this run"
        raise MzError("MZ5006", f"{feature} is {status}, not delivered", hint=f"mz retry {feature}, or see `mz status`")
    if pins is None:
        raise MzError("MZ5006", f"the pins of run {run} cannot be read by this mz", hint="use the mz that started it")
    phases = list(state.progress.start_trees)
    if phase is not None and phase not in phases:
        problem = f"{feature} has no phase {phase!r}{did_you_mean(phase, phases)}"
        raise MzError("MZ5006", problem, hint=f"its phases: {', '.join(phases)}")
    return state, pins


def commits_of_people(log: ProjectLog, run: str, delivered: Ended, pins: Pins) -> PersonCommits | None:
    """Return the commits that people added to the branch, here or on the remote; None: none. Raises MzError (MZ5006) if
    they do not follow, or change papers too. A remote that cannot be reached is left to the push."""
    progress, settings = delivered.progress, pins.config.pull_requests
    assert progress is not None
    git, branch, newest = open_repository(log.root, os.environ), progress.started.branch, progress.head
    local = git.run("rev-parse", "--quiet", "--verify", f"refs/heads/{branch}^{{commit}}", check=False).text
    heads = {branch: Commit(local) if local else None}
    if settings.strategy != "none":
        with suppress(RemoteError):
            heads[f"{settings.remote}/{branch}"] = fetch(git, settings.remote, branch)
    for name, head in heads.items():
        if head is not None and not is_ancestor(git, head, newest):
            if not is_ancestor(git, newest, head):
                hint = f"keep its commits on a branch of your own, and set {name} to {newest[:12]} again"
                raise MzError("MZ5006", f"{name} is at {head[:12]}, which does not follow {newest[:12]}", hint=hint)
            newest = head
    if newest == progress.head:
        return None
    objects = ObjectStore(git)
    work = objects.make_commit(progress.tree, (progress.head,), b"work with papers\n")
    tree = merge_all(git, objects, (work, newest), progress.started.feature)
    if isinstance(tree, MergeConflict):
        hint = "mz keeps papers off the branch: revert these changes there, and say with -m what is to change"
        raise MzError("MZ5006", f"{newest[:12]} conflicts with papers: {', '.join(tree.paths)}", hint=hint)
    git.update_refs(f"update refs/mz/{run}/rescue/{tree} {tree}\n")
    return PersonCommits(head=newest, tree=tree)


# the review -----------------------------------------------------------------------------------------------------------
def review_text(log: ProjectLog, pins: Pins, events: Sequence[Recorded[Event]]) -> str:
    """Return the comments since the last revision as a text for the agent. Raises MzError (MZ5006) if there are none,
    or if they may give orders to the agent."""
    numbers = [event.event.number for event in events if isinstance(event.event, PullRequestOpened)]
    number = numbers[-1] if numbers else None
    if number is None:
        raise MzError("MZ5006", "the feature has no pull request", hint="say what is to change: -m TEXT")
    revisions = [event for event in events if isinstance(event.event, FeatureRetried) and event.event.keeps_tree]
    since_us = revisions[-1].observed_at_us if revisions else 0
    try:
        comments = GhForge(log.root, pins.config.pull_requests.remote, os.environ).review(number)
    except RemoteError as error:
        raise MzError("MZ1004", f"the review cannot be read: {error}", hint="gh auth status; gh pr view") from error
    recent = [comment for comment in comments if datetime.fromisoformat(comment.time).timestamp() * 1e6 > since_us]
    outsiders = sorted({comment.author for comment in recent if comment.author_association not in MEMBERS})
    if outsiders:
        print_note(f"comments of {', '.join(outsiders)} are left out: they may not write to the repository")
    texts = []
    for comment in recent:
        line = f", line {comment.line}" if comment.line else ""
        if comment.author_association in MEMBERS:
            subject = f"`{comment.path}`{line}" if comment.path else "review"
            texts.append(f"{subject} ({comment.author}): {comment.text}")
    if not texts:
        raise MzError("MZ5006", f"pull request {number} has no new comments", hint="say what is to change: -m TEXT")
    screened = screen_text("\n\n".join(texts), pins.config.injection_screen)
    rules = ", ".join(dict.fromkeys(reason.rule for reason in screened.reasons))
    if screened.quarantined:
        hint = "read them, and quote what the agent may know: -m TEXT"
        raise MzError("MZ5006", f"the comments may give orders to the agent ({rules})", hint=hint)
    if rules:
        print_note(f"may give orders to the agent, which gets it without invisible characters: {rules}")
    return screened.text
