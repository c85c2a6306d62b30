"""Differences between two stream shapes, with the risk of each.

High: a field that the parser reads is missing or has another JSON type. Medium: an unknown event. Low: additions and
unread fields, since streams gain fields with nearly every release of a CLI.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mz_engine.agents.contract import Adapter

from mz_recordings.findings import RISKS, Finding, Risk
from mz_recordings.wire.dialects import Dialect, dialect_of
from mz_recordings.wire.wire import Field, Observed, Wire, is_known, parent_of

LINES_MAX = 40
NULL = frozenset({"null"})
WHAT: dict[Risk, str] = {
    "high": "fields that the parser reads are missing or have another type",
    "medium": "events that the parser does not know",
    "low": "changes that the parser does not depend on",
}


class Change(NamedTuple):
    """One difference between two stream shapes."""

    risk: Risk
    event: str
    path: str
    words: str
    """`-` removed, `+` added, `!` of another type."""
    types: tuple[str, ...] = ()
    """New JSON types."""

    @property
    def name(self) -> str:
        return f"{self.event}:{self.path}" if self.path else self.event


def compare_wires(known: Wire, seen: Observed, adapter: Adapter, *, alike: bool = False) -> tuple[Change, ...]:
    """Return the differences of `observed` from `baseline`. Missing parts count only with `same_calls` (both are
    recordings of them), since one stream need not show everything in a baseline."""
    dialect = dialect_of(known.agent)
    found = list(_new_events(known, seen.wire, adapter, dialect))
    for name, fields in seen.wire.events.items():
        if name in known.events:
            found += _fields(name, known.events[name], fields, alike)
    if alike:
        found += _gone_events(known, seen.wire, dialect)
    return tuple(found)


def _new_events(known: Wire, seen: Wire, adapter: Adapter, dialect: Dialect) -> Iterator[Change]:
    for name, fields in seen.events.items():
        if name not in known.events:
            risk: Risk = "low" if is_known(name, fields, adapter, dialect) else "medium"
            yield Change(risk, name, "", f"+ event {name}", ("object",))


def _gone_events(known: Wire, seen: Wire, dialect: Dialect) -> Iterator[Change]:
    ends = {name for name in seen.events if name.partition("/")[0] in dialect.terminal}
    for name in known.events:
        if name not in seen.events:
            last = name.partition("/")[0] in dialect.terminal and not ends
            yield Change("high" if last else "low", name, "", f"- event {name}")


def _fields(name: str, known: dict[str, Field], seen: dict[str, Field], alike: bool) -> Iterator[Change]:
    for path, field in seen.items():
        before = known.get(path)
        if before is None or not before.types:
            if field.types and _may_hold(known, parent_of(path)):
                yield Change("low", name, path, f"+ {name} {path}: {_types(field)} ({field.use})", field.types)
        elif field.types:
            yield from _retyped(name, path, before, field, alike)
            if alike and field.always and not before.always and before.use != "ignored":
                yield Change("low", name, path, f"+ {name} {path}: always present ({field.use})", field.types)
    for path, before in known.items():
        if before.types and _may_hold(seen, parent_of(path)):
            yield from _missed(name, path, before, seen.get(path), alike)


def _may_hold(fields: dict[str, Field], parent: str) -> bool:
    """Return True if children of the parent can occur at all; otherwise the difference of the parent suffices."""
    return not parent or (parent in fields and bool({"object", "array"} & set(fields[parent].types)))


def _missed(name: str, path: str, before: Field, now: Field | None, alike: bool) -> Iterator[Change]:
    gone, used = now is None or not now.types, before.use != "ignored"
    if before.always and used and (gone or (now is not None and not now.always)):
        # A parser that handles null handles a missing field too.
        risk: Risk = "low" if "null" in before.types else "high"
        yield Change(risk, name, path, f"- {name} {path}: {_types(before)} ({before.use})")
    elif gone and alike:
        yield Change("low", name, path, f"- {name} {path}: {_types(before)} ({before.use})")


def _types(field: Field) -> str:
    return " or ".join(field.types)


def _retyped(name: str, path: str, before: Field, now: Field, alike: bool) -> Iterator[Change]:
    was, has = frozenset(before.types) - NULL, frozenset(now.types) - NULL
    null = before.always and "null" in now.types and "null" not in before.types
    if (was and has - was) or null or (alike and was - has):
        used = before.use != "ignored" or now.use != "ignored"
        words = f"! {name} {path}: {_types(before)}, now {_types(now)} ({now.use})"
        others = tuple(sorted(set(now.types) - set(before.types)))
        yield Change("high" if used and others else "low", name, path, words, others)


def findings(changes: tuple[Change, ...], seen: Observed, against: str, mend: str) -> tuple[Finding, ...]:
    """Return at most one finding per risk, and one for broken frames. `baseline_label` describes the baseline."""
    made = []
    for risk in reversed(RISKS):
        mine = [change for change in changes if change.risk == risk]
        if mine:
            lines = [_told(change, seen) for change in mine]
            what = f"{WHAT[risk]}: {len(mine)} {'differences' if len(mine) > 1 else 'difference'} from {against}"
            cause = f"{seen.wire.agent} {seen.wire.version}".strip()
            made.append(Finding(kind="WIRE", what=what, cause=cause, detail=bounded(lines), mend=mend, risk=risk))
    if seen.broken:
        lines = [f"  {where}: {words}" for where, words in seen.broken]
        what = (
            f"the frames of {len(lines)} streams are broken" if len(lines) > 1 else "the frames of a stream are broken"
        )
        made.append(Finding(kind="WIRE", what=what, cause="frames", detail=bounded(lines), mend=mend))
    return tuple(made)


def _told(change: Change, seen: Observed) -> str:
    places = (seen.first.get((change.event, change.path, kind)) for kind in change.types)
    where = next((place for place in places if place), "")
    return f"{change.words}, in {where}" if where else change.words


def bounded(lines: list[str]) -> tuple[str, ...]:
    more = len(lines) - LINES_MAX
    return (*lines[:LINES_MAX], *((f"... and {more} more",) if more > 0 else ()))
