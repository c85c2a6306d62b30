"""Content of a capture, from a scan and the previous tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mz_events.catalog.call import ForbiddenChange
from mz_events.catalog.check import Change
from mz_events.names import Path

from mz_engine.adapters.git_facts import LINK, SUBMODULE, TreeEntry, TreeListing, WorktreeScan
from mz_engine.adapters.git_paths import display_path, entries_below, event_path, parent_directories


def capture_content(scan: WorktreeScan, before: TreeListing) -> tuple[dict[bytes, TreeEntry], tuple[ForbiddenChange, ...]]:
    """Return the content to capture, and the forbidden changes left out of it. Where one is at a path in `before`, the
    old entry stays."""
    content = dict(scan.files)
    forbidden_changes = []
    for excluded_path in scan.excluded:
        forbidden_changes.append(ForbiddenChange(kind=excluded_path.kind, path=display_path(excluded_path.path), size_bytes=excluded_path.size_bytes))
        if excluded_path.kind != "nested-git":
            _overlay(content, entries_below(before, excluded_path.path))
    changed = [path for path in scan.files.keys() | before.keys() if content.get(path) != before.get(path)]
    for path in changed:
        if event_path(path) is None:
            forbidden_changes.append(ForbiddenChange(kind="special", path=display_path(path)))
            content.pop(path, None)
            _overlay(content, {path: before[path]} if path in before else {})
    return content, tuple(sorted(forbidden_changes, key=lambda offence: (offence.path, offence.kind)))


def revert_paths(tree: TreeListing, before: TreeListing, paths: Iterable[Path]) -> dict[bytes, TreeEntry]:
    """Return `tree` with these paths as they are in `before`, absent ones absent."""
    content = dict(tree)
    keys = [path.encode("utf-8", "surrogateescape") for path in paths]
    for key in keys:
        content.pop(key, None)
    _overlay(content, {key: before[key] for key in keys if key in before})
    return content


def _overlay(content: dict[bytes, TreeEntry], entries: TreeListing) -> None:
    """Add entries, removing conflicting ones: a file where a directory is needed, or the other way round."""
    for directory in parent_directories(entries):
        content.pop(directory, None)
    if not entries.keys().isdisjoint(parent_directories(content)):
        for path in [path for path in content if not parent_directories((path,)).isdisjoint(entries)]:
            del content[path]
    content.update(entries)


def changes(differences: Iterable[tuple[bytes, TreeEntry | None, TreeEntry | None]]) -> Iterator[Change]:
    """Yield the differences as events hold them, without paths that no event may hold."""
    for key, old, new in differences:
        path = event_path(key)
        if path is None or (old is None and new is None):
            continue
        if old is None:
            yield Change(path=path, kind="added")
        elif new is None:
            yield Change(path=path, kind="deleted")
        elif old.oid == new.oid and not {old.mode, new.mode} & {LINK, SUBMODULE}:
            yield Change(path=path, kind="mode")
        else:
            yield Change(path=path, kind="modified")
