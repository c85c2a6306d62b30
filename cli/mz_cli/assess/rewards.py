"""Command `mz rewards`, and the record `reward` of `mz show`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click
from mz_events.names import feature_stream
from mz_projections.rewards.facts import FeatureFacts, fold_facts
from mz_projections.rewards.reward import Reward, Rewards, reward_of

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, format_options
from mz_cli.terminal.json import Shape
from mz_cli.terminal.table import Table, columns, print_output

REWARD = "reward"
UNKNOWN = "-"


class RewardReport(Shape, frozen=True, kw_only=True):
    """`mz rewards --json`."""

    run: str
    rewards: str | None
    """Name of the definition that the run pinned; null: its pipeline names none."""
    version: int | None
    features: tuple[Reward, ...]
    """Those that were started."""


@command(
    "rewards",
    examples=(
        ("mz rewards", "the newest run"),
        ("mz rewards r4f1 --json | jq '.features[] | select(.composite == 1).feature'", "features that went well"),
    ),
    next_command="`mz show FEATURE --artifact reward` shows one feature; `mz metrics` counts over many.",
)
@click.argument("run", required=False)
@format_options("Print one object with the schema mz.rewards/1.")
def rewards(run: str | None, as_json: bool) -> None:
    """Show how well each feature of a run went, and why.

    Each dimension is +1, 0, -1 or unknown, computed from the log by the rewards that the run's pipeline names; the
    composite sums them up. Then each phase: how often it was started, and whether it was clean, reworked, rolled back,
    asked about or skipped. No agent sees any of it. RUN is a run or its beginning (default: the newest).
    """
    with open_log() as log:
        name = log.find_run(run)
        definition, features = definition_of(log, name), tuple(facts_of(log, name))
    report = RewardReport(
        run=name,
        rewards=definition.rewards if definition else None,
        version=definition.version if definition else None,
        features=tuple(reward_of(facts, definition) for facts in features),
    )
    rows = [(reward.feature, *row) for reward in report.features for row in _rows(reward)]
    heads = columns("feature", "subject", ">score", "~reason")
    print_output(as_json, "rewards", report, Table(columns=heads, rows=rows, empty="No feature was started."))


def definition_of(log: ProjectLog, run: str) -> Rewards | None:
    """Return the rewards that a run pinned; None if it pinned none."""
    pins = log.load_pins(log.view(run).pins)
    return pins.rewards if pins else None


def facts_of(log: ProjectLog, run: str) -> Iterator[FeatureFacts]:
    """Yield the facts of each started feature of a run."""
    for feature in log.features(run, skipped=False):
        facts = fold_facts(log.store.read(feature_stream(run, feature)))
        if facts is not None:
            yield facts


def print_reward(log: ProjectLog, run: str, feature: str, as_json: bool) -> None:
    facts = fold_facts(log.store.read(feature_stream(run, feature))) or FeatureFacts(run, feature)
    reward = reward_of(facts, definition_of(log, run))
    lines = (f"{subject}: {score}  {reason}" for subject, score, reason in _rows(reward))
    print_output(as_json, "show-reward", reward, lines)


def _rows(reward: Reward) -> Iterator[tuple[str, str, str]]:
    """Yield subject, score and reason of the composite, of each dimension, of each phase and of the last rollback."""
    counts = Counter(_score(dimension.score) for dimension in reward.dimensions)
    texts = ", ".join(f"{count} of {'unknown' if score == UNKNOWN else score}" for score, count in counts.items())
    verified = "verified by commands" if reward.tool_verified else "no command verified it"
    reason = f"{texts}; {verified}" if texts else "unknown: the run's pipeline names no `rewards`"
    yield "composite", _score(reward.composite), reason
    yield from ((dimension.name, _score(dimension.score), dimension.reason) for dimension in reward.dimensions)
    for phase in reward.phases:
        again = f", {phase.iterations} iterations" * (phase.iterations > 1)
        cause = f": {phase.cause}" if phase.cause else ""
        yield f"phase {phase.phase}", UNKNOWN, f"{phase.outcome}{again}{cause}"
    if (last := reward.attribution) is not None:
        fix = f"; fixed by {', '.join(last.fix)}" if last.fix else ""
        agent = f" ({last.agent})" if last.agent else ""
        yield "last rollback", UNKNOWN, f"to {last.phase}{agent}, cause {last.cause}, {last.check}{fix}"


def _score(score: int | None) -> str:
    return UNKNOWN if score is None else f"{score:+d}" if score else "0"
