"""Read the sources of commits, for counting, from git's objects: neither the checkout nor the index is looked at."""

from __future__ import annotations

import os
import pathlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

from mz_engine.git.process import NO_USER_CONFIG, run_git, safe_environment
from mz_engine.model.config import Sources
from mz_engine.ports import SourceChange
from mz_engine.sources import SourceCounts, SourceGroup, count_source, parse_patch, source_group, sum_changes

FILE_BYTES_MAX = 10_000_000
"""Larger files are not counted: nobody wrote them."""
BATCH_BYTES = 32_000_000
DIFF = (
    "-c", "core.quotePath=false", "diff", "-U0", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames",
    "--ignore-submodules=all",
    "--src-prefix=a/", "--dst-prefix=b/", "--no-relative", "--inter-hunk-context=0",
)  # fmt: skip
"""Whatever the repository's own configuration says."""
Key = tuple[str, str]
"""Kind of a source, and object id."""


class SourceReader:
    """Counts commits of one repository. What two commits share is read once."""

    def __init__(self, root: pathlib.Path, sources: Sources, environment: Mapping[str, str] = os.environ) -> None:
        self._sources = sources
        self._root, self._environment = root, {**safe_environment(environment), **NO_USER_CONFIG}
        self._counts = dict[Key, int]()
        self._group = lru_cache(None)(lambda path: source_group(path, sources))

    def counts(self, commit: str) -> SourceCounts | None:
        """Return lines and words of a commit; None if git does not have it."""
        rows = self._git("ls-tree", "-r", "-l", "-z", "--full-tree", commit)
        if rows is None:
            return None
        paths = list[tuple[SourceGroup, str]]()
        sizes = dict[Key, int]()
        for row in rows.split(b"\0")[:-1]:
            entry, _, path = row.partition(b"\t")
            mode, _, oid, size = entry.decode().split()
            if not mode.startswith("100") or not size.isdigit() or int(size) > FILE_BYTES_MAX:
                continue
            if group := self._group(os.fsdecode(path)):
                paths.append((group, oid))
                sizes[group.kind, oid] = int(size)
        for batch in _batches({key: size for key, size in sizes.items() if key not in self._counts}):
            for (kind, oid), data in zip(batch, self._blobs([oid for _, oid in batch]), strict=True):
                self._counts[kind, oid] = count_source(kind, data)
        totals = Counter[SourceGroup]()
        for group, oid in paths:
            totals[group] += self._counts[group.kind, oid]
        return {group: number for group, number in sorted(totals.items()) if number}

    def change(self, before: str | None, after: str | None) -> SourceChange | None:
        """Return what differs between two commits; None if git does not have both."""
        if before is None or after is None:
            return None
        if before == after:
            return sum_changes((), self._sources)
        patch = self._git(*DIFF, before, after, "--")
        return None if patch is None else sum_changes(parse_patch(patch), self._sources)

    def _blobs(self, oids: list[str]) -> Iterator[bytes]:
        replies = self._git("cat-file", "--batch", stdin="\n".join((*oids, "")).encode()) or b""
        offset = 0
        for _ in oids:
            end = replies.index(b"\n", offset)
            size = int(replies[offset:end].split()[2])
            yield replies[end + 1 : end + 1 + size]
            offset = end + size + 2

    def _git(self, *args: str, stdin: bytes = b"") -> bytes | None:
        """Return what git prints; None if it lacks an object. Raises RepositoryUnusable if it cannot be run."""
        result = run_git(args, self._root, self._environment, stdin)
        return None if result.exit_code else result.stdout


def _batches(sizes: Mapping[Key, int]) -> Iterator[list[Key]]:
    batch, total = list[Key](), 0
    for key, size in sizes.items():
        if batch and total + size > BATCH_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(key)
        total += size
    if batch:
        yield batch
