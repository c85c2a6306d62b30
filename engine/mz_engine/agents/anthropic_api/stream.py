"""Reader of the output of `mz-anthropic` (`mz_engine.agents.anthropic_api.model` defines the lines); accepts any bytes.

The last `end` decides how a call ended, never the exit code. Every request is reported with its model and tokens, as
the API counted them, including aborted ones; there are no times and no money. A stream is one call: a call that
continues a session reports only its own requests.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from mz_engine.agents.package import ODD_VALUES, STATUSES, AgentPackage, StreamDialect, json_line, last_event
from mz_engine.agents.reading import records
from mz_engine.agents.reading.anthropic import has_cache_lifetimes, request_usage
from mz_engine.agents.reading.json_lines import Json, count, decode_lines, has_types, mapping, session_id, string
from mz_engine.agents.reading.records import REPORTS_FIELD, Reader, ReaderState, Records
from mz_engine.ports import COUNT_MAX

IGNORED_TYPES = frozenset({"tool_result", "retry", "progress", "note", "count"})
"""Types of lines that are ignored."""
ID_CHARACTERS = 16
WAIT_SECONDS_MAX = 10**8
"""Three years; larger numbers are ignored."""


def read_count(stdout: bytes) -> int | None:
    """Return the count printed by `mz-anthropic --count`; None if missing or out of range."""
    counts = [count(line.get("input_tokens")) for line in decode_lines(stdout) if line and line.get("type") == "count"]
    tokens = counts[-1] if counts else None
    return tokens if tokens and tokens <= COUNT_MAX else None


class StreamReader(Reader):
    name = "anthropic-stream"
    agent = "anthropic"
    unreported_fields = ("reasoning",)

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._line = b""

    def read(self, data: bytes) -> Records:
        self._line = data
        return super().read(data)

    def read_object(self, event: Json, /) -> Records:
        match string(event.get("type")):
            case "start":
                self._session = session_id(event.get("session")) or self._session
                self._model = string(event.get("model")) or self._model
                version = string(event.get("version"))
                yield records.SessionInfo(session=self._session, version=version, model=self._model)
            case "text":
                yield records.AssistantText(text=string(event.get("text")))
            case "tool":
                yield records.ToolUse.named(event.get("name"), event.get("id"))
            case "request":
                yield from self._request_records(event)
            case "end":
                yield _stream_end(event)
            case kind if kind not in IGNORED_TYPES:
                yield records.UnknownLine.of_type(kind)

    def _request_records(self, event: Json) -> Records:
        token_counts = mapping(event.get("usage"))
        usage = request_usage(string(event.get("model")) or self._model, token_counts)
        if not (usage.input or usage.output):
            return
        self._requests += 1
        if not has_cache_lifetimes(token_counts):
            yield records.Note(code="cache-lifetime")
        if "output_tokens_details" in token_counts:
            yield records.Note(code=f"{REPORTS_FIELD}reasoning")
        # Some gateways give replies no id.
        request_id = (
            string(event.get("id")) or f"{self._requests}:{hashlib.sha256(self._line).hexdigest()[:ID_CHARACTERS]}"
        )
        yield records.ModelRequest(id=f"{self._session}:{request_id}", usage=usage)

    @staticmethod
    def matches(event: dict[str, object]) -> bool:
        return has_types(event, LINE_TYPES)


def _stream_end(event: Json) -> records.StreamEnd:
    error = mapping(event.get("error"))
    succeeded = event.get("status") == "success" and event.get("error") is None
    return records.StreamEnd(
        status="success" if succeeded else "error",
        text=string(event.get("text")) or None,
        cumulative=False,
        detail=string(error.get("message")),
        stop_reasons=tuple(filter(None, (string(error.get("kind")),))),
        http_status=count(error.get("status")),
        retry_after_seconds=_to_wait_seconds(error.get("retry_after_seconds")),
    )


def _to_wait_seconds(value: object) -> int | None:
    """Convert a wait to whole seconds, rounded up."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 < value <= WAIT_SECONDS_MAX:
        return None
    return math.ceil(value)


LINE_TYPES: Mapping[str, Mapping[str, type]] = {
    "start": {"session": str, "model": str, "version": str},
    "request": {"id": str, "model": str, "usage": dict},
    "tool": {"id": str, "name": str, "input": dict},
    "tool_result": {"failed": bool, "characters": int},
    "retry": {"attempt": int, "error": dict},
    "end": {"status": str, "text": str, "requests": int},
}
"""Lines with only a text could be any agent's."""


# the agent -----------------------------------------------------------------------------------------------------------
def endings(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """An end has status `success` or `error`, with the API's error."""
    for status in STATUSES:
        error = {"kind": "api", "status": status, "message": "something went wrong"}
        yield f"error-{status}", json_line({**last, "status": "error", "error": error}), 1
        yield f"success-with-{status}", json_line({**last, "error": error}), 0
    for name, kind, text in (
        ("disconnected", "connection_error", "connection error: peer closed connection"),
        ("turns", "max_turns", "the model had not finished after 50 requests"),
    ):
        yield name, json_line({**last, "status": "error", "error": {"kind": kind, "message": text}}), 1
    for odd_value in (None, *ODD_VALUES):
        yield f"status-{odd_value!r}", json_line({**last, "status": odd_value}), 0
    yield "no-status", json_line({key: value for key, value in last.items() if key != "status"}), 0
    yield "in-words", json_line({"type": "text", "text": str(last)}), 0


def blocked_lines(last: dict[str, Any], text: str) -> tuple[Mapping[str, Any], ...]:
    return ({**last, "text": text},)


def succeeds(stdout: bytes, stderr: bytes) -> bool:
    last = last_event(stdout, "end")
    return last.get("status") == "success" and last.get("error") is None


AGENT = AgentPackage(
    name="anthropic",
    folder="anthropic_api",
    adapter="adapter:AnthropicApi",
    formats=(StreamReader,),
    stdout_endings=endings,
    success_check=succeeds,
    fault_endings={
        "rate-limit": "error-429",
        "overloaded": "error-529",
        "auth-failure": "error-401",
        "lost-connection": "disconnected",
        "turn-limit": "turns",
    },
    blocked_lines=blocked_lines,
    dialect=StreamDialect(
        name_fields=("type",),
        final_events=("end",),
        opaque=("tool:input",),
        skipped_events=(*sorted(IGNORED_TYPES), "tool"),
    ),
)
