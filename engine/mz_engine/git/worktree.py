"""One feature's worktree as git sees it (entry in the repository, branch, HEAD, index), and mz's notes about it."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import struct
import zlib
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec
from mz_events.names import Commit

from mz_engine.git.content import FileHash, FileSignature, TreeListing
from mz_engine.git.files import remove_tree, stat_signature, write_bytes, write_if_changed
from mz_engine.git.process import Git
from mz_engine.git.repository import remove_stale_lock, retry_without_lock
from mz_engine.paths import MZ_FOLDER, WORKTREE_NOTES_FOLDER, WORKTREES_FOLDER
from mz_engine.ports import FeatureWorktree, RepositoryUnusable

UNFINISHED_OPERATION = re.compile(
    r"(MERGE|BISECT)_\w+|(CHERRY_PICK|REVERT|REBASE)_HEAD|AUTO_MERGE|SQUASH_MSG"
    r"|rebase-merge|rebase-apply|sequencer|.*\.lock"
)
"""Files that an unfinished merge, rebase or bisection, or a killed git, leaves in the worktree's entry."""

LOOSE_REF = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\n")
SECOND_NS, UINT32_MAX = 1_000_000_000, 0xFFFF_FFFF
INDEX_NAME_LENGTH_MAX = 0xFFF


class RefValues(NamedTuple):
    """Values of a worktree's refs."""

    branch: Commit | None
    attached: bool
    """HEAD is on this branch."""
    capture: Commit | None
    """The newest capture."""


class WorktreeNotes(msgspec.Struct, frozen=True):
    """State of a worktree after its last use: a cache, which may be lost."""

    hash_cache: dict[bytes, FileHash] = {}
    index_of: str = ""
    """Commit in the index."""
    index: FileSignature | None = None
    adopted: bool = False
    """The worktree contains the results of the set-up."""
    environment: str = ""
    """Of a checkout: digest of the set-up whose results it contains."""


class GitWorktree:
    """Branch, entry and notes of one worktree. Used by one thread at a time."""

    def __init__(self, git: Git, identity: FeatureWorktree) -> None:
        self._git, root = git, git.repository.root
        self.identity = identity
        self.path = root / MZ_FOLDER / WORKTREES_FOLDER / identity.run / identity.feature
        self.entry = git.directory / "worktrees" / f"{identity.run}.{identity.feature}.mz"
        """What git keeps of the worktree."""
        self.notes_directory = root / MZ_FOLDER / WORKTREE_NOTES_FOLDER / identity.run / identity.feature
        self.capture_ref = f"refs/mz/{identity.run}/{identity.feature}"
        self.branch_ref = f"refs/heads/{identity.branch}" if identity.branch else f"{self.capture_ref}.head"
        self.reachable: set[str] = set()
        """Commits known to be ancestors of the newest capture."""

    @property
    def top(self) -> bytes:
        return os.fsencode(self.path)

    # notes ------------------------------------------------------------------------------------------------------------
    @cached_property
    def notes(self) -> WorktreeNotes:
        try:
            return msgspec.msgpack.decode((self.notes_directory / "notes").read_bytes(), type=WorktreeNotes)
        except (FileNotFoundError, msgspec.DecodeError):
            return WorktreeNotes()

    def change_notes(self, **changes: object) -> None:
        notes = msgspec.structs.replace(self.notes, **changes)
        if notes != self.notes:
            write_bytes(self.notes_directory / "notes", msgspec.msgpack.encode(notes))
            self.notes = notes

    def manifest(self, capture: Commit) -> set[bytes]:
        """Return the ignored files present at that capture; empty if unknown."""
        try:
            return set(zlib.decompress(self._manifest_file(capture).read_bytes()).split(b"\0")) - {b""}
        except (FileNotFoundError, zlib.error):
            return set()

    def write_manifest(self, capture: Commit, ignored: set[bytes]) -> None:
        write_bytes(self._manifest_file(capture), zlib.compress(b"\0".join(sorted(ignored)), 1))

    def _manifest_file(self, capture: Commit) -> pathlib.Path:
        return self.notes_directory / "ignored" / capture

    def clear_adopted_if_lost(self) -> None:
        """Clear the `adopted` note if the worktree is gone: results of the set-up are gone too."""
        if not self.path.is_dir() or not any(self.path.iterdir()):
            self.change_notes(adopted=False)

    # refs -------------------------------------------------------------------------------------------------------------
    def read_refs(self, entry: pathlib.Path | None = None) -> RefValues:
        """Return the values of the refs; HEAD is that of `entry`. Git is asked only about refs that are no files of
        their own. Raises RepositoryUnusable."""
        texts = [_read_text(self._git.directory / ref) for ref in (self.branch_ref, self.capture_ref)]
        if all(map(LOOSE_REF.fullmatch, texts)):
            attached = _read_text((entry or self._git.directory) / "HEAD") == f"ref: {self.branch_ref}\n"
            return RefValues(Commit(texts[0].strip()), attached, Commit(texts[1].strip()))
        flags = "--format=%(refname) %(objectname) %(HEAD)"
        out = self._git.run("for-each-ref", flags, self.branch_ref, self.capture_ref, git_dir=entry).text
        values = {
            name: (Commit(oid), mark == "*") for name, oid, mark in (line.split(" ", 2) for line in out.splitlines())
        }
        branch, attached = values.get(self.branch_ref, (None, False))
        capture, _ = values.get(self.capture_ref, (None, False))
        return RefValues(branch, attached, capture)

    def move_branch(self, new: Commit, old: Commit | None) -> None:
        """Move the branch from `old` (None: it does not exist) to `new`. Raises `branch-moved` if it has another
        value."""
        self.update_refs(self.branch_ref, f"update {self.branch_ref} {new} {old or '0' * len(new)}\n")

    def update_refs(self, locked: str, commands: str) -> None:
        """Run `git update-ref --stdin`; remove a lock on `locked` that a killed git left."""
        retry_without_lock(self._git, locked, lambda: self._git.run("update-ref", "--stdin", stdin=commands.encode()))

    def create_branch(self, start: Commit) -> None:
        """Create branch and first capture. Raises RepositoryUnusable, `branch-exists` if the branch is not ours."""
        if self.identity.feature == "rescue":
            raise RepositoryUnusable(
                "bad-name", "a feature cannot be called `rescue`: rescued refs are kept under that name"
            )
        branch = self._git.run("for-each-ref", "--format=%(objectname) %(worktreepath)", self.branch_ref).text
        oid, _, checked_out_at = branch.partition(" ")
        if (oid and oid != start) or (checked_out_at and checked_out_at != str(self.path)):
            position = f"checked out in {checked_out_at}" if checked_out_at else f"at {oid[:12]}"
            run = self._creating_run(oid, checked_out_at)
            cause, clean = "if an earlier run left it", "mz clean"
            if run:
                cause, clean = f"the run {run} created it", f"mz clean {run}"
            message = f"the branch `{self.identity.branch}` exists already, {position}; {cause}"
            remedy = f"save what you need of it, then `{clean}` and `git branch -D {self.identity.branch}`"
            raise RepositoryUnusable("branch-exists", f"{message}: {remedy}; or set another `branch_prefix:`")
        try:
            commands = f"update {self.capture_ref} {start}\nupdate {self.branch_ref} {start}\n"
            self.update_refs(self.branch_ref, commands)
        except RepositoryUnusable as error:
            if "; cannot create" not in str(error):
                raise
            message = f"the branch `{self.identity.branch}` cannot exist beside the branch named like its first part"
            raise RepositoryUnusable("branch-exists", f"{message}; set another `branch_prefix:`") from error

    def _creating_run(self, oid: str, checked_out_at: str) -> str:
        """Return the run that created a branch, by its worktree or its last commit's trailer; empty if unknown."""
        trailer = self._git.run("log", "-1", "--format=%(trailers:key=Mz-Key,valueonly)", oid, check=False).text
        for origin in (checked_out_at.removeprefix(f"{self.path.parent.parent}/"), trailer):
            if match := re.match(rf"([\w.-]+)/{re.escape(self.identity.feature)}(?:/|\Z)", origin):
                return match[1]
        return ""

    def attach_branch(self, head: Commit) -> None:
        """Set the branch to `head` (its old value is kept under `refs/mz/<run>/rescue/`) and HEAD to the branch, and
        remove files of unfinished operations."""
        self.link_entry(head, f"ref: {self.branch_ref}\n")
        for ref in (self.branch_ref, self.capture_ref):
            remove_stale_lock(self._git.directory, ref)
        refs = self.read_refs(self.entry)
        if refs.branch != head:
            old = refs.branch
            rescue = f"update {rescue_ref(self.identity, self.branch_ref, old)} {old}\n" if old else ""
            commands = f"{rescue}update {self.branch_ref} {head} {old or '0' * len(head)}\n"
            self.update_refs(self.branch_ref, commands)
        if not refs.attached:  # HEAD is no file in repositories whose refs are tables.
            self._git.run("symbolic-ref", "HEAD", self.branch_ref, git_dir=self.entry)

    # the entry --------------------------------------------------------------------------------------------------------
    def link_entry(self, head: Commit, head_file: str) -> None:
        """Make or repair the worktree's directory and its entry in the repository, each pointing to the other, and
        remove files of unfinished operations."""
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            remove_tree(self.top)
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.entry.is_dir():
            # Git creates an entry only together with an empty directory, which gives it its name.
            temporary = self.notes_directory / self.entry.name
            remove_tree(os.fsencode(temporary))
            temporary.parent.mkdir(parents=True, exist_ok=True)
            self._git.run("worktree", "add", "--quiet", "--force", "--no-checkout", "--detach", str(temporary), head)
            remove_tree(os.fsencode(temporary))
        for file in self.entry.iterdir():
            if UNFINISHED_OPERATION.fullmatch(file.name):
                remove_tree(os.fsencode(file))
        write_if_changed(self.entry / "HEAD", head_file)
        write_if_changed(self.entry / "commondir", "../..\n")
        write_if_changed(self.entry / "gitdir", f"{self.path / '.git'}\n")
        write_if_changed(self.path / ".git", f"gitdir: {self.entry}\n")

    def delete(self) -> None:
        """Remove directory, entry and notes; without a branch, the refs too."""
        for path in (self.path, self.entry, self.notes_directory):
            remove_tree(os.fsencode(path))
        if not self.identity.branch:
            self.update_refs(self.capture_ref, f"delete {self.capture_ref}\ndelete {self.branch_ref}\n")

    # the index --------------------------------------------------------------------------------------------------------
    def update_index(self, head: Commit, tree: TreeListing, written: bool = False) -> None:
        """Make the index match `head`, whose content is `tree`, and the files as last scanned, unless neither changed
        since and no file was `written`."""
        index = self.entry / "index"
        if self.notes.index_of == head and self.notes.index == _file_signature(index) and not written:
            return
        write_bytes(index, encode_index(tree, self.notes.hash_cache, self._git.repository.object_format))
        self.change_notes(index_of=head, index=_file_signature(index))


def encode_index(tree: TreeListing, hash_cache: Mapping[bytes, FileHash], object_format: str) -> bytes:
    """Return an index file, version 2, as `git read-tree` and `git update-index --refresh` would write it. A file that
    differs from the tree, or is not in the cache, gets no times, so that git compares its content. Source:
    gitformat-index(5)."""
    data = bytearray(struct.pack(">4sLL", b"DIRC", 2, len(tree)))
    for path, (mode, oid) in tree.items():
        cached, times = hash_cache.get(path), (0,) * 9
        if cached is not None and cached.oid == oid:
            mtime, ctime, size, inode, _, device, user, group = cached.signature
            times = (*divmod(ctime, SECOND_NS), *divmod(mtime, SECOND_NS), device, inode, user, group, size)
        *stat_before_mode, user, group, size = (value & UINT32_MAX for value in times)
        entry = struct.pack(">10L", *stat_before_mode, mode, user, group, size) + bytes.fromhex(oid)
        entry += struct.pack(">H", min(len(path), INDEX_NAME_LENGTH_MAX)) + path
        data += entry + bytes(8 - len(entry) % 8)
    return bytes(data) + hashlib.new(object_format, data, usedforsecurity=False).digest()


def rescue_ref(worktree: FeatureWorktree, ref: str, oid: str) -> str:
    """Name the ref that keeps an old value. The value comes last, so that no name is a directory of another."""
    return f"refs/mz/{worktree.run}/rescue/{ref.removeprefix('refs/')}/{oid}"


def _read_text(file: pathlib.Path) -> str:
    """Return the text of a file; empty if it is a link or cannot be read."""
    try:
        return "" if file.is_symlink() else file.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _file_signature(file: pathlib.Path) -> FileSignature | None:
    try:
        return stat_signature(file.lstat())
    except FileNotFoundError:
        return None
