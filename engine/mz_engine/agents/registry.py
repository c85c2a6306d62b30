"""Adapter: every agent that `mz` can call, by name, behind the one door that the engine knows (port `Agents`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Protocol

import msgspec

from mz_engine.agents.anthropic_api import AnthropicApi
from mz_engine.agents.classify import Patterns, parse_patterns
from mz_engine.agents.claude_code import ClaudeCode
from mz_engine.agents.codex import Codex
from mz_engine.agents.contract import Adapter, AuthCheck, Invocation
from mz_engine.agents.gemini import Gemini
from mz_engine.agents.generic import Described
from mz_engine.agents.generic_form import AgentDescription
from mz_engine.ports import CallResult, CallSpec, Reading
from mz_engine.yamlfile import convert

INSTALL = {
    "aider": "install aider (pip install aider-chat)",
    "kiro": "install Kiro's command line (kiro.dev says how)",
}
"""By agent of a description that comes with `mz`."""


COUNT_PATIENCE_MS = 10_000
"""A count that failed after so long would keep every later call waiting as well: a network may swallow packets."""


class UnknownAgent(Exception):
    """No adapter has this name; says which there are."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no agent {name!r}; known: {', '.join(known)}")
        self.name, self.known = name, known


class Processes(Protocol):
    """Where calls run; see `mz_engine.agents.process.AgentProcesses`."""

    def spawn(self, spec: CallSpec, invocation: Invocation) -> CallResult: ...

    def ask(self, spec: CallSpec, invocation: Invocation) -> CallResult: ...

    def salvage(self, key: str) -> CallResult | None: ...


@cache
def load_patterns() -> Patterns:
    """The patterns that come with `mz`."""
    return parse_patterns((files("mz_engine.agents") / "problems.toml").read_text("utf-8"))


def built_in() -> dict[str, Adapter]:
    """All adapters, by name. A new agent is one more line here."""
    patterns = load_patterns()
    known: tuple[Adapter, ...] = (
        ClaudeCode(patterns),
        Codex(patterns),
        Gemini(patterns),
        AnthropicApi(patterns),
    )
    known += tuple(Described(name, each, patterns, INSTALL[name]) for name, each in descriptions().items())
    return {adapter.name: adapter for adapter in known}


@cache
def descriptions() -> Mapping[str, AgentDescription]:
    """Those that come with `mz`, by agent: programs whose output a description alone can read."""
    folder = files("mz_engine.agents") / "descriptions"
    texts = {file.name.removesuffix(".yaml"): file.read_text("utf-8") for file in folder.iterdir()}
    return {name: convert(text, f"{name}.yaml", AgentDescription) for name, text in sorted(texts.items())}


def adapters(described: Mapping[str, AgentDescription]) -> dict[str, Adapter]:
    """All of them, and those that a project describes in its `mz.yaml`."""
    own = {name: Described(name, each, load_patterns()) for name, each in described.items()}
    return {**own, **built_in()}


class AgentDoor:
    """Implements `mz_engine.ports.Agents`. Thread-safe. Every method that names an agent may raise UnknownAgent.

    `environment` is the caller's: adapters take from it, by name, what their agent needs.
    """

    def __init__(
        self, processes: Processes, environment: Mapping[str, str], adapters: Mapping[str, Adapter] | None = None
    ) -> None:
        self._processes, self._environment = processes, environment
        self._adapters = built_in() if adapters is None else adapters
        self._versions: dict[str, str] = {}
        self._silent: set[str] = set()
        """Agents whose counting took too long, and came to nothing."""

    def check(self, agent: str) -> AuthCheck:
        """Whether the agent can be called here. Starts its CLI to ask for the version, and no model."""
        found = self.adapter(agent).check_auth(self._environment)
        self._versions[agent] = found.version
        return found

    def call(self, spec: CallSpec) -> CallResult:
        """As the port says; the version is what the agent itself said, else what its command says when asked."""
        adapter = self.adapter(spec.agent)
        spec = msgspec.structs.replace(spec, version=self._versions.get(spec.agent, ""))
        result = adapter.run_phase(spec, self._environment, self._processes.spawn)
        version = adapter.parse_output(result).version or self._version(spec.agent)
        return msgspec.structs.replace(result, version=version, model=spec.model)

    def _version(self, agent: str) -> str:
        if agent not in self._versions:
            self.check(agent)
        return self._versions[agent]

    def salvage(self, key: str) -> CallResult | None:
        return self._processes.salvage(key)

    def read(self, agent: str, result: CallResult) -> Reading:
        return self.adapter(agent).parse_output(result)

    def estimate_tokens(self, agent: str, prompt: str) -> int:
        return self.adapter(agent).estimate_tokens(prompt)

    def count_tokens(self, spec: CallSpec) -> int | None:
        """As the port says. After one count that failed by waiting the agent is not asked again by this process."""
        if spec.agent in self._silent:
            return None
        waited_ms = 0

        def ask(asked: CallSpec, invocation: Invocation) -> CallResult:
            nonlocal waited_ms
            result = self._processes.ask(asked, invocation)
            waited_ms += result.duration_ms
            return result

        counted = self.adapter(spec.agent).count_tokens(spec, self._environment, ask)
        if counted is None and waited_ms >= COUNT_PATIENCE_MS:
            self._silent.add(spec.agent)
        return counted

    def format_prompt(self, agent: str, prompt: str) -> str:
        return self.adapter(agent).format_prompt(prompt)

    def model(self, agent: str, tier: str) -> str:
        """The adapter's default for a tier; raises KeyError for a tier that no agent has."""
        return self.adapter(agent).capabilities().models[tier]

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        """By the capability; whether a session is there is known once the agent is asked for it."""
        del session, key
        return self.adapter(agent).capabilities().sessions

    def adapter(self, agent: str) -> Adapter:
        """The one of this name."""
        try:
            return self._adapters[agent]
        except KeyError:
            raise UnknownAgent(agent, tuple(sorted(self._adapters))) from None
