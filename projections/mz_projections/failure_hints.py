"""Known failures and their fixes, from the log.

A failed gate has a signature (its normalised first lines, hashed). When a later reply of the same unit passes that
gate, the paths changed by this reply are the fix.
"""

from __future__ import annotations

from collections.abc import Iterable

from mz_events.catalog.base import Event
from mz_events.catalog.validation import ChangesChecked, GateChecked
from mz_events.envelope import Recorded
from mz_events.names import Path, StreamId


def prompt_hint(signature: str, events: Iterable[Recorded[Event]]) -> str | None:
    """Return a hint on a failure for a prompt; None if there is no helpful one."""
    paths = known_fixes(events).get(signature)
    return f"This failure was seen before; it was mended by changing {', '.join(paths)}." if paths else None


def known_fixes(events: Iterable[Recorded[Event]]) -> dict[str, tuple[Path, ...]]:
    """Return the paths of the last fix of each failure, by its signature. The events may be of any number of streams,
    each in its order."""
    fixes: dict[str, tuple[Path, ...]] = {}
    failing: dict[StreamId, GateChecked] = {}
    changes: dict[StreamId, ChangesChecked] = {}
    for recorded in events:
        stream = recorded.stream
        match recorded.event:
            case ChangesChecked() as checked:
                changes[stream] = checked
            case GateChecked(passed=False, signature=signature) as gate if signature:
                failing[stream] = gate
            case GateChecked(passed=True) as gate:
                failure = failing.get(stream)
                if failure and (failure.gate, failure.phase, failure.unit) == (gate.gate, gate.phase, gate.unit):
                    del failing[stream]
                    if not recorded.is_forked_copy:
                        last = changes.get(stream)
                        fixes[failure.signature] = tuple(change.path for change in last.changes) if last else ()
    return fixes
