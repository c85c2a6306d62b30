"""Pure: a run that goes on from an event of another one, with another agent, model or prompt.

The feature's events up to there are copied, each citing its original as its cause: the core goes on from them as after
any restart, and projections can tell what was paid elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import CallReserved
from mz_events.catalog.feature import FeatureStarted, PhaseStarted
from mz_events.catalog.run import ItemAdded, RunForked, RunStarted
from mz_events.envelope import Recorded
from mz_events.names import feature_stream, run_stream
from mz_events.store import Append
from mz_projections.feature import evolve
from mz_projections.state import Between, Ended, Opening, Restoring, Setting, State, Unborn, Working, book_of

from mz_engine.config import Config, Models
from mz_engine.decide.actions import CallAgent, StartPhase
from mz_engine.decide.phase import decide
from mz_engine.decide.recovery import agent_of
from mz_engine.pins import Pins
from mz_engine.pipelines.definition import Phase
from mz_engine.runner import OWED

PROMPT = "fork.md.j2"
"""Name of the template that takes the place of the phase's own."""
GOES_ON = Opening | Setting | Between | Working | Restoring
HEARD = 3
"""Version of the new run's stream up to which the copies have heard everything: its first three events."""


class CannotFork(Exception):
    """Nothing can go on from there; says why."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be otherwise from there on; None: as it was."""

    agent: str | None = None
    model: str | None = None
    prompt: str | None = None
    """A template for the phase that goes on."""


def settled(events: Sequence[Recorded[Event]], pins: Pins, at: int) -> tuple[int, State]:
    """The last version up to `at` after which nothing is owed for a call or a commit under way, and the state there; a
    question is asked anew. Raises CannotFork where the feature had not begun, or had ended."""
    state: State = Unborn()
    found: tuple[int, State] | None = None
    for recorded in events[:at]:
        state = evolve(state, recorded)
        reserved = isinstance(recorded.event, CallReserved)  # For a call that comes with the next event.
        if isinstance(state, GOES_ON) and not reserved and not isinstance(decide(state, pins), OWED):
            found = recorded.version, state
    if found is None or isinstance(state, Ended):
        raise CannotFork("the feature had ended there" if found else "the feature had not begun there")
    return found


def phase_start(events: Sequence[Recorded[Event]], phase: str) -> int | None:
    """The version just before the phase was begun last; None: it never was."""
    starts = [one.version for one in events if isinstance(one.event, PhaseStarted) and one.event.phase == phase]
    return starts[-1] - 1 if starts else None


def changed(pins: Pins, state: State, change: Change, run: str) -> Pins:
    """The pins of the new run. It has branches of its own and opens no pull request."""
    config = replace(
        pins.config,
        branch_prefix=f"{pins.config.branch_prefix}/fork-{run}",
        pull_requests=replace(pins.config.pull_requests, strategy="none"),
        agent=_first_agent(state, change, pins.config),
    )
    if change.agent is not None:  # That one, whoever had taken over there.
        config = replace(config, failover=())
    if config.agent != pins.config.agent:
        config = replace(config, models=Models())
    if change.model is not None:
        config = replace(config, models=Models(cheap=change.model, mid=change.model, premium=change.model))
    pins = replace(pins, config=config)
    return pins if change.prompt is None else _with_prompt(pins, state, change.prompt)


def _first_agent(state: State, change: Change, config: Config) -> str:
    """The agent that models are named for: where they are to be others, the one that is at work."""
    book = book_of(state)
    if change.agent is None and change.model is not None and book is not None:
        return agent_of(book, config)
    return change.agent or config.agent


def _with_prompt(pins: Pins, state: State, text: str) -> Pins:
    """With another template for the next call's phase, whenever it is called again."""
    name, reviews = next_call(state, pins)
    phases = tuple(_with_template(phase, reviews) if phase.phase == name else phase for phase in pins.pipeline.phases)
    return replace(pins, pipeline=replace(pins.pipeline, phases=phases), templates={**pins.templates, PROMPT: text})


def _with_template(phase: Phase, reviews: bool) -> Phase:
    if reviews and phase.review is not None:
        return replace(phase, review=replace(phase.review, prompt=PROMPT))
    return replace(phase, prompt=PROMPT)


def next_call(state: State, pins: Pins) -> tuple[str, bool]:
    """The phase that goes on, and whether the next call is its review."""
    action = decide(state, pins)
    if isinstance(state, Working):
        review = pins.pipeline.find(state.phase).review
        return state.phase, review is not None and isinstance(action, CallAgent) and action.role == review.role
    if isinstance(state, Restoring):
        return state.to, False
    return action.phase if isinstance(action, StartPhase) else pins.pipeline.phases[0].phase, False


def beginning(
    started: RunStarted, forked: RunForked, item: ItemAdded, copies: Sequence[Recorded[Event]], pins: Pins
) -> tuple[Append, ...]:
    """The first appends of the new run: its own three events, then the copies in the feature's stream."""
    own, stream = run_stream(started.run), feature_stream(started.run, forked.feature)
    source = f"{feature_stream(forked.source, forked.feature)}@{forked.version}"
    item = replace(item, source=source, order=0, depends_on=())
    branch = f"{pins.config.branch_prefix}/{forked.feature}"
    return (
        Append(own, 0, (started, forked, item)),
        *(
            Append(stream, one.version - 1, (_copy(one.event, branch),), causation=one.place)
            for one in copies
            if one.version <= forked.version
        ),
    )


def _copy(event: Event, branch: str) -> Event:
    if hasattr(event, "heard"):
        event = replace(event, heard=HEARD)
    return replace(event, branch=branch) if isinstance(event, FeatureStarted) else event
