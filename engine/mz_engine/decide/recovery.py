"""Recovery from failed calls, rejected replies, blocks and answers: rework, rollback, a hold, or a question."""

from __future__ import annotations

from mz_events.catalog.call import Problem, ProblemClass
from mz_events.catalog.feature import Ask, Blocked, HumanAnswered
from mz_events.catalog.run import Hold, Verdict
from mz_projections.feature import issue_of
from mz_projections.state import Book, Cell, Tries, Working

from mz_engine.config import Config, Limits
from mz_engine.decide import actions as act
from mz_engine.decide.actions import Action
from mz_engine.decide.delivery import AWAIT, BASE
from mz_engine.pipelines.definition import Phase, Pipeline, Route

SAME_ISSUE_MAX = 3
"""The third block on the same issue goes to a person."""
DEFAULT_WAIT_SECONDS = {"rate-limit": 600, "overloaded": 30}
"""Waits for transient problems that name none. Other problems are retried at once."""

AGENTS_OWN = frozenset({"agent-settings", "auth-failure", "tool-missing", "unstartable", "billing", "model-missing"})
"""Problems that another agent may not have."""


def next_call(cell: Cell) -> Action:
    """Return the next call of the current role."""
    return act.CallAgent(role=cell.role, attempt=1 + cell.tries.get(cell.role, Tries()).attempt)


def after_problem(state: Working, cell: Cell, phase: Phase, problem: Problem, config: Config) -> Action:
    """Choose what follows a failed call.

    In this order: ask a person if the problem needs one; switch to the next agent if this one cannot continue; halt the
    run if the problem is fatal; otherwise retry, after a wait if the problem asks for one.
    """
    if problem.kind is ProblemClass.HUMAN:
        return act.AskHuman(ask=Ask.BLOCKER, code=problem.code, text=problem.detail)
    successor = successor_of(agent_of(state.book, config), config)
    if successor is not None and _gives_up(cell, phase, problem, config.limits):
        return act.SwitchAgent(to=successor, code=problem.code)
    if problem.kind is ProblemClass.FATAL:
        return act.HoldFeature(hold=Hold.FATAL, code=problem.code)
    if _used_up(cell, phase):
        return act.AskHuman(ask=Ask.RETRIES, code=problem.code, text=problem.detail)
    wait_seconds = _wait_seconds(problem)
    if wait_seconds > config.limits.wait_minutes_max * 60:
        return act.AskHuman(ask=Ask.LIMIT, code=problem.code, text=problem.detail)
    if wait_seconds <= 0:
        return next_call(cell)
    return act.HoldFeature(hold=Hold.TIMER, until_us=cell.ended_at_us + wait_seconds * 1_000_000, code=problem.code)


def agent_of(book: Book, config: Config) -> str:
    """Return the agent at work: the configured one, or its successor if the settings still name it (a fork may not)."""
    return book.agent if book.agent in config.failover else config.agent


def successor_of(agent: str, config: Config) -> str | None:
    """Return the agent that `failover` names after this one, or None."""
    order = tuple(dict.fromkeys((config.agent, *config.failover)))
    later = order[order.index(agent) + 1 :] if agent in order else order
    return next(iter(later), None)


def _gives_up(cell: Cell, phase: Phase, problem: Problem, limits: Limits) -> bool:
    """Return True if switching the agent is better than retrying."""
    if problem.code in AGENTS_OWN:
        return True
    if problem.kind is not ProblemClass.TRANSIENT:
        return False
    return _used_up(cell, phase) or _wait_seconds(problem) > limits.failover_wait_seconds


def _used_up(cell: Cell, phase: Phase) -> bool:
    return cell.tries.get(cell.role, Tries()).failures > phase.retries


def _wait_seconds(problem: Problem) -> int:
    if problem.kind is not ProblemClass.TRANSIENT:
        return 0
    wait = problem.retry_after_seconds
    return DEFAULT_WAIT_SECONDS.get(problem.code, 0) if wait is None else wait


def refused(cell: Cell, phase: Phase, exhausted: Action) -> Action:
    """Return a rework call while attempts are left and the phase has an agent; otherwise `exhausted`."""
    if phase.agent is None:
        return exhausted
    return next_call(cell) if cell.tries.get(cell.role, Tries()).refused < phase.attempts else exhausted


def after_answer(cell: Cell, answer: HumanAnswered) -> Action:
    """Choose what follows an answer: another call with the note, or, after a rejection, a block or the feature's end.

    Only the rejection of an approval is a block.
    """
    if answer.verdict is not Verdict.REJECT:
        return next_call(cell)
    if cell.asked is not None and cell.asked.ask is Ask.APPROVAL:
        return act.Block(cause="person", check=cell.asked.code, text=answer.note)
    return act.FailFeature(code="rejected")


def after_block(state: Working, cell: Cell, phase: Phase, block: Blocked, pipeline: Pipeline) -> Action:
    """Roll back to the phase that `on_block` names; ask a person if it names none, or after too many rollbacks."""
    route = next((entry for entry in phase.on_block if entry.cause == block.cause), None)
    if route is None:
        return _asked(block, Ask.UNROUTED)
    often = state.book.issues.get(issue_of(block), 0) >= SAME_ISSUE_MAX
    often = often or (route.times is not None and state.book.blocks.get(block.cause, 0) > route.times)
    if (often or state.book.rollbacks >= pipeline.rollbacks_max) and not cell.pardoned:
        return _asked(block, Ask.ROLLBACKS)
    units = _units(state, cell, route) if route.scope == "unit" else ()
    return act.RollBack(to=route.to, units=units, keeps_tree=route.scope == "tree")


def _asked(block: Blocked, ask: Ask) -> Action:
    """Ask about a block. Only the questions about delivery let a person accept the work as it is."""
    if block.check == AWAIT:
        return act.AskHuman(ask=Ask.CHECKS, code=AWAIT, text=block.note)
    if block.cause == BASE:
        return act.AskHuman(ask=Ask.CONFLICT, code=block.check, text=block.note)
    return act.AskHuman(ask=ask, code=f"{block.cause}.{block.check}", text=block.note)


def _units(state: Working, cell: Cell, route: Route) -> tuple[str, ...]:
    """Return the unit and, transitively, the units that depend on it, in the phase's order."""
    listed = next((a.units for a in state.book.artifacts.values() if any(u.id == cell.unit for u in a.units)), ())
    affected = [cell.unit]
    for unit in affected:
        affected += [other.id for other in listed if unit in other.depends_on and other.id not in affected]
    return tuple(unit for unit in state.units if unit in affected)
