"""Does to a log what nobody may do to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from mz_events.adapters.blobs import FileBlobs
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
