"""Layer 4: data of older versions is read correctly.

`mz check` reads the project's log and cassettes. The self-test reads bundled logs with their expected projections, and
pins. Projections are stored as plain values and compared field by field; fields that projections gained since are
ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from importlib.resources import as_file
from pathlib import Path
from typing import Any

import msgspec
from mz_engine.model.pins import decode_pins
from mz_engine.paths import BLOBS_FOLDER, LOG_FILE, MZ_FOLDER
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.adapters.transfer import StoredEvent
from mz_events.catalog.base import Event
from mz_events.catalog.run import RunStarted
from mz_events.codec import CODEC
from mz_events.store import FEATURE_DEPTH, BlobMissing, Blobs, Recorded, StoreUnusable, UnknownEvent
from mz_projections.feature.calls import paid_calls
from mz_projections.feature.fold import fold
from mz_projections.run.fold import fold_run
from mz_projections.views.messages import decisions, open_questions
from mz_projections.views.run import run_view
from mz_recordings.cassette.files import CassetteUnreadable, NewerFormat, load
from mz_recordings.cassette.trace import encode_trace, feature_trace
from mz_recordings.findings.model import Finding

from mz_qa.conformance.endings import fixtures
from mz_qa.results import CheckedItem, LayerOutput, Project, Remark

SHOWN_MAX = 160


_LINE = msgspec.json.Decoder(StoredEvent)


def read_log(data: bytes) -> tuple[Recorded[Event], ...]:
    """Read the events of a stored log, one per line, upcast to current schemas. Raises UnknownEvent, StoreUnusable and
    msgspec.DecodeError."""
    return tuple(_decode_event(_LINE.decode(line)) for line in data.splitlines() if line)


def _decode_event(line: StoredEvent) -> Recorded[Event]:
    event = CODEC.decode(line.type, line.schema, bytes(line.payload), f"{line.stream}@{line.version}")
    times = line.recorded_at_us, line.observed_at_us
    return Recorded(line.stream, line.version, line.position, *times, event, line.causation)


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
        try:
            load(path)
        except CassetteUnreadable as error:
            shown = project.display_path(path)
            newer = isinstance(error, NewerFormat)
            fix = "use a newer mz" if newer else f"git restore {project.shell_path(path)}"
            message = str(error).replace(str(path), shown)
            yield Finding(kind="UNREADABLE", message=message, cause="cassette", file=shown, fix=fix)


# bundled logs ---------------------------------------------------------------------------------------------------------
def check_bundled(project: Project) -> Iterator[LayerOutput]:
    """Read the bundled logs of older versions."""
    with as_file(fixtures() / "logs") as folder:
        for log_folder in sorted(folder.iterdir()):
            yield from check_stored_log(log_folder)


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
    yield from _check_pins((folder / "pins.json").read_bytes(), label, label)


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


def _check_pins(data: bytes, label: str, cause: str) -> Iterator[LayerOutput]:
    yield CheckedItem("pins")
    try:
        decode_pins(data)
    except msgspec.DecodeError as error:
        yield _format_finding(f"the pins of {label} cannot be decoded any more: {error}", cause)


def _format_finding(message: str, cause: str, detail: tuple[str, ...] = ()) -> Finding:
    more = (f"  and {len(detail) - DIFFERENCES_MAX} more lines",) if len(detail) > DIFFERENCES_MAX else ()
    lines = (*detail[:DIFFERENCES_MAX], *more)
    return Finding(kind="FORMAT", message=message[:400], cause=cause, detail=lines, fix=UPCASTER_FIX)
