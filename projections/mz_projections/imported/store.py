"""The read models of imported sessions in a file of their own, and what an import and its reports ask them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from mz_events.catalog.imported import ImportedFileRead
from mz_events.store import Log

from mz_projections.imported.model import (
    FILES,
    REQUESTS,
    SESSIONS,
    SUMS,
    CountedRequest,
    ImportedFile,
    ImportedSession,
    QuarterSum,
)
from mz_projections.read_models.model import R, ReadModel
from mz_projections.read_models.store import ReadModelStore

VALUES_PER_QUERY = 500
PAGE_POSITIONS = 64
"""Log positions per transaction: an event may contain a thousand requests."""


class ImportedStore(ReadModelStore):
    """The rows over `log`."""

    def __init__(self, path: Path | None, log: Log, page_positions: int = PAGE_POSITIONS) -> None:
        super().__init__(path, log, (SESSIONS, FILES, SUMS, REQUESTS), page_positions)

    def sums(self) -> tuple[QuarterSum, ...]:
        """Return all rows, by session, quarter, model and subagent."""
        return self.rows(SUMS)

    def sums_of(self, stream: str) -> tuple[QuarterSum, ...]:
        """Return the rows of one session."""
        return self.rows(SUMS, "session = ?", stream)

    def sessions(self) -> tuple[ImportedSession, ...]:
        """Return all sessions, by stream."""
        return self.rows(SESSIONS)

    def sessions_of(self, streams: Iterable[str]) -> Iterator[ImportedSession]:
        """Yield those of the sessions that exist."""
        return self._rows_in(SESSIONS, "stream", streams)

    def times(self, stream: str | None) -> dict[str, tuple[int, int]]:
        """Return the times of the first and last request by session (one or all), in microseconds. Requests without a
        time of their own are ignored."""
        query = (
            "SELECT session, min(at_us), max(at_us) FROM request WHERE dated = 'true' AND session = ifnull(?, session)"
        )
        rows = self._connection.execute(f"{query} GROUP BY session", (stream,))
        return {name: (first, last) for name, first, last in rows}

    def files(self) -> tuple[ImportedFile, ...]:
        """Return every file ever read."""
        return self.rows(FILES)

    def files_of(self, stream: str) -> tuple[ImportedFileRead, ...]:
        return tuple(file.read for file in self.rows(FILES, "session = ?", stream))

    def sessions_with_totals(self) -> tuple[str, ...]:
        """Return streams of sessions with a file that states totals or money at its end."""
        return self._sessions_of_files("has_totals")

    def incomplete_sessions(self) -> tuple[str, ...]:
        """Return streams of sessions with a file known to be incomplete."""
        return self._sessions_of_files("is_incomplete")

    def _sessions_of_files(self, column: str) -> tuple[str, ...]:
        query = f"SELECT DISTINCT session FROM file WHERE {column} = 'true' ORDER BY session"
        return tuple(stream for (stream,) in self._connection.execute(query))

    def counted_requests(self, keys: Iterable[str]) -> dict[str, CountedRequest]:
        """Return those of the requests that were counted before, by key."""
        return {row.key: row for row in self._rows_in(REQUESTS, "key", keys)}

    def _rows_in(self, model: ReadModel[R], column: str, values: Iterable[str]) -> Iterator[R]:
        """Yield the rows with one of the values, some hundred in a query."""
        remaining = iter(values)
        while some := tuple(islice(remaining, VALUES_PER_QUERY)):
            yield from self.rows(model, f"{column} IN ({', '.join('?' * len(some))})", *some)
