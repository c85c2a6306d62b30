"""Command `mz gc`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from mz_engine.adapters.collect import Collected, Heap, collect
from mz_engine.home import HOME, LOG
from mz_events.adapters.sqlite import SqliteStore

from mz_cli.context import find_home, nothing_ran
from mz_cli.help import command
from mz_cli.render.console import is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.table import Table, columns
from mz_cli.render.text import counted, size
from mz_cli.shapes.housekeeping import GcResult, HeapShape


@command(
    "gc",
    examples=(
        ("mz gc --dry-run", "what would be removed, and the space it frees"),
        ("mz gc", "remove it"),
        ("mz gc --json | jq .freed_bytes", "for programs"),
    ),
    following="`mz clean` removes leftovers of ended runs: worktrees, captures.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.gc/1.")
def gc(dry_run: bool, as_json: bool) -> None:
    """Remove unused files below .mz.

    Removes blobs that no event cites, output of recorded agent calls, and files whose writer was killed, all older
    than 24 hours. The log is not changed. Runs can continue meanwhile.
    """
    home = find_home(Path.cwd()) / HOME
    if not (home / LOG).exists():
        raise nothing_ran()
    with SqliteStore(home / LOG, read_only=dry_run) as store:
        done = collect(home, store, dry_run)
    result = result_of(done, dry_run)
    show_document("gc", result) if as_json else tell(result)


def result_of(done: Collected, dry_run: bool) -> GcResult:
    return GcResult(
        dry_run=dry_run,
        blobs=shape(done.blobs),
        spools=shape(done.spools),
        files=shape(done.files),
        freed_bytes=done.blobs.size_bytes + done.spools.size_bytes + done.files.size_bytes,
        kept_blobs=shape(done.kept),
        young_blobs=shape(done.young),
    )


def shape(heap: Heap) -> HeapShape:
    return HeapShape(count=heap.count, bytes=heap.size_bytes)


def tell(result: GcResult) -> None:
    """Print the result; for a pipe with exact numbers of bytes."""
    whole = not is_terminal(sys.stdout)
    heaps = (
        ("blobs", result.blobs, "cited by no event"),
        ("spools", result.spools, "call is recorded"),
        ("files", result.files, "unfinished"),
    )
    rows = tuple(
        (kind, str(heap.count), str(heap.bytes) if whole else size(heap.bytes), why) for kind, heap, why in heaps
    )
    show(Table(columns=columns("kind", ">count", ">bytes" if whole else ">size", "reason"), rows=rows, empty=""))
    young = result.young_blobs.count
    young_note = f", {young} of them younger than a day" if young else ""
    freed = f"{'would free' if result.dry_run else 'freed'} {size(result.freed_bytes)}"
    kept = result.kept_blobs.count
    note(f"{freed}; {counted(kept, 'blob')} kept{young_note}")
