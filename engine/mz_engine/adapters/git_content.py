"""Content of a capture, from a scan and the previous tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mz_events.catalog.call import Offence
from mz_events.catalog.check import Change
from mz_events.names import Path

from mz_engine.adapters.git_facts import LINK, SUBMODULE, Entry, Listing, Scan
from mz_engine.adapters.git_paths import below, named, parents_of, shown


def judge(scan: Scan, before: Listing) -> tuple[dict[bytes, Entry], tuple[Offence, ...]]:
    """Return the content to capture, and the forbidden changes left out of it. Where one is at a path in `before`, the
    old entry stays."""
    content = dict(scan.files)
    offences = []
    for stray in scan.strays:
        offences.append(Offence(kind=stray.kind, path=shown(stray.path), size_bytes=stray.size_bytes))
        if stray.kind != "nested-git":
            _put(content, below(before, stray.path))
    changed = [path for path in scan.files.keys() | before.keys() if content.get(path) != before.get(path)]
    for path in changed:
        if named(path) is None:
            offences.append(Offence(kind="special", path=shown(path)))
            content.pop(path, None)
            _put(content, {path: before[path]} if path in before else {})
    return content, tuple(sorted(offences, key=lambda offence: (offence.path, offence.kind)))


def put_back(tree: Listing, before: Listing, paths: Iterable[Path]) -> dict[bytes, Entry]:
    """Return `tree` with these paths as they are in `before`, absent ones absent."""
    content = dict(tree)
    keys = [path.encode("utf-8", "surrogateescape") for path in paths]
    for key in keys:
        content.pop(key, None)
    _put(content, {key: before[key] for key in keys if key in before})
    return content


def _put(content: dict[bytes, Entry], old: Listing) -> None:
    """Add entries, removing conflicting ones: a file where a directory is needed, or the other way round."""
    for directory in parents_of(old):
        content.pop(directory, None)
    if not old.keys().isdisjoint(parents_of(content)):
        for path in [path for path in content if not parents_of((path,)).isdisjoint(old)]:
            del content[path]
    content.update(old)


def changes(differences: Iterable[tuple[bytes, Entry | None, Entry | None]]) -> Iterator[Change]:
    """Yield the differences as events hold them, without paths that no event may hold."""
    for key, old, new in differences:
        path = named(key)
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
