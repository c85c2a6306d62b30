"""Does to a log what nobody may do to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from mz_events.adapters.blobs import FileBlobs
from mz_events.chain import GENESIS, link
from mz_events.names import Digest


def tamper(home: Path, *statements: str) -> None:
    """Changes the database behind the back of its guards; no store may be open on it."""
    with closing(sqlite3.connect(home / ".mz" / "mz.db")) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def blob_path(home: Path, digest: Digest) -> Path:
    return FileBlobs(home / ".mz" / "blobs").path(digest)


Rows = list[dict[str, Any]]


def make_anew(home: Path, change: Callable[[Rows], Rows] = lambda rows: rows) -> None:
    """Rewrites the complete log as somebody would who knows how it works: the changed events, without gaps, each link
    computed anew. `change` maps the events, each with the name of its `stream`, to those that are to be there."""
    with closing(sqlite3.connect(home / ".mz" / "mz.db")) as connection:
        connection.row_factory = sqlite3.Row
        query = (
            "SELECT stream.name AS stream, event.* FROM event JOIN stream ON stream.id = stream_id ORDER BY position"
        )
        rows = change([dict(row) for row in connection.execute(query)])
    tamper(home, "DELETE FROM event")
    heads: dict[str, tuple[int, bytes]] = {}
    with closing(sqlite3.connect(home / ".mz" / "mz.db")) as connection:
        for position, row in enumerate(rows, start=1):
            version, chain = heads.get(row["stream"], (0, GENESIS))
            columns = ("type", "schema", "recorded_at_us", "observed_at_us", "causation", "payload")
            values = [row[name] for name in columns]
            chain = link(chain, row["stream"], version + 1, *values)
            heads[row["stream"]] = version + 1, chain
            names = f"stream_id, version, position, {', '.join(columns)}, chain"
            connection.execute(
                f"INSERT INTO event ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (row["stream_id"], version + 1, position, *values, chain),
            )
        connection.execute("DELETE FROM stream WHERE id NOT IN (SELECT stream_id FROM event)")
        connection.executemany(
            "UPDATE stream SET version = ?, chain = ? WHERE name = ?", [(*head, name) for name, head in heads.items()]
        )
        connection.commit()
