"""Find and remove leftovers of runs in a repository and below `.mz`."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested
from mz_events.catalog.feature import FeatureStarted
from mz_events.names import inbox_stream, run_stream
from mz_events.store import Store
from mz_projections.run import fold_run

from mz_engine.adapters.collect import size_of
from mz_engine.adapters.git_facts import Listing
from mz_engine.adapters.git_ignore import rules_of
from mz_engine.adapters.git_objects import Objects
from mz_engine.adapters.git_paths import shown
from mz_engine.adapters.git_process import Git
from mz_engine.adapters.git_remote import TARGETS
from mz_engine.adapters.git_repository import describe
from mz_engine.adapters.git_scan import Walker
from mz_engine.adapters.git_worktree import Worktree
from mz_engine.adapters.temporary import left_temporary, remove_temporary
from mz_engine.agents.guard import marked
from mz_engine.agents.spool import directory
from mz_engine.cleaning import STUCK, Leftover, Standing
from mz_engine.home import HOME, PULL_REQUESTS, SPOOL
from mz_engine.ports import Place, RepositoryUnusable

CAPTURES = "refs/mz/"
RESCUE = "rescue"
PLACES = ("worktrees", "worktree-notes")


def standings(store: Store, held: bool) -> dict[str, Standing]:
    """Return the state of every run in the log; `process_running`: a process works in this repository, so on its
    unfinished run."""
    found: dict[str, Standing] = {}
    for stream, _ in store.streams("run/"):
        run = stream.removeprefix("run/")
        if "/" in run:
            continue
        state = fold_run(store.read(run_stream(run)))
        told = any(True for _ in store.read(inbox_stream(run), state.inbox_version))
        if state.finished:
            found[run] = "told" if told else "ended"
        else:
            found[run] = "held" if held else "open"
    return found


class Leftovers:
    """Leftovers of one repository. The constructor raises RepositoryUnusable if git cannot be used there."""

    def __init__(self, root: pathlib.Path, store: Store, environment: Mapping[str, str] = os.environ) -> None:
        self._repository = describe(root, environment)
        self._root, self._store, self._environment = self._repository.root, store, environment
        self._named = root
        self._home = self._root / HOME
        self._git = Git(self._repository.directory, environment)
        self._objects = Objects(self._git, self._repository.object_format)

    # finding ----------------------------------------------------------------------------------------------------------
    def find(self, runs: Iterable[str]) -> tuple[Leftover, ...]:
        """Return all leftovers of these runs and of runs missing from the log, sorted by run."""
        refs = self._refs()
        leftovers = [*self._worktrees(refs), *self._captures(refs), *self._bodies()]
        for run in runs:
            leftovers += self._of_calls(run)
        return tuple(sorted(leftovers, key=lambda leftover: leftover.run))

    def _refs(self) -> dict[str, str]:
        lines = self._git.run("for-each-ref", "--format=%(refname) %(objectname)", CAPTURES).text.splitlines()
        return {name: oid for name, _, oid in (line.rpartition(" ") for line in lines)}

    def _worktrees(self, refs: Mapping[str, str]) -> Iterator[Leftover]:
        names = {
            (run.name, feature.name)
            for kind in PLACES
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
                size_bytes=size_of(worktree.path),
                unheld=self._unheld(worktree, refs.get(worktree.capture_ref)),
            )

    def _unheld(self, worktree: Worktree, capture: str | None) -> tuple[str, ...]:
        """Return files whose content is neither in the newest capture nor in the branch. Missing files are no loss, so
        an interrupted removal can continue."""
        if not worktree.path.is_dir() or worktree.path.is_symlink():
            return ()
        branch = worktree.look().branch
        newest = capture or branch
        held: list[Listing] = [self._objects.listing(commit) for commit in (capture, branch) if commit]
        tracked = held[0] if held else {}
        rules = self._objects.rules(newest) if newest else rules_of(())
        try:
            scan = Walker(
                top=worktree.top,
                tracked=tracked,
                rules=rules,
                keep=rules_of(()),
                copied=frozenset(),
                hasher=self._objects.hasher,
                known=worktree.notebook.read().known,
                modes=self._repository.file_modes,
            ).walk()
        except RepositoryUnusable as error:
            return (str(error),)
        oids = [{path: entry.oid for path, entry in listing.items()} for listing in held]
        lost = [path for path, entry in scan.files.items() if all(saved.get(path) != entry.oid for saved in oids)]
        return tuple(shown(path) for path in sorted([*lost, *(stray.path for stray in scan.strays)]))

    def _captures(self, refs: Mapping[str, str]) -> Iterator[Leftover]:
        for name, oid in refs.items():
            if name.startswith(TARGETS):
                continue
            run, _, feature = name.removeprefix(CAPTURES).partition("/")
            rescued = feature.startswith(f"{RESCUE}/")
            yield Leftover(
                kind="rescue" if rescued else "capture",
                run=run,
                feature=None if rescued else feature,
                name=name,
                value=oid,
                unheld=(name,) if rescued and not self._led_to(oid) else (),
            )

    def _led_to(self, oid: str) -> bool:
        """Return True if the commit is reachable from a branch, a tag or a remote's branch."""
        namespaces = ("refs/heads", "refs/tags", "refs/remotes")
        done = self._git.run("for-each-ref", "--count=1", f"--contains={oid}", *namespaces, check=False)
        return done.code == 0 and bool(done.out)

    def _of_calls(self, run: str) -> Iterator[Leftover]:
        """Yield spools of calls with a recorded outcome, and temporary directories of any call."""
        for stream, _ in self._store.streams(f"{run_stream(run)}/"):
            feature = stream.rpartition("/")[2]
            for recorded in self._store.read(stream):
                if isinstance(recorded.event, AgentRequested):
                    yield from self._temporary(run, feature, recorded.event.ref.key)
                elif isinstance(recorded.event, AgentReplied | AgentFailed | AgentLost):
                    yield from self._spool(run, feature, recorded.event.ref.key)

    def _spool(self, run: str, feature: str, key: str) -> Iterator[Leftover]:
        place = directory(self._home / SPOOL, key)
        if place.is_dir():
            name = str(place.relative_to(self._root))
            yield Leftover(kind="spool", run=run, feature=feature, name=name, size_bytes=size_of(place))

    def _temporary(self, run: str, feature: str, key: str) -> Iterator[Leftover]:
        """Yield temporary directories left by a killed `mz`. Names come from the log; a shared directory is never
        searched by pattern."""
        for place in left_temporary(self._named, key, self._environment):
            yield Leftover(
                kind="temporary", run=run, feature=feature, name=str(place), size_bytes=size_of(place),
                used=bool(marked(key)),
            )  # fmt: skip

    def _bodies(self) -> Iterator[Leftover]:
        for run in children(self._home / PULL_REQUESTS):
            for file in sorted(run.glob("*.md")):
                name = str(file.relative_to(self._root))
                size = file.lstat().st_size
                yield Leftover(kind="pull-request", run=run.name, feature=file.stem, name=name, size_bytes=size)

    # removing ---------------------------------------------------------------------------------------------------------
    def remove(self, leftovers: Iterable[Leftover]) -> tuple[Leftover, ...]:
        """Remove leftovers, worktrees before the captures with their content, so that an interruption loses nothing.
        Missing ones are ignored. Return all of them; those that could not be removed have `stays` set. Raises
        RepositoryUnusable, OSError; earlier removals remain."""
        leftovers = tuple(leftovers)
        removable = [leftover for leftover in leftovers if leftover.stays is None]
        for leftover in removable:
            if leftover.kind == "worktree":
                assert leftover.feature is not None
                self._worktree(leftover.run, leftover.feature).disconnect()
            elif leftover.kind == "spool":
                shutil.rmtree(self._root / leftover.name, ignore_errors=True)
            elif leftover.kind == "temporary":
                remove_temporary(pathlib.Path(leftover.name))
            elif leftover.kind == "pull-request":
                (self._root / leftover.name).unlink(missing_ok=True)
        refs = [leftover for leftover in removable if leftover.value]
        commands = "".join(f"delete {leftover.name} {leftover.value}\n" for leftover in refs)
        if commands:
            self._git.run("update-ref", "--stdin", stdin=commands.encode("utf-8", "surrogateescape"))
        for run in {leftover.run for leftover in removable}:
            for kind in (*PLACES, PULL_REQUESTS):
                with contextlib.suppress(OSError):
                    (self._home / kind / run / "new").rmdir()
                with contextlib.suppress(OSError):
                    (self._home / kind / run).rmdir()
        return tuple(replace(item, stays=STUCK) if self._is_stuck(item) else item for item in leftovers)

    def _is_stuck(self, each: Leftover) -> bool:
        """Return True if it still exists. (Joining the root with an absolute name gives that name.)"""
        return each.stays is None and not each.value and os.path.lexists(self._root / each.name)

    def _worktree(self, run: str, feature: str) -> Worktree:
        started = (
            recorded.event.branch
            for recorded in self._store.read(run_stream(f"{run}/{feature}"))
            if isinstance(recorded.event, FeatureStarted)
        )
        return Worktree(self._git, self._root, Place(run=run, feature=feature, branch=next(started, f"mz/{feature}")))


def children(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the directories in a folder, sorted, without links."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
