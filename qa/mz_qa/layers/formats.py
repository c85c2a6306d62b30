"""Adapter: layer 4: what older versions wrote, here and in any project, is read as it was meant.

Stored with `mz`: a payload of every event type and schema, whole logs with what they mean, pins, a cassette of every
format. Of the project: its own log and its library.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.resources import as_file
from pathlib import Path
from typing import Any

import msgspec
from mz_engine.home import BLOBS, HOME, LOG
from mz_engine.pins import decode_pins
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite import SqliteStore
from mz_events.catalog.run import RunStarted
from mz_events.codec import CODEC
from mz_events.store import BlobMissing, Blobs, StoreUnusable, UnknownEvent
from mz_projections.timeline import words
from mz_recordings.cassette import FORMAT
from mz_recordings.files.library import CassetteUnusable, NewerFormat, cassettes, load, save
from mz_recordings.findings import Finding

from mz_qa.conformance.endings import fixtures
from mz_qa.layers.facts import Checked, Project, Remark, Said
from mz_qa.layers.projections import differences, projected, read_log

DIFFERENCES_MAX = 20
LIFT = "write an upcaster, and keep what was stored"


def check(project: Project) -> Iterator[Said]:
    """The stored fixtures first: where they fail, what is wrong with a project's own is no wonder."""
    with as_file(fixtures()) as folder:
        yield from payloads(folder / "events", CODEC.decoders)
        for place in sorted((folder / "logs").iterdir()):
            yield from stored_log(place)
        yield from stored_cassettes(folder / "recordings", range(1, FORMAT))
    yield from own_log(project)
    for path in project.cassettes:
        yield Checked("cassettes")
        yield from loaded(path, project.shown(path), f"git restore {project.typed(path)}")


# what is stored with mz -----------------------------------------------------------------------------------------------
def payloads(folder: Path, released: Iterable[tuple[str, int]]) -> Iterator[Said]:
    """Every type and schema has a stored payload; every stored payload is read, and can be told in words."""
    stored = {path.stem for path in folder.glob("*.json")}
    for name, schema in released:
        if f"{name}.{schema}" not in stored:
            what = f"of the event {name} no payload of schema {schema} is stored, so nothing shows that it can be read"
            yield Finding(kind="FORMAT", what=what, cause=name, mend="python -m tests.support.golden")
    for path in sorted(folder.glob("*.json")):
        yield Checked("event payloads")
        yield from _payload(path)


def _payload(path: Path) -> Iterator[Finding]:
    name, _, schema = path.stem.rpartition(".")
    payload = path.read_bytes().rstrip(b"\n")
    try:
        event = CODEC.decode(name, int(schema), payload, f"stored/{path.stem}@1")
        said = words(event)
    except (UnknownEvent, StoreUnusable, LookupError) as error:
        yield _unread(f"the stored event {path.stem} is not read any more: {error}", name)
        return
    if not said:
        yield _unread(f"the stored event {path.stem} says nothing in words", name)


def stored_log(folder: Path) -> Iterator[Said]:
    """A whole log: it is read, it means what it meant, and its pins can be taken up again."""
    where = f"the stored log {folder.name}"
    try:
        events = read_log((folder / "log.jsonl").read_bytes())
    except (UnknownEvent, StoreUnusable, msgspec.DecodeError) as error:
        yield _unread(f"{where} is not read any more: {error}", folder.name)
        return
    yield Checked("events of stored logs", len(events))
    kept: dict[str, Any] = msgspec.json.decode((folder / "projections.json").read_bytes())
    changed = tuple(differences(kept, projected(events)))
    if changed:
        yield _unread(f"{where} means something else than it did", folder.name, changed)
    yield from _pins((folder / "pins.json").read_bytes(), where, "")


def stored_cassettes(folder: Path, formats: Iterable[int]) -> Iterator[Said]:
    """Of every older format there is a cassette; each is read, and is the same after it was written in today's."""
    for number in formats:
        places = cassettes(folder / f"format-{number}")
        if not places:
            yield _unread(f"no cassette of format {number} is stored, so nothing shows that it can be read", "cassette")
        for place in places:
            yield Checked("stored cassettes")
            yield from loaded(place, f"the stored cassette format-{number}/{place.name}", LIFT)
            yield from _rewritten(place, number)


def _rewritten(place: Path, number: int) -> Iterator[Finding]:
    with suppress(CassetteUnusable), tempfile.TemporaryDirectory(prefix="mz-gate-") as scratch:
        cassette = load(place)
        save(cassette, Path(scratch) / place.name)
        if load(Path(scratch) / place.name) != cassette:
            yield _unread(f"a cassette of format {number} is another one when it is written in today's", "cassette")


# what a project has ---------------------------------------------------------------------------------------------------
def own_log(project: Project) -> Iterator[Said]:
    """Every run that is recorded here: its events are read and folded, its pins are understood."""
    path = project.root / HOME / LOG
    if not path.exists():
        yield Remark(f"nothing has run here: there is no {HOME}/{LOG}")
        return
    try:
        with SqliteStore(path, read_only=True) as store:
            yield from read_store(store, FileBlobs(project.root / HOME / BLOBS))
    except UnknownEvent as error:
        yield Finding(kind="UNUSABLE", what=str(error), cause="log", mend="use the mz that wrote it, or a newer one")
    except StoreUnusable as error:
        yield Finding(kind="FORMAT", what=str(error), cause="log", mend="mz verify")


def read_store(store: SqliteStore, blobs: Blobs) -> Iterator[Said]:
    """Raises UnknownEvent and StoreUnusable for what cannot be read."""
    for stream, _ in store.streams("run/"):
        if stream.count("/") > 1:
            continue
        names = (stream, *(name for name, _ in store.streams(f"{stream}/")))
        events = [recorded for name in names for recorded in store.read(name)]
        events.sort(key=lambda recorded: recorded.position)
        projected(events)
        yield Checked("events of this project", len(events))
        yield Checked("runs")
        for recorded in events:
            if isinstance(recorded.event, RunStarted):
                try:
                    yield from _pins(blobs.get(recorded.event.pins), f"run {recorded.event.run}", recorded.place)
                except BlobMissing as error:
                    what = f"the pins of run {recorded.event.run} cannot be had: {error}"
                    yield Finding(kind="FORMAT", what=what, cause=recorded.place, mend="mz verify")


def _pins(data: bytes, where: str, place: str) -> Iterator[Said]:
    yield Checked("pins")
    try:
        decode_pins(data)
    except msgspec.DecodeError as error:
        yield _unread(f"the pins of {where} are not understood any more: {error}", place or where)


def loaded(path: Path, shown: str, mend: str) -> Iterator[Finding]:
    """A cassette is read, whatever its format is, and every digest in it fits."""
    try:
        load(path)
    except NewerFormat as error:
        what = str(error).replace(str(path), shown)
        yield Finding(kind="UNUSABLE", what=what, cause="cassette", file=shown, mend="use a newer mz")
    except CassetteUnusable as error:
        what = str(error).replace(str(path), shown)
        yield Finding(kind="UNUSABLE", what=what, cause="cassette", file=shown, mend=mend)


def _unread(what: str, cause: str, detail: tuple[str, ...] = ()) -> Finding:
    more = (f"  and {len(detail) - DIFFERENCES_MAX} lines more",) if len(detail) > DIFFERENCES_MAX else ()
    shown = (*detail[:DIFFERENCES_MAX], *more)
    return Finding(kind="FORMAT", what=what[:400], cause=cause, detail=shown, mend=LIFT)
