"""Reader of the output of `opencode run --format json`: a line for each part of a message.

Tokens and money are in `step_finish`, one for each request to a model; input excludes cached tokens, output excludes
reasoning. No line names the model or the program's version, and none ends the call: the last step does. After the
reason `unknown` some versions end without an error, and others go on; `length` may end a call without a reply.
"""

from __future__ import annotations

from typing import Literal

from mz_events.catalog.call import Usage

from mz_engine.agents.package import AgentPackage
from mz_engine.agents.reading import records
from mz_engine.agents.reading.json_lines import Json, mapping, nanousd, string, token_count
from mz_engine.agents.reading.records import Reader, Records

PART_TYPES = frozenset({"step_start", "text", "tool_use", "step_finish", "reasoning"})
COST_NAME = "nanousd"
CONTINUES = "tool-calls"
"""Reason of a step that another one follows."""
FINISHED = ("", "stop")
"""Reasons of the last step of a complete reply; some versions give none."""
US_PER_MS = 1000
MS_MAX = 10**14
"""Some three thousand years; larger numbers are not times."""


class StreamReader(Reader):
    name = "opencode-stream"
    agent = "opencode"
    unreported_fields = ("cache_write_1h",)

    def read_object(self, event: Json, /) -> Records:
        at_us = _time_us(event.get("timestamp"))
        session, part = string(event.get("sessionID")), mapping(event.get("part"))
        if session and session != self._session:
            self._session = session
            yield self.session_info(at_us)
        match event.get("type"):
            case "text":
                yield records.AssistantText(text=string(part.get("text")))
            case "tool_use":
                failed = mapping(part.get("state")).get("status") == "error"
                yield records.ToolUse.named(part.get("tool"), part.get("callID"), failed=failed)
            case "step_finish":
                yield from self._step_records(part, at_us)
            case "error":
                error = mapping(event.get("error"))
                detail = string(mapping(error.get("data")).get("message")) or string(error.get("name"))
                yield self._end("error", detail)
            case "step_start" | "reasoning":
                pass
            case kind:
                yield records.UnknownLine.of_type(kind)

    def _step_records(self, part: Json, at_us: int | None) -> Records:
        # opencode writes 0 for a model without a price.
        cost = nanousd(part.get("cost")) or None
        self._names[COST_NAME] = str(int(self._names.get(COST_NAME, 0)) + (cost or 0))
        yield records.ModelRequest(
            id=f"opencode:{string(part.get('id'))}",
            usage=_usage(mapping(part.get("tokens"))),
            at_us=at_us,
            reported_nanousd=cost,
        )
        reason = string(part.get("reason"))
        if reason != CONTINUES:
            yield self._end("success" if reason in FINISHED else "error", reason)

    def _end(self, status: Literal["success", "error"], detail: str) -> records.StreamEnd:
        """Return an end with the cost of all steps since the end before."""
        amount = int(self._names.pop(COST_NAME, 0)) or None
        return records.StreamEnd(status=status, reported_nanousd=amount, cumulative=False, detail=detail)

    @staticmethod
    def matches(event: dict[str, object]) -> bool:
        if not isinstance(event.get("sessionID"), str) or _time_us(event.get("timestamp")) is None:
            return False
        if event.get("type") == "error":
            return isinstance(event.get("error"), dict)
        return string(event.get("type")) in PART_TYPES and isinstance(event.get("part"), dict)


def _usage(tokens: Json) -> Usage:
    cache = mapping(tokens.get("cache"))
    read, written = token_count(cache, "read"), token_count(cache, "write")
    reasoning = token_count(tokens, "reasoning")
    return Usage(
        model="",
        input=token_count(tokens, "input") + read + written,
        output=token_count(tokens, "output") + reasoning,
        cache_read=read,
        cache_write_5m=written,
        reasoning=reasoning,
    )


def _time_us(value: object) -> int | None:
    return value * US_PER_MS if type(value) is int and 0 <= value <= MS_MAX else None


AGENT = AgentPackage(name="opencode", tested_version="1.18.33", formats=(StreamReader,))
