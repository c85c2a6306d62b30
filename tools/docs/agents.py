"""Documentation page of the agents' capabilities and reported fields. `python -m tools.docs.agents FILE` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from mz_engine.agents.contract import Capabilities, ReportedFields
from mz_engine.agents.registry import built_in_adapters

HEAD = """# What agents can do, and what they report

`python -m tools.docs.agents docs/what-agents-tell.md` writes this page from the adapters; the conformance suite
(`mz doctor --self-test`) compares these claims with recordings. [agents.md](agents.md) describes the set-up of each
agent.
"""

CAPABILITIES_SECTION = """
## Capabilities

*Sessions*: a later call can continue an earlier one. *Idle limit*: the agent writes output while it works, so silence
means that it hangs. *Tokens*: `exact` counts come from the model's provider; an `estimate` is one token for four bytes
of the prompt. *Models* are the defaults of the tiers cheap, mid and premium; `models:` in `mz.yaml` names others.
"""

REPORTED_FIELDS_SECTION = """
## Reported fields

mz cannot check a field that an agent does not report. Without *model*, the requested model counts as the one that
replied; without *money*, only the computed cost is known; without *each request*, a sum may have crossed the limit of
a price step unnoticed; without *thoughts*, reasoning tokens are part of the output tokens; without cache *lifetimes*,
all cache writes are priced at the rate for five minutes. *Since*: the first version for which this is confirmed.
*Known from*: `recorded` from output of the real program, `constructed` from published files, `documented` from its
documentation alone.
"""


def markdown_page() -> str:
    """Return the page as Markdown."""
    agents = {name: adapter.capabilities() for name, adapter in built_in_adapters().items()}
    return "".join(
        (
            HEAD,
            CAPABILITIES_SECTION,
            _table(_capability_rows(agents)),
            REPORTED_FIELDS_SECTION,
            _table(_reported_field_rows(agents)),
        )
    )


def _capability_rows(agents: Mapping[str, Capabilities]) -> Iterator[Sequence[str]]:
    yield "agent", "tools", "sessions", "idle limit", "tokens", "models", "logs in by"
    for name, agent in agents.items():
        yield (
            name,
            ", ".join(agent.tools),
            _yes_or_no(agent.sessions),
            _yes_or_no(agent.streaming),
            agent.token_counting,
            ", ".join(dict.fromkeys(agent.models[tier] for tier in ("cheap", "mid", "premium"))),
            "; ".join(agent.auth),
        )


def _reported_field_rows(agents: Mapping[str, Capabilities]) -> Iterator[Sequence[str]]:
    yield "agent", "since", "model", "each request", "money", "thoughts", "session", "cache writes", "known from"
    for name, agent in agents.items():
        for fields in agent.reported_fields:
            yield name, *_reported_cells(fields)


def _reported_cells(fields: ReportedFields) -> Iterator[str]:
    yield fields.since or "the first"
    for is_reported in (fields.model, fields.requests, fields.money, fields.thoughts, fields.session):
        yield _yes_or_no(is_reported)
    yield fields.cache_writes
    yield fields.evidence


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _table(rows: Iterable[Sequence[str]]) -> str:
    head, *body = rows
    lines = ["", _row(head), _row(["---"] * len(head)), *map(_row, body), ""]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown_page())
