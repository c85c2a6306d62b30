"""Collecting garbage: what events cite stays, whatever happens meanwhile; the rest goes once it is old."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mz_engine.agents.process import spool_directory
from mz_engine.housekeeping.garbage import MIN_AGE_SECONDS, CollectedGarbage, collect_garbage
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.inbox import PausePosted
from mz_events.names import Digest, inbox_stream
from mz_events.store import UnknownEvent

from tests.cli.stored_run import RUN, StoredRun

OTHER_COLUMNS = "schema, recorded_at_us, observed_at_us, causation, chain"
OLD = MIN_AGE_SECONDS + 60


def age(path: Path, seconds: float = OLD) -> None:
    at = time.time() - seconds
    for item in (*(path.rglob("*") if path.is_dir() else ()), path):
        os.utime(item, (at, at))


def gather(stored_run: StoredRun, dry_run: bool = False) -> CollectedGarbage:
    return collect_garbage(stored_run.home / ".mz", stored_run.store, dry_run)


@pytest.fixture
def summary(tmp_path: Path) -> StoredRun:
    log = StoredRun(tmp_path)
    log.begin("login")
    log.deliver("login")
    return log


def test_what_nothing_cites_goes_once_it_is_old(summary: StoredRun) -> None:
    blobs = summary.home / ".mz" / "blobs"
    cited = {path for path in blobs.rglob("*") if path.is_file()}
    age(blobs)
    old, young = summary.blob("nobody cites this"), summary.blob("nor this, yet")
    age(summary.blobs.path(old))
    dry = gather(summary, dry_run=True)
    assert summary.blobs.get(old) == b"nobody cites this"
    done = gather(summary)
    assert (dry.blobs.count, dry.blobs.size_bytes) == (done.blobs.count, done.blobs.size_bytes)
    assert done.blobs.count == 1
    assert (done.kept_blobs.count, done.recent_blobs.count) == (len(cited) + 1, 1)
    assert {path for path in blobs.rglob("*") if path.is_file()} == cited | {summary.blobs.path(young)}
    summary.close()


def test_a_blob_that_is_used_again_is_young_again(summary: StoredRun) -> None:
    digest = summary.blob("used long ago")
    age(summary.blobs.path(digest))
    assert summary.blob("used long ago") == digest
    assert gather(summary).blobs.count == 0
    age(summary.blobs.path(digest))
    assert gather(summary).blobs.count == 1
    assert summary.blobs.delete(digest, time.time()) == 0, "it is gone"
    summary.close()


def test_spools_of_recorded_calls_go_and_open_ones_stay(summary: StoredRun) -> None:
    folder = summary.home / ".mz" / "spool"
    waiting = summary.ref("login", "code", attempt=9)
    summary.ask("login", waiting)
    keys = {summary.ref("login", "prd").key: True, waiting.key: False, f"{RUN}/gone/prd/-/1/1/agent.builder": True}
    for key in keys:
        path = spool_directory(folder, key)
        path.mkdir(parents=True)
        (path / "stdout").write_text("words")
    assert gather(summary).spools.count == 0, "they are young"
    age(folder)
    done = gather(summary)
    assert (done.spools.count, done.spools.size_bytes) == (2, 10)
    assert {key: not spool_directory(folder, key).exists() for key in keys} == keys
    summary.close()


def test_files_that_were_never_finished_go(summary: StoredRun) -> None:
    home = summary.home / ".mz"
    names = ("blobs/ab/.new-1", "mz.db.new-wal", f"worktree-notes/{RUN}/login/notes.partial", "spool/k/exit.json.tmp")
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("half")
    assert gather(summary).unfinished_files.count == 0, "they are young: somebody writes them now"
    for name in names:
        age(home / name)
    done = gather(summary)
    assert (done.unfinished_files.count, done.unfinished_files.size_bytes) == (4, 16)
    assert not [name for name in names if (home / name).exists()]
    assert (home / "mz.db").is_file()
    summary.close()


def test_nothing_goes_where_a_newer_mz_wrote(summary: StoredRun) -> None:
    digest = summary.blob("what the newer one cites")
    age(summary.blobs.path(digest))
    with sqlite3.connect(summary.home / ".mz" / "mz.db") as file:
        file.execute(
            f"INSERT INTO event (stream_id, version, position, type, payload, {OTHER_COLUMNS}) SELECT stream_id, "
            "version + 1, position + 1, 'thing.of-tomorrow', CAST('{\"type\":\"thing.of-tomorrow\"}' AS BLOB), "
            f"{OTHER_COLUMNS} FROM event ORDER BY position DESC LIMIT 1"
        )
    file.close()
    with pytest.raises(UnknownEvent):
        gather(summary)
    assert summary.blobs.get(digest) == b"what the newer one cites"
    summary.close()


WRITER = """
import sys, time
from pathlib import Path
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.inbox import PausePosted
from mz_events.names import inbox_stream
from mz_events.store import Append
home = Path(sys.argv[1])
blobs = FileBlobs(home / "blobs")
with SqliteStore(home / "mz.db") as store:
    for number in range(int(sys.argv[2])):
        actor = blobs.put(b"person %d" % number)
        store.append([Append(inbox_stream("r1"), None, (PausePosted(actor=actor),))], time.time_ns() // 1000)
"""


@pytest.mark.slow
def test_beside_a_writer_and_killed_again_and_again(summary: StoredRun) -> None:
    """A process puts blobs that lie there, old and uncited, and cites them; collectors run meanwhile and are killed."""
    home, count = summary.home / ".mz", 400
    for number in range(count):
        age(summary.blobs.path(summary.blob(f"person {number}")))
    summary.close()
    collector = f"from tests.engine.test_collect import forever; forever({str(home)!r})"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(home), str(count)])
    killed = 0
    while writer.poll() is None:
        child = subprocess.Popen([sys.executable, "-c", collector], cwd=Path(__file__).parents[2])
        time.sleep(0.7)
        child.send_signal(signal.SIGKILL)
        child.wait()
        killed += 1
    assert writer.returncode == 0
    assert killed
    with SqliteStore(home / "mz.db") as store:
        collect_garbage(home, store, dry_run=False)
        cited = [
            recorded.event.actor
            for recorded in store.read(inbox_stream("r1"))
            if isinstance(recorded.event, PausePosted)
        ]
        assert store.verify() == ()
    blobs = FileBlobs(home / "blobs")
    assert [blobs.get(Digest(digest)) for digest in cited] == [b"person %d" % number for number in range(count)]


def forever(home: str) -> None:
    """Collects until it is killed, as if every blob were old that was not just touched."""
    with SqliteStore(Path(home) / "mz.db") as store:
        while True:
            collect_garbage(Path(home), store, dry_run=False, now=time.time() + MIN_AGE_SECONDS - 5)
