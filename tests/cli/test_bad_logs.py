"""A log that cannot be used: every command that reads it says so in one line, with a way out, and changes nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.drive import Mz
from tests.cli.stored_run import RUN, tell

READING = (
    ("status",),
    ("runs",),
    ("show", "login"),
    ("log",),
    ("log", "--at", f"run/{RUN}/login@3"),
    ("diff", RUN, RUN),
    ("audit", RUN),
    ("cost",),
    ("cost", "--all"),
    ("verify",),
    ("review", "list"),
    ("review", "show", "login"),
    ("review", "answer", "search", "use SQLite"),
    ("retry", "login"),
    ("pause",),
    ("cancel", "login"),
    ("resume",),
    ("clean", "--blobs", "--dry-run"),
    ("clean", "--dry-run"),
)

Fault = Callable[[Path], None]

UNCONCERNED = (("verify",), ("pause",), ("cancel", "login"), ("clean", "--dry-run"))
"""A single event that nobody knows: what `verify` is there to report, and the others have nothing to do with."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("story")
    tell(home).close()
    (home / ".git").mkdir()
    (home / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return home


def database(home: Path) -> Path:
    return home / ".mz" / "mz.db"


def truncated(home: Path) -> None:
    os.truncate(database(home), database(home).stat().st_size // 2)


def emptied(home: Path) -> None:
    os.truncate(database(home), 0)


def garbage(home: Path) -> None:
    database(home).write_bytes(os.urandom(40_000))


def text(home: Path) -> None:
    database(home).write_text("this was a log once\n" * 1000)


def another(home: Path) -> None:
    """Somebody else's SQLite database."""
    database(home).unlink()
    with sqlite3.connect(database(home)) as connection:
        connection.execute("CREATE TABLE users (name TEXT)")
    connection.close()


def newer(home: Path) -> None:
    with sqlite3.connect(database(home)) as connection:
        connection.execute("PRAGMA user_version = 9999")
    connection.close()


def a_folder(home: Path) -> None:
    database(home).unlink()
    database(home).mkdir()


def unknown(home: Path) -> None:
    """An event that only a newer mz knows."""
    with sqlite3.connect(database(home)) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        changed = connection.execute(
            "UPDATE event SET type = 'future.happened', payload = CAST('{\"type\":\"future.happened\"}' AS BLOB) "
            "WHERE type IN ('item.added', 'phase.started', 'inbox.answer')"
        )
        assert changed.rowcount
    connection.close()


FAULTS: tuple[Callable[[Path], None], ...] = (truncated, emptied, garbage, text, another, newer, a_folder, unknown)


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [
        pytest.param(fault, arguments, marks=() if number % len(FAULTS) == index else pytest.mark.slow,
                     id=f"{fault.__name__}-{'-'.join(arguments[:2])}")
        for index, fault in enumerate(FAULTS)
        for number, arguments in enumerate(READING)
    ],
)  # fmt: skip
def test_a_log_that_cannot_be_used_is_an_error_with_a_way_out(
    fault: Fault, arguments: tuple[str, ...], written: Path, tmp_path: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "repository"
    shutil.copytree(written, home)
    fault(home)
    before = contents(home)
    monkeypatch.chdir(home)
    result = mz(*arguments)
    if fault is unknown and arguments in UNCONCERNED:
        return
    assert result.exit in (10, 11), result
    assert result.err.startswith("error[MZ"), result.err
    assert "hint: " in result.err
    assert "Traceback" not in result.err
    assert len(result.err) < 1000
    assert contents(home) == before


def contents(home: Path) -> dict[str, bytes]:
    """Every file but SQLite's own notes beside the log, locks, and what can be made again."""
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal", ".lock", ".gitignore", "views.sqlite"))
    }
