"""Command `mz diff`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click
import msgspec
from msgspec.structs import replace
from mz_engine.exits import Exit
from mz_events.names import Digest
from mz_events.store import BlobMissing
from mz_projections.difference import Differing, RunDifference, difference
from mz_projections.views import RunView

from mz_cli.context import Reading, reading
from mz_cli.help import command
from mz_cli.render.console import is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.table import Table, columns
from mz_cli.render.text import usd
from mz_cli.shapes.diff import DifferingShape, DiffReport, FeatureDiff

NANOUSD, USD = "_nanousd", "_usd"
NONE = "-"


@command(
    "diff",
    examples=(
        ("mz diff r4f1 r77a", "the differences between two runs, feature by feature"),
        ("mz diff r4f1 r77a --exit-code", "for scripts: exit code 1 if they differ"),
        ("mz diff r4f1 r77a --json | jq '.start'", "which settings, rules and templates differ"),
    ),
    following="`mz show FEATURE --run RUN` shows one side in detail.",
)
@click.argument("left")
@click.argument("right")
@click.option("--exit-code", "verdict_exit", is_flag=True, help="Exit with 1 if more than durations differs.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.diff/1.")
def diff(left: str, right: str, verdict_exit: bool, as_json: bool) -> int:
    """Compare two runs.

    Compares the pinned inputs (pipeline, settings, rules, templates) and each feature's status, phases, iterations,
    attempts, tests, tokens, cost, files, artifacts and duration. Equal values are omitted. For a fork and its source,
    only the forked feature is compared, including the events that both share. LEFT and RIGHT are run ids or their
    beginnings.
    """
    with reading() as log:
        views = beside(log.view(log.find_run(left)), log.view(log.find_run(right)))
        found = difference(*views, pins(log, views[0].pins), pins(log, views[1].pins))
        report = diff_report(found, str(log.home))
    if as_json:
        show_document("diff", report)
    else:
        show_differences(report)
    return int(Exit.VERDICT if verdict_exit and report.differs else Exit.OK)


def beside(left: RunView, right: RunView) -> tuple[RunView, RunView]:
    """Return both views; if one run is a fork of the other, only with the forked feature."""
    forked = next((one.forked for one, other in ((left, right), (right, left)) if forked_from(one, other)), None)
    if forked is None:
        return left, right
    narrow = [replace(one, features=tuple(filter(None, (one.find(forked.feature),)))) for one in (left, right)]
    return narrow[0], narrow[1]


def forked_from(one: RunView, other: RunView) -> bool:
    return one.forked is not None and one.forked.source == other.run


def pins(log: Reading, digest: Digest | None) -> Any:
    """Return the run's pinned inputs as JSON, or None if the blob is missing."""
    try:
        return msgspec.json.decode(log.blobs.get(digest)) if digest else None
    except (BlobMissing, msgspec.DecodeError):
        return None


def diff_report(found: RunDifference, repository: str) -> DiffReport:
    return DiffReport(
        repository=repository, left=found.left, right=found.right, differs=found.differs,
        start=differing(found.start),
        features=tuple(
            FeatureDiff(id=each.feature, left=each.left, right=each.right, differences=differing(each.differing))
            for each in found.features
        ),
    )  # fmt: skip


def differing(found: Iterable[Differing]) -> tuple[DifferingShape, ...]:
    return tuple(
        DifferingShape(
            path=each.path.removesuffix(NANOUSD) + USD if each.path.endswith(NANOUSD) else each.path,
            left=value(each.path, each.left), right=value(each.path, each.right), measured=each.measured,
        )
        for each in found
    )  # fmt: skip


def value(path: str, text: str | None) -> str | None:
    """Return the value; money as a decimal string of USD."""
    return usd(int(text)) if text is not None and path.endswith(NANOUSD) else text


def show_differences(report: DiffReport) -> None:
    rows = [("run", each.path, each.left or NONE, each.right or NONE) for each in report.start]
    for feature in report.features:
        if feature.left != feature.right:
            rows.append((feature.id, "feature", here(feature.left), here(feature.right)))
        rows += [(feature.id, each.path, each.left or NONE, each.right or NONE) for each in feature.differences]
    heads = columns("feature", "field", report.left, report.right)
    show(Table(columns=heads, rows=tuple(rows), empty="No differences."))
    if is_terminal(sys.stdout) and rows and not report.differs:
        note("only measured values such as durations differ")


def here(there: bool) -> str:
    return "present" if there else "missing"
