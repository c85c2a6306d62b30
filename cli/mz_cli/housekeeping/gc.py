"""`mz clean --blobs`: remove unused files below .mz."""

from __future__ import annotations

import sys
from pathlib import Path

from mz_engine.housekeeping.garbage import BlobGroup, CollectedGarbage, collect_garbage
from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_events.adapters.sqlite_log import SqliteStore

from mz_cli.app.context import find_home, no_runs_error
from mz_cli.housekeeping.json import CountAndSize, GcResult
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import print_document
from mz_cli.terminal.table import Table, columns, print_table, prints_tsv
from mz_cli.terminal.text import count_noun, format_size


def collect(dry_run: bool, as_json: bool) -> None:
    """Remove unused files below .mz: blobs that no event cites, output of recorded agent calls, and files whose writer
    was killed, all older than 24 hours."""
    home = find_home(Path.cwd()) / MZ_FOLDER
    if not (home / LOG_FILE).exists():
        raise no_runs_error()
    with SqliteStore(home / LOG_FILE, read_only=dry_run) as store:
        collected = collect_garbage(home, store, dry_run)
    result = gc_result(collected, dry_run)
    print_document("gc", result) if as_json else print_result(result)


def gc_result(collected: CollectedGarbage, dry_run: bool) -> GcResult:
    return GcResult(
        dry_run=dry_run,
        blobs=count_and_size(collected.blobs),
        spools=count_and_size(collected.spools),
        files=count_and_size(collected.unfinished_files),
        freed_bytes=collected.blobs.size_bytes + collected.spools.size_bytes + collected.unfinished_files.size_bytes,
        kept_blobs=count_and_size(collected.kept_blobs),
        young_blobs=count_and_size(collected.recent_blobs),
    )


def count_and_size(group: BlobGroup) -> CountAndSize:
    return CountAndSize(count=group.count, bytes=group.size_bytes)


def print_result(result: GcResult) -> None:
    """Print the result; for a pipe with exact numbers of bytes."""
    exact = prints_tsv(sys.stdout)
    groups = (
        ("blobs", result.blobs, "cited by no event"),
        ("spools", result.spools, "call is recorded"),
        ("files", result.files, "unfinished"),
    )
    rows = tuple(
        (kind, str(group.count), str(group.bytes) if exact else format_size(group.bytes), reason)
        for kind, group, reason in groups
    )
    print_table(Table(columns=columns("kind", ">count", ">bytes" if exact else ">size", "reason"), rows=rows, empty=""))
    young = result.young_blobs.count
    young_note = f", {young} of them younger than a day" if young else ""
    freed = f"{'would free' if result.dry_run else 'freed'} {format_size(result.freed_bytes)}"
    kept = result.kept_blobs.count
    print_note(f"{freed}; {count_noun(kept, 'blob')} kept{young_note}")
