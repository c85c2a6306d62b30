"""Adapter: `mz gc`."""

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
        ("mz gc --dry-run", "what would go, and how much that frees"),
        ("mz gc", "let it go"),
        ("mz gc --json | jq .freed_bytes", "for programs"),
    ),
    following="`mz clean` removes what ended runs left: worktrees, captures.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.gc/1.")
def gc(dry_run: bool, as_json: bool) -> None:
    """Free space below .mz that nothing needs any more.

    Blobs that no event cites, output of agent calls that are recorded, and files whose writer was killed, all older
    than 24 hours. The log stays as it is. Runs may go on meanwhile.
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
    """A pipe gets exact numbers of bytes."""
    whole = not is_terminal(sys.stdout)
    heaps = (
        ("blobs", result.blobs, "no event cites them"),
        ("spools", result.spools, "their calls are recorded"),
        ("files", result.files, "never finished"),
    )
    rows = tuple(
        (kind, str(heap.count), str(heap.bytes) if whole else size(heap.bytes), why) for kind, heap, why in heaps
    )
    show(Table(columns=columns("what", ">count", ">bytes" if whole else ">size", "why"), rows=rows, empty=""))
    young = result.young_blobs.count
    because = f", {young} of them because they are younger than a day" if young else ""
    freed = f"{'would free' if result.dry_run else 'freed'} {size(result.freed_bytes)}"
    kept = result.kept_blobs.count
    note(f"{freed}; {counted(kept, 'blob')} {'stays' if kept == 1 else 'stay'}{because}")
