"""Command `mz transcript`."""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import click
import msgspec
from msgspec import field
from mz_engine.agents.reading.byte_lines import buffered
from mz_engine.agents.reading.records import NOTES
from mz_engine.errors.diagnostics import MzError
from mz_engine.ports import Prices
from mz_engine.transcripts.read import FORMATS, OtherAgentsFormat, Undetected, detect_transcript
from mz_engine.transcripts.summary import SummaryBuilder, TranscriptSummary, usage_totals

from mz_cli.app.help import command, format_options
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import Table, columns, print_output
from mz_cli.terminal.text import count_noun, format_count, rounded_usd, shorten, single_line

STDIN = "-"
DETAIL_MAX = 300
"""Characters of the agent's error text in a note."""
AGENTS = tuple(sorted({format_.agent for format_ in FORMATS}))


class TranscriptUsage(Shape, frozen=True, kw_only=True):
    """Tokens of all requests, each counted once; null: unknown."""

    input: int | None
    """Including cache reads and writes."""
    output: int | None
    """Including reasoning."""
    cache_read: int | None
    cache_write_5m: int | None
    """Cache writes with a lifetime of five minutes or an unknown one."""
    cache_write_1h: int | None
    reasoning: int | None


class TranscriptReport(Shape, frozen=True, kw_only=True):
    """`mz transcript FILE --json`."""

    agent: str
    version: str | None
    """Version of the agent's program."""
    session: str | None = field(name="session_id")
    status: Literal["success", "error", "no-terminal"]
    """Status of the last ending event; session logs have none: no-terminal."""
    models: tuple[str, ...]
    """Models in order of appearance."""
    usage: TranscriptUsage
    reported_nanousd: int | None
    """Reported by the agent; repeated reports count once."""
    computed_nanousd: int | None
    """Tokens of each request at the price of its day; null if a model has no price."""
    unpriced: tuple[str, ...]
    """Models without a price."""
    final_text: str | None
    undecodable_lines: int
    """Number of undecodable lines."""
    notes: tuple[str, ...]
    """Remarks about the numbers: `code: text`, with stable codes."""


@command(
    "transcript",
    examples=(
        ("mz transcript run.jsonl", "tokens, cost and outcome of an agent call"),
        ("claude -p --output-format json 'Say hello' | mz transcript -", "the same, from a pipe"),
        ("mz transcript session.jsonl --json | jq .computed_usd", "the cost of a session at known prices"),
    ),
    next_command="`mz import` imports directories of session logs; `mz cost --imported` shows their cost.",
)
@click.argument("file")
@click.option(
    "--agent",
    type=click.Choice(AGENTS),
    help="Agent that wrote the file, if it cannot be detected. [default: detected]",
)
@format_options("Print one object with the schema mz.transcript/1.")
def transcript(file: str, agent: str | None, as_json: bool) -> None:
    """Summarise an agent's output file.

    FILE is the output of an agent call or an agent's session log; `-` is standard input. The format is detected from
    the content, not the name. Repeated requests count once; missing values are unknown, not zero. Notes explain the
    numbers. The exit code tells whether the file could be read, not how the agent ended.
    """
    with open_file(file) as raw:
        parsed = read_transcript(raw, file, agent)
        report = transcript_report(parsed, prices(), modified_us(raw))
    print_output(as_json, "transcript", report, table(report, parsed, file))


@contextmanager
def open_file(file: str) -> Iterator[io.BufferedReader]:
    """Open the file or standard input. Raises MzError (MZ2001), also for errors of reading it."""
    try:
        if file == STDIN:
            yield buffered(sys.stdin.buffer)
            return
        if Path(file).is_char_device():
            raise OSError(errno.ENODEV, "is a device")  # It may not end.
        with open(file, "rb") as raw:
            yield raw
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        hint = "check that it exists, is a file and is readable"
        raise MzError("MZ2001", f"{file_label(file)} cannot be read: {reason}", hint=hint) from error


def read_transcript(raw: io.BufferedReader, file: str, agent: str | None) -> TranscriptSummary:
    """Read a transcript. Raises OSError, and MzError (MZ6030)."""
    try:
        detected = detect_transcript(raw, agent)
        summary = SummaryBuilder(format=detected.format)
        for sighting in detected.records():
            summary.add(sighting)
    except Undetected as error:
        hint = "mz reads agents' output of --output-format stream-json, --json and similar, and their session logs"
        if isinstance(error, OtherAgentsFormat):
            hint = "leave --agent out, or name that agent"
        raise MzError("MZ6030", f"{file_label(file)} {error}", hint=hint) from error
    return summary.build()


def file_label(file: str) -> str:
    return "standard input" if file == STDIN else f"{file}:"


def modified_us(raw: io.BufferedReader) -> int:
    """Return the file's modification time, or the current time if it is not a file."""
    try:
        return os.fstat(raw.fileno()).st_mtime_ns // 1000
    except (OSError, ValueError):
        return time.time_ns() // 1000


def prices() -> Prices:
    """Return the user's prices, backed by the table's. Raises MzError (MZ20nn) for an invalid user file."""
    from mz_engine.pricing.table import GenaiPrices, user_prices

    return GenaiPrices(user_prices(os.environ))


def transcript_report(transcript: TranscriptSummary, prices: Prices, default_us: int) -> TranscriptReport:
    """Return the report. Each request is priced at its own time, or at `default_us` if the file does not contain it."""
    amounts: list[int | None] = []
    unpriced: dict[str, None] = {}
    for entry in transcript.usages:
        price = prices.price((entry.usage,), default_us if entry.at_us is None else entry.at_us)
        amounts.append(price.nanousd if entry.usage.model else None)
        unpriced |= dict.fromkeys(name for name in price.unpriced if name)
    priced = [amount for amount in amounts if amount is not None]
    is_complete = len(priced) == len(amounts) and (bool(priced) or transcript.reported_nanousd == 0)
    return shape_of(
        TranscriptReport,
        transcript,
        usage=TranscriptUsage(**usage_totals(transcript)),
        computed_nanousd=sum(priced) if is_complete else None,
        unpriced=tuple(unpriced),
        notes=tuple(note_texts(transcript)),
    )


def note_texts(transcript: TranscriptSummary) -> Iterator[str]:
    """Yield `code: text`, with details from this file."""
    for code in transcript.notes:
        text = NOTES.get(code, "")
        if code == "error" and transcript.detail:
            text = f"{text}: {shorten(single_line(transcript.detail), DETAIL_MAX)}"
        if code == "unknown-lines":
            text = (
                f"{text} "
                f"({', '.join(f'{single_line(kind)} {number}' for kind, number in transcript.unknown_lines.items())})"
            )
        yield f"{code}: {text}" if text else code


def table(report: TranscriptReport, transcript: TranscriptSummary, name: str) -> Table:
    """Return one row per property."""
    rows = [
        ("agent", " ".join(part for part in (report.agent, report.version) if part)),
        ("format", transcript.format),
        ("session", report.session or "-"),
        ("status", report.status),
        ("models", ", ".join(report.models) or "-"),
        ("requests", count_noun(transcript.requests, "request") if transcript.requests else "-"),
        *((name, format_count(number)) for name, number in msgspec.structs.asdict(report.usage).items()),
        ("reported", rounded_usd(report.reported_nanousd) or "-"),
        ("computed", rounded_usd(report.computed_nanousd) or "-"),
        *((("unpriced", ", ".join(report.unpriced)),) if report.unpriced else ()),
        *((("undecodable_lines", format_count(report.undecodable_lines)),) if report.undecodable_lines else ()),
        *(("note", text) for text in report.notes),
        ("text", report.final_text or "-"),
    ]
    return Table(columns=columns("property", "~value"), rows=rows, empty=f"no data in {name}")
