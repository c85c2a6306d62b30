"""Commands `mz routing show`, `suggest` and `apply`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from mz_engine.agents.registry import all_adapters
from mz_engine.decide.caller import route_of
from mz_engine.decoding.yaml import format_yaml
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.files import write_project_file
from mz_engine.model.config import Config, Route, RouteChoice
from mz_engine.model.pipeline import AgentReview, AgentUse, Phase, Pipeline, Tier
from mz_engine.run.plan import load_sources
from mz_engine.run.proposals import routed_now
from mz_engine.run.routing import RoutingFile, with_choice
from mz_engine.run.settings import LoadedConfig, load_config
from mz_events.catalog.memory import RoutingApplied
from mz_events.catalog.validation import Unit
from mz_events.names import BUILDER, PROJECT_STREAM
from mz_projections.rewards.routing import Suggestion, suggestions

from mz_cli.app.context import open_log
from mz_cli.app.help import command_family, format_options, message_option
from mz_cli.assess.metrics import opened_features
from mz_cli.people.inbox import store_text, store_user_name
from mz_cli.project.pipelines import project_root
from mz_cli.terminal.json import Shape
from mz_cli.terminal.table import Table, columns, print_output
from mz_cli.terminal.text import rounded_usd

PIPELINE, SETTINGS = "pipeline", "settings"


class RouteShown(Shape, frozen=True, kw_only=True):
    """Who does a phase, or its units with a field of this value."""

    phase: str
    role: str
    """`builder`, or that of the phase's reviewer."""
    unit: str | None
    """`FIELD=VALUE`; null: all others."""
    agent: str
    tier: str
    """From which conditions raise it."""
    agent_from: str
    """mz.yaml or routing.yaml (their `routing`), or settings (`agent`)."""
    tier_from: str
    """mz.yaml, routing.yaml or pipeline."""


class RoutingReport(Shape, frozen=True, kw_only=True):
    """`mz routing show --json`."""

    routes: tuple[RouteShown, ...]
    """Of phases with an agent, in their order."""


class RoutingSuggestions(Shape, frozen=True, kw_only=True):
    """`mz routing suggest --json`."""

    suggestions: tuple[Suggestion, ...]


class RoutingAppliedShape(Shape, frozen=True, kw_only=True):
    """`mz routing apply --json`."""

    file: str
    phases: tuple[str, ...]
    """What changed, as `PHASE` or `PHASE FIELD=VALUE`."""
    shadowed: tuple[str, ...]
    """Phases for which mz.yaml comes before the file."""
    event_ref: str


@command_family(
    "routing",
    examples=(("mz routing show", "which agent and tier do each phase"),),
    next_command="`mz config show` shows all settings.",
)
def routing() -> None:
    """Show which agent and tier do each phase, and why.

    `routing` of mz.yaml comes before routing.yaml, and this before the pipeline.
    """


@routing.command(
    "show",
    examples=(("mz routing show --json | jq '.routes[] | select(.agent_from == \"mz.yaml\")'", "what mz.yaml routes"),),
    next_command="`mz routing suggest` compares what was tried.",
)
@format_options("Print one object with the schema mz.routing-show/1.")
def show(as_json: bool) -> None:
    """Show agent and tier of each phase, and where they come from."""
    report = RoutingReport(routes=tuple(routes(*_loaded(Path.cwd()))))
    rows = [
        (route.phase, route.role, route.unit or "-", route.agent, route.tier, route.agent_from, route.tier_from)
        for route in report.routes
    ]
    heads = columns("*phase", "*role", "*unit", "agent", "tier", "agent from", "tier from")
    print_output(as_json, "routing-show", report, Table(columns=heads, rows=rows))


@routing.command(
    "suggest",
    examples=(("mz routing suggest", "what was tried, and what to route differently"),),
    next_command="`mz routing apply -m TEXT` writes what is proposed into routing.yaml.",
)
@format_options("Print one object with the schema mz.routing-suggest/1.")
def suggest(as_json: bool) -> None:
    """Compare the agents and tiers that worked on each phase and kind of unit.

    The score is 0.6 x the lower end of an 80 % Wilson interval of the share of units (or phases) accepted and never
    sent back, plus 0.4 x (1 - rank of the mean cost). With fewer than 4 there are only counts. From 50 delivered
    features on, the best is proposed if it is better by 0.1 than what is routed now.
    """
    pipeline, loaded = _loaded(Path.cwd())
    report = RoutingSuggestions(suggestions=_suggested(pipeline, loaded.config))
    rows = [
        (item.phase, item.unit or "-", candidate.agent, candidate.tier, f"{candidate.accepted} of {candidate.cells}",
         rounded_usd(candidate.mean_nanousd) or "-", "-" if candidate.score is None else f"{candidate.score:.2f}",
         "proposed" if candidate == item.propose else "")
        for item in report.suggestions
        for candidate in item.candidates
    ]  # fmt: skip
    heads = columns("*phase", "*unit", "agent", "tier", ">accepted", ">mean cost", ">score", "proposal")
    print_output(as_json, "routing-suggest", report, Table(columns=heads, rows=rows, empty="No agent has worked yet."))


def _suggested(pipeline: Pipeline, config: Config) -> tuple[Suggestion, ...]:
    with opened_features(None) as features:
        return suggestions(features, routed_now(config, pipeline), all_adapters(config.agents))


@routing.command(
    "apply",
    examples=(('mz routing apply code -m "codex needs fewer attempts"', "only what is proposed for one phase"),),
    next_command="commit routing.yaml; the next run reads it.",
)
@click.argument("phase", nargs=-1)
@message_option("reason", "Why; the log keeps it.", required=True)
@format_options("Print one object with the schema mz.routing-apply/1.")
def apply(phase: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Write what `mz routing suggest` proposes into routing.yaml.

    PHASE chooses proposals by phase (default: all). The log has who did it, why, and the new file; comments in
    routing.yaml are not kept. mz.yaml comes before it: a phase that `routing` there names does not change.
    """
    pipeline, loaded = _loaded(Path.cwd())
    own, (document, learned) = loaded.routing
    proposals = [
        item for item in _suggested(pipeline, loaded.config) if item.propose and item.phase in (phase or (item.phase,))
    ]
    if not proposals:
        raise MzError("MZ5017", "nothing is proposed to route differently", hint="`mz routing suggest` says why")
    names = tuple(f"{item.phase} {item.unit}".rstrip() for item in proposals)
    for item in proposals:
        assert item.propose is not None
        choice = RouteChoice(agent=item.propose.agent, tier=msgspec.convert(item.propose.tier, Tier))
        learned = with_choice(learned, item.phase, item.unit, choice)
    text = format_yaml(msgspec.to_builtins(RoutingFile(routing=learned)))
    with open_log() as log:
        stored, actor = store_text(log, reason), store_user_name(log)
        event = RoutingApplied(phases=names, routing=log.blobs.put(text.encode()), actor=actor, reason=stored)
        (recorded,) = log.append(event, PROJECT_STREAM)
        write_project_file(log.root, document.name, text, "apply it again")
    shadowed = tuple(item.phase for item in proposals if item.phase in own[1])
    applied = RoutingAppliedShape(file=document.name, phases=names, shadowed=shadowed, event_ref=recorded.event_ref)
    notes = [f"mz.yaml comes before it for: {', '.join(shadowed)}"] if shadowed else []
    print_output(as_json, "routing-apply", applied, [f"{document.name}: {', '.join(names)}"], notes)


def _loaded(folder: Path) -> tuple[Pipeline, LoadedConfig]:
    root, environment = project_root(folder), dict(os.environ)
    loaded = load_config(root, environment, {})
    return load_sources(root, environment, loaded, needs_backlog=False).pipeline, loaded


def routes(pipeline: Pipeline, loaded: LoadedConfig) -> Iterator[RouteShown]:
    """Yield the routes of each call, those of units after that of their phase."""
    for phase, use in pipeline.calls:
        yield _shown(phase, use, None, loaded)
        route = loaded.config.routing.get(phase.phase, Route())
        for field, values in route.units.items() if isinstance(use, AgentUse) else ():
            for value in values:
                yield _shown(phase, use, (field, value), loaded)


def _shown(phase: Phase, use: AgentUse | AgentReview, unit: tuple[str, str] | None, loaded: LoadedConfig) -> RouteShown:
    config, role = loaded.config, BUILDER if isinstance(use, AgentUse) else use.role
    of_unit = Unit(id="", fields=dict([unit])) if unit else None
    choice = route_of(config, phase.phase, role, of_unit)
    return RouteShown(
        phase=phase.phase,
        role=role,
        unit="=".join(unit) if unit else None,
        agent=choice.agent or config.agent,
        tier=choice.tier or use.tier,
        agent_from=_origin(phase.phase, role, of_unit, "agent", loaded) or SETTINGS,
        tier_from=_origin(phase.phase, role, of_unit, "tier", loaded) or PIPELINE,
    )


def _origin(phase: str, role: str, unit: Unit | None, key: str, loaded: LoadedConfig) -> str:
    """Return the first file that says the agent or tier; empty if none does."""
    for document, table in loaded.routing:
        if getattr(route_of(Config(routing=table), phase, role, unit), key):
            return document.name
    return ""
