"""Which agent and tier do a phase: `routing` of mz.yaml, before what was learned, `routing.yaml`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from mz_engine.decoding.structs import KeyPath, format_key_path, similar_name_hint
from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import YamlDocument, decode_document, parse_yaml
from mz_engine.errors.diagnostics import Diagnostic
from mz_engine.model.config import Route, RouteChoice, Routing
from mz_engine.model.pipeline import Pipeline

ROUTING_FILE = "routing.yaml"
"""Beside `mz.yaml`: committed, read by every run; `mz routing apply` writes it."""


RoutingSource = tuple[YamlDocument, Routing]
"""A file, and its routing."""


class RoutingFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    routing: dict[str, Route] = {}


def read_routing(root: Path) -> RoutingSource:
    """Read what was learned, and its document for locations; nothing without the file. Raises MzError (MZ20nn) with the
    location of the error."""
    text = read_text(root / ROUTING_FILE, ROUTING_FILE) if (root / ROUTING_FILE).is_file() else ""
    document = parse_yaml(text, ROUTING_FILE)
    return document, decode_document(document, RoutingFile).routing


def merge_routing(own: Routing, learned: Routing) -> Routing:
    """Return both, of which the `own` one speaks first: what it says of a phase holds for all of its units."""
    return {phase: _merge(own.get(phase, Route()), learned.get(phase, Route())) for phase in {**own, **learned}}


def _merge(own: Route, learned: Route) -> Route:
    units = {field: dict(values) for field, values in own.units.items()}
    for field, values in learned.units.items():
        for value, choice in values.items():
            first = units.setdefault(field, {}).get(value, RouteChoice())
            agent, tier = first.agent or own.agent or choice.agent, first.tier or own.tier or choice.tier
            units[field][value] = RouteChoice(agent=agent, tier=tier)
    phase, review = (
        RouteChoice(agent=first.agent or second.agent, tier=first.tier or second.tier)
        for first, second in ((own, learned), (own.agent_review, learned.agent_review))
    )
    return Route(agent=phase.agent, tier=phase.tier, units=units, agent_review=review)


def with_choice(routing: Routing, phase: str, unit: str, choice: RouteChoice) -> Routing:
    """Return the routing with this choice for a phase, or for its units `FIELD=VALUE`."""
    route, (field, _, value) = routing.get(phase, Route()), unit.partition("=")
    if not unit:
        return {**routing, phase: replace(route, agent=choice.agent, tier=choice.tier)}
    return {
        **routing,
        phase: replace(route, units={**route.units, field: {**route.units.get(field, {}), value: choice}}),
    }


def without_agents(routing: Routing) -> Routing:
    """Return the tiers alone, as where a person chose the agent of all phases."""
    return {
        phase: replace(
            route,
            agent=None,
            units={
                field: {value: replace(choice, agent=None) for value, choice in values.items()}
                for field, values in route.units.items()
            },
            agent_review=replace(route.agent_review, agent=None),
        )
        for phase, route in routing.items()
    }


def routing_problems(
    sources: Iterable[RoutingSource], pipeline: Pipeline, agents: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield an error (MZ2013) for each phase without an agent, or without a reviewer who is routed, and each unknown
    agent that a file of routing names."""
    phases = [phase.phase for phase in pipeline.phases if phase.agent]
    reviewed = [phase.phase for phase in pipeline.phases if phase.agent_review]
    for document, routing in sources:
        unknown: list[tuple[KeyPath, str, str, list[str]]] = []
        unknown += [(("routing", name), "phase with an agent", name, phases) for name in routing if name not in phases]
        unknown += [
            (("routing", name, "agent_review"), "reviewer of", name, reviewed)
            for name, route in routing.items()
            if name in phases and name not in reviewed and route.agent_review != RouteChoice()
        ]
        for name, route in routing.items():
            choices: dict[KeyPath, RouteChoice] = {("routing", name): route}
            choices["routing", name, "agent_review"] = route.agent_review
            for field, values in route.units.items():
                choices |= {("routing", name, "units", field, value): choice for value, choice in values.items()}
            named = [(at, choice.agent) for at, choice in choices.items() if choice.agent]
            unknown += [((*at, "agent"), "agent", agent, sorted(agents)) for at, agent in named if agent not in agents]
        for at, kind, name, candidates in unknown:
            others = f"write one of: {', '.join(candidates)}" if candidates else ""
            is_key = at[-1] in (name, "agent_review")
            location = document.key_locations.get(at) if is_key else document.location(*at)
            yield Diagnostic(
                code="MZ2013",
                message=f"`{format_key_path(at)}`: there is no {kind} `{name[:80]}`",
                hint=similar_name_hint(name, candidates) or others,
                location=location,
            )
