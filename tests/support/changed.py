"""Cassettes with one thing changed, for tests of what compares them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from mz_recordings.cassette.files import digest
from mz_recordings.cassette.model import Cassette, Kind, RecordedCall

Line = dict[str, Any]


def call(cassette: Cassette, path: str) -> RecordedCall:
    return next(item for item in cassette.calls if item.recording.identity.path == path)


def with_call(cassette: Cassette, path: str, change: Callable[[RecordedCall], RecordedCall]) -> Cassette:
    """With one recording changed; `path` is its identity's."""
    recorded = tuple(change(item) if item.recording.identity.path == path else item for item in cassette.calls)
    assert recorded != cassette.calls, path
    return cassette._replace(calls=recorded)


def with_fields(cassette: Cassette, path: str, **fields: object) -> Cassette:
    """With other fields of one recording."""
    return with_call(cassette, path, lambda item: item._replace(recording=replace(item.recording, **fields)))


def with_file(cassette: Cassette, path: str, kind: Kind, change: Callable[[str], str]) -> Cassette:
    """With another content of one file, the first of its kind."""
    return with_call(cassette, path, lambda item: _with_file(item, kind, change))


def _with_file(item: RecordedCall, kind: Kind, change: Callable[[str], str]) -> RecordedCall:
    file = item.recording.find(kind)
    assert file is not None
    data = change(item.contents[file.name].decode()).encode()
    assert data != item.contents[file.name]
    new = replace(file, sha256=digest(data))
    files = tuple(new if entry is file else entry for entry in item.recording.files)
    return RecordedCall(replace(item.recording, files=files), {**item.contents, file.name: data})


def with_line(cassette: Cassette, path: str, wanted: str, change: Callable[[Line], Line | None]) -> Cassette:
    """With the last event of one type of a stream changed, or left out (None)."""

    def other(text: str) -> str:
        lines = text.splitlines()
        at = max(at for at, line in enumerate(lines) if json.loads(line).get("type") == wanted)
        made = change(json.loads(lines[at]))
        return "".join(f"{line}\n" for line in (*lines[:at], *([json.dumps(made)] if made else []), *lines[at + 1 :]))

    return with_file(cassette, path, "stdout", other)


def with_event(
    cassette: Cassette, feature: str, wanted: str, change: Callable[[Line], Line | None], which: int = 0
) -> Cassette:
    """With one event of a story changed, or left out (None); `which` of its type, from 0."""
    lines = cassette.traces[feature].decode().splitlines()
    at = [at for at, line in enumerate(lines) if json.loads(line)["type"] == wanted][which]
    made = change(json.loads(lines[at]))
    made_lines = [*lines[:at], *([json.dumps(made)] if made else []), *lines[at + 1 :]]
    data = "".join(f"{line}\n" for line in made_lines).encode()
    assert data != cassette.traces[feature]
    stories = {**cassette.traces, feature: data}
    digests = {name: digest(text) for name, text in stories.items()}
    manifest = replace(cassette.manifest, traces=digests)
    return cassette._replace(traces=stories, manifest=manifest)


def with_world(cassette: Cassette, **fields: object) -> Cassette:
    world = replace(cassette.manifest.fixture, **fields)
    return cassette._replace(manifest=replace(cassette.manifest, fixture=world))


def without_call(cassette: Cassette, path: str) -> Cassette:
    return cassette._replace(calls=tuple(item for item in cassette.calls if item.recording.identity.path != path))
