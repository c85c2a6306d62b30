"""Recovery from failed calls, rejected replies, blocks and answers: rework, rollback, a hold, or a question."""

from __future__ import annotations

from collections.abc import Mapping

from mz_events.catalog.call import AgentSwitched, Problem, ProblemClass
from mz_events.catalog.feature import Blocked, FeatureFailed, FeatureHeld, HumanAnswered, QuestionKind, RolledBack
from mz_events.catalog.run import Hold, Verdict
from mz_projections.feature.fold import issue_of
from mz_projections.feature.state import Attempts, InPhase, UnitRun
from mz_projections.feature.unit import BLOCK

from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action
from mz_engine.decide.caller import caller, next_agent
from mz_engine.decide.units import affected_units
from mz_engine.model.config import Limits
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import PERSON, Phase, Pipeline

SAME_ISSUE_MAX = 3
"""The third block on the same issue goes to a person."""
AWAIT_CHECKS = "await_checks"
BASE = "base"
"""Cause of a block: conflicts with the pull request's target branch."""
DEFAULT_WAITS: Mapping[str, int] = {"rate-limit": 600, "overloaded": 30, "connection": 30}
"""Seconds before a retry, by problem code, where the problem names none."""
AGENT_PROBLEMS = frozenset(
    {"agent-settings", "auth-failure", "tool-missing", "unstartable", "billing", "model-missing"}
)
"""Problems that another agent may not have."""
OUTPUT_LIMIT = "output-limit"


def next_call(unit_run: UnitRun, role: str) -> Action:
    """Return the next call of a role."""
    return act.CallAgent(role=role, attempt=1 + unit_run.attempts.get(role, Attempts()).attempt)


def after_problem(state: InPhase, unit_run: UnitRun, phase: Phase, problem: Problem, pins: Pins) -> Action:
    """Choose what follows a failed call: a question if the problem needs a person, the next agent if this one cannot
    continue, a halt of the run if the problem is fatal, otherwise a retry, after a pause if a transient problem asks
    for one."""
    if problem.kind is ProblemClass.NEEDS_PERSON:
        return act.AskPerson(question_kind=QuestionKind.BLOCKER, code=problem.code, text=problem.detail)
    attempts = unit_run.attempts.get(unit_run.role, Attempts())
    failures, waited_seconds, limits = sum(attempts.failures.values()), attempts.waited_seconds, pins.config.limits
    is_transient, requested = problem.kind is ProblemClass.TRANSIENT, problem.retry_after_seconds
    wait_seconds = is_transient * (DEFAULT_WAITS.get(problem.code, 0) if requested is None else requested)
    cannot_continue = is_transient and (
        failures > phase.retries or (wait_seconds > 0 and waited_seconds + wait_seconds > limits.failover_wait)
    )
    request, call = unit_run.request, caller(pins, state, unit_run, phase, unit_run.role)
    successor = next_agent(call.agent, pins.config, call.allowed)
    if successor and request and (problem.code in AGENT_PROBLEMS or cannot_continue):
        return AgentSwitched(ref=request.ref, source=request.agent, to=successor, code=problem.code)
    if problem.kind is ProblemClass.FATAL:
        return FeatureHeld(hold=Hold.FATAL, code=problem.code)
    if wait_seconds > 0:
        question = act.AskPerson(question_kind=QuestionKind.LIMIT, code=problem.code, text=problem.detail)
        return pause(unit_run, problem.code, requested, limits) or question
    is_futile = problem.code == OUTPUT_LIMIT and attempts.failures.get(OUTPUT_LIMIT, 0) > 1
    if is_futile or failures - attempts.waits > phase.retries:
        return act.AskPerson(question_kind=QuestionKind.RETRIES, code=problem.code, text=problem.detail)
    return next_call(unit_run, unit_run.role)


def pause(unit_run: UnitRun, code: str, requested: int | None, limits: Limits) -> Action | None:
    """Return a pause that is at least as long as all before it, as far as `wait_max` allows; None if there is no need
    of one, nothing of that is left, or the service requests more seconds than are left."""
    waited_seconds = unit_run.attempts.get(unit_run.role, Attempts()).waited_seconds
    wait_seconds, left = (
        DEFAULT_WAITS.get(code, 0) if requested is None else requested,
        limits.wait_max - waited_seconds,
    )
    if wait_seconds == 0 or left <= 0 or (requested is not None and requested > left):
        return None
    pause_seconds = min(max(wait_seconds, waited_seconds), left)
    return FeatureHeld(hold=Hold.TIMER, until_us=unit_run.ended_at_us + pause_seconds * 1_000_000, code=code)


def after_rejection(unit_run: UnitRun, phase: Phase, exhausted: Action) -> Action:
    """Return a rework call while attempts are left and the phase has an agent; otherwise `exhausted`."""
    rejected = unit_run.attempts.get(unit_run.role, Attempts()).rejected
    has_attempts = phase.agent is not None and rejected < phase.attempts
    return next_call(unit_run, unit_run.role) if has_attempts else exhausted


def after_answer(unit_run: UnitRun, phase: Phase, answer: HumanAnswered) -> Action:
    """Choose what follows an answer: a call with the note, or, if it rejects, a block (of an approval only) or the
    end. Who rejects a block that an agent raised has decided, so without a route nobody is asked again."""
    if answer.verdict is not Verdict.REJECT:
        return next_call(unit_run, unit_run.role)
    question, has_route = unit_run.answered_question, any(route.cause == "person" for route in phase.on_block)
    is_approval = question is not None and question.question_kind is QuestionKind.APPROVAL
    if question is not None and is_approval and (has_route or BLOCK not in unit_run.parsed_artifacts):
        return act.BlockPhase(cause="person", check=question.code, text=answer.note)
    return FeatureFailed(code="rejected")


def after_block(state: InPhase, unit_run: UnitRun, phase: Phase, block: Blocked, pipeline: Pipeline) -> Action:
    """Roll back to the phase that `on_block` names; ask a person if it names none, or after too many rollbacks."""
    route = next((entry for entry in phase.on_block if entry.cause == block.cause), None)
    if route is None or route.to == PERSON:
        return _ask_about_block(block, QuestionKind.UNROUTED)
    progress = state.progress
    too_often = (
        progress.issue_counts.get(issue_of(block), 0) >= SAME_ISSUE_MAX
        or progress.rollback_count >= pipeline.rollbacks_max
        or (route.max_times is not None and progress.block_counts.get(block.cause, 0) > route.max_times)
    )
    if too_often and not unit_run.rollback_allowed:
        return _ask_about_block(block, QuestionKind.ROLLBACKS)
    target = pipeline.find_phase(route.to)
    units = affected_units(state, unit_run, block, target) if route.scope == "unit" else ()
    return RolledBack(source=phase.phase, to=route.to, units=units, keeps_tree=route.scope == "tree")


def _ask_about_block(block: Blocked, question_kind: QuestionKind) -> Action:
    """Ask about a block. Only the questions about delivery let a person accept the work as it is."""
    if block.check == AWAIT_CHECKS:
        return act.AskPerson(question_kind=QuestionKind.CHECKS, code=AWAIT_CHECKS, text=block.note)
    if block.cause == BASE:
        return act.AskPerson(question_kind=QuestionKind.CONFLICT, code=block.check, text=block.note)
    return act.AskPerson(question_kind=question_kind, code=f"{block.cause}.{block.check}", text=block.note)
