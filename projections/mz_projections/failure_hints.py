"""What the log teaches about failures: their fixes, and attempts that were used up without one.

A failed gate has a signature (its normalised first lines, hashed), a violated rule its name. When a later reply of the
same unit passes that gate, the paths changed by this reply are the fix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.feature import Blocked, HumanAnswered, HumanRequested, QuestionKind
from mz_events.catalog.validation import ChangesChecked, GateChecked
from mz_events.names import Digest, Path, StreamId
from mz_events.store import Recorded


class Learning(msgspec.Struct, frozen=True):
    """What is known about one failure."""

    fix: tuple[Path, ...] = ()
    """Paths of the last fix."""
    exhausted: bool = False
    """All attempts of a unit failed with it."""
    note: Digest | None = None
    """Blob: what a person answered then."""


def rule_signature(rule: str) -> str:
    """Return the signature of violating a rule."""
    return f"rule {rule}"


def prompt_hint(signature: str, events: Iterable[Recorded[Event]], load_text: Callable[[Digest], str]) -> str | None:
    """Return a hint on a failure for a prompt; None if there is no helpful one."""
    learning = learnings(events).get(signature, Learning())
    if learning.fix:
        return f"This failure was seen before; it was mended by changing {', '.join(learning.fix)}."
    if learning.exhausted:
        answer = f" A person then answered: {load_text(learning.note).strip()}" if learning.note else ""
        return f"All attempts at this failed before.{answer}"
    return None


def learnings(events: Iterable[Recorded[Event]]) -> dict[str, Learning]:
    """Return what is known about each failure, by its signature. The events may be of any number of streams, each in
    its order."""
    learned: dict[str, Learning] = {}
    failing: dict[StreamId, GateChecked] = {}
    changes: dict[StreamId, ChangesChecked] = {}
    open_questions: dict[StreamId, str] = {}

    def learn(recorded: Recorded[Event], signature: str, **values: object) -> None:
        if not recorded.is_forked_copy:
            learned[signature] = replace(learned.get(signature, Learning()), **values)

    for recorded in events:
        stream = recorded.stream
        failure = failing.get(stream)
        match recorded.event:
            case ChangesChecked() as checked:
                changes[stream] = checked
            case GateChecked(passed=False, signature=signature) as gate if signature:
                failing[stream] = gate
            case GateChecked(passed=True) as gate:
                if failure and (failure.gate, failure.phase, failure.unit) == (gate.gate, gate.phase, gate.unit):
                    del failing[stream]
                    changed = changes[stream].changes if stream in changes else ()
                    learn(recorded, failure.signature, fix=tuple(change.path for change in changed))
            case Blocked(check=check) if failure and failure.gate == check:
                open_questions[stream] = failure.signature
                learn(recorded, failure.signature, exhausted=True)
            case HumanRequested(question_kind=QuestionKind.EXHAUSTED, code=rule):
                open_questions[stream] = rule_signature(rule)
                learn(recorded, open_questions[stream], exhausted=True)
            case HumanAnswered(note=note) if stream in open_questions:
                learn(recorded, open_questions.pop(stream), note=note)
    return learned
