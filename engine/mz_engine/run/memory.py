"""The Memory port: the log, read up to its end at each selection."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mz_events.names import Commit, Digest
from mz_events.store import Blobs, Store
from mz_projections.memory.evidence import MEMORY, FeatureMemory
from mz_projections.memory.learnings import learnings
from mz_projections.read_models.model import Key

from mz_engine.memory.select import select
from mz_engine.ports import Clock, MemoryQuery, RepositoryUnusable, Secrets, Selection

PatchOf = Callable[[Commit, Commit], bytes]
"""Returns the difference of two trees. May raise RepositoryUnusable."""


class LogMemory:
    """Keeps the rows of the log's learnings. Thread-safe."""

    def __init__(self, store: Store, blobs: Blobs, secrets: Secrets, clock: Clock, patch_of: PatchOf) -> None:
        self._store, self._blobs, self._secrets, self._clock, self._patch_of = store, blobs, secrets, clock, patch_of
        self._lock, self._position = threading.Lock(), 0
        self._rows: dict[Key, FeatureMemory] = {}

    def select(self, query: MemoryQuery) -> Selection:
        with self._lock:
            self._refresh()
            rows = tuple(self._rows.values())
        current = learnings(rows, query.rules, self._clock.now_us())
        return select(current, query, self._load_text, self._secrets.redact, self._patch_text)

    def _refresh(self) -> None:
        for recorded in self._store.read_all(self._position):
            if isinstance(recorded.event, MEMORY.types):
                self._rows |= {(row.run, row.feature): row for row in MEMORY.evolve(self._rows.get, recorded)}
            self._position = recorded.position

    def _load_text(self, digest: Digest) -> str:
        return self._blobs.get(digest).decode("utf-8", "replace")

    def _patch_text(self, before: Commit, after: Commit) -> str:
        try:
            return self._patch_of(before, after).decode("utf-8", "replace")
        except RepositoryUnusable:
            return ""
