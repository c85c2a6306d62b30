"""What reading a transcript costs, in lines a second, against bare msgspec decoding of the same lines.

Lines are what the real agents wrote for the conformance suite, and generated session logs, over and over.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from importlib.resources import files
from itertools import chain

import msgspec
from mz_engine.agents.catalog import AGENTS
from mz_engine.agents.reading.byte_lines import Piece, buffered
from mz_engine.agents.reading.records import Format, ReaderState
from mz_engine.transcripts.read import FORMATS, detect_transcript, read_piece
from mz_engine.transcripts.summary import SummaryBuilder

from tools.bench.clock import alternate, rate
from tools.bench.figure import Figure, compare
from tools.bench.sessions import session

LINES = 40_000
ROUNDS = 5
LOG_MIN, FILE_MIN, STREAM_MIN = 0.25, 0.2, 0.05
"""Bare decoding builds the same objects; what is added is looking into them and a fact or two a line, which costs more
than decoding where lines are as short as those of streams."""
FIXTURES: Mapping[str, tuple[str, str]] = {
    "claude-stream": ("claude-code", "works.exit0.jsonl"),
    "codex-stream": ("codex", "works.exit0.jsonl"),
    "gemini-stream": ("gemini", "works.exit0.jsonl"),
}
"""Format -> agent and file of its fixtures."""


def samples() -> dict[str, tuple[bytes, ...]]:
    """Lines of each format, each file whole."""
    result = {
        name: tuple((files(AGENTS[agent].package) / "fixtures" / file).read_bytes().splitlines())
        for name, (agent, file) in FIXTURES.items()
    }
    return {**result, "claude-session": tuple(chain.from_iterable(session(number) for number in range(4)))}


def transcripts(*, lines: int = LINES, rounds: int = ROUNDS) -> tuple[Figure, ...]:
    """One figure for each format that there are lines of, and one for a whole file, detected, read and added up."""
    formats = {form.name: form for form in FORMATS}
    expected = {name: sample for name, sample in samples().items() if name in formats}
    return (
        *(format_figure(formats[name], sample, lines, rounds) for name, sample in expected.items()),
        transcripts_figure(lines, rounds),
    )


def format_figure(form: Format, sample: tuple[bytes, ...], lines: int, rounds: int) -> Figure:
    many = repeated(sample, lines)
    decoder = msgspec.json.Decoder()

    def bare() -> None:
        for line in many:
            decoder.decode(line)

    def read() -> None:
        reader = form(ReaderState())
        for line in many:
            for _ in read_piece(form, reader, Piece(data=line, offset_end=0)):
                pass

    values = alternate(rounds, {"read": lambda: rate(lines, read), "bare": lambda: rate(lines, bare)})
    goal = LOG_MIN if form.is_session_log else STREAM_MIN
    name = f"transcripts.{form.name}"
    return compare(name, values["read"], "lines/s", "msgspec, decoding only", values["bare"], at_least=goal)


def transcripts_figure(lines: int, rounds: int) -> Figure:
    """A session log of unequal requests: all that `mz transcript` does but prices."""
    many = tuple(first_lines(chain.from_iterable(session(number) for number in range(lines)), lines))
    data = b"\n".join(many) + b"\n"
    decoder = msgspec.json.Decoder()

    def bare() -> None:
        for line in data.splitlines():
            decoder.decode(line)

    def read() -> None:
        detected_transcript = detect_transcript(buffered(io.BytesIO(data)))
        summary = SummaryBuilder(format=detected_transcript.format)
        for sighting in detected_transcript.records():
            summary.add(sighting)
        summary.build()

    rates = alternate(rounds, {"read": lambda: rate(lines, read), "bare": lambda: rate(lines, bare)})
    return compare(
        "transcripts.file", rates["read"], "lines/s", "msgspec, decoding only", rates["bare"], at_least=FILE_MIN
    )


def repeated(sample: tuple[bytes, ...], count: int) -> tuple[bytes, ...]:
    return (sample * (count // len(sample) + 1))[:count]


def first_lines(lines: Iterator[bytes], count: int) -> Iterator[bytes]:
    return (line for _, line in zip(range(count), lines, strict=False))
