"""Metrics over the last features, and what is wrong now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil
from statistics import fmean, median
from typing import Literal

import msgspec

from mz_projections.rewards.facts import FeatureFacts, PhaseFacts

FEATURES_MAX = 50
GROUP_SIZE = 10
"""Features of one value of the trend."""
ALL = "all"
ITERATIONS_MIN, ROLLBACK_RATE_MAX, REWORK_RATE_MAX = 4, 0.25, 0.5
"""A phase with at least so many iterations is a problem above one of these rates."""
TREND_DROP_MIN = 0.2
Statistic = Literal["rate", "share", "mean", "median", "worst", "p95", "ceiling"]


class PhasePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What metrics need to know of a phase as its run pinned it."""

    tier: str = ""
    has_inputs: bool = True


class MeasuredFeature(msgspec.Struct, frozen=True, kw_only=True):
    facts: FeatureFacts
    composite: int | None = None
    plan: dict[str, PhasePlan] = {}


class MetricValue(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    """A phase, a phase and a tier, a cause, a severity, a group of features; all: everything."""
    statistic: Statistic
    value: float | None
    """Null if `n` is 0."""
    n: int
    """Of what it was computed: see the page on metrics."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    name: str
    values: tuple[MetricValue, ...]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["phase", "question", "failed", "trend"]
    subject: str
    """A phase, `RUN/FEATURE`, or all."""
    text: str


def latest(features: Iterable[MeasuredFeature], count: int | None = FEATURES_MAX) -> tuple[MeasuredFeature, ...]:
    """Return the last features that started a phase, the oldest first, without those of forks; None: all of them."""
    counted = [feature for feature in features if feature.facts.phases and not feature.facts.is_fork]
    return tuple(sorted(counted, key=lambda feature: feature.facts.position)[-(count or 0) :])


def metrics_of(features: Sequence[MeasuredFeature], candidates: int, verified: int) -> tuple[Metric, ...]:
    """Return the eleven metrics of these features. `candidates`: patterns that agents proposed, of which some are
    `verified`."""
    facts = [feature.facts for feature in features]
    count, rollbacks = len(facts), [rollback for item in facts for rollback in item.rollbacks]
    ambiguous = sum(
        any(not feature.plan.get(phase, PhasePlan()).has_inputs for phase, _, _ in feature.facts.blocks)
        for feature in features
    )
    causes = Counter(cause for item in facts for _, cause, _ in item.blocks)
    findings = sum((Counter(item.findings) for item in facts), Counter[str]())
    listed: tuple[tuple[str, Iterable[MetricValue]], ...] = (
        ("phase_rollback_rate", _by_phase(facts, _rollback_rate)),
        ("iterations_per_phase", _by_phase(facts, _iterations)),
        ("rollback_cascade_rate", [_rate(ALL, sum(map(_cascades, facts)), len(rollbacks))]),
        ("human_escalation_rate", [_rate(ALL, sum(item.questions > 0 for item in facts), count)]),
        ("spec_ambiguity_rate", [_rate(ALL, ambiguous, count)]),
        ("block_rate", [_rate(cause, number, count) for cause, number in sorted(causes.items())]),
        ("finding_rate", [_rate(severity, number, count) for severity, number in sorted(findings.items())]),
        ("pattern_promotion_rate", [_rate(ALL, verified, candidates)]),
        ("context_tokens_per_phase", _by_phase(facts, _tokens)),
        ("tier_share", _tiers(features)),
        ("composite_trend", _trend(features)),
    )
    empty = (_rate(ALL, 0, 0),)
    return tuple(
        Metric(number=number, name=name, values=tuple(values) or empty)
        for number, (name, values) in enumerate(listed, 1)
    )


def problems(features: Sequence[MeasuredFeature]) -> tuple[Problem, ...]:
    """Return what is wrong now: phases that redo most of their work, features that wait for a person or failed, a
    composite that falls."""
    facts, result = [feature.facts for feature in features], list[Problem]()
    for phase, uses in _phases(facts).items():
        iterations, rollbacks = sum(use.iterations for use in uses), sum(use.rollbacks for use in uses)
        reworked = sum(use.rejections > 0 for use in uses) / len(uses)
        if iterations >= ITERATIONS_MIN and (rollbacks / iterations > ROLLBACK_RATE_MAX or reworked > REWORK_RATE_MAX):
            causes = Counter(use.cause for use in uses if use.cause).most_common(1)
            text = f"{rollbacks} rollbacks in {iterations} iterations, reworked in {reworked:.0%} of features"
            text += "".join(f"; most often: {cause}" for cause, _ in causes)
            result.append(Problem(kind="phase", subject=phase, text=text))
    for item in facts:
        name = f"{item.run}/{item.feature}"
        if item.waiting:
            result.append(Problem(kind="question", subject=name, text=f"waits for a person: {item.waiting}"))
        elif item.outcome == "failed":
            result.append(Problem(kind="failed", subject=name, text=f"failed: {item.failure}"))
    means = [value.value for value in _trend(features) if value.value is not None]
    if len(means) > 1 and means[-2] - means[-1] >= TREND_DROP_MIN:
        text = f"the mean composite fell from {means[-2]:.2g} to {means[-1]:.2g}"
        result.append(Problem(kind="trend", subject=ALL, text=text))
    return tuple(result)


def _rate(subject: str, part: int, n: int, statistic: Statistic = "rate") -> MetricValue:
    return MetricValue(subject=subject, statistic=statistic, value=round(part / n, 4) if n else None, n=n)


def _phases(facts: Iterable[FeatureFacts]) -> dict[str, list[PhaseFacts]]:
    """Return the facts of each phase, in the order in which phases first appear."""
    uses = dict[str, list[PhaseFacts]]()
    for item in facts:
        for name, phase in item.phases.items():
            uses.setdefault(name, []).append(phase)
    return uses


def _by_phase(
    facts: Iterable[FeatureFacts], values: Callable[[str, list[PhaseFacts]], Iterable[MetricValue]]
) -> Iterator[MetricValue]:
    for phase, uses in _phases(facts).items():
        yield from values(phase, uses)


def _rollback_rate(phase: str, uses: list[PhaseFacts]) -> Iterator[MetricValue]:
    yield _rate(phase, sum(use.rollbacks for use in uses), sum(use.iterations for use in uses))


def _iterations(phase: str, uses: list[PhaseFacts]) -> Iterator[MetricValue]:
    counts = [use.iterations for use in uses]
    yield MetricValue(subject=phase, statistic="median", value=median(counts), n=len(counts))
    yield MetricValue(subject=phase, statistic="worst", value=max(counts), n=len(counts))


def _cascades(facts: FeatureFacts) -> int:
    """Count the rollbacks whose target asked next for one further back."""
    order = list(facts.phases)
    pairs = zip(facts.rollbacks, facts.rollbacks[1:], strict=False)
    return sum(
        following.source == first.to and {first.to, following.to} <= {*order}
        and order.index(following.to) < order.index(first.to)
        for first, following in pairs
    )  # fmt: skip


def _tokens(phase: str, uses: list[PhaseFacts]) -> Iterator[MetricValue]:
    prompts = sorted(tokens for use in uses for tokens in use.prompts)
    limit = next((use.tokens_max for use in reversed(uses) if use.prompts), None)
    if prompts:
        numbers: tuple[tuple[Statistic, float | None], ...] = (
            ("median", median(prompts)), ("p95", prompts[ceil(0.95 * len(prompts)) - 1]), ("ceiling", limit),
        )  # fmt: skip
        for statistic, value in numbers:
            yield MetricValue(subject=phase, statistic=statistic, value=value, n=len(prompts))


def _tiers(features: Iterable[MeasuredFeature]) -> Iterator[MetricValue]:
    counts = dict[str, Counter[str]]()
    for feature in features:
        for phase, facts in feature.facts.phases.items():
            own = feature.plan.get(phase, PhasePlan()).tier
            for tier, number in facts.tiers.items():
                counts.setdefault(phase, Counter())[tier or own or "unknown"] += number
    for phase, tiers in counts.items():
        for tier, number in sorted(tiers.items()):
            yield _rate(f"{phase} {tier}", number, tiers.total(), "share")


def _trend(features: Sequence[MeasuredFeature]) -> Iterator[MetricValue]:
    """Yield the mean composite of each ten features, the oldest first; the newest ten are complete."""
    ends = range(len(features), 0, -GROUP_SIZE)
    for end in reversed(ends):
        group = features[max(0, end - GROUP_SIZE) : end]
        composites = [feature.composite for feature in group if feature.composite is not None]
        subject = f"{len(features) - end + 1} to {len(features) - end + len(group)} back"
        value = round(fmean(composites), 4) if composites else None
        yield MetricValue(subject=subject, statistic="mean", value=value, n=len(composites))
