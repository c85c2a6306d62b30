"""Warnings before a run costs money: tools that an agent does not have, and models without a price under a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import all_adapters
from mz_engine.config import Config
from mz_engine.effects.talk import configured_model
from mz_engine.errors import Diagnostic
from mz_engine.pipelines.definition import Pipeline, Tool

UNREPORTED_TOOL = "read"
"""A tool that is never reported as missing: prompts hold or name what the agent needs to read."""


class PhaseCall(NamedTuple):
    """One call of a phase, by its builder or its reviewer."""

    phase: str
    tier: str
    tools: tuple[Tool, ...]


def missing_tools(pipeline: Pipeline, config: Config) -> tuple[Diagnostic, ...]:
    """Return a warning (MZ3019) for each agent and tool. An agent that describes no tools is assumed to have all."""
    phases_by_tool: dict[tuple[str, str], dict[str, None]] = {}
    for name, adapter in _agents(config):
        agent_tools = adapter.capabilities().tools
        for call in _calls(pipeline):
            for tool in call.tools if agent_tools else ():
                if tool != UNREPORTED_TOOL and tool not in agent_tools:
                    phases_by_tool.setdefault((name, tool), {})[call.phase] = None
    return tuple(_missing_tool_warning(name, tool, tuple(phases)) for (name, tool), phases in phases_by_tool.items())


def _missing_tool_warning(agent: str, tool: str, phases: tuple[str, ...]) -> Diagnostic:
    names = ", ".join(f"`{phase}`" for phase in phases)
    users = f"the phase {names} asks" if len(phases) == 1 else f"the phases {names} ask"
    message = f"{users} for the tool `{tool}`, which the agent {agent} does not have"
    hint = (
        f"the call is made without it; choose another agent, or remove `{tool}` from `tools:` there. For an agent of "
        "your own, list its tools in `allowed:` and `denied:` under `agents:`"
    )
    return Diagnostic(code="MZ3019", message=message, hint=hint, severity="warning")


def unpriced_models(pipeline: Pipeline, config: Config, has_price: Callable[[str], bool]) -> tuple[Diagnostic, ...]:
    """Return a warning (MZ2016) if a budget is set and models of the run have no price.

    `priced` is called only if there is a budget.
    """
    if config.budget.run_nanousd is None and config.budget.feature_nanousd is None:
        return ()
    models = dict.fromkeys(
        configured_model(config, name, call.tier) or adapter.capabilities().models[call.tier]
        for name, adapter in _agents(config)
        for call in _calls(pipeline)
    )
    unpriced = [model for model in models if not has_price(model)]
    if not unpriced:
        return ()
    models_have = "the model has" if len(unpriced) == 1 else "these models have"
    message = f"a budget is set, but {models_have} no price: {', '.join(unpriced)}; no money is reserved for calls"
    hint = "add prices under `prices:` in mz.yaml; without them only costs that the agent reports count"
    return (Diagnostic(code="MZ2016", message=message, hint=hint, severity="warning"),)


def _agents(config: Config) -> Iterator[tuple[str, Adapter]]:
    """Return the agents that a run may call; unknown names are reported elsewhere."""
    adapters_by_name = all_adapters(config.agents)
    for name in dict.fromkeys((config.agent, *config.failover)):
        if name in adapters_by_name:
            yield name, adapters_by_name[name]


def _calls(pipeline: Pipeline) -> Iterator[PhaseCall]:
    for phase in pipeline.phases:
        for use in (phase.agent, phase.review):
            if use is not None:
                yield PhaseCall(phase.phase, use.tier, use.tools)
