"""Reader of the output of `opencode run --format json`: a line for each part of a message.

Tokens and money are in `step_finish`, one for each request to a model; input excludes cached tokens, output excludes
reasoning. No line names the model or the program's version, and none ends the call: the last step does.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace
from mz_events.catalog.call import Usage

from mz_engine.agents.package import AgentPackage
from mz_engine.agents.reading.json_lines import Json, mapping, nanousd, string, token_count
from mz_engine.agents.reading.records import (
    AssistantText,
    Format,
    ModelRequest,
    Reader,
    ReaderState,
    StreamEnd,
    ToolUse,
    TranscriptRecord,
    UnknownLine,
)

PART_TYPES = frozenset({"step_start", "text", "tool_use", "step_finish", "reasoning"})
COST_NAME = "nanousd"
CONTINUES = "tool-calls"
"""Reason of a step that another one follows."""
US_PER_MS = 1000
MS_MAX = 10**14
"""Some three thousand years; larger numbers are not times."""


class StreamReader(Reader):
    format = "opencode-stream"
    agent = "opencode"

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._nanousd = sum(int(value) for name, value in state.names if name == COST_NAME and value.isdigit())
        """Cost since the last end."""

    def state(self) -> ReaderState:
        return replace(super().state(), names=((COST_NAME, str(self._nanousd)),) if self._nanousd else ())

    def read_object(self, event: Json, /) -> Iterator[TranscriptRecord]:
        at_us = _time_us(event.get("timestamp"))
        session, part = string(event.get("sessionID")), mapping(event.get("part"))
        if session and session != self._session:
            self._session = session
            yield self.session_info(at_us)
        match event.get("type"):
            case "text":
                yield AssistantText(text=string(part.get("text")))
            case "tool_use":
                failed = mapping(part.get("state")).get("status") == "error"
                yield ToolUse.named(part.get("tool"), part.get("callID"), failed=failed)
            case "step_finish":
                yield from self._step_records(part, at_us)
            case "error":
                error = mapping(event.get("error"))
                detail = string(mapping(error.get("data")).get("message")) or string(error.get("name"))
                yield StreamEnd(status="error", detail=detail)
            case "step_start" | "reasoning":
                pass
            case kind:
                yield UnknownLine.of_type(kind)

    def _step_records(self, part: Json, at_us: int | None) -> Iterator[TranscriptRecord]:
        # opencode writes 0 for a model without a price.
        cost = nanousd(part.get("cost")) or None
        self._nanousd += cost or 0
        yield ModelRequest(
            id=f"opencode:{string(part.get('id'))}",
            usage=_usage(mapping(part.get("tokens"))),
            at_us=at_us,
            reported_nanousd=cost,
        )
        if part.get("reason") != CONTINUES:
            cost_nanousd, self._nanousd = self._nanousd or None, 0
            detail = string(part.get("reason"))
            yield StreamEnd(status="success", reported_nanousd=cost_nanousd, cumulative=False, detail=detail)


def _usage(tokens: Json) -> Usage:
    cache = mapping(tokens.get("cache"))
    read, written = token_count(cache, "read"), token_count(cache, "write")
    reasoning = token_count(tokens, "reasoning")
    return Usage(
        model="",
        input=(token_count(tokens, "input")) + read + written,
        output=(token_count(tokens, "output")) + reasoning,
        cache_read=read,
        cache_write_5m=written,
        reasoning=reasoning,
    )


def _time_us(value: object) -> int | None:
    return value * US_PER_MS if type(value) is int and 0 <= value <= MS_MAX else None


def _matches(event: dict[str, object]) -> bool:
    if not isinstance(event.get("sessionID"), str) or _time_us(event.get("timestamp")) is None:
        return False
    kind = event.get("type")
    return (
        isinstance(event.get("error"), dict)
        if kind == "error"
        else kind in PART_TYPES and isinstance(event.get("part"), dict)
    )


FORMATS: tuple[Format, ...] = (Format(matches=_matches, reader=StreamReader, unreported_fields=("cache_write_1h",)),)
AGENT = AgentPackage(name="opencode", formats=FORMATS)
