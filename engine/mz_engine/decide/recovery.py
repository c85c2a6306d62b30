"""Pure: what follows a failed call, a refused reply, a block, an answer: rework, rollback, a hold, or a person."""

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
"""Where a transient problem says no time of its own. Others are tried again at once."""

AGENTS_OWN = frozenset({"agent-settings", "auth-failure", "tool-missing", "unstartable", "billing", "model-missing"})
"""Problems of one agent that no other need have."""


def next_call(cell: Cell) -> Action:
    """One more call of the role whose turn it is."""
    return act.CallAgent(role=cell.role, attempt=1 + cell.tries.get(cell.role, Tries()).attempt)


def after_problem(state: Working, cell: Cell, phase: Phase, problem: Problem, config: Config) -> Action:
    """Human: a person. Then the next agent, where this one cannot go on and another one may. Fatal: the run stops. Else
    the call is repeated, after a wait where the problem asks for one."""
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
    """The agent of the settings, or the one that took over from it. A fork may have settings without that one."""
    return book.agent if book.agent in config.failover else config.agent


def successor_of(agent: str, config: Config) -> str | None:
    """The agent that `failover` names after this one; None: there is no other."""
    order = tuple(dict.fromkeys((config.agent, *config.failover)))
    later = order[order.index(agent) + 1 :] if agent in order else order
    return next(iter(later), None)


def _gives_up(cell: Cell, phase: Phase, problem: Problem, limits: Limits) -> bool:
    """Whether another agent is a better answer than this one once more."""
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
    """Rework while attempts are left; else, or where there is no agent that could mend it, what the caller says."""
    if phase.agent is None:
        return exhausted
    return next_call(cell) if cell.tries.get(cell.role, Tries()).refused < phase.attempts else exhausted


def after_answer(cell: Cell, answer: HumanAnswered) -> Action:
    """A rejection of what a person was asked to approve is a block; any other rejection ends the feature. Every other
    answer leads to one more call with the note."""
    if answer.verdict is not Verdict.REJECT:
        return next_call(cell)
    if cell.asked is not None and cell.asked.ask is Ask.APPROVAL:
        return act.Block(cause="person", check=cell.asked.code, text=answer.note)
    return act.FailFeature(code="rejected")


def after_block(state: Working, cell: Cell, phase: Phase, block: Blocked, pipeline: Pipeline) -> Action:
    """The phase of the cause, by `on_block`; a person where there is none, or where it went on too often."""
    route = next((route for route in phase.on_block if route.cause == block.cause), None)
    if route is None:
        return _asked(block, Ask.UNROUTED)
    often = state.book.issues.get(issue_of(block), 0) >= SAME_ISSUE_MAX
    often = often or (route.times is not None and state.book.blocks.get(block.cause, 0) > route.times)
    if (often or state.book.rollbacks >= pipeline.rollbacks_max) and not cell.pardoned:
        return _asked(block, Ask.ROLLBACKS)
    units = _units(state, cell, route) if route.scope == "unit" else ()
    return act.RollBack(to=route.to, units=units, keeps_tree=route.scope == "tree")


def _asked(block: Blocked, ask: Ask) -> Action:
    """What delivery met has questions of its own: only there can a person take the work as it is."""
    if block.check == AWAIT:
        return act.AskHuman(ask=Ask.CHECKS, code=AWAIT, text=block.note)
    if block.cause == BASE:
        return act.AskHuman(ask=Ask.CONFLICT, code=block.check, text=block.note)
    return act.AskHuman(ask=ask, code=f"{block.cause}.{block.check}", text=block.note)


def _units(state: Working, cell: Cell, route: Route) -> tuple[str, ...]:
    """The unit and, transitively, the units that depend on it."""
    listed = next((a.units for a in state.book.artifacts.values() if any(u.id == cell.unit for u in a.units)), ())
    found = [cell.unit]
    for unit in found:
        found += [other.id for other in listed if unit in other.depends_on and other.id not in found]
    return tuple(unit for unit in state.units if unit in found)
