"""Pure: questions to people, in words: what is asked, and what each answer does."""

from __future__ import annotations

from mz_engine.pipelines.definition import Pipeline
from mz_events.catalog.feature import Ask
from mz_events.catalog.run import Verdict
from mz_projections.queue import Question
from mz_projections.state import Cell, Opening, Restoring, Setting, State, Waiting, Working

KINDS = {
    Ask.EXHAUSTED: "its replies were refused as often as the phase allows",
    Ask.RETRIES: "the calls of the agent failed too often",
    Ask.BLOCKER: "the agent needs a person",
    Ask.APPROVAL: "the pipeline wants your approval",
    Ask.UNROUTED: "it cannot go on, and the pipeline names no way back",
    Ask.ROLLBACKS: "it was sent back too often",
    Ask.REPOSITORY: "the repository changed under the agent, and nothing of mz explains it",
    Ask.CONFLICT: "commits do not merge",
    Ask.SECRET: "a secret stands in what the agent wrote",
    Ask.LIMIT: "the agent's service asks to wait for longer than the run may",
    Ask.CHECKS: "the checks of the pull request did not become green",
}
NEXT_CALL = "the agent does it once more, with your note, and with all its attempts again"
FAILS = "the feature fails; its branch and worktree stay"
DEPENDENCIES = "dependencies-conflict"
TAKEN = "branch-exists"
"""Codes of questions before the first phase, which are all of the kind CONFLICT; any other is git's refusal."""
ALWAYS = "checkpoint"
"""Code of an approval that is asked after a phase whatever it holds; a level of autonomy is called the same."""
Effects = tuple[tuple[Verdict, str], ...]


def kind_words(ask: Ask) -> str:
    """The kind of question."""
    return KINDS[ask]


def question_words(question: Question) -> str:
    """The kind of question and what it is about."""
    if question.ask is Ask.UNROUTED and question.code.startswith("person."):
        return "a person rejected it, and the pipeline names no way back"
    if question.ask is Ask.APPROVAL and question.code == ALWAYS:
        return f"{kind_words(question.ask)} (after {place_words(question.phase, question.unit)})"
    if question.ask is Ask.CONFLICT and not question.phase and question.code != DEPENDENCIES:
        if question.code == TAKEN:
            return "a branch stands where its own is to be made, and this run did not make it"
        return f"its branch and worktree cannot be made ({question.code})"
    return kind_words(question.ask) + (f" ({question.code})" if question.code else "")


def place_words(phase: str, unit: str) -> str:
    """`code`, `code, unit u1`; before the first phase, the workspace."""
    return (f"{phase}, unit {unit}" if unit else phase) or "the workspace"


def effects(state: State, pipeline: Pipeline | None) -> Effects:
    """What each answer does, the most natural first; empty where nothing is asked. None: the pipeline is not known."""
    match state:
        case Waiting(asked=asked, then=Working(phase=phase, cell=Cell() as cell)):
            return _in_cell(asked.ask, asked.code, phase, cell, pipeline)
        case Waiting(asked=asked, then=Opening()) if asked.code == TAKEN:
            return _one_way("the branch is made once more: first rename or delete the one that is in the way")
        case Waiting(asked=asked, then=Opening()) if asked.code != DEPENDENCIES:
            return _one_way("it is tried once more: first mend what is said of it")
        case Waiting(then=Opening()):
            again = "the branches are merged once more: mend the conflict in them first"
            return _one_way(again)
        case Waiting(then=Setting()):
            return _one_way("the set-up command that failed runs again")
        case Waiting(then=Restoring() | Working()):
            return _one_way("it is tried once more")
    return ()


def _one_way(again: str) -> Effects:
    """Approving and retrying are the same."""
    return (Verdict.RETRY, again), (Verdict.APPROVE, again), (Verdict.REJECT, FAILS)


def _in_cell(ask: Ask, code: str, phase: str, cell: Cell, pipeline: Pipeline | None) -> Effects:
    fails = (Verdict.REJECT, FAILS)
    match ask:
        case Ask.APPROVAL:
            goes_on = "it goes on with the work as it is"
            return (Verdict.APPROVE, goes_on), (Verdict.RETRY, NEXT_CALL), (Verdict.REJECT, _rejected(phase, pipeline))
        case Ask.REPOSITORY:
            as_it_is = "the change is taken as it is, and the feature goes on with the agent's reply"
            return (Verdict.APPROVE, as_it_is), (Verdict.RETRY, NEXT_CALL), fails
        case Ask.CHECKS:
            waits = "the checks are waited for anew; push or start them again first"
            return (Verdict.RETRY, waits), (Verdict.APPROVE, "it goes on as if they were green"), fails
        case Ask.ROLLBACKS | Ask.CONFLICT:
            return _one_way("it is sent back once more, with your note")
        case Ask.SECRET:
            return _one_way("the agent's files are put back, and it does the work once more, with your note")
    if cell.commit is not None:
        return _one_way("the delivery is tried once more")
    if not any(tries.attempt for tries in cell.tries.values()):
        return (Verdict.RETRY, f"{phase} begins once more"), (Verdict.APPROVE, f"it goes on in spite of {code}"), fails
    return _one_way(NEXT_CALL)


def _rejected(phase: str, pipeline: Pipeline | None) -> str:
    """A rejection of work is a block whose cause is a person."""
    if pipeline is None:
        return "it goes back to where the pipeline says, or you are asked how to go on"
    routes = next((each.on_block for each in pipeline.phases if each.phase == phase), ())
    to = next((route.to for route in routes if route.cause == "person"), None)
    return f"it goes back to {to}, with your note" if to else "not like this: you are asked how to go on"
