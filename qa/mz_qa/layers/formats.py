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
from mz_engine.home import BLOBS_FOLDER, LOG_FILE, MZ_FOLDER
from mz_engine.pins import decode_pins
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite import SqliteStore
from mz_events.catalog.run import RunStarted
from mz_events.codec import CODEC
from mz_events.store import BlobMissing, Blobs, StoreUnusable, UnknownEvent
from mz_projections.timeline import describe
from mz_recordings.cassette import FORMAT
from mz_recordings.files.library import CassetteUnreadable, NewerFormat, list_cassettes, load, save
from mz_recordings.findings import Finding

from mz_qa.conformance.endings import fixtures
from mz_qa.layers.facts import CheckedItem, LayerOutput, Project, Remark
from mz_qa.layers.projections import differences, project_events, read_log

DIFFERENCES_MAX = 20
UPCASTER_FIX = "write an upcaster, and keep the stored data"


def check(project: Project) -> Iterator[LayerOutput]:
    """Check the bundled fixtures first, since their failures explain those of the project's data."""
    with as_file(fixtures()) as folder:
        yield from check_payloads(folder / "events", CODEC.decoders)
        for log_folder in sorted((folder / "logs").iterdir()):
            yield from check_stored_log(log_folder)
        yield from check_stored_cassettes(folder / "recordings", range(1, FORMAT))
    yield from check_project_log(project)
    for path in project.cassettes:
        yield CheckedItem("cassettes")
        yield from check_loading(path, project.display_path(path), f"git restore {project.shell_path(path)}")


# bundled fixtures -----------------------------------------------------------------------------------------------------
def check_payloads(folder: Path, released: Iterable[tuple[str, int]]) -> Iterator[LayerOutput]:
    """Check that every type and schema has a stored payload, and that each payload decodes and has a timeline text."""
    stored = {path.stem for path in folder.glob("*.json")}
    for name, schema in released:
        if f"{name}.{schema}" not in stored:
            what = f"no stored payload of event {name}, schema {schema}: reading it is untested"
            yield Finding(kind="FORMAT", message=what, cause=name, fix="python -m tests.support.golden")
    for path in sorted(folder.glob("*.json")):
        yield CheckedItem("event payloads")
        yield from _check_payload(path)


def _check_payload(path: Path) -> Iterator[Finding]:
    name, _, schema = path.stem.rpartition(".")
    payload = path.read_bytes().rstrip(b"\n")
    try:
        event = CODEC.decode(name, int(schema), payload, f"stored/{path.stem}@1")
        text = describe(event)
    except (UnknownEvent, StoreUnusable, LookupError) as error:
        yield _format_finding(f"the stored event {path.stem} cannot be read any more: {error}", name)
        return
    if not text:
        yield _format_finding(f"the stored event {path.stem} has no timeline text", name)


def check_stored_log(folder: Path) -> Iterator[LayerOutput]:
    """Check that a stored log is read, has the expected projections, and that its pins decode."""
    label = f"the stored log {folder.name}"
    try:
        events = read_log((folder / "log.jsonl").read_bytes())
    except (UnknownEvent, StoreUnusable, msgspec.DecodeError) as error:
        yield _format_finding(f"{label} cannot be read any more: {error}", folder.name)
        return
    yield CheckedItem("events of stored logs", len(events))
    stored: dict[str, Any] = msgspec.json.decode((folder / "projections.json").read_bytes())
    changed = tuple(differences(stored, project_events(events)))
    if changed:
        yield _format_finding(f"{label} has other projections than before", folder.name, changed)
    yield from _check_pins((folder / "pins.json").read_bytes(), label, "")


def check_stored_cassettes(folder: Path, formats: Iterable[int]) -> Iterator[LayerOutput]:
    """Check that every older format has a stored cassette, which is read and survives conversion to the current
    format."""
    for number in formats:
        paths = list_cassettes(folder / f"format-{number}")
        if not paths:
            yield _format_finding(f"no stored cassette of format {number}: reading it is untested", "cassette")
        for path in paths:
            yield CheckedItem("stored cassettes")
            yield from check_loading(path, f"the stored cassette format-{number}/{path.name}", UPCASTER_FIX)
            yield from _check_conversion(path, number)


def _check_conversion(path: Path, number: int) -> Iterator[Finding]:
    with suppress(CassetteUnreadable), tempfile.TemporaryDirectory(prefix="mz-gate-") as scratch:
        cassette = load(path)
        save(cassette, Path(scratch) / path.name)
        if load(Path(scratch) / path.name) != cassette:
            yield _format_finding(f"a cassette of format {number} changes when it is written in the current format", "cassette")


# the project's data ---------------------------------------------------------------------------------------------------
def check_project_log(project: Project) -> Iterator[LayerOutput]:
    """Check every run of the project's log: its events are read and folded, its pins decode."""
    path = project.root / MZ_FOLDER / LOG_FILE
    if not path.exists():
        yield Remark(f"no runs here: {MZ_FOLDER}/{LOG_FILE} does not exist")
        return
    try:
        with SqliteStore(path, read_only=True) as store:
            yield from check_store(store, FileBlobs(project.root / MZ_FOLDER / BLOBS_FOLDER))
    except UnknownEvent as error:
        yield Finding(kind="UNREADABLE", message=str(error), cause="log", fix="use the mz that wrote it, or a newer one")
    except StoreUnusable as error:
        yield Finding(kind="FORMAT", message=str(error), cause="log", fix="mz verify")


def check_store(store: SqliteStore, blobs: Blobs) -> Iterator[LayerOutput]:
    """Read and fold all runs of a log. Raises UnknownEvent and StoreUnusable."""
    for stream, _ in store.streams("run/"):
        if stream.count("/") > 1:
            continue
        names = (stream, *(name for name, _ in store.streams(f"{stream}/")))
        events = [recorded for name in names for recorded in store.read(name)]
        events.sort(key=lambda recorded: recorded.position)
        project_events(events)
        yield CheckedItem("events of this project", len(events))
        yield CheckedItem("runs")
        for recorded in events:
            if isinstance(recorded.event, RunStarted):
                try:
                    yield from _check_pins(blobs.get(recorded.event.pins), f"run {recorded.event.run}", recorded.event_ref)
                except BlobMissing as error:
                    what = f"the pins of run {recorded.event.run} are missing: {error}"
                    yield Finding(kind="FORMAT", message=what, cause=recorded.event_ref, fix="mz verify")


def _check_pins(data: bytes, label: str, event_ref: str) -> Iterator[LayerOutput]:
    yield CheckedItem("pins")
    try:
        decode_pins(data)
    except msgspec.DecodeError as error:
        yield _format_finding(f"the pins of {label} cannot be decoded any more: {error}", event_ref or label)


def check_loading(path: Path, display_path: str, fix: str) -> Iterator[Finding]:
    """Check that a cassette is readable and all its digests match."""
    try:
        load(path)
    except NewerFormat as error:
        message = str(error).replace(str(path), display_path)
        yield Finding(kind="UNREADABLE", message=message, cause="cassette", file=display_path, fix="use a newer mz")
    except CassetteUnreadable as error:
        message = str(error).replace(str(path), display_path)
        yield Finding(kind="UNREADABLE", message=message, cause="cassette", file=display_path, fix=fix)


def _format_finding(message: str, cause: str, detail: tuple[str, ...] = ()) -> Finding:
    more = (f"  and {len(detail) - DIFFERENCES_MAX} more lines",) if len(detail) > DIFFERENCES_MAX else ()
    lines = (*detail[:DIFFERENCES_MAX], *more)
    return Finding(kind="FORMAT", message=message[:400], cause=cause, detail=lines, fix=UPCASTER_FIX)
