"""Detection of secrets that an update would add to a cassette: in current texts and settings, in prompts made from
them, and in given reasons."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from mz_events.redact import Secrets

from mz_recordings.cassette import EVENTS, MANIFEST, Cassette
from mz_recordings.findings import Finding

FIX = "take it out of the project, then: mz replay {cassette}"


def new_secrets(old: Cassette, new: Cassette, secrets: Secrets) -> tuple[Finding, ...]:
    """Return a finding for each file that must not be written; empty: `new` may replace `old`."""
    return tuple(
        Finding(
            kind="SECRET",
            message=f"{' and '.join(names)} would be written to {file}{location}; nothing was changed",
            feature=feature,
            call=call,
            fix=FIX,
        )
        for feature, call, file, location, data in _new_content(old, new)
        if (names := secrets.names_in(data))
    )


def _new_content(old: Cassette, new: Cassette) -> Iterator[tuple[str, str, str, str, bytes]]:
    """Yield feature, call, file, location in it and bytes of everything that is new."""
    if new.manifest != old.manifest:
        for location, text in _texts(msgspec.to_builtins(new.manifest)):
            yield "", "", MANIFEST, f" ({location})" if location else "", text.encode("utf-8", "surrogateescape")
    before = {call.recording.identity: call for call in old.calls}
    for call in new.calls:
        identity, old_call = call.recording.identity, before.get(call.recording.identity)
        if old_call is None or old_call.recording != call.recording:
            for _, text in _texts(msgspec.to_builtins(call.recording)):
                yield identity.feature, identity.name, f"{identity.path}.json", "", text.encode()
        for name, data in call.contents.items():
            if old_call is None or old_call.contents.get(name) != data:
                yield identity.feature, identity.name, f"{identity.feature}/{name}", "", data
    for feature, trace in new.traces.items():
        if old.traces.get(feature) != trace:
            yield feature, "", f"{feature}/{EVENTS}", "", trace


def _texts(value: object, key_path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string in the value, unescaped, with its key path."""
    if isinstance(value, str):
        yield key_path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield key_path, str(name)
            yield from _texts(item, f"{key_path}.{name}" if key_path else str(name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, key_path)
