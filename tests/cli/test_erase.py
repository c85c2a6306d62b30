"""`mz erase`: the text is gone, everything else is as it was, and whoever looks for it reads why."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from filelock import FileLock
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.inbox import BlobErased
from mz_events.codec import cited_digests
from mz_events.names import Digest, erasure_stream
from mz_events.store import BlobWasErased

from tests.cli.damage import blob_path
from tests.cli.drive import Mz
from tests.cli.stored_run import RUN, StoredRun

REASON = "a customer's address"
ARTIFACT = "# text"
READERS = (
    "verify", "audit --full", "status", "log --all", "show login --prompt", "show login --output", "review list",
    "review show audit", "cost", "runs", "check",
)  # fmt: skip


@pytest.fixture
def log(stored_run: StoredRun) -> StoredRun:
    stored_run.close()
    return stored_run


def events(home: Path) -> list[BlobErased]:
    with SqliteStore(home / ".mz" / "mz.db", read_only=True) as store:
        return [
            recorded.event for recorded in store.read(erasure_stream(RUN)) if isinstance(recorded.event, BlobErased)
        ]


def test_the_text_and_its_copies_are_gone(log: StoredRun, mz: Mz) -> None:
    digest, spool = log.blob(ARTIFACT), log.home / ".mz" / "spool" / "call"
    spool.mkdir(parents=True)
    for name, text in (("copy", ARTIFACT), ("other", "# else")):
        (spool / name).write_text(text)
    assert mz("seal", "--out", "seal.txt").exit == 0
    answer = mz("erase", digest[:12], "--reason", f"  {REASON}\n")
    assert (answer.exit, answer.out) == (0, f"erased {digest} (6 bytes), cited by {RUN}\n")
    assert not blob_path(log.home, digest).exists()
    assert [path.name for path in spool.iterdir()] == ["other"]
    (event,) = events(log.home)
    assert (event.blob, event.size_bytes, log.blobs.get(event.reason).decode()) == (digest, 6, REASON)
    with pytest.raises(BlobWasErased, match=f"was erased: {REASON}"):
        FileBlobs(log.home / ".mz" / "blobs").get(digest)
    verified = mz("verify", "--against", "seal.txt", "--json")
    assert (verified.exit, msgspec.json.decode(verified.out)["findings"]) == (0, [])


@pytest.mark.slow
def test_every_reader_says_why(log: StoredRun, mz: Mz) -> None:
    """All texts but the settings are gone, and no command fails for that, or calls the log damaged."""
    exits = {line: mz(*line.split()).exit for line in READERS}
    for recorded in log.recorded[1:]:
        for digest in cited_digests(recorded.event):
            if blob_path(log.home, digest).exists():
                assert mz("erase", digest, "--reason", REASON).exit == 0
    for line in READERS:
        answer = mz(*line.split())
        assert (line, answer.exit) == (line, exits[line]), answer.err
        if line.split()[0] in ("show", "review", "status"):
            assert f"erased: {REASON}" in answer.out
    assert "blob.erased" in mz("log", "--all").out
    assert "log\tintact" in mz("audit").out
    shown = mz("show", "login", "--artifact", "prd")
    assert (shown.exit, f"was erased: {REASON}" in shown.err) == (11, True)


def test_a_text_that_is_put_again_is_there_again(log: StoredRun, mz: Mz) -> None:
    digest = log.blob(ARTIFACT)
    mz("erase", digest, "--reason", REASON)
    assert log.blob(ARTIFACT) == digest
    assert log.blobs.get(digest) == ARTIFACT.encode()
    assert mz("verify").exit == 0


def test_an_erasure_that_was_killed_can_be_repeated(log: StoredRun, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is recorded before anything is removed."""
    digest = log.blob(ARTIFACT)

    def killed(blobs: FileBlobs, digest: Digest, reason: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FileBlobs, "erase", killed)
        assert mz("erase", digest, "--reason", REASON).exit == 20
    assert (len(events(log.home)), mz("verify").exit) == (1, 0)
    assert mz("erase", digest, "--reason", REASON).exit == 0
    assert not blob_path(log.home, digest).exists()


def test_a_removed_blob_without_an_event_is_damage(log: StoredRun, mz: Mz) -> None:
    """A note beside it proves nothing."""
    FileBlobs(log.home / ".mz" / "blobs").erase(log.blob(ARTIFACT), REASON)
    assert mz("verify").exit == 1


def test_what_is_not_erased(log: StoredRun, mz: Mz) -> None:
    pins = log.blob("{}")
    for blob in (pins, "", "f" * 64, "no-digest"):
        answer = mz("erase", blob, "--reason", REASON)
        assert (answer.exit, "MZ1002" in answer.err) == (2, True)
    with FileLock(log.home / ".mz" / "run.lock"):
        assert mz("erase", log.blob(ARTIFACT), "--reason", REASON).exit == 16
    for reason in ("", " \n", "x" * 20_001):
        assert mz("erase", log.blob(ARTIFACT), "--reason", reason).exit == 2
    assert events(log.home) == []
    assert mz("erase", log.blob(ARTIFACT)).exit == 2
    assert mz("erase", log.blob(ARTIFACT), "--reason", REASON).exit == 0
    answer = mz("erase", log.blob(REASON), "--reason", "a name")
    assert (answer.exit, "nor the reason of an erasure" in answer.err) == (2, True), "it would stay in another place"
