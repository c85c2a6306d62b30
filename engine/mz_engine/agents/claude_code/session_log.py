"""Reader of session logs of Claude Code: `~/.claude/projects/**/*.jsonl`, including those of subagents.

One line per content block, so several lines have the same message id; the one with the most tokens counts. Lines of
subagents are in files of their own, in older versions among the others (`isSidechain`), or inside progress lines. A log
has no end: the last text is the final one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from mz_engine.agents.claude_code.lines import SYNTHETIC_MODEL, MessageReader, has_tool_result, tool_uses
from mz_engine.agents.reading.anthropic_usage import model_usage
from mz_engine.agents.reading.json_lines import Json, mapping, nanousd, string, time_us
from mz_engine.agents.reading.records import (
    UNNAMED_SUBAGENT,
    CostReported,
    Format,
    ReaderState,
    SessionInfo,
    TranscriptRecord,
    UnknownLine,
    UserPrompt,
)

OPEN_MESSAGES_MAX = 100
"""Limit of unfinished messages that are kept by name; parallel subagents have a few."""
OTHER_MESSAGES = "others"
"""Name of all further ones, which never finish."""
IGNORED_TYPES = frozenset(
    {"system", "summary", "attachment", "queue-operation", "file-history-snapshot", "file-history-delta",
     "last-prompt", "mode", "permission-mode", "custom-title", "ai-title", "agent-name", "agent-color",
     "agent-setting", "tag", "pr-link", "worktree-state", "content-replacement", "task-summary",
     "attribution-snapshot", "speculation-accept", "bridge-session", "invoked-skills", "atis-latch",
     "tools-used", "api-request", "api-request-blob", "api-request-shape"}
)  # fmt: skip
"""Types of lines without tokens, tools or text."""


class SessionReader(MessageReader):
    format = "claude-session"

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._open_messages, self._last_closed_id = dict.fromkeys(state.open), ""
        """Ids of unfinished messages, and of the newest finished one."""
        self._is_subagent_file: bool | None = None
        """True if the file is a subagent's own, so that its text is that of the conversation."""

    def state(self) -> ReaderState:
        return replace(super().state(), open=tuple(self._open_messages))

    def read_object(self, line: Json, /) -> Iterator[TranscriptRecord]:
        is_sidechain, message = line.get("isSidechain"), mapping(line.get("message"))
        subagent = (string(line.get("agentId")) or UNNAMED_SUBAGENT) if is_sidechain is True else ""
        if "isSidechain" in line:
            self._is_subagent_file = self._is_subagent_file is not False and bool(subagent)
        yield from self._session_records(line, subagent)
        match line.get("type"):
            case "assistant":
                yield from self._paid_request(message, line, subagent)
                yield from tool_uses(message.get("content"))
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
                    yield UserPrompt(at_us=time_us(line.get("timestamp")))
            case "progress":
                # A message of a subagent that was shown as progress; the subagent's own log has it too.
                data = mapping(line.get("data"))
                inner = mapping(data.get("message"))
                if inner.get("type") == "assistant":
                    name = string(data.get("agentId")) or UNNAMED_SUBAGENT
                    yield from self._paid_request(mapping(inner.get("message")), inner, name)
            case "cost-state":
                yield _cost_reported(line)
            case kind if string(kind) not in IGNORED_TYPES:
                yield UnknownLine.of_type(kind)

    def _session_records(self, line: Json, subagent: str) -> Iterator[SessionInfo]:
        session = string(line.get("sessionId")) or self._session
        version, cwd = string(line.get("version")) or self._version, string(line.get("cwd")) or self._cwd
        if (session, version, cwd, subagent) == (self._session, self._version, self._cwd, self._subagent):
            return
        self._session, self._version, self._cwd, self._subagent = session, version, cwd, subagent
        parent = session if subagent else string(mapping(line.get("forkedFrom")).get("sessionId"))
        yield self.session_info(time_us(line.get("timestamp")), parent)

    def _paid_request(self, message: Json, line: Json, subagent: str) -> Iterator[TranscriptRecord]:
        """Yield the request of a message. Some versions write a message when it begins, with a token or two, and never
        its end; messages of parallel subagents are interleaved."""
        token_counts, message_id = mapping(message.get("usage")), string(message.get("id"))
        if not token_counts or message.get("model") == SYNTHETIC_MODEL:
            return
        if message.get("stop_reason") is not None:
            self._last_closed_id = message_id
            self._open_messages.pop(message_id, None)
        elif message_id and message_id != self._last_closed_id:
            self._open_messages[message_id if len(self._open_messages) < OPEN_MESSAGES_MAX else OTHER_MESSAGES] = None
        yield from self._request_records(message, token_counts, line, subagent)


def _cost_reported(line: Json) -> CostReported:
    usages = (model_usage(model, mapping(numbers)) for model, numbers in mapping(line.get("modelUsage")).items())
    return CostReported(
        reported_nanousd=None if line.get("hasUnknownModelCost") else nanousd(line.get("totalCostUSD")),
        usage=tuple(usage for usage in usages if usage.input or usage.output),
    )


def matches(line: Mapping[str, object]) -> bool:
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
    return kind in IGNORED_TYPES or kind == "cost-state"


SESSION = Format(matches=matches, reader=SessionReader, unreported_fields=("reasoning",), is_session_log=True)
