"""The tables of the log, for SQLAlchemy: queries of other tools, and logs in other databases, are built from these.

The migrations create the tables in SQLite, and a test compares the two. Nothing on the way of `mz run` imports this."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Integer, LargeBinary, MetaData, Table, Text, UniqueConstraint

METADATA = MetaData()

LOG = Table("log", METADATA, Column("id", Text, nullable=False))
"""One row: the id of this log."""

STREAM = Table(
    "stream",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("version", Integer, nullable=False),
    Column("recorded_at_us", Integer, nullable=False),
    Column("chain", LargeBinary, nullable=False),
)
"""The head of each stream."""

EVENT = Table(
    "event",
    METADATA,
    Column("position", Integer, primary_key=True),
    Column("stream_id", Integer, ForeignKey("stream.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("type", Text, nullable=False),
    Column("schema", Integer, nullable=False),
    Column("recorded_at_us", Integer, nullable=False),
    Column("observed_at_us", Integer, nullable=False),
    Column("causation", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("chain", LargeBinary, nullable=False),
    UniqueConstraint("stream_id", "version"),
)
