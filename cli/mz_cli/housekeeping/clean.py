"""Commands `mz clean` and `mz erase`."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack
from pathlib import Path

import click
from filelock import FileLock, Timeout
from msgspec.structs import replace
from mz_engine.errors.diagnostics import MzError
from mz_engine.housekeeping.garbage import CollectedGarbage, collect_garbage
from mz_engine.housekeeping.leftovers import (
    NOT_REMOVABLE,
    CleanOptions,
    Leftover,
    LeftoverFinder,
    run_states,
    with_keep_reasons,
)
from mz_engine.paths import LOCK_FILE, LOG_FILE, MZ_FOLDER, PULL_REQUESTS_FOLDER, SPOOL_FOLDER
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.inbox import BlobErased
from mz_events.catalog.run import RunStarted
from mz_events.codec import cited_digests
from mz_events.names import Digest, erasure_stream

from mz_cli.app.context import ProjectLog, find_root, is_process_running, no_runs_error, open_log
from mz_cli.app.help import command, format_options
from mz_cli.app.input import may_ask, read_text_option
from mz_cli.people.inbox import store_text, store_user_name
from mz_cli.terminal.console import print_line, print_note
from mz_cli.terminal.json import Shape, print_document
from mz_cli.terminal.table import Table, columns, print_table, size_cell
from mz_cli.terminal.text import count_noun, format_size


class CleanResult(Shape, frozen=True, kw_only=True):
    """`mz clean --json`."""

    dry_run: bool
    """Nothing was removed; the list says what would be."""
    removed: tuple[Leftover, ...]
    kept: tuple[Leftover, ...]
    freed_bytes: int


COPIES = (SPOOL_FOLDER, PULL_REQUESTS_FOLDER, "rerecord")
"""Folders of `.mz` that may hold copies of blobs."""
APPEARED_LATER = "appeared after the confirmation"


@command(
    "clean",
    examples=(
        ("mz clean --dry-run", "leftovers of ended runs, and which would be removed or kept"),
        ("mz clean", "show leftovers, ask, and remove them"),
        ("mz clean --yes --all", "without asking, including texts of pull requests"),
        ("mz clean r4f1a2b3c --force", "one run, even if it did not end"),
        ("mz clean --blobs", "unused blobs and spools, without asking"),
    ),
    next_command="`mz status` shows which runs ended.",
)
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--all", "bodies", is_flag=True, help="Also remove texts of pull requests to be opened by hand.")
@click.option(
    "--force", is_flag=True, help="For named runs: also clean unfinished ones, and changes held nowhere else."
)
@click.option("--blobs", is_flag=True, help="Instead remove unused files below .mz; never asks.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@format_options("Print one object with the schema mz.clean/1, or mz.clean-blobs/1 with --blobs.")
def clean(
    runs: tuple[str, ...], bodies: bool, force: bool, blobs: bool, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Remove leftovers of ended runs, or unused files.

    Removes worktrees, captures, and spools of calls that were killed with mz. Everything of unfinished runs is kept, as
    are the log and all branches. A worktree with changes that no capture holds is kept and reported; files that git
    ignores do not count as changes. `mz retry` can resume a cleaned feature only until git collects the captured
    objects. RUN is a run's id or its beginning (default: all ended runs).

    With --blobs, removes blobs that no event cites, output of recorded agent calls, and files whose writer was killed,
    all older than 24 hours. The log is not changed. Runs can continue meanwhile.
    """
    if blobs:
        if runs or bodies or force:
            raise click.UsageError("--blobs cannot be combined with RUN, --all or --force")
        collect(dry_run, as_json)
        return
    if force and not runs:
        raise click.UsageError("--force requires RUN")
    confirms = not (yes or dry_run)
    with open_log() as log:
        source = LeftoverFinder(log.root, log.store)
        options = CleanOptions(runs=find_runs(log, source, runs), descriptions=bodies, force=force)
        if confirms and (as_json or not may_ask(os.environ)):
            raise click.UsageError("no terminal to ask on: use --yes or --dry-run")
        leftovers = find_leftovers(log, source, options, is_process_running(log.root))
        result = clean_result(leftovers, dry_run)
        is_preview = confirms or dry_run
        if is_preview and not as_json:
            print_result(result, "to remove")
        if result.removed and not dry_run:
            if confirms and not click.confirm(f"Remove {len(result.removed)} of these?", err=True):
                raise click.Abort
            result = clean_result(remove_leftovers(log, source, options, leftovers), dry_run)
    if as_json:
        print_document("clean", result)
    else:
        if not is_preview:
            print_result(result, "removed")
        for leftover in result.kept:
            if leftover.keep_reason == NOT_REMOVABLE:
                print_note(f"{leftover.name}: {NOT_REMOVABLE}")
        print_note(f"{'would free' if dry_run else 'freed'} {format_size(result.freed_bytes)}")


def find_runs(log: ProjectLog, source: LeftoverFinder, names: tuple[str, ...]) -> frozenset[str]:
    """Return the named runs, including runs with leftovers that are not in the log. Raises MzError (MZ5001)."""
    unlogged_runs = {leftover.run for leftover in source.find(())} if names else set()
    return frozenset(run if run in unlogged_runs else log.find_run(run) for run in names)


def find_leftovers(
    log: ProjectLog, source: LeftoverFinder, options: CleanOptions, process_running: bool
) -> tuple[Leftover, ...]:
    states_by_run = run_states(log.store, process_running)
    return with_keep_reasons(source.find(options.runs or states_by_run), states_by_run, options)


def remove_leftovers(
    log: ProjectLog, source: LeftoverFinder, options: CleanOptions, shown: tuple[Leftover, ...]
) -> tuple[Leftover, ...]:
    """Remove the leftovers that were shown and are still removable; return all leftovers, with what is kept."""
    names = {leftover.name for leftover in shown if leftover.keep_reason is None}
    with ExitStack() as stack:
        process_running = False
        try:  # Runs need this lock; a process that holds it only allows ended runs to be cleaned.
            stack.enter_context(FileLock(log.root / MZ_FOLDER / LOCK_FILE, timeout=0))
        except Timeout:
            process_running = True
        leftovers = tuple(
            leftover
            if leftover.keep_reason or leftover.name in names
            else replace(leftover, keep_reason=APPEARED_LATER)
            for leftover in find_leftovers(log, source, options, process_running)
        )
        return source.remove(leftovers)


def clean_result(leftovers: tuple[Leftover, ...], dry_run: bool) -> CleanResult:
    removed = tuple(leftover for leftover in leftovers if leftover.keep_reason is None)
    kept = tuple(leftover for leftover in leftovers if leftover.keep_reason is not None)
    freed_bytes = sum(leftover.size_bytes or 0 for leftover in removed)
    return CleanResult(dry_run=dry_run, removed=removed, kept=kept, freed_bytes=freed_bytes)


def print_result(result: CleanResult, removed_text: str) -> None:
    rows = tuple(
        (item.run, item.feature or "-", item.kind, size_cell(item.size_bytes), item.name,
         item.keep_reason or removed_text)
        for item in (*result.removed, *result.kept)
    )  # fmt: skip
    heads = columns("run", "feature", "kind", ">size|bytes", "*name", "~result")
    print_table(Table(columns=heads, rows=rows, empty="Nothing to clean."))


def collect(dry_run: bool, as_json: bool) -> None:
    """Remove unused files below .mz, and print what was removed. Raises MzError (MZ1003, MZ5001)."""
    mz_folder = find_root(Path.cwd()) / MZ_FOLDER
    if not (mz_folder / LOG_FILE).exists():
        raise no_runs_error()
    with SqliteStore(mz_folder / LOG_FILE, read_only=dry_run) as store:
        collected = collect_garbage(mz_folder, store, dry_run)
    if as_json:
        print_document("clean-blobs", collected)
    else:
        print_collected(collected)


def print_collected(result: CollectedGarbage) -> None:
    groups = (
        ("blobs", result.blobs, "cited by no event"),
        ("spools", result.spools, "call is recorded"),
        ("files", result.unfinished_files, "unfinished"),
    )
    rows = tuple((kind, str(group.count), size_cell(group.size_bytes), reason) for kind, group, reason in groups)
    print_table(Table(columns=columns("kind", ">count", ">size|bytes", "reason"), rows=rows))
    young = result.recent_blobs.count
    young_note = f", {young} of them younger than a day" if young else ""
    freed = f"{'would free' if result.dry_run else 'freed'} {format_size(result.freed_bytes)}"
    kept = result.kept_blobs.count
    print_note(f"{freed}; {count_noun(kept, 'blob')} kept{young_note}")


@command(
    "erase",
    examples=(('mz erase 6c5be217 --reason "a customer\'s address"', "by the beginning of its digest"),),
    next_command="`mz audit --full` and `mz show FEATURE` show digests; `mz audit --verify` checks the log afterwards.",
)
@click.argument("blob")
@click.option(
    "--reason", required=True, metavar="TEXT", help="Why; the log keeps it and shows it in place of the text."
)
def erase(blob: str, reason: str) -> None:
    """Erase a text that the log cites, and record that.

    Events keep the digest, so chains, seals and states stay as they are; whatever shows the text shows the reason.
    BLOB is a digest or its beginning. Only this text is erased: not others that quote it, such as prompts, and neither
    commits, branches, captures (refs/mz), worktrees nor cassettes.
    """
    runs, needed, why = dict[Digest, set[str]](), set[Digest](), read_text_option(reason, "the reason") or ""
    with open_log() as log:
        if is_process_running(log.root):
            raise MzError("MZ5002", "a process drives a run in this repository", hint="stop it first, with Ctrl-C")
        for recorded in log.store.read_all():
            needed |= {recorded.event.pins} if isinstance(recorded.event, RunStarted) else set()
            needed |= {recorded.event.reason} if isinstance(recorded.event, BlobErased) else set()
            for digest in cited_digests(recorded.event):
                if digest.startswith(blob):
                    runs.setdefault(digest, set()).add(recorded.stream.split("/")[1])
        if len(runs) != 1 or needed & runs.keys():
            hint = "name one; not the settings of a run, without which it cannot be read, nor the reason of an erasure"
            raise MzError("MZ1002", f"{blob[:64]!r} begins {len(runs)} digests that the log cites", hint=hint)
        ((digest, names),) = runs.items()
        data, text = log.blobs.get(digest), store_text(log, why)
        event = BlobErased(blob=digest, size_bytes=len(data), reason=text, actor=store_user_name(log))
        log.append(event, *map(erasure_stream, sorted(names)))
        log.blobs.erase(digest, log.load_text(text))
        for file in (file for folder in COPIES for file in (log.root / MZ_FOLDER / folder).rglob("*")):
            if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == digest:
                file.unlink()
    print_line(f"erased {digest} ({len(data)} bytes), cited by {', '.join(sorted(names))}")
