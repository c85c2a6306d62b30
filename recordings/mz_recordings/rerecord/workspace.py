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
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from filelock import FileLock, Timeout
from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import all_adapters
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.pins import Pins, decode_pins
from mz_engine.paths import MZ_FOLDER
from mz_engine.ports import CallResult, Capture, FeatureWorktree, RepositoryUnusable
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.call import AgentReplied, AgentRequested, ForbiddenChange, ReplyParsed
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.run import RunStarted
from mz_events.names import feature_stream, run_stream
from mz_events.store import BlobMissing, Blobs

from mz_recordings.cassette.files import load_without_traces, save
from mz_recordings.cassette.model import MANIFEST, Cassette, Provenance, RecordedCall
from mz_recordings.cassette.replace import restore_old
from mz_recordings.record.recorder import (
    LoggedCall,
    Outcome,
    RecordSources,
    SecretInRecording,
    feature_calls,
    record_call,
)
from mz_recordings.record.sources import record_sources
from mz_recordings.rerecord.ports import LIVE_CALLS_FILE
from mz_recordings.rerecord.result import weakest_provenance

RERECORD_DIRECTORY = "rerecord"
"""Below `.mz`."""
REPOSITORY, LOG, BLOBS = "repository", "log/mz.db", "log/blobs"
"""Paths of an attempt."""
PENDING_DIRECTORY = ".rerecorded"
"""In the library: new cassettes that are not accepted yet; ignored by git."""


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

    def unfinished_attempts(self) -> tuple[Path, ...]:
        """Return the unfinished attempts."""
        return tuple(sorted(self.folder.glob("run-*")))

    def discard_paid(self, features: Collection[str]) -> int:
        """Remove the paid replies of these features; return how many replies remain for the next attempt. If none
        remain, remove the directory."""
        paid = load_without_traces(self.paid) if (self.paid / MANIFEST).is_file() else None
        remaining = (
            tuple(call for call in paid.calls if call.recording.identity.feature not in features) if paid else ()
        )
        if paid is None or not remaining:
            self._clear()
        elif remaining != paid.calls:
            save(paid._replace(calls=remaining), self.paid, replace=True)
        return len(remaining)

    def _clear(self) -> None:
        """Remove paid replies first."""
        shutil.rmtree(self.paid, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def lock_workspace(project: Path, cassette: Path) -> Iterator[RerecordWorkspace]:
    """Lock and yield the working directory of this cassette. Raises MzError (MZ5002) if another process holds it."""
    home = project / MZ_FOLDER
    home.mkdir(exist_ok=True)
    (home / ".gitignore").write_text("*\n")
    path_digest = hashlib.sha256(str(cassette.resolve()).encode()).hexdigest()[:8]
    folder = home / RERECORD_DIRECTORY / f"{cassette.resolve().name}-{path_digest}"
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
    paid = load_without_traces(workspace.paid) if (workspace.paid / MANIFEST).is_file() else _no_paid_replies(old)
    for attempt in workspace.unfinished_attempts():
        replies = _paid_replies(attempt, old.manifest.fixture.run, environment, project)
        calls_by_identity = {call.recording.identity: call for call in replies.calls}
        if calls_by_identity:
            remaining = tuple(call for call in paid.calls if call.recording.identity not in calls_by_identity)
            paid = paid._replace(calls=(*remaining, *calls_by_identity.values()))
            save(paid, workspace.paid, replace=True)
        if not replies.has_unreadable:
            shutil.rmtree(attempt, ignore_errors=True)
    return paid


def _no_paid_replies(old: Cassette) -> Cassette:
    fixture = replace(old.manifest.fixture, bundle_sha256="")
    return Cassette(replace(old.manifest, traces={}, evidence={}, provenance="live", fixture=fixture), ())


class PaidReplies(NamedTuple):
    calls: tuple[RecordedCall, ...] = ()
    has_unreadable: bool = False
    """True if there is one more reply, whose tree cannot be read now."""


def _paid_replies(attempt: Path, run: str, environment: Mapping[str, str], project: Path) -> PaidReplies:
    """Return the replies of the real agent, without failed calls and without those that contain a secret."""
    if not (attempt / LIVE_CALLS_FILE).is_file() or not (attempt / LOG).is_file():
        return PaidReplies()
    live_keys = frozenset((attempt / LIVE_CALLS_FILE).read_text("utf-8").splitlines())
    with SqliteStore(attempt / LOG) as log:
        blobs = FileBlobs(attempt / BLOBS)
        sources = record_sources(attempt / REPOSITORY, environment, log, blobs, project)
        started = next(
            (recorded.event for recorded in log.read(run_stream(run)) if isinstance(recorded.event, RunStarted)), None
        )
        if started is None:
            return PaidReplies()
        pins = decode_pins(blobs.get(started.pins))
        features = tuple(stream.rpartition("/")[2] for stream, _ in log.streams(feature_stream(run, "")))
        logged_calls = (call for feature in features for call in feature_calls(log, run, feature))
        recorded_calls = [
            *_successful_calls(sources, run, pins, (call for call in logged_calls if call.request.ref.key in live_keys))
        ]
        salvaged, unreadable = salvage_calls(attempt / REPOSITORY, environment, sources, run, pins, features, live_keys)
        return PaidReplies((*recorded_calls, *_successful_calls(sources, run, pins, salvaged)), unreadable)


def _successful_calls(
    sources: RecordSources, run: str, pins: Pins, calls: Iterable[LoggedCall]
) -> Iterator[RecordedCall]:
    for call in calls:
        with suppress(SecretInRecording, BlobMissing, RepositoryUnusable):
            reply = _parse_reply(call, sources.blobs, all_adapters(pins.config.agents))
            if reply is not None and reply.problem is None:
                yield record_call(sources, run, pins, call._replace(reply=reply))


def _parse_reply(call: LoggedCall, blobs: Blobs, adapters_by_name: Mapping[str, Adapter]) -> ReplyParsed | None:
    """Return the parsed reply of a call, also if the attempt was stopped before parsing; None: there is no reply."""
    outcome = call.outcome
    if call.reply is not None or not isinstance(outcome, AgentReplied):
        return call.reply if isinstance(outcome, AgentReplied) else None
    result = CallResult(
        stdout=blobs.get(outcome.stdout), stderr=blobs.get(outcome.stderr), exit=outcome.exit,
        duration_ms=outcome.duration_ms, version=outcome.version, model=call.request.model,
        session_usage_before=call.session_usage_before,
    )  # fmt: skip
    reading = adapters_by_name[call.request.agent].parse_output(result)
    return ReplyParsed(
        ref=outcome.ref,
        parser=reading.parser,
        ending=reading.ending,
        session=reading.session,
        usage=reading.usage,
        reported_nanousd=reading.reported_nanousd,
        text=blobs.put(reading.text.encode()),
        problem=reading.problem,
        bad_lines=reading.undecodable_lines,
    )


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


# spools of interrupted attempts ---------------------------------------------------------------------------------------
REFS = msgspec.json.Decoder(dict[str, str])
NO_TERMINAL_EVENT = "no-terminal"


def salvage_calls(
    root: Path, environment: Mapping[str, str], sources: RecordSources, run: str, pins: Pins, features: Iterable[str],
    live_keys: Collection[str],
) -> tuple[tuple[LoggedCall, ...], bool]:  # fmt: skip
    """Return the calls with these keys that have a complete reply and no outcome, with their outcome; and True if there
    is another one whose tree cannot be read. Ends their processes. Raises OSError."""
    processes = AgentProcesses(root, environment, sources.secrets)
    adapters_by_name = all_adapters(pins.config.agents)
    calls: list[LoggedCall] = []
    has_unreadable = False
    for feature in features:
        for branch, request, at_us in _pending_requests(sources, run, feature):
            result = processes.salvage(request.ref.key) if request.ref.key in live_keys else None
            if result is None or not _is_complete(adapters_by_name[request.agent], result):
                continue
            worktree = FeatureWorktree(run=run, feature=feature, branch=branch)
            try:
                capture = _capture(GitWorkspace(root, pins.config.workspace, environment), worktree, request, sources)
            except (RepositoryUnusable, BlobMissing):
                has_unreadable = True
                continue
            reply = _reply(request, result, capture, sources, adapters_by_name[request.agent])
            calls.append(LoggedCall(feature, branch, request, at_us, reply, None))
    return tuple(calls), has_unreadable


def _pending_requests(sources: RecordSources, run: str, feature: str) -> Iterator[tuple[str, AgentRequested, int]]:
    """Yield branch, request and its time of every call without an outcome."""
    events = list(sources.log.read(feature_stream(run, feature)))
    branch = next((recorded.event.branch for recorded in events if isinstance(recorded.event, FeatureStarted)), "")
    settled = {recorded.event.ref.key for recorded in events if isinstance(recorded.event, Outcome)}
    for recorded in events:
        if isinstance(recorded.event, AgentRequested) and recorded.event.ref.key not in settled:
            yield branch, recorded.event, recorded.observed_at_us


def _is_complete(adapter: Adapter, result: CallResult) -> bool:
    return result.problem is None and adapter.parse_output(result).ending != NO_TERMINAL_EVENT


def _capture(
    workspace: GitWorkspace, worktree: FeatureWorktree, request: AgentRequested, sources: RecordSources
) -> Capture:
    """Capture the tree; a commit by the agent is a forbidden change."""
    capture = workspace.capture(worktree, request.tree)
    branch, before = f"refs/heads/{worktree.branch}", REFS.decode(sources.blobs.get(request.refs))
    if before.get(branch) == workspace.snapshot().get(branch):
        return capture
    return replace(
        capture, forbidden_changes=(*capture.forbidden_changes, ForbiddenChange(kind="commit", path=worktree.branch))
    )


def _reply(
    request: AgentRequested, result: CallResult, capture: Capture, sources: RecordSources, adapter: Adapter
) -> AgentReplied:
    return AgentReplied(
        ref=request.ref,
        stdout=sources.blobs.put(result.stdout),
        stderr=sources.blobs.put(result.stderr),
        exit=result.exit,
        duration_ms=result.duration_ms,
        tree=capture.tree,
        forbidden_changes=capture.forbidden_changes,
        salvaged=True,
        version=adapter.parse_output(result).version,
    )
