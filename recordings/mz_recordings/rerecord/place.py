"""Adapter: where recordings are made again, and what an attempt leaves that did not come to its end.

    .mz/rerecord/<cassette>/paid/    a cassette of answers that were paid
                            run-.../ the attempt that is under way: repository, log, spools

The next attempt serves what was paid where arguments, prompt and tree are the same; an answer that the attempt did not
live to note is taken from its spool. Each attempt has a directory that
no other had: agents know their sessions by it, and a call has the same session whenever it is made. What was
paid for a feature goes when its new recordings are safe, or when it came to a rest with which nothing is worth keeping.
A new cassette that nobody has accepted yet lies in the library, below `.rerecorded/`.
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
"""Of an attempt."""
WAITING = ".rerecorded"
"""In the library: new cassettes that wait to be accepted; ignored by git."""


class Workplace(NamedTuple):
    """Of one cassette, held by this process."""

    folder: Path
    attempt: str
    """Never used before."""

    @property
    def paid(self) -> Path:
        return self.folder / "paid"

    @property
    def run(self) -> Path:
        return self.folder / f"run-{self.attempt}"

    def left(self) -> tuple[Path, ...]:
        """Attempts that did not come to their end."""
        return tuple(sorted(self.folder.glob("run-*")))

    def use_up(self, features: Collection[str]) -> int:
        """What was paid for these features is needed no more; returns how many answers stay for the next attempt.
        Without any, nothing of all this stays."""
        paid = load_part(self.paid) if (self.paid / MANIFEST).is_file() else None
        left = tuple(one for one in paid.taken if one.recording.identity.feature not in features) if paid else ()
        if paid is None or not left:
            self._clear()
        elif left != paid.taken:
            save(paid._replace(taken=left), self.paid, replace=True)
        return len(left)

    def _clear(self) -> None:
        """What was paid goes first."""
        shutil.rmtree(self.paid, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def workplace(project: Path, cassette: Path) -> Iterator[Workplace]:
    """The place for this cassette. Raises MzError (MZ5002) where another process holds it."""
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
        message = f"another mz records {cassette} again"
        raise MzError("MZ5002", message, hint="wait for it, or stop it with Ctrl-C") from None
    try:
        yield Workplace(folder, secrets.token_hex(4))
    finally:
        lock.release()


# what was paid --------------------------------------------------------------------------------------------------------
def begin_attempt(place: Workplace, paid: Cassette, provenance: Provenance) -> Cassette:
    """Makes room for an attempt whose answers will be worth so much; returns what was paid, as it is stored now."""
    place.run.mkdir(parents=True)
    worth = weakest(*([paid.manifest.provenance] if paid.taken else []), provenance)
    paid = paid._replace(manifest=replace(paid.manifest, provenance=worth))
    save(paid, place.paid, replace=True)
    return paid


def gather(place: Workplace, old: Cassette, outside: Mapping[str, str], project: Path) -> Cassette:
    """Everything that was paid and not used yet, with what earlier attempts add to it; these are taken away, but for
    one with an answer whose tree cannot be read now. Raises OSError where the disk is in the way: nothing is lost."""
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
    """One more is there, and what it left in the tree cannot be read now."""


def _answers(attempt: Path, run: str, outside: Mapping[str, str], project: Path) -> Answers:
    """What the real agent answered; a call that failed is worth nothing, and one that holds a secret is not kept."""
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
    """What the parser makes of an answer, also where the attempt was stopped before it could say so; None: there is no
    answer."""
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
    """Where the new cassette lies until somebody accepts it; it need not exist."""
    place = cassette.resolve()
    return place.parent / WAITING / place.name


def leave(new: Cassette, cassette: Path) -> Path:
    """Puts a new cassette where it waits; returns where."""
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
    """It was accepted."""
    place = waiting_for(cassette)
    shutil.rmtree(place, ignore_errors=True)
    with suppress(OSError):
        if {one.name for one in place.parent.iterdir()} == {".gitignore"}:
            shutil.rmtree(place.parent)
