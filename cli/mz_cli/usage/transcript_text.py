"""Usage and cost of a transcript, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from mz_engine.agents.reading.records import NOTES
from mz_engine.ports import Prices
from mz_engine.transcripts.summary import TranscriptSummary, usage_totals

from mz_cli.terminal.json import shape_of
from mz_cli.terminal.table import Table, columns
from mz_cli.terminal.text import count_noun, exact_usd, format_count, rounded_usd, shorten, single_line
from mz_cli.usage.json import TranscriptReport, TranscriptUsage

DETAIL_MAX = 300
"""Characters of the agent's error text in a note."""


class ComputedPrice(msgspec.Struct, frozen=True):
    nanousd: int | None
    """None: the usage is unknown, or some of it has no price."""
    unpriced: tuple[str, ...]


def computed_price(transcript: TranscriptSummary, prices: Prices, default_us: int) -> ComputedPrice:
    """Price each request at its own time, or at `default_us` if the file does not contain it."""
    amounts: list[int | None] = []
    unpriced: dict[str, None] = {}
    for entry in transcript.usages:
        at_us = entry.at_us if entry.at_us is not None else default_us
        price = prices.price((entry.usage,), at_us)
        amounts.append(price.nanousd if entry.usage.model else None)
        unpriced |= dict.fromkeys(name for name in price.unpriced if name)
    priced = [amount for amount in amounts if amount is not None]
    is_complete = len(priced) == len(amounts) and (bool(priced) or transcript.reported_nanousd == 0)
    return ComputedPrice(sum(priced) if is_complete else None, tuple(unpriced))


def transcript_report(transcript: TranscriptSummary, price: ComputedPrice) -> TranscriptReport:
    return shape_of(
        TranscriptReport,
        transcript,
        version=transcript.version,
        session_id=transcript.session,
        final_text=transcript.final_text,
        usage=TranscriptUsage(**usage_totals(transcript)),
        computed_usd=exact_usd(price.nanousd),
        unpriced=price.unpriced,
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


def table(transcript: TranscriptSummary, price: ComputedPrice, name: str) -> Table:
    """Return one row per property."""
    sums = usage_totals(transcript)
    rows = [
        ("agent", " ".join(part for part in (transcript.agent, transcript.version) if part)),
        ("format", transcript.format),
        ("session", transcript.session or "-"),
        ("status", transcript.status),
        ("models", ", ".join(transcript.models) or "-"),
        ("requests", count_noun(transcript.requests, "request") if transcript.requests else "-"),
        *((name, format_count(number)) for name, number in sums.items()),
        ("reported", rounded_usd(transcript.reported_nanousd) or "-"),
        ("computed", rounded_usd(price.nanousd) or "-"),
        *((("unpriced", ", ".join(price.unpriced)),) if price.unpriced else ()),
        *((("bad_lines", format_count(transcript.bad_lines)),) if transcript.bad_lines else ()),
        *(("note", text) for text in note_texts(transcript)),
        ("text", transcript.final_text or "-"),
    ]
    return Table(columns=columns("property", "value"), rows=tuple(rows), empty=f"no data in {name}")
