"""Questions to people as text: the question, and the effect of each verdict."""

from __future__ import annotations

from mz_engine.pipelines.definition import Pipeline
from mz_events.catalog.feature import QuestionKind
from mz_events.catalog.run import Verdict
from mz_projections.queue import Question
from mz_projections.state import CreatingWorkspace, InPhase, Restoring, RunningSetup, State, UnitRun, Waiting

KIND_TEXTS = {
    QuestionKind.EXHAUSTED: "all attempts of the phase were rejected",
    QuestionKind.RETRIES: "too many calls of the agent failed",
    QuestionKind.BLOCKER: "the agent needs a person",
    QuestionKind.APPROVAL: "the pipeline requires your approval",
    QuestionKind.UNROUTED: "blocked: the pipeline has no route for this cause",
    QuestionKind.ROLLBACKS: "rolled back too often",
    QuestionKind.REPOSITORY: "the repository changed during the call, and not by mz",
    QuestionKind.CONFLICT: "merge conflict",
    QuestionKind.SECRET: "the agent's output contains a secret",
    QuestionKind.LIMIT: "the agent's service requires a longer wait than the run allows",
    QuestionKind.CHECKS: "the checks of the pull request did not pass",
}
NEXT_CALL_TEXT = "the agent tries again with your note; the attempt counter is reset"
FAILS_TEXT = "the feature fails; its branch and worktree stay"
DEPENDENCIES = "dependencies-conflict"
BRANCH_EXISTS = "branch-exists"
"""Codes of questions before the first phase, all of the kind CONFLICT; any other code is an error of git."""
CHECKPOINT = "checkpoint"
"""Code of an approval that is always required after a phase; also the name of a level of autonomy."""
Effects = tuple[tuple[Verdict, str], ...]


def kind_text(ask: QuestionKind) -> str:
    """Return the kind of question as text."""
    return KIND_TEXTS[ask]


def question_text(question: Question) -> str:
    """Return the kind of question with its subject."""
    if question.question_kind is QuestionKind.UNROUTED and question.code.startswith("person."):
        return "rejected by a person; the pipeline has no route for this cause"
    if question.question_kind is QuestionKind.APPROVAL and question.code == CHECKPOINT:
        return f"{kind_text(question.question_kind)} (after {unit_text(question.phase, question.unit)})"
    if question.question_kind is QuestionKind.CONFLICT and not question.phase and question.code != DEPENDENCIES:
        if question.code == BRANCH_EXISTS:
            return "its branch exists already, and was not created by this run"
        return f"its branch and worktree cannot be created ({question.code})"
    return kind_text(question.question_kind) + (f" ({question.code})" if question.code else "")


def unit_text(phase: str, unit: str) -> str:
    """Return `code` or `code, unit u1`; before the first phase, `the workspace`."""
    return (f"{phase}, unit {unit}" if unit else phase) or "the workspace"


def verdict_effects(state: State, pipeline: Pipeline | None) -> Effects:
    """Return the effect of each verdict, the likeliest first; empty without a question."""
    match state:
        case Waiting(question=request, suspended=InPhase(phase=phase, unit_run=UnitRun() as cell)):
            return _unit_effects(request.question_kind, request.code, phase, cell, pipeline)
        case Waiting(question=request, suspended=CreatingWorkspace()) if request.code == BRANCH_EXISTS:
            return _same_effect("mz creates the branch again; first rename or delete the existing one")
        case Waiting(question=request, suspended=CreatingWorkspace()) if request.code != DEPENDENCIES:
            return _same_effect("mz tries again; first fix the reported error")
        case Waiting(suspended=CreatingWorkspace()):
            return _same_effect("mz merges the branches again; first resolve the conflict in them")
        case Waiting(suspended=RunningSetup()):
            return _same_effect("the failed set-up command runs again")
        case Waiting(suspended=Restoring() | InPhase()):
            return _same_effect("mz tries again")
    return ()


def _same_effect(again: str) -> Effects:
    """Return effects for a question where approve and retry do the same."""
    return (Verdict.RETRY, again), (Verdict.APPROVE, again), (Verdict.REJECT, FAILS_TEXT)


def _unit_effects(ask: QuestionKind, code: str, phase: str, unit_run: UnitRun, pipeline: Pipeline | None) -> Effects:
    fails = (Verdict.REJECT, FAILS_TEXT)
    match ask:
        case QuestionKind.APPROVAL:
            continues = "the feature continues with the work as it is"
            return (Verdict.APPROVE, continues), (Verdict.RETRY, NEXT_CALL_TEXT), (Verdict.REJECT, _rejection_effect(phase, pipeline))
        case QuestionKind.REPOSITORY:
            as_it_is = "the change is accepted, and the feature continues with the agent's reply"
            return (Verdict.APPROVE, as_it_is), (Verdict.RETRY, NEXT_CALL_TEXT), fails
        case QuestionKind.CHECKS:
            waits = "mz waits for the checks again; first push or restart them"
            return (Verdict.RETRY, waits), (Verdict.APPROVE, "the feature continues as if they had passed"), fails
        case QuestionKind.ROLLBACKS | QuestionKind.CONFLICT:
            return _same_effect("the feature is rolled back again, with your note")
        case QuestionKind.SECRET:
            return _same_effect("the agent's files are restored, and the agent tries again with your note")
    if unit_run.commit is not None:
        return _same_effect("mz tries the delivery again")
    if not any(tries.attempt for tries in unit_run.attempts.values()):
        ignored = f"the feature continues in spite of {code}"
        return (Verdict.RETRY, f"{phase} starts again"), (Verdict.APPROVE, ignored), fails
    return _same_effect(NEXT_CALL_TEXT)


def _rejection_effect(phase: str, pipeline: Pipeline | None) -> str:
    """Return the effect of rejecting work: a block with the cause `person`."""
    if pipeline is None:
        return "rejecting sends the feature to the phase named in the pipeline, or asks you"
    routes = next((pipeline_phase.on_block for pipeline_phase in pipeline.phases if pipeline_phase.phase == phase), ())
    to = next((route.to for route in routes if route.cause == "person"), None)
    return f"the feature is rolled back to {to}, with your note" if to else "the work is rejected; you are asked again"
