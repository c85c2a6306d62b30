"""Adapter: `mz clean`."""

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

GOES = "goes"
NEW = "it came after it was asked about"


@command(
    "clean",
    examples=(
        ("mz clean --dry-run", "what ended runs left, what of it would go, and why the rest stays"),
        ("mz clean", "show it, ask, and remove it"),
        ("mz clean --yes --all", "without asking, and the texts of pull requests too"),
        ("mz clean r4f1a2b3c --force", "one run, also when it did not end"),
    ),
    following="`mz gc` frees the space of blobs that nothing needs.",
)
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--all", "bodies", is_flag=True, help="Texts of pull requests to be opened by hand, too.")
@click.option("--force", is_flag=True, help="For the runs named: also unfinished ones, and what nothing else holds.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.clean/1.")
@click.pass_context
def clean(
    context: click.Context, runs: tuple[str, ...], bodies: bool, force: bool, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Remove what ended runs left: worktrees, captures, spools.

    Also the temporary directories of calls that were killed with mz, even of a run that is not finished: a call begins
    with an empty one. Everything else of such a run stays, and so do the log and all branches. A worktree with changes
    that no capture holds is spared and named; files that git ignores are not spared. `mz retry` can take a cleaned
    feature up again only until git collects what the captures held. RUN is a run's id or the beginning of one; without
    it, all runs that ended are meant.
    """
    if force and not runs:
        raise click.UsageError("--force is for runs that are named", context)
    asks = not (yes or dry_run)
    with reading() as log:
        source = Leftovers(log.home, log.store)
        asked = Asked(runs=find_runs(log, source, runs), bodies=bodies, force=force)
        if asks and (as_json or not may_ask(os.environ)):
            raise click.UsageError("there is no terminal to ask at: say --yes, or look with --dry-run", context)
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
    """The runs that are named; also those that left something and are not in the log. Raises MzError (MZ5001)."""
    strangers = {each.run for each in source.find(())} if named else set()
    return frozenset(run if run in strangers else log.find_run(run) for run in named)


def look(log: Reading, source: Leftovers, asked: Asked, held: bool) -> tuple[Leftover, ...]:
    known = standings(log.store, held)
    return judge(source.find(asked.runs or known), known, asked)


def removed(log: Reading, source: Leftovers, asked: Asked, shown: tuple[Leftover, ...]) -> tuple[Leftover, ...]:
    """Removes what may still go and was shown; answers with all that was looked at, and what is still there stays."""
    names = {each.name for each in shown if each.stays is None}
    with quiet(log.home) as held:
        found = tuple(
            each if each.stays or each.name in names else replace(each, stays=NEW)
            for each in look(log, source, asked, held)
        )
        return source.remove(found)


@contextmanager
def quiet(home: Path) -> Iterator[bool]:
    """Keeps runs from beginning meanwhile; says whether one is at work already: ended ones can be cleaned beside it."""
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
    """A pipe gets every leftover, in exact numbers of bytes; a terminal gets those of a kind together."""
    leftovers = (*result.removed, *result.stays)
    if is_terminal(sys.stdout):
        heads, rows = columns("*run", "*what", ">count", ">size", "features", "goes or stays"), grouped(leftovers)
    else:
        heads, rows = columns("run", "feature", "what", ">bytes", "name", "goes or stays"), every(leftovers)
    show(Table(columns=heads, rows=rows, empty="There is nothing to clean."))


def every(leftovers: Sequence[LeftoverShape]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (each.run, each.feature or "-", each.kind, "-" if each.bytes is None else str(each.bytes), each.name,
         each.stays or GOES)
        for each in leftovers
    )  # fmt: skip


def grouped(leftovers: Sequence[LeftoverShape]) -> tuple[tuple[str, ...], ...]:
    """One row for those of one run and kind with the same fate."""
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
    """Features, each once; the whole name of what belongs to none."""
    yield from dict.fromkeys(each.feature or each.name for each in group)
