"""One feature's worktree as git sees it: its entry in the repository, its branch, HEAD and index."""

from __future__ import annotations

import os
import pathlib
import stat
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec
from mz_events.names import Commit

from mz_engine.git.notes import NotesStore, WorktreeNotes, file_signature, write_bytes
from mz_engine.git.process import Git
from mz_engine.git.repository import NeedsGit, read_head, read_ref, remove_stale_lock
from mz_engine.git.restore import remove_tree
from mz_engine.paths import MZ_FOLDER, WORKTREE_NOTES_FOLDER, WORKTREES_FOLDER
from mz_engine.ports import FeatureWorktree, RepositoryUnusable

UNFINISHED_OPERATION_FILES = frozenset(
    [
        "MERGE_HEAD",
        "MERGE_MODE",
        "MERGE_MSG",
        "MERGE_RR",
        "AUTO_MERGE",
        "SQUASH_MSG",
        "CHERRY_PICK_HEAD",
        "REVERT_HEAD",
        "REBASE_HEAD",
        "rebase-merge",
        "rebase-apply",
        "sequencer",
        "BISECT_LOG",
        "BISECT_NAMES",
        "BISECT_START",
        "BISECT_TERMS",
    ]
)
"""Files that an unfinished merge, rebase or bisection leaves in the worktree's entry."""

T = TypeVar("T")


class RefValues(NamedTuple):
    """Values of a worktree's refs."""

    branch: Commit | None
    attached: bool
    """HEAD is on this branch."""
    capture: Commit | None
    """The newest capture."""


class GitWorktree:
    """Branch, entry and notes of one worktree. Used by one thread at a time."""

    def __init__(self, git: Git, root: pathlib.Path, identity: FeatureWorktree) -> None:
        self._git = git
        self.identity = identity
        self.path = root / MZ_FOLDER / WORKTREES_FOLDER / identity.run / identity.feature
        self.notes_store = NotesStore(root / MZ_FOLDER / WORKTREE_NOTES_FOLDER / identity.run / identity.feature)
        self.branch_ref = f"refs/heads/{identity.branch}"
        self.capture_ref = f"refs/mz/{identity.run}/{identity.feature}"
        self.reachable: set[str] = set()
        """Commits known to be ancestors of the newest capture."""

    @property
    def top(self) -> bytes:
        return os.fsencode(self.path)

    def clear_adopted_if_lost(self) -> None:
        """Clear the `adopted` note if the worktree is gone: results of the set-up are gone too."""
        if not self.path.is_dir() or not any(self.path.iterdir()):
            self.notes_store.write(msgspec.structs.replace(self.notes_store.read(), adopted=False))

    # refs -------------------------------------------------------------------------------------------------------------
    def read_refs(self, entry: pathlib.Path | None = None) -> RefValues:
        """Return the values of the refs. HEAD is read from `entry` if given. Raises RepositoryUnusable."""
        try:
            return self._read_ref_files(entry)
        except NeedsGit:
            return self._list_refs(entry)

    def _read_ref_files(self, entry: pathlib.Path | None) -> RefValues:
        attached = entry is not None and read_head(entry) == self.branch_ref
        branch, capture = (read_ref(self._git.directory, name) for name in (self.branch_ref, self.capture_ref))
        return RefValues(Commit(branch) if branch else None, attached, Commit(capture) if capture else None)

    def _list_refs(self, entry: pathlib.Path | None) -> RefValues:
        out = self._git.run(
            "for-each-ref",
            "--format=%(refname) %(objectname) %(HEAD)",
            self.branch_ref,
            self.capture_ref,
            git_dir=entry,
        )
        values = {
            name: (Commit(oid), head_mark)
            for name, oid, head_mark in (line.split(" ", 2) for line in out.text.splitlines())
        }
        branch, head_mark = values.get(self.branch_ref, (None, ""))
        capture, _ = values.get(self.capture_ref, (None, ""))
        return RefValues(branch, head_mark == "*", capture)

    def move_branch(self, new: Commit, old: Commit | None) -> None:
        """Move the branch from `old` (None: it does not exist) to `new`. Raises `branch-moved` if it has another
        value."""
        self.update_refs(self.branch_ref, f"update {self.branch_ref} {new} {old or '0' * len(new)}\n")

    def update_refs(self, locked: str, commands: str) -> None:
        """Run `git update-ref --stdin`; remove a lock on `locked` that a killed git left."""
        self.retry_without_lock(locked, lambda: self._git.run("update-ref", "--stdin", stdin=commands.encode()))

    def retry_without_lock(self, ref: str, act: Callable[[], T]) -> T:
        """Run `act`; if a lock on this ref blocks it although git waited, remove the lock and run it again."""
        try:
            return act()
        except RepositoryUnusable as error:
            lock = self._git.directory / f"{ref}.lock"
            if ".lock'" not in str(error) or not lock.exists():
                raise
            lock.unlink(missing_ok=True)
            return act()

    def create_branch(self, start: Commit) -> None:
        """Create branch and first capture. Raises RepositoryUnusable, `branch-exists` if the branch is not ours."""
        if self.identity.feature == "rescue":
            raise RepositoryUnusable(
                "bad-name", "a feature cannot be called `rescue`: rescued refs are kept under that name"
            )
        branch = self._git.run("for-each-ref", "--format=%(objectname) %(worktreepath)", self.branch_ref).text
        oid, _, checked_out_at = branch.partition(" ")
        if (oid and oid != start) or (checked_out_at and checked_out_at != str(self.path)):
            raise RepositoryUnusable("branch-exists", self._describe_existing_branch(oid, checked_out_at))
        try:
            commands = f"update {self.capture_ref} {start}\nupdate {self.branch_ref} {start}\n"
            self.update_refs(self.branch_ref, commands)
        except RepositoryUnusable as error:
            if "; cannot create" not in str(error):
                raise
            message = f"the branch `{self.identity.branch}` cannot exist beside the branch named like its first part"
            raise RepositoryUnusable("branch-exists", f"{message}; set another `branch_prefix:`") from error

    def _describe_existing_branch(self, oid: str, checked_out_at: str) -> str:
        """Describe who created the existing branch, and the fix. The run comes from the worktree's path or the last
        commit's trailer."""
        position = f"checked out in {checked_out_at}" if checked_out_at else f"at {oid[:12]}"
        message = f"the branch `{self.identity.branch}` exists already, {position}"
        run = self._creating_run(oid, checked_out_at)
        if not run:
            return f"{message}, and this run did not create it; rename or delete it, or set another `branch_prefix:`"
        fix = f"`git branch -D {self.identity.branch}`"
        fix = f"`mz clean {run}`, then {fix}" if checked_out_at else fix
        return f"{message}: the run {run} created it; save what you need of it, then {fix}"

    def _creating_run(self, oid: str, checked_out_at: str) -> str:
        """Return the run that created the branch; empty if none did."""
        path = pathlib.Path(checked_out_at)
        if checked_out_at and path.name == self.identity.feature and path.parent.parent == self.path.parent.parent:
            return path.parent.name
        keys = self._git.run("log", "-1", "--format=%(trailers:key=Mz-Key,valueonly)", oid, check=False).text.split()
        run, _, feature_key = (keys[0] if len(keys) == 1 else "").partition("/")
        return run if feature_key.startswith(f"{self.identity.feature}/") else ""

    def attach_branch(self, head: Commit) -> pathlib.Path:
        """Set the branch to `head` (its old value is kept under `refs/mz/<run>/rescue/`) and HEAD to the branch, remove
        files of unfinished operations, and return the worktree's entry."""
        entry = self.link_entry(head)
        for file in entry.iterdir():
            if file.name in UNFINISHED_OPERATION_FILES or file.suffix == ".lock":
                remove_tree(os.fsencode(file))
        for ref in (self.branch_ref, self.capture_ref):
            remove_stale_lock(self._git.directory, ref)
        refs = self._read_refs_with_repair(entry)
        if refs.branch != head:
            old = refs.branch
            rescue = f"update {rescue_ref(self.identity, self.branch_ref, old)} {old}\n" if old else ""
            commands = f"{rescue}update {self.branch_ref} {head} {old or '0' * len(head)}\n"
            self.update_refs(self.branch_ref, commands)
        if not refs.attached:
            self._git.run("symbolic-ref", "HEAD", self.branch_ref, git_dir=entry)
        return entry

    def _read_refs_with_repair(self, entry: pathlib.Path) -> RefValues:
        try:
            return self.read_refs(entry)
        except RepositoryUnusable:
            # Git rejects an entry with an invalid HEAD altogether.
            write_text_file(entry / "HEAD", f"ref: {self.branch_ref}\n")
            return self.read_refs(entry)

    # the entry --------------------------------------------------------------------------------------------------------
    def link_entry(self, head: Commit) -> pathlib.Path:
        """Make or repair the worktree's directory and its entry in the repository, each pointing to the other."""
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            remove_tree(self.top)
        self.path.mkdir(parents=True, exist_ok=True)
        entry = self._find_entry() or self._add_entry(head)
        write_text_file(entry / "commondir", "../..\n")
        write_text_file(entry / "gitdir", f"{self.path / '.git'}\n")
        write_text_file(self.path / ".git", f"gitdir: {entry}\n")
        return entry

    def _find_entry(self) -> pathlib.Path | None:
        own_pointers = {self.path / ".git", self._temporary_path / ".git"}
        entries = self._git.directory / "worktrees"
        for entry in sorted(entries.iterdir()) if entries.is_dir() else ():
            if read_pointer(entry / "gitdir") in own_pointers:
                return entry
        candidate = read_pointer(self.path / ".git")
        if candidate is None or candidate.parent != entries or not candidate.is_dir():
            return None
        linked_worktree = read_pointer(candidate / "gitdir")
        return None if linked_worktree and linked_worktree.exists() else candidate

    @property
    def _temporary_path(self) -> pathlib.Path:
        return self.notes_store.directory / "new" / self.identity.feature

    def _add_entry(self, head: Commit) -> pathlib.Path:
        """Add an entry. Git creates one only together with an empty directory, so it gets a temporary one."""
        remove_tree(os.fsencode(self._temporary_path))
        self._temporary_path.parent.mkdir(parents=True, exist_ok=True)
        self._git.run(
            "worktree", "add", "--quiet", "--force", "--no-checkout", "--detach", str(self._temporary_path), head
        )
        entry = self._find_entry()
        if entry is None:
            raise RepositoryUnusable("worktree-unusable", f"git made no worktree for {self.path}")
        return entry

    def delete(self) -> None:
        """Remove directory, entry and notes."""
        remove_tree(self.top)
        entry = self._find_entry()
        if entry is not None:
            remove_tree(os.fsencode(entry))
        remove_tree(os.fsencode(self.notes_store.directory))

    # the index --------------------------------------------------------------------------------------------------------
    def update_index(self, entry: pathlib.Path, head: Commit, notes: WorktreeNotes, written: bool) -> WorktreeNotes:
        """Make the index match `head` and the files on disk. Nothing is done if it is unchanged since it was made for
        `head` and no file was `written`."""
        index, own_index = entry / "index", self.notes_store.directory / "index"
        if notes.index_of == head and notes.index == file_signature(index) and not written:
            return notes
        own_index.parent.mkdir(parents=True, exist_ok=True)
        own_index.with_name("index.lock").unlink(missing_ok=True)
        self._read_tree(own_index, head)
        # Refreshing compares contents, and git would run the repository's filters for that.
        filters = self._git.run("config", "--name-only", "--get-regexp", r"^filter\.", check=False)
        disabled_filters = [part for name in set(filters.text.splitlines()) for part in ("-c", f"{name}=")]
        env = {"GIT_INDEX_FILE": str(own_index), "GIT_WORK_TREE": str(self.path)}
        self._git.run(*disabled_filters, "update-index", "-q", "--refresh", env=env, check=False)
        write_bytes(index, own_index.read_bytes())
        return msgspec.structs.replace(notes, index_of=head, index=file_signature(index))

    def _read_tree(self, index: pathlib.Path, head: Commit) -> None:
        """Read `head` into mz's own copy of the index, which keeps the cached data of unchanged files; rebuild it if it
        is damaged."""
        env = {"GIT_INDEX_FILE": str(index)}
        if index.exists() and self._git.run("read-tree", "-m", head, env=env, check=False).exit_code == 0:
            return
        index.unlink(missing_ok=True)
        self._git.run("read-tree", head, env=env)


def rescue_ref(worktree: FeatureWorktree, ref: str, oid: str) -> str:
    """Name the ref that keeps an old value. The value comes last, so that no name is a directory of another."""
    return f"refs/mz/{worktree.run}/rescue/{ref.removeprefix('refs/')}/{oid}"


def read_pointer(file: pathlib.Path) -> pathlib.Path | None:
    """Return the absolute path in a pointer file of git's; None without such a file."""
    text = read_regular_file(file)
    if text is None:
        return None
    return pathlib.Path(os.path.normpath(file.parent / text.rstrip("\n").removeprefix("gitdir: ")))


def read_regular_file(file: pathlib.Path) -> str | None:
    """Return the text of a regular file; None for anything else, including a FIFO that would block."""
    try:
        return file.read_text(errors="surrogateescape") if stat.S_ISREG(file.lstat().st_mode) else None
    except OSError:
        return None


def write_text_file(file: pathlib.Path, text: str) -> None:
    """Write a text file unless it already has that content, replacing whatever has that name."""
    if read_regular_file(file) != text:
        remove_tree(os.fsencode(file))
        write_bytes(file, os.fsencode(text))
