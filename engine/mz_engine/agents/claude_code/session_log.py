"""Reader of session logs of Claude Code: `~/.claude/projects/**/*.jsonl`, including those of subagents.

One line per content block, so several lines have the same message id; the one with the most tokens counts. Lines of
subagents are in files of their own, in older versions among the others (`isSidechain`), or inside progress lines. A log
has no end: the last text is the final one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from mz_engine.agents.claude_code.lines import (
    NO_MESSAGE,
    UNIQUE_ID,
    Block,
    Line,
    Message,
    convert_line,
    decode_line,
    decode_lines,
    usage_notes,
)
from mz_engine.agents.reading.anthropic_usage import model_usage, request_usage
from mz_engine.agents.reading.json_lines import Json, decode_object, decode_value, mapping, nanousd, string, time_us
from mz_engine.agents.reading.objects import NOT_OBJECT, ObjectReader
from mz_engine.agents.reading.records import (
    UNNAMED_SUBAGENT,
    AssistantText,
    CostReported,
    Format,
    ModelRequest,
    Note,
    ReaderState,
    SessionInfo,
    ToolUse,
    TranscriptRecord,
    UndecodableLine,
    UnknownLine,
    UserPrompt,
)

SYNTHETIC_MODEL = "<synthetic>"
"""Model name of messages by the program itself."""
TOOL_BLOCKS = ("tool_use", "server_tool_use")
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


class SessionReader(ObjectReader):
    """Implements `records.Reader`."""

    format = "claude-session"
    agent = "claude-code"

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._last_text_id = ""
        """Id of the last message with text."""
        self._last_request: tuple[str, str, Json] = ("", "", {})
        """The newest request: most lines repeat that of the line before."""
        self._note_codes: set[str] = set()
        self._open_messages, self._last_closed_id = dict.fromkeys(state.open), ""
        """Ids of unfinished messages, and of the newest finished one."""
        self._is_subagent_file: bool | None = None
        """True if the file is a subagent's own, so that its text is that of the conversation."""

    def state(self) -> ReaderState:
        return replace(super().state(), open=tuple(self._open_messages))

    def read(self, data: bytes) -> Iterator[TranscriptRecord]:
        records: list[TranscriptRecord] = []
        decoded = decode_line(data)
        if decoded is not None:
            self._read_line(*decoded, records)
        elif (value := decode_object(data)) is not None:
            self._read_line(*convert_line(value), records, mapping(value.get("data")))
        else:
            records.append(UndecodableLine(reason=NOT_OBJECT))
        return iter(records)

    def read_lines(self, data: bytes, line_count: int) -> list[TranscriptRecord] | None:
        lines = decode_lines(data, line_count)
        if lines is None:
            return None
        records: list[TranscriptRecord] = []
        for line, token_counts in lines:
            self._read_line(line, token_counts, records)
        return records

    def _read_line(
        self, line: Line, token_counts: Json, records: list[TranscriptRecord], data: Json | None = None
    ) -> None:
        """Append the records of a line. `numbers` is the usage of its message; `data` is the content of a progress line
        if the line itself no longer has it."""
        subagent = _subagent_of(line)
        if line.is_sidechain is not UNSET:
            self._is_subagent_file = (
                bool(subagent) if self._is_subagent_file is None else self._is_subagent_file and bool(subagent)
            )
        self._add_session_info(line, subagent, records)
        kind = line.type
        if kind == "assistant":
            self._add_message(line, token_counts, subagent, records)
        elif kind == "user":
            if _is_prompt(line):
                records.append(UserPrompt(at_us=time_us(line.timestamp)))
        elif kind == "progress":
            raw = b"" if line.data is UNSET else bytes(line.data)
            self._add_progress(mapping(decode_value(raw)) if data is None else data, records)
        elif kind == "cost-state":
            records.append(_cost_reported(line))
        elif kind not in IGNORED_TYPES:
            records.append(UnknownLine.of_type(kind))

    def _add_session_info(self, line: Line, subagent: str, records: list[TranscriptRecord]) -> None:
        session, version, cwd = line.session_id or self._session, line.version or self._version, line.cwd or self._cwd
        if session == self._session and cwd == self._cwd and version == self._version and subagent == self._subagent:
            return
        self._session, self._version, self._cwd, self._subagent = session, version, cwd, subagent
        records.append(
            SessionInfo(
                session=session,
                version=version,
                cwd=cwd,
                subagent=subagent,
                parent=session if subagent else string(mapping(line.forked_from).get("sessionId")),
                at_us=time_us(line.timestamp),
            )
        )

    def _add_message(self, line: Line, token_counts: Json, subagent: str, records: list[TranscriptRecord]) -> None:
        message = line.message or NO_MESSAGE
        if token_counts and message.model != SYNTHETIC_MODEL:
            self._add_request(message, line, token_counts, subagent, records)
        text = _read_content(message.content, records)
        # Messages by the program itself count only if they are errors.
        has_text = message.model != SYNTHETIC_MODEL or line.is_api_error_message is True or line.error is not UNSET
        if has_text and (not subagent or self._is_subagent_file):
            continues = bool(message.id) and message.id == self._last_text_id
            self._last_text_id = message.id
            if text:
                records.append(AssistantText(text=f"\n{text}" if continues else text, continues=continues))

    def _add_request(
        self, message: Message, line: Line, token_counts: Json, subagent: str, records: list[TranscriptRecord]
    ) -> None:
        message_id = message.id
        self._track_open_message(message)
        if (message_id, subagent, token_counts) == self._last_request and line.cost is UNSET:
            return
        self._last_request = (message_id, subagent, token_counts)
        for code in usage_notes(token_counts):
            self._add_note(code, records)
        records.append(
            ModelRequest(
                id=_request_id(line, message_id, self._session) if message_id else f"{self._session}:{line.uuid}",
                usage=request_usage(message.model, token_counts, subagent),
                at_us=time_us(line.timestamp),
                # Copies in a resumed session have cost 0.
                reported_nanousd=None if line.cost is UNSET else nanousd(line.cost) or None,
            )
        )

    def _add_note(self, code: str, records: list[TranscriptRecord]) -> None:
        """Append each note once."""
        if code not in self._note_codes:
            self._note_codes.add(code)
            records.append(Note(code=code))

    def _track_open_message(self, message: Message) -> None:
        """Track unfinished messages. Some versions write a message when it begins, with a token or two, and never its
        end. Messages of parallel subagents are interleaved."""
        message_id = message.id
        if message.stop_reason is not None:
            self._last_closed_id = message_id
            self._open_messages.pop(message_id, None)
        elif message_id and message_id != self._last_closed_id:
            self._open_messages[message_id if len(self._open_messages) < OPEN_MESSAGES_MAX else OTHER_MESSAGES] = None

    def _add_progress(self, data: Json, records: list[TranscriptRecord]) -> None:
        """Read a message of a subagent that was shown as progress; the subagent's own log has it too."""
        inner = mapping(data.get("message"))
        if inner.get("type") == "assistant" and mapping(inner.get("message")):
            line, token_counts = convert_line(inner)
            message = line.message or NO_MESSAGE
            if token_counts and message.model != SYNTHETIC_MODEL:
                self._add_request(message, line, token_counts, string(data.get("agentId")) or UNNAMED_SUBAGENT, records)


def _subagent_of(line: Line) -> str:
    return (line.agent_id or UNNAMED_SUBAGENT) if line.is_sidechain is True else ""


def _is_prompt(line: Line) -> bool:
    """Return True for a prompt: not a tool result, nor a message by the program to the model."""
    if line.is_meta or line.is_compact_summary or line.is_sidechain or line.tool_use_result is not UNSET:
        return False
    content = (line.message or NO_MESSAGE).content
    return isinstance(content, str) or "tool_result" not in [block.type for block in content]


def _read_content(content: str | list[Block], records: list[TranscriptRecord]) -> str:
    """Return the text of a message, and append its tool calls. A line holds one block of a message, so several lines
    may form one text."""
    if isinstance(content, str):
        return content
    texts = []
    for block in content:
        if block.type == "text":
            if block.text:
                texts.append(block.text)
        elif block.type in TOOL_BLOCKS:
            records.append(ToolUse.named(block.name, block.id))
    return "\n".join(texts)


def _request_id(line: Line, message_id: str, session: str) -> str:
    return (
        message_id
        if UNIQUE_ID.fullmatch(message_id)
        else f"{line.request_id or line.stream_request_id or session}:{message_id}"
    )


def _cost_reported(line: Line) -> CostReported:
    usages = (model_usage(model, mapping(token_counts)) for model, token_counts in mapping(line.model_usage).items())
    return CostReported(
        reported_nanousd=None if line.has_unknown_model_cost else nanousd(line.total_cost),
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


SESSION = Format(
    matches=matches,
    reader=SessionReader,
    unreported_fields=("reasoning",),
    is_session_log=True,
)
