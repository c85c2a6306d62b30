"""The user's repository through the git command line: implements `ports.Workspace`.

Worktrees are in `.mz/worktrees/<run>/<feature>`, captures under `refs/mz/<run>/<feature>`. The port documents each
method; the `git_*` modules beside this one implement them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
from collections.abc import Mapping
from functools import cached_property, partial

import msgspec
from mz_events.catalog.check import Change
from mz_events.names import Commit, Path

from mz_engine.adapters import git_commits, git_content, git_fence, git_remote
from mz_engine.adapters.git_facts import SUBMODULE, Listing, Scan
from mz_engine.adapters.git_ignore import Rules, rules_of
from mz_engine.adapters.git_notes import Notes
from mz_engine.adapters.git_objects import Objects, Restless
from mz_engine.adapters.git_paths import named
from mz_engine.adapters.git_process import Git
from mz_engine.adapters.git_provide import provide
from mz_engine.adapters.git_repository import describe
from mz_engine.adapters.git_restore import copy_missing, restore
from mz_engine.adapters.git_scan import Walker, read_file
from mz_engine.adapters.git_worktree import Worktree, write_text
from mz_engine.config import WorkspaceSettings
from mz_engine.home import HOME
from mz_engine.ports import Capture, Conflicted, MadeCommit, Merged, Moved, Opened, Place, RepositoryUnusable

CAPTURE_TRIES = 3
"""Other processes may still write during a capture; they usually end soon."""


class GitWorkspace:
    """One repository. Thread-safe as long as each worktree is used by one thread at a time.

    The constructor raises RepositoryUnusable if `root` is no repository that mz can work in."""

    def __init__(
        self, root: pathlib.Path, settings: WorkspaceSettings, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._repository = describe(root, environment)
        self._git = Git(self._repository.directory, environment)
        self._objects = Objects(self._git, self._repository.object_format)
        self._objects.sweep()
        self._keep: Rules = rules_of(settings.keep)
        self._copied = tuple(settings.copy)
        self._worktrees: dict[Place, Worktree] = {}
        self._lock, self._fetching = threading.Lock(), threading.Lock()

    # opening and closing ----------------------------------------------------------------------------------------------
    def open(self, place: Place, starts_from: tuple[Commit, ...]) -> Opened | Conflicted:
        git_worktree = self._worktree(place)
        seen = git_worktree.look()
        if seen.capture is None:
            start = self._start(place, starts_from)
            if isinstance(start, Conflicted):
                return start
            git_worktree.claim(start)
            seen = git_worktree.look()
        head, tree = seen.branch or seen.capture, seen.capture
        assert head is not None
        assert tree is not None
        write_text(self._repository.root / HOME / ".gitignore", "*\n")
        self.ensure(place, head, tree)
        return Opened(head=head, tree=tree)

    def close(self, place: Place) -> None:
        with self._lock:
            git_worktree = self._worktrees.pop(place, None) or Worktree(self._git, self._repository.root, place)
            git_worktree.disconnect()

    # trees ------------------------------------------------------------------------------------------------------------
    def ensure(self, place: Place, head: Commit, tree: Commit) -> bool:
        git_worktree = self._worktree(place)
        target = self._objects.listing(tree)
        git_worktree.forget_if_lost()
        with self._lock:
            entry = git_worktree.attach(head)
        notes = git_worktree.notebook.read()
        scan = self._walk(git_worktree, tree, target, notes)
        written = restore(self._objects, git_worktree.top, target, scan, git_worktree.notebook.manifest(tree))
        copy_missing(self._repository.root, git_worktree.path, git_worktree.notebook.scratch, self._copied, target)
        notes = msgspec.structs.replace(notes, known=scan.known)
        git_worktree.notebook.write(git_worktree.set_index(entry, head, notes, written))
        return not notes.adopted

    def capture(self, place: Place, before: Commit) -> Capture:
        git_worktree = self._worktree(place)
        for _ in range(CAPTURE_TRIES - 1):
            with contextlib.suppress(Restless):
                return self._capture(git_worktree, before)
        return self._capture(git_worktree, before)

    def _capture(self, git_worktree: Worktree, before: Commit) -> Capture:
        tracked = self._objects.listing(before)
        newest = git_worktree.look().capture
        notes = git_worktree.notebook.read()
        scan = self._walk(git_worktree, before, tracked, notes)
        git_worktree.notebook.write(msgspec.structs.replace(notes, known=scan.known))
        content, offences = git_content.judge(scan, tracked)
        same = newest is not None and self._objects.listing(newest) == content
        if newest is None or not same or git_worktree.notebook.manifest(newest) != scan.ignored:
            newest = self._record(git_worktree, content, newest, before, git_worktree.path)
            git_worktree.notebook.write_manifest(newest, scan.ignored)
        return Capture(tree=newest, offences=offences)

    def adopt(self, place: Place, tree: Commit) -> None:
        git_worktree = self._worktree(place)
        tracked = self._objects.listing(tree)
        notes = git_worktree.notebook.read()
        scan = self._walk(git_worktree, tree, tracked, notes)
        git_worktree.notebook.write_manifest(tree, scan.ignored)
        git_worktree.notebook.write(msgspec.structs.replace(notes, adopted=True))

    def provide(self, place: Place, files: Mapping[Path, bytes]) -> None:
        try:
            provide(self._worktree(place).path, files)
        except OSError as error:
            message = f"{error.filename} cannot be written: {error.strerror}"
            raise RepositoryUnusable("worktree-lost", message) from error

    def keep(self, place: Place, tree: Commit, before: Commit, revert: tuple[Path, ...]) -> Commit:
        git_worktree = self._worktree(place)
        content = git_content.put_back(self._objects.listing(tree), self._objects.listing(before), revert)
        made = self._record(git_worktree, content, git_worktree.look().capture, tree)
        git_worktree.notebook.write_manifest(made, git_worktree.notebook.manifest(tree))
        return made

    def _record(
        self,
        git_worktree: Worktree,
        content: Listing,
        newest: Commit | None,
        before: Commit,
        files: pathlib.Path | None = None,
    ) -> Commit:
        """Write a capture with parent `newest` that also descends from `before`. `files`: where to read what git does
        not have."""
        parents: tuple[Commit, ...] = (newest or before,)
        if newest and before not in git_worktree.reachable and not git_commits.is_ancestor(self._git, before, newest):
            parents = (newest, before)
        known = self._objects.listing(before)
        fresh = {
            path: partial(read_file, os.fsencode(files) + b"/" + path)
            for path, entry in content.items()
            if files is not None and entry.mode != SUBMODULE and known.get(path) != entry
        }
        made = git_worktree.unlocked(
            git_worktree.capture_ref, lambda: self._objects.record(git_worktree.capture_ref, content, fresh, parents)
        )
        git_worktree.reachable |= {before, made}
        return made

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]:
        return tuple(git_content.changes(self._objects.changes(old, new)))

    def read(self, tree: Commit, path: Path) -> bytes | None:
        return self._objects.read(tree, path)

    def paths(self, tree: Commit) -> tuple[Path, ...]:
        listing = self._objects.listing(tree)
        found = (named(path) for path, entry in listing.items() if entry.mode != SUBMODULE)
        return tuple(sorted(path for path in found if path))

    def patch(self, old: Commit, new: Commit) -> bytes:
        flags = ("--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
        return self._git.run("diff-tree", "-r", "-p", *flags, old, new).out

    # refs and hooks ---------------------------------------------------------------------------------------------------
    def snapshot(self) -> Mapping[str, str]:
        return git_fence.snapshot(self._git, self._repository.hooks)

    def rescue(self, place: Place, moved: tuple[Moved, ...]) -> None:
        git_fence.rescue(self._git, place, moved)

    # commits ----------------------------------------------------------------------------------------------------------
    def find_commit(self, place: Place, key: str) -> MadeCommit | None:
        commit = git_commits.find(self._git, self._worktree(place).branch_ref, key)
        return git_commits.count(self._git, commit) if commit else None

    def commit(self, place: Place, tree: Commit, parent: Commit, message: bytes) -> MadeCommit:
        git_worktree = self._worktree(place)
        with self._lock:
            entry = git_worktree.attach(parent)
        made = git_commits.make_commit(self._git, tree, (parent,), message, self._who)
        git_worktree.move_branch(made, parent)
        git_worktree.notebook.write(git_worktree.set_index(entry, made, git_worktree.notebook.read(), written=False))
        return git_commits.count(self._git, made)

    def merge(self, place: Place, head: Commit, other: Commit, message: bytes) -> Merged:
        git_worktree = self._worktree(place)
        if git_commits.is_ancestor(self._git, other, head):
            return Merged(commit=head, tree=self._captured(git_worktree, head), changed=False)
        content = git_commits.merge_trees(self._git, head, other)
        made = git_commits.join(self._git, head, other, content, message, self._who)
        git_worktree.forget_if_lost()
        with self._lock:
            git_worktree.attach(made if git_worktree.look().branch == made else head)
        # Ignored files stay, as in a merge by hand. Under the rules of `head`, files that were tracked are not ignored.
        ignored = self._walk(git_worktree, head, self._objects.listing(head), git_worktree.notebook.read()).ignored
        if git_worktree.look().branch != made:
            git_worktree.move_branch(made, head)
        tree = self._captured(git_worktree, made)
        git_worktree.notebook.write_manifest(tree, ignored - self._objects.listing(tree).keys())
        self.ensure(place, made, tree)
        return Merged(commit=made, tree=tree, conflicts=content.conflicts, changed=True)

    def _captured(self, git_worktree: Worktree, commit: Commit) -> Commit:
        """Return a capture with the commit's content: the newest one if it matches, else a new one."""
        content, newest = self._objects.listing(commit), git_worktree.look().capture
        if newest is not None and self._objects.listing(newest) == content:
            return newest
        return self._record(git_worktree, content, newest, commit)

    def contains(self, head: Commit, commit: Commit) -> bool:
        return git_commits.contains(self._git, head, commit)

    def touched(self, base: Commit, head: Commit) -> tuple[Path, ...]:
        found = (named(path) for path in git_commits.touched(self._git, base, head))
        return tuple(sorted(path for path in found if path))

    @cached_property
    def _who(self) -> Mapping[str, str]:
        return git_commits.identity(self._git)

    # remotes ----------------------------------------------------------------------------------------------------------
    def has_remote(self, remote: str) -> bool:
        return git_remote.has_remote(self._git, remote)

    def remote_head(self, remote: str, branch: str) -> Commit | None:
        return git_remote.remote_head(self._git, remote, branch)

    def target_head(self, remote: str | None, branch: str) -> Commit | None:
        there = None
        if remote is not None:
            with self._fetching:
                there = git_remote.fetch(self._git, remote, branch)
        return there or git_remote.local_head(self._git, branch)

    def push(self, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
        git_remote.push(self._git, remote, branch, commit, old)

    # ------------------------------------------------------------------------------------------------------------------
    def _worktree(self, place: Place) -> Worktree:
        with self._lock:
            return self._worktrees.setdefault(place, Worktree(self._git, self._repository.root, place))

    def _start(self, place: Place, starts_from: tuple[Commit, ...]) -> Commit | Conflicted:
        for commit in starts_from:
            if self._git.run("cat-file", "-e", f"{commit}^{{commit}}", check=False).code:
                message = f"{place.feature} starts from {commit}, which is not in the repository"
                raise RepositoryUnusable("no-base", message)
        return git_commits.merge_all(self._git, starts_from, place.feature, self._who)

    def _walk(self, git_worktree: Worktree, commit: Commit, tracked: Listing, notes: Notes) -> Scan:
        return Walker(
            top=git_worktree.top,
            tracked=tracked,
            rules=self._objects.rules(commit),
            keep=self._keep,
            copied=frozenset(os.fsencode(path) for path in self._copied),
            hasher=self._objects.hasher,
            known=notes.known,
            modes=self._repository.file_modes,
        ).walk()
