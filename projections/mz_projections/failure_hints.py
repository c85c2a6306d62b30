"""Known failures and their fixes, from the log.

A failed gate has a signature (its normalised first lines, hashed). When a later reply of the same unit passes that
gate, the paths changed by this reply are the fix.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from mz_events.catalog.base import Event
from mz_events.catalog.validation import ChangesChecked, GateChecked
from mz_events.envelope import Recorded
from mz_events.names import Path, StreamId


class FailureHistory(msgspec.Struct, frozen=True, kw_only=True):
    signature: str
    occurrences: int = 0
    fix_count: int = 0
    fixed_paths: tuple[Path, ...] = ()
    """Changed by the last reply that passed the gate after this failure."""


def prompt_hint(history: FailureHistory | None) -> str | None:
    """Return a hint on a failure for a prompt; None if there is no helpful one."""
    if history is None or not history.fix_count or not history.fixed_paths:
        return None
    return f"This failure was seen before; it was mended by changing {', '.join(history.fixed_paths)}."


def failure_histories(events: Iterable[Recorded[Event]]) -> dict[str, FailureHistory]:
    """Return the failures by signature. The events may be of any number of streams, each in its order."""
    histories: dict[str, FailureHistory] = {}
    failing: dict[StreamId, GateChecked] = {}
    changes: dict[StreamId, ChangesChecked] = {}
    for recorded in events:
        stream = recorded.stream
        match recorded.event:
            case ChangesChecked() as checked:
                changes[stream] = checked
            case GateChecked(passed=False, signature=signature) as gate if signature:
                history = histories.get(signature, FailureHistory(signature=signature))
                histories[signature] = msgspec.structs.replace(
                    history, occurrences=history.occurrences + (not recorded.is_forked_copy)
                )
                failing[stream] = gate
            case GateChecked(passed=True) as gate:
                failure = failing.get(stream)
                if failure and (failure.gate, failure.phase, failure.unit) == (gate.gate, gate.phase, gate.unit):
                    del failing[stream]
                    if not recorded.is_forked_copy:
                        history = histories[failure.signature]
                        paths = tuple(change.path for change in changes[stream].changes) if stream in changes else ()
                        histories[failure.signature] = msgspec.structs.replace(
                            history, fix_count=history.fix_count + 1, fixed_paths=paths
                        )
    return histories
