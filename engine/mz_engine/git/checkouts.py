"""The clean checkouts of a run, in which its commands test what is committed. Agents do not work there.

Features share them: one that needs a checkout takes a free one, preferably one whose environment fits. So a set-up runs
again only if what it reads has changed, and there are hardly more checkouts than features at the same time."""

from __future__ import annotations

import hashlib
import os
import pathlib
import posixpath
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import count

from mz_engine.git.content import LINK, SUBMODULE, TreeListing
from mz_engine.git.files import remove_tree
from mz_engine.model.config import WorkspaceSettings
from mz_engine.path_patterns import matches
from mz_engine.ports import FeatureWorktree

CHECKOUT_NAME = "_checkout"
"""Stands for a feature in paths; no feature can have this name."""
ENVIRONMENT_INPUT = re.compile(
    rb"(?:.*/)?(?:"
    rb"pyproject\.toml|setup\.(?:py|cfg)|[^/]*requirements[^/]*\.(?:txt|in)|requirements/[^/]+\.(?:txt|in)|(?:uv|poetry|pdm|Pipfile)\.lock|Pipfile"
    rb"|package\.json|package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|pnpm-workspace\.yaml|yarn\.lock|bun\.lockb?"
    rb"|\.(?:npmrc|yarnrc\.yml|nvmrc|node-version|python-version|ruby-version|tool-versions)|environment\.ya?ml"
    rb"|Cargo\.(?:toml|lock)|go\.(?:mod|sum|work)|pom\.xml|(?:build|settings)\.gradle(?:\.kts)?|gradle\.lockfile"
    rb"|[^/]*\.versions\.toml|Gemfile(?:\.lock)?|gems\.(?:rb|locked)|composer\.(?:json|lock)|mix\.(?:exs|lock)"
    rb"|Package\.(?:swift|resolved)|pylock(?:\.[^/]+)?\.toml|\.bundle/config|\.yarn/(?:patches|plugins|releases)/.+|[^/]*\.(?:csproj|gemspec))"
)
"""Files that say what an environment consists of."""
NAMED = re.compile(r"(?:(?:^|\s)(-[rc]|--(?:requirement|constraint)\b)[\s=]*)?[\"']?([\w./-]+)")
"""A word that may name a file, and before it the option of pip by which that is a file of requirements."""
COMMENT = re.compile(r"(?:^|\s)#.*$", re.MULTILINE)


def environment_digest(tree: TreeListing, settings: WorkspaceSettings, read: Callable[[str], bytes]) -> str:
    """Return a digest of the set-up and of the files that it reads; empty without a set-up. Besides lock files,
    manifests and `workspace.inputs` these are the files that its commands name, and those that files of requirements
    and links name in turn. `read` returns a blob."""
    if not settings.setup:
        return ""
    pending, files = named_files("\n".join(settings.setup), b"", tree), set[tuple[bytes, bool]]()
    for path in tree:
        if ENVIRONMENT_INPUT.fullmatch(path) or (settings.inputs and matches(settings.inputs, os.fsdecode(path))):
            pending.add((path, False))
    while pending:
        path, is_requirements = file = pending.pop()
        files.add(file)
        mode, oid = tree[path]
        is_requirements |= path.endswith((b".txt", b".in"))
        if mode == LINK or (is_requirements and mode != SUBMODULE):
            text = COMMENT.sub("", os.fsdecode(read(oid)))
            pending |= named_files(text, posixpath.dirname(path), tree) - files
    digest = hashlib.sha256("\0".join(settings.setup).encode())
    for path in sorted({path for path, _ in files}):
        digest.update(b"\0%s\0%d %s" % (path, tree[path].mode, tree[path].oid.encode()))
    return digest.hexdigest()


def named_files(text: str, folder: bytes, tree: TreeListing) -> set[tuple[bytes, bool]]:
    """Return the files that a text names from its folder or from the top, and whether as files of requirements."""
    names = [(os.fsencode(name), bool(option)) for option, name in NAMED.findall(text)]
    paths = ((posixpath.normpath(start + name), flag) for name, flag in names for start in (b"", folder + b"/"))
    return {(path, flag) for path, flag in paths if path in tree}


def is_checkout(worktree: FeatureWorktree) -> bool:
    return worktree.feature.startswith(CHECKOUT_NAME)


def copy_made(source: pathlib.Path, target: pathlib.Path, names: set[bytes]) -> bool:
    """Copy these files and folders that a set-up made in one worktree to another, with the path of the second in place
    of that of the first. Return False, with nothing copied, if that cannot be done."""
    paths, old = [pathlib.Path(os.fsdecode(name)) for name in sorted(names)], bytes(source)
    try:
        for path in paths:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            remove_tree(bytes(target / path))
            subprocess.run(["cp", "-a", "--", source / path, target / path], check=True, capture_output=True)
        copies = [target / path for path in paths]
        copied = all(replace_path(file, old, bytes(target)) for file in files_with(old, copies))
    except (OSError, subprocess.CalledProcessError):  # The disk is full, or the source has gone.
        copied = False
    for path in () if copied else paths:
        remove_tree(bytes(target / path))
    return copied


def files_with(text: bytes, paths: list[pathlib.Path]) -> Iterator[pathlib.Path]:
    """Yield the links to `text`, and the files that contain it, but not compiled Python, which Python corrects. No link
    is followed. Raises CalledProcessError."""
    select = (b"-type", b"f", b"!", b"-name", b"*.pyc", b"-exec", b"grep", b"-lF", b"--null", b"-e", text, b"{}", b"+")
    for options in ((b"-type", b"l", b"-print0"), select):
        done = subprocess.run([b"find", *map(bytes, paths), *options], check=False, capture_output=True)
        if done.stderr:
            raise subprocess.CalledProcessError(done.returncode, "find", stderr=done.stderr)
        names = map(os.fsdecode, done.stdout.split(b"\0")[:-1])
        yield from (path for path in map(pathlib.Path, names) if options is select or text in bytes(path.readlink()))


def replace_path(file: pathlib.Path, old: bytes, new: bytes) -> bool:
    """Replace the path in a link or text; return False if the file is no text. Raises OSError."""
    if file.is_symlink():
        link = os.fsdecode(bytes(file.readlink()).replace(old, new))
        file.unlink()
        file.symlink_to(link)
        return True
    data = file.read_bytes()
    file.write_bytes(data.replace(old, new))
    return b"\0" not in data


class Checkouts:
    """The checkouts of one run by name, each with the worktree of the feature that has taken it. Not thread-safe."""

    def __init__(self, names: list[str]) -> None:
        self._holders: dict[str, FeatureWorktree | None] = dict.fromkeys(sorted(names))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._holders)

    def take(self, holder: FeatureWorktree, digest: str, environment: Callable[[str], str | None]) -> str:
        """Return the name of the holder's checkout, or else of a free one with this environment, or else of a free one
        with none that others may use, or else of the last of several free ones, or else of a new one."""
        name = next((name for name, other in self._holders.items() if other == holder), None)
        free = {name: environment(name) for name, other in self._holders.items() if other is None}
        if name is None and free:
            spare = next((name for name, held in free.items() if not held), None)
            name = next((name for name, held in free.items() if held == digest), spare)
            name = name or (list(free)[-1] if len(free) > 1 else None)
        unused = (new for number in count(1) if (new := f"{CHECKOUT_NAME}{number}") not in self._holders)
        name = name or next(unused)
        self._holders[name] = holder
        return name

    def release(self, holder: FeatureWorktree) -> None:
        self._holders = {name: None if other == holder else other for name, other in self._holders.items()}
