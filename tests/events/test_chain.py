"""Whatever is done to a stored past, the chain names the place."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.chain import GENESIS, Damage, link, verify
from mz_events.names import StreamId
from mz_events.store import Append, Head, StoreUnusable

from tests.events.conformance import FIRST, NOW, OTHER, units

FIELDS: dict[str, Any] = {
    "prev": GENESIS, "stream": "run/r", "version": 3, "type_": "phase.started", "schema": 1, "recorded_at_us": 10,
    "observed_at_us": 9, "causation": "run/r@1", "payload": b"{}",
}  # fmt: skip
CHANGED: dict[str, Any] = {
    "prev": bytes(31) + b"\1", "stream": "run/q", "version": 4, "type_": "phase.ended", "schema": 2,
    "recorded_at_us": 11, "observed_at_us": 8, "causation": "", "payload": b"[]",
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_is_covered(field: str) -> None:
    assert link(**FIELDS) != link(**{**FIELDS, field: CHANGED[field]})


@pytest.mark.parametrize(
    "moved",
    [
        {"stream": "run/rphase", "type_": ".started"},
        {"type_": "phase.startedrun/r", "causation": "@1"},
        {"stream": "run/", "type_": "rphase.started"},
        {"version": 31, "schema": 1},
        {"version": 3, "schema": 11, "recorded_at_us": 0},
    ],
)
def test_no_two_events_share_the_bytes_that_are_hashed(moved: dict[str, object]) -> None:
    assert link(**FIELDS) != link(**{**FIELDS, **moved})


def test_a_link_never_changes() -> None:
    """A value stored by the first release: links must come out the same for ever."""
    assert link(**FIELDS).hex() == "f04d3ae5ac8d9bcccf4212e176184f8485be6abeae6715ddf722cc41768dc3c3"


def test_an_empty_log_is_whole() -> None:
    assert verify([], {}) == ()
    assert verify([], {StreamId("run/r"): Head(0, GENESIS)}) == ()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of two streams: positions 1-3 and 6 are FIRST's, 4, 5 and 7 OTHER's."""
    path = tmp_path / "mz.db"
    with SqliteStore(path) as store:
        store.append([Append(FIRST, 0, units(3)), Append(OTHER, 0, units(2))], NOW)
        store.append([Append(FIRST, 3, units(1, 4)), Append(OTHER, 2, units(1, 4))], NOW)
    return path


def tamper(path: Path, *statements: str) -> tuple[Damage, ...]:
    """What is found after somebody who knows SQL was there."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
    with SqliteStore(path) as store:
        return store.verify()


def test_a_log_that_nobody_touched_is_whole(path: Path) -> None:
    assert tamper(path) == ()


@pytest.mark.parametrize(
    "column",
    [
        "payload = replace(payload, 'u2', 'u9')",
        "type = 'unit.completed'",
        "schema = 2",
        "recorded_at_us = 1",
        "observed_at_us = 1",
        "causation = 'run/r@9'",
        "chain = zeroblob(32)",
    ],
)
def test_a_changed_field(path: Path, column: str) -> None:
    (damage,) = tamper(path, f"UPDATE event SET {column} WHERE position = 2")
    assert damage.position in (2, 3)
    assert damage.event_ref in ("run/r/one@2", "run/r/one@3")
    assert "changed" in damage.message


def test_every_bit_of_a_payload_counts(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("SELECT length(payload) FROM event WHERE position = 2").fetchone()
    for index in range(0, size, 7):
        flipped = f"UPDATE event SET payload = substr(payload, 1, {index}) || '\t' || substr(payload, {index + 2})"
        (damage,) = tamper(path, f"{flipped} WHERE position = 2")
        assert damage.event_ref == "run/r/one@2"


def test_a_deleted_event(path: Path) -> None:
    gap, broken = tamper(path, "DELETE FROM event WHERE position = 2")
    assert gap == Damage("run/r/one@3", 3, "positions 2 to 2 are missing")
    assert broken == Damage("run/r/one@3", 3, "version 1 of the stream is followed by version 3")


def test_a_deleted_event_whose_place_was_closed(path: Path) -> None:
    (damage,) = tamper(
        path, "DELETE FROM event WHERE position = 2",
        "UPDATE event SET version = version - 1 WHERE stream_id = 1 AND position > 2",
        "UPDATE event SET position = position - 1 WHERE position > 2", "UPDATE stream SET version = 3 WHERE id = 1",
    )  # fmt: skip
    assert (damage.event_ref, damage.position) == ("run/r/one@2", 2)


@pytest.mark.parametrize(("count", "other"), [(1, 2), (2, 3), (1, 6)])
def test_two_swapped_events(path: Path, count: int, other: int) -> None:
    """Their contents change places; versions and positions stay."""
    columns = "type, schema, recorded_at_us, observed_at_us, causation, payload, chain"
    damages = tamper(
        path, f"CREATE TEMP TABLE held AS SELECT position, {columns} FROM event WHERE position IN ({count}, {other})",
        f"UPDATE event SET ({columns}) = (SELECT {columns} FROM held WHERE held.position = {other}) "
        f"WHERE position = {count}",
        f"UPDATE event SET ({columns}) = (SELECT {columns} FROM held WHERE held.position = {count}) "
        f"WHERE position = {other}",
    )  # fmt: skip
    assert damages[0].position == count


def test_an_event_moved_to_another_stream(path: Path) -> None:
    damages = tamper(
        path, "UPDATE event SET version = 9 WHERE position = 5", "UPDATE event SET stream_id = 2, version = 2 "
        "WHERE position = 2", "UPDATE event SET stream_id = 1, version = 2 WHERE position = 5",
    )  # fmt: skip
    assert {damage.position for damage in damages} >= {2}


@pytest.mark.parametrize("last", [5, 6, 1])
def test_a_log_cut_short(path: Path, last: int) -> None:
    damages = tamper(path, f"DELETE FROM event WHERE position > {last}")
    assert damages
    assert all("its head says" in damage.message for damage in damages)


def test_a_stream_cut_short_within_the_log(path: Path) -> None:
    gap, head = tamper(path, "DELETE FROM event WHERE position = 6")
    assert "positions 6 to 6" in gap.message
    assert head == Damage("run/r/one@3", 7, "the stream ends at version 3, its head says 4")


def test_a_last_event_that_was_replaced(path: Path) -> None:
    (damage,) = tamper(path, "UPDATE stream SET chain = zeroblob(32) WHERE id = 2")
    assert damage.event_ref == "run/r/other@3"
    assert "head" in damage.message


def test_an_inserted_event(path: Path) -> None:
    (damage,) = tamper(
        path, "INSERT INTO event SELECT 8, stream_id, 5, type, schema, recorded_at_us, observed_at_us, causation, "
        "payload, chain FROM event WHERE position = 6", "UPDATE stream SET version = 5 WHERE id = 1",
    )  # fmt: skip
    assert (damage.event_ref, damage.position) == ("run/r/one@5", 8)


def test_a_stream_that_lost_its_name(path: Path) -> None:
    assert tamper(path, "DELETE FROM stream WHERE id = 2")


@pytest.mark.parametrize("eighth", range(3, 8))
def test_bytes_overwritten_in_the_file(tmp_path: Path, eighth: int) -> None:
    path = tmp_path / "full.db"
    with SqliteStore(path) as store:
        store.append([Append(FIRST, 0, units(500))], NOW)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size * eighth // 8)
        file.write(b"\xaa" * 2000)
    full = False
    with suppress(StoreUnusable), SqliteStore(path) as store:
        full = store.verify() == ()
    assert not full
