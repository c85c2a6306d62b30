"""The page of what agents can do and tell is the one that the adapters make."""

from __future__ import annotations

from mz_engine.agents.registry import built_in_adapters

from tests.support.tree import ROOT
from tools.docs.agents import markdown_page


def test_the_page_is_as_the_adapters_say() -> None:
    written = (ROOT / "docs" / "what-agents-tell.md").read_text()
    assert written == markdown_page(), "write it anew: python -m tools.docs.agents docs/what-agents-tell.md"


def test_every_agent_and_version_has_its_row() -> None:
    rows = [line for line in markdown_page().splitlines() if line.startswith("| ")]
    agents = [adapter.capabilities() for adapter in built_in_adapters().values()]
    assert len(rows) == 4 + sum(1 + len(agent.reported_fields) for agent in agents)
