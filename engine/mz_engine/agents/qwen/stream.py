"""Readers of Qwen Code's files: its stream and its JSON array, which resemble those of Claude Code, and its session
log.

There is no money. The totals of a stream include requests that its messages do not show. The log has every request,
those of subagents too; cached tokens are part of the input, and thoughts of the output.
"""

from __future__ import annotations

from mz_events.catalog.call import Usage

from mz_engine.agents.package import AgentPackage, SessionFolders
from mz_engine.agents.reading import records
from mz_engine.agents.reading.anthropic import assistant_texts, tool_uses
from mz_engine.agents.reading.json_lines import Json, mapping, objects, string, strings, time_us, token_count
from mz_engine.agents.reading.records import Reader, Records

VERSION_FIELD = "qwen_code_version"
RESPONSE_EVENT = "qwen-code.api_response"
TOOL_EVENT = "qwen-code.tool_call"
UNREPORTED_FIELDS = ("cache_write_5m", "cache_write_1h")


class StreamReader(Reader):
    name = "qwen-stream"
    agent = "qwen"
    unreported_fields = (*UNREPORTED_FIELDS, "reasoning")

    def read_object(self, event: Json, /) -> Records:
        message = mapping(event.get("message"))
        match event.get("type"):
            case "system":
                yield from self._session_records(event)
            case "assistant":
                yield records.ModelRequest(
                    id=f"qwen:{string(message.get('id'))}",
                    usage=_usage(string(message.get("model")) or self._model, mapping(message.get("usage")), 1),
                )
                yield from tool_uses(message.get("content"))
                if event.get("parent_tool_use_id") is None:
                    yield from assistant_texts(message.get("content"), continues=False)
            case "result":
                yield from self._end_records(event)
            case "user" | "stream_event":
                pass
            case kind:
                yield records.UnknownLine.of_type(kind)

    def _session_records(self, event: Json) -> Records:
        if event.get("subtype") == "init":
            self._session = string(event.get("session_id"))
            self._version, self._model = string(event.get(VERSION_FIELD)), string(event.get("model"))
            self._cwd = string(event.get("cwd"))
            yield self.session_info()

    def _end_records(self, event: Json) -> Records:
        failed = event.get("is_error") is not False or string(event.get("subtype")).startswith("error")
        text, error = event.get("result"), mapping(event.get("error"))
        total = _usage(self._model, mapping(event.get("usage")), None)
        yield records.StreamEnd(
            status="error" if failed else "success",
            text=text if isinstance(text, str) else None,
            cumulative=False,
            usage=(total,) if total.input or total.output else (),
            detail=string(error.get("message")) or "\n".join(strings(event.get("errors"))) if failed else "",
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
                yield from self._text_records(event)
            case "system":
                yield from self._telemetry_records(mapping(mapping(event.get("systemPayload")).get("uiEvent")), at_us)
            case "tool_result":
                pass
            case kind:
                yield records.UnknownLine.of_type(kind)

    def _text_records(self, event: Json) -> Records:
        for part in objects(mapping(event.get("message")).get("parts")):
            if (text := string(part.get("text"))) and part.get("thought") is not True:
                yield records.AssistantText(text=text)

    def _telemetry_records(self, event: Json, at_us: int | None) -> Records:
        if event.get("event.name") == TOOL_EVENT:
            yield records.ToolUse.named(event.get("function_name"), failed=event.get("success") is False)
        if event.get("event.name") != RESPONSE_EVENT:
            return
        self._requests += 1
        yield records.ModelRequest(
            id=f"qwen:{self._session}:{string(event.get('response_id')) or self._requests}",
            usage=Usage(
                model=string(event.get("model")),
                input=token_count(event, "input_token_count"),
                output=token_count(event, "output_token_count"),
                cache_read=token_count(event, "cached_content_token_count"),
                reasoning=token_count(event, "thoughts_token_count"),
                requests=1,
                subagent=string(event.get("subagent_name")),
            ),
            at_us=at_us,
        )

    @staticmethod
    def matches(event: dict[str, object]) -> bool:
        if not isinstance(event.get("sessionId"), str) or "parentUuid" not in event:
            return False
        parts = mapping(event.get("message")).get("parts")
        return isinstance(parts, list) or isinstance(event.get("systemPayload"), dict)


def _usage(model: str, numbers: Json, requests: int | None) -> Usage:
    input_tokens, output = token_count(numbers, "input_tokens"), token_count(numbers, "output_tokens")
    read = token_count(numbers, "cache_read_input_tokens")
    return Usage(model=model, input=max(input_tokens, read), output=output, cache_read=read, requests=requests)


AGENT = AgentPackage(
    name="qwen",
    title="Qwen Code",
    formats=(StreamReader, SessionReader),
    session_folders=SessionFolders(variables=("QWEN_RUNTIME_DIR", "QWEN_HOME"), default=".qwen", folders=("projects",)),
)
