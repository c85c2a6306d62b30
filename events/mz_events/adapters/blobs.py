"""Blobs as compressed files named by their content hash, flushed to disk before `put` returns."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import zstandard

from mz_events.adapters.migrate import sync
from mz_events.names import Digest
from mz_events.store import BlobDamaged, BlobMissing, BlobWasErased, StoreUnusable

LEVEL = 3
LOCK_SUFFIX = ".lock"
"""Suffix of the lock file beside the directory."""
ERASED_SUFFIX = ".erased"
"""Suffix of the file with the reason, beside where an erased blob was."""
SHARDS = tuple(f"{number:02x}" for number in range(256))
FILE_NAME = re.compile(r"[0-9a-f]{62}")
BLOB_BYTES_MAX = 1 << 29
"""Maximum size of a blob. The longest text that mz stores is an agent's output, which ends at 200 MB."""
TEMPORARY_PREFIX = ".new-"
"""Prefix of files that are still being written."""


class FileBlobs:
    """The Blobs port over a directory: `ab/cdef...` holds the zstd frame of the bytes whose sha256 is `abcdef...`.

    Any number of threads and processes may put and get at once.
    """

    def __init__(self, root: Path, bytes_max: int = BLOB_BYTES_MAX) -> None:
        self.root, self.bytes_max = root, bytes_max

    def path(self, digest: Digest) -> Path:
        """Return the file of the blob, whether it exists or not."""
        return self.root.joinpath(digest[:2], digest[2:])

    def put(self, data: bytes) -> Digest:
        """Store the bytes and return their digest. A blob that exists is only touched, which protects it from the next
        collection.

        Raises: StoreUnusable when the bytes cannot be written.
        """
        digest = Digest(hashlib.sha256(data).hexdigest())
        path = self.path(digest)
        if len(data) > self.bytes_max:
            raise StoreUnusable(f"a text of {len(data)} bytes cannot be stored: a blob has at most {self.bytes_max}")
        try:
            if not self._touch_if_intact(path, digest):
                self._write(path, data)
            sync(path.parent)
        except OSError as error:
            raise StoreUnusable(f"a blob cannot be written below {self.root}: {error.strerror or error}") from error
        return digest

    def get(self, digest: Digest) -> bytes:
        """Return the bytes of the blob.

        Raises: BlobMissing; BlobDamaged when it is no regular file, too large, or does not match its digest.
        """
        path = self.path(digest)
        try:
            packed = read_regular(path, self.bytes_max * 2)  # What cannot be compressed grows a little.
            if not 0 <= zstandard.frame_content_size(packed) <= self.bytes_max:
                raise BlobDamaged(digest, str(path))
            data = zstandard.ZstdDecompressor().decompress(packed)
        except FileNotFoundError:
            if (note := path.with_suffix(ERASED_SUFFIX)).is_file():
                raise BlobWasErased(digest, note.read_text("utf-8")) from None
            raise BlobMissing(digest) from None
        except (zstandard.ZstdError, ValueError):
            raise BlobDamaged(digest, str(path)) from None
        except OSError as error:
            raise StoreUnusable(f"{path} cannot be read: {error.strerror or error}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise BlobDamaged(digest, str(path))
        return data

    def was_erased(self, digest: Digest) -> bool:
        return self.path(digest).with_suffix(ERASED_SUFFIX).exists()

    def erase(self, digest: Digest, reason: str) -> None:
        """Put the reason in the place of the blob. The caller has recorded it; killed, this is repeatable."""
        path = self.path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(ERASED_SUFFIX).write_text(reason, "utf-8")
        path.unlink(missing_ok=True)
        sync(path.parent)

    def list_shard(self, shard: str) -> Iterator[Digest]:
        """Yield the digests of the blobs in one of the `SHARDS`."""
        with suppress(FileNotFoundError), os.scandir(self.root / shard) as entries:
            yield from (Digest(shard + entry.name) for entry in entries if FILE_NAME.fullmatch(entry.name))

    def delete(self, digest: Digest, untouched_since: float) -> int:
        """Delete the blob unless it was put or touched after `untouched_since` (seconds since the epoch).

        Returns the bytes freed; 0 when the blob was spared. The caller knows that no event cites it.

        Raises: StoreUnusable.
        """
        path = self.path(digest)
        try:
            with self._collection_lock(fcntl.LOCK_EX):
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
    def _collection_lock(self, operation: int) -> Iterator[None]:
        """Hold the collection lock. Without it, a blob about to be cited again could be deleted between checking its
        age and removing it.

        Raises: FileNotFoundError where no blob was ever put.
        """
        descriptor = os.open(
            self.root.with_name(self.root.name + LOCK_SUFFIX), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        try:
            fcntl.flock(descriptor, operation)
            yield
        finally:
            os.close(descriptor)

    def _touch_if_intact(self, path: Path, digest: Digest) -> bool:
        """Return True if an intact blob exists. Touches it first, so that no collection deletes it meanwhile."""
        try:
            with self._collection_lock(fcntl.LOCK_SH):
                os.utime(path, follow_symlinks=False)
            self.get(digest)
        except (FileNotFoundError, BlobMissing):
            return False
        return True

    def _write(self, path: Path, data: bytes) -> None:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync(self.root)
        from tempfile import mkstemp

        descriptor, name = mkstemp(dir=path.parent, prefix=TEMPORARY_PREFIX)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(zstandard.ZstdCompressor(level=LEVEL).compress(data))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Return the bytes of a file. Follows no link, waits for no FIFO. Raises OSError; ValueError with the reason."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > bytes_max:
        raise ValueError(f"is not a regular file of at most {bytes_max // 1_000_000} MB")
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        return file.read(min(bytes_max, status.st_size + 1))  # Space for what is asked for is set aside.
