"""Readers of Qwen Code's files: its stream and its JSON array, which resemble those of Claude Code, and its session
log.

There is no money. The totals of a stream include requests that its messages do not show; of the messages of one request
one has its tokens. The log has every request, those of subagents too; cached tokens are part of the input, and thoughts
of the output. Stream and log have no common id of a request: its session and tokens identify it.
"""

from __future__ import annotations

import re

from mz_events.catalog.call import Usage

from mz_engine.agents.package import AgentPackage, SessionFolders, StreamDialect, names
from mz_engine.agents.reading import records
from mz_engine.agents.reading.anthropic import assistant_texts, tool_uses
from mz_engine.agents.reading.json_lines import Json, mapping, objects, string, strings, time_us, token_count
from mz_engine.agents.reading.records import Reader, Records

VERSION_FIELD = "qwen_code_version"
RESPONSE_EVENT = "qwen-code.api_response"
TOOL_EVENT = "qwen-code.tool_call"
API_ERROR = re.compile(r"(?:^|\n)\[API Error: .*\]\s*\Z")
"""End of a text that reports a failed request, also where the result calls itself a success."""
UNREPORTED_FIELDS = ("cache_write_5m", "cache_write_1h")


class StreamReader(Reader):
    name = "qwen-stream"
    agent = "qwen"
    unreported_fields = (*UNREPORTED_FIELDS, "reasoning")

    def read_object(self, event: Json, /) -> Records:
        message = mapping(event.get("message"))
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                self._session = string(event.get("session_id"))
                self._version, self._model = string(event.get(VERSION_FIELD)), string(event.get("model"))
                self._cwd = string(event.get("cwd"))
                yield self.session_info()
            case "assistant":
                self._session = string(event.get("session_id")) or self._session
                self._model = self._model or string(message.get("model"))
                usage = _usage(string(message.get("model")) or self._model, mapping(message.get("usage")), 1)
                if usage.input or usage.output:
                    yield records.ModelRequest(id=_request_id(self._session, usage), usage=usage)
                yield from tool_uses(message.get("content"))
                if event.get("parent_tool_use_id") is None:
                    yield from assistant_texts(message.get("content"), continues=False)
            case "result":
                yield from self._end_records(event)
            case "system" | "user" | "stream_event":
                pass
            case kind:
                yield records.UnknownLine.of_type(kind)

    def _end_records(self, event: Json) -> Records:
        text, error = event.get("result"), mapping(event.get("error"))
        refusal = API_ERROR.search(string(text))
        details = (string(error.get("message")), *strings(event.get("errors")), refusal[0].strip() if refusal else "")
        failed = event.get("is_error") is not False or string(event.get("subtype")).startswith("error") or bool(refusal)
        total = _usage(self._model, mapping(event.get("usage")), None)
        yield records.StreamEnd(
            id=string(event.get("uuid")),
            status="error" if failed else "success",
            text=text if isinstance(text, str) else None,
            cumulative=False,
            usage=(total,) if total.input or total.output else (),
            detail="\n".join(filter(None, details)) if failed else "",
        )

    @staticmethod
    def matches(event: dict[str, object]) -> bool:
        """Match the first line; the others could be of Claude Code too."""
        return event.get("type") == "system" and VERSION_FIELD in event


class SessionReader(Reader):
    """Reader of `~/.qwen/projects/*/chats/*.jsonl`."""

    name = "qwen-session"
    agent = "qwen"
    unreported_fields = UNREPORTED_FIELDS
    is_session_log = True

    def read_object(self, event: Json, /) -> Records:
        at_us, session = time_us(event.get("timestamp")), string(event.get("sessionId"))
        if session and session != self._session:
            self._session, self._version, self._cwd = session, string(event.get("version")), string(event.get("cwd"))
            yield self.session_info(at_us)
        match event.get("type"):
            case "user":
                yield records.UserPrompt(at_us=at_us)
            case "assistant":
                for part in objects(mapping(event.get("message")).get("parts")):
                    if (text := string(part.get("text"))) and part.get("thought") is not True:
                        yield records.AssistantText(text=text)
            case "system":
                yield from self._telemetry_records(mapping(mapping(event.get("systemPayload")).get("uiEvent")), at_us)
            case "tool_result":
                pass
            case kind:
                yield records.UnknownLine.of_type(kind)

    def _telemetry_records(self, event: Json, at_us: int | None) -> Records:
        if event.get("event.name") == TOOL_EVENT:
            yield records.ToolUse.named(event.get("function_name"), failed=event.get("success") is False)
        if event.get("event.name") != RESPONSE_EVENT:
            return
        usage = Usage(
            model=string(event.get("model")),
            input=token_count(event, "input_token_count"),
            output=token_count(event, "output_token_count"),
            cache_read=token_count(event, "cached_content_token_count"),
            reasoning=token_count(event, "thoughts_token_count"),
            requests=1,
            subagent=string(event.get("subagent_name")),
        )
        yield records.ModelRequest(id=_request_id(self._session, usage), usage=usage, at_us=at_us)

    @staticmethod
    def matches(event: dict[str, object]) -> bool:
        if not isinstance(event.get("sessionId"), str) or "parentUuid" not in event:
            return False
        parts = mapping(event.get("message")).get("parts")
        return isinstance(parts, list) or isinstance(event.get("systemPayload"), dict)


def _request_id(session: str, usage: Usage) -> str:
    return f"qwen:{session}:{usage.input}:{usage.output}:{usage.cache_read}"


def _usage(model: str, numbers: Json, requests: int | None) -> Usage:
    input_tokens, output = token_count(numbers, "input_tokens"), token_count(numbers, "output_tokens")
    read = token_count(numbers, "cache_read_input_tokens")
    return Usage(model=model, input=max(input_tokens, read), output=output, cache_read=read, requests=requests)


AGENT = AgentPackage(
    name="qwen",
    tested_version="0.24.4",
    title="Qwen Code",
    formats=(StreamReader, SessionReader),
    session_folders=SessionFolders(variables=("QWEN_RUNTIME_DIR", "QWEN_HOME"), default=".qwen", folders=("projects",)),
    dialect=StreamDialect(
        final_events=("result",),
        opaque=names("""
            assistant:message.content[tool_use].input user:message.content[tool_result].content stream_event:event
        """),
        skipped_events=("user", "stream_event"),
    ),
)
