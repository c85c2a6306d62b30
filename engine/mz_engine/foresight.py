"""Adapter: what can be known before anything is paid, and is no error: tools of phases that an agent does not have, and
models without a price where money is limited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import adapters
from mz_engine.config import Config
from mz_engine.effects.talk import configured_model
from mz_engine.errors import Diagnostic
from mz_engine.pipelines.definition import Pipeline, Tool

SHOWN = "read"
"""An agent that is told of no such tool may still read: prompts hold what it needs, or name it."""


class Asked(NamedTuple):
    """One call that a phase makes, of its builder or its reviewer."""

    phase: str
    tier: str
    tools: tuple[Tool, ...]


def lacking_tools(pipeline: Pipeline, config: Config) -> tuple[Diagnostic, ...]:
    """MZ3019, one warning for each agent and tool. An agent whose description says nothing of tools is believed to have
    all of them."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for name, adapter in _agents(config):
        has = adapter.capabilities().tools
        for call in _calls(pipeline):
            for tool in call.tools if has else ():
                if tool != SHOWN and tool not in has:
                    found.setdefault((name, tool), {})[call.phase] = None
    return tuple(_lacks(name, tool, tuple(phases)) for (name, tool), phases in found.items())


def _lacks(agent: str, tool: str, phases: tuple[str, ...]) -> Diagnostic:
    named = ", ".join(f"`{phase}`" for phase in phases)
    asks = f"the phase {named} asks" if len(phases) == 1 else f"the phases {named} ask"
    said = f"{asks} for the tool `{tool}`, which the agent {agent} does not have"
    hint = (
        f"the call is made without it; choose another agent, or take `{tool}` from `tools:` there. What an agent of "
        "your own has, `allowed:` and `denied:` under `agents:` say"
    )
    return Diagnostic(code="MZ3019", message=said, hint=hint, severity="warning")


def unpriced_models(pipeline: Pipeline, config: Config, priced: Callable[[str], bool]) -> tuple[Diagnostic, ...]:
    """MZ2016 where a budget is set and models that the run may ask have no price. `priced`: whether a model has one; it
    is asked only where there is a budget."""
    if config.budget.run_nanousd is None and config.budget.feature_nanousd is None:
        return ()
    models = dict.fromkeys(
        configured_model(config, name, call.tier) or adapter.capabilities().models[call.tier]
        for name, adapter in _agents(config)
        for call in _calls(pipeline)
    )
    unpriced = [model for model in models if not priced(model)]
    if not unpriced:
        return ()
    models_have = "the model has" if len(unpriced) == 1 else "these models have"
    said = f"a budget is set, and {models_have} no price: {', '.join(unpriced)}; no money is reserved for calls"
    hint = "write prices under `prices:` in mz.yaml; without them only what the agent itself reports counts"
    return (Diagnostic(code="MZ2016", message=said, hint=hint, severity="warning"),)


def _agents(config: Config) -> Iterator[tuple[str, Adapter]]:
    """Those that a run may call; one that nobody knows is told of elsewhere."""
    known = adapters(config.agents)
    for name in dict.fromkeys((config.agent, *config.failover)):
        if name in known:
            yield name, known[name]


def _calls(pipeline: Pipeline) -> Iterator[Asked]:
    for phase in pipeline.phases:
        for use in (phase.agent, phase.review):
            if use is not None:
                yield Asked(phase.phase, use.tier, use.tools)
