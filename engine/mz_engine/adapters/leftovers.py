"""Adapter: what runs left in a repository and below `.mz`: finds it, and removes what may go."""

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
    """Every run of the log; `held`: a process works in this repository, so on the run that is not finished."""
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
    """Of one repository. Raises RepositoryUnusable from the start when git cannot be used there."""

    def __init__(self, root: pathlib.Path, store: Store, environment: Mapping[str, str] = os.environ) -> None:
        self._repository = describe(root, environment)
        self._root, self._store, self._environment = self._repository.root, store, environment
        self._named = root
        self._home = self._root / HOME
        self._git = Git(self._repository.directory, environment)
        self._objects = Objects(self._git, self._repository.object_format)

    # finding ----------------------------------------------------------------------------------------------------------
    def find(self, runs: Iterable[str]) -> tuple[Leftover, ...]:
        """Everything there is of these runs, and of runs that the log does not know, run by run."""
        refs = self._refs()
        known = tuple(runs)
        found = [*self._worktrees(refs), *self._captures(refs), *self._bodies()]
        for run in known:
            found += self._of_calls(run)
        return tuple(sorted(found, key=lambda each: each.run))

    def _refs(self) -> dict[str, str]:
        lines = self._git.run("for-each-ref", "--format=%(refname) %(objectname)", CAPTURES).text.splitlines()
        return {name: oid for name, _, oid in (line.rpartition(" ") for line in lines)}

    def _worktrees(self, refs: Mapping[str, str]) -> Iterator[Leftover]:
        places = {
            (run.name, feature.name)
            for kind in PLACES
            for run in children(self._home / kind)
            for feature in children(run)
        }
        for run, feature in sorted(places):
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
        """Files whose content is neither in the newest capture nor in the branch. What is missing is no loss, so that a
        removal that was killed half-way can go on."""
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
        lost = [path for path, entry in scan.files.items() if all(each.get(path) != entry.oid for each in oids)]
        return tuple(shown(path) for path in sorted([*lost, *(stray.path for stray in scan.strays)]))

    def _captures(self, refs: Mapping[str, str]) -> Iterator[Leftover]:
        for name, oid in refs.items():
            if name.startswith(TARGETS):
                continue
            run, _, rest = name.removeprefix(CAPTURES).partition("/")
            rescued = rest.startswith(f"{RESCUE}/")
            yield Leftover(
                kind="rescue" if rescued else "capture",
                run=run,
                feature=None if rescued else rest,
                name=name,
                value=oid,
                unheld=(name,) if rescued and not self._led_to(oid) else (),
            )

    def _led_to(self, oid: str) -> bool:
        """Whether a branch, a tag or a remote's branch leads to the commit."""
        places = ("refs/heads", "refs/tags", "refs/remotes")
        done = self._git.run("for-each-ref", "--count=1", f"--contains={oid}", *places, check=False)
        return done.code == 0 and bool(done.out)

    def _of_calls(self, run: str) -> Iterator[Leftover]:
        """Spools of calls whose outcome is recorded, and temporary directories of any."""
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
        """What stays where `mz` itself was killed. The log names the calls: nothing is looked for by its looks in a
        directory that is everybody's."""
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
        """Worktrees before the captures that hold what was in them: killed half-way, nothing is without either. What is
        gone already is fine. Answers with all of them: what is still there after all stays. Raises
        RepositoryUnusable, OSError; what went until then is gone."""
        every = tuple(leftovers)
        going = [each for each in every if each.stays is None]
        for each in going:
            if each.kind == "worktree":
                assert each.feature is not None
                self._worktree(each.run, each.feature).disconnect()
            elif each.kind == "spool":
                shutil.rmtree(self._root / each.name, ignore_errors=True)
            elif each.kind == "temporary":
                remove_temporary(pathlib.Path(each.name))
            elif each.kind == "pull-request":
                (self._root / each.name).unlink(missing_ok=True)
        refs = [each for each in going if each.value]
        commands = "".join(f"delete {each.name} {each.value}\n" for each in refs)
        if commands:
            self._git.run("update-ref", "--stdin", stdin=commands.encode("utf-8", "surrogateescape"))
        for run in {each.run for each in going}:
            for kind in (*PLACES, PULL_REQUESTS):
                with contextlib.suppress(OSError):
                    (self._home / kind / run / "new").rmdir()
                with contextlib.suppress(OSError):
                    (self._home / kind / run).rmdir()
        return tuple(replace(each, stays=STUCK) if self._is_stuck(each) else each for each in every)

    def _is_stuck(self, each: Leftover) -> bool:
        """An absolute name stays what it is."""
        return each.stays is None and not each.value and os.path.lexists(self._root / each.name)

    def _worktree(self, run: str, feature: str) -> Worktree:
        started = (
            recorded.event.branch
            for recorded in self._store.read(run_stream(f"{run}/{feature}"))
            if isinstance(recorded.event, FeatureStarted)
        )
        return Worktree(self._git, self._root, Place(run=run, feature=feature, branch=next(started, f"mz/{feature}")))


def children(folder: pathlib.Path) -> list[pathlib.Path]:
    """The directories in it, sorted; links are none."""
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
