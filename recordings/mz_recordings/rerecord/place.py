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

from filelock import FileLock, Timeout
from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import adapters
from mz_engine.errors import MzError
from mz_engine.home import HOME
from mz_engine.pins import Pins, decode_pins
from mz_engine.ports import CallResult, RepositoryUnusable
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite import SqliteStore
from mz_events.catalog.call import AgentReplied, ReplyRead
from mz_events.catalog.run import RunStarted
from mz_events.names import feature_stream, run_stream
from mz_events.store import BlobMissing, Blobs

from mz_recordings.cassette import MANIFEST, Cassette, Provenance, Taken
from mz_recordings.files.library import load_part, save
from mz_recordings.files.swap import recover
from mz_recordings.recording.record import Call, SecretInRecording, Sources, calls_of, take
from mz_recordings.recording.sources import sources_of
from mz_recordings.rerecord.keep import weakest
from mz_recordings.rerecord.salvage import salvage
from mz_recordings.rerecord.stage import ASKED

PLACE = "rerecord"
"""Below `.mz`."""
REPOSITORY, LOG, BLOBS = "repository", "log/mz.db", "log/blobs"
"""Paths of an attempt."""
WAITING = ".rerecorded"
"""In the library: new cassettes that are not accepted yet; ignored by git."""


class Workplace(NamedTuple):
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

    def left(self) -> tuple[Path, ...]:
        """Return the unfinished attempts."""
        return tuple(sorted(self.folder.glob("run-*")))

    def use_up(self, features: Collection[str]) -> int:
        """Remove the paid replies of these features; return how many replies remain for the next attempt. If none
        remain, remove the directory."""
        paid = load_part(self.paid) if (self.paid / MANIFEST).is_file() else None
        left = tuple(one for one in paid.taken if one.recording.identity.feature not in features) if paid else ()
        if paid is None or not left:
            self._clear()
        elif left != paid.taken:
            save(paid._replace(taken=left), self.paid, replace=True)
        return len(left)

    def _clear(self) -> None:
        """Remove paid replies first."""
        shutil.rmtree(self.paid, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def workplace(project: Path, cassette: Path) -> Iterator[Workplace]:
    """Lock and yield the working directory of this cassette. Raises MzError (MZ5002) if another process holds it."""
    home = project / HOME
    home.mkdir(exist_ok=True)
    (home / ".gitignore").write_text("*\n")
    mark = hashlib.sha256(str(cassette.resolve()).encode()).hexdigest()[:8]
    folder = home / PLACE / f"{cassette.resolve().name}-{mark}"
    folder.parent.mkdir(exist_ok=True)
    lock = FileLock(folder.with_suffix(".lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        message = f"another mz process is re-recording {cassette}"
        raise MzError("MZ5002", message, hint="wait until it ends, or stop it with Ctrl-C") from None
    try:
        yield Workplace(folder, secrets.token_hex(4))
    finally:
        lock.release()


# what was paid --------------------------------------------------------------------------------------------------------
def begin_attempt(place: Workplace, paid: Cassette, provenance: Provenance) -> Cassette:
    """Prepare an attempt whose replies will have this provenance; return the paid replies as stored."""
    place.run.mkdir(parents=True)
    worth = weakest(*([paid.manifest.provenance] if paid.taken else []), provenance)
    paid = paid._replace(manifest=replace(paid.manifest, provenance=worth))
    save(paid, place.paid, replace=True)
    return paid


def gather(place: Workplace, old: Cassette, outside: Mapping[str, str], project: Path) -> Cassette:
    """Return all unused paid replies, with those of earlier attempts. Remove these attempts, except for one with a
    reply whose tree cannot be read now. Raises OSError on disk errors; nothing is lost."""
    recover(place.folder)
    paid = load_part(place.paid) if (place.paid / MANIFEST).is_file() else _nothing(old)
    for attempt in place.left():
        answers = _answers(attempt, old.manifest.world.run, outside, project)
        found = {one.recording.identity: one for one in answers.taken}
        if found:
            others = tuple(one for one in paid.taken if one.recording.identity not in found)
            paid = paid._replace(taken=(*others, *found.values()))
            save(paid, place.paid, replace=True)
        if not answers.unreadable:
            shutil.rmtree(attempt, ignore_errors=True)
    return paid


def _nothing(old: Cassette) -> Cassette:
    world = replace(old.manifest.world, bundle_sha256="")
    return Cassette(replace(old.manifest, stories={}, evidence={}, provenance="live", world=world), ())


class Answers(NamedTuple):
    taken: tuple[Taken, ...] = ()
    unreadable: bool = False
    """True if there is one more reply, whose tree cannot be read now."""


def _answers(attempt: Path, run: str, outside: Mapping[str, str], project: Path) -> Answers:
    """Return the replies of the real agent, without failed calls and without those that contain a secret."""
    if not (attempt / ASKED).is_file() or not (attempt / LOG).is_file():
        return Answers()
    asked = frozenset((attempt / ASKED).read_text("utf-8").splitlines())
    with SqliteStore(attempt / LOG) as log:
        blobs = FileBlobs(attempt / BLOBS)
        sources = sources_of(attempt / REPOSITORY, outside, log, blobs, project)
        started = next((one.event for one in log.read(run_stream(run)) if isinstance(one.event, RunStarted)), None)
        if started is None:
            return Answers()
        pins = decode_pins(blobs.get(started.pins))
        features = tuple(stream.rpartition("/")[2] for stream, _ in log.streams(feature_stream(run, "")))
        noted = (call for feature in features for call in calls_of(log, run, feature))
        taken = [*_worth(sources, run, pins, (call for call in noted if call.request.ref.key in asked))]
        salvaged, unreadable = salvage(attempt / REPOSITORY, outside, sources, run, pins, features, asked)
        return Answers((*taken, *_worth(sources, run, pins, salvaged)), unreadable)


def _worth(sources: Sources, run: str, pins: Pins, calls: Iterable[Call]) -> Iterator[Taken]:
    for call in calls:
        with suppress(SecretInRecording, BlobMissing, RepositoryUnusable):
            read = _read(call, sources.blobs, adapters(pins.config.agents))
            if read is not None and read.problem is None:
                yield take(sources, run, pins, call._replace(read=read))


def _read(call: Call, blobs: Blobs, known: Mapping[str, Adapter]) -> ReplyRead | None:
    """Return the parsed reply of a call, also if the attempt was stopped before parsing; None: there is no reply."""
    outcome = call.outcome
    if call.read is not None or not isinstance(outcome, AgentReplied):
        return call.read if isinstance(outcome, AgentReplied) else None
    result = CallResult(
        stdout=blobs.get(outcome.stdout), stderr=blobs.get(outcome.stderr), exit=outcome.exit,
        duration_ms=outcome.duration_ms, version=outcome.version, model=call.request.model,
        earlier=call.earlier,
    )  # fmt: skip
    reading = known[call.request.agent].parse_output(result)
    return ReplyRead(
        ref=outcome.ref,
        parser=reading.parser,
        terminal=reading.terminal,
        session=reading.session,
        usage=reading.usage,
        reported_nanousd=reading.reported_nanousd,
        text=blobs.put(reading.text.encode()),
        problem=reading.problem,
        bad_lines=reading.bad_lines,
    )


# what waits to be accepted --------------------------------------------------------------------------------------------
def waiting_for(cassette: Path) -> Path:
    """Return where the new cassette is until it is accepted; it need not exist."""
    place = cassette.resolve()
    return place.parent / WAITING / place.name


def leave(new: Cassette, cassette: Path) -> Path:
    """Write a new cassette where it waits to be accepted; return the path."""
    place = waiting_for(cassette)
    place.parent.mkdir(exist_ok=True)
    (place.parent / ".gitignore").write_text("*\n")
    save(new, place, replace=True)
    return place


def is_waiting(cassette: Path) -> bool:
    waiting = waiting_for(cassette)
    recover(waiting.parent)
    return (waiting / MANIFEST).is_file()


def drop_waiting(cassette: Path) -> None:
    """Remove the new cassette after it was accepted."""
    place = waiting_for(cassette)
    shutil.rmtree(place, ignore_errors=True)
    with suppress(OSError):
        if {one.name for one in place.parent.iterdir()} == {".gitignore"}:
            shutil.rmtree(place.parent)
