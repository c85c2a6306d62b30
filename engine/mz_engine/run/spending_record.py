"""The record of what all runs of a user spent, in the user's data folder: what the budget of a day counts.

<data>/spending/2026-11-27.jsonl    entries, in the file of the day (UTC) of the clock that wrote them
                lock                locked while a run reserves or charges

Lines are only appended, and are on disk before a call starts. What is no line, such as one that a crash cut off, is
skipped: it was never acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout
from msgspec.structs import asdict
from mz_events.store import StoreUnusable
from mz_projections.run.spending import Amount, DaySpending, SpendingEntry, day_spending

from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Budget
from mz_engine.paths import spending_folder

LOCK_SECONDS = 60
"""Runs hold the lock for milliseconds; one that is stopped while it does must not stop all others for ever."""


class SpendingRecord:
    """The record as runs of one repository use it. Without a folder nothing is recorded, and nothing counts."""

    def __init__(self, folder: Path | None, repository: str = "") -> None:
        self._folder, self._repository = folder, repository
        self._lock = FileLock(folder / "lock", timeout=LOCK_SECONDS) if folder is not None else None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude all other runs of the user. Raises StoreUnusable and OSError."""
        if self._folder is None or self._lock is None:
            yield
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with self._lock:
                yield
        except Timeout as error:
            raise StoreUnusable(f"{error.lock_file} stays locked by another process") from None

    def day(self, now_us: int, reserving: str = "") -> DaySpending:
        """Return what counts at this time, but no reservation of the call that reserves again. Raises OSError."""
        files = sorted(self._folder.glob("????-??-??.jsonl")) if self._folder is not None else ()
        lines = [line for file in files if file.stem >= _day(now_us, -1) for line in file.read_bytes().splitlines()]
        entries = list[SpendingEntry]()
        for line in lines:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                entries.append(msgspec.json.decode(line, type=SpendingEntry))
        own = f"{self._repository} {reserving}"
        return tuple(entry for entry in day_spending(entries, now_us) if entry.charged or entry.key != own)

    def add(self, key: str, amount: Amount, at_us: int, *, charged: bool) -> None:
        """Append an entry, durably; under the lock. Raises OSError."""
        if self._folder is None:
            return
        entry = SpendingEntry(at_us=at_us, key=f"{self._repository} {key}", charged=charged, **asdict(amount))
        with open(self._folder / f"{_day(at_us)}.jsonl", "ab") as file:
            file.write(b"\n" + msgspec.json.encode(entry) + b"\n")  # The line before may be cut off.
            file.flush()
            os.fsync(file.fileno())


def _day(at_us: int, days: int = 0) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us, days=days)).strftime("%Y-%m-%d")


NOT_RECORDED = SpendingRecord(None)


def open_record(environment: Mapping[str, str], repository: str, budget: Budget) -> SpendingRecord:
    """Return the record. If it cannot be written, nothing is recorded. Raises MzError (MZ1006) if a budget of the day
    needs it."""
    record = SpendingRecord(spending_folder(environment), repository)
    try:
        with record.lock():
            return record
    except (OSError, StoreUnusable) as error:
        if budget.day_nanousd is None and budget.day_tokens is None:
            return NOT_RECORDED
        hint = "make it writable, or name another folder with MZ_DATA"
        raise MzError("MZ1006", f"the day's spending cannot be recorded: {error}", hint=hint) from None
