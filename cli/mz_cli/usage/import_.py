"""Command `mz import`."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from mz_engine.errors.diagnostics import Exit, MzError
from mz_engine.paths import LOG_FILE, MZ_FOLDER, user_data_directory
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.store import Append
from mz_projections.imported.runs import imported_runs, imported_stream
from mz_recordings.importing.histories import SYSTEMS, HistoryFiles, imported_history
from mz_recordings.importing.importer import UNKNOWN_MODEL, Busy, ImportProgress, ImportResult, import_files
from mz_recordings.importing.scan import session_directories

from mz_cli.app.context import find_root
from mz_cli.app.help import command, format_options
from mz_cli.common.run_text import INCOMPLETE_TOKENS
from mz_cli.terminal.console import print_line, print_note
from mz_cli.terminal.json import Shape, plain_value, print_document, shape_of
from mz_cli.terminal.table import Table, columns, print_output, print_table, prints_tsv
from mz_cli.terminal.text import count_noun, format_size, rounded_usd

AGENTS = "Claude Code, Codex, Gemini and Qwen Code"
"""Agents whose sessions are found without a PATH."""
STATES = ("unchanged", "new")
PROGRESS_SECONDS = 2.0
"""Interval of progress messages: quick imports are silent."""


class HistoryRun(Shape, frozen=True, kw_only=True):
    run: str
    """Its name here: the system, and its name there."""
    status: str | None
    items: int
    calls: int
    damaged: int
    """Files, lines and records that could not be read."""
    is_new: bool
    """False: it was here already, with the same content."""


class HistoryResult(Shape, frozen=True, kw_only=True):
    """`mz import mage --json`, `mz import monozukuri --json`."""

    system: str
    runs: tuple[HistoryRun, ...]
    damaged: tuple[str, ...]
    """What could not be read, relative to its folder, with the line where there is one."""


@command(
    "import",
    examples=(
        ("mz import", f"the sessions of {AGENTS} on this machine"),
        ("mz import ~/backup/projects run.jsonl", "other directories and files"),
        ("mz import mage ~/src/app", "the generations of Mage in a repository, into the log of this one, as runs"),
        ("mz import monozukuri ~/src/app", "the runs of Monozukuri, likewise"),
        ("mz import --json | jq .new_requests", "for programs; repeated imports count nothing twice"),
    ),
    next_command="`mz cost --imported --by day` shows their cost; `mz audit --imported` the evidence.",
)
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[mage|monozukuri] [PATH]...")
@format_options("Print one object: mz.import/1, or mz.import-history/1.")
def import_(paths: tuple[str, ...], as_json: bool) -> int:
    """Import agents' own session files.

    Reads streams and session files of all supported agents, whatever their names, and records of Monozukuri and Mage,
    two other tools that drive agents; without PATH, from the session folders of Claude Code, Codex, Gemini and Qwen
    Code. New data goes into your user log, outside of any repository: tokens, times, models and tool names, but no text
    that anybody wrote. Each request counts once, even if several files contain it. Reading continues where the last
    import stopped, and unchanged files are not opened. Exits with 1 if a file could not be read.

    After `mage` or `monozukuri`, each PATH is a folder of that system (default: this repository). Its history goes into
    the log of this repository, as runs that `mz runs`, `mz cost RUN` and `mz stats RUN` show.
    """
    if paths and paths[0] in SYSTEMS:
        return import_histories(paths[0], [Path(path).absolute() for path in paths[1:]], as_json=as_json)
    folder = user_data_directory(os.environ)
    if "" in paths:
        raise click.UsageError("a PATH is empty; is a variable not set?")
    sources = tuple(Path(path).absolute() for path in paths)
    sources = sources or tuple(filter(may_exist, session_directories(Path.home(), os.environ)))
    if sources and not any(map(may_exist, sources)):
        raise click.UsageError(f"{sources[0]} does not exist")
    result = _import(folder, sources)
    if as_json:
        print_document("import", result)
    else:
        print_result(result, nothing_to_import=not sources)
    return int(Exit.VERDICT if result.unreadable or result.unknown_format else Exit.OK)


def import_histories(system: str, folders: Sequence[Path], *, as_json: bool) -> int:
    """Import the history in each folder into the log of this repository. Raises MzError (MZ1002)."""
    root = find_root(Path.cwd())
    rows, damaged = list[HistoryRun](), list[str]()
    for folder in folders or (root,):
        files = HistoryFiles(folder)
        runs = imported_history(files, system) if folder.is_dir() else ()
        if not runs:
            problem = f"no history of {system} in {folder}" if folder.is_dir() else f"{folder} is not a folder"
            raise MzError("MZ1002", problem, hint="name the repository in which it worked; see docs/import.md")
        (root / MZ_FOLDER).mkdir(exist_ok=True)
        (root / MZ_FOLDER / ".gitignore").write_text("*\n")
        with SqliteStore(root / MZ_FOLDER / LOG_FILE) as store:
            new = [run for run in runs if run not in imported_runs(store, run.run)]
            store.append([Append(imported_stream(run.run), None, (run,)) for run in new], time.time_ns() // 1000)
        for run in runs:
            rows.append(shape_of(HistoryRun, run, items=len(run.items), calls=len(run.records), is_new=run in new))
        damaged += files.damaged
    heads = columns("run", "status", ">items", ">calls", ">damaged", "import")
    numbers = [tuple(map(str, (row.items, row.calls, row.damaged))) for row in rows]
    cells = [(row.run, row.status or "-", *numbers[at], STATES[row.is_new]) for at, row in enumerate(rows)]
    result = HistoryResult(system=system, runs=tuple(rows), damaged=tuple(damaged))
    notes = (f"not read: {path}" for path in damaged)
    print_output(as_json, "import-history", result, Table(columns=heads, rows=cells), notes)
    return int(Exit.VERDICT if damaged else Exit.OK)


def may_exist(path: Path) -> bool:
    """Return False only for a path that certainly does not exist; reading an inaccessible one reports the reason."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _import(folder: Path, paths: Sequence[Path]) -> ImportResult:
    """Import the files. Raises MzError (MZ5012) while another process imports."""
    from mz_engine.pricing.table import GenaiPrices, user_prices

    prices = GenaiPrices(user_prices(os.environ))
    gc.disable()  # What an import makes has no cycles; looking for some would take a tenth of its time.
    try:
        return import_files(folder, prices.price_entry, prices.table, paths, progress_printer())
    except Busy:
        raise MzError(
            "MZ5012", f"another process is importing into {folder}", hint="wait until it ends, then import again"
        ) from None
    finally:
        gc.enable()


def progress_printer() -> Callable[[ImportProgress], None]:
    """Return a callback that prints the progress at intervals."""
    last_s = time.monotonic()

    def print_progress(progress: ImportProgress) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= PROGRESS_SECONDS:
            last_s = time.monotonic()
            files = f"{progress.files_done:,} of {count_noun(progress.files_total, 'file')}"
            print_note(f"{files}, {format_size(progress.bytes_done)} of {format_size(progress.bytes_total)}")

    return print_progress


def print_result(result: ImportResult, *, nothing_to_import: bool) -> None:
    """Print sentences on a terminal, counts for a pipe, and problems on stderr."""
    if not prints_tsv(sys.stdout):
        print_line(*sentences(result))
    else:
        rows = [(name, str(value)) for name, value in plain_value(result).items() if not isinstance(value, list)]
        rows.remove(("log", result.log))
        print_table(Table(columns=columns("count", ">number"), rows=tuple(rows), empty=""))
    if nothing_to_import:
        print_note(f"nothing to import: no sessions of {AGENTS} here; name files or directories")
    print_note(*(f"not read: {file.path}: {file.reason}" for file in result.unreadable))
    print_note(*(f"not read: {file.path} {file.reason}" for file in result.unknown_format))
    for model in result.unpriced:
        excluded = f"{count_noun(model.requests, 'request')} not in the total"
        reason = "unknown model" if model.model == UNKNOWN_MODEL else f"no price for {model.model}"
        print_note(f"{reason}: {excluded}")
    if result.skipped_paths:
        omitted = result.skipped_files - len(result.skipped_paths)
        first_paths = ", ".join(result.skipped_paths) + (f" and {omitted:,} more" if omitted else "")
        print_note(f"skipped, unsupported format: {first_paths}")
    if result.incomplete_sessions:
        incomplete = count_noun(result.incomplete_sessions, "session")
        print_note(f"{incomplete} {INCOMPLETE_TOKENS}; list them with: mz audit --imported")
    if result.undated_requests:
        print_note(f"{count_noun(result.undated_requests, 'request')} without a timestamp, dated by the file's time")
    if result.future_dated_requests:
        future_dated = count_noun(result.future_dated_requests, "request")
        print_note(f"{future_dated} dated in the future (wrong clock), counted unchanged")


def sentences(result: ImportResult) -> tuple[str, ...]:
    read = f"{count_noun(result.files_read, 'file')} read, {result.unchanged_files:,} unchanged"
    if result.skipped_files:
        read += f", {result.skipped_files:,} skipped (unsupported format)"
    undecodable = f", {count_noun(result.undecodable_lines, 'undecodable line')}" if result.undecodable_lines else ""
    new_requests = count_noun(result.new_requests, "new request")
    reconciled = result.reconciled_requests
    from_totals = f", {reconciled:+,} from totals at the ends of files" if reconciled else ""
    return (
        f"{read}: {count_noun(result.sessions, 'session')}, {format_size(result.bytes_read)}, "
        f"{count_noun(result.lines, 'line')}{undecodable}",
        f"{new_requests}, {result.already_counted_requests:,} already counted, "
        f"{result.corrected_requests:,} corrected{from_totals}: "
        f"{rounded_usd(result.computed_nanousd)} at the prices of their days",
    )
