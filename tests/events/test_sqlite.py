"""The SQLite log: the conformance kit, what becomes of damaged files, and the words for it."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from mz_events.adapters import migrate
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.feature import PhaseCompleted
from mz_events.codec import Codec
from mz_events.store import Append, StoreUnusable, UnknownEvent

from tests.events.conformance import FIRST, NOW, OTHER, LogConformance, follow, units
from tests.support.mounts import in_small_filesystem


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".mz" / "mz.db"


@pytest.fixture
def log(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as store:
        yield store


def filled(path: Path, count: int = 3) -> None:
    with SqliteStore(path) as store:
        store.append([Append(FIRST, 0, units(count))], NOW)


class TestSqliteLog(LogConformance):
    pass


def test_it_is_there_when_opened_again(path: Path) -> None:
    with SqliteStore(path) as store:
        recorded = store.append([Append(FIRST, 0, units(3))], NOW)
        identity = store.log_id
    with SqliteStore(path) as store:
        assert tuple(store.read(FIRST)) == recorded
        assert store.log_id == identity
        assert store.append([Append(FIRST, 3, units(1))], NOW)[0].position == 4


def test_a_log_of_the_current_format_is_not_backed_up(path: Path) -> None:
    filled(path)
    with SqliteStore(path) as store:
        assert store.head() == 3
    assert not list(path.parent.glob("*.bak"))


def test_two_logs_have_two_ids(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "a.db") as sqlite_store, SqliteStore(tmp_path / "b.db") as other:
        assert sqlite_store.log_id != other.log_id


def test_closing_leaves_one_file_and_its_lock(path: Path) -> None:
    filled(path)
    assert sorted(file.name for file in path.parent.iterdir()) == ["mz.db", "mz.db.lock"]


def test_closing_twice_is_closing(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    store.close()
    with pytest.raises(StoreUnusable):
        store.append([Append(FIRST, 0, units(1))], NOW)


def test_closing_does_not_wait_for_ever(path: Path, log: SqliteStore) -> None:
    store = SqliteStore(path, timeout_seconds=0.05)
    with log.exclusive():
        store.close()


def test_several_stores_may_be_open(path: Path, log: SqliteStore) -> None:
    with SqliteStore(path) as other, SqliteStore(path, read_only=True) as reader:
        log.append([Append(FIRST, 0, units(1))], NOW)
        other.append([Append(FIRST, 1, units(1, 2))], NOW)
        assert [item.version for item in reader.read(FIRST)] == [1, 2]
        log.append([Append(OTHER, 0, units(1))], NOW)
        assert [recorded.stream for recorded in reader.read_all(after=2)] == [OTHER]


def test_reading_only_refuses_to_append(path: Path) -> None:
    filled(path)
    with SqliteStore(path, read_only=True) as reader:
        with pytest.raises(StoreUnusable, match="read-only"):
            reader.append([Append(FIRST, 3, units(1))], NOW)
        with pytest.raises(StoreUnusable, match="read-only"), reader.exclusive():
            pass
        assert reader.head() == 3


def test_reading_where_nothing_is(path: Path) -> None:
    with pytest.raises(StoreUnusable, match="there is no log at"):
        SqliteStore(path, read_only=True)
    assert not path.parent.exists()


def test_followers_get_what_is_appended_meanwhile(path: Path, log: SqliteStore) -> None:
    log.append([Append(FIRST, 0, units(2))], NOW)
    numbers: list[int] = []
    done = threading.Event()

    def collect() -> None:
        with SqliteStore(path, read_only=True) as reader:
            numbers.extend(recorded.position for recorded in follow(reader, 1, lambda: not done.is_set()))

    thread = threading.Thread(target=collect)
    thread.start()
    for version in range(2, 5):
        log.append([Append(FIRST, version, units(1))], NOW)
    done.set()
    thread.join()
    assert numbers == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET payload = x'00' WHERE position = 1",
        "DELETE FROM event WHERE position = 3",
        "DELETE FROM stream",
    ],
)
def test_the_file_itself_is_append_only(path: Path, statement: str) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)


def test_the_migrations_make_the_tables_that_queries_are_built_from(path: Path) -> None:
    from mz_events.adapters.tables import METADATA  # It loads SQLAlchemy, which no other test needs.

    filled(path)
    with closing(sqlite3.connect(path)) as connection:
        for table in METADATA.sorted_tables:
            made = [
                (name, kind, bool(needed), bool(key))
                for _, name, kind, needed, _, key in connection.execute(f"PRAGMA table_info({table.name})")
            ]
            assert made == [
                (column.name, str(column.type), not column.nullable, column.primary_key) for column in table.columns
            ]


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def in_its_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


def claim(path: Path, pragma: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA {pragma}")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "emptied": (lambda path: path.write_bytes(b""), "has 0 bytes, too few"),
    "another file": (lambda path: path.write_bytes(b"backlog\n" * 4096), "is not a database"),
    "cut within the header": (lambda path: os.truncate(path, 60), "has 60 bytes, too few"),
    "cut short": (lambda path: os.truncate(path, 4096), "is damaged"),
    "zeroed": (lambda path: overwrite(path, 4096, bytes(path.stat().st_size - 4096)), "is damaged"),
    "another application's": (lambda path: claim(path, "application_id = 42"), "but another SQLite database"),
    "before the first release": (
        lambda path: claim(path, f"application_id = {0x6D7A0001}"),
        "before the first release of mz",
    ),
    "a newer format": (lambda path: claim(path, "user_version = 99"), "has format 99, written by a newer mz"),
    "a directory": (in_its_place, "mz.db"),
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_left_alone(path: Path, damage: str, read_only: bool) -> None:
    filled(path, count=500)
    do, text = DAMAGES[damage]
    do(path)
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(StoreUnusable, match=text) as caught, SqliteStore(path, read_only=read_only) as store:
        list(store.read_all())
    assert str(path) in str(caught.value)
    assert (None if path.is_dir() else path.read_bytes()) == before


def test_a_write_ahead_log_without_its_file_is_not_thrown_away(path: Path) -> None:
    filled(path)
    orphan = path.with_name("mz.db-wal")
    path.rename(orphan)
    with pytest.raises(StoreUnusable, match="is missing but"):
        SqliteStore(path)
    assert orphan.stat().st_size > 0


def test_a_creation_that_was_cut_off_is_begun_anew(path: Path) -> None:
    path.parent.mkdir()
    path.with_name("mz.db.new").write_bytes(b"half")
    path.with_name("mz.db.new-wal").write_bytes(b"half")
    filled(path)
    assert sorted(file.name for file in path.parent.iterdir()) == ["mz.db", "mz.db.lock"]


@pytest.mark.parametrize("statement", ["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE"])
def test_a_file_locked_by_another_program(path: Path, statement: str) -> None:
    filled(path)
    with SqliteStore(path, timeout_seconds=0.05) as store, closing(migrate.connect(path.as_uri(), 1)) as other:
        other.execute(statement)
        with pytest.raises(StoreUnusable, match="is locked by another program"):
            store.append([Append(FIRST, 3, units(1))], NOW)
        other.execute("ROLLBACK")
        assert store.append([Append(FIRST, 3, units(1))], NOW)[0].version == 4


def test_a_lock_that_is_never_given_back(path: Path, log: SqliteStore) -> None:
    with SqliteStore(path, timeout_seconds=0.05) as other:
        with (
            log.exclusive(),
            pytest.raises(StoreUnusable, match=r"mz.db.lock was held by another process for 0.05 seconds"),
        ):
            other.append([Append(FIRST, 0, units(1))], NOW)
        with other.exclusive():
            waiting = threading.Thread(target=log.append, args=([Append(FIRST, 0, units(1))], NOW))
            waiting.start()
            assert other.head() == 0
        waiting.join()
        assert other.head() == 1


def test_a_path_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnusable, match="cannot be used"):
        SqliteStore(tmp_path / "file" / "mz.db")


def test_odd_paths(tmp_path: Path) -> None:
    path = tmp_path / "100% sure? #1 ü" / "mz.db"
    filled(path)
    with SqliteStore(path, read_only=True) as reader:
        assert reader.head() == 3


def test_an_event_of_a_newer_version_is_named_where_it_stands(path: Path) -> None:
    filled(path)
    with SqliteStore(path, codec=Codec((PhaseCompleted,), {})) as older:
        with pytest.raises(UnknownEvent, match=r"run/r/one@1 is unit\.started/1"):
            list(older.read(FIRST))
        with pytest.raises(UnknownEvent, match="run/r/one@1"):
            list(older.read_all())


def second(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE log ADD COLUMN note TEXT")


def failing(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE log ADD COLUMN other TEXT")
    raise sqlite3.OperationalError("no such luck")


NEWER = (*migrate.MIGRATIONS, second)


def test_an_older_format_is_lifted_after_a_copy_was_made(path: Path) -> None:
    filled(path)
    with SqliteStore(path, migrations=NEWER) as store:
        assert store.head() == 3
        assert store.append([Append(FIRST, 3, units(1))], NOW)[0].position == 4
    copy = path.with_name("mz.db.format1.bak")
    with SqliteStore(copy) as store:
        assert store.head() == 3
    with pytest.raises(StoreUnusable, match="has format 2, written by a newer mz; this one reads formats up to 1"):
        SqliteStore(path)


def test_a_copy_is_only_made_when_there_is_something_to_lift(path: Path) -> None:
    with SqliteStore(path, migrations=NEWER), SqliteStore(path, migrations=NEWER):
        pass
    assert not list(path.parent.glob("*.bak*"))


def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    filled(path)
    with pytest.raises(StoreUnusable, match="no such luck"):
        SqliteStore(path, migrations=(*migrate.MIGRATIONS, second, failing))
    with SqliteStore(path) as store:
        assert store.head() == 3
    assert path.with_name("mz.db.format1.bak").exists()


@pytest.mark.parametrize(("size", "what"), [("2m", "full"), ("3m", "crammed"), ("8m", "read-only")])
@pytest.mark.slow
def test_a_disk_that_is_full_or_read_only_loses_nothing(tmp_path: Path, size: str, what: str) -> None:
    done = in_small_filesystem(tmp_path / "small", size, [sys.executable, "-m", "tests.events.small_disk", what])
    assert done.returncode == 0, done.stdout + done.stderr
