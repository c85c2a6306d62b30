"""Readers of the records that Monozukuri and Mage keep about agents.

Both count per call, not per request, and name no model, so these requests have no price. Estimates are ignored. A
record that names the agent's session is reconciled with that session's own files, so that it adds only what they lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from mz_engine.agents.jsonline import Json, count, decode, mapping, nanousd, string
from mz_events.catalog.call import Usage

from mz_recordings.transcripts.claude_lines import time_us
from mz_recordings.transcripts.facts import (
    Asked,
    Ended,
    Format,
    Opened,
    Requested,
    Sighting,
    Unknown,
    Used,
)
from mz_recordings.transcripts.objects import ObjectReader

MONOZUKURI, MAGE, CLAUDE = "monozukuri", "mage", "claude-code"
TYPES = re.compile(r"(run|backlog|feature|phase|skill|memory|learning|log|setup)\.[a-z_]+\Z")
CALLERS = frozenset({"measure", "stitch"})
FIELD = re.compile(rb"^( *)([a-z_]+):[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)


class CostReader(ObjectReader):
    """Monozukuri's `cost.json` of a feature: counted tokens of each phase."""

    format = "monozukuri-cost"
    agent = MONOZUKURI
    unit: Literal["line", "file"] = "file"

    def see(self, document: Json, /) -> Iterator[Sighting]:
        feature = string(document.get("feature_id"))
        yield Opened(session=feature, at_us=time_us(document.get("created_at")))
        phases = document.get("phases")
        for phase in map(mapping, phases if isinstance(phases, list) else ()):
            tokens = count(phase.get("actual_tokens"))
            if tokens:
                when = string(phase.get("recorded_at"))
                yield Requested(
                    id=f"{feature}/{string(phase.get('phase'))}/{when}",
                    usage=Usage(model="", input=tokens, output=0, requests=None),
                    at_us=time_us(when),
                )


class EventReader(ObjectReader):
    """Monozukuri's events: runs and features. Their tokens are in `cost.json`."""

    format = "monozukuri-events"
    agent = MONOZUKURI

    def see(self, event: Json, /) -> Iterator[Sighting]:
        kind, at_us = string(event.get("type")), time_us(event.get("ts"))
        if not TYPES.match(kind):
            yield Unknown(type=kind[:64] or "?")
        if kind == "run.started":
            yield Opened(session=string(event.get("run_id")), at_us=at_us)
        elif kind == "feature.started":
            yield Asked(at_us=at_us)
        elif kind in ("skill.completed", "skill.failed"):
            yield Used(tool=string(event.get("skill")) or "skill", failed=kind == "skill.failed")


class IssueReader(ObjectReader):
    """Mage's invocation records: comments of issues, one issue per line."""

    format = "mage-issues"
    agent = MAGE

    def see(self, issue: Json, /) -> Iterator[Sighting]:
        name = string(issue.get("id"))
        for record in _records(issue):
            begun, tokens = string(record.get("started_at")), mapping(record.get("tokens"))
            caller = string(record.get("caller"))
            yield Opened(session=name, at_us=time_us(begun))
            yield Asked(at_us=time_us(begun))
            yield Requested(
                id=f"{name}/{caller}/{begun}", usage=_usage(tokens), at_us=time_us(begun),
                reported_nanousd=nanousd(record.get("cost_usd")),
            )  # fmt: skip


class StatsReader(ObjectReader):
    """Mage's `stats` of one call, in YAML. It names the session of Claude Code, whose own files take precedence."""

    format = "mage-stats"
    agent = CLAUDE
    unit: Literal["line", "file"] = "file"

    def read(self, data: bytes) -> Iterator[Sighting]:
        told = _fields(data)
        yield Opened(session=told.get("session_id", ""), at_us=time_us(told.get("started_at")))
        usage = _usage({name.removeprefix("tokens."): int(text) for name, text in told.items()
                        if name.startswith("tokens.") and text.isdigit()})  # fmt: skip
        yield Ended(
            status="success" if told.get("status") in ("success", "completed", "done") else "error",
            reported_nanousd=nanousd(told.get("cost_usd")), usage=(usage,) if usage.input or usage.output else (),
        )  # fmt: skip


def _usage(tokens: Json) -> Usage:
    read, written = count(tokens.get("cache_read")) or 0, count(tokens.get("cache_creation")) or 0
    return Usage(
        model="", input=(count(tokens.get("input")) or 0) + read + written, output=count(tokens.get("output")) or 0,
        cache_read=read, cache_write_5m=written, requests=None,
    )  # fmt: skip


def _records(issue: Json) -> Iterator[Json]:
    """Yield the comments of an issue that are records of a call."""
    comments = issue.get("comments")
    for comment in comments if isinstance(comments, list) else ():
        text = comment if isinstance(comment, str) else string(mapping(comment).get("text"))
        record = decode(text.encode("utf-8", "replace")) if text.lstrip().startswith("{") else None
        if record is not None and record.get("caller") in CALLERS and isinstance(record.get("tokens"), dict):
            yield record


def _fields(data: bytes) -> dict[str, str]:
    """Return the fields of a simple YAML document, nested ones as `outer.inner`. The first of a name counts."""
    found: dict[str, str] = {}
    outer = ""
    for indent, name, value in FIELD.findall(data):
        text = value.decode("utf-8", "replace").strip("\"'")
        key = name.decode()
        if not indent:
            outer = key
        found.setdefault(f"{outer}.{key}" if indent else key, text)
    return found


def _fits_cost(document: Mapping[str, object]) -> bool:
    return "feature_id" in document and "cumulative_tokens" in document and isinstance(document.get("phases"), list)


def _fits_event(line: Mapping[str, object]) -> bool:
    return "run_id" in line and "ts" in line and TYPES.match(string(line.get("type"))) is not None


def _fits_issue(line: Mapping[str, object]) -> bool:
    return isinstance(line.get("id"), str) and any(True for _ in _records(line))


def _fits_stats(head: bytes) -> bool:
    told = _fields(head)
    return told.get("caller") in CALLERS and "tokens.input" in told and "session_id" in told


def _never(line: Mapping[str, object]) -> bool:
    return False


RECORDS: tuple[Format, ...] = (
    Format(name=CostReader.format, agent=MONOZUKURI, unit="file", fits=_fits_cost, reader=CostReader),
    Format(name=EventReader.format, agent=MONOZUKURI, unit="line", fits=_fits_event, reader=EventReader),
    Format(name=IssueReader.format, agent=MAGE, unit="line", fits=_fits_issue, reader=IssueReader),
    Format(name=StatsReader.format, agent=CLAUDE, unit="file", fits=_never, reader=StatsReader, fits_text=_fits_stats),
)
