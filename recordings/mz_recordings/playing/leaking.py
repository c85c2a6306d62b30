"""Detection of secrets that an update would add to a cassette: in current texts and settings, in prompts made from
them, and in given reasons."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from mz_events.redact import Secrets

from mz_recordings.cassette import EVENTS, MANIFEST, Cassette
from mz_recordings.findings import Finding

MEND = "take it out of the project, then: mz replay {cassette}"


def leaking(old: Cassette, new: Cassette, secrets: Secrets) -> tuple[Finding, ...]:
    """Return a finding for each file that must not be written; empty: `new` may replace `old`."""
    return tuple(
        Finding(
            kind="SECRET",
            what=f"{' and '.join(names)} would be written to {file}{where}; nothing was changed",
            feature=feature,
            call=call,
            mend=MEND,
        )
        for feature, call, file, where, data in _news(old, new)
        if (names := secrets.scan(data))
    )


def _news(old: Cassette, new: Cassette) -> Iterator[tuple[str, str, str, str, bytes]]:
    """Yield feature, call, file, location in it and bytes of everything that is new."""
    if new.manifest != old.manifest:
        for where, text in _texts(msgspec.to_builtins(new.manifest)):
            yield "", "", MANIFEST, f" ({where})" if where else "", text.encode("utf-8", "surrogateescape")
    before = {one.recording.identity: one for one in old.taken}
    for one in new.taken:
        identity, known = one.recording.identity, before.get(one.recording.identity)
        if known is None or known.recording != one.recording:
            for _, text in _texts(msgspec.to_builtins(one.recording)):
                yield identity.feature, identity.name, f"{identity.path}.json", "", text.encode()
        for name, data in one.contents.items():
            if known is None or known.contents.get(name) != data:
                yield identity.feature, identity.name, f"{identity.feature}/{name}", "", data
    for feature, told in new.stories.items():
        if old.stories.get(feature) != told:
            yield feature, "", f"{feature}/{EVENTS}", "", told


def _texts(value: object, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string in the value, unescaped, with its key path."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield where, str(name)
            yield from _texts(each, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each, where)
