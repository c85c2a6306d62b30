"""Working directory of a re-recording, and the paid replies of unfinished attempts.

    .mz/rerecord/<cassette>/paid/    cassette of paid replies
                            run-.../ the current attempt: repository, log, spools

The next attempt serves paid replies if arguments, prompt and tree are equal. A reply that an interrupted attempt did
not log is read from its spool. Each attempt has a new directory: agents identify their sessions by it, and a call has
the same session whenever it is made. Paid replies of a feature are removed when its new recordings are safe, or when it
stopped in a way that makes them worthless. A new cassette that is not accepted yet is in the library, below
`.rerecorded/`.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, get_args

from filelock import FileLock, Timeout
from msgspec.structs import replace
from mz_engine.decide.actions import ParseReply, ReconcileIntent
from mz_engine.decide.feature import decide_feature
from mz_engine.effects.steps import Step
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.pins import decode_pins
from mz_engine.paths import MZ_FOLDER
from mz_engine.ports import Interrupted, RepositoryUnusable
from mz_engine.run.coordinator import Coordinator
from mz_engine.run.feature_loop import FeatureLoop
from mz_engine.run.ports import SystemPorts
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.call import AgentReplied, AgentRequested
from mz_events.catalog.feature import HoldReleased
from mz_events.names import FeatureId, run_stream
from mz_events.store import BlobMissing
from mz_projections.feature.state import Held, run_version_of
from mz_projections.run.fold import fold_run

from mz_recordings.cassette.files import load_without_traces, save
from mz_recordings.cassette.model import MANIFEST, Cassette, Provenance, RecordedCall
from mz_recordings.cassette.safe_files import restore_old
from mz_recordings.record.recorder import LoggedCall, RecordSources, SecretInRecording, feature_calls, record_call
from mz_recordings.rerecord.driver import LIVE_CALLS_FILE

RERECORD_DIRECTORY = "rerecord"
"""Below `.mz`."""
REPOSITORY, LOG, BLOBS = "repository", "log/mz.db", "log/blobs"
"""Paths of an attempt."""
PENDING_DIRECTORY = ".rerecorded"
"""In the library: new cassettes that are not accepted yet; ignored by git."""


PROVENANCES_BEST_FIRST: tuple[Provenance, ...] = get_args(Provenance)
"""Best provenance first."""


def weakest_provenance(*provenances: Provenance) -> Provenance:
    return max(provenances, key=PROVENANCES_BEST_FIRST.index)


class RerecordWorkspace(NamedTuple):
    """Working directory of one cassette, locked by this process."""

    folder: Path
    attempt: str
    """Unique id of the attempt."""

    @property
    def paid(self) -> Path:
        return self.folder / "paid"

    @property
    def run(self) -> Path:
        return self.folder / f"run-{self.attempt}"

    def load_paid(self) -> Cassette | None:
        return load_without_traces(self.paid) if (self.paid / MANIFEST).is_file() else None

    def discard_paid(self, features: Collection[str]) -> int:
        """Remove the paid replies of these features; return how many replies remain for the next attempt. If none
        remain, remove the directory."""
        paid = self.load_paid()
        remaining = tuple(call for call in paid.calls if call.identity.feature not in features) if paid else ()
        if paid is None or not remaining:
            for folder in (self.paid, self.folder):
                shutil.rmtree(folder, ignore_errors=True)
        elif remaining != paid.calls:
            save(paid._replace(calls=remaining), self.paid, replace=True)
        return len(remaining)


@contextmanager
def lock_workspace(project: Path, cassette: Path) -> Iterator[RerecordWorkspace]:
    """Lock and yield the working directory of this cassette. Raises MzError (MZ5002) if another process holds it."""
    mz_folder = project / MZ_FOLDER
    mz_folder.mkdir(exist_ok=True)
    (mz_folder / ".gitignore").write_text("*\n")
    path_digest = hashlib.sha256(str(cassette.resolve()).encode()).hexdigest()[:8]
    folder = mz_folder / RERECORD_DIRECTORY / f"{cassette.resolve().name}-{path_digest}"
    folder.parent.mkdir(exist_ok=True)
    lock = FileLock(folder.with_suffix(".lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        message = f"another mz process is re-recording {cassette}"
        raise MzError("MZ5002", message, hint="wait until it ends, or stop it with Ctrl-C") from None
    try:
        yield RerecordWorkspace(folder, secrets.token_hex(4))
    finally:
        lock.release()


# what was paid --------------------------------------------------------------------------------------------------------
def begin_attempt(workspace: RerecordWorkspace, paid: Cassette, provenance: Provenance) -> Cassette:
    """Prepare an attempt whose replies will have this provenance; return the paid replies as stored."""
    workspace.run.mkdir(parents=True)
    weakest_claim = weakest_provenance(*([paid.manifest.provenance] if paid.calls else []), provenance)
    paid = paid._replace(manifest=replace(paid.manifest, provenance=weakest_claim))
    save(paid, workspace.paid, replace=True)
    return paid


def collect_paid(
    workspace: RerecordWorkspace, old: Cassette, environment: Mapping[str, str], project: Path
) -> Cassette:
    """Return all unused paid replies, with those of earlier attempts. Remove these attempts, except for one with a
    reply whose tree cannot be read now. Raises OSError on disk errors; nothing is lost."""
    restore_old(workspace.folder)
    fixture = replace(old.manifest.fixture, bundle_sha256="")
    no_replies = replace(old.manifest, traces={}, evidence={}, provenance="live", fixture=fixture)
    paid = workspace.load_paid() or Cassette(no_replies, ())
    for attempt in sorted(workspace.folder.glob("run-*")):
        replies, has_unreadable = _paid_replies(attempt, old.manifest.fixture.run, environment, project)
        if replies:
            calls = paid.by_identity() | {call.identity: call for call in replies}
            paid = paid._replace(calls=tuple(calls.values()))
            save(paid, workspace.paid, replace=True)
        if not has_unreadable:
            shutil.rmtree(attempt, ignore_errors=True)
    return paid


class PendingReply(FeatureLoop):
    """Records how a pending agent call ended, and its reply, as at a resume; then stops. A call stays pending, to be
    looked at later, if the repository cannot be read now."""

    _has_released = False

    def step(self) -> bool:
        if self._steps is None:
            suspended = self.state.suspended if isinstance(self.state, Held) else self.state
            match decide_feature(suspended, self.pins):
                case ParseReply() | ReconcileIntent(intent=AgentRequested()):
                    if isinstance(self.state, Held):
                        if self._has_released:
                            return False
                        self._has_released = True
                        self._append((HoldReleased(run_version=run_version_of(self.state), hold=self.state.hold),))
                case _:
                    return False
        return super().step()

    def _execute(self, step: Step) -> None:
        super()._execute(step)
        if isinstance(self._error, RepositoryUnusable):
            self._error = Interrupted("the repository cannot be read now")


def _paid_replies(
    attempt: Path, run: str, environment: Mapping[str, str], project: Path
) -> tuple[list[RecordedCall], bool]:
    """Return the replies of the real agent, without failed calls and those that contain a secret; True: there is
    another one, whose tree cannot be read now."""
    if not (attempt / LIVE_CALLS_FILE).is_file() or not (attempt / LOG).is_file():
        return [], False
    live_keys = frozenset((attempt / LIVE_CALLS_FILE).read_text("utf-8").splitlines())
    recorded_calls, ended_calls = list[RecordedCall](), list[LoggedCall]()
    with SqliteStore(attempt / LOG) as log:
        blobs, root = FileBlobs(attempt / BLOBS), attempt / REPOSITORY
        started = fold_run(log.read(run_stream(run))).started
        if started is None:
            return [], False
        pins = decode_pins(blobs.get(started.pins))
        sources = RecordSources(root, environment, log, blobs, project)
        ports = SystemPorts(root, pins.config, log, blobs, environment)
        coordinator = Coordinator(run, pins, log, ports.clock, lambda recorded: None)
        coordinator.resume()
        for feature in coordinator.state.tracks:
            loop = PendingReply(run, FeatureId(feature), pins, log, ports, coordinator, lambda recorded: None)
            with suppress(BlobMissing):
                while loop.step():
                    pass
            ended_calls += feature_calls(log, run, feature)
        has_unreadable = not live_keys <= {call.request.ref.key for call in ended_calls}
        for call in ended_calls:
            is_paid = call.request.ref.key in live_keys and isinstance(call.outcome, AgentReplied)
            if is_paid and call.reply is not None and call.reply.problem is None:
                try:
                    recorded_calls.append(record_call(sources, run, pins, call))
                except SecretInRecording:
                    continue
                except (BlobMissing, RepositoryUnusable):
                    has_unreadable = True
    return recorded_calls, has_unreadable


# what waits to be accepted --------------------------------------------------------------------------------------------
def pending_path(cassette: Path) -> Path:
    """Return where the new cassette is until it is accepted; it need not exist."""
    path = cassette.resolve()
    return path.parent / PENDING_DIRECTORY / path.name


def write_pending(new: Cassette, cassette: Path) -> Path:
    """Write a new cassette where it waits to be accepted; return the path."""
    path = pending_path(cassette)
    path.parent.mkdir(exist_ok=True)
    (path.parent / ".gitignore").write_text("*\n")
    save(new, path, replace=True)
    return path


def is_pending(cassette: Path) -> bool:
    path = pending_path(cassette)
    restore_old(path.parent)
    return (path / MANIFEST).is_file()


def remove_pending(cassette: Path) -> None:
    """Remove the new cassette after it was accepted."""
    path = pending_path(cassette)
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        if {entry.name for entry in path.parent.iterdir()} == {".gitignore"}:
            shutil.rmtree(path.parent)
