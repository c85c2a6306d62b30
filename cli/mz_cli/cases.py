"""Read questions, decisions and inbox messages of one run or of all unfinished runs."""

from __future__ import annotations

import msgspec
from mz_engine.errors import MzError
from mz_engine.pins import decode_pins
from mz_engine.pipelines.definition import Pipeline
from mz_events.catalog.base import Event
from mz_events.envelope import Recorded
from mz_events.names import feature_stream, inbox_stream, run_stream
from mz_events.store import BlobMissing
from mz_projections.feature import fold
from mz_projections.overview import run_view
from mz_projections.queue import Decision, InboxMessage, Question, decisions, open_questions
from mz_projections.run import fold_run, is_over
from mz_projections.state import State
from mz_projections.views import FeatureView, RunView

from mz_cli.context import ProjectLog
from mz_cli.inbox import messages_of_run
from mz_cli.render.text import format_time, single_line

FEATURE_MESSAGES = ("answer", "cancel", "retry")
"""Kinds of messages that concern a feature."""


class ReviewQueue(msgspec.Struct, frozen=True):
    """Questions, decisions and inbox messages of one run."""

    run: RunView
    questions: tuple[Question, ...]
    decisions: tuple[Decision, ...]
    messages: tuple[InboxMessage, ...]

    def question(self, feature: str) -> Question | None:
        """Return the open question; None if there is none, or if a decision on it was accepted already."""
        view = self.run.find_feature(feature)
        if view is None or view.status != "waiting" or self.accepted_decision(feature) is not None:
            return None
        return self._open_question(feature)

    def accepted_decision(self, feature: str) -> Decision | None:
        """Return the decision on the open question that the run has accepted."""
        question = self._open_question(feature)
        return next((decision for decision in self.decisions if question is not None and decision.question == question), None)

    def pending_message(self, feature: str) -> InboxMessage | None:
        """Return the first message for the feature that the run has not read; no other can be posted before that."""
        question = self._open_question(feature)
        for message in self.messages:
            concerns_question = message.question is None or (question is not None and message.question == question.version)
            if message.status == "pending" and message.feature in (feature, None) and message.kind in FEATURE_MESSAGES and concerns_question:
                return message
        return None

    def _open_question(self, feature: str) -> Question | None:
        return next((question for question in self.questions if question.feature == feature), None)


def review_queue(log: ProjectLog, run: str) -> ReviewQueue:
    events: tuple[Recorded[Event], ...] = tuple(log.events(run))
    return ReviewQueue(run_view(run, events), open_questions(events), decisions(events), messages_of_run(log, run))


def unfinished_runs(log: ProjectLog) -> tuple[str, ...]:
    """Return ids of runs that are not over, the newest first; an unread message can make a run continue."""
    inbox_versions = dict(log.store.streams("inbox/"))
    states = ((run, fold_run(log.store.read(run_stream(run)))) for run in log.runs())
    return tuple(run for run, state in states if not is_over(state, inbox_versions.get(inbox_stream(run), 0)))


def find_review_queue(log: ProjectLog, run: str | None, feature: str) -> tuple[ReviewQueue, FeatureView]:
    """Return the queue of that run; without one, of the newest run with a question of the feature, else with the
    feature. Raises MzError (MZ5001, MZ4010)."""
    for unfinished_run in unfinished_runs(log) if run is None else ():
        if feature in log.features(unfinished_run):
            candidate = review_queue(log, unfinished_run)
            if candidate.question(feature) is not None:
                return candidate, _feature_view(candidate, feature)
    view, _ = log.find_feature(run, feature)
    candidate = review_queue(log, view.run)
    return candidate, _feature_view(candidate, feature)


def _feature_view(waiting_queue: ReviewQueue, feature: str) -> FeatureView:
    return waiting_queue.run.find_feature(feature) or FeatureView(feature=feature)


def state_of(log: ProjectLog, run: str, feature: str) -> State:
    return fold(log.store.read(feature_stream(run, feature)))


def pipeline_of(log: ProjectLog, view: RunView) -> Pipeline | None:
    """Return the run's pinned pipeline; None if the pins are missing or unreadable for this version."""
    try:
        return decode_pins(log.blobs.get(view.pins)).pipeline if view.pins is not None else None
    except (BlobMissing, msgspec.DecodeError):
        return None


def answerable_question(log: ProjectLog, waiting_queue: ReviewQueue, view: FeatureView) -> Question:
    """Return the question that can be answered now. Raises MzError (MZ5004) with the action that came first."""
    question, message = waiting_queue.question(view.feature), waiting_queue.pending_message(view.feature)
    if question is not None and message is None:
        return question
    pending = message or waiting_queue.accepted_decision(view.feature)
    last = pending or next((decision for decision in reversed(waiting_queue.decisions) if decision.feature == view.feature), None)
    earlier_action = f"; {action_text(log, last)}" if last is not None else ""
    state = "is answered already" if pending else f"has no open question: it is {view.status}"
    hint = f"continue with: mz resume {waiting_queue.run.run}" if pending else "`mz review list` shows open questions"
    raise MzError("MZ5004", f"{view.feature} {state}{earlier_action}", hint=hint)


def action_text(log: ProjectLog, action: Decision | InboxMessage) -> str:
    """Return actor, action and time as text."""
    verb = {"answer": f"answered `{action.verdict.value if action.verdict else ''}`", "cancel": "cancelled it",
            "retry": "requested a retry"}.get(action.kind, action.kind)  # fmt: skip
    return f"{single_line(log.load_text(action.actor)) or 'somebody'} {verb} at {format_time(action.at_us)}"
