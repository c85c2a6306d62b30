"""Questions to people as text: the question, and the effect of each verdict."""

from __future__ import annotations

from mz_engine.pipelines.definition import Pipeline
from mz_events.catalog.feature import Ask
from mz_events.catalog.run import Verdict
from mz_projections.queue import Question
from mz_projections.state import Cell, Opening, Restoring, Setting, State, Waiting, Working

KINDS = {
    Ask.EXHAUSTED: "all attempts of the phase were rejected",
    Ask.RETRIES: "too many calls of the agent failed",
    Ask.BLOCKER: "the agent needs a person",
    Ask.APPROVAL: "the pipeline requires your approval",
    Ask.UNROUTED: "blocked: the pipeline has no route for this cause",
    Ask.ROLLBACKS: "rolled back too often",
    Ask.REPOSITORY: "the repository changed during the call, and not by mz",
    Ask.CONFLICT: "merge conflict",
    Ask.SECRET: "the agent's output contains a secret",
    Ask.LIMIT: "the agent's service requires a longer wait than the run allows",
    Ask.CHECKS: "the checks of the pull request did not pass",
}
NEXT_CALL = "the agent tries again with your note; the attempt counter is reset"
FAILS = "the feature fails; its branch and worktree stay"
DEPENDENCIES = "dependencies-conflict"
TAKEN = "branch-exists"
"""Codes of questions before the first phase, all of the kind CONFLICT; any other code is an error of git."""
ALWAYS = "checkpoint"
"""Code of an approval that is always required after a phase; also the name of a level of autonomy."""
Effects = tuple[tuple[Verdict, str], ...]


def kind_words(ask: Ask) -> str:
    """Return the kind of question as text."""
    return KINDS[ask]


def question_words(question: Question) -> str:
    """Return the kind of question with its subject."""
    if question.ask is Ask.UNROUTED and question.code.startswith("person."):
        return "rejected by a person; the pipeline has no route for this cause"
    if question.ask is Ask.APPROVAL and question.code == ALWAYS:
        return f"{kind_words(question.ask)} (after {place_words(question.phase, question.unit)})"
    if question.ask is Ask.CONFLICT and not question.phase and question.code != DEPENDENCIES:
        if question.code == TAKEN:
            return "its branch exists already, and was not created by this run"
        return f"its branch and worktree cannot be created ({question.code})"
    return kind_words(question.ask) + (f" ({question.code})" if question.code else "")


def place_words(phase: str, unit: str) -> str:
    """Return `code` or `code, unit u1`; before the first phase, `the workspace`."""
    return (f"{phase}, unit {unit}" if unit else phase) or "the workspace"


def effects(state: State, pipeline: Pipeline | None) -> Effects:
    """Return the effect of each verdict, the likeliest first; empty without a question."""
    match state:
        case Waiting(asked=asked, then=Working(phase=phase, cell=Cell() as cell)):
            return _in_cell(asked.ask, asked.code, phase, cell, pipeline)
        case Waiting(asked=asked, then=Opening()) if asked.code == TAKEN:
            return _one_way("mz creates the branch again; first rename or delete the existing one")
        case Waiting(asked=asked, then=Opening()) if asked.code != DEPENDENCIES:
            return _one_way("mz tries again; first fix the reported error")
        case Waiting(then=Opening()):
            return _one_way("mz merges the branches again; first resolve the conflict in them")
        case Waiting(then=Setting()):
            return _one_way("the failed set-up command runs again")
        case Waiting(then=Restoring() | Working()):
            return _one_way("mz tries again")
    return ()


def _one_way(again: str) -> Effects:
    """Return effects for a question where approve and retry do the same."""
    return (Verdict.RETRY, again), (Verdict.APPROVE, again), (Verdict.REJECT, FAILS)


def _in_cell(ask: Ask, code: str, phase: str, cell: Cell, pipeline: Pipeline | None) -> Effects:
    fails = (Verdict.REJECT, FAILS)
    match ask:
        case Ask.APPROVAL:
            goes_on = "the feature continues with the work as it is"
            return (Verdict.APPROVE, goes_on), (Verdict.RETRY, NEXT_CALL), (Verdict.REJECT, _rejected(phase, pipeline))
        case Ask.REPOSITORY:
            as_it_is = "the change is accepted, and the feature continues with the agent's reply"
            return (Verdict.APPROVE, as_it_is), (Verdict.RETRY, NEXT_CALL), fails
        case Ask.CHECKS:
            waits = "mz waits for the checks again; first push or restart them"
            return (Verdict.RETRY, waits), (Verdict.APPROVE, "the feature continues as if they had passed"), fails
        case Ask.ROLLBACKS | Ask.CONFLICT:
            return _one_way("the feature is rolled back again, with your note")
        case Ask.SECRET:
            return _one_way("the agent's files are restored, and the agent tries again with your note")
    if cell.commit is not None:
        return _one_way("mz tries the delivery again")
    if not any(tries.attempt for tries in cell.tries.values()):
        ignored = f"the feature continues in spite of {code}"
        return (Verdict.RETRY, f"{phase} starts again"), (Verdict.APPROVE, ignored), fails
    return _one_way(NEXT_CALL)


def _rejected(phase: str, pipeline: Pipeline | None) -> str:
    """Return the effect of rejecting work: a block with the cause `person`."""
    if pipeline is None:
        return "rejecting sends the feature to the phase named in the pipeline, or asks you"
    routes = next((each.on_block for each in pipeline.phases if each.phase == phase), ())
    to = next((route.to for route in routes if route.cause == "person"), None)
    return f"the feature is rolled back to {to}, with your note" if to else "the work is rejected; you are asked again"
