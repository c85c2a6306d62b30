"""The clean checkouts of a run, in which its commands test what is committed. Agents do not work there.

Features share them: one that needs a checkout takes a free one, preferably one whose environment fits. So a set-up runs
again only if what it reads has changed, and there are hardly more checkouts than features at the same time."""

from __future__ import annotations

import hashlib
import mmap
import os
import pathlib
import re
import shutil
from collections.abc import Callable

from mz_engine.git.content import TreeListing
from mz_engine.git.files import remove_tree
from mz_engine.ports import FeatureWorktree

CHECKOUT_NAME = "_checkout"
"""Stands for a feature in paths; no feature can have this name."""
ENVIRONMENT_INPUT = re.compile(
    rb"(?:.*/)?(?:"
    rb"pyproject\.toml|setup\.(?:py|cfg)|[^/]*requirements[^/]*\.(?:txt|in)|requirements/[^/]+\.(?:txt|in)|(?:uv|poetry|pdm|Pipfile)\.lock|Pipfile"
    rb"|package\.json|package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|pnpm-workspace\.yaml|yarn\.lock|bun\.lockb?"
    rb"|\.(?:npmrc|yarnrc\.yml|nvmrc|node-version|python-version|ruby-version|tool-versions)|environment\.ya?ml"
    rb"|Cargo\.(?:toml|lock)|go\.(?:mod|sum|work)|pom\.xml|(?:build|settings)\.gradle(?:\.kts)?|gradle\.lockfile"
    rb"|[^/]*\.versions\.toml|Gemfile(?:\.lock)?|composer\.(?:json|lock)|mix\.(?:exs|lock)|Package\.(?:swift|resolved)"
    rb"|[^/]*\.(?:csproj|gemspec))"
)
"""Files that say what an environment consists of."""
WORD = re.compile(r"[\w./-]+")


def environment_digest(tree: TreeListing, setup: tuple[str, ...]) -> str:
    """Return a digest of the set-up and of the files that it reads; empty without a set-up. Besides lock files and
    manifests these are the files that its commands name."""
    if not setup:
        return ""
    named = {os.fsencode(word.removeprefix("./")) for line in setup for word in WORD.findall(line)}
    digest = hashlib.sha256("\0".join(setup).encode())
    for path in sorted(path for path in tree if path in named or ENVIRONMENT_INPUT.fullmatch(path)):
        digest.update(b"\0%s\0%d %s" % (path, tree[path].mode, tree[path].oid.encode()))
    return digest.hexdigest()


def is_checkout(worktree: FeatureWorktree) -> bool:
    return worktree.feature.startswith(CHECKOUT_NAME)


def copy_made(source: pathlib.Path, target: pathlib.Path, made: set[bytes]) -> bool:
    """Copy what a set-up made in one worktree (folders end in `/`) to another, with the path of the second in place of
    that of the first. Return False, with nothing copied, if that cannot be done."""
    paths = [pathlib.Path(os.fsdecode(path)) for path in sorted(made)]
    try:
        copied = all(copy_moved(source / path, target / path, (bytes(source), bytes(target))) for path in paths)
    except OSError:  # The disk is full, or the source has gone.
        copied = False
    for path in () if copied else reversed(paths):
        remove_tree(bytes(target / path))
    return copied


def copy_moved(source: pathlib.Path, target: pathlib.Path, moved: tuple[bytes, bytes]) -> bool:
    """Copy a file, link or folder with `moved[1]` in place of `moved[0]` in links and texts. Return False if another
    file contains that, unless it is compiled Python, which Python corrects. Raises OSError."""
    if source.is_symlink():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(os.fsdecode(bytes(source.readlink()).replace(*moved)))
    elif source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        if source.stat().st_size and source.suffix != ".pyc":
            with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                if data.find(moved[0]) >= 0:
                    target.write_bytes(data[:].replace(*moved))
                    return data.find(b"\0") < 0
    return True


class Checkouts:
    """The checkouts of one run by name, each with the worktree of the feature that has taken it. Not thread-safe."""

    def __init__(self, names: list[str]) -> None:
        self._holders: dict[str, FeatureWorktree | None] = dict.fromkeys(sorted(names))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._holders)

    def take(self, holder: FeatureWorktree, fits: Callable[[str], bool]) -> str:
        """Return the name of the holder's checkout, or else of a free one that fits, or else of a new one; the first
        one, which has the environment of the base, is given another only if it has none."""
        name = next((name for name, other in self._holders.items() if other == holder), None)
        free = [name for name, other in self._holders.items() if other is None]
        name = name or next(filter(fits, free), None)
        name = name or (free[-1] if len(free) > 1 else f"{CHECKOUT_NAME}{len(self._holders) + 1}")
        self._holders[name] = holder
        return name

    def release(self, holder: FeatureWorktree) -> None:
        self._holders = {name: None if other == holder else other for name, other in self._holders.items()}
