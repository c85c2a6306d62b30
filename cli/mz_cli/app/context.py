"""Access to the project's log for reading commands: find the repository, select runs and features, load texts."""

from __future__ import annotations

import fcntl
import heapq
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from mz_engine.errors.diagnostics import MzError
from mz_engine.paths import BLOBS_FOLDER, LOCK_FILE, LOG_FILE, MZ_FOLDER, PRIVATE_FOLDER, READ_MODELS_FILE
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.run import CommandsChanged, ItemSkipped
from mz_events.names import Digest, StreamId, erasure_stream, feature_stream, inbox_stream, run_stream
from mz_events.store import Append, BlobMissing, BlobWasErased, Recorded
from mz_projections.read_models.model import R, ReadModel
from mz_projections.views.messages import InboxMessage, inbox_messages
from mz_projections.views.model import FeatureView, RunView
from mz_projections.views.run import run_view

from mz_cli.app.help import did_you_mean

if TYPE_CHECKING:
    from mz_engine.model.pins import Pins

TextLoader = Callable[[Digest | None], str]
"""Blob digest -> text; empty for None and for a missing blob."""
LOCKS = Path("/proc/locks")
RUNS_NAMED_MAX = 5
FEATURES_NAMED_MAX = 20


def find_root(start: Path) -> Path:
    """Return the main working tree of the repository that contains `start`. Raises MzError (MZ1003)."""
    for folder in (start, *start.parents):
        if (folder / MZ_FOLDER / LOG_FILE).is_file():
            return folder
        marker = folder / ".git"
        if os.path.lexists(marker / "HEAD"):  # Without it, git does not accept the folder as a repository.
            return folder
        if marker.is_file():
            return main_worktree(marker) or folder
    hint = "change into the repository, or create one with `git init`"
    raise MzError("MZ1003", f"{start} is not in a git repository", hint=hint)


def main_worktree(marker: Path) -> Path | None:
    """Return the main working tree that the `.git` file of a linked one names; None for a submodule and the like."""
    target = marker.read_text(encoding="utf-8", errors="replace").removeprefix("gitdir:").strip()
    git = (marker.parent / target).resolve()
    if git.parents[1].name == PRIVATE_FOLDER and git.parents[2].name == MZ_FOLDER:
        return git.parents[3]
    return git.parents[2] if git.parent.name == "worktrees" and git.parents[1].name == ".git" else None


class RunNames(ABC):
    """The runs that a selector can name, and their features."""

    listing = "`mz runs` lists the runs"
    """Hint on how to see them."""

    @abstractmethod
    def runs(self) -> tuple[str, ...]:
        """Return the ids of all runs, the newest first."""

    @abstractmethod
    def features(self, run: str, skipped: bool = True) -> tuple[str, ...]:
        """Return the ids of the run's features, in the order of the backlog; of the `skipped` ones only if wanted."""

    def run_of_branch(self, name: str) -> str | None:
        """Return the newest run with this integration branch."""
        return None

    def find_run(self, prefix: str | None) -> str:
        """Return the run with this id, unique prefix or integration branch; None means the newest. Raises MzError
        (MZ5001)."""
        runs = self.runs()
        if not runs:
            raise no_runs_error()
        prefix = prefix.removeprefix("run/") if prefix else prefix
        if prefix is None or prefix in runs:
            return prefix or runs[0]
        matching = [run for run in runs if run.startswith(prefix)]
        if len(matching) == 1 and prefix:
            return matching[0]
        if not matching and (run := self.run_of_branch(prefix)) is not None:
            return run
        newest = ", ".join(runs[:RUNS_NAMED_MAX]) + (", ..." if len(runs) > RUNS_NAMED_MAX else "")
        problem = f"{len(matching)} run ids begin with {prefix!r}" if matching else f"there is no run {prefix!r}"
        raise MzError("MZ5001", problem, hint=f"runs, the newest first: {newest}")

    def check_feature(self, run: str, feature: str) -> None:
        """Raise MzError (MZ4010) if the run has no such feature."""
        features = self.features(run)
        if feature not in features:
            names = ", ".join(features[:FEATURES_NAMED_MAX]) + (", ..." if len(features) > FEATURES_NAMED_MAX else "")
            message = f"run {run} has no feature {feature!r}{did_you_mean(feature, features)}"
            raise MzError("MZ4010", message, hint=f"it has: {names or 'none'}")


class ProjectLog(RunNames):
    """The log of one repository, open for reading. `folder`: its directory, if not `.mz`."""

    def __init__(self, root: Path, store: SqliteStore, folder: Path | None = None) -> None:
        self.root, self.store = root, store
        self.blobs = FileBlobs((folder or root / MZ_FOLDER) / BLOBS_FOLDER)

    def load_text(self, digest: Digest | None) -> str:
        """Return the text of a blob, or why it was erased; empty for None and for a missing blob."""
        if digest is None:
            return ""
        try:
            return self.blobs.get(digest).decode("utf-8", "replace")
        except BlobWasErased as error:
            return f"erased: {error.reason}"
        except BlobMissing:
            return ""

    def setting_changes(self, event: Event) -> tuple[str, ...]:
        """Return what `commands.changed` corrected, as lines of a diff; empty for other events, and those before it."""
        return tuple(self.load_text(event.changes).splitlines()) if isinstance(event, CommandsChanged) else ()

    def load_pins(self, digest: Digest | None) -> Pins | None:
        """Return the pins of a run; None if they are missing, or unreadable for this version."""
        from mz_engine.model.pins import decode_pins  # Commands that decode no pins start faster without it.

        with suppress(msgspec.DecodeError):
            return decode_pins(self.load_text(digest).encode())
        return None

    def rows(self, model: ReadModel[R]) -> tuple[R, ...]:
        """Return all rows of a read model, brought up to date."""
        from mz_projections.read_models.store import ReadModelStore  # Commands that need none start faster without it.

        with ReadModelStore(self.root / MZ_FOLDER / READ_MODELS_FILE, self.store, (model,)) as views:
            views.refresh()
            return views.rows(model)

    def append(self, event: Event, *streams: StreamId) -> tuple[Recorded[Event], ...]:
        """Append an event to each of the streams, at any version. Raises StoreUnusable."""
        with SqliteStore(self.root / MZ_FOLDER / LOG_FILE) as store:
            return store.append([Append(stream, None, (event,)) for stream in streams], time.time_ns() // 1000)

    def runs(self) -> tuple[str, ...]:
        names = [name for name in self.store.streams_by_age("run/") if name.count("/") == 1]
        return tuple(name.removeprefix("run/") for name in reversed(names))

    def run_of_branch(self, name: str) -> str | None:
        for run in self.runs():
            first = next(iter(self.store.read(run_stream(run))), None)
            if first is not None and getattr(first.event, "integration", "") == name:
                return run
        return None

    def streams(self, run: str) -> tuple[StreamId, ...]:
        """Return the run's own stream, that of erasures, and those of its features."""
        return (
            run_stream(run),
            erasure_stream(run),
            *(name for name, _ in self.store.streams(feature_stream(run, ""))),
        )

    def events(self, run: str) -> Iterator[Recorded[Event]]:
        """Yield all events of the run, in the order of the log."""
        return heapq.merge(
            *(self.store.read(stream) for stream in self.streams(run)), key=lambda recorded: recorded.position
        )

    def view(self, run: str) -> RunView:
        return run_view(run, self.events(run))

    def messages(self, run: str) -> tuple[InboxMessage, ...]:
        """Return all messages in the run's inbox with their outcomes."""
        return inbox_messages(self.store.read(inbox_stream(run)), self.store.read(run_stream(run)))

    def features(self, run: str, skipped: bool = True) -> tuple[str, ...]:
        events = (recorded.event for recorded in self.store.read(run_stream(run)))
        features = (getattr(event, "feature", None) for event in events if skipped or type(event) is not ItemSkipped)
        return tuple(dict.fromkeys(feature for feature in features if feature is not None))

    def find_feature(self, run: str, feature: str) -> FeatureView:
        """Return the feature of the run. Raises MzError (MZ4010)."""
        self.check_feature(run, feature)
        return self.view(run).find_feature(feature) or FeatureView(feature=feature)


@contextmanager
def open_log(start: Path | None = None) -> Iterator[ProjectLog]:
    """Open the log of the repository that contains `start` (default: the current directory). Raises MzError (MZ1003,
    MZ5001)."""
    root = find_root((start or Path.cwd()).absolute())
    log = root / MZ_FOLDER / LOG_FILE
    if not log.exists():
        raise no_runs_error()
    with SqliteStore(log, read_only=True) as store:
        yield ProjectLog(root, store)


def no_runs_error() -> MzError:
    return MzError(
        "MZ5001", "nothing has run in this repository", hint="`mz run` starts the first run; `mz demo` shows one"
    )


def is_process_running(root: Path) -> bool:
    """Return True if a process drives a run of this repository now, and so reads its inbox.

    Reads the kernel's list of locks if there is one: taking the lock, even briefly, could reject a starting run."""
    path = root / MZ_FOLDER / LOCK_FILE
    try:
        inode = path.stat().st_ino
        locks = LOCKS.read_text(encoding="ascii")
    except OSError:
        return path.exists() and _is_locked(path)
    return any(f":{inode} " in line and "FLOCK" in line for line in locks.splitlines())


def _is_locked(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
