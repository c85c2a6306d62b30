"""Command `mz import`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from mz_engine.errors import MzError
from mz_engine.exits import Exit
from mz_recordings.importing.importer import Busy, Importer, Outcome, Progress
from mz_recordings.importing.scan import Unreadable, known_places

from mz_cli.help import command
from mz_cli.render.console import answer, is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.table import Table, columns
from mz_cli.render.text import counted, money, size, usd
from mz_cli.shapes.imported import ImportResult, UnpricedModel, UnreadFile
from mz_cli.summary import FEWER
from mz_cli.userlog import data_home

NOT_TOLD = "unknown"
AGENTS = "Claude Code, Codex, Gemini and Qwen Code"
"""Agents whose sessions are found without a PATH."""
PATIENCE_SECONDS = 2.0
"""Interval of progress messages: quick imports are silent."""


@command(
    "import",
    examples=(
        ("mz import", f"the sessions of {AGENTS} on this machine"),
        ("mz import ~/backup/projects run.jsonl", "other directories and files"),
        ("mz import --json | jq .requests_new", "for programs; repeated imports count nothing twice"),
    ),
    following="`mz cost --imported --by day` shows their cost; `mz audit --imported` the evidence.",
)
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.import/1.")
@click.pass_context
def import_(context: click.Context, paths: tuple[str, ...], as_json: bool) -> int:
    """Import agents' own session files.

    Reads streams and session files of all supported agents, whatever their names, and recordings of Monozukuri and
    Mage; without PATH, from the session folders of Claude Code, Codex, Gemini and Qwen Code. New data goes into your
    user log, outside of any repository: tokens, times, models and tool names, but no text that anybody wrote. Each
    request counts once, even if several files contain it. Reading continues where the last import stopped, and
    unchanged files are not opened. Exits with 1 if a file could not be read.
    """
    home = data_home(os.environ)
    if "" in paths:
        raise click.UsageError("a PATH is empty; is a variable not set?", context)
    chosen = tuple(Path(each).absolute() for each in paths) or existing(known_places(Path.home(), os.environ))
    if chosen and not any(map(is_there, chosen)):
        raise click.UsageError(f"{chosen[0]} does not exist", context)
    outcome = run(home, chosen)
    result = result_of(outcome, home)
    if as_json:
        show_document("import", result)
    else:
        tell(result, nothing=not chosen)
    return int(Exit.VERDICT if outcome.unreadable or outcome.unknown else Exit.OK)


def existing(places: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(each for each in places if is_there(each))


def is_there(path: Path) -> bool:
    """Return False only for a path that certainly does not exist; reading an inaccessible one reports the reason."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def run(home: Path, paths: Sequence[Path]) -> Outcome:
    """Import the files. Raises MzError (MZ5012) while another process imports."""
    from mz_engine.adapters.pricefile import user_prices
    from mz_engine.adapters.prices import GenaiPrices

    prices = GenaiPrices(user_prices(os.environ))
    try:
        return Importer(home, prices.entry, prices.table).run(paths, patient())
    except Busy:
        raise MzError(
            "MZ5012", f"another process is importing into {home}", hint="wait until it ends, then import again"
        ) from None


def patient() -> Callable[[Progress], None]:
    """Return a callback that prints the progress at intervals."""
    last_s = time.monotonic()

    def print_progress(progress: Progress) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= PATIENCE_SECONDS:
            last_s = time.monotonic()
            files = f"{progress.files:,} of {counted(progress.of_files, 'file')}"
            note(f"{files}, {size(progress.bytes)} of {size(progress.of_bytes)}")

    return print_progress


def result_of(outcome: Outcome, home: Path) -> ImportResult:
    tally = outcome.tally
    unpriced = sorted(tally.unpriced.items(), key=lambda each: -each[1])
    return ImportResult(
        log=str(home), files=outcome.files, files_read=outcome.read, files_unchanged=outcome.untouched,
        files_passed_over=outcome.passed_over, unknown=unread(outcome.unknown), unreadable=unread(outcome.unreadable),
        sessions=outcome.sessions, sessions_short=outcome.short, bytes_read=outcome.bytes, lines=outcome.lines,
        bad_lines=outcome.bad,
        requests_new=tally.new, requests_known=tally.known, requests_corrected=tally.corrected,
        requests_settled=tally.settled, passed_over=outcome.passed_names,
        requests_undated=tally.undated, requests_ahead=tally.ahead, computed_usd=usd(tally.nanousd) or "0.00",
        unpriced=tuple(
            UnpricedModel(model=model or NOT_TOLD, requests=number) for model, number in unpriced if number > 0
        ),
    )  # fmt: skip


def unread(files: Sequence[Unreadable]) -> tuple[UnreadFile, ...]:
    return tuple(UnreadFile(path=each.path, why=each.why) for each in files)


def tell(result: ImportResult, *, nothing: bool) -> None:
    """Print sentences on a terminal, counts for a pipe, and problems on stderr."""
    if is_terminal(sys.stdout):
        for line in sentences(result):
            answer(line)
    else:
        names = ("files", "files_read", "files_unchanged", "files_passed_over", "sessions", "sessions_short",
                 "bytes_read", "lines", "bad_lines", "requests_new", "requests_known", "requests_corrected",
                 "requests_settled", "computed_usd")  # fmt: skip
        rows = tuple((name, str(getattr(result, name))) for name in names)
        show(Table(columns=columns("count", ">number"), rows=rows, empty=""))
    if nothing:
        note(f"nothing to import: no sessions of {AGENTS} here; name files or directories")
    for each in result.unreadable:
        note(f"not read: {each.path}: {each.why}")
    for each in result.unknown:
        note(f"not read: {each.path} {each.why}")
    for model in result.unpriced:
        excluded = f"{counted(model.requests, 'request')} not in the total"
        reason = "unknown model" if model.model == NOT_TOLD else f"no price for {model.model}"
        note(f"{reason}: {excluded}")
    if result.passed_over:
        more = result.files_passed_over - len(result.passed_over)
        first = ", ".join(result.passed_over) + (f" and {more:,} more" if more else "")
        note(f"skipped, unsupported format: {first}")
    if result.sessions_short:
        note(f"{counted(result.sessions_short, 'session')} {FEWER}; list them with: mz audit --imported")
    if result.requests_undated:
        note(f"{counted(result.requests_undated, 'request')} without a timestamp, dated by the file's time")
    if result.requests_ahead:
        note(f"{counted(result.requests_ahead, 'request')} dated in the future (wrong clock), counted unchanged")


def sentences(result: ImportResult) -> tuple[str, ...]:
    read = f"{counted(result.files_read, 'file')} read, {result.files_unchanged:,} unchanged"
    if result.files_passed_over:
        read += f", {result.files_passed_over:,} skipped (unsupported format)"
    bad = f", {counted(result.bad_lines, 'bad line')}" if result.bad_lines else ""
    new = counted(result.requests_new, "new request")
    settled = f", {result.requests_settled:+,} from totals at the ends of files" if result.requests_settled else ""
    return (
        f"{read}: {counted(result.sessions, 'session')}, {size(result.bytes_read)}, "
        f"{counted(result.lines, 'line')}{bad}",
        f"{new}, {result.requests_known:,} already counted, {result.requests_corrected:,} corrected{settled}: "
        f"{signed(result.computed_usd)} at the prices of their days",
    )


def signed(amount: str) -> str:
    """Return the amount as text; corrections can make it negative."""
    from mz_cli.render.text import nanousd_of

    negative = amount.startswith("-")
    return f"{'-' if negative else ''}{money(nanousd_of(amount.removeprefix('-')))}"
