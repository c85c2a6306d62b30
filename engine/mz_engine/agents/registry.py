"""Registry of all agents by name; implements the engine's port `Agents`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pkgutil import resolve_name
from typing import Protocol

import msgspec
from mz_events.catalog.call import Usage

from mz_engine.agents.catalog import AGENTS
from mz_engine.agents.classify import ProblemPatterns, parse_patterns
from mz_engine.agents.contract import Adapter, AuthCheck, Invocation
from mz_engine.agents.described.adapter import DescribedAgent
from mz_engine.decoding.yaml import decode_yaml
from mz_engine.model.agent_description import AgentDescription
from mz_engine.ports import CallResult, CallSpec
from mz_engine.processes.container import Container

COUNT_WAIT_MAX_MS = 10_000
"""After a count that failed this slowly, counting stops: each later call would wait as long (packets may get lost)."""
HEAD_SIZES = (1 << 12, 1 << 16)
"""Bytes of an output that are searched for the version: agents name it at the beginning."""


class UnknownAgent(Exception):
    """No adapter has this name."""

    def __init__(self, name: str, known_agents: tuple[str, ...]) -> None:
        super().__init__(f"unknown agent {name!r}; known agents: {', '.join(known_agents)}")


class Processes(Protocol):
    """Runs the processes of calls; see `mz_engine.agents.process.AgentProcesses`."""

    def spawn(self, spec: CallSpec, invocation: Invocation) -> CallResult: ...

    def query(self, spec: CallSpec, invocation: Invocation) -> CallResult: ...

    def salvage(self, key: str) -> CallResult | None: ...


@cache
def load_patterns() -> ProblemPatterns:
    """Return the bundled patterns of problems."""
    return parse_patterns((files("mz_engine.agents") / "problems.toml").read_text("utf-8"))


def built_in_adapters() -> dict[str, Adapter]:
    """Return the adapters of all built-in agents, by name."""
    patterns, descriptions = load_patterns(), bundled_descriptions()
    adapters: dict[str, Adapter] = {}
    for agent in AGENTS.values():
        if agent.adapter:
            adapters[agent.name] = resolve_name(f"{agent.package}.{agent.adapter}")(patterns)
        elif agent.name in descriptions:
            adapters[agent.name] = DescribedAgent(agent.name, descriptions[agent.name], patterns, agent.install)
    return adapters


@cache
def bundled_descriptions() -> Mapping[str, AgentDescription]:
    """Return the bundled descriptions, by agent: programs whose output can be read by description alone."""
    texts = {
        agent.name: (files(agent.package) / "description.yaml").read_text("utf-8")
        for agent in AGENTS.values()
        if agent.described
    }
    return {name: decode_yaml(text, f"{name}.yaml", AgentDescription) for name, text in texts.items()}


def all_adapters(described: Mapping[str, AgentDescription], container: Container | None = None) -> dict[str, Adapter]:
    """Return the built-in adapters and those that a project describes in `mz.yaml`, for calls in the container."""
    own = {name: DescribedAgent(name, description, load_patterns()) for name, description in described.items()}
    adapters = {**own, **built_in_adapters()}
    for adapter in adapters.values():
        adapter.container = container
    return adapters


class AgentRegistry:
    """Implements `mz_engine.ports.Agents`. Thread-safe. Every method that names an agent may raise UnknownAgent.

    Adapters take from `environment`, by name, the variables that their agent needs.
    """

    price: Callable[[tuple[Usage, ...]], int | None] | None = None
    """Returns nano-dollars, for budgets of calls."""

    def __init__(
        self, processes: Processes, environment: Mapping[str, str], adapters: Mapping[str, Adapter] | None = None
    ) -> None:
        self._processes, self._environment = processes, environment
        self._adapters = built_in_adapters() if adapters is None else adapters
        self._versions: dict[str, str] = {}
        self._uncounted_agents: set[str] = set()
        """Agents whose token count timed out; they are not asked again."""

    def check_auth(self, agent: str) -> AuthCheck:
        """Check that the agent can be called here. Runs its CLI for the version, but calls no model."""
        result = self.adapter(agent).check_auth(self._environment)
        self._versions[agent] = result.version
        return result

    def call(self, spec: CallSpec) -> CallResult:
        """Make the call; the result's version is from the agent's output, else from its version command."""
        adapter = self.adapter(spec.agent)
        spec = msgspec.structs.replace(spec, version=self._versions.get(spec.agent, ""))
        own = adapter.own_paths(self._environment)

        def is_over_budget(result: CallResult) -> bool:
            """Return True if a call that has not ended by itself reports more than its budget."""
            before = spec.session_usage_before
            reply = adapter.parse_output(msgspec.structs.replace(result, model=spec.model, session_usage_before=before))
            tokens = sum(usage.input + usage.output for usage in reply.usage)
            nanousd = self.price(reply.usage) if self.price and reply.usage and spec.nanousd_max is not None else None
            is_over = tokens > (spec.tokens_max or tokens) or (nanousd or 0) > (spec.nanousd_max or 0)
            return is_over and reply.ending == "no-terminal"

        def spawn(spec: CallSpec, invocation: Invocation) -> CallResult:
            check = None if spec.nanousd_max is None and spec.tokens_max is None else is_over_budget
            invocation = msgspec.structs.replace(invocation, own=own, is_over_budget=check)
            return self._processes.spawn(spec, invocation)

        result = adapter.run_call(spec, self._environment, spawn)
        version = _reported_version(adapter, result) or self._version(spec.agent)
        return msgspec.structs.replace(result, version=version, model=spec.model)

    def _version(self, agent: str) -> str:
        if agent not in self._versions:
            self.check_auth(agent)
        return self._versions[agent]

    def salvage(self, key: str) -> CallResult | None:
        return self._processes.salvage(key)

    def count_tokens(self, spec: CallSpec) -> int | None:
        """Count the tokens of a call's first request; None after a count of this agent timed out in this process."""
        if spec.agent in self._uncounted_agents:
            return None
        waited_ms, adapter = 0, self.adapter(spec.agent)
        own = adapter.own_paths(self._environment)

        def ask(query: CallSpec, invocation: Invocation) -> CallResult:
            nonlocal waited_ms
            result = self._processes.query(query, msgspec.structs.replace(invocation, own=own))
            waited_ms += result.duration_ms
            return result

        tokens = adapter.count_tokens(spec, self._environment, ask)
        if tokens is None and waited_ms >= COUNT_WAIT_MAX_MS:
            self._uncounted_agents.add(spec.agent)
        return tokens

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        """Return True if the agent supports sessions; a missing session shows only when the call is made."""
        del session, key
        return self.adapter(agent).capabilities().sessions

    def adapter(self, agent: str) -> Adapter:
        try:
            return self._adapters[agent]
        except KeyError:
            raise UnknownAgent(agent, tuple(sorted(self._adapters))) from None


def _reported_version(adapter: Adapter, result: CallResult) -> str:
    """Return the version in the head of an output; the whole is parsed once, later."""
    for size in HEAD_SIZES:
        head = msgspec.structs.replace(result, stdout=result.stdout[:size], stderr=result.stderr[:size])
        version = adapter.parse_output(head).version
        if version or len(result.stdout) <= size:
            return version
    return ""
