"""Command `mz diff`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click
import msgspec
from msgspec.structs import replace
from mz_engine.errors.diagnostics import Exit, MzError
from mz_projections.views.diff import FieldDifference, RunDifference, run_difference
from mz_projections.views.model import RunView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, format_options
from mz_cli.app.selectors import select
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import print_document, shape_of
from mz_cli.terminal.table import Cell, Table, columns, labelled, print_table, prints_tsv
from mz_cli.terminal.text import exact_usd

NANOUSD = "_nanousd"
NONE = "-"
PRESENCE = ("missing", "present")


class DiffReport(RunDifference, frozen=True, kw_only=True):
    """`mz diff --json`."""

    repository: str
    differs: bool
    """At least one difference is not `measured`."""


@command(
    "diff",
    examples=(
        ("mz diff r4f1 r77a", "the differences between two runs, feature by feature"),
        ("mz diff r4f1/login r77a", "the differences of one feature"),
        ("mz diff r4f1 r77a --exit-code", "for scripts: exit code 1 if they differ"),
        ("mz diff r4f1 r77a --json | jq '.start_differences'", "which settings, rules and templates differ"),
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
        pins = (msgspec.json.decode(text) if (text := log.load_text(view.pins)) else None for view in views)
        difference = run_difference(*views, *pins)
        features = tuple(replace(item, differences=with_usd(item.differences)) for item in difference.features)
        start = with_usd(difference.start_differences)
        repository = str(log.root)
        report = shape_of(DiffReport, difference, repository=repository, start_differences=start, features=features)
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
    pairs = (left.fork, right.run), (right.fork, left.run)
    forked = next((fork for fork, other_run in pairs if fork is not None and fork.source == other_run), None)
    return (left, right) if forked is None else (narrowed(left, forked.feature), narrowed(right, forked.feature))


def with_usd(differences: Iterable[FieldDifference]) -> tuple[FieldDifference, ...]:
    """Return the differences with money as decimal strings of USD."""
    return tuple(
        replace(
            difference,
            path=f"{difference.path.removesuffix(NANOUSD)}_usd",
            left=exact_usd(int(difference.left)) if difference.left is not None else None,
            right=exact_usd(int(difference.right)) if difference.right is not None else None,
        )
        if difference.path.endswith(NANOUSD)
        else difference
        for difference in differences
    )


def print_differences(report: DiffReport) -> None:
    rows: list[tuple[str, ...]] = [("run", *_cells(difference)) for difference in report.start_differences]
    for feature in report.features:
        if feature.in_left != feature.in_right:
            rows.append((feature.id, "feature", PRESENCE[feature.in_left], PRESENCE[feature.in_right]))
        rows += [(feature.id, *_cells(difference)) for difference in feature.differences]
    heads = columns("feature", "field", f"~{report.left}", f"~{report.right}")
    print_table(Table(columns=heads, rows=rows, empty="No differences."))
    if not prints_tsv(sys.stdout) and rows and not report.differs:
        print_note("only measured values such as durations differ")


def _cells(difference: FieldDifference) -> tuple[str, ...]:
    """Return field and values; names with a dot are those of settings, phases and files."""
    name, values = difference.path, (difference.left, difference.right)
    is_name = "." in name
    label = Cell(name if is_name else labelled(name, "0")[0], name)
    texts = [text if is_name or text is None else labelled(name, text)[1] for text in values]
    return label, *(Cell(text or NONE, exact or NONE) for text, exact in zip(texts, values, strict=True))
