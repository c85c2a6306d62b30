"""Usage and cost of a transcript, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from mz_engine.ports import Prices
from mz_recordings.transcripts.notes import NOTES
from mz_recordings.transcripts.summary import Transcript, summed

from mz_cli.render.table import Table, columns
from mz_cli.render.text import count, counted, line, money, shorten, usd
from mz_cli.shapes.transcript import TranscriptReport, TranscriptUsage

DETAIL_MAX = 300
"""Characters of the agent's error text in a note."""


class Computed(msgspec.Struct, frozen=True):
    nanousd: int | None
    """None: the usage is unknown, or some of it has no price."""
    unpriced: tuple[str, ...]


def computed(transcript: Transcript, prices: Prices, otherwise_us: int) -> Computed:
    """Price each request at its own time, or at `default_us` if the file does not contain it."""
    amounts: list[int | None] = []
    unpriced: dict[str, None] = {}
    for entry in transcript.priced:
        at_us = entry.at_us if entry.at_us is not None else otherwise_us
        price = prices.price((entry.usage,), at_us)
        amounts.append(price.nanousd if entry.usage.model else None)
        unpriced |= dict.fromkeys(name for name in price.unpriced if name)
    known = [amount for amount in amounts if amount is not None]
    whole = len(known) == len(amounts) and (bool(known) or transcript.reported_nanousd == 0)
    return Computed(sum(known) if whole else None, tuple(unpriced))


def report(transcript: Transcript, price: Computed) -> TranscriptReport:
    return TranscriptReport(
        agent=transcript.agent,
        version=transcript.version,
        session_id=transcript.session,
        status=transcript.status,
        models=transcript.models,
        usage=TranscriptUsage(**summed(transcript)),
        reported_usd=usd(transcript.reported_nanousd),
        computed_usd=usd(price.nanousd),
        unpriced=price.unpriced,
        final_text=transcript.final_text,
        bad_lines=transcript.bad_lines,
        notes=tuple(note_words(transcript)),
    )


def note_words(transcript: Transcript) -> Iterator[str]:
    """Yield `code: text`, with details from this file."""
    for code in transcript.notes:
        words = NOTES.get(code, "")
        if code == "error" and transcript.detail:
            words = f"{words}: {shorten(line(transcript.detail), DETAIL_MAX)}"
        if code == "unknown-lines":
            words = f"{words} ({', '.join(f'{line(kind)} {number}' for kind, number in transcript.unknown.items())})"
        yield f"{code}: {words}" if words else code


def table(transcript: Transcript, price: Computed, name: str) -> Table:
    """Return one row per property."""
    sums = summed(transcript)
    rows = [
        ("agent", " ".join(each for each in (transcript.agent, transcript.version) if each)),
        ("format", transcript.format),
        ("session", transcript.session or "-"),
        ("status", transcript.status),
        ("models", ", ".join(transcript.models) or "-"),
        ("requests", counted(transcript.requests, "request") if transcript.requests else "-"),
        *((name, count(number)) for name, number in sums.items()),
        ("reported", money(transcript.reported_nanousd) or "-"),
        ("computed", money(price.nanousd) or "-"),
        *((("unpriced", ", ".join(price.unpriced)),) if price.unpriced else ()),
        *((("bad_lines", count(transcript.bad_lines)),) if transcript.bad_lines else ()),
        *(("note", words) for words in note_words(transcript)),
        ("text", transcript.final_text or "-"),
    ]
    return Table(columns=columns("property", "value"), rows=tuple(rows), empty=f"no data in {name}")
