"""Command `mz clean`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from filelock import FileLock, Timeout
from msgspec.structs import replace
from mz_engine.adapters.leftovers import Leftovers, standings
from mz_engine.cleaning import STUCK, Asked, Leftover, judge
from mz_engine.home import HOME, LOCK

from mz_cli.asking import may_ask
from mz_cli.context import Reading, is_held, reading
from mz_cli.help import command
from mz_cli.render.console import is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.table import Table, columns
from mz_cli.render.text import size
from mz_cli.shapes.housekeeping import CleanResult, LeftoverShape

GOES = "removed"
NEW = "appeared after the confirmation"


@command(
    "clean",
    examples=(
        ("mz clean --dry-run", "leftovers of ended runs, and which would be removed or kept"),
        ("mz clean", "show leftovers, ask, and remove them"),
        ("mz clean --yes --all", "without asking, including texts of pull requests"),
        ("mz clean r4f1a2b3c --force", "one run, even if it did not end"),
    ),
    following="`mz gc` removes unused blobs.",
)
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--all", "bodies", is_flag=True, help="Also remove texts of pull requests to be opened by hand.")
@click.option(
    "--force", is_flag=True, help="For named runs: also clean unfinished ones, and changes held nowhere else."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.clean/1.")
@click.pass_context
def clean(
    context: click.Context, runs: tuple[str, ...], bodies: bool, force: bool, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Remove leftovers of ended runs: worktrees, captures, spools.

    Also removes temporary directories of calls that were killed with mz, even of unfinished runs. Everything else of
    unfinished runs is kept, as are the log and all branches. A worktree with changes that no capture holds is kept and
    reported; files that git ignores do not count as changes. `mz retry` can resume a cleaned feature only until git
    collects the captured objects. RUN is a run's id or its beginning (default: all ended runs).
    """
    if force and not runs:
        raise click.UsageError("--force requires RUN", context)
    asks = not (yes or dry_run)
    with reading() as log:
        source = Leftovers(log.home, log.store)
        asked = Asked(runs=find_runs(log, source, runs), bodies=bodies, force=force)
        if asks and (as_json or not may_ask(os.environ)):
            raise click.UsageError("no terminal to ask on: use --yes or --dry-run", context)
        found = look(log, source, asked, is_held(log.home))
        result = result_of(found, dry_run)
        if not as_json:
            tell(result)
        if result.removed and not dry_run:
            if asks and not click.confirm(f"Remove {len(result.removed)} of these?", err=True):
                raise click.Abort
            result = result_of(removed(log, source, asked, found), dry_run)
    if as_json:
        show_document("clean", result)
    else:
        for each in result.stays:
            if each.stays == STUCK:
                note(f"{each.name}: {STUCK}")
        note(f"{'would free' if dry_run else 'freed'} {size(result.freed_bytes)}")


def find_runs(log: Reading, source: Leftovers, named: tuple[str, ...]) -> frozenset[str]:
    """Return the named runs, including runs with leftovers that are not in the log. Raises MzError (MZ5001)."""
    strangers = {each.run for each in source.find(())} if named else set()
    return frozenset(run if run in strangers else log.find_run(run) for run in named)


def look(log: Reading, source: Leftovers, asked: Asked, held: bool) -> tuple[Leftover, ...]:
    known = standings(log.store, held)
    return judge(source.find(asked.runs or known), known, asked)


def removed(log: Reading, source: Leftovers, asked: Asked, shown: tuple[Leftover, ...]) -> tuple[Leftover, ...]:
    """Remove the leftovers that were shown and are still removable; return all leftovers, with what is kept."""
    names = {each.name for each in shown if each.stays is None}
    with quiet(log.home) as held:
        found = tuple(
            each if each.stays or each.name in names else replace(each, stays=NEW)
            for each in look(log, source, asked, held)
        )
        return source.remove(found)


@contextmanager
def quiet(home: Path) -> Iterator[bool]:
    """Hold the lock that runs need; yield True if a running process holds it already, which only allows ended runs."""
    lock = FileLock(home / HOME / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield True
        return
    try:
        yield False
    finally:
        lock.release()


def result_of(found: tuple[Leftover, ...], dry_run: bool) -> CleanResult:
    going = tuple(shape(each) for each in found if each.stays is None)
    return CleanResult(
        dry_run=dry_run,
        removed=going,
        stays=tuple(shape(each) for each in found if each.stays is not None),
        freed_bytes=sum(each.bytes or 0 for each in going),
    )


def shape(each: Leftover) -> LeftoverShape:
    return LeftoverShape(
        kind=each.kind, run=each.run, feature=each.feature, name=each.name, bytes=each.size_bytes, stays=each.stays
    )


def tell(result: CleanResult) -> None:
    """Print a row per run and kind on a terminal, or per leftover with exact bytes for a pipe."""
    leftovers = (*result.removed, *result.stays)
    if is_terminal(sys.stdout):
        heads, rows = columns("*run", "*kind", ">count", ">size", "features", "result"), grouped(leftovers)
    else:
        heads, rows = columns("run", "feature", "kind", ">bytes", "name", "result"), every(leftovers)
    show(Table(columns=heads, rows=rows, empty="Nothing to clean."))


def every(leftovers: Sequence[LeftoverShape]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (each.run, each.feature or "-", each.kind, "-" if each.bytes is None else str(each.bytes), each.name,
         each.stays or GOES)
        for each in leftovers
    )  # fmt: skip


def grouped(leftovers: Sequence[LeftoverShape]) -> tuple[tuple[str, ...], ...]:
    """Return one row per run, kind and result."""
    groups: dict[tuple[str, str, str], list[LeftoverShape]] = {}
    for each in leftovers:
        groups.setdefault((each.run, each.kind, each.stays or GOES), []).append(each)
    return tuple(
        (run, kind, str(len(group)), total(group), " ".join(names_of(group)), fate)
        for (run, kind, fate), group in groups.items()
    )


def total(group: Sequence[LeftoverShape]) -> str:
    known = [each.bytes for each in group if each.bytes is not None]
    return size(sum(known)) if known else "-"


def names_of(group: Sequence[LeftoverShape]) -> Iterator[str]:
    """Yield distinct features; for a leftover without one, its name."""
    yield from dict.fromkeys(each.feature or each.name for each in group)
