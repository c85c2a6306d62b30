"""Command `mz transcript`."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from mz_engine.agents.reading.byte_lines import buffered
from mz_engine.errors.diagnostics import MzError
from mz_engine.ports import Prices
from mz_engine.transcripts.read import FORMATS, OtherAgentsFormat, Undetected, detect_transcript
from mz_engine.transcripts.summary import SummaryBuilder, TranscriptSummary

from mz_cli.app.help import command, format_options
from mz_cli.terminal.json import print_document
from mz_cli.terminal.table import print_table
from mz_cli.usage.transcript_text import computed_price, table, transcript_report

STDIN = "-"
PIPE_SECONDS = 5.0
"""Time limit for a named pipe to be opened for writing."""
AGENTS = tuple(sorted({format_.agent for format_ in FORMATS}))


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
@click.option("--agent", type=click.Choice(AGENTS), help="Agent that wrote the file. [default: detected]")
@format_options("Print one object with the schema mz.transcript/1.")
def transcript(file: str, agent: str | None, as_json: bool) -> None:
    """Summarise an agent's output file.

    FILE is the output of an agent call or an agent's session log; `-` is standard input. The format is detected from
    the content, not the name. Repeated requests count once; missing values are unknown, not zero. Notes explain the
    numbers. The exit code tells whether the file could be read, not how the agent ended.
    """
    with open_file(file) as raw:
        parsed = read_transcript(raw, file, agent)
        price = computed_price(parsed, prices(), modified_us(raw))
    if as_json:
        print_document("transcript", transcript_report(parsed, price))
    else:
        print_table(table(parsed, price, file))


@contextmanager
def open_file(file: str) -> Iterator[io.BufferedReader]:
    """Open the file or standard input. Raises MzError (MZ2001)."""
    if file == STDIN:
        yield buffered(sys.stdin.buffer)
        return
    try:
        with open(file, "rb", opener=open_with_limit) as raw:
            yield raw
    except OSError as error:
        raise unreadable_error(file, error) from error


def open_with_limit(file: str, flags: int) -> int:
    """Open a file; a named pipe only if it is opened for writing in time, a device never, since it may not end.

    Raises OSError.
    """
    if Path(file).is_char_device():
        raise OSError(errno.ENODEV, "is a device")
    if not Path(file).is_fifo():
        return os.open(file, flags)
    previous_handler = signal.signal(signal.SIGALRM, _raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, PIPE_SECONDS)
    try:
        return os.open(file, flags)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)


def _raise_timeout(_signal: int, _frame: object) -> None:
    raise OSError(errno.EPIPE, "nothing writes to this pipe")


def read_transcript(raw: io.BufferedReader, file: str, agent: str | None) -> TranscriptSummary:
    """Read a transcript. Raises MzError (MZ2001, MZ6030)."""
    try:
        detected = detect_transcript(raw, agent)
        summary = SummaryBuilder(detected.format)
        for sighting in detected.records():
            summary.add(sighting)
    except Undetected as error:
        hint = "mz reads agents' output of --output-format stream-json, --json and similar, and their session logs"
        if isinstance(error, OtherAgentsFormat):
            hint = "leave --agent out, or name that agent"
        raise MzError("MZ6030", f"{file_label(file)} {error}", hint=hint) from error
    except OSError as error:
        raise unreadable_error(file, error) from error
    return summary.build()


def unreadable_error(file: str, error: OSError) -> MzError:
    reason = (error.strerror or type(error).__name__).lower()
    hint = "check that it exists, is a file and is readable"
    return MzError("MZ2001", f"{file_label(file)} cannot be read: {reason}", hint=hint)


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
