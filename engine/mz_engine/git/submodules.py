"""Content of submodules in worktrees: plain files, at the commits that a tree names, from the repositories that the
user's checkout has of them. Where it has none, or not that commit, the directory is empty."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Mapping
from functools import lru_cache

from mz_engine.git.content import SUBMODULE, FileHash, TreeListing
from mz_engine.git.files import WorktreeScanner, remove_tree, restore
from mz_engine.git.objects import ObjectStore
from mz_engine.git.repository import open_repository
from mz_engine.ports import RepositoryUnusable
from mz_engine.processes.environment import git_directory

OPENED_MAX = 64


def fetches_submodules(setup: Iterable[str]) -> bool:
    """Return True if the set-up itself does that, for which directories must be empty."""
    return any("git submodule" in line for line in setup)


class Submodules:
    """Submodules of one repository. Thread-safe as long as each worktree is used by one thread at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._open = lru_cache(OPENED_MAX)(lambda path: ObjectStore(open_repository(path, environment)))
        self._hash_caches = dict[bytes, dict[bytes, FileHash]]()
        """By directory."""

    def restore(self, top: bytes, checkout: pathlib.Path, tree: TreeListing, keeps_ignored: bool) -> None:
        """Make the directories of the tree's submodules below `top` hold their content, nested ones included."""
        for path in (path for path, entry in tree.items() if entry.mode == SUBMODULE):
            folder, source = top + b"/" + path, checkout / os.fsdecode(path)
            if git_directory(source) is None:
                continue
            try:
                objects = self._open(source)
                files, rules = objects.listing(tree[path].oid), objects.ignore_rules(tree[path].oid)
            except RepositoryUnusable:  # It has not the commit.
                continue
            hashes = self._hash_caches.get(folder, {})
            scan = WorktreeScanner(folder, files, rules, objects.repository, hashes).scan_worktree()
            remove_tree(folder + b"/.git")
            restore(objects, folder, files, scan, scan.ignored if keeps_ignored else set())
            self._hash_caches[folder] = scan.hash_cache
            self.restore(folder, source, files, keeps_ignored)
