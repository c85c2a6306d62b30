"""Blobs come back byte for byte, or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from mz_events.adapters.blobs import FileBlobs
from mz_events.names import Digest
from mz_events.store import BlobDamaged, BlobMissing, StoreUnusable

TEXT = b"prose " * 1000


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs")


def files(blobs: FileBlobs) -> list[Path]:
    return [path for path in blobs.root.rglob("*") if path.is_file()]


def test_what_is_put_is_got(blobs: FileBlobs) -> None:
    digest = blobs.put(TEXT)
    assert digest == hashlib.sha256(TEXT).hexdigest()
    assert blobs.get(digest) == TEXT
    assert blobs.path(digest) == blobs.root / digest[:2] / digest[2:]
    assert files(blobs) == [blobs.path(digest)]
    assert blobs.path(digest).stat().st_size < len(TEXT) // 10


@settings(deadline=None)
@given(data=st.binary(max_size=5000))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    blobs = FileBlobs(tmp_path_factory.getbasetemp() / "any")
    assert blobs.get(blobs.put(data)) == data


def test_the_same_content_is_kept_once_and_touched(blobs: FileBlobs) -> None:
    path = blobs.path(blobs.put(TEXT))
    os.utime(path, (1, 1))
    before = path.stat().st_ino
    blobs.put(TEXT)
    assert path.stat().st_ino == before
    assert path.stat().st_mtime > 1
    assert files(blobs) == [path]


def test_a_blob_that_was_never_put(blobs: FileBlobs) -> None:
    digest = Digest("ab" * 32)
    with pytest.raises(BlobMissing, match=digest) as caught:
        blobs.get(digest)
    assert caught.value.digest == digest


def test_an_erased_blob_is_missing_until_it_is_put_again(blobs: FileBlobs) -> None:
    digest = blobs.put(TEXT)
    blobs.path(digest).unlink()
    with pytest.raises(BlobMissing):
        blobs.get(digest)
    blobs.put(TEXT)
    assert blobs.get(digest) == TEXT


def test_every_flipped_byte_is_noticed(blobs: FileBlobs) -> None:
    data = b"short and sweet"
    digest = blobs.put(data)
    content = blobs.path(digest).read_bytes()
    for index in range(len(content)):
        blobs.path(digest).write_bytes(content[:index] + bytes([content[index] ^ 0x55]) + content[index + 1 :])
        try:
            assert blobs.get(digest) == data
        except BlobDamaged as error:
            assert "is damaged" in str(error)  # noqa: PT017  # some bytes of the frame's header mean nothing


@pytest.mark.parametrize("left", [0, 1, 5, -1])
def test_a_blob_cut_short_is_damaged_and_mended_by_the_next_put(blobs: FileBlobs, left: int) -> None:
    digest = blobs.put(TEXT)
    path = blobs.path(digest)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(BlobDamaged, match="does not hold the bytes"):
        blobs.get(digest)
    blobs.put(TEXT)
    assert blobs.get(digest) == TEXT


def test_another_blobs_bytes_are_not_taken_for_it(blobs: FileBlobs) -> None:
    digest, other = blobs.put(b"one"), blobs.put(b"other")
    blobs.path(other).replace(blobs.path(digest))
    with pytest.raises(BlobDamaged):
        blobs.get(digest)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnusable, match="a blob cannot be written below"):
        FileBlobs(tmp_path / "file").put(TEXT)


def test_a_place_that_cannot_be_read(blobs: FileBlobs) -> None:
    digest = blobs.put(TEXT)
    blobs.path(digest).unlink()
    blobs.path(digest).parent.rmdir()
    blobs.path(digest).parent.write_text("in the way")
    with pytest.raises(StoreUnusable, match="cannot be read"):
        blobs.get(digest)


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
        server.bind(path.name)


def link_to_a_copy(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(zstandard.compress(TEXT))
    path.symlink_to(copy)


def lengthen(path: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize("put_there", [os.mkfifo, bind_socket, link_to_a_copy, lengthen, Path.mkdir])
def test_what_is_no_file_of_ours_is_damaged(tmp_path: Path, put_there: Callable[[Path], None]) -> None:
    """A FIFO would block for ever, a link could lead to a device, a sparse file would fill the memory."""
    blobs = FileBlobs(tmp_path / "blobs", bytes_max=500_000)
    digest = blobs.put(TEXT)
    blobs.path(digest).unlink()
    put_there(blobs.path(digest))
    with pytest.raises(BlobDamaged, match="does not hold the bytes"):
        blobs.get(digest)
    if put_there is not Path.mkdir:
        blobs.put(TEXT)
        assert blobs.get(digest) == TEXT


@pytest.mark.parametrize("states_size", [True, False])
def test_a_small_file_cannot_fill_the_memory(tmp_path: Path, states_size: bool) -> None:
    """The limit holds for what comes out of the file, whether its header tells the size, or a stream does not."""
    blobs, limited = FileBlobs(tmp_path / "blobs"), FileBlobs(tmp_path / "blobs", bytes_max=len(TEXT) - 1)
    digest = blobs.put(TEXT)
    assert blobs.get(digest) == TEXT
    packed = zstandard.ZstdCompressor(write_content_size=states_size).compress(TEXT)
    assert len(packed) < len(TEXT) // 10
    blobs.path(digest).write_bytes(packed)
    with pytest.raises(BlobDamaged, match="does not hold the bytes"):
        limited.get(digest)
    with pytest.raises(StoreUnusable, match=f"a text of {len(TEXT)} bytes cannot be stored"):
        limited.put(TEXT)


def test_threads_may_put_the_same_at_once(blobs: FileBlobs) -> None:
    contents: list[bytes] = []

    def work() -> None:
        for number in range(20):
            contents.append(blobs.get(blobs.put(TEXT + bytes([number]))))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(contents) == 120
    assert len(files(blobs)) == 20


def test_a_blob_cannot_be_touched_and_dropped_at_once(blobs: FileBlobs) -> None:
    """A collector that is just deciding keeps a writer waiting, who then finds the blob gone and writes it again."""
    digest = blobs.put(b"text")
    assert list(blobs.list_shard(digest[:2])) == [digest]
    with ThreadPoolExecutor(1) as pool:
        with open(blobs.root.with_name("blobs.lock"), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            putting = pool.submit(blobs.put, b"text")
            assert not wait([putting], timeout=0.1).done
            blobs.path(digest).unlink()
        assert putting.result(timeout=10) == digest
    assert blobs.get(digest) == b"text"
    assert blobs.delete(digest, time.time() - 60) == 0
    assert blobs.delete(digest, time.time() + 60) > 0
    assert list(blobs.list_shard(digest[:2])) == []
