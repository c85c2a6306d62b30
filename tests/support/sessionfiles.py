"""Small session files of Claude Code, as a test wants them, and imports of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from mz_engine.pricing.table import GenaiPrices
from mz_events.adapters.sqlite_log import SqliteStore
from mz_projections.imported.model import QuarterSum
from mz_projections.imported.store import ImportedStore
from mz_recordings.importing.importer import LOG, VIEWS, ImportResult, import_files

MODEL = "claude-sonnet-4-5-20250929"
NOW = 1_780_000_000.0
SESSION = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER = "bbbbbbbb-0000-4000-8000-000000000002"
PRICES = GenaiPrices()


def request(
    number: int, *, session: str = SESSION, output: int = 100, at: str = "2026-03-01T12:00:00.000Z", model: str = MODEL,
    agent: str = "", cwd: str = "/home/dev/app", written_1h: int = 0, ended: bool = True, **more: object,
) -> bytes:  # fmt: skip
    """A line with an answer of a model; the same number is the same request. Not `ended`: told as it begins."""
    usage = {
        "input_tokens": 10, "output_tokens": output, "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 200 + written_1h,
        "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": written_1h},
    }  # fmt: skip
    call = {"type": "tool_use", "id": f"toolu_{number:020d}", "name": "Read", "input": {}}
    message = {"id": f"msg_{number:024d}", "type": "message", "role": "assistant", "model": model, "usage": usage,
               "content": [call], "stop_reason": "tool_use" if ended else None}  # fmt: skip
    line = {"type": "assistant", "uuid": f"u-{session}-{number}", "sessionId": session, "timestamp": at, "cwd": cwd,
            "version": "2.1.150", "requestId": f"req_{number:020d}", "message": message, **more}  # fmt: skip
    return msgspec.json.encode({**line, "isSidechain": True, "agentId": agent} if agent else line)


def prompt(*, session: str = SESSION, at: str = "2026-03-01T11:59:00.000Z") -> bytes:
    return msgspec.json.encode({
        "type": "user", "uuid": f"p-{session}-{at}", "sessionId": session, "timestamp": at, "cwd": "/home/dev/app",
        "version": "2.1.150", "message": {"role": "user", "content": "the words of a person"},
    })  # fmt: skip


def write(path: Path, lines: Sequence[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def take(home: Path, *paths: Path, now: float = NOW) -> ImportResult:
    """One import into the log in `home`."""
    return import_files(home, PRICES.price_entry, PRICES.table, paths, now=lambda: now)


@contextmanager
def views(home: Path) -> Iterator[ImportedStore]:
    """The rows, made from the log alone."""
    with SqliteStore(home / LOG, read_only=True) as store, ImportedStore(None, store) as made:
        made.refresh()
        with ImportedStore(home / VIEWS, store) as kept:
            kept.refresh()
            assert list(made.sums()) == list(kept.sums())
            assert list(made.files()) == list(kept.files())
            yield kept


def sums(home: Path) -> tuple[QuarterSum, ...]:
    with views(home) as imported_store:
        return tuple(imported_store.sums())


def totals(home: Path) -> tuple[int, int, int]:
    """Requests, output tokens, computed nano-dollars over everything."""
    rows = sums(home)
    return sum(r.requests for r in rows), sum(r.output for r in rows), sum(r.computed_nanousd for r in rows)
