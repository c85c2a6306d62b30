"""What the log proposes to route differently. A run's end records it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache

from msgspec import DecodeError
from msgspec.structs import replace
from mz_events.catalog.memory import RouteProposal, RoutingProposed
from mz_events.catalog.run import RunStarted
from mz_events.names import RunId, run_stream
from mz_events.store import BlobMissing, Blobs, Store
from mz_projections.rewards.facts import FeatureFacts
from mz_projections.rewards.metrics import MeasuredFeature, PhasePlan, latest
from mz_projections.rewards.reward import reward_of
from mz_projections.rewards.routing import FEATURES_MIN, Choice, Subject, suggestions

from mz_engine.agents.registry import all_adapters
from mz_engine.decide.caller import planned_calls
from mz_engine.model.config import Config, Route
from mz_engine.model.pins import Pins, decode_pins
from mz_engine.model.pipeline import AgentUse, Pipeline

PinsOf = Callable[[str], Pins | None]
"""Returns the pins of a run; None if they are missing, or unreadable for this version."""


def measured_features(
    rows: Iterable[FeatureFacts], pins_of: PinsOf, count: int | None = None
) -> tuple[MeasuredFeature, ...]:
    """Return the last features, or all, with composite and plan, as their runs pinned them."""
    pinned = cache(pins_of)

    def measured(feature: MeasuredFeature) -> MeasuredFeature:
        if (pins := pinned(feature.facts.run)) is None:
            return feature
        routed = routed_now(pins.config, pins.pipeline)
        plan = {
            phase.phase: PhasePlan(tier=routed.get((phase.phase, ""), ("", ""))[1], has_inputs=bool(phase.inputs))
            for phase in pins.pipeline.phases
        }
        return replace(feature, composite=reward_of(feature.facts, pins.rewards).composite, plan=plan)

    return tuple(map(measured, latest((MeasuredFeature(facts=row) for row in rows), count)))


def routed_now(config: Config, pipeline: Pipeline) -> dict[Subject, Choice]:
    """Return who builds each phase, and its units with routes of their own."""
    routed = dict[Subject, Choice]()
    for phase, use in pipeline.calls:
        if isinstance(use, AgentUse):
            agent, tier = routed[phase.phase, ""] = planned_calls(config, pipeline, phase, use)[0]
            for field, values in config.routing.get(phase.phase, Route()).units.items():
                for value, choice in values.items():
                    routed[phase.phase, f"{field}={value}"] = choice.agent or agent, choice.tier or tier
    return routed


def proposed_routing(
    rows: Collection[FeatureFacts], log: Store, blobs: Blobs, run: str, pins: Pins
) -> RoutingProposed | None:
    """Return what all features but those of forks propose to route otherwise than this run was; None: nothing."""
    if sum(row.outcome == "delivered" for row in rows) < FEATURES_MIN:
        return None

    def pins_of(name: str) -> Pins | None:
        events = (recorded.event for recorded in log.read(run_stream(name)))
        started = next((event for event in events if isinstance(event, RunStarted)), None)
        try:
            return decode_pins(blobs.get(started.pins)) if started else None
        except (DecodeError, BlobMissing):
            return None

    agents, routed = all_adapters(pins.config.agents), routed_now(pins.config, pins.pipeline)
    proposals = tuple(
        RouteProposal(phase=item.phase, unit=item.unit, agent=item.propose.agent, tier=item.propose.tier)
        for item in suggestions(measured_features(rows, pins_of), routed, agents)
        if item.propose
    )
    return RoutingProposed(run=RunId(run), proposals=proposals) if proposals else None
