"""The reward of a feature: a definition from a file, applied to the facts of the feature.

A dimension scores +1 where its measure lies within `plus`, 0 within `zero`, otherwise -1; null where it is unknown.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from mz_events.names import Path

from mz_projections.rewards.facts import FeatureFacts, PhaseFacts

DELIVERED = "delivered"


class RewardStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base: an unknown key in a file of rewards is an error."""


class Bounds(RewardStruct, frozen=True, kw_only=True):
    """Includes both ends."""

    min: float | None = None
    max: float | None = None

    def holds(self, value: float) -> bool:
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)


class Measure(RewardStruct, frozen=True, kw_only=True, tag_field="measure"):
    """Base of the measures, with the bounds of the dimension."""

    plus: Bounds
    zero: Bounds


class CommandsMeasure(Measure, frozen=True, kw_only=True, tag="commands"):
    """The last run of each command in these phases: 1 if all passed and tests were counted, 0 if none were counted,
    -1 if one failed."""

    phases: tuple[str, ...]


class ShareMeasure(Measure, frozen=True, kw_only=True, tag="share"):
    """One number of artifacts divided by another, each `ARTIFACT.ids` or `ARTIFACT.COUNT`."""

    of: str
    within: str = msgspec.field(name="in")


class BlocksMeasure(Measure, frozen=True, kw_only=True, tag="blocks"):
    """The number of blocks with one of these causes."""

    causes: tuple[str, ...]


class RollbacksMeasure(Measure, frozen=True, kw_only=True, tag="rollbacks"):
    """The number of rollbacks that these phases asked for."""

    sources: tuple[str, ...]


class OffencesMeasure(Measure, frozen=True, kw_only=True, tag="offences"):
    """The number of forbidden changes and denied commands."""


class OverrunsMeasure(Measure, frozen=True, kw_only=True, tag="overruns"):
    """The number of prompts above the limit of their phase, and of tiers raised because of rollbacks."""


class CoverageMeasure(Measure, frozen=True, kw_only=True, tag="coverage_change"):
    """Percentage points between the first and the last run of a command with coverage; of several, the lowest."""


Dimension = (
    CommandsMeasure | ShareMeasure | BlocksMeasure | RollbacksMeasure | OffencesMeasure | OverrunsMeasure
    | CoverageMeasure
)  # fmt: skip


class Composite(RewardStruct, frozen=True, kw_only=True):
    """+1 where more than half of the known dimensions are +1 and no decisive one is -1; -1 where more than half, or a
    decisive one, are -1; otherwise 0. Null where fewer than `known_min` are known."""

    known_min: int = 1
    decisive: tuple[str, ...] = ()


class Rewards(RewardStruct, frozen=True, kw_only=True):
    """A file of rewards."""

    rewards: str
    """Its name."""
    version: int
    dimensions: dict[str, Dimension]
    composite: Composite = Composite()


class DimensionScore(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    score: int | None
    value: float | None
    reason: str


class PhaseHealth(msgspec.Struct, frozen=True, kw_only=True):
    phase: str
    iterations: int
    outcome: Literal["clean", "reworked", "rolled back", "asked", "skipped"]
    """The last of these that applies."""
    cause: str = ""


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """Where the last rollback led, why, and what fixed it."""

    phase: str
    agent: str
    cause: str
    check: str
    fix: tuple[Path, ...]


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    feature: str
    composite: int | None
    tool_verified: bool
    """Commands that mz ran decided at least one dimension."""
    dimensions: tuple[DimensionScore, ...]
    phases: tuple[PhaseHealth, ...]
    attribution: Attribution | None


def reward_of(facts: FeatureFacts, rewards: Rewards | None) -> Reward:
    """Return the reward of a feature; without a definition it has no dimensions."""
    dimensions = rewards.dimensions if rewards else {}
    scores = tuple(_score(name, dimension, facts) for name, dimension in dimensions.items())
    verified = (s.score for s in scores if s.score is not None and isinstance(dimensions[s.name], CommandsMeasure))
    last = facts.rollbacks[-1] if facts.rollbacks else None
    return Reward(
        run=facts.run,
        feature=facts.feature,
        composite=composite(scores, rewards.composite if rewards else Composite()),
        tool_verified=any(True for _ in verified),
        dimensions=scores,
        phases=tuple(_health(name, phase) for name, phase in facts.phases.items()),
        attribution=Attribution(
            phase=last.to, agent=facts.phases.get(last.to, PhaseFacts()).agent, cause=last.cause, check=last.check,
            fix=last.fix,
        ) if last else None,
    )  # fmt: skip


def composite(scores: tuple[DimensionScore, ...], rule: Composite) -> int | None:
    values = {score.name: score.score for score in scores if score.score is not None}
    if len(values) < max(rule.known_min, 1):
        return None
    half, decisive = len(values) / 2, [values.get(name) for name in rule.decisive]
    if -1 in decisive or sum(value == -1 for value in values.values()) > half:
        return -1
    return 1 if sum(value == 1 for value in values.values()) > half else 0


def _score(name: str, dimension: Dimension, facts: FeatureFacts) -> DimensionScore:
    value, reason = measure(dimension, facts)
    score: int | None = None
    if value is not None:
        score = 1 if dimension.plus.holds(value) else 0 if dimension.zero.holds(value) else -1
    return DimensionScore(name=name, score=score, value=value, reason=reason)


def measure(dimension: Dimension, facts: FeatureFacts) -> tuple[float | None, str]:
    """Return the value of a measure and what it is made of. A count of zero is known only of a delivered feature."""
    match dimension:
        case CommandsMeasure():
            return _commands(dimension, facts)
        case ShareMeasure():
            part, total = facts.numbers.get(dimension.of), facts.numbers.get(dimension.within)
            value = None if part is None or not total else round(part / total, 4)
            texts = ("unknown" if number is None else str(number) for number in (part, total))
            return value, f"{' of '.join(texts)}: {dimension.of} in {dimension.within}"
        case BlocksMeasure():
            count, subject = sum(cause in dimension.causes for _, cause, _ in facts.blocks), "block"
            reason = f"cause {', '.join(dimension.causes)}"
        case RollbacksMeasure():
            count, subject = sum(rollback.source in dimension.sources for rollback in facts.rollbacks), "rollback"
            reason = f"by {', '.join(dimension.sources)}"
        case OffencesMeasure():
            count, subject, reason = facts.offences, "offence", "forbidden changes and denied commands"
        case OverrunsMeasure():
            count, subject, reason = facts.overruns, "overrun", "prompts above their limit, raised tiers"
        case CoverageMeasure():
            pairs = (lines for lines in facts.coverage.values() if len(lines) > 2 and lines[1] * lines[3])
            changes = [100 * (lines[2] / lines[3] - lines[0] / lines[1]) for lines in pairs]
            value = round(min(changes), 2) if changes else None
            return value, "no command reported coverage twice" if value is None else f"{value:+g} percentage points"
    is_known = count > 0 or facts.outcome == DELIVERED
    return (count if is_known else None), f"{count} {subject}{'s' * (count != 1)}: {reason}"


def _commands(dimension: CommandsMeasure, facts: FeatureFacts) -> tuple[float | None, str]:
    results = {key: result for key, result in facts.commands.items() if key.split("/")[0] in dimension.phases}
    failed = [key.replace("//", "/") for key, result in results.items() if not result.passed]
    if not results:
        return None, f"no command ran in {', '.join(dimension.phases)}"
    if failed:
        return -1, f"failed: {', '.join(failed)}"
    counted = sum(result.counted for result in results.values())
    return int(counted > 0), f"all {len(results)} passed, {counted} counted tests"


def _health(name: str, phase: PhaseFacts) -> PhaseHealth:
    outcome: Literal["clean", "reworked", "rolled back", "asked", "skipped"] = "clean"
    if phase.skipped:
        outcome = "skipped"
    elif phase.questions:
        outcome = "asked"
    elif phase.rollbacks:
        outcome = "rolled back"
    elif phase.rejections:
        outcome = "reworked"
    return PhaseHealth(phase=name, iterations=phase.iterations, outcome=outcome, cause=phase.cause)
