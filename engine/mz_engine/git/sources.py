"""Read the sources of commits, for counting, from git's objects: neither the checkout nor the index is looked at."""

from __future__ import annotations

import os
import pathlib
from collections import Counter
from collections.abc import Mapping
from functools import cached_property, lru_cache

from mz_engine.git.objects import ObjectStore
from mz_engine.git.process import NO_USER_CONFIG, run_git, safe_environment
from mz_engine.git.repository import open_repository
from mz_engine.model.config import Sources
from mz_engine.ports import SourceChange
from mz_engine.sources import SourceCounts, SourceGroup, count_source, parse_patch, source_group, sum_changes

FILE_BYTES_MAX = 10_000_000
"""Larger files are not counted: nobody wrote them."""
DIFF = (
    "-c", "core.quotePath=false", "diff", "-U0", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames",
    "--ignore-submodules=all",
    "--src-prefix=a/", "--dst-prefix=b/", "--no-relative", "--inter-hunk-context=0",
)  # fmt: skip
"""Whatever the repository's own configuration says."""


class SourceReader:
    """Counts commits of one repository. What two commits share is read once."""

    def __init__(self, root: pathlib.Path, sources: Sources, environment: Mapping[str, str] = os.environ) -> None:
        self._sources = sources
        self._root, self._environment = root, {**safe_environment(environment), **NO_USER_CONFIG}
        self._counts = dict[tuple[str, str], int]()
        """By kind of source and object id."""
        self._group = lru_cache(None)(lambda path: source_group(path, sources))

    def counts(self, commit: str) -> SourceCounts | None:
        """Return lines and words of a commit; None if git does not have it."""
        rows = self._git("ls-tree", "-r", "-l", "-z", "--full-tree", commit)
        if rows is None:
            return None
        files = list[tuple[SourceGroup, str]]()
        for row in rows.split(b"\0")[:-1]:
            entry, _, path = row.partition(b"\t")
            mode, _, oid, size = entry.decode().split()
            if not mode.startswith("100") or not size.isdigit() or int(size) > FILE_BYTES_MAX:
                continue
            if group := self._group(os.fsdecode(path)):
                files.append((group, oid))
        new = [key for key in dict.fromkeys((group.kind, oid) for group, oid in files) if key not in self._counts]
        blobs = self._objects.blobs([oid for _, oid in new])
        self._counts |= {key: count_source(key[0], data) for key, data in zip(new, blobs, strict=True)}
        totals = Counter[SourceGroup]()
        for group, oid in files:
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

    @cached_property
    def _objects(self) -> ObjectStore:
        return ObjectStore(open_repository(self._root, self._environment, is_written=False))

    def _git(self, *args: str) -> bytes | None:
        """Return what git prints; None if it lacks an object. Raises RepositoryUnusable if it cannot be run."""
        result = run_git(args, self._root, self._environment)
        return None if result.exit_code else result.stdout
