"""Readers of Claude Code's files: its streams (`claude -p --output-format stream-json`, and `json`, one object or an
array), and its session logs (`~/.claude/projects/**/*.jsonl`), including those of subagents. Accept any bytes.

The last `result` of a stream decides how the call ended, never the exit code. A log has no end: the last text is the
final one.

In a stream, output tokens of messages are those at their start: the totals of the `result` count, unless partial
messages report the end of each. Money and `modelUsage` include the earlier results of the same process, and since 2.1.3
also the session's cost before it was resumed; in that case `model_usage_since_last_result` holds the difference, and
that counts.

A log has one line per content block, so several lines have the same message id; the one with the most tokens counts.
Lines of subagents are in files of their own, in older versions among the others (`isSidechain`), or inside progress
lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.usage import sum_all

from mz_engine.agents import package
from mz_engine.agents.package import json_line, names
from mz_engine.agents.reading import records
from mz_engine.agents.reading.anthropic import (
    assistant_texts,
    has_cache_lifetimes,
    has_tool_result,
    model_usage,
    request_usage,
    tool_uses,
)
from mz_engine.agents.reading.json_lines import (
    Json,
    count,
    decode_object,
    mapping,
    nanousd,
    objects,
    string,
    strings,
    time_us,
)
from mz_engine.agents.reading.records import REPORTS_FIELD, UNNAMED_SUBAGENT, Reader, ReaderState, Records

REPORTS_REASONING = f"{REPORTS_FIELD}reasoning"
SYNTHETIC_MODEL = "<synthetic>"
"""Model name of messages by the program itself."""
UNIQUE_ID = re.compile(r"(?:msg_|chatcmpl-|resp_|gen-)?[A-Za-z0-9_-]{20,}")
"""Ids as the API generates them, unique everywhere. Gateways make shorter ones, which may repeat."""


class MessageReader(Reader):
    """Base class of the readers of streams and of session logs."""

    agent = "claude-code"
    unreported_fields = ("reasoning",)

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._last_request: tuple[str, str, Json] = ("", "", {})
        """The newest request: most lines repeat that of the line before."""
        self._last_text_id = ""
        """Id of the last message with text."""

    def _request_id(self, message_id: str, line: Json) -> str:
        """Return the id of a request, equal in the stream and in every session log that has the message, including
        copies in branched sessions."""
        if not message_id:
            return f"{self._session}:{string(line.get('uuid'))}"
        if UNIQUE_ID.fullmatch(message_id):
            return message_id
        return f"{string(line.get('requestId')) or string(line.get('request_id')) or self._session}:{message_id}"

    def _request_records(
        self, message: Json, token_counts: Json, line: Json, subagent: str
    ) -> Sequence[records.TranscriptRecord]:
        """Return the request of a message, unless the line before reported the same, as most lines do."""
        message_id = string(message.get("id"))
        request = (message_id, subagent, token_counts)
        if request == self._last_request and "costUSD" not in line:
            return ()
        self._last_request = request
        self._requests += 1
        notes = [] if has_cache_lifetimes(token_counts) else [records.Note(code="cache-lifetime")]
        if "thinking_tokens" in mapping(token_counts.get("output_tokens_details")):
            notes.append(records.Note(code=REPORTS_REASONING))
        paid = records.ModelRequest(
            id=self._request_id(message_id, line),
            usage=request_usage(string(message.get("model")), token_counts, subagent),
            at_us=time_us(line.get("timestamp")),
            # Copies in a resumed session have cost 0.
            reported_nanousd=nanousd(line["costUSD"]) or None if "costUSD" in line else None,
        )
        return (*notes, paid)

    def _text_records(self, message: Json) -> Records:
        """Yield the text of a message. Messages by the program itself, such as API errors, continue none."""
        text_id = "" if message.get("model") == SYNTHETIC_MODEL else string(message.get("id"))
        yield from assistant_texts(message.get("content"), continues=bool(text_id) and text_id == self._last_text_id)
        self._last_text_id = text_id


# streams --------------------------------------------------------------------------------------------------------------
IGNORED_EVENTS = names("""
    rate_limit_event control_request control_response control_cancel_request keep_alive tool_progress auth_status
    tool_use_summary prompt_suggestion
""")
"""Types of lines without tokens, tools or text."""
SUBAGENT_TOOLS = frozenset({"Task", "Agent"})
LIFETIME_FIELD = "cacheCreationEphemeral1hInputTokens"
STARTED_PREFIX = "begun:"
"""Prefix of messages among the names of the reader state."""
STEADY_WAIT_MS = 1000
"""The API asks for whole seconds; the agent's own delays have a random part, in 2.1.330 those of the API too."""
BACKOFF_MS_MAX, ATTEMPTS_MAX = 625, 10
"""The agent's own longest delay at the first attempt, which doubles with each; longer ones are the API's."""
ANY_API_ERROR = "api_error"
"""Terminal reason of every API error in 2.1.330, refused logins included; the status tells them apart."""
WAIT_MS_MAX = 10**10
"""About four months; beyond it the number is noise."""


class StreamReader(MessageReader):
    name = "claude-stream"

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._error = records.ErrorReported()

    def read_object(self, event: Json, /) -> Records:
        yield from self._session_records(event)
        match event.get("type"):
            case "assistant":
                yield from self._message_records(event)
            case "result":
                yield from self._end_records(event)
            case "stream_event":
                yield from self._partial_message_records(event)
            case "user":
                is_result = has_tool_result(mapping(event.get("message")).get("content"))
                if not (is_result or event.get("parent_tool_use_id") or event.get("isSynthetic")):
                    yield records.UserPrompt(at_us=time_us(event.get("timestamp")))
            case "system" if event.get("subtype") == "api_retry":
                yield self._changed_error(retry_after_seconds=_requested_wait_seconds(event))
            case "system":
                pass
            case kind if string(kind) not in IGNORED_EVENTS:
                yield records.UnknownLine.of_type(kind)

    def _session_records(self, event: Json) -> Records:
        is_init = event.get("type") == "system" and event.get("subtype") == "init"
        session = string(event.get("session_id")) or self._session
        if not is_init and session == self._session:
            return
        if is_init:
            self._version = string(event.get("claude_code_version")) or self._version
            self._model = string(event.get("model")) or self._model
            self._cwd = string(event.get("cwd")) or self._cwd
        self._session = session
        yield self.session_info(time_us(event.get("timestamp")))

    def _changed_error(self, **changes: object) -> records.ErrorReported:
        self._error = replace(self._error, **changes)
        return self._error

    # messages ---------------------------------------------------------------------------------------------------------
    def _message_records(self, event: Json) -> Records:
        message, error = mapping(event.get("message")), string(event.get("error"))
        if error != self._error.reason:
            yield self._changed_error(reason=error)
        parent = string(event.get("parent_tool_use_id"))
        yield from self._message_request(message, mapping(message.get("usage")), event, parent)
        for block in objects(message.get("content")):
            call_id = string(block.get("id"))
            if call_id and string(block.get("name")) in SUBAGENT_TOOLS:
                name = string(mapping(block.get("input")).get("subagent_type"))
                self._names[call_id] = name or UNNAMED_SUBAGENT
        yield from tool_uses(message.get("content"))
        if not parent:
            yield from self._text_records(message)

    def _message_request(self, message: Json, token_counts: Json, event: Json, parent: str) -> Records:
        message_id, model = string(message.get("id")), string(message.get("model"))
        if not message_id or not model or model == SYNTHETIC_MODEL:
            return
        if not token_counts:
            yield records.RequestStarted(id=self._request_id(message_id, event), model=model)
            return
        name = string(event.get("subagent_type")) or self._names.get(parent, UNNAMED_SUBAGENT)
        yield from self._request_records(message, token_counts, event, name if parent else "")

    def _partial_message_records(self, event: Json) -> Records:
        """Combine the usage of a message's start and end."""
        inner, parent = mapping(event.get("event")), string(event.get("parent_tool_use_id"))
        name = f"{STARTED_PREFIX}{parent}"
        if inner.get("type") == "message_start":
            message = mapping(inner.get("message"))
            fields = {key: message[key] for key in ("id", "model", "usage") if key in message}
            self._names[name] = msgspec.json.encode(fields).decode("utf-8", "replace")
        elif inner.get("type") == "message_delta" and name in self._names:
            message = decode_object(self._names.pop(name).encode()) or {}
            final_counts = {name: number for name, number in mapping(inner.get("usage")).items() if number is not None}
            token_counts = {**mapping(message.get("usage")), **final_counts}
            yield from self._message_request(message, token_counts, event, parent)

    # ends -------------------------------------------------------------------------------------------------------------
    def _end_records(self, event: Json) -> Records:
        usage_since_last = event.get("model_usage_since_last_result")
        is_incremental = isinstance(usage_since_last, dict)
        sums = mapping(usage_since_last if is_incremental else event.get("modelUsage"))
        if not sums and not is_incremental and _reported_cost(event):
            yield records.Note(code="main-thread")
            if any(not name.startswith(STARTED_PREFIX) for name in self._names):
                yield records.Note(code="sub-agents-short")
        if any("thinkingTokens" in mapping(numbers) for numbers in sums.values()):
            yield records.Note(code=REPORTS_REASONING)
        costs = (nanousd(mapping(numbers).get("costUSD")) for numbers in sums.values())
        text, errors, status = event.get("result"), strings(event.get("errors")), status_of(event)
        stops = string(event.get("terminal_reason")), string(event.get("subtype"))
        turn = replace(request_usage(self._model, mapping(event.get("usage"))), requests=None)
        has_turn, duration = bool(turn.input or turn.output), count(event.get("duration_ms"))
        # The turn's own usage lacks side models and subagents, so it counts only without totals and messages.
        is_total = has_turn and not is_incremental and not self._requests
        usages, has_lifetimes = _usage_by_model(sums, mapping(event.get("usage")))
        yield records.StreamEnd(
            id=string(event.get("uuid")) or (f"{duration}-{_reported_cost(event)}" if duration else ""),
            status=status,
            text=text if isinstance(text, str) else None,
            reported_nanousd=sum_all((0, *costs)) if is_incremental else _reported_cost(event),
            cumulative=not is_incremental,
            usage=self._with_requests(event, usages) or ((turn,) if is_total else ()),
            has_cache_lifetimes=has_lifetimes,
            turn_usage=turn if has_turn else None,
            detail="" if status == "success" else "\n".join([*errors, string(text)]).strip(),
            stop_reasons=tuple(name for name in stops if name not in ("", ANY_API_ERROR)),
            http_status=count(event.get("api_error_status")),
        )

    def _with_requests(self, event: Json, usages: Sequence[Usage]) -> tuple[Usage, ...]:
        """Return the totals by model. If there are no messages, the turns are the requests of the model with the most
        tokens."""
        turns = None if self._requests else count(event.get("num_turns"))
        main = max(usages, key=lambda usage: usage.input + usage.output, default=None)
        return tuple(replace(usage, requests=turns) if turns and usage is main else usage for usage in usages)

    @staticmethod
    def matches(event: dict[str, object]) -> bool:
        """`qwen_code_version` marks Qwen Code, which writes the same lines."""
        if not isinstance(event.get("session_id"), str) or "qwen_code_version" in event:
            return False
        match event.get("type"):
            case "system":
                return isinstance(event.get("subtype"), str) and ("uuid" in event or "mcp_servers" in event)
            case "assistant" | "user":
                return "role" in mapping(event.get("message")) and "sessionId" not in event
            case "result":
                return "num_turns" in event or count(event.get("duration_ms")) is not None
            case "stream_event":
                return isinstance(event.get("event"), dict)
            case kind:
                return string(kind) in IGNORED_EVENTS


def status_of(result: Json) -> Literal["success", "error"]:
    """Return the status by `is_error` and by subtypes that name an error; the subtype `success` proves nothing."""
    failed, subtype = result.get("is_error"), string(result.get("subtype"))
    if failed is None:
        return "success" if subtype == "success" else "error"
    return "success" if failed is False and not subtype.startswith("error") else "error"


def _requested_wait_seconds(event: Json) -> int | None:
    delay, attempt = event.get("retry_delay_ms"), count(event.get("attempt")) or ATTEMPTS_MAX
    if event.get("error_status") != 429 or isinstance(delay, bool) or not isinstance(delay, int | Decimal):
        return None
    is_own = delay <= BACKOFF_MS_MAX << min(attempt, ATTEMPTS_MAX) - 1
    if not 0 < delay <= WAIT_MS_MAX or (is_own and delay % STEADY_WAIT_MS):
        return None
    return int(delay // STEADY_WAIT_MS)


def _reported_cost(result: Json) -> int | None:
    """Return the cost; the field has other names in early versions, and is a placeholder in some captures."""
    amounts = (nanousd(result.get(name)) for name in ("total_cost_usd", "total_cost", "cost_usd"))
    return next((amount for amount in amounts if amount is not None), None)


def _usage_by_model(models: Json, turn: Json) -> tuple[list[Usage], bool]:
    """Return the usage by model, and True if all lifetimes of cache writes are known. They come from the turn's own
    usage if its total equals the model's."""
    main, usages, has_lifetimes = request_usage("", turn), list[Usage](), True
    for model, numbers in models.items():
        usage = model_usage(model, mapping(numbers))
        is_of_turn = not usage.cache_write_1h and usage.cache_write_5m == main.cache_write_5m + main.cache_write_1h
        if LIFETIME_FIELD not in mapping(numbers) and usage.cache_write_5m:
            has_lifetimes &= is_of_turn and has_cache_lifetimes(turn)
        if is_of_turn:
            usage = replace(usage, cache_write_5m=main.cache_write_5m, cache_write_1h=main.cache_write_1h)
        if usage.input or usage.output:
            usages.append(usage)
    return usages, has_lifetimes


# session logs ---------------------------------------------------------------------------------------------------------
OPEN_MESSAGES_MAX = 100
"""Limit of unfinished messages that are kept by name; parallel subagents have a few."""
OTHER_MESSAGES = "others"
"""Name of all further ones, which never finish."""
IGNORED_LINES = names("""
    system summary attachment queue-operation file-history-snapshot file-history-delta last-prompt mode
    permission-mode custom-title ai-title agent-name agent-color agent-setting tag pr-link worktree-state
    content-replacement task-summary attribution-snapshot speculation-accept bridge-session invoked-skills
    atis-latch tools-used api-request api-request-blob api-request-shape
""")
"""Types of lines without tokens, tools or text."""


class SessionReader(MessageReader):
    name = "claude-session"
    is_session_log = True

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._last_closed_id = ""
        """Id of the newest finished message."""
        self._is_subagent_file: bool | None = None
        """True if the file is a subagent's own, so that its text is that of the conversation."""

    def read_object(self, line: Json, /) -> Records:
        is_sidechain, message = line.get("isSidechain"), mapping(line.get("message"))
        subagent = (string(line.get("agentId")) or UNNAMED_SUBAGENT) if is_sidechain is True else ""
        if "isSidechain" in line:
            self._is_subagent_file = self._is_subagent_file is not False and bool(subagent)
        if info := self._changed_session(line, subagent):
            yield info
        match line.get("type"):
            case "assistant":
                yield from self._paid_request(message, line, subagent)
                yield from tool_uses(message.get("content"))
                if not self.keeps_texts:
                    return
                # Messages by the program itself count only if they are errors.
                is_reply = message.get("model") != SYNTHETIC_MODEL
                if (is_reply or line.get("isApiErrorMessage") is True or "error" in line) and (
                    not subagent or self._is_subagent_file
                ):
                    yield from self._text_records(message)
            case "user":
                # A prompt is neither a tool result nor a message by the program to the model.
                by_program = line.get("isMeta") or line.get("isCompactSummary") or is_sidechain
                if not (by_program or "toolUseResult" in line or has_tool_result(message.get("content"))):
                    yield records.UserPrompt(at_us=time_us(line.get("timestamp")))
            case "progress":
                # A message of a subagent that was shown as progress; the subagent's own log has it too.
                data = mapping(line.get("data"))
                inner = mapping(data.get("message"))
                if inner.get("type") == "assistant":
                    name = string(data.get("agentId")) or UNNAMED_SUBAGENT
                    yield from self._paid_request(mapping(inner.get("message")), inner, name)
            case "cost-state":
                sums = mapping(line.get("modelUsage")).items()
                usages = (model_usage(model, mapping(numbers)) for model, numbers in sums)
                yield records.CostReported(
                    reported_nanousd=None if line.get("hasUnknownModelCost") else nanousd(line.get("totalCostUSD")),
                    usage=tuple(usage for usage in usages if usage.input or usage.output),
                )
            case kind if string(kind) not in IGNORED_LINES:
                yield records.UnknownLine.of_type(kind)

    def _changed_session(self, line: Json, subagent: str) -> records.SessionInfo | None:
        """Return what is known of the session if the line changes it."""
        values = line.get("sessionId"), line.get("version"), line.get("cwd"), subagent
        if values == (self._session, self._version, self._cwd, self._subagent):
            return None  # As most lines.
        session = string(line.get("sessionId")) or self._session
        version, cwd = string(line.get("version")) or self._version, string(line.get("cwd")) or self._cwd
        if (session, version, cwd, subagent) == (self._session, self._version, self._cwd, self._subagent):
            return None
        self._session, self._version, self._cwd, self._subagent = session, version, cwd, subagent
        parent = session if subagent else string(mapping(line.get("forkedFrom")).get("sessionId"))
        return self.session_info(time_us(line.get("timestamp")), parent)

    def _paid_request(self, message: Json, line: Json, subagent: str) -> Sequence[records.TranscriptRecord]:
        """Return the request of a message. Some versions write a message when it begins, with a token or two, and never
        its end; messages of parallel subagents are interleaved."""
        token_counts, message_id = mapping(message.get("usage")), string(message.get("id"))
        if not token_counts or message.get("model") == SYNTHETIC_MODEL:
            return ()
        if message.get("stop_reason") is not None:
            self._last_closed_id = message_id
            self._open.pop(message_id, None)
        elif message_id and message_id != self._last_closed_id:
            self._open[message_id if len(self._open) < OPEN_MESSAGES_MAX else OTHER_MESSAGES] = None
        return self._request_records(message, token_counts, line, subagent)

    @staticmethod
    def matches(line: dict[str, object]) -> bool:
        """Return True if the line can only be of such a log. Other programs copy the format, but their messages have
        `parts`."""
        kind, message = line.get("type"), line.get("message")
        if kind == "summary":
            return "leafUuid" in line
        if kind == "file-history-snapshot":
            return "snapshot" in line and "messageId" in line
        if not isinstance(line.get("sessionId"), str) or not isinstance(kind, str):
            return False
        if kind in ("user", "assistant"):
            return "uuid" in line and isinstance(message, dict) and "parts" not in message
        if kind in ("system", "attachment", "progress"):
            return "uuid" in line and "parentUuid" in line and "userType" in line
        return kind in IGNORED_LINES or kind == "cost-state"


# the agent -----------------------------------------------------------------------------------------------------------
def endings(last: dict[str, Any]) -> Iterator[tuple[str, bytes, int]]:
    """API errors have the subtype `success` and `is_error`; errors of the run have `errors` instead of `result`, where
    some versions set `is_error` to false."""
    for subtype in ("error_max_turns", "error_during_execution", "error_max_budget_usd",
                    "error_max_structured_output_retries"):  # fmt: skip
        error = {key: value for key, value in last.items() if key != "result"} | {"subtype": subtype, "errors": ["no"]}
        yield subtype, json_line({**error, "is_error": True}), 1
        yield f"{subtype}-not-is_error", json_line({**error, "is_error": False}), 0
        yield f"{subtype}-without-is_error", json_line({k: v for k, v in error.items() if k != "is_error"}), 1
    for status in (None, *package.STATUSES):
        text = f"API Error: {status or 'something'} went wrong"
        api_error = {**last, "is_error": True, "api_error_status": status, "result": text}
        yield f"api-error-{status}", json_line(api_error), 1
    for odd_value in package.ODD_VALUES:
        yield f"is_error-{odd_value!r}", json_line({**last, "is_error": odd_value}), 0
    yield "no-subtype", json_line({k: v for k, v in last.items() if k not in ("subtype", "is_error")}), 0
    yield "all-null", json_line(dict.fromkeys(last) | {"type": "result"}), 0
    in_words = {"type": "assistant", "message": {"content": [{"type": "text", "text": str(last)}]}}
    yield "result-in-words", json_line(in_words), 0


def succeeds(stdout: bytes, stderr: bytes) -> bool:
    last = package.last_event(stdout, "result")
    failed, subtype = last.get("is_error"), last.get("subtype")
    if failed is None:
        return subtype == "success"
    return failed is False and not str(subtype).startswith("error")


AGENT = package.AgentPackage(
    name="claude-code",
    title="Claude Code",
    tested_version="2.1.330",
    folder="claude_code",
    adapter="adapter:ClaudeCode",
    formats=(StreamReader, SessionReader),
    session_folders=package.SessionFolders(variables=("CLAUDE_CONFIG_DIR",), default=".claude", folders=("projects",)),
    stdout_endings=endings,
    success_check=succeeds,
    dialect=package.StreamDialect(
        final_events=("result",),
        later_events=names("""
            system/background_tasks_changed system/task_started system/task_progress system/task_updated
            system/task_notification
        """),
        opaque=names("""
            assistant:message.content[tool_use].input user:message.content[tool_result].content user:tool_use_result
            result/success:structured_output stream_event:event
        """),
        maps=("*:modelUsage",),
        skipped_events=names("""
            user stream_event rate_limit_event system/status system/hook_started system/hook_response
            system/background_tasks_changed system/thinking_tokens
            system/task_started system/task_progress system/task_updated system/task_notification
            system/permission_denied system/compact_boundary
        """),
    ),
)
