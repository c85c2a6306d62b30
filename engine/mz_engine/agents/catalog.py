"""The list of all agents. A new agent is a folder that describes itself, and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from mz_engine.agents.aider.logs import AGENT as AIDER
from mz_engine.agents.anthropic_api.stream import AGENT as ANTHROPIC
from mz_engine.agents.claude_code.stream import AGENT as CLAUDE_CODE
from mz_engine.agents.codex.stream import AGENT as CODEX
from mz_engine.agents.gemini.stream import AGENT as GEMINI
from mz_engine.agents.kiro.agent import AGENT as KIRO
from mz_engine.agents.opencode.stream import AGENT as OPENCODE
from mz_engine.agents.package import AgentPackage
from mz_engine.agents.qwen.stream import AGENT as QWEN

AGENTS: Mapping[str, AgentPackage] = {
    agent.name: agent for agent in (CLAUDE_CODE, CODEX, GEMINI, ANTHROPIC, AIDER, KIRO, OPENCODE, QWEN)
}
"""By name."""
UNKNOWN_AGENT = AgentPackage(name="")
"""For an agent that only `mz.yaml` describes."""


def agent_package(agent: str) -> AgentPackage:
    return AGENTS.get(agent, UNKNOWN_AGENT)
