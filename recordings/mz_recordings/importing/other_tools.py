"""Readers of the records that Monozukuri and Mage keep about agents.

Both count per call, not per request, and name no model, so these requests have no price. Estimates are ignored. A
record that names the agent's session is reconciled with that session's own files, so that it adds only what they lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from mz_engine.agents.reading.json_lines import (
    Json,
    count,
    decode_object,
    mapping,
    nanousd,
    objects,
    string,
    time_us,
    token_count,
)
from mz_engine.agents.reading.records import (
    Format,
    ModelRequest,
    Reader,
    SessionInfo,
    StreamEnd,
    ToolUse,
    TranscriptRecord,
    UnknownLine,
    UserPrompt,
)
from mz_events.catalog.call import Usage

MONOZUKURI, MAGE, CLAUDE = "monozukuri", "mage", "claude-code"
EVENT_TYPES = re.compile(r"(run|backlog|feature|phase|skill|memory|learning|log|setup)\.[a-z_]+\Z")
MEASURE, STITCH = "measure", "stitch"
CALLERS = frozenset({MEASURE, STITCH})
FIELD = re.compile(rb"^( *)([a-z_]+):[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)


class CostReader(Reader):
    """Monozukuri's `cost.json` of a feature: counted tokens of each phase."""

    name = "monozukuri-cost"
    agent = MONOZUKURI
    unit: Literal["line", "file"] = "file"

    def read_object(self, document: Json, /) -> Iterator[TranscriptRecord]:
        feature = string(document.get("feature_id"))
        yield SessionInfo(session=feature, at_us=time_us(document.get("created_at")))
        for phase in objects(document.get("phases")):
            tokens = count(phase.get("actual_tokens"))
            if tokens:
                recorded_at = string(phase.get("recorded_at"))
                yield ModelRequest(
                    id=f"{feature}/{string(phase.get('phase'))}/{recorded_at}",
                    usage=Usage(model="", input=tokens, output=0, requests=None),
                    at_us=time_us(recorded_at),
                )

    @staticmethod
    def matches(document: dict[str, object]) -> bool:
        return "feature_id" in document and "cumulative_tokens" in document and isinstance(document.get("phases"), list)


class EventReader(Reader):
    """Monozukuri's events: runs and features. Their tokens are in `cost.json`."""

    name = "monozukuri-events"
    agent = MONOZUKURI

    def read_object(self, event: Json, /) -> Iterator[TranscriptRecord]:
        kind, at_us = string(event.get("type")), time_us(event.get("ts"))
        if not EVENT_TYPES.match(kind):
            yield UnknownLine(type=kind[:64] or "?")
        if kind == "run.started":
            yield SessionInfo(session=string(event.get("run_id")), at_us=at_us)
        elif kind == "feature.started":
            yield UserPrompt(at_us=at_us)
        elif kind in ("skill.completed", "skill.failed"):
            yield ToolUse(tool=string(event.get("skill")) or "skill", failed=kind == "skill.failed")

    @staticmethod
    def matches(line: dict[str, object]) -> bool:
        return "run_id" in line and "ts" in line and EVENT_TYPES.match(string(line.get("type"))) is not None


class IssueReader(Reader):
    """Mage's invocation records: comments of issues, one issue per line."""

    name = "mage-issues"
    agent = MAGE

    def read_object(self, issue: Json, /) -> Iterator[TranscriptRecord]:
        name = string(issue.get("id"))
        for record in invocation_records(issue):
            started_at, tokens = string(record.get("started_at")), mapping(record.get("tokens"))
            caller = string(record.get("caller"))
            yield SessionInfo(session=name, at_us=time_us(started_at))
            yield UserPrompt(at_us=time_us(started_at))
            owner = "" if caller == MEASURE else name  # Its record is on every issue that it made.
            yield ModelRequest(
                id=f"{owner}/{caller}/{started_at}", usage=_usage(tokens), at_us=time_us(started_at),
                reported_nanousd=nanousd(record.get("cost_usd")),
            )  # fmt: skip

    @staticmethod
    def matches(line: dict[str, object]) -> bool:
        return isinstance(line.get("id"), str) and any(True for _ in invocation_records(line))


class StatsReader(Reader):
    """Mage's `stats` of one call, in YAML. It names the session of Claude Code, whose own files take precedence."""

    name = "mage-stats"
    agent = CLAUDE
    unit: Literal["line", "file"] = "file"
    is_text = True

    def read(self, data: bytes) -> Iterator[TranscriptRecord]:
        fields = _yaml_fields(data)
        yield SessionInfo(session=fields.get("session_id", ""), at_us=time_us(fields.get("started_at")))
        usage = _usage({name.removeprefix("tokens."): int(text) for name, text in fields.items()
                        if name.startswith("tokens.") and text.isdigit()})  # fmt: skip
        yield StreamEnd(
            status="success" if fields.get("status") in ("success", "completed", "done") else "error",
            reported_nanousd=nanousd(fields.get("cost_usd")), usage=(usage,) if usage.input or usage.output else (),
        )  # fmt: skip

    @staticmethod
    def matches_text(head: bytes) -> bool:
        fields = _yaml_fields(head)
        return fields.get("caller") in CALLERS and "tokens.input" in fields and "session_id" in fields


def _usage(tokens: Json) -> Usage:
    read, written = token_count(tokens, "cache_read"), token_count(tokens, "cache_creation")
    return Usage(
        model="", input=(token_count(tokens, "input")) + read + written, output=token_count(tokens, "output"),
        cache_read=read, cache_write_5m=written, requests=None,
    )  # fmt: skip


def invocation_records(issue: Json) -> Iterator[Json]:
    """Yield the comments of an issue that are records of a call."""
    comments = issue.get("comments")
    for comment in comments if isinstance(comments, list) else ():
        text = comment if isinstance(comment, str) else string(mapping(comment).get("text"))
        record = decode_object(text.encode("utf-8", "replace")) if text.lstrip().startswith("{") else None
        if record is not None and string(record.get("caller")) in CALLERS and isinstance(record.get("tokens"), dict):
            yield record


def _yaml_fields(data: bytes) -> dict[str, str]:
    """Return the fields of a simple YAML document, nested ones as `outer.inner`. The first of a name counts."""
    fields: dict[str, str] = {}
    outer = ""
    for indent, name, value in FIELD.findall(data):
        text = value.decode("utf-8", "replace").strip("\"'")
        key = name.decode()
        if not indent:
            outer = key
        fields.setdefault(f"{outer}.{key}" if indent else key, text)
    return fields


RECORD_FORMATS: tuple[Format, ...] = (CostReader, EventReader, IssueReader, StatsReader)
