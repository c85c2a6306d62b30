"""`mz revise`: post a request to take delivered work up again, with a text or the review of its pull request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

import click
from mz_engine.backlog.injection_screen import screen_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.forge.github import GhForge, ReviewComment
from mz_engine.git.repository import open_repository, remote_head
from mz_engine.model.pins import Pins
from mz_engine.ports import RemoteError
from mz_events.catalog.base import Event
from mz_events.catalog.delivery import PullRequestOpened
from mz_events.catalog.feature import FeatureRetried
from mz_events.catalog.inbox import RetryPosted
from mz_events.envelope import Recorded
from mz_events.names import Commit, FeatureId, feature_stream
from mz_projections.feature.fold import fold
from mz_projections.feature.state import Ended
from mz_projections.run.fold import DELIVERED_OUTCOMES

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, did_you_mean, message_option
from mz_cli.app.input import read_text_option
from mz_cli.app.selectors import check_phase, select
from mz_cli.people.inbox import post_message, print_posted, store_text, store_user_name
from mz_cli.people.questions import action_text, review_queue
from mz_cli.terminal.console import print_note

MEMBERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
"""GitHub's associations of people who may write to the repository; only their comments reach an agent."""


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
        selector = select(log, feature, feature_only=True)
        check_phase(selector, feature)
        run_id, feature, phase = selector.run, str(selector.feature), selector.phase
        events = tuple(log.store.read(feature_stream(run_id, feature)))
        delivered, pins = check_revisable(log, run_id, feature, phase, events)
        check_branch(log, delivered, pins)
        if from_review:
            review = review_text(log, pins, events)
            text = f"{text}\n\n{review}" if text else review

        def write() -> tuple[Event, ...]:
            check_revisable(log, run_id, feature, phase, tuple(log.store.read(feature_stream(run_id, feature))))
            stored, person = store_text(log, text), store_user_name(log)
            target = FeatureId(feature)
            return (RetryPosted(feature=target, phase=phase, note=stored, actor=person, keeps_tree=True),)

        posted = post_message(log, run_id, write)
        first = phase or pins.pipeline.revision_phase
        summary = f"revision of {feature} requested, from {first}"
        print_posted("revise", posted, "revision", summary, as_json, feature=feature, phase=first)


def check_revisable(
    log: ProjectLog, run: str, feature: str, phase: str | None, events: Sequence[Recorded[Event]]
) -> tuple[Ended, Pins]:
    """Return the state of a delivered feature, and the pins of its run. Raises MzError (MZ5006)."""
    queue, state = review_queue(log, run), fold(events)
    view, pins = queue.run.find_feature(feature), log.load_pins(queue.run.pins)
    message = queue.context.pending_message(view) if view else None
    if message is not None:
        hint = f"continue the run with: mz resume {run}"
        raise MzError("MZ5006", f"{feature} has a pending message: {action_text(log, message)}", hint=hint)
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


def check_branch(log: ProjectLog, delivered: Ended, pins: Pins) -> None:
    """Raise MzError (MZ5006) if the branch has commits of others, here or on the remote. A deleted branch is no fault,
    and a remote that cannot be reached is left to the push."""
    progress, settings = delivered.progress, pins.config.pull_requests
    assert progress is not None
    git, branch = open_repository(log.root, os.environ), progress.started.branch
    local = git.run("rev-parse", "--quiet", "--verify", f"refs/heads/{branch}^{{commit}}", check=False).text
    heads: list[tuple[str, str | None, Commit | None]] = [(branch, local or None, progress.head)]
    if settings.strategy != "none":
        with suppress(RemoteError):
            remote_name = f"{settings.remote}/{branch}"
            heads.append((remote_name, remote_head(git, settings.remote, branch), progress.pushed_commit))
    for name, actual, expected in heads:
        if actual not in (None, expected):
            hint = f"keep them on a branch of your own, and set {name} to {str(expected)[:12]} again"
            raise MzError("MZ5006", f"{name} is at {str(actual)[:12]}, with commits that are not from mz", hint=hint)


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
    recent = [comment for comment in comments if _time_us(comment.time) > since_us]
    outsiders = sorted({comment.author for comment in recent if comment.author_association not in MEMBERS})
    if outsiders:
        print_note(f"comments of {', '.join(outsiders)} are left out: they may not write to the repository")
    texts = [comment_text(comment) for comment in recent if comment.author_association in MEMBERS]
    if not texts:
        raise MzError("MZ5006", f"pull request {number} has no new comments", hint="say what is to change: -m TEXT")
    screened = screen_text("\n\n".join(texts), pins.config.injection_screen)
    rules = ", ".join(dict.fromkeys(reason.rule for reason in screened.reasons))
    if screened.quarantined or not screened.text.strip():
        hint = "read them, and quote what the agent may know: -m TEXT"
        raise MzError("MZ5006", f"the comments may give orders to the agent ({rules})", hint=hint)
    if rules:
        print_note(f"lines are left out that may give orders to the agent: {rules}")
    return screened.text


def comment_text(comment: ReviewComment) -> str:
    """Return a comment with its place and its author."""
    subject = f"`{comment.path}`" + (f", line {comment.line}" if comment.line else "") if comment.path else "review"
    return f"{subject} ({comment.author}): {comment.text}"


def _time_us(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000_000)
