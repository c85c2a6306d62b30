"""Adapter: blobs as compressed files, named by their content; on the disk before `put` returns."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import zstandard

from mz_events.adapters.migrate import sync
from mz_events.names import Digest
from mz_events.store import BlobDamaged, BlobMissing, StoreUnusable

LEVEL = 3
LOCK = ".lock"
"""Ends the name of the file beside the directory."""
SHARDS = tuple(f"{number:02x}" for number in range(256))
NAME = re.compile(r"[0-9a-f]{62}")
FRESH = ".new-"
"""How files begin that are not whole yet."""


class FileBlobs:
    """The Blobs port over a directory: `ab/cdef...` holds the zstd frame of the bytes whose sha256 is `abcdef...`.

    Any number of threads and processes may put and get at once.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, digest: Digest) -> Path:
        """Where the blob is kept, if it is there."""
        return self.root / digest[:2] / digest[2:]

    def put(self, data: bytes) -> Digest:
        """Keeps the bytes and returns their digest. Those already there are only touched, which spares them from
        the next collection. Raises StoreUnusable when they cannot be written."""
        digest = Digest(hashlib.sha256(data).hexdigest())
        path = self.path(digest)
        try:
            if not self._reused(path, digest):
                self._write(path, data)
            sync(path.parent)
        except OSError as error:
            raise StoreUnusable(f"a blob cannot be written below {self.root}: {error.strerror or error}") from error
        return digest

    def get(self, digest: Digest) -> bytes:
        """The bytes. Raises BlobMissing, or BlobDamaged when the file does not hold what was put there."""
        path = self.path(digest)
        try:
            data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
        except FileNotFoundError:
            raise BlobMissing(digest) from None
        except zstandard.ZstdError:
            raise BlobDamaged(digest, str(path)) from None
        except OSError as error:
            raise StoreUnusable(f"{path} cannot be read: {error.strerror or error}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise BlobDamaged(digest, str(path))
        return data

    def kept(self, shard: str) -> Iterator[Digest]:
        """The blobs in one of the `SHARDS`, as they lie there."""
        with suppress(FileNotFoundError), os.scandir(self.root / shard) as entries:
            yield from (Digest(shard + entry.name) for entry in entries if NAME.fullmatch(entry.name))

    def drop(self, digest: Digest, untouched_since: float) -> int:
        """Removes the blob unless it was put or touched after that (seconds since the epoch); answers how many bytes
        that freed, 0 when it was spared. The caller knows that no event cites it. Raises StoreUnusable."""
        path = self.path(digest)
        try:
            with self._held(fcntl.LOCK_EX):
                status = path.stat()
                if status.st_mtime > untouched_since:
                    return 0
                path.unlink()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StoreUnusable(f"{path} cannot be removed: {error.strerror or error}") from error
        return status.st_size

    @contextmanager
    def _held(self, how: int) -> Iterator[None]:
        """Between looking how old a blob is and removing it, nobody may touch it: without this lock one that is about
        to be cited again could go. Raises FileNotFoundError where no blob was ever put."""
        descriptor = os.open(self.root.with_name(self.root.name + LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)

    def _reused(self, path: Path, digest: Digest) -> bool:
        """Whether the blob is there and whole; touches it first, so that no collection takes it meanwhile."""
        try:
            with self._held(fcntl.LOCK_SH):
                os.utime(path)
            self.get(digest)
        except (FileNotFoundError, BlobMissing):
            return False
        return True

    def _write(self, path: Path, data: bytes) -> None:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync(self.root)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=FRESH)
        new = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(zstandard.ZstdCompressor(level=LEVEL).compress(data))
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
