"""Leftovers of runs in a repository and below `.mz`: find them, decide which `mz clean` removes, remove them."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.feature import FeatureStarted
from mz_events.names import inbox_stream, run_stream
from mz_events.store import Store
from mz_projections.run.fold import fold_run

from mz_engine.agents.process import spool_directory
from mz_engine.git.checkouts import is_checkout
from mz_engine.git.content import TreeListing, display_path
from mz_engine.git.files import WorktreeScanner
from mz_engine.git.objects import ObjectStore
from mz_engine.git.repository import FETCHED_TARGETS, open_repository
from mz_engine.git.worktree import GitWorktree, remove_empty_folders
from mz_engine.housekeeping.garbage import CALL_OUTCOMES, total_bytes
from mz_engine.path_patterns import ignore_rules
from mz_engine.paths import MZ_FOLDER, PULL_REQUESTS_FOLDER, SPOOL_FOLDER, WORKTREE_FOLDERS
from mz_engine.ports import SCOPED_PREFIX, FeatureWorktree, RepositoryUnusable

LeftoverKind = Literal["worktree", "capture", "rescue", "spool", "pull-request"]
LeftoverRunStatus = Literal["ended", "open", "held", "told", "unknown"]
"""Status of a run. ended: finished. open: not finished. held: a process drives it now. told: finished, but a posted
message may continue it. unknown: the log does not have it."""
NAMED_MAX = 3

STATUS_REASONS: Mapping[LeftoverRunStatus, str] = {
    "open": "the run is not finished",
    "held": "a process is running this run",
    "told": "the run has an unread message; `mz resume {run}` processes it",
    "unknown": "the log has no such run",
}
WORKTREE_KEPT = "its worktree is kept"
NOT_REMOVABLE = "it could not be removed"
RESUMABLE_STATUSES = frozenset({"open", "told"})
"""Runs whose captures a resume needs to rebuild worktrees."""


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """One leftover of a run."""

    kind: LeftoverKind
    run: str
    feature: str | None
    name: str
    """A path relative to the repository, or the name of a ref."""
    size_bytes: int | None = None
    """Null for a ref: git decides when its objects are deleted."""
    commit: str = ""
    """Commit of a ref."""
    unsaved: tuple[str, ...] = ()
    """Files of a worktree that no capture and no branch contains; or the name of a rescued ref, if no other ref leads
    to its commit."""
    keep_reason: str | None = None
    """Why it is kept; null: it is removed."""


class CleanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `mz clean`."""

    runs: frozenset[str] = frozenset()
    """Empty: every run that ended."""
    descriptions: bool = False
    """Also remove descriptions of pull requests that people open by hand."""
    force: bool = False
    """For the named runs: also remove leftovers of unfinished runs, and content that exists nowhere else."""


def with_keep_reasons(
    leftovers: Iterable[Leftover], statuses: Mapping[str, LeftoverRunStatus], options: CleanOptions
) -> tuple[Leftover, ...]:
    """Return the leftovers of the selected runs, each with the reason to keep it. A run without a status is unknown."""
    judged = [
        replace(leftover, keep_reason=find_keep_reason(leftover, statuses.get(leftover.run, "unknown"), options))
        for leftover in leftovers
        if not options.runs or leftover.run in options.runs
    ]
    kept_worktrees = {(item.run, item.feature) for item in judged if item.kind == "worktree" and item.keep_reason}
    return tuple(
        # Only a capture shows the changes of a worktree.
        replace(item, keep_reason=WORKTREE_KEPT)
        if item.kind == "capture" and not item.keep_reason and (item.run, item.feature) in kept_worktrees
        else item
        for item in judged
    )


def find_keep_reason(leftover: Leftover, status: LeftoverRunStatus, options: CleanOptions) -> str | None:
    """Return the reason to keep a leftover; None if it can be removed."""
    forced = options.force and leftover.run in options.runs
    if status == "held" or (status != "ended" and not forced):
        return STATUS_REASONS[status].format(run=leftover.run)
    if status in RESUMABLE_STATUSES and leftover.kind in ("capture", "rescue"):
        return f"`mz resume {leftover.run}` needs it"
    if leftover.kind == "pull-request" and not options.descriptions:
        return "a person may still open it; --all removes it"
    if not leftover.unsaved or forced:
        return None
    if leftover.kind == "rescue":
        return "no branch or tag contains its commit"
    more = ", ..." if len(leftover.unsaved) > NAMED_MAX else ""
    return f"changes that no capture contains: {', '.join(leftover.unsaved[:NAMED_MAX])}{more}"


CAPTURE_REFS = "refs/mz/"
RESCUE_FOLDER = "rescue"
CLOSED_FOLDER = "closed"
"""Heads of branches that were closed; like captures, they are kept until the run is removed."""


def run_states(store: Store, process_running: bool) -> dict[str, LeftoverRunStatus]:
    """Return the state of every run in the log; `process_running`: a process works here, so on the unfinished run."""
    states: dict[str, LeftoverRunStatus] = {}
    for stream, _ in store.streams("run/"):
        run = stream.removeprefix("run/")
        if "/" in run:
            continue
        state = fold_run(store.read(run_stream(run)))
        has_unread_messages = any(True for _ in store.read(inbox_stream(run), state.inbox_version))
        if state.finished:
            states[run] = "told" if has_unread_messages else "ended"
        else:
            states[run] = "held" if process_running else "open"
    return states


class LeftoverFinder:
    """Leftovers of one repository. The constructor raises RepositoryUnusable if git cannot be used there."""

    def __init__(self, root: pathlib.Path, store: Store, environment: Mapping[str, str] = os.environ) -> None:
        self._git = open_repository(root, environment)
        self._root, self._store = self._git.repository.root, store
        self._home = self._root / MZ_FOLDER
        self._objects = ObjectStore(self._git)

    # finding ----------------------------------------------------------------------------------------------------------
    def find(self, runs: Iterable[str]) -> tuple[Leftover, ...]:
        """Return all leftovers of these runs and of runs missing from the log, sorted by run."""
        lines = self._git.run("for-each-ref", "--format=%(refname) %(objectname)", CAPTURE_REFS).text.splitlines()
        refs = {name: oid for name, _, oid in (line.rpartition(" ") for line in lines)}
        leftovers = [*self._worktrees(refs), *self._captures(refs)]
        for folder in children(self._home / PULL_REQUESTS_FOLDER):
            leftovers += [
                self._file("pull-request", folder.name, file.stem, file) for file in sorted(folder.glob("*.md"))
            ]
        for run in runs:
            leftovers += self._call_files(run)
        return tuple(sorted(leftovers, key=lambda leftover: leftover.run))

    def _worktrees(self, refs: Mapping[str, str]) -> Iterator[Leftover]:
        names = {
            (run.name, feature.name)
            for kind in WORKTREE_FOLDERS
            for run in children(self._home / kind)
            for feature in children(run)
        }
        for run, feature in sorted(names):
            worktree = self._worktree(run, feature)
            yield Leftover(
                kind="worktree",
                run=run,
                feature=feature,
                name=f".mz/worktrees/{run}/{feature}",
                size_bytes=total_bytes(worktree.path),
                unsaved=self._unsaved_files(worktree, refs.get(worktree.capture_ref)),
            )

    def _unsaved_files(self, worktree: GitWorktree, capture: str | None) -> tuple[str, ...]:
        """Return files with content that neither the newest capture nor the branch has. Missing files are no loss, nor
        is a checkout for commands, or a directory that was laid out for a call."""
        is_made_again = is_checkout(worktree.identity) or worktree.identity.feature.startswith(SCOPED_PREFIX)
        if is_made_again or not worktree.path.is_dir() or worktree.path.is_symlink():
            return ()
        branch = worktree.read_refs().branch
        newest = capture or branch
        listings: list[TreeListing] = [self._objects.listing(commit) for commit in (capture, branch) if commit]
        try:
            scan = WorktreeScanner(
                top=worktree.top,
                tracked=listings[0] if listings else {},
                ignore_rules=self._objects.ignore_rules(newest) if newest else ignore_rules(()),
                repository=self._git.repository,
                hash_cache=worktree.notes.hash_cache,
            ).scan_worktree()
        except RepositoryUnusable as error:
            return (str(error),)
        oids = [{path: entry.oid for path, entry in listing.items()} for listing in listings]
        lost = [path for path, entry in scan.files.items() if all(saved.get(path) != entry.oid for saved in oids)]
        return tuple(display_path(path) for path in sorted([*lost, *(stray.path for stray in scan.excluded)]))

    def _captures(self, refs: Mapping[str, str]) -> Iterator[Leftover]:
        for name, oid in refs.items():
            if name.startswith(FETCHED_TARGETS):
                continue
            run, _, feature = name.removeprefix(CAPTURE_REFS).partition("/")
            rescued, closed = (feature.startswith(f"{folder}/") for folder in (RESCUE_FOLDER, CLOSED_FOLDER))
            yield Leftover(
                kind="rescue" if rescued else "capture",
                run=run,
                feature=None if rescued or closed else feature,
                name=name,
                commit=oid,
                unsaved=(name,) if rescued and not self._is_reachable(oid) else (),
            )

    def _is_reachable(self, oid: str) -> bool:
        """Return True if the commit is reachable from a branch, a tag or a remote's branch."""
        namespaces = ("refs/heads", "refs/tags", "refs/remotes")
        done = self._git.run("for-each-ref", "--count=1", f"--contains={oid}", *namespaces, check=False)
        return done.exit_code == 0 and bool(done.stdout)

    def _call_files(self, run: str) -> Iterator[Leftover]:
        """Yield spools of calls with a recorded outcome, left by a killed `mz`."""
        for stream, _ in self._store.streams(f"{run_stream(run)}/"):
            feature = stream.rpartition("/")[2]
            for event in (recorded.event for recorded in self._store.read(stream)):
                if isinstance(event, CALL_OUTCOMES):
                    path = spool_directory(self._home / SPOOL_FOLDER, event.ref.key)
                    if path.is_dir():
                        yield self._file("spool", run, feature, path)

    def _file(self, kind: LeftoverKind, run: str, feature: str, path: pathlib.Path) -> Leftover:
        name, size_bytes = str(path.relative_to(self._root)), total_bytes(path)
        return Leftover(kind=kind, run=run, feature=feature, name=name, size_bytes=size_bytes)

    # removing ---------------------------------------------------------------------------------------------------------
    def remove(self, leftovers: Iterable[Leftover]) -> tuple[Leftover, ...]:
        """Remove leftovers, worktrees before the captures with their content, so that an interruption loses nothing.
        Missing ones are ignored. Return all of them; those that could not be removed with the reason. Raises
        RepositoryUnusable, OSError; earlier removals remain."""
        leftovers = tuple(leftovers)
        removable = [leftover for leftover in leftovers if leftover.keep_reason is None]
        for leftover in removable:
            if leftover.kind == "worktree":
                assert leftover.feature is not None
                self._worktree(leftover.run, leftover.feature).delete()
            elif leftover.kind == "spool":
                shutil.rmtree(self._root / leftover.name, ignore_errors=True)
            elif leftover.kind == "pull-request":
                (self._root / leftover.name).unlink(missing_ok=True)
        refs = [leftover for leftover in removable if leftover.commit]
        commands = "".join(f"delete {leftover.name} {leftover.commit}\n" for leftover in refs)
        if commands:
            self._git.update_refs(commands)
        for run in {leftover.run for leftover in removable}:
            remove_empty_folders(self._root, run)
        # Joining the root with an absolute name gives that name.
        stuck = {item.name for item in removable if not item.commit and os.path.lexists(self._root / item.name)}
        return tuple(replace(item, keep_reason=NOT_REMOVABLE) if item.name in stuck else item for item in leftovers)

    def _worktree(self, run: str, feature: str) -> GitWorktree:
        started = (
            recorded.event.branch
            for recorded in self._store.read(run_stream(f"{run}/{feature}"))
            if isinstance(recorded.event, FeatureStarted)
        )
        branch = next(started, f"mz/{feature}")
        return GitWorktree(self._git, FeatureWorktree(run=run, feature=feature, branch=branch))


def children(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the directories in a folder, sorted, without links."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
