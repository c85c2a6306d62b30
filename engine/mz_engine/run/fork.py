"""Forks: runs that continue from an event of another run, with another agent, model or prompt, or without a learning.

The feature's events up to there are copied, each citing its original as its cause. The engine continues from them as
after any restart, and projections can tell which calls were paid in the other run.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallReserved
from mz_events.catalog.feature import FeatureStarted, PhaseStarted
from mz_events.catalog.run import ItemAdded, RunForked, RunStarted
from mz_events.names import feature_stream, run_stream
from mz_events.store import Append, Recorded
from mz_projections.feature.fold import evolve
from mz_projections.feature.state import (
    BetweenPhases,
    CreatingWorkspace,
    Ended,
    InPhase,
    NotStarted,
    Restoring,
    RunningSetup,
    State,
    progress_of,
)

from mz_engine.decide.actions import CallAgent
from mz_engine.decide.caller import agent_of
from mz_engine.decide.feature import decide_feature
from mz_engine.model.config import Models
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import STEPS, kind_of
from mz_engine.run.feature_loop import BEFORE_MESSAGES
from mz_engine.run.routing import without_agents

FORK_TEMPLATE = "fork.md.j2"
"""Name of the template that replaces the phase's own."""
FORK_SETTINGS = ("branch_prefix", "pull_requests", "agent", "failover", "models")
"""Settings of which `forked_pins` has values of its own."""
FORKABLE_STATES = CreatingWorkspace | RunningSetup | BetweenPhases | InPhase | Restoring
RUN_VERSION = 3
"""Acknowledged run version of the copies: the new run's stream starts with three events."""


class CannotFork(Exception):
    """No fork can start from this event; the message says why."""


class ForkChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes from the fork on; None: as in the other run."""

    agent: str | None = None
    model: str | None = None
    prompt: str | None = None
    """A template for the phase that continues."""
    without: tuple[str, ...] = ()
    """Ids of learnings that no prompt shows."""


def fork_point(events: Sequence[Recorded[Event]], pins: Pins, version: int) -> tuple[int, State]:
    """Return the last version up to this one without a pending outcome of a call or commit, and the state there. Raises
    CannotFork if the feature had not started, or had ended."""
    state: State = NotStarted()
    point: tuple[int, State] | None = None
    for recorded in events[:version]:
        state = evolve(state, recorded)
        if isinstance(recorded.event, CallReserved) or not isinstance(state, FORKABLE_STATES):
            continue  # A reservation is for a call that comes with the next event.
        if not isinstance(decide_feature(state, pins), BEFORE_MESSAGES):
            point = recorded.version, state
    if point is None or isinstance(state, Ended):
        raise CannotFork("the feature had already ended there" if point else "the feature had not started there")
    return point


def phase_start(events: Sequence[Recorded[Event]], phase: str) -> int | None:
    """Return the version just before the phase started last; None if it never did."""
    for recorded in reversed(events):
        if isinstance(recorded.event, PhaseStarted) and recorded.event.phase == phase:
            return recorded.version - 1
    return None


def forked_pins(pins: Pins, state: State, change: ForkChange, run: str) -> Pins:
    """Return the pins of the new run, with its own branches; it opens no pull request, merges and tags nothing."""
    config, progress, agent = pins.config, progress_of(state), change.agent or pins.config.agent
    if change.agent is None and change.model is not None and progress is not None:
        agent = agent_of(progress, config)  # A model without an agent is meant for the agent at work.
    models = config.models if agent == config.agent else Models()
    config = replace(
        config,
        branch_prefix=f"{config.branch_prefix}/fork-{run}",
        pull_requests=replace(config.pull_requests, strategy="none"),
        agent=agent,
        failover=config.failover if change.agent is None else (),  # A chosen agent also replaces a successor,
        routing=config.routing if change.agent is None else without_agents(config.routing),  # and those of phases.
        models=Models(cheap=change.model, mid=change.model, premium=change.model)
        if change.model is not None
        else models,
    )
    steps = (tuple(step for step in p.deliver if not STEPS[kind_of(step)].changes_refs) for p in pins.pipeline.phases)
    phases = tuple(replace(phase, deliver=kept) for phase, kept in zip(pins.pipeline.phases, steps, strict=True))
    pipeline = replace(pins.pipeline, phases=phases)
    pins = replace(pins, pipeline=pipeline, config=config, without=pins.without + change.without)
    return pins if change.prompt is None else _with_prompt(pins, state, change.prompt)


def _with_prompt(pins: Pins, state: State, text: str) -> Pins:
    """Return pins in which the phase of the next call has another template."""
    name, reviews = next_phase(state, pins)
    phase = pins.pipeline.find_phase(name)
    if reviews and phase.agent_review is not None:
        changed = replace(phase, agent_review=replace(phase.agent_review, prompt=FORK_TEMPLATE))
    else:
        changed = replace(phase, prompt=FORK_TEMPLATE)
    phases = tuple(changed if other is phase else other for other in pins.pipeline.phases)
    templates = {**pins.templates, FORK_TEMPLATE: text}
    return replace(pins, pipeline=replace(pins.pipeline, phases=phases), templates=templates)


def next_phase(state: State, pins: Pins) -> tuple[str, bool]:
    """Return the phase that continues, and True if the next call is its agent review."""
    action = decide_feature(state, pins)
    if isinstance(state, InPhase):
        review = pins.pipeline.find_phase(state.phase).agent_review
        return state.phase, review is not None and isinstance(action, CallAgent) and action.role == review.role
    if isinstance(state, Restoring):
        return state.to, False
    return action.phase if isinstance(action, PhaseStarted) else pins.pipeline.phases[0].phase, False


def initial_appends(
    started: RunStarted, forked: RunForked, item: ItemAdded, copies: Sequence[Recorded[Event]], pins: Pins
) -> tuple[Append, ...]:
    """Return the first appends of the new run: its own three events, then the copies in the feature's stream."""
    own_stream, stream = run_stream(started.run), feature_stream(started.run, forked.feature)
    source = f"{feature_stream(forked.source, forked.feature)}@{forked.version}"
    item = replace(item, source=source, order=0, depends_on=())
    branch = pins.item_branch(item.kind, forked.feature, started)
    return (
        Append(own_stream, 0, (started, forked, item)),
        *(
            Append(stream, recorded.version - 1, (_copied_event(recorded.event, branch),), causation=recorded.event_ref)
            for recorded in copies
            if recorded.version <= forked.version
        ),
    )


def _copied_event(event: Event, branch: str) -> Event:
    if hasattr(event, "run_version"):
        event = replace(event, run_version=RUN_VERSION)
    return replace(event, branch=branch) if isinstance(event, FeatureStarted) else event
