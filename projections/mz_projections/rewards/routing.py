"""Which agent and tier did a phase best: scores of what was tried, and what to route differently."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import sqrt

import msgspec

from mz_projections.rewards.facts import CellFacts
from mz_projections.rewards.metrics import MeasuredFeature

CELLS_MIN, FEATURES_MIN, BETTER_BY_MIN = 4, 50, 0.1
QUALITY_WEIGHT, COST_WEIGHT = 0.6, 0.4
Z_80 = 1.2815515655446004
"""Two-sided 80 %: a tenth of the normal distribution lies above it."""
Subject = tuple[str, str]
"""A phase, and `FIELD=VALUE` of its units; empty: all of it."""
Choice = tuple[str, str]
"""Agent and tier."""


class CandidateScore(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    tier: str
    cells: int
    """Units, or phases without units, that it worked on last."""
    accepted: int
    """Accepted, and never sent back."""
    mean_nanousd: int
    """Charged for a cell."""
    score: float | None
    """Null with fewer than four cells."""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    phase: str
    unit: str = ""
    """`FIELD=VALUE`; null: all units."""
    candidates: tuple[CandidateScore, ...]
    """The best first."""
    propose: CandidateScore | None = None
    """The best one, if it is better by 0.1 than what is routed now, with fifty delivered features."""


def wilson_lower(successes: int, n: int) -> float:
    """Return the lower end of the 80 % Wilson interval of a share."""
    share, z2 = successes / n, Z_80**2
    spread = Z_80 * sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, (share + z2 / (2 * n) - spread) / (1 + z2 / n))


def suggestions(
    features: Iterable[MeasuredFeature], routed: Mapping[Subject, Choice], agents: Collection[str]
) -> tuple[Suggestion, ...]:
    """Return the scores of all that was tried. `features`: of all runs, without forks; `routed`: who works on it now;
    of units that are not in it, who works on their phase. Only one of the `agents` can be proposed."""
    groups, delivered = dict[Subject, dict[Choice, list[CellFacts]]](), 0
    for feature in features:
        delivered += feature.facts.outcome == "delivered"
        for key, cell in feature.facts.cells.items():
            phase = key.partition("/")[0]
            plan = feature.plan.get(phase)
            choice = cell.agent, cell.tier or (plan.tier if plan else "")
            for unit in ("", *(f"{field}={value}" for field, value in sorted(cell.fields.items()))):
                groups.setdefault((phase, unit), {}).setdefault(choice, []).append(cell)
    return tuple(
        _suggestion(subject, scores(choices), routed.get(subject, routed.get((subject[0], ""))), delivered, agents)
        for subject, choices in groups.items()
    )


def scores(choices: Mapping[Choice, list[CellFacts]]) -> tuple[CandidateScore, ...]:
    """Return the candidates, the best first: 0.6 x the lower end of the interval of cells that were accepted and never
    sent back + 0.4 x (1 - rank of the mean cost, from 0 for the cheapest to 1)."""
    means = {choice: sum(cell.nanousd for cell in cells) // len(cells) for choice, cells in choices.items()}
    ranked = sorted({means[choice] for choice, cells in choices.items() if len(cells) >= CELLS_MIN})
    result = []
    for (agent, tier), cells in choices.items():
        accepted, mean, score = sum(c.accepted and not c.sent_back for c in cells), means[agent, tier], None
        if len(cells) >= CELLS_MIN:
            rank = ranked.index(mean) / max(len(ranked) - 1, 1)
            score = round(QUALITY_WEIGHT * wilson_lower(accepted, len(cells)) + COST_WEIGHT * (1 - rank), 4)
        result.append(
            CandidateScore(agent=agent, tier=tier, cells=len(cells), accepted=accepted, mean_nanousd=mean, score=score)
        )
    return tuple(sorted(result, key=lambda c: (c.score is None, -(c.score or 0), c.agent, c.tier)))


def _suggestion(
    subject: Subject,
    candidates: tuple[CandidateScore, ...],
    now: Choice | None,
    delivered: int,
    agents: Collection[str],
) -> Suggestion:
    current = next((c.score for c in candidates if (c.agent, c.tier) == now and c.score is not None), None)
    possible = (c for c in candidates if c.agent in agents and c.tier)  # A tier is unknown if its pins are unreadable.
    best = next((c for c in possible if c.score is not None), None)
    is_better = best is not None and current is not None and round((best.score or 0) - current, 4) >= BETTER_BY_MIN
    propose = best if is_better and delivered >= FEATURES_MIN else None
    return Suggestion(phase=subject[0], unit=subject[1], candidates=candidates, propose=propose)
