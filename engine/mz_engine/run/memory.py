"""The Memory port: the log, read up to its end at each selection, and what people shared from other projects."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.feature import FeatureDelivered, FeatureStarted
from mz_events.catalog.validation import ArtifactParsed
from mz_events.names import USER_STREAM, Commit, Digest
from mz_events.store import BlobMissing, Blobs, BlobWasErased, Store, StoreUnusable
from mz_projections.memory.evidence import MEMORY, FeatureMemory, fold_memory
from mz_projections.memory.learnings import learnings
from mz_projections.read_models.model import Key

from mz_engine.memory.select import select
from mz_engine.paths import BLOBS_FOLDER, LOG_FILE
from mz_engine.ports import Clock, MemoryQuery, RepositoryUnusable, Secrets, Selection

PatchOf = Callable[[Commit, Commit], bytes]
"""Returns the difference of two trees. May raise RepositoryUnusable."""


class UserMemory:
    """What people shared, in the user's log in `folder`; nothing, without such a log."""

    def __init__(self, folder: Path) -> None:
        self._file, self._blobs = folder / LOG_FILE, FileBlobs(folder / BLOBS_FOLDER)

    def rows(self) -> tuple[FeatureMemory, ...]:
        """Raise StoreUnusable."""
        if not self._file.is_file():
            return ()
        with SqliteStore(self._file, read_only=True) as store:
            return fold_memory(store.read(USER_STREAM))

    def load_text(self, digest: Digest) -> str:
        """Raise BlobMissing."""
        return self._blobs.get(digest).decode("utf-8", "replace")


class LogMemory:
    """Keeps the rows of the log's learnings. Thread-safe."""

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        secrets: Secrets,
        clock: Clock,
        patch_of: PatchOf,
        user: UserMemory | None = None,
    ) -> None:
        self._store, self._blobs, self._secrets, self._clock, self._patch_of = store, blobs, secrets, clock, patch_of
        self._user = user
        self._lock, self._position = threading.Lock(), 0
        self._rows: dict[Key, FeatureMemory] = {}
        self._ids: dict[str, dict[tuple[str, str], tuple[str, ...]]] = {}
        """Of the last replies of each stream, by artifact and unit."""
        self._delivered, self._forks = set[tuple[str, str]](), set[str]()
        """Artifact and id; streams."""

    def select(self, query: MemoryQuery) -> Selection:
        with self._lock:
            self._refresh()
            rows = tuple(self._rows.values())
        if self._user is not None and query.shared:
            with suppress(StoreUnusable):  # `mz memory list` tells; a run does without.
                rows += self._user.rows()
        current = learnings(rows, query.rules, self._clock.now_us())
        return select(current, query, self._load_text, self._secrets.redact, self._patch_text)

    def delivered_ids(self, artifact: str) -> frozenset[str]:
        with self._lock:
            self._refresh()
            return frozenset(id_ for name, id_ in self._delivered if name == artifact)

    def _refresh(self) -> None:
        for recorded in self._store.read_all(self._position):
            match recorded.event:
                case ArtifactParsed(artifact=artifact, unit=unit, ids=ids):
                    self._ids.setdefault(recorded.stream, {})[artifact, unit] = ids
                case FeatureStarted() if recorded.is_forked_copy:
                    self._forks.add(recorded.stream)
                case FeatureDelivered() if recorded.stream not in self._forks:
                    last = self._ids.get(recorded.stream, {}).items()
                    self._delivered |= {(artifact, id_) for (artifact, _), ids in last for id_ in ids}
            if isinstance(recorded.event, MEMORY.types):
                self._rows |= {(row.run, row.feature): row for row in MEMORY.evolve(self._rows.get, recorded)}
            self._position = recorded.position

    def _load_text(self, digest: Digest) -> str:
        try:
            return self._blobs.get(digest).decode("utf-8", "replace")
        except BlobMissing as error:
            if self._user is None or isinstance(error, BlobWasErased):
                raise
            return self._user.load_text(digest)

    def _patch_text(self, before: Commit, after: Commit) -> str:
        try:
            return self._patch_of(before, after).decode("utf-8", "replace")
        except RepositoryUnusable:
            return ""
