"""Commands `mz metrics` and `mz health`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mz_engine.errors.diagnostics import Exit
from mz_engine.run.proposals import measured_features
from mz_projections.memory.evidence import LESSON_KINDS
from mz_projections.rewards.facts import FACTS
from mz_projections.rewards.metrics import FEATURES_MAX, MeasuredFeature, Metric, Problem, metrics_of, problems

from mz_cli.app.context import open_log
from mz_cli.app.help import command, format_options
from mz_cli.common.memory import open_memory
from mz_cli.terminal.json import Shape
from mz_cli.terminal.table import Table, columns, print_output


class MetricsReport(Shape, frozen=True, kw_only=True):
    """`mz metrics --json`."""

    features: int
    """The last ones that started a phase, without forks."""
    metrics: tuple[Metric, ...]


class HealthReport(Shape, frozen=True, kw_only=True):
    """`mz health --json`; the exit code is 1 if there is a problem."""

    features: int
    problems: tuple[Problem, ...]


@command(
    "metrics",
    examples=(
        ("mz metrics", "the eleven metrics"),
        ("mz metrics --json | jq '.metrics[] | select(.name == \"composite_trend\")'", "one of them"),
    ),
    next_command="`mz health` says what is wrong now; `mz rewards RUN` shows single features.",
)
@format_options("Print one object with the schema mz.metrics/1.")
def metrics(as_json: bool) -> None:
    """Show what goes wrong most, over the last 50 features.

    Eleven metrics, computed from the log over all runs but forks: how often work goes back and how far, questions to
    people, unclear requests, blocks by cause, findings by severity, verified patterns, tokens of prompts, tiers, and
    the composite of rewards. n is the number of things that a value is computed of; with none the value is unknown.
    """
    with opened_features() as features, open_memory() as memory:
        patterns = [learning for learning in memory.learnings if learning.kind in LESSON_KINDS]
        measured = metrics_of(features, len(patterns), sum(learning.verified for learning in patterns))
    rows = [
        (metric.name, value.subject, value.statistic, "-" if value.value is None else f"{value.value:g}", str(value.n))
        for metric in measured
        for value in metric.values
    ]
    report = MetricsReport(features=len(features), metrics=measured)
    heads = columns("*metric", "*subject", "statistic", ">value", ">n")
    print_output(as_json, "metrics", report, Table(columns=heads, rows=rows))


@command(
    "health",
    examples=(("mz health", "what is wrong now"), ("mz health --json | jq '.problems[].subject'", "where")),
    next_command="`mz metrics` has the numbers; `mz show FEATURE` shows a feature.",
)
@format_options("Print one object with the schema mz.health/1.")
def health(as_json: bool) -> int:
    """Show what is wrong now.

    Over the last 50 features: phases with four iterations at least and rollbacks in more than a quarter of them, or
    reworked in more than half of the features; features that wait for a person or failed; a mean composite of the last
    ten features that is 0.2 lower than that of the ten before. The exit code is 0 if there is none of it, else 1.
    """
    with opened_features() as features:
        report = HealthReport(features=len(features), problems=problems(features))
    rows = [(problem.kind, problem.subject, problem.text) for problem in report.problems]
    table = Table(columns=columns("problem", "subject", "~text"), rows=rows, empty="Nothing is wrong.")
    print_output(as_json, "health", report, table)
    return int(Exit.VERDICT if report.problems else Exit.OK)


@contextmanager
def opened_features(count: int | None = FEATURES_MAX) -> Iterator[tuple[MeasuredFeature, ...]]:
    """Open the last features of this repository, or all, measured as their runs pinned it."""
    with open_log() as log:
        yield measured_features(log.rows(FACTS), lambda run: log.load_pins(log.view(run).pins), count)
