"""Questions, decisions and inbox messages of one run or of all unfinished runs, and their texts for people."""

from __future__ import annotations

import os

import msgspec
from mz_engine.backlog.injection_screen import injections
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.pipeline import Pipeline
from mz_engine.secrets import project_secrets
from mz_events.catalog.base import Event
from mz_events.catalog.feature import HumanRequested, QuestionKind
from mz_events.catalog.inbox import AnswerPosted
from mz_events.catalog.memory import LearningPromoted
from mz_events.catalog.run import Verdict
from mz_events.names import BUILDER, PROJECT_STREAM, FeatureId, feature_stream, inbox_stream, run_stream
from mz_events.redaction.redactor import Secrets
from mz_events.store import Append, Recorded
from mz_projections.feature.fold import fold, rejecting_gate
from mz_projections.feature.state import CreatingWorkspace, InPhase, RunningSetup, State, UnitRun, Waiting
from mz_projections.memory.evidence import fold_memory
from mz_projections.run.fold import fold_run, is_complete
from mz_projections.views.messages import Decision, InboxMessage, decisions
from mz_projections.views.model import FeatureView, Question, RunView
from mz_projections.views.run import run_view
from mz_projections.views.timeline import ALWAYS

from mz_cli.app.context import ProjectLog
from mz_cli.app.selectors import select
from mz_cli.common.advice import RunContext, run_context
from mz_cli.people.inbox import PostedMessage, post_message, store_note, store_text, store_user_name
from mz_cli.terminal.text import format_time, single_line


class ReviewQueue(msgspec.Struct, frozen=True):
    """One run with people's decisions and messages."""

    run: RunView
    context: RunContext
    decisions: tuple[Decision, ...]

    def question(self, view: FeatureView) -> Question | None:
        """Return the open question; None if there is none, or if a decision on it was accepted already."""
        return view.question if view.status == "waiting" and self.accepted_decision(view) is None else None

    def accepted_decision(self, view: FeatureView) -> Decision | None:
        """Return the decision on the open question that the run has accepted."""
        event_ref = view.question.event_ref if view.question else None
        return next((d for d in self.decisions if d.question and d.question.event_ref == event_ref), None)


def review_queue(log: ProjectLog, run: str) -> ReviewQueue:
    events: tuple[Recorded[Event], ...] = tuple(log.events(run))
    return ReviewQueue(run_view(run, events), run_context(log, run), decisions(events))


def unfinished_runs(log: ProjectLog) -> tuple[str, ...]:
    """Return ids of runs that are not over, the newest first; an unread message can make a run continue."""
    inbox_versions = dict(log.store.streams("inbox/"))
    states = ((run, fold_run(log.store.read(run_stream(run)))) for run in log.runs())
    return tuple(run for run, state in states if not is_complete(state, inbox_versions.get(inbox_stream(run), 0)))


def find_review_queue(log: ProjectLog, selector: str) -> tuple[ReviewQueue, FeatureView]:
    """Return the queue and the feature of a selector; if it names no run, of the newest run with a question of the
    feature, else with the feature. Raises MzError (MZ1002, MZ4010, MZ5001)."""
    selected = select(log, selector, feature_only=True)
    feature = str(selected.feature)
    for run in () if selected.names_run else unfinished_runs(log):
        queue = review_queue(log, run)
        view = queue.run.find_feature(feature)
        if view is not None and queue.question(view) is not None:
            return queue, view
    queue = review_queue(log, selected.run)
    return queue, queue.run.find_feature(feature) or FeatureView(feature=feature)


def state_of(log: ProjectLog, run: str, feature: str) -> State:
    return fold(log.store.read(feature_stream(run, feature)))


def pipeline_of(log: ProjectLog, view: RunView) -> Pipeline | None:
    """Return the run's pinned pipeline; None if the pins are missing or unreadable for this version."""
    pins = log.load_pins(view.pins)
    return pins.pipeline if pins else None


def answerable_question(log: ProjectLog, queue: ReviewQueue, view: FeatureView) -> Question:
    """Return the question that can be answered now. Raises MzError (MZ5004) with the action that came first."""
    question, message = queue.question(view), queue.context.pending_message(view)
    if question is not None and message is None:
        return question
    pending = message or queue.accepted_decision(view)
    last = pending or next((d for d in reversed(queue.decisions) if d.feature == view.feature), None)
    earlier_action = f"; {action_text(log, last)}" if last is not None else ""
    state = "is answered already" if pending else f"has no open question: it is {view.status}"
    hint = f"continue with: mz resume {queue.run.run}" if pending else "`mz review list` shows open questions"
    raise MzError("MZ5004", f"{view.feature} {state}{earlier_action}", hint=hint)


def post_answers(
    log: ProjectLog, run: str, features: tuple[str, ...], verdict: Verdict, note: str | None, *, keep: bool = False
) -> PostedMessage:
    """Post the same answer to the open questions of all features, or to none; with `keep`, promote what each question
    teaches. Raises MzError (MZ5004, MZ5009, MZ5018)."""

    def write() -> tuple[Event, ...]:
        queue = review_queue(log, run)
        views = [queue.run.find_feature(feature) or FeatureView(feature=feature) for feature in features]
        versions = [(view.feature, answerable_question(log, queue, view).version) for view in views]
        for feature in features if verdict is Verdict.ACCEPT else ():
            check_acceptable(log, run, feature)
        text, person = store_note(log, note), store_user_name(log)
        return tuple(
            AnswerPosted(feature=FeatureId(feature), verdict=verdict, note=text, actor=person, question=version)
            for feature, version in versions
        )

    kept = tuple(promotion(log, run, feature, note) for feature in features if keep and note)
    return post_message(log, run, write, beside=(Append(PROJECT_STREAM, None, kept),) if kept else ())


def promotion(log: ProjectLog, run: str, feature: str, note: str) -> LearningPromoted:
    """Return the decision to give question and answer to all features. Raises MzError (MZ5004, MZ5018)."""
    queue = review_queue(log, run)
    question = answerable_question(log, queue, queue.run.find_feature(feature) or FeatureView(feature=feature))
    matches = Secrets(project_secrets(log.root, os.environ)).find(note.encode("utf-8", "replace"))
    problems = tuple(f"it contains the secret {name}" for name in {match.name: match for match in matches}) + tuple(
        f"it looks like an injection: {reason}" for reason in injections(f"{log.load_text(question.detail)}\n{note}")
    )
    if problems:
        hint = "answer without it, or without --keep; nothing was posted"
        raise MzError("MZ5018", f"the answer for {feature} cannot be kept: {'; '.join(problems)}", hint=hint)
    (row,) = fold_memory(log.store.read(feature_stream(run, feature)))
    return LearningPromoted(id=row.question, actor=store_user_name(log), reason=store_text(log, note))


def check_acceptable(log: ProjectLog, run: str, feature: str) -> None:
    """Raise MzError (MZ5009) if the feature's question is not about a gate."""
    state = state_of(log, run, feature)
    match state:
        case Waiting(suspended=InPhase(unit_run=UnitRun() as unit_run)) if rejecting_gate(unit_run):
            return
    hint = f"`mz review show {feature}` shows the question and how to answer it"
    raise MzError("MZ5009", f"{feature} does not wait because of a gate, so there is nothing to accept", hint=hint)


def action_text(log: ProjectLog, action: Decision | InboxMessage) -> str:
    """Return actor, action and time as text."""
    verb = {"answer": f"answered `{action.verdict.value if action.verdict else ''}`", "cancel": "cancelled it",
            "retry": "requested a retry", "revision": "requested a revision"}.get(action.kind, action.kind)  # fmt: skip
    return f"{single_line(log.load_text(action.actor)) or 'somebody'} {verb} at {format_time(action.recorded_at_us)}"


KIND_TEXTS = {
    QuestionKind.EXHAUSTED: "all attempts of the phase were rejected",
    QuestionKind.RETRIES: "too many calls of the agent failed",
    QuestionKind.BLOCKER: "the agent needs a person",
    QuestionKind.APPROVAL: "the pipeline requires your approval",
    QuestionKind.UNROUTED: "blocked: the pipeline has no route for this cause",
    QuestionKind.ROLLBACKS: "rolled back too often",
    QuestionKind.CONFLICT: "merge conflict",
    QuestionKind.SECRET: "the agent's output contains a secret",
    QuestionKind.LIMIT: "the agent's service is unavailable for longer than the run may wait",
    QuestionKind.CHECKS: "the checks of the pull request did not pass",
    QuestionKind.WITHHELD: "the feature's text may give orders to an agent; no agent has seen it",
}
NEXT_CALL_TEXT = "the agent tries again with your note; the attempt counter is reset"
FAILS_TEXT = "the feature fails; its branch and worktree stay"
DEPENDENCIES = "dependencies-conflict"
BRANCH_EXISTS = "branch-exists"
"""Codes of questions before the first phase, all of the kind CONFLICT; any other code is an error of git."""
CREATION_EFFECTS = {
    BRANCH_EXISTS: "mz creates the branch again; first rename or delete the existing one",
    DEPENDENCIES: "mz merges the branches again; first resolve the conflict in them",
}
"""Code -> effect of approve and retry."""
Effects = tuple[tuple[Verdict, str], ...]


def question_text(question: Question) -> str:
    """Return the kind of question with its subject."""
    if question.question_kind is QuestionKind.UNROUTED and question.code.startswith("person."):
        return "rejected by a person; the pipeline has no route for this cause"
    if question.question_kind is QuestionKind.APPROVAL and question.code == ALWAYS:
        return f"{KIND_TEXTS[question.question_kind]} (after {unit_text(question.phase, question.unit)})"
    if question.question_kind is QuestionKind.CONFLICT and not question.phase and question.code != DEPENDENCIES:
        if question.code == BRANCH_EXISTS:
            return "its branch exists already, and was not created by this run"
        return f"its branch and worktree cannot be created ({question.code})"
    return KIND_TEXTS[question.question_kind] + (f" ({question.code})" if question.code else "")


def unit_text(phase: str, unit: str) -> str:
    """Return `code` or `code, unit u1`; before the first phase, `the workspace`."""
    return (f"{phase}, unit {unit}" if unit else phase) or "the workspace"


def verdict_effects(state: State, pipeline: Pipeline | None) -> Effects:
    """Return the effect of each verdict, the likeliest first; empty without a question."""
    if not isinstance(state, Waiting):
        return ()
    if state.question.question_kind is QuestionKind.WITHHELD:
        approved = (Verdict.APPROVE, "agents get the text as it is written")
        return approved, (Verdict.RETRY, "you are asked again"), (Verdict.REJECT, FAILS_TEXT)
    match state.suspended:
        case InPhase(phase=phase, unit_run=UnitRun() as unit_run):
            effects = _question_effects(state.question, phase, unit_run, pipeline)
            if gate := rejecting_gate(unit_run):
                accepted = f"the feature continues although {gate} failed; the same failure passes from here on"
                return (*effects[:2], (Verdict.ACCEPT, accepted), *effects[2:])
            return effects
        case CreatingWorkspace():
            again = CREATION_EFFECTS.get(state.question.code, "mz tries again; first fix the reported error")
        case RunningSetup():
            again = "the failed set-up command runs again"
        case _:
            again = "mz tries again"
    return _same_effect(again)


def _same_effect(again: str) -> Effects:
    """Return effects for a question where approve and retry do the same."""
    return (Verdict.RETRY, again), (Verdict.APPROVE, again), (Verdict.REJECT, FAILS_TEXT)


def _question_effects(question: HumanRequested, phase: str, unit_run: UnitRun, pipeline: Pipeline | None) -> Effects:
    approve, retry, reject = Verdict.APPROVE, Verdict.RETRY, (Verdict.REJECT, FAILS_TEXT)
    has_calls = any(tries.attempt for tries in unit_run.attempts.values())
    again = NEXT_CALL_TEXT if has_calls else f"{phase} starts again"
    match question.question_kind:
        case QuestionKind.APPROVAL:
            reject = (Verdict.REJECT, _rejection_effect(phase, pipeline))
            return (approve, "the feature continues with the work as it is"), (retry, again), reject
        case QuestionKind.CHECKS:
            waits = "mz waits for the checks again; first push or restart them"
            return (retry, waits), (approve, "the feature continues as if they had passed"), reject
        case QuestionKind.ROLLBACKS | QuestionKind.CONFLICT:
            return _same_effect("the feature is rolled back again, with your note")
        case QuestionKind.SECRET:
            return _same_effect("the agent's files are restored, and the agent tries again with your note")
        case QuestionKind.EXHAUSTED if unit_run.role != BUILDER:
            return (retry, NEXT_CALL_TEXT), (approve, "the feature continues without this review, and no call"), reject
    if unit_run.commit is not None:
        return _same_effect("mz tries the delivery again")
    if not has_calls:
        return (retry, again), (approve, f"the feature continues in spite of {question.code}"), reject
    return _same_effect(again)


def _rejection_effect(phase: str, pipeline: Pipeline | None) -> str:
    """Return the effect of rejecting work: a block with the cause `person`."""
    if pipeline is None:
        return "rejecting sends the feature to the phase named in the pipeline, or asks you"
    routes = (route for spec in pipeline.phases if spec.phase == phase for route in spec.on_block)
    to = next((route.to for route in routes if route.cause == "person"), None)
    return f"the feature is rolled back to {to}, with your note" if to else "the work is rejected; you are asked again"
