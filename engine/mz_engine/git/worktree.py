"""One feature's worktree: its branch and captures in the user's repository, the private repository that git sees in the
worktree, and mz's notes about it.

Nothing of the user's repository is writable from a worktree: refs, index, configuration and hooks are the private
repository's own, which borrows the user's objects. It is made anew before each use, and mz never runs git in it: what
an agent commits there is history for itself only."""

from __future__ import annotations

import contextlib
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

from mz_engine.git.checkouts import is_checkout
from mz_engine.git.content import FileHash, FileSignature, TreeListing, parent_directories
from mz_engine.git.files import remove_tree, stat_signature, write_bytes, write_if_changed
from mz_engine.git.objects import RefMovedError
from mz_engine.git.process import Git
from mz_engine.git.repository import is_ancestor, remove_stale_lock, retry_without_locks
from mz_engine.paths import MZ_FOLDER, PULL_REQUESTS_FOLDER, WORKTREE_FOLDERS
from mz_engine.ports import DeliveryRefused, FeatureWorktree, RepositoryUnusable
from mz_engine.processes.environment import environment_file, private_repository, worktree_path
from mz_engine.processes.supervise import can_hide

PACKED_REFS_HEADER = "# pack-refs with: peeled fully-peeled sorted \n"
PEELED = "%(objectname) %(refname)%(if)%(*objectname)%(then)%0a^%(*objectname)%(end)"
LIST_REFS = ("for-each-ref", f"--format={PEELED}", "refs/heads", "refs/tags", "refs/remotes")
"""The user's refs as a file `packed-refs`."""
LOOSE_REF = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\n")
KEPT = ("index", "modules")
"""Of a private repository: git's index, and the repositories of submodules, which a set-up may have fetched."""
CHECKOUT_MANIFEST = Commit("checkout")
"""Stands for a capture: the manifest of what the set-up of a checkout made."""
SECOND_NS, UINT32_MAX = 1_000_000_000, 0xFFFF_FFFF
INDEX_NAME_LENGTH_MAX = 0xFFF


class RefValues(NamedTuple):
    """Values of a worktree's refs."""

    branch: Commit | None
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
    last_use: tuple[FeatureWorktree, Commit] | None = None
    """Of a checkout: feature and tree."""
    environment_files: dict[bytes, FileSignature] = {}
    """Files that it made beside tracked ones; those in folders of its own are kept from change by the sandbox."""


class GitWorktree:
    """Branch, private repository and notes of one worktree. Used by one thread at a time."""

    def __init__(self, git: Git, identity: FeatureWorktree) -> None:
        self._git, root = git, git.repository.root
        self.identity = identity
        self.path = worktree_path(root, identity)
        self.private = private_repository(root, identity)
        self.notes_directory = environment_file(root, identity).parent
        self.capture_ref = f"refs/mz/{identity.run}/{identity.feature}"
        self.branch_ref = f"refs/heads/{identity.branch}" if identity.branch else f"{self.capture_ref}.head"
        self.keeps_ignored = not is_checkout(identity)
        """What `workspace.keep_ignored` names stays; in a checkout only between commands on the same tree."""
        self.reachable: set[str] = set()
        """Commits known to be ancestors of the newest capture."""
        self._saved_notes: WorktreeNotes | None = None
        self.user_refs = ""
        """The user's refs as a file `packed-refs`, in which the own branch need not be current; empty: not read yet."""
        self._written: tuple[Mapping[str, str], Mapping[str, FileSignature]] = {}, {}
        """Files of the private repository as they were last written, and what the file system then said of them."""

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
        """Change the notes in memory: what is not saved is found again by looking."""
        self._saved_notes = self._saved_notes or self.notes
        self.notes = msgspec.structs.replace(self.notes, **changes)

    def save_notes(self, **changes: object) -> None:
        self.change_notes(**changes)
        if self.notes != self._saved_notes:
            write_bytes(self.notes_directory / "notes", msgspec.msgpack.encode(self.notes))
        self._saved_notes = self.notes

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

    def take_environment(self, digest: str, made: set[bytes], tracked: TreeListing) -> None:
        """Note what the set-up of a checkout made, and what of it commands must not change."""
        self.write_manifest(CHECKOUT_MANIFEST, made)
        folders, files = environment_parts(made, tracked)
        write_bytes(environment_file(self._git.repository.root, self.identity), b"\0".join(sorted(folders)))
        signatures = {path: _file_signature(self.path / os.fsdecode(path)) for path in files}
        changes = {path: signature for path, signature in signatures.items() if signature}
        self.save_notes(environment=digest, environment_files=changes)

    def environment(self) -> str | None:
        """Return the digest of the set-up whose results the directory holds; None if it is gone or they changed."""
        files = self.notes.environment_files.items()
        unchanged = all(_file_signature(self.path / os.fsdecode(path)) == signature for path, signature in files)
        return self.notes.environment if self.path.is_dir() and unchanged else None

    def drop_environment(self) -> None:
        """Forget the environment of a checkout, and remove its directory."""
        self.save_notes(environment="", environment_files={}, last_use=None)
        remove_tree(os.fsencode(environment_file(self._git.repository.root, self.identity)))
        remove_tree(self.top)

    def clear_adopted_if_lost(self) -> None:
        """Clear the `adopted` note if the worktree is gone: results of the set-up are gone too."""
        if not self.path.is_dir() or not any(self.path.iterdir()):
            self.save_notes(adopted=False)

    # refs -------------------------------------------------------------------------------------------------------------
    def read_refs(self) -> RefValues:
        """Return the values of the refs. Git is asked only about refs that are no files of their own. Raises
        RepositoryUnusable."""
        texts = [_read_text(self._git.directory / ref) for ref in (self.branch_ref, self.capture_ref)]
        if all(map(LOOSE_REF.fullmatch, texts)):
            return RefValues(*(Commit(text.strip()) for text in texts))
        flags = "--format=%(refname) %(objectname)"
        lines = self._git.run("for-each-ref", flags, self.branch_ref, self.capture_ref).text.splitlines()
        values = {name: Commit(oid) for name, _, oid in (line.rpartition(" ") for line in lines)}
        return RefValues(values.get(self.branch_ref), values.get(self.capture_ref))

    def move_branch(self, new: Commit, old: Commit | None) -> None:
        """Move the branch from `old` (None: it does not exist) to `new`. Raises `branch-moved` if it has another value,
        `branch-checked-out` if a person has it checked out, whose files would then seem changed."""
        if message := self._checked_out():
            raise RepositoryUnusable("branch-checked-out", f"{message}, then `mz resume`")
        self.update_refs(f"update {self.branch_ref} {new} {old or '0' * len(new)}\n")

    def _checked_out(self) -> str:
        """Return where a person has the branch checked out, and the remedy; empty: nowhere."""
        link = f"ref: {self.branch_ref}\n"
        heads = (self._git.directory / "HEAD", *self._git.directory.glob("worktrees/*/HEAD"))
        if not any(_read_text(file) == link for file in heads):
            return ""
        at = self._git.run("for-each-ref", "--format=%(worktreepath)", self.branch_ref).text
        remedy = f"switch to another branch there (`git -C {at} switch --detach`)"
        return f"`{self.identity.branch}` is checked out in {at}; {remedy}"

    def close_branch(self, head: Commit) -> None:
        """Delete the branch, whose commits are all in `head`, which is kept under `refs/mz/<run>/closed/`; one that is
        gone is closed. Raises DeliveryRefused."""
        old = self.read_refs().branch
        if old is None:
            return
        if message := self._checked_out():
            raise DeliveryRefused(f"{message}, then approve", "checkout-in-the-way")
        if not is_ancestor(self._git, old, head):
            message = f"`{self.identity.branch}` is at {old[:12]}, not at {head[:12]}, where this run left it"
            raise DeliveryRefused(
                f"{message}; keep its commits on another branch and delete it, then approve", "branch-moved"
            )
        # The value comes last, so that no name is a directory of another.
        closed_ref = f"refs/mz/{self.identity.run}/closed/{self.branch_ref.removeprefix('refs/')}/{head}"
        self.update_refs(f"update {closed_ref} {head}\ndelete {self.branch_ref} {old}\n")

    def update_refs(self, commands: str) -> None:
        """Update refs in one transaction; remove locks on them that a killed git left."""
        refs = re.findall(r"^\w+ (\S+)", commands, re.MULTILINE)
        retry_without_locks(self._git, refs, lambda: self._git.update_refs(commands))

    def move_capture(self, new: Commit, old: Commit | None) -> None:
        """Make `new` the newest capture. Raises RefMovedError if `old` (None: there is none) is not the newest."""
        try:
            self.update_refs(f"update {self.capture_ref} {new} {old or '0' * len(new)}\n")
        except RepositoryUnusable as error:
            if self.read_refs().capture == old:
                raise
            message = f"{self.capture_ref} was moved by another process meanwhile"
            raise RefMovedError("ref-moved", message) from error

    def create_branch(self, start: Commit) -> None:
        """Create branch and first capture. Raises RepositoryUnusable, `branch-exists` if the branch is not ours."""
        if self.identity.feature in ("rescue", "closed"):
            message = f"a feature cannot be called `{self.identity.feature}`: refs are kept under that name"
            raise RepositoryUnusable("bad-name", message)
        branch = self._git.run("for-each-ref", "--format=%(objectname) %(worktreepath)", self.branch_ref).text
        oid, _, checked_out_at = branch.partition(" ")
        if (oid and oid != start) or (checked_out_at and checked_out_at != str(self.path)):
            position = f"checked out in {checked_out_at}" if checked_out_at else f"at {oid[:12]}"
            trailer = self._git.run("log", "-1", "--format=%(trailers:key=Mz-Key,valueonly)", oid, check=False).text
            cause, clean = "if an earlier run left it", "mz clean"
            if creator := re.match(rf"([\w.-]+)/{re.escape(self.identity.feature)}(?:/|\Z)", trailer):
                cause, clean = f"the run {creator[1]} created it", f"mz clean {creator[1]}"
            message = f"the branch `{self.identity.branch}` exists already, {position}; {cause}"
            remedy = f"save what you need of it, then `{clean}` and `git branch -D {self.identity.branch}`"
            raise RepositoryUnusable("branch-exists", f"{message}: {remedy}; or set another `branch_prefix:`")
        try:
            commands = f"update {self.capture_ref} {start}\nupdate {self.branch_ref} {start}\n"
            self.update_refs(commands)
        except RepositoryUnusable as error:
            if "; cannot create" not in str(error):
                raise
            message = f"the branch `{self.identity.branch}` cannot exist beside the branch named like its first part"
            raise RepositoryUnusable("branch-exists", f"{message}; set another `branch_prefix:`") from error

    def reset_branch(self, head: Commit) -> None:
        """Set the branch to `head`; its old value is kept under `refs/mz/<run>/rescue/`."""
        for ref in (self.branch_ref, self.capture_ref):
            remove_stale_lock(self._git.directory, ref)
        old = self.read_refs().branch
        if old != head:
            if old:
                # The value comes last, so that no name is a directory of another.
                rescue_ref = f"refs/mz/{self.identity.run}/rescue/{self.branch_ref.removeprefix('refs/')}/{old}"
                self.update_refs(f"update {rescue_ref} {old}\n")
            self.move_branch(head, old)

    # the private repository -------------------------------------------------------------------------------------------
    def write_repository(self, head: Commit) -> None:
        """Make the worktree's directory, and its private repository at `head`, anew, except the index and what a set-up
        fetched of submodules. A repository that nobody changed since stays. Source: gitrepository-layout(5)."""
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            remove_tree(self.top)
        self.path.mkdir(parents=True, exist_ok=True)
        self.user_refs = self.user_refs or f"{PACKED_REFS_HEADER}{self._git.run(*LIST_REFS).text}\n"
        directory = self._git.directory
        texts = {
            "HEAD": f"{head}\n",
            "config": self._config_text(),
            "objects/info/alternates": f"{directory / 'objects'}\n",
            "packed-refs": self.user_refs,
        }
        if not is_checkout(self.identity):
            texts |= {"HEAD": f"ref: {self.branch_ref}\n", self.branch_ref: f"{head}\n"}
        texts |= {name: _read_text(directory / name) for name in ("shallow", "info/exclude", "info/attributes")}
        texts = {name: text for name, text in texts.items() if text}
        written, signatures = self._written
        if signatures != _signatures(self.private) or written.keys() != texts.keys():
            written = {}
            for path in self.private.iterdir() if self.private.is_dir() else ():
                if path.name not in KEPT or path.is_symlink() or path.is_file() != (path.name == "index"):
                    remove_tree(os.fsencode(path))
            for folder in ("objects/pack", "objects/info", "info", "refs", *map(os.path.dirname, texts)):
                (self.private / folder).mkdir(parents=True, exist_ok=True)
        if written != texts:
            for name, text in texts.items():
                if text != written.get(name):
                    (self.private / name).write_bytes(text.encode("utf-8", "surrogateescape"))
            self._written = texts, _signatures(self.private)
        self._write_link()

    def _config_text(self) -> str:
        author, repository = self._git.people[0], self._git.repository
        return (
            f"[core]\n\trepositoryFormatVersion = 1\n\tbare = false\n\tlogAllRefUpdates = true\n"
            f"\tfileMode = {str(repository.has_file_modes).lower()}\n"
            f"[extensions]\n\tobjectFormat = {repository.object_format}\n"
            f"[user]\n\tname = {quoted(author.name)}\n\temail = {quoted(author.address)}\n"
        )

    def write_own_repository(self, head: Commit) -> None:
        """Make an empty directory, and a private repository that holds the commit `head`, which has no parent, and no
        other object."""
        for path in (self.path, self.private):
            remove_tree(os.fsencode(path))
        for folder in (self.path, self.private / "objects/pack", self.private / "refs/heads"):
            folder.mkdir(parents=True)
        self._git.run("pack-objects", "-q", "--revs", f"{self.private}/objects/pack/pack", stdin=f"{head}\n".encode())
        texts = {"HEAD": "ref: refs/heads/main\n", "refs/heads/main": f"{head}\n", "config": self._config_text()}
        for name, text in texts.items():
            (self.private / name).write_bytes(text.encode("utf-8", "surrogateescape"))
        self._write_link()

    def _write_link(self) -> None:
        """Make the `.git` by which git finds the private repository."""
        link = self.path / ".git"
        if not can_hide():
            write_if_changed(link, f"gitdir: {self.private}\n")
        elif link.is_symlink() or not link.is_dir() or any(link.iterdir()):
            # An empty directory, over which only the sandbox mounts the repository: outside, no git reads it.
            remove_tree(os.fsencode(link))
            link.mkdir()

    def delete(self) -> None:
        """Remove directory, private repository and notes; without a branch, the refs too."""
        for path in (self.path, self.private, self.notes_directory):
            remove_tree(os.fsencode(path))
        if not self.identity.branch:
            self.update_refs(f"delete {self.capture_ref}\ndelete {self.branch_ref}\n")

    # the index --------------------------------------------------------------------------------------------------------
    def update_index(self, head: Commit, tree: TreeListing, written: bool = False) -> None:
        """Make the index match `head`, whose content is `tree`, and the files as last scanned, unless neither changed
        since and no file was `written`."""
        index = self.private / "index"
        if self.notes.index_of == head and self.notes.index == _file_signature(index) and not written:
            return
        write_bytes(index, encode_index(tree, self.notes.hash_cache, self._git.repository.object_format))
        self.change_notes(index_of=head, index=_file_signature(index))


def remove_empty_folders(root: pathlib.Path, run: str) -> None:
    """Remove the folders of a run that hold nothing any more."""
    for name in (*WORKTREE_FOLDERS, PULL_REQUESTS_FOLDER):
        with contextlib.suppress(OSError):
            (root / MZ_FOLDER / name / run).rmdir()


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


def environment_parts(made: set[bytes], tracked: TreeListing) -> tuple[set[bytes], set[bytes]]:
    """Return the outermost folders of what a set-up made (folders end in `/`), and its files beside tracked ones."""
    shared, folders, files = parent_directories(tracked), set[bytes](), set[bytes]()
    for path in made:
        names = path.split(b"/")
        parents = (b"/".join(names[:depth]) for depth in range(1, len(names)))
        outermost = next((parent for parent in parents if parent not in shared), None)
        if outermost is None and not path.endswith(b"/") and path not in tracked:
            files.add(path)
        elif outermost is not None:
            folders.add(outermost)
    return folders, files


def quoted(text: str) -> str:
    """Return a value for a configuration file of git."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def _read_text(file: pathlib.Path) -> str:
    """Return the text of a file; empty if it is a link or cannot be read."""
    try:
        return "" if file.is_symlink() else file.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _signatures(directory: pathlib.Path) -> dict[str, FileSignature]:
    """Return the signatures of everything in a private repository except its index. Its own times change with it."""
    signatures, pending = dict[str, FileSignature](), [str(directory)] if directory.is_dir() else []
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                signatures[entry.path] = stat_signature(entry.stat(follow_symlinks=False))
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    signatures.pop(str(directory / "index"), None)
    return signatures


def _file_signature(file: pathlib.Path) -> FileSignature | None:
    try:
        return stat_signature(file.lstat())
    except FileNotFoundError:
        return None
