"""Layer 4: data of older versions is read correctly.

The gate reads the project's log and cassettes. The self-test reads bundled fixtures: a payload of every event type and
schema, logs with their expected projections, pins, a cassette of every format. Projections are stored as plain values
and compared field by field; fields that projections gained since are ignored.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.resources import as_file
from pathlib import Path
from typing import Any

import msgspec
from mz_engine.model.pins import decode_pins
from mz_engine.paths import BLOBS_FOLDER, LOG_FILE, MZ_FOLDER
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.run import RunStarted
from mz_events.codec import CODEC
from mz_events.envelope import FEATURE_DEPTH, Recorded
from mz_events.names import StreamId
from mz_events.store import BlobMissing, Blobs, StoreUnusable, UnknownEvent
from mz_projections.feature.calls import paid_calls
from mz_projections.feature.fold import fold
from mz_projections.run.fold import fold_run
from mz_projections.views.messages import decisions, open_questions
from mz_projections.views.run import run_view
from mz_projections.views.timeline import describe
from mz_recordings.cassette.files import CassetteUnreadable, NewerFormat, list_cassettes, load, save
from mz_recordings.cassette.model import FORMAT
from mz_recordings.cassette.trace import encode_trace, feature_trace
from mz_recordings.findings.model import Finding

from mz_qa.conformance.endings import fixtures
from mz_qa.results import CheckedItem, LayerOutput, Project, Remark

SHOWN_MAX = 160


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stored log, with its payload unchanged."""

    stream: StreamId
    version: int
    position: int
    type: str
    schema: int
    recorded_at_us: int
    observed_at_us: int
    causation: str
    payload: msgspec.Raw


_LINE = msgspec.json.Decoder(StoredEvent)


def read_log(data: bytes) -> tuple[Recorded[Event], ...]:
    """Read the events of a stored log, one per line, upcast to current schemas. Raises UnknownEvent, StoreUnusable and
    msgspec.DecodeError."""
    return tuple(_decode_event(_LINE.decode(line)) for line in data.splitlines() if line)


def _decode_event(line: StoredEvent) -> Recorded[Event]:
    fields = msgspec.structs.asdict(line)
    kind, schema, payload = fields.pop("type"), fields.pop("schema"), fields.pop("payload")
    event = CODEC.decode(kind, schema, bytes(payload), f"{line.stream}@{line.version}")
    return Recorded(**fields, event=event, chain=b"")


def project_events(events: Sequence[Recorded[Event]]) -> dict[str, Any]:
    """Return the projections by run and feature: states, views, costs, questions, and digests of traces.

    The values are builtins only: dicts, lists, strings, numbers.
    """
    streams: dict[str, list[Recorded[Event]]] = {}
    for recorded in events:
        streams.setdefault(recorded.stream, []).append(recorded)
    projections: dict[str, Any] = {}
    for name, stream_events in streams.items():
        if name.startswith("run/") and name.count("/") == FEATURE_DEPTH:
            trace = encode_trace(feature_trace(recorded.event for recorded in stream_events))
            projections[name] = {"state": fold(stream_events), "story": hashlib.sha256(trace).hexdigest()}
        elif name.startswith("run/"):
            run = name.removeprefix("run/")
            run_events = [
                recorded for recorded in events if recorded.stream == name or recorded.stream.startswith(f"{name}/")
            ]
            projections[name] = {
                "state": fold_run(stream_events), "view": run_view(run, run_events), "costs": paid_calls(run_events),
                "questions": open_questions(run_events), "decisions": decisions(run_events),
            }  # fmt: skip
    builtins: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(projections, order="deterministic"))
    return builtins


def differences(stored: Any, current: Any, path: str = "") -> Iterator[str]:
    """Yield the differences, one per line: `- stored`, `+ current`."""
    if isinstance(stored, dict) and isinstance(current, dict):
        for name in stored:
            if name in current:
                yield from differences(stored[name], current[name], f"{path}.{name}")
            else:
                yield f"- {path}.{name}"
    elif isinstance(stored, list) and isinstance(current, list) and len(stored) == len(current):
        for at, (old, new) in enumerate(zip(stored, current, strict=True)):
            yield from differences(old, new, f"{path}[{at}]")
    elif stored != current:
        yield f"- {path}: {_shorten(stored)}"
        yield f"+ {path}: {_shorten(current)}"


def _shorten(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


DIFFERENCES_MAX = 20
UPCASTER_FIX = "write an upcaster, and keep the stored data"


def check(project: Project) -> Iterator[LayerOutput]:
    """Read the project's log and cassettes."""
    yield from check_project_log(project)
    for path in project.cassettes:
        yield CheckedItem("cassettes")
        yield from check_loading(path, project.display_path(path), f"git restore {project.shell_path(path)}")


# bundled fixtures -----------------------------------------------------------------------------------------------------
def check_bundled(project: Project) -> Iterator[LayerOutput]:
    """Read the bundled fixtures of all formats."""
    with as_file(fixtures()) as folder:
        yield from check_payloads(folder / "events", CODEC.decoders)
        for log_folder in sorted((folder / "logs").iterdir()):
            yield from check_stored_log(log_folder)
        yield from check_stored_cassettes(folder / "recordings", (FORMAT,))


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
    """Check that every format has a stored cassette, which is read and survives conversion to the current format."""
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
            yield _format_finding(
                f"a cassette of format {number} changes when it is written in the current format", "cassette"
            )


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
        yield Finding(
            kind="UNREADABLE", message=str(error), cause="log", fix="use the mz that wrote it, or a newer one"
        )
    except StoreUnusable as error:
        yield Finding(kind="FORMAT", message=str(error), cause="log", fix="mz audit --verify")


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
                    yield from _check_pins(
                        blobs.get(recorded.event.pins), f"run {recorded.event.run}", recorded.event_ref
                    )
                except BlobMissing as error:
                    what = f"the pins of run {recorded.event.run} are missing: {error}"
                    yield Finding(kind="FORMAT", message=what, cause=recorded.event_ref, fix="mz audit --verify")


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
    except CassetteUnreadable as error:
        message = str(error).replace(str(path), display_path)
        fix = "use a newer mz" if isinstance(error, NewerFormat) else fix
        yield Finding(kind="UNREADABLE", message=message, cause="cassette", file=display_path, fix=fix)


def _format_finding(message: str, cause: str, detail: tuple[str, ...] = ()) -> Finding:
    more = (f"  and {len(detail) - DIFFERENCES_MAX} more lines",) if len(detail) > DIFFERENCES_MAX else ()
    lines = (*detail[:DIFFERENCES_MAX], *more)
    return Finding(kind="FORMAT", message=message[:400], cause=cause, detail=lines, fix=UPCASTER_FIX)
