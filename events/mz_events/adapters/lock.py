"""The lock around every commit and checkpoint of the store.

SQLite's own busy handler is unfair (waits of seconds), and before 3.51.3 two connections that commit and checkpoint at
the same instant can corrupt a write-ahead log. One lock held from BEGIN to COMMIT, and around closing, avoids both.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from mz_events.store import StoreUnusable

POLL_SECONDS = 0.0005
POLL_SECONDS_LATER = 0.005
SOON_SECONDS = 0.1


class StoreLock:
    """Excludes the other threads of this process and all other processes; not re-entrant.

    The kernel releases it when the process ends, however it ends. Raises: StoreUnusable after `timeout_seconds`.
    """

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self.path = path
        self._timeout_seconds = timeout_seconds
        self._threads = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> StoreLock:
        deadline = time.monotonic() + self._timeout_seconds
        if not self._threads.acquire(timeout=self._timeout_seconds):
            raise self._busy()
        try:
            while not self._taken():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._busy()
                time.sleep(POLL_SECONDS if self._timeout_seconds - left < SOON_SECONDS else POLL_SECONDS_LATER)
        except BaseException:
            self._threads.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._threads.release()

    def close(self) -> None:
        """Close the file; the lock is unusable afterwards."""
        with suppress(OSError):
            os.close(self._descriptor)

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _busy(self) -> StoreUnusable:
        return StoreUnusable(
            f"{self.path} was held by another process for {self._timeout_seconds:g} seconds: "
            "end that process (it may be suspended), then try again"
        )
