"""Who is called: agent and tier, by routing, failover, independence and conditions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from typing import Literal

import msgspec
from mz_events.catalog.validation import Unit
from mz_events.names import BUILDER
from mz_projections.feature.state import FeatureProgress, InPhase, UnitRun

from mz_engine.decide.conditions import escalation
from mz_engine.decide.units import listed_units
from mz_engine.model.config import Config, Route, RouteChoice
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import AgentReview, AgentUse, Phase, Pipeline, Tier


class Caller(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    agent: str
    allowed: tuple[str, ...]
    """Agents that the call may use; without `agent`, none of the run may."""
    own_tier: Tier
    """By routing, else by the pipeline."""
    tier: Tier
    raised_by: str = ""
    """Name of the condition that raised the tier above its own."""
    routed_to: Tier | Literal[""] = ""
    """The tier, if routing names it and no condition raised it."""


def caller(
    pins: Pins, state: InPhase, unit_run: UnitRun, phase: Phase, role: str, broken: Collection[str] = ()
) -> Caller:
    """Return who is called next in a role; `broken` are the rules that are broken."""
    use, progress = phase.call_of(role), state.progress
    route = route_of(pins.config, phase.phase, role, listed_units(progress, phase).get(unit_run.unit))
    own_tier = route.tier or use.tier
    tier, raised_by = escalation(use, state, unit_run, phase, broken, own_tier)
    allowed = allowed_agents(progress, phase, role, pins, route.agent)
    agent = agent_for(allowed, progress, pins.config, route.agent)
    routed_to = "" if raised_by else route.tier or ""
    return Caller(agent=agent, allowed=allowed, own_tier=own_tier, tier=tier, raised_by=raised_by, routed_to=routed_to)


def route_of(config: Config, phase: str, role: str, unit: Unit | None = None) -> RouteChoice:
    """Return what routing says about a call of this role."""
    route = config.routing.get(phase)
    if route is None or role != BUILDER:
        return route.agent_review if route else RouteChoice()
    agent, tier = route.agent, route.tier
    for field, values in route.units.items():
        choice = values.get(unit.fields.get(field, "")) if unit else None
        if choice is not None:
            agent, tier = choice.agent or agent, choice.tier or tier
    return RouteChoice(agent=agent, tier=tier)


def planned_calls(
    config: Config, pipeline: Pipeline, phase: Phase, use: AgentUse | AgentReview
) -> tuple[tuple[str, Tier], ...]:
    """Return all agents and tiers that a call may have while nothing fails and no condition raises the tier. The first
    is that of a phase whose units are alike; others are those of units with routes of their own, and what
    `independence: agent` makes of these. If nobody may make the call, it is the settings' agent."""
    role, calls = BUILDER if isinstance(use, AgentUse) else use.role, list[tuple[str, Tier]]()
    by_field = config.routing.get(phase.phase, Route()).units if phase.for_each else {}
    options = product(*(("", *values) for values in by_field.values()))
    units = (Unit(id="", fields=dict(zip(by_field, values, strict=True))) for values in options)
    checked = pipeline.find_phase(use.not_as).agent if config.independence == "agent" and use.not_as else None
    for route in dict.fromkeys(route_of(config, phase.phase, role, unit) for unit in units):
        agents: Iterable[str] = (route.agent or config.agent,)
        if checked and use.not_as:
            builders = planned_calls(config, pipeline, pipeline.find_phase(use.not_as), checked)
            agents = _others(config, route.agent or config.agent, [agent for agent, _ in builders])
        calls += [(agent, route.tier or use.tier) for agent in agents]
    agents = dict.fromkeys(agent for agent, _ in calls)
    is_checked = config.independence == "agent" and role == BUILDER and pipeline.is_checked_by_others(phase.phase)
    if is_checked and {*agents} >= {*config.called_agents}:
        calls += product(agents, {tier: None for _, tier in calls})  # The last agent is left to those who check.
    return tuple(dict.fromkeys(calls)) or ((config.agent, use.tier),)


def _others(config: Config, agent: str, builders: Sequence[str]) -> Iterator[str]:
    """Yield who may check what any of these built, first where only the first did: the next who did not."""
    order = tuple(dict.fromkeys((*_in_turn(config, agent), *config.called_agents)))
    yield from [other for other in order if other != builders[0]][:1]
    for other in order:
        if {*builders} != {other}:
            yield other
        if other not in builders:
            return


def possible_calls(config: Config, phase: Phase, use: AgentUse | AgentReview) -> Iterator[tuple[str, Tier]]:
    """Yield the agents and tiers that a call may have."""
    route = config.routing.get(phase.phase, Route())
    choices = route.choices if isinstance(use, AgentUse) else (route.agent_review,)
    others = config.agent_order if config.independence == "session" else config.called_agents
    agents = (*(choice.agent for choice in choices if choice.agent), *others)
    tiers = (*(choice.tier or use.tier for choice in choices), *(entry.to for entry in use.escalate))
    return product(dict.fromkeys(agents), dict.fromkeys(tiers))


def agent_of(progress: FeatureProgress, config: Config, agent: str | None = None) -> str:
    """Return who is at work instead of this agent, or of the configured one: it, or its successor if the settings still
    name it (a fork may not)."""
    agent = agent or config.agent
    for _ in progress.replaced_agents:
        successor = progress.replaced_agents.get(agent, agent)
        agent = successor if successor in config.agent_order else agent
    return agent


def allowed_agents(
    progress: FeatureProgress, phase: Phase, role: str, pins: Pins, routed: str | None = None
) -> tuple[str, ...]:
    """Return the agents that a call may use, in the order of the settings. With `independence: agent`, none whose reply
    counted in the phase that `not_as` names; and where others name this phase, one that leaves them another agent."""
    config, of_phase = pins.config, progress.builder_agents
    if config.independence == "session":
        return tuple(dict.fromkeys((*filter(None, (routed,)), *config.agent_order)))
    order = tuple(dict.fromkeys((*filter(None, (routed,)), *config.called_agents)))
    others = of_phase.get(phase.call_of(role).not_as or "", ())
    allowed = tuple(agent for agent in order if agent not in others)
    if role != BUILDER or not pins.pipeline.is_checked_by_others(phase.phase):
        return allowed
    builders = of_phase.get(phase.phase, ())
    return tuple(agent for agent in allowed if {*order} - {*builders, agent}) or allowed


def agent_for(allowed: tuple[str, ...], progress: FeatureProgress, config: Config, routed: str | None = None) -> str:
    """Return the agent of a call: the one at work, else the next that is allowed, at last one that was replaced by
    somebody who is not; the one at work if none is."""
    agent = agent_of(progress, config, routed)
    candidates = (*_in_turn(config, agent), *allowed)
    able = [agent_of(progress, config, other) for other in candidates]
    able += [other for other in candidates if progress.replaced_agents.get(other) not in allowed]
    return next((other for other in able if other in allowed), agent)


def _in_turn(config: Config, agent: str) -> tuple[str, ...]:
    """Return this agent, then those of the settings that follow it, then those before it."""
    order = config.agent_order
    at = order.index(agent) if agent in order else 0
    return (agent, *order[at:], *order[:at])


def next_agent(agent: str, config: Config, allowed: tuple[str, ...] | None = None) -> str | None:
    """Return the agent that `failover` names after this one, of those that are allowed (default: all), or None; after
    an agent that only routing names, the configured one."""
    order = config.agent_order
    later = order[order.index(agent) + 1 :] if agent in order else order
    return next((other for other in later if allowed is None or other in allowed), None)
