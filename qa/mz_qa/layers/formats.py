"""Layer 4: data of older versions is read correctly.

Bundled fixtures: a payload of every event type and schema, logs with their expected projections, pins, a cassette of
every format. Of the project: its log and its cassettes."""

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
LIFT = "write an upcaster, and keep the stored data"


def check(project: Project) -> Iterator[Said]:
    """Check the bundled fixtures first, since their failures explain those of the project's data."""
    with as_file(fixtures()) as folder:
        yield from payloads(folder / "events", CODEC.decoders)
        for log_folder in sorted((folder / "logs").iterdir()):
            yield from stored_log(log_folder)
        yield from stored_cassettes(folder / "recordings", range(1, FORMAT))
    yield from own_log(project)
    for path in project.cassettes:
        yield Checked("cassettes")
        yield from loaded(path, project.shown(path), f"git restore {project.typed(path)}")


# bundled fixtures -----------------------------------------------------------------------------------------------------
def payloads(folder: Path, released: Iterable[tuple[str, int]]) -> Iterator[Said]:
    """Check that every type and schema has a stored payload, and that each payload decodes and has a timeline text."""
    stored = {path.stem for path in folder.glob("*.json")}
    for name, schema in released:
        if f"{name}.{schema}" not in stored:
            what = f"no stored payload of event {name}, schema {schema}: reading it is untested"
            yield Finding(kind="FORMAT", what=what, cause=name, mend="python -m tests.support.golden")
    for path in sorted(folder.glob("*.json")):
        yield Checked("event payloads")
        yield from _payload(path)


def _payload(path: Path) -> Iterator[Finding]:
    name, _, schema = path.stem.rpartition(".")
    payload = path.read_bytes().rstrip(b"\n")
    try:
        event = CODEC.decode(name, int(schema), payload, f"stored/{path.stem}@1")
        text = words(event)
    except (UnknownEvent, StoreUnusable, LookupError) as error:
        yield _unread(f"the stored event {path.stem} cannot be read any more: {error}", name)
        return
    if not text:
        yield _unread(f"the stored event {path.stem} has no timeline text", name)


def stored_log(folder: Path) -> Iterator[Said]:
    """Check that a stored log is read, has the expected projections, and that its pins decode."""
    label = f"the stored log {folder.name}"
    try:
        events = read_log((folder / "log.jsonl").read_bytes())
    except (UnknownEvent, StoreUnusable, msgspec.DecodeError) as error:
        yield _unread(f"{label} cannot be read any more: {error}", folder.name)
        return
    yield Checked("events of stored logs", len(events))
    stored: dict[str, Any] = msgspec.json.decode((folder / "projections.json").read_bytes())
    changed = tuple(differences(stored, projected(events)))
    if changed:
        yield _unread(f"{label} has other projections than before", folder.name, changed)
    yield from _pins((folder / "pins.json").read_bytes(), label, "")


def stored_cassettes(folder: Path, formats: Iterable[int]) -> Iterator[Said]:
    """Check that every older format has a stored cassette, which is read and survives conversion to the current
    format."""
    for number in formats:
        paths = cassettes(folder / f"format-{number}")
        if not paths:
            yield _unread(f"no stored cassette of format {number}: reading it is untested", "cassette")
        for path in paths:
            yield Checked("stored cassettes")
            yield from loaded(path, f"the stored cassette format-{number}/{path.name}", LIFT)
            yield from _rewritten(path, number)


def _rewritten(path: Path, number: int) -> Iterator[Finding]:
    with suppress(CassetteUnusable), tempfile.TemporaryDirectory(prefix="mz-gate-") as scratch:
        cassette = load(path)
        save(cassette, Path(scratch) / path.name)
        if load(Path(scratch) / path.name) != cassette:
            yield _unread(f"a cassette of format {number} changes when it is written in the current format", "cassette")


# the project's data ---------------------------------------------------------------------------------------------------
def own_log(project: Project) -> Iterator[Said]:
    """Check every run of the project's log: its events are read and folded, its pins decode."""
    path = project.root / HOME / LOG
    if not path.exists():
        yield Remark(f"no runs here: {HOME}/{LOG} does not exist")
        return
    try:
        with SqliteStore(path, read_only=True) as store:
            yield from read_store(store, FileBlobs(project.root / HOME / BLOBS))
    except UnknownEvent as error:
        yield Finding(kind="UNUSABLE", what=str(error), cause="log", mend="use the mz that wrote it, or a newer one")
    except StoreUnusable as error:
        yield Finding(kind="FORMAT", what=str(error), cause="log", mend="mz verify")


def read_store(store: SqliteStore, blobs: Blobs) -> Iterator[Said]:
    """Read and fold all runs of a log. Raises UnknownEvent and StoreUnusable."""
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
                    what = f"the pins of run {recorded.event.run} are missing: {error}"
                    yield Finding(kind="FORMAT", what=what, cause=recorded.place, mend="mz verify")


def _pins(data: bytes, label: str, event_ref: str) -> Iterator[Said]:
    yield Checked("pins")
    try:
        decode_pins(data)
    except msgspec.DecodeError as error:
        yield _unread(f"the pins of {label} cannot be decoded any more: {error}", event_ref or label)


def loaded(path: Path, shown: str, mend: str) -> Iterator[Finding]:
    """Check that a cassette is readable and all its digests match."""
    try:
        load(path)
    except NewerFormat as error:
        message = str(error).replace(str(path), shown)
        yield Finding(kind="UNUSABLE", what=message, cause="cassette", file=shown, mend="use a newer mz")
    except CassetteUnusable as error:
        message = str(error).replace(str(path), shown)
        yield Finding(kind="UNUSABLE", what=message, cause="cassette", file=shown, mend=mend)


def _unread(what: str, cause: str, detail: tuple[str, ...] = ()) -> Finding:
    more = (f"  and {len(detail) - DIFFERENCES_MAX} more lines",) if len(detail) > DIFFERENCES_MAX else ()
    lines = (*detail[:DIFFERENCES_MAX], *more)
    return Finding(kind="FORMAT", what=what[:400], cause=cause, detail=lines, mend=LIFT)
