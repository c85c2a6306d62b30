"""Adapter: blobs as compressed files, named by their content; on the disk before `put` returns."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import zstandard

from mz_events.adapters.migrate import sync
from mz_events.names import Digest
from mz_events.store import BlobDamaged, BlobMissing, StoreUnusable

LEVEL = 3


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

    def _reused(self, path: Path, digest: Digest) -> bool:
        """Whether the blob is there and whole; touches it first, so that no collection takes it meanwhile."""
        try:
            os.utime(path)
            self.get(digest)
        except (FileNotFoundError, BlobMissing):
            return False
        return True

    def _write(self, path: Path, data: bytes) -> None:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync(self.root)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
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
