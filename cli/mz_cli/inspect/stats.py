"""Command `mz stats`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click
from mz_engine.git.sources import SourceReader
from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_engine.ports import SourceChange
from mz_engine.run.settings import load_config
from mz_engine.sources import KINDS
from mz_events.catalog.base import Event
from mz_events.catalog.delivery import BaseMerged, Committed
from mz_events.catalog.feature import WorkspaceReady
from mz_events.catalog.imported import ImportedRecord, ImportedRunRead
from mz_events.names import Commit, feature_stream
from mz_events.store import Recorded
from mz_projections.imported.runs import find_imported_run, imported_calls
from mz_projections.views.model import DELIVERED_STATUSES, FeatureView

from mz_cli.app.context import find_root, open_log
from mz_cli.app.help import command, format_options
from mz_cli.inspect.compare import version_commit
from mz_cli.terminal.console import print_line, print_note
from mz_cli.terminal.json import Shape, print_document, shape_of
from mz_cli.terminal.table import Table, columns, count_cell, print_table, prints_tsv

RECORDED = "recorded"
"""In place of a language: lines as another system counted them."""


class SourceTotals(Shape, frozen=True, kw_only=True):
    """What is there: lines by language, words of prose by name."""

    commit: str | None
    """null: the base with what the delivered items changed, which no single commit need have; or what an imported run
    recorded."""
    code: dict[str, int]
    tests: dict[str, int]
    prose: dict[str, int]


class ItemStats(Shape, frozen=True, kw_only=True):
    feature: str
    status: str
    base: str | None
    """Commit that its own work builds on; null: it has committed nothing."""
    head: str | None
    change: SourceChange | None
    """From base to head; null: nothing, or git does not have both."""


class CallStats(Shape, frozen=True, kw_only=True):
    """The record of one agent call."""

    feature: str
    phase: str
    unit: str | None
    iteration: int
    attempt: int
    role: str
    agent: str
    model: str
    requested_at_us: int
    duration_us: int | None
    outcome: str
    input_tokens: int | None
    """Cache reads and writes included."""
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reported_nanousd: int | None
    computed_nanousd: int | None
    change: SourceChange | None
    """From the capture before the call to the one after it; null: there are not both."""
    recorded: ImportedRecord | None
    """Of an imported run: all that the other system recorded."""


class StatsReport(Shape, frozen=True, kw_only=True):
    """`mz stats --json`."""

    run: str | None
    """null: of a commit."""
    before: SourceTotals | None
    """Of a run: its base. null: of a commit, or git does not have it."""
    after: SourceTotals | None
    items: tuple[ItemStats, ...]
    calls: tuple[CallStats, ...]
    """In the order of their requests."""


@command(
    "stats",
    examples=(
        ("mz stats", "the newest run: before, after, and what each item changed"),
        ("mz stats main", "a branch or a commit"),
        ("mz stats r4f1 --json | jq '.calls[] | {phase, model, computed_usd, change}'", "each call of a run"),
    ),
    next_command="`mz cost` sums up the calls; `sources` in mz.yaml says what is counted.",
)
@click.argument("run", metavar="[RUN|COMMIT]", required=False)
@format_options("Print one object with the schema mz.stats/1.")
def stats(run: str | None, as_json: bool) -> None:
    """Count lines of code and tests, and words of prose.

    A line is one with more than white space, comments included. Files are read from git's objects, and sorted by
    `sources` in mz.yaml. What to count is a run (its id, the beginning, or its integration branch), a branch, a
    commit, or [RUN/]FEATURE; by default the newest run, and HEAD where nothing has run.
    """
    root = find_root(Path.cwd())
    reader = SourceReader(root, load_config(root, os.environ, {}).config.sources)
    report = run_report(root, reader, run)
    if report is None:
        commit = version_commit(root, run or "HEAD")
        report = StatsReport(run=None, before=None, after=_totals(reader, commit), items=(), calls=())
    if as_json:
        print_document("stats", report)
        return
    print_table(sources_table(report))
    if report.items and not prints_tsv():
        print_line("")
        print_table(items_table(report))
    if report.run and None in (report.before, report.after):
        print_note("`-`: git does not have the commits")


def run_report(root: Path, reader: SourceReader, name: str | None) -> StatsReport | None:
    """Return the report of a run; None if there is none with that name."""
    if not (root / MZ_FOLDER / LOG_FILE).exists():
        return None
    with open_log(root) as log:
        if imported := find_imported_run(log.store, name):
            return imported_report(reader, imported)
        runs = log.runs()
        if not runs or (name and not any(run.startswith(name) for run in runs) and not log.run_of_branch(name)):
            return None
        run = log.find_run(name)
        view = log.view(run)
        work = {row.feature: own_work(log.store.read(feature_stream(run, row.feature))) for row in view.features}
    items = tuple(_item(reader, row, work[row.feature]) for row in view.features)
    calls = sorted((call for row in view.features for call in row.paid_calls), key=lambda call: call.requested_at_us)
    return StatsReport(
        run=run,
        before=_totals(reader, view.base_commit),
        after=_totals(reader, view.base_commit, items),
        items=items,
        calls=tuple(
            shape_of(CallStats, call, change=reader.change(call.tree_before, call.tree_after), recorded=None)
            for call in calls
        ),
    )


def imported_report(reader: SourceReader, run: ImportedRunRead) -> StatsReport:
    """Return the report of an imported run: its commits, where git has them, else what its records tell."""
    calls = tuple(
        shape_of(
            CallStats, record, call, change=None, recorded=record, input_tokens=record.input,
            output_tokens=record.output, cache_read_tokens=record.cache_read, cache_write_tokens=record.cache_write,
        )
        for record, call in zip(run.records, imported_calls(run), strict=True)
    )  # fmt: skip
    before = run.base_commit and _totals(reader, run.base_commit)
    after = run.head and _totals(reader, run.head)
    return StatsReport(
        run=run.run,
        before=before or _recorded_totals((record.code_before, record.tests_before) for record in run.records),
        after=after or _recorded_totals((record.code_after, record.tests_after) for record in reversed(run.records)),
        items=tuple(
            ItemStats(feature=name, status=status or "unknown", base=None, head=None, change=None)
            for name, status in run.items.items()
        ),
        calls=calls,
    )


def _recorded_totals(lines: Iterable[tuple[int | None, int | None]]) -> SourceTotals | None:
    """Return the first lines of code and tests that are known; None if none are."""
    code, tests = next((pair for pair in lines if None not in pair), (None, None))
    if code is None or tests is None:
        return None
    return SourceTotals(commit=None, code={RECORDED: code}, tests={RECORDED: tests}, prose={})


def own_work(events: Iterable[Recorded[Event]]) -> tuple[Commit, Commit] | None:
    """Return the commits between which an item's own work is, from its stream: after the base that it merged last. None
    if it has committed nothing."""
    base: Commit | None = None
    head: Commit | None = None
    has_work = False
    for recorded in events:
        match recorded.event:
            case WorkspaceReady() as ready if base is None:
                base = head = ready.head
            case BaseMerged(changed=True) as merged:
                base, head = merged.base, merged.head
            case Committed() as committed:
                head, has_work = committed.commit, has_work or committed.files > 0
    return (base, head) if base and head and has_work else None


def _item(reader: SourceReader, view: FeatureView, work: tuple[Commit, Commit] | None) -> ItemStats:
    base, head = work or (None, None)
    change = reader.change(base, head)
    return ItemStats(feature=view.feature, status=view.status, base=base, head=head, change=change)


def _totals(reader: SourceReader, commit: str, items: Iterable[ItemStats] | None = None) -> SourceTotals | None:
    """Return the sources of a commit with what the delivered items changed; None if git lacks one of the commits."""
    base_counts = reader.counts(commit)
    if base_counts is None:
        return None
    counts = Counter(base_counts)
    for item in items or ():
        if item.base and item.head and item.status in DELIVERED_STATUSES:
            old, new = reader.counts(item.base), reader.counts(item.head)
            if old is None or new is None:
                return None
            counts.update(new)
            counts.subtract(old)
    by_kind = {kind: {group.name: counts[group] for group in sorted(counts) if group.kind == kind} for kind in KINDS}
    return SourceTotals(commit=commit if items is None else None, **by_kind)


def sources_table(report: StatsReport) -> Table:
    """Return a row for each language and name: its number, of a run before and after."""
    sides = (report.before, report.after) if report.run else (report.after,)
    rows = []
    for kind in KINDS:
        tables = [getattr(side, kind) if side else None for side in sides]
        for name in sorted({name for numbers in tables for name in numbers or ()}):
            numbers = [None if table is None else table.get(name, 0) for table in tables]
            rows.append((kind, name, *map(count_cell, numbers), "words" if kind == "prose" else "lines"))
    heads = (">before", ">after") if report.run else (">number",)
    return Table(columns=columns("*kind", "*name", *heads, "unit"), rows=rows, empty="No sources.")


def items_table(report: StatsReport) -> Table:
    """Return a row for each item; of an imported run with the lines after its calls, less those before."""
    recorded = dict[tuple[str, str], int]()
    for call in report.calls:
        for kind in ("code", "tests"):
            before, after = (getattr(call.recorded, f"{kind}_{side}", None) for side in ("before", "after"))
            if before is not None and after is not None:
                recorded[call.feature, kind] = recorded.get((call.feature, kind), 0) + after - before
    rows = []
    for item in report.items:
        if change := item.change:
            cells = [f"+{part.added:,} -{part.removed:,}" for part in (change.code, change.tests)]
        else:
            numbers = (recorded.get((item.feature, kind)) for kind in ("code", "tests"))
            cells = ["-" if number is None else f"{number:+,}" for number in numbers]
        rows.append((item.feature, item.status, *cells))
    return Table(columns=columns("item", "status", ">code", ">tests"), rows=rows)
