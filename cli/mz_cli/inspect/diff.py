"""Command `mz diff`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click
import msgspec
from msgspec.structs import replace
from mz_engine.errors.diagnostics import MzError
from mz_engine.errors.exits import Exit
from mz_events.names import Digest
from mz_events.store import BlobMissing
from mz_projections.views.diff import FieldDifference, RunDifference, run_difference
from mz_projections.views.model import RunView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, format_options
from mz_cli.app.selectors import select
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import Shape, print_document
from mz_cli.terminal.table import Table, columns, print_table, prints_tsv
from mz_cli.terminal.text import exact_usd


class DifferenceShape(Shape, frozen=True, kw_only=True):
    path: str
    """Path of the value, such as `attempts.code`, `files.src/app.py`, `config.budget.run_usd`."""
    left: str | None
    """Null: missing or unknown. Long texts are shown by their digest."""
    right: str | None
    measured: bool
    """The value varies between any two runs, like a duration, and does not count for `--exit-code`."""


class FeatureDiff(Shape, frozen=True, kw_only=True):
    id: str
    left: bool
    """The left run has the feature."""
    right: bool
    differences: tuple[DifferenceShape, ...]


class DiffReport(Shape, frozen=True, kw_only=True):
    """`mz diff --json`."""

    repository: str
    left: str
    right: str
    differs: bool
    """At least one difference is not `measured`."""
    start: tuple[DifferenceShape, ...]
    """Differences in pipeline, base, version and every pinned setting, rule and template."""
    features: tuple[FeatureDiff, ...]
    """Features with differences."""


NANOUSD, USD = "_nanousd", "_usd"
NONE = "-"


@command(
    "diff",
    examples=(
        ("mz diff r4f1 r77a", "the differences between two runs, feature by feature"),
        ("mz diff r4f1/login r77a", "the differences of one feature"),
        ("mz diff r4f1 r77a --exit-code", "for scripts: exit code 1 if they differ"),
        ("mz diff r4f1 r77a --json | jq '.start'", "which settings, rules and templates differ"),
    ),
    next_command="`mz show RUN/FEATURE` shows one side in detail.",
)
@click.argument("left")
@click.argument("right")
@click.option("--exit-code", "verdict_exit", is_flag=True, help="Exit with 1 if more than durations differs.")
@format_options("Print one object with the schema mz.diff/1.")
def diff(left: str, right: str, verdict_exit: bool, as_json: bool) -> int:
    """Compare two runs.

    Compares the pinned inputs (pipeline, settings, rules, templates) and each feature's status, phases, iterations,
    attempts, tests, tokens, cost, files, artifacts and duration. Equal values are omitted. For a fork and its source,
    only the forked feature is compared, including the events that both share. LEFT and RIGHT are run ids or their
    beginnings; with RUN/FEATURE, only that feature is compared.
    """
    with open_log() as log:
        views = comparable_views(*selected_views(log, left, right))
        comparison = run_difference(*views, load_pins(log, views[0].pins), load_pins(log, views[1].pins))
        report = diff_report(comparison, str(log.home))
    if as_json:
        print_document("diff", report)
    else:
        print_differences(report)
    return int(Exit.VERDICT if verdict_exit and report.differs else Exit.OK)


def selected_views(log: ProjectLog, *texts: str) -> tuple[RunView, RunView]:
    """Return the runs, with the only feature that a selector names. Raises MzError (MZ1002, MZ4010, MZ5001, MZ5007)."""
    selectors = [select(log, text) for text in texts]
    if any(selector.phase or selector.version for selector in selectors):
        raise MzError("MZ1002", "phases and events cannot be compared", hint="write RUN or RUN/FEATURE")
    features = {selector.feature for selector in selectors} - {None}
    left, right = (log.view(selector.run) for selector in selectors)
    if len(features) > 1:
        raise MzError("MZ1002", "two different features cannot be compared", hint="name one feature of two runs")
    for feature in filter(None, features):
        for selector in selectors:
            log.check_feature(selector.run, feature)
        left, right = narrowed(left, feature), narrowed(right, feature)
    return left, right


def narrowed(view: RunView, feature: str) -> RunView:
    return replace(view, features=tuple(filter(None, (view.find_feature(feature),))))


def comparable_views(left: RunView, right: RunView) -> tuple[RunView, RunView]:
    """Return both views; if one run is a fork of the other, only with the forked feature."""
    forked = next(
        (view.fork for view, other_view in ((left, right), (right, left)) if is_fork_of(view, other_view)), None
    )
    if forked is None:
        return left, right
    return narrowed(left, forked.feature), narrowed(right, forked.feature)


def is_fork_of(view: RunView, source: RunView) -> bool:
    return view.fork is not None and view.fork.source == source.run


def load_pins(log: ProjectLog, digest: Digest | None) -> Any:
    """Return the run's pinned inputs as JSON, or None if the blob is missing."""
    try:
        return msgspec.json.decode(log.blobs.get(digest)) if digest else None
    except (BlobMissing, msgspec.DecodeError):
        return None


def diff_report(comparison: RunDifference, repository: str) -> DiffReport:
    return DiffReport(
        repository=repository,
        left=comparison.left,
        right=comparison.right,
        differs=comparison.differs,
        start=difference_shapes(comparison.start_differences),
        features=tuple(
            FeatureDiff(
                id=feature_difference.feature,
                left=feature_difference.in_left,
                right=feature_difference.in_right,
                differences=difference_shapes(feature_difference.differences),
            )
            for feature_difference in comparison.features
        ),
    )


def difference_shapes(differences: Iterable[FieldDifference]) -> tuple[DifferenceShape, ...]:
    return tuple(
        DifferenceShape(
            path=field_difference.path.removesuffix(NANOUSD) + USD
            if field_difference.path.endswith(NANOUSD)
            else field_difference.path,
            left=display_value(field_difference.path, field_difference.left),
            right=display_value(field_difference.path, field_difference.right),
            measured=field_difference.non_deterministic,
        )
        for field_difference in differences
    )


def display_value(path: str, text: str | None) -> str | None:
    """Return the value; money as a decimal string of USD."""
    return exact_usd(int(text)) if text is not None and path.endswith(NANOUSD) else text


def print_differences(report: DiffReport) -> None:
    rows = [
        ("run", field_difference.path, field_difference.left or NONE, field_difference.right or NONE)
        for field_difference in report.start
    ]
    for feature in report.features:
        if feature.left != feature.right:
            rows.append((feature.id, "feature", presence(feature.left), presence(feature.right)))
        rows += [
            (feature.id, field_difference.path, field_difference.left or NONE, field_difference.right or NONE)
            for field_difference in feature.differences
        ]
    heads = columns("feature", "field", report.left, report.right)
    print_table(Table(columns=heads, rows=tuple(rows), empty="No differences."))
    if not prints_tsv(sys.stdout) and rows and not report.differs:
        print_note("only measured values such as durations differ")


def presence(present: bool) -> str:
    return "present" if present else "missing"
