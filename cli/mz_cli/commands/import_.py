"""Adapter: `mz import`."""

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

NOT_TOLD = "not told"
AGENTS = "Claude Code, Codex, Gemini and Qwen Code"
"""Whose sessions are found by themselves."""
PATIENCE_SECONDS = 2.0
"""Between two words on how far it is: quick imports are silent."""


@command(
    "import",
    examples=(
        ("mz import", f"the sessions of {AGENTS} on this machine"),
        ("mz import ~/backup/projects run.jsonl", "other directories and files"),
        ("mz import --json | jq .requests_new", "for programs; run it as often as you like"),
    ),
    following="`mz cost --imported --by day` shows what they came to; `mz audit --imported` where it comes from.",
)
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.import/1.")
@click.pass_context
def import_(context: click.Context, paths: tuple[str, ...], as_json: bool) -> int:
    """Take in what agents did without mz, from their own session files.

    Reads streams and session files of the agents that mz knows, whatever they are called, and what Monozukuri and Mage
    recorded; without PATH, where Claude Code, Codex, Gemini and Qwen Code keep their sessions. What is new goes into
    your own log, outside of any repository: tokens, times, models, names of tools, but no word that anybody wrote. Each
    request counts once, however many files tell of it. Files are read on from where they were left, and those that did
    not change are not opened. Ends with 1 where something could not be read.
    """
    home = data_home(os.environ)
    if "" in paths:
        raise click.UsageError("a PATH is empty: a variable without a value?", context)
    chosen = tuple(Path(each).absolute() for each in paths) or existing(known_places(Path.home(), os.environ))
    if chosen and not any(map(is_there, chosen)):
        raise click.UsageError(f"there is no {chosen[0]}", context)
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
    """What cannot be looked at may be there: reading it says why it cannot be."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def run(home: Path, paths: Sequence[Path]) -> Outcome:
    """Raises MzError (MZ5012) while another process imports."""
    from mz_engine.adapters.pricefile import user_prices
    from mz_engine.adapters.prices import GenaiPrices

    prices = GenaiPrices(user_prices(os.environ))
    try:
        return Importer(home, prices.entry, prices.table).run(paths, patient())
    except Busy:
        raise MzError(
            "MZ5012", f"another process imports into {home}", hint="wait for it; what it reads need not be read again"
        ) from None


def patient() -> Callable[[Progress], None]:
    """Says how far it is, now and then."""
    last = time.monotonic()

    def say(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= PATIENCE_SECONDS:
            last = time.monotonic()
            of = f"{progress.files:,} of {counted(progress.of_files, 'file')}"
            note(f"{of}, {size(progress.bytes)} of {size(progress.of_bytes)}")

    return say


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
    """A pipe gets what was counted, line by line; a terminal sentences. What went wrong goes beside it."""
    if is_terminal(sys.stdout):
        for line in sentences(result):
            answer(line)
    else:
        names = ("files", "files_read", "files_unchanged", "files_passed_over", "sessions", "sessions_short",
                 "bytes_read", "lines", "bad_lines", "requests_new", "requests_known", "requests_corrected",
                 "requests_settled", "computed_usd")  # fmt: skip
        rows = tuple((name, str(getattr(result, name))) for name in names)
        show(Table(columns=columns("what", ">number"), rows=rows, empty=""))
    if nothing:
        note(f"nothing to import: {AGENTS} have no sessions here; name files or directories")
    for each in result.unreadable:
        note(f"not read: {each.path}: {each.why}")
    for each in result.unknown:
        note(f"not read: {each.path} {each.why}")
    for model in result.unpriced:
        left_out = f"{counted(model.requests, 'request')} not in the sum"
        why = "no model is named" if model.model == NOT_TOLD else f"no price is known of {model.model}"
        note(f"{why}: {left_out}")
    if result.passed_over:
        more = result.files_passed_over - len(result.passed_over)
        first = ", ".join(result.passed_over) + (f" and {more:,} more" if more else "")
        note(f"passed over, of no format that mz reads: {first}")
    if result.sessions_short:
        note(f"{counted(result.sessions_short, 'session')} {FEWER}: mz audit --imported says which and why")
    if result.requests_undated:
        note(f"{counted(result.requests_undated, 'request')} without a time, counted at the time of the file")
    if result.requests_ahead:
        note(f"{counted(result.requests_ahead, 'request')} in the future: a clock was wrong; they count as they are")


def sentences(result: ImportResult) -> tuple[str, ...]:
    read = f"{counted(result.files_read, 'file')} read, {result.files_unchanged:,} unchanged"
    if result.files_passed_over:
        read += f", {result.files_passed_over:,} of other kinds passed over"
    bad = f", {counted(result.bad_lines, 'bad line')}" if result.bad_lines else ""
    new = counted(result.requests_new, "new request")
    settled = f", {result.requests_settled:+,} by sums at the ends of files" if result.requests_settled else ""
    return (
        f"{read}: {counted(result.sessions, 'session')}, {size(result.bytes_read)}, "
        f"{counted(result.lines, 'line')}{bad}",
        f"{new}, {result.requests_known:,} known before, {result.requests_corrected:,} corrected{settled}: "
        f"{signed(result.computed_usd)} at the prices of their days",
    )


def signed(amount: str) -> str:
    """A correction may lower what was counted before."""
    from mz_cli.render.text import nanousd_of

    negative = amount.startswith("-")
    return f"{'-' if negative else ''}{money(nanousd_of(amount.removeprefix('-')))}"
