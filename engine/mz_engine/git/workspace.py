"""The user's repository through the git command line: implements `ports.Workspace`. Commits are in the user's name, and
found again by their `Mz-Key` trailer.

Worktrees are in `.mz/worktrees/<run>/<feature>`, captures under `refs/mz/<run>/<feature>`. The port documents each
method, the modules beside this one implement them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

from msgspec.structs import replace
from mz_events.catalog.validation import Change
from mz_events.names import Commit, Path

from mz_engine.git import content as git_content
from mz_engine.git import repository as git_repository
from mz_engine.git.checkouts import CHECKOUT_NAME, Checkouts, copy_made, environment_digest, is_checkout
from mz_engine.git.content import SUBMODULE, FileHash, TreeListing, WorktreeScan, display_path, event_path
from mz_engine.git.files import (
    WorktreeScanner,
    copy_missing,
    read_file,
    remove_tree,
    restore,
    write_engine_files,
    write_if_changed,
)
from mz_engine.git.objects import CACHED_LISTINGS_MAX, ObjectStore, RefMovedError
from mz_engine.git.process import Git, file_error, git_error
from mz_engine.git.repository import is_ancestor
from mz_engine.git.sources import DIFF
from mz_engine.git.worktree import CHECKOUT_MANIFEST, GitWorktree, environment_parts, remove_empty_folders
from mz_engine.model.config import Sources, WorkspaceSettings
from mz_engine.path_patterns import IgnoreRules, ignore_rules
from mz_engine.paths import MZ_FOLDER, WORKTREES_FOLDER
from mz_engine.ports import (
    Capture,
    Checkout,
    CreatedCommit,
    FeatureWorktree,
    MergeConflict,
    MergeResult,
    RepositoryUnusable,
    SourceChange,
    WorkspaceCreated,
)
from mz_engine.processes.environment import git_directory
from mz_engine.sources import parse_patch, sum_changes

THREAD_POLL_SECONDS = 0.5
"""How often a waiting thread looks whether the one that it waits for still runs."""
OPENED_MAX = 64
CAPTURE_TRIES = 3
"""Other processes may still write during a capture; they usually end soon."""


class GitWorkspace:
    """One repository. Thread-safe as long as each worktree is used by one thread at a time. Raises RepositoryUnusable
    if `root` is no repository that mz can work in."""

    def __init__(
        self, root: pathlib.Path, settings: WorkspaceSettings, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._git = git_repository.open_repository(root, environment)
        self._objects = objects = ObjectStore(self._git)
        self._kept_rules: IgnoreRules = ignore_rules(settings.keep_ignored)
        self._copied_paths = tuple(settings.copy)
        self._submodules = None if fetches_submodules(settings.setup) else Submodules(environment)
        self._environment: Callable[[str], str] = lru_cache(CACHED_LISTINGS_MAX)(
            lambda tree: environment_digest(objects.listing(tree), settings, objects.blob)
        )
        self._worktrees: dict[tuple[str, str], GitWorktree] = {}
        self._checkouts: dict[str, Checkouts] = {}
        """By run."""
        self._lock, self._fetch_lock, self._advance_lock = threading.RLock(), threading.Lock(), threading.Lock()
        self._setup_ended, self._setups = threading.Condition(self._lock), dict[threading.Thread, str]()
        """By thread, the digest of the environment whose set-up it runs in a checkout, or is about to."""
        self._environment_lock = threading.Lock()
        """Held while an environment is copied or dropped, so that no copy is of half of one."""

    # opening and closing ----------------------------------------------------------------------------------------------
    def open(self, worktree: FeatureWorktree, starts_from: tuple[Commit, ...]) -> WorkspaceCreated | MergeConflict:
        git_worktree = self._git_worktree(worktree)
        head, tree = git_worktree.read_refs()
        if tree is None:
            for commit in starts_from:
                if not has_commit(self._git, commit):
                    message = f"{worktree.feature} starts from {commit}, which is not in the repository"
                    raise RepositoryUnusable("no-base", message)
            start = merge_all(self._git, self._objects, starts_from, worktree.feature)
            if isinstance(start, MergeConflict):
                return start
            git_worktree.create_branch(start)
            head = tree = start
        head = head or tree
        write_if_changed(self._git.repository.root / MZ_FOLDER / ".gitignore", "*\n")
        needs_setup = self.ensure(worktree, head, tree)
        return WorkspaceCreated(head=head, tree=tree, environment=None if needs_setup else self._environment(tree))

    def close(self, worktree: FeatureWorktree) -> None:
        with self._lock:
            scoped = replace(worktree, branch=worktree.branch or "-", is_scoped=True)  # Without a branch refs would go.
            for identity in (scoped, worktree):
                self._worktrees.pop((identity.run, identity.folder), None)
                GitWorktree(self._git, identity).delete()

    # checkouts --------------------------------------------------------------------------------------------------------
    def checkout(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> Checkout:
        digest = self._environment(tree)

        def environment(name: str) -> str | None:
            return self._git_worktree(replace(worktree, feature=name)).environment()

        with self._lock:
            name = self._run_checkouts(worktree.run).take(worktree, digest, environment)
        identity = replace(worktree, feature=name)
        git_worktree = self._git_worktree(identity)
        if git_worktree.environment() != digest:
            with self._environment_lock:
                git_worktree.drop_environment()
            self._begin_setup(digest)
            self.copy_environment(git_worktree, tree)  # What another tree has in it, `_restore` removes.
        git_worktree.keeps_ignored = git_worktree.notes.last_use == (worktree, tree)
        git_worktree.save_notes(last_use=(worktree, tree))
        git_worktree.write_repository(head)
        made = git_worktree.manifest(CHECKOUT_MANIFEST) if git_worktree.notes.environment else set()
        self._restore(git_worktree, head, tree, made)
        needs_setup = git_worktree.notes.environment != digest
        if not needs_setup:
            self._end_setup()
        return Checkout(worktree=identity, environment=digest, needs_setup=needs_setup)

    def _begin_setup(self, digest: str) -> None:
        """Wait while another thread runs this set-up, so that its result can be copied; then others wait for this
        thread, until its set-up ends or fails, or the thread itself ends."""
        with self._setup_ended:
            self._end_setup()
            while digest and any(thread.is_alive() for thread, other in self._setups.items() if other == digest):
                self._setup_ended.wait(THREAD_POLL_SECONDS)
            self._setups[threading.current_thread()] = digest

    def _end_setup(self) -> None:
        with self._setup_ended:
            self._setups.pop(threading.current_thread(), None)
            self._setup_ended.notify_all()

    def release(self, worktree: FeatureWorktree) -> None:
        self._end_setup()
        with self._lock:
            self._run_checkouts(worktree.run).release(worktree)

    def close_checkouts(self, run: str) -> None:
        """Remove the checkouts of a run, and what is empty then."""
        for name in self._run_checkouts(run).names:
            self.close(FeatureWorktree(run=run, feature=name, branch=name))
        self._checkouts.pop(run)
        remove_empty_folders(self._git.repository.root, run)

    def _run_checkouts(self, run: str) -> Checkouts:
        with self._lock:
            if run not in self._checkouts:
                folder = self._git.repository.root / MZ_FOLDER / WORKTREES_FOLDER / run
                self._checkouts[run] = Checkouts([path.name for path in folder.glob(f"{CHECKOUT_NAME}*")])
            return self._checkouts[run]

    # trees ------------------------------------------------------------------------------------------------------------
    def ensure(self, worktree: FeatureWorktree, head: Commit, tree: Commit) -> bool:
        git_worktree = self._git_worktree(worktree)
        git_worktree.clear_adopted_if_lost()
        git_worktree.reset_branch(head)
        git_worktree.write_repository(head)
        self._restore(git_worktree, head, tree, git_worktree.manifest(tree))
        if not git_worktree.notes.adopted and self.copy_environment(git_worktree, tree):
            self.adopt(worktree, tree)
        return not git_worktree.notes.adopted

    def copy_environment(self, git_worktree: GitWorktree, tree: Commit) -> bool:
        """Copy what the set-up made in a checkout of the run, if it would make the same here; return True if so."""
        digest, tracked = self._environment(tree), self._objects.listing(tree)
        for name in self._run_checkouts(git_worktree.identity.run).names if digest else ():
            checkout = self._git_worktree(replace(git_worktree.identity, feature=name))
            with self._environment_lock:
                if checkout.environment() != digest:
                    continue
                made = checkout.manifest(CHECKOUT_MANIFEST)
                folders, files = environment_parts(made, tracked)
                copied = copy_made(checkout.path, git_worktree.path, folders | files)
            if copied and is_checkout(git_worktree.identity):
                git_worktree.take_environment(digest, made, tracked)
            return copied
        return False

    def _restore(self, git_worktree: GitWorktree, head: Commit, tree: Commit, kept: set[bytes]) -> None:
        """Make the directory hold `tree` and what is `kept` besides, and the index match `head`."""
        target, scan = self._objects.listing(tree), self._scan(git_worktree, tree)
        written = restore(self._objects, git_worktree.top, target, scan, kept)
        if self._submodules:
            root = self._git.repository.root
            self._submodules.restore(git_worktree.top, root, target, git_worktree.keeps_ignored)
        scratch = git_worktree.notes_directory / "scratch"
        copy_missing(self._git.repository.root, git_worktree.path, scratch, self._copied_paths, target)
        git_worktree.change_notes(hash_cache=scan.hash_cache)
        if written:
            git_worktree.change_notes(hash_cache=self._scan(git_worktree, tree).hash_cache)
        git_worktree.update_index(head, self._objects.listing(head), written)
        git_worktree.save_notes()

    def capture(self, worktree: FeatureWorktree, before: Commit) -> Capture:
        return _repeated(partial(self._capture, self._git_worktree(worktree), before))

    def _capture(self, git_worktree: GitWorktree, before: Commit) -> Capture:
        tracked = self._objects.listing(before)
        newest = git_worktree.read_refs().capture
        scan = self._scan(git_worktree, before, reads_rules=True)
        git_worktree.change_notes(hash_cache=scan.hash_cache)
        content, forbidden_changes = git_content.capture_content(scan, tracked)
        # What only hides itself is not trusted: unless it was there before, it is gone before the next call or command.
        untrusted = tuple(scan.self_ignored - git_worktree.manifest(before))
        ignored = {path for path in scan.ignored if not (untrusted and path.startswith(untrusted))}
        is_unchanged = newest is not None and self._objects.listing(newest) == content
        if newest is None or not is_unchanged or git_worktree.manifest(newest) != ignored:
            newest = self._write_capture(git_worktree, content, newest, before, git_worktree.path)
            git_worktree.write_manifest(newest, ignored)
        return Capture(tree=newest, forbidden_changes=forbidden_changes)

    def lay_out(self, worktree: FeatureWorktree, tree: Commit, paths: tuple[Path, ...]) -> Commit:
        git_worktree, listing = self._git_worktree(worktree), self._objects.listing(tree)
        content = {path: listing[path] for path in map(os.fsencode, paths)}
        capture = self._write_capture(git_worktree, content, git_worktree.read_refs().capture, tree)
        scoped = self._git_worktree(replace(worktree, is_scoped=True))
        head = self._objects.make_commit(capture, (), b"The files of this phase")
        try:
            scoped.write_own_repository(head)
        except OSError as error:
            raise file_error("worktree-unusable", f"{error.filename} cannot be written", error) from error
        restore(self._objects, scoped.top, content, self._scan(scoped, capture), set())
        scoped.change_notes(hash_cache=self._scan(scoped, capture).hash_cache)
        scoped.update_index(head, content, written=True)
        return capture

    def collect(self, worktree: FeatureWorktree, tree: Commit, laid_out: Commit) -> Capture:
        return _repeated(partial(self._collect, worktree, tree, laid_out))

    def _collect(self, worktree: FeatureWorktree, tree: Commit, laid_out: Commit) -> Capture:
        git_worktree, scoped = self._git_worktree(worktree), self._git_worktree(replace(worktree, is_scoped=True))
        files = self._objects.listing(laid_out)
        now, offences = git_content.capture_content(self._scan(scoped, laid_out, rules=tree), files)
        content, hidden = git_content.with_changes(self._objects.listing(tree), files, now)
        newest = git_worktree.read_refs().capture
        capture = self._write_capture(git_worktree, content, newest, tree, scoped.path)
        git_worktree.write_manifest(capture, git_worktree.manifest(tree))
        return Capture(tree=capture, forbidden_changes=(*offences, *hidden))

    def adopt(self, worktree: FeatureWorktree, tree: Commit) -> None:
        git_worktree, scan = self._git_worktree(worktree), self._scan(self._git_worktree(worktree), tree)
        if is_checkout(worktree):
            target = self._objects.listing(tree)
            made = scan.ignored | (scan.files.keys() - target.keys())
            git_worktree.take_environment(self._environment(tree), made, target)
            return
        git_worktree.write_manifest(tree, scan.ignored)
        git_worktree.save_notes(adopted=True)

    def provide(self, worktree: FeatureWorktree, files: Mapping[Path, bytes]) -> None:
        try:
            write_engine_files(self._git_worktree(worktree).path, files)
        except OSError as error:
            raise file_error("worktree-lost", f"{error.filename} cannot be written", error) from error

    def revert_paths(self, worktree: FeatureWorktree, tree: Commit, before: Commit, revert: tuple[Path, ...]) -> Commit:
        git_worktree = self._git_worktree(worktree)
        content = git_content.revert_paths(self._objects.listing(tree), self._objects.listing(before), revert)
        capture = self._write_capture(git_worktree, content, git_worktree.read_refs().capture, tree)
        # What only reverted rules ignored, or stopped ignoring, must not pass for the work of the next phase.
        rules = self._objects.ignore_rules(capture)
        ignored = (git_worktree.manifest(tree), git_worktree.manifest(before))
        kept = {path for path in set.union(*ignored) if rules.covers(path)} | set.intersection(*ignored)
        git_worktree.write_manifest(capture, kept)
        return capture

    def edit(
        self, worktree: FeatureWorktree, tree: Commit, deleted: tuple[Path, ...], files: Mapping[Path, bytes]
    ) -> Commit:
        git_worktree, texts = self._git_worktree(worktree), {os.fsencode(path): text for path, text in files.items()}
        content = git_content.with_files(
            self._objects.listing(tree), frozenset(map(os.fsencode, deleted)), self._objects.entries(texts)
        )
        capture = self._write_capture(git_worktree, content, git_worktree.read_refs().capture, tree, texts)
        git_worktree.write_manifest(capture, git_worktree.manifest(tree) - content.keys())
        return capture

    def _write_capture(
        self,
        git_worktree: GitWorktree,
        content: TreeListing,
        newest: Commit | None,
        before: Commit,
        files: pathlib.Path | Mapping[bytes, bytes] | None = None,
    ) -> Commit:
        """Write a capture with parent `newest` that also descends from `before`. `files`: what git does not have, or
        where to read it."""
        parents: tuple[Commit, ...] = (newest or before,)
        if newest and before not in git_worktree.reachable and not is_ancestor(self._git, before, newest):
            parents = (newest, before)
        listing_before = self._objects.listing(before)
        readers = {
            path: partial(files.__getitem__, path)
            if isinstance(files, Mapping)
            else partial(read_file, os.fsencode(files) + b"/" + path)
            for path, entry in content.items()
            if files is not None and entry.mode != SUBMODULE and listing_before.get(path) != entry
        }
        capture = self._objects.write_capture(content, readers, parents)
        git_worktree.move_capture(capture, newest)
        git_worktree.reachable |= {before, capture}
        return capture

    def changes(self, old: Commit, new: Commit) -> tuple[Change, ...]:
        return tuple(git_content.changes(self._objects.listing(old), self._objects.listing(new)))

    def source_change(self, old: Commit, new: Commit, sources: Sources) -> SourceChange:
        return sum_changes(parse_patch(self._git.run(*DIFF, old, new, "--").stdout), sources)

    def read(self, tree: Commit, path: Path) -> bytes | None:
        return self._objects.read(tree, path)

    def paths(self, tree: Commit) -> tuple[Path, ...]:
        listing = self._objects.listing(tree)
        return _event_paths(path for path, entry in listing.items() if entry.mode != SUBMODULE)

    def patch(self, old: Commit, new: Commit) -> bytes:
        """Return a binary-safe unified diff."""
        flags = ("--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
        return self._git.run("diff-tree", "-r", "-p", *flags, old, new).stdout

    # commits ----------------------------------------------------------------------------------------------------------
    def find_commit(self, worktree: FeatureWorktree, key: str) -> CreatedCommit | None:
        commit = find_by_key(self._git, self._git_worktree(worktree).branch_ref, key)
        return describe_commit(self._objects, commit) if commit else None

    def commit(self, worktree: FeatureWorktree, tree: Commit, parent: Commit, message: bytes) -> CreatedCommit:
        git_worktree = self._git_worktree(worktree)
        git_worktree.reset_branch(parent)
        new_commit = self._objects.make_commit(tree, (parent,), message)
        git_worktree.move_branch(new_commit, parent)
        return describe_commit(self._objects, new_commit)

    def merge(self, worktree: FeatureWorktree, head: Commit, other: Commit, message: bytes) -> MergeResult:
        git_worktree = self._git_worktree(worktree)
        if is_ancestor(self._git, other, head):
            return MergeResult(commit=head, tree=self._ensure_capture(git_worktree, head), changed=False)
        content = merge_trees(self._git, head, other)
        merge_commit = make_merge_commit(self._git, self._objects, head, other, content, message)
        git_worktree.user_refs = ""  # So that the target branch is where it was merged from.
        git_worktree.clear_adopted_if_lost()
        git_worktree.reset_branch(merge_commit if git_worktree.read_refs().branch == merge_commit else head)
        git_worktree.write_repository(head)
        # Ignored files stay, as in a merge by hand. Under the rules of `head`, files that were tracked are not ignored.
        ignored = self._scan(git_worktree, head).ignored
        if git_worktree.read_refs().branch != merge_commit:
            git_worktree.move_branch(merge_commit, head)
        tree = self._ensure_capture(git_worktree, merge_commit)
        git_worktree.write_manifest(tree, ignored - self._objects.listing(tree).keys())
        self.ensure(worktree, merge_commit, tree)
        return MergeResult(commit=merge_commit, tree=tree, conflicts=content.conflicts, changed=True)

    def join(self, target: Commit, head: Commit, message: bytes) -> CreatedCommit:
        content = MergedTree(head, ())
        return describe_commit(
            self._objects, make_merge_commit(self._git, self._objects, target, head, content, message)
        )

    def advance(self, branch: str, old: Commit, commit: Commit) -> Commit | None:
        with self._advance_lock:
            now = git_repository.move_forward(self._git, branch, old, commit)
        return None if now is not None and is_ancestor(self._git, commit, now) else now or old

    def tagged(self, name: str) -> Commit | None:
        return git_repository.commit_of(self._git, f"refs/tags/{name}")

    def tag(self, name: str, commit: Commit) -> None:
        git_repository.make_tag(self._git, name, commit)

    def close_branch(self, worktree: FeatureWorktree, head: Commit) -> None:
        self._git_worktree(worktree).close_branch(head)

    def _ensure_capture(self, git_worktree: GitWorktree, commit: Commit) -> Commit:
        """Return a capture with the commit's content: the newest one if it matches, else a new one."""
        content, newest = self._objects.listing(commit), git_worktree.read_refs().capture
        if newest is not None and self._objects.listing(newest) == content:
            return newest
        return self._write_capture(git_worktree, content, newest, commit)

    def contains(self, head: Commit, commit: Commit) -> bool:
        return has_commit(self._git, commit) and is_ancestor(self._git, commit, head)

    def is_newest(self, head: Commit, path: Path, request: Path, inputs: tuple[Path, ...]) -> bool:
        if os.fsencode(path) not in self._objects.listing(head):
            return False
        names = (path, request, *inputs)
        own, *others = (self._git.run("log", "-1", "--format=%H", head, "--", name).text for name in names)
        return own != others[0] and all(commit and is_ancestor(self._git, commit, own) for commit in others)

    def changed_paths(self, base: Commit, head: Commit) -> tuple[Path, ...]:
        left_at = self._git.run("merge-base", base, head, check=False).text or base
        flags = ("-r", "-z", "--name-only", "--no-renames")
        return _event_paths(self._git.run("diff-tree", *flags, left_at, head).stdout.split(b"\0"))

    # remotes ----------------------------------------------------------------------------------------------------------
    def remote_head(self, remote: str, branch: str) -> Commit | None:
        return git_repository.remote_head(self._git, remote, branch)

    def target_head(self, remote: str | None, branch: str) -> Commit | None:
        if remote is not None:
            with self._fetch_lock:
                if remote_commit := git_repository.fetch(self._git, remote, branch):
                    return remote_commit
        return git_repository.commit_of(self._git, f"refs/heads/{branch}")

    def push(self, remote: str, branch: str, commit: Commit, old: Commit | None) -> None:
        git_repository.push(self._git, remote, branch, commit, old)

    # ------------------------------------------------------------------------------------------------------------------
    def _git_worktree(self, worktree: FeatureWorktree) -> GitWorktree:
        name = (worktree.run, worktree.folder)
        with self._lock:
            if name not in self._worktrees:
                self._worktrees[name] = GitWorktree(self._git, worktree)
            return self._worktrees[name]

    def _scan(
        self, git_worktree: GitWorktree, commit: Commit, reads_rules: bool = False, rules: Commit | None = None
    ) -> WorktreeScan:
        return WorktreeScanner(
            top=git_worktree.top,
            tracked=self._objects.listing(commit),
            ignore_rules=IgnoreRules({}) if reads_rules else self._objects.ignore_rules(rules or commit),
            reads_rules=reads_rules,
            keep_rules=self._kept_rules if git_worktree.keeps_ignored else IgnoreRules({}),
            copied_paths=frozenset(os.fsencode(path) for path in self._copied_paths),
            repository=self._git.repository,
            hash_cache=git_worktree.notes.hash_cache,
        ).scan_worktree()


def _repeated(capture: Callable[[], Capture]) -> Capture:
    """Try a capture several times, while other processes still write."""
    for _ in range(CAPTURE_TRIES - 1):
        with contextlib.suppress(RefMovedError):
            return capture()
    return capture()


def _event_paths(paths: Iterable[bytes]) -> tuple[Path, ...]:
    """Return the paths that events may hold, sorted."""
    return tuple(sorted(path for path in map(event_path, paths) if path))


# submodules -----------------------------------------------------------------------------------------------------------
def fetches_submodules(setup: Iterable[str]) -> bool:
    """Return True if the set-up itself does that, for which directories must be empty."""
    return any("git submodule" in line for line in setup)


class Submodules:
    """Content of submodules in worktrees: plain files, at the commits that a tree names, from the repositories that the
    user's checkout has of them. Where it has none, or not that commit, the directory is empty."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._open = lru_cache(OPENED_MAX)(lambda path: ObjectStore(git_repository.open_repository(path, environment)))
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


# commits --------------------------------------------------------------------------------------------------------------
def describe_commit(objects: ObjectStore, commit: Commit) -> CreatedCommit:
    """Count the commit's changes against its first parent; binary files count no lines."""
    counts = objects.line_counts(f"{commit}^1", commit)
    added, deleted = (sum(count[column] for count in counts) for column in (0, 1))
    return CreatedCommit(commit=commit, files=len(counts), insertions=added, deletions=deleted)


def find_by_key(git: Git, branch_ref: str, key: str) -> Commit | None:
    """Return the newest commit of the branch itself (first parents) whose `Mz-Key` trailer is exactly `key`."""
    search = ("--first-parent", "--fixed-strings", f"--grep=Mz-Key: {key}")
    output_flags = ("-z", "--no-show-signature", "--no-mailmap", "--format=%H%n%(trailers:key=Mz-Key,valueonly,unfold)")
    log = git.run("-c", "trailer.separators=:", "log", *search, *output_flags, branch_ref, "--", check=False)
    if log.exit_code:
        if "unknown revision" in log.stderr or "bad revision" in log.stderr:
            return None
        raise git_error("log", log)
    for entry in log.stdout.decode("utf-8", "replace").split("\0"):
        commit, *values = entry.split("\n")
        if key in (value.strip() for value in values if value):
            return Commit(commit)
    return None


def merge_all(git: Git, objects: ObjectStore, commits: tuple[Commit, ...], feature: str) -> Commit | MergeConflict:
    """Merge the commits one by one in the object store, touching no worktree; ancestors need no new commit."""
    merged = commits[0]
    message = f"Merge what {feature} builds upon\n".encode()
    for commit in commits[1:]:
        if is_ancestor(git, commit, merged):
            continue
        if is_ancestor(git, merged, commit):
            merged = commit
            continue
        content = merge_trees(git, merged, commit)
        if content.conflicts:
            return MergeConflict(paths=content.conflicts)
        merged = make_merge_commit(git, objects, merged, commit, content, message)
    return merged


class MergedTree(NamedTuple):
    """Result of `git merge-tree` for two commits."""

    tree: str
    conflicts: tuple[Path, ...]
    """Files with both sides between conflict markers, or only ours where git cannot merge by lines."""


def merge_trees(git: Git, ours: Commit, theirs: Commit) -> MergedTree:
    """Merge two commits, in a repository without configuration or attributes over the same objects, so that no merge
    driver runs. Conflict markers show its branch names, which do not depend on commits. Raises RepositoryUnusable
    (`git-too-old` before git 2.38)."""
    flags = ("--write-tree", "-z", "--name-only", "--no-messages")
    with tempfile.TemporaryDirectory(prefix="mz-merge-") as name:
        view, version = pathlib.Path(name), "[core]\n\trepositoryformatversion = 1\n\tbare = true\n"
        (view / "config").write_text(f"{version}[extensions]\n\tobjectFormat = {git.repository.object_format}\n")
        (view / "HEAD").write_text("ref: refs/heads/none\n")
        (view / "refs" / "heads").mkdir(parents=True)
        for branch, commit in (("ours", ours), ("theirs", theirs)):
            (view / "refs" / "heads" / branch).write_text(f"{commit}\n")
        environment = {"GIT_OBJECT_DIRECTORY": str(git.directory / "objects")}
        result = git.run("merge-tree", *flags, "ours", "theirs", git_dir=view, env=environment, check=False)
    if result.exit_code > 1:
        if "usage:" in result.stderr:
            raise RepositoryUnusable("git-too-old", "merging commits needs git 2.38 or newer: update git")
        raise git_error("merge-tree", result)
    tree, *paths = result.stdout.split(b"\0")
    conflicts = sorted(display_path(path) for path in set(paths) if path) if result.exit_code else ()
    return MergedTree(tree.decode(), tuple(conflicts))


def make_merge_commit(
    git: Git, objects: ObjectStore, ours: Commit, theirs: Commit, content: MergedTree, message: bytes
) -> Commit:
    """Make the merge commit. Its time is that of the newer parent, so a repeated call makes the same commit."""
    dates = git.run("log", "--no-walk", "--no-show-signature", "--format=%ct", ours, theirs).text.split()
    return objects.make_commit(content.tree, (ours, theirs), message, f"{max(map(int, dates))} +0000")


def has_commit(git: Git, commit: str) -> bool:
    return git.run("cat-file", "-e", f"{commit}^{{commit}}", check=False).exit_code == 0
