"""Known failures and their fixes, from the log.

A failed gate has a signature (its normalised first lines, hashed). When a later reply of the same unit passes that
gate, the paths changed by this reply are the fix.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.check import ChangesChecked, GateChecked
from mz_events.envelope import Recorded
from mz_events.names import Path, StreamId


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    signature: str
    seen: int = 0
    mended: int = 0
    mended_in: str = ""
    """`stream@version` of the last gate that passed after this failure."""
    paths: tuple[Path, ...] = ()
    """Changed by the reply that passed it."""


def hint_of(learning: Learning | None) -> str | None:
    """Return a hint on a failure for a prompt; None if there is no helpful one."""
    if learning is None or not learning.mended or not learning.paths:
        return None
    return f"This failure was seen before; it was mended by changing {', '.join(learning.paths)}."


class _Open(msgspec.Struct, frozen=True):
    """A failure that is not fixed yet."""

    signature: str
    gate: str
    cell: tuple[str, str]


def learn(events: Iterable[Recorded[Event]]) -> dict[str, Learning]:
    """Return the failures by signature. The events may be of any number of streams, each in its order."""
    known: dict[str, Learning] = {}
    failing: dict[StreamId, _Open] = {}
    changes: dict[StreamId, ChangesChecked] = {}
    for recorded in events:
        stream = recorded.stream
        match recorded.event:
            case ChangesChecked() as checked:
                changes[stream] = checked
            case GateChecked(passed=False, signature=signature) as gate if signature:
                past = known.get(signature, Learning(signature=signature))
                known[signature] = msgspec.structs.replace(past, seen=past.seen + (not recorded.copied))
                failing[stream] = _Open(signature, gate.gate, (gate.phase, gate.unit))
            case GateChecked(passed=True) as gate:
                was = failing.get(stream)
                if was is not None and was.gate == gate.gate and was.cell == (gate.phase, gate.unit):
                    del failing[stream]
                    if not recorded.copied:
                        known[was.signature] = _mended(known[was.signature], recorded.place, changes.get(stream))
    return known


def _mended(past: Learning, place: str, changed: ChangesChecked | None) -> Learning:
    paths = tuple(change.path for change in changed.changes) if changed else ()
    return msgspec.structs.replace(past, mended=past.mended + 1, mended_in=place, paths=paths)
