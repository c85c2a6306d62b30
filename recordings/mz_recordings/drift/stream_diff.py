"""Differences between two stream shapes, with the risk of each.

High: a field that the parser reads is missing or has another JSON type. Medium: an unknown event. Low: additions and
unread fields, since streams gain fields with nearly every release of a CLI.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mz_engine.agents.catalog import dialect_of
from mz_engine.agents.contract import Adapter

from mz_recordings.drift.model import Difference, LeafDifference
from mz_recordings.drift.stream_shape import Field, ObservedStreams, StreamShape, is_known_event, parent_path
from mz_recordings.findings.model import RISKS, Finding, Risk

LINES_MAX = 40
NULL = frozenset({"null"})
MESSAGES: dict[Risk, str] = {
    "high": "fields that the parser reads are missing or have another type",
    "medium": "events that the parser does not know",
    "low": "changes that the parser does not depend on",
}


class ShapeChange(NamedTuple):
    """One difference between two stream shapes."""

    risk: Risk
    event: str
    path: str
    description: str
    """`-` removed, `+` added, `!` of another type."""
    types: tuple[str, ...] = ()
    """New JSON types."""

    @property
    def name(self) -> str:
        return f"{self.event}:{self.path}" if self.path else self.event


def compare_shapes(
    baseline: StreamShape, observed: ObservedStreams, adapter: Adapter, *, same_calls: bool = False
) -> tuple[ShapeChange, ...]:
    """Return the differences of `observed` from `baseline`. Missing parts count only with `same_calls` (both are
    recordings of them), since one stream need not show everything in a baseline."""
    dialect, shape, changes = dialect_of(baseline.agent), observed.shape, list[ShapeChange]()
    for name, fields in shape.events.items():
        if name not in baseline.events:
            risk: Risk = "low" if is_known_event(name, fields, adapter, dialect) else "medium"
            changes.append(ShapeChange(risk, name, "", f"+ event {name}", ("object",)))
    for name, fields in shape.events.items():
        if name in baseline.events:
            changes += _field_changes(name, baseline.events[name], fields, same_calls)
    missing = [name for name in baseline.events if name not in shape.events] if same_calls else []
    has_end = any(name.partition("/")[0] in dialect.final_events for name in shape.events)
    for name in missing:
        is_missing_end = name.partition("/")[0] in dialect.final_events and not has_end
        changes.append(ShapeChange("high" if is_missing_end else "low", name, "", f"- event {name}"))
    return tuple(changes)


def _field_changes(
    name: str, old_fields: dict[str, Field], new_fields: dict[str, Field], same_calls: bool
) -> Iterator[ShapeChange]:
    for path, field in new_fields.items():
        before = old_fields.get(path)
        if before is None or not before.types:
            if field.types and _can_contain(old_fields, parent_path(path)):
                yield ShapeChange(
                    "low", name, path, f"+ {name} {path}: {_join_types(field)} ({field.use})", field.types
                )
        elif field.types:
            yield from _type_changes(name, path, before, field, same_calls)
            if same_calls and field.is_always_present and not before.is_always_present and before.use != "ignored":
                yield ShapeChange("low", name, path, f"+ {name} {path}: always present ({field.use})", field.types)
    for path, before in old_fields.items():
        if before.types and _can_contain(new_fields, parent_path(path)):
            yield from _missing_field(name, path, before, new_fields.get(path), same_calls)


def _can_contain(fields: dict[str, Field], parent: str) -> bool:
    """Return True if children of the parent can occur at all; otherwise the difference of the parent suffices."""
    return not parent or (parent in fields and bool({"object", "array"} & set(fields[parent].types)))


def _missing_field(name: str, path: str, before: Field, after: Field | None, same_calls: bool) -> Iterator[ShapeChange]:
    is_missing, was_used = after is None or not after.types, before.use != "ignored"
    if before.is_always_present and was_used and (is_missing or (after is not None and not after.is_always_present)):
        # A parser that handles null handles a missing field too.
        risk: Risk = "low" if "null" in before.types else "high"
        yield ShapeChange(risk, name, path, f"- {name} {path}: {_join_types(before)} ({before.use})")
    elif is_missing and same_calls:
        yield ShapeChange("low", name, path, f"- {name} {path}: {_join_types(before)} ({before.use})")


def _join_types(field: Field) -> str:
    return " or ".join(field.types)


def _type_changes(name: str, path: str, before: Field, after: Field, same_calls: bool) -> Iterator[ShapeChange]:
    old_types, new_types = frozenset(before.types) - NULL, frozenset(after.types) - NULL
    null_is_new = before.is_always_present and "null" in after.types and "null" not in before.types
    if (old_types and new_types - old_types) or null_is_new or (same_calls and old_types - new_types):
        is_used = before.use != "ignored" or after.use != "ignored"
        description = f"! {name} {path}: {_join_types(before)}, now {_join_types(after)} ({after.use})"
        added_types = tuple(sorted(set(after.types) - set(before.types)))
        yield ShapeChange("high" if is_used and added_types else "low", name, path, description, added_types)


def shape_differences(
    changes: tuple[ShapeChange, ...], observed: ObservedStreams, baseline_label: str, fix: str
) -> Iterator[Difference]:
    """Yield at most one difference per risk, and one for broken frames. `baseline_label` describes the baseline."""
    cause = f"{observed.shape.agent} {observed.shape.version}".strip()
    for risk in reversed(RISKS):
        risk_changes = [change for change in changes if change.risk == risk]
        if risk_changes:
            count = f"{len(risk_changes)} {'differences' if len(risk_changes) > 1 else 'difference'}"
            message = f"{MESSAGES[risk]}: {count} from {baseline_label}"
            detail = limit_lines([_change_line(change, observed) for change in risk_changes])
            leaves = tuple(LeafDifference(change.name) for change in risk_changes) if risk == "low" else ()
            yield Difference(
                Finding(kind="STREAM", message=message, cause=cause, detail=detail, fix=fix, risk=risk), leaves
            )
    if observed.broken_frames:
        lines = [f"  {stream_name}: {defect}" for stream_name, defect in observed.broken_frames]
        message = (
            f"the frames of {len(lines)} streams are broken" if len(lines) > 1 else "the frames of a stream are broken"
        )
        yield Difference(Finding(kind="STREAM", message=message, cause="frames", detail=limit_lines(lines), fix=fix))


def _change_line(change: ShapeChange, observed: ObservedStreams) -> str:
    streams = (observed.first_stream.get((change.event, change.path, kind)) for kind in change.types)
    first_stream = next((stream_name for stream_name in streams if stream_name), "")
    return f"{change.description}, in {first_stream}" if first_stream else change.description


def limit_lines(lines: list[str]) -> tuple[str, ...]:
    omitted = len(lines) - LINES_MAX
    return (*lines[:LINES_MAX], *((f"... and {omitted} more",) if omitted > 0 else ()))
