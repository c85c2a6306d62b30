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
SLOW_POLL_SECONDS = 0.005
FAST_POLLING_SECONDS = 0.1


class StoreLock:
    """Excludes the other threads of this process and all other processes; not re-entrant.

    The kernel releases it when the process ends, however it ends. Raises: StoreUnusable after `timeout_seconds`.
    """

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self.path = path
        self._timeout_seconds = timeout_seconds
        self._thread_lock = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> StoreLock:
        deadline = time.monotonic() + self._timeout_seconds
        if not self._thread_lock.acquire(timeout=self._timeout_seconds):
            raise self._timeout_error()
        try:
            while not self._try_lock():
                remaining_seconds = deadline - time.monotonic()
                if remaining_seconds <= 0:
                    raise self._timeout_error()
                time.sleep(POLL_SECONDS if self._timeout_seconds - remaining_seconds < FAST_POLLING_SECONDS else SLOW_POLL_SECONDS)
        except BaseException:
            self._thread_lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._thread_lock.release()

    def close(self) -> None:
        """Close the file; the lock is unusable afterwards."""
        with suppress(OSError):
            os.close(self._descriptor)

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _timeout_error(self) -> StoreUnusable:
        return StoreUnusable(
            f"{self.path} was held by another process for {self._timeout_seconds:g} seconds: "
            "end that process (it may be suspended), then try again"
        )
