"""Adapter: what agents can do and tell, as a page from their adapters. `python -m mz_cli.agentspage FILE` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mz_engine.agents.contract import Capabilities, Tells
from mz_engine.agents.registry import built_in

HEAD = """# What agents can do, and what they tell

`python -m mz_cli.agentspage docs/what-agents-tell.md` writes this page from the adapters; the conformance suite
(`mz gate --layer 2`) compares what they claim with recordings. How each agent is set up stands in
[agents.md](agents.md).
"""

CAN = """
## What they can do

*Sessions*: a later call can go on where an earlier one ended. *Idle limit*: the agent writes while it works, so that
silence means something. *Tokens*: `exact` ones are counted by the model's provider; an `estimate` is one token for four
bytes of the prompt. *Models* are the defaults of the tiers cheap, mid and premium; `models:` in `mz.yaml` names others.
"""

TELL = """
## What their output tells

What an agent does not tell, nobody can check. Without *model*, the model that was asked for is taken for the one that
answered; without *money*, only the computed sum is there; without *each request*, a sum may have crossed the border of
a price tier unseen; without *thoughts*, reasoning is in the output tokens and cannot be told from it; without cache
*lifetimes*, all cache writes are priced at the rate for five minutes. *Since*: the first version of which this is known
to hold. *Known from*: `recorded` from what the real program wrote in our hands, `constructed` from files that others
published, `documented` from its documentation alone.
"""


def page() -> str:
    """The whole page, Markdown."""
    agents = [adapter.capabilities() for adapter in built_in().values()]
    return "".join((HEAD, CAN, _table(_can(agents)), TELL, _table(_tell(agents))))


def _can(agents: Iterable[Capabilities]) -> Iterator[Sequence[str]]:
    yield "agent", "tools", "sessions", "idle limit", "tokens", "models", "logs in by"
    for agent in agents:
        yield (
            agent.agent,
            ", ".join(agent.tools),
            _yes(agent.sessions),
            _yes(agent.streaming),
            agent.token_counting,
            ", ".join(dict.fromkeys(agent.models[tier] for tier in ("cheap", "mid", "premium"))),
            "; ".join(agent.auth),
        )


def _tell(agents: Iterable[Capabilities]) -> Iterator[Sequence[str]]:
    yield "agent", "since", "model", "each request", "money", "thoughts", "session", "cache writes", "known from"
    for agent in agents:
        for tells in agent.tells:
            yield agent.agent, *_told(tells)


def _told(tells: Tells) -> Iterator[str]:
    yield tells.since or "the first"
    for known in (tells.model, tells.requests, tells.money, tells.thoughts, tells.session):
        yield _yes(known)
    yield tells.cache_writes
    yield tells.evidence


def _yes(known: bool) -> str:
    return "yes" if known else "no"


def _table(rows: Iterable[Sequence[str]]) -> str:
    head, *body = rows
    lines = ["", _row(head), _row(["---"] * len(head)), *map(_row, body), ""]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
