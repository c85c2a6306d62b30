"""Reader of session logs of Claude Code: `~/.claude/projects/**/*.jsonl`, including those of subagents.

One line per content block, so several lines have the same message id; the one with the most tokens counts. Lines of
subagents are in files of their own, in older versions among the others (`isSidechain`), or inside progress lines. A log
has no end: the last text is the final one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import UNSET
from mz_engine.agents.claude_usage import model_usage, request_usage
from mz_engine.agents.jsonline import Json, decode, decode_any, mapping, nanousd, string

from mz_recordings.transcripts.claude_lines import UNIQUE, remarks, time_us
from mz_recordings.transcripts.claude_typed import NO_MESSAGE, Block, Line, Message, taken, typed, typed_lines
from mz_recordings.transcripts.facts import (
    Asked,
    Bad,
    Billed,
    Carry,
    Format,
    Opened,
    Remark,
    Requested,
    Said,
    Sighting,
    Unknown,
    Used,
)
from mz_recordings.transcripts.objects import NOT_OBJECT

AGENT = "claude-code"
SYNTHETIC = "<synthetic>"
"""Model name of messages by the program itself."""
SIDECHAIN = "sub-agent"
"""Name of a subagent whose name is unknown."""
CALLS = ("tool_use", "server_tool_use")
OPEN_MAX = 100
"""Limit of unfinished messages that are kept by name; parallel subagents have a few."""
OTHERS = "others"
"""Name of all further ones, which never finish."""
PASSED_OVER = frozenset(
    {"system", "summary", "attachment", "queue-operation", "file-history-snapshot", "file-history-delta",
     "last-prompt", "mode", "permission-mode", "custom-title", "ai-title", "agent-name", "agent-color",
     "agent-setting", "tag", "pr-link", "worktree-state", "content-replacement", "task-summary",
     "attribution-snapshot", "speculation-accept", "bridge-session", "invoked-skills", "atis-latch",
     "tools-used", "api-request", "api-request-blob", "api-request-shape"}
)  # fmt: skip
"""Types of lines without tokens, tools or text."""


class SessionReader:
    """Implements `facts.Reader`."""

    format = "claude-session"
    agent = AGENT
    unit: Literal["line", "file"] = "line"

    def __init__(self, carry: Carry) -> None:
        self._session, self._version, self._cwd, self._part = carry.session, carry.version, carry.cwd, carry.part
        self._last = ""
        """Id of the last message with text."""
        self._told: tuple[str, str, Json] = ("", "", {})
        """The newest request: most lines repeat that of the line before."""
        self._remarks: set[str] = set()
        self._open, self._closed = dict.fromkeys(carry.open), ""
        """Ids of unfinished messages, and of the newest finished one."""
        self._alone: bool | None = None
        """True if the file is a subagent's own, so that its text is that of the conversation."""

    def carry(self) -> Carry:
        return Carry(
            session=self._session, version=self._version, cwd=self._cwd, part=self._part, open=tuple(self._open)
        )  # fmt: skip

    def read(self, data: bytes) -> Iterator[Sighting]:
        found: list[Sighting] = []
        told = typed(data)
        if told is not None:
            self._see(*told, found)
        elif (whole := decode(data)) is not None:
            self._see(*taken(whole), found, mapping(whole.get("data")))
        else:
            found.append(Bad(why=NOT_OBJECT))
        return iter(found)

    def read_lines(self, data: bytes, number: int) -> list[Sighting] | None:
        lines = typed_lines(data, number)
        if lines is None:
            return None
        found: list[Sighting] = []
        for line, numbers in lines:
            self._see(line, numbers, found)
        return found

    def _see(self, line: Line, numbers: Json, found: list[Sighting], data: Json | None = None) -> None:
        """Append the records of a line. `numbers` is the usage of its message; `data` is the content of a progress line
        if the line itself no longer has it."""
        part = _part(line)
        if line.is_sidechain is not UNSET:
            self._alone = bool(part) if self._alone is None else self._alone and bool(part)
        self._opened(line, part, found)
        kind = line.type
        if kind == "assistant":
            self._message(line, numbers, part, found)
        elif kind == "user":
            if _asks(line):
                found.append(Asked(at_us=time_us(line.timestamp)))
        elif kind == "progress":
            raw = b"" if line.data is UNSET else bytes(line.data)
            self._progress(mapping(decode_any(raw)) if data is None else data, found)
        elif kind == "cost-state":
            found.append(_billed(line))
        elif kind not in PASSED_OVER:
            found.append(Unknown(type=kind[:64] or "?"))

    def _opened(self, line: Line, part: str, found: list[Sighting]) -> None:
        session, version, cwd = line.session_id or self._session, line.version or self._version, line.cwd or self._cwd
        if session == self._session and cwd == self._cwd and version == self._version and part == self._part:
            return
        self._session, self._version, self._cwd, self._part = session, version, cwd, part
        found.append(
            Opened(
                session=session,
                version=version,
                cwd=cwd,
                part=part,
                parent=session if part else string(mapping(line.forked_from).get("sessionId")),
                at_us=time_us(line.timestamp),
            )
        )

    def _message(self, line: Line, numbers: Json, part: str, found: list[Sighting]) -> None:
        message = line.message or NO_MESSAGE
        if numbers and message.model != SYNTHETIC:
            self._requested(message, line, numbers, part, found)
        text = _said(message.content, found)
        # Messages by the program itself count only if they are errors.
        spoken = message.model != SYNTHETIC or line.is_api_error_message is True or line.error is not UNSET
        if spoken and (not part or self._alone):
            continues = bool(message.id) and message.id == self._last
            self._last = message.id
            if text:
                found.append(Said(text=f"\n{text}" if continues else text, continues=continues))

    def _requested(self, message: Message, line: Line, numbers: Json, part: str, found: list[Sighting]) -> None:
        name = message.id
        self._left_open(message)
        if (name, part, numbers) == self._told and line.cost is UNSET:
            return
        self._told = (name, part, numbers)
        for code in remarks(numbers):
            self._remarked(code, found)
        found.append(
            Requested(
                id=_request_id(line, name, self._session) if name else f"{self._session}:{line.uuid}",
                usage=request_usage(message.model, numbers, part),
                at_us=time_us(line.timestamp),
                # Copies in a resumed session have cost 0.
                reported_nanousd=None if line.cost is UNSET else nanousd(line.cost) or None,
            )
        )

    def _remarked(self, code: str, found: list[Sighting]) -> None:
        """Append each note once."""
        if code not in self._remarks:
            self._remarks.add(code)
            found.append(Remark(code=code))

    def _left_open(self, message: Message) -> None:
        """Track unfinished messages. Some versions write a message when it begins, with a token or two, and never its
        end. Messages of parallel subagents are interleaved."""
        name = message.id
        if message.stop_reason is not None:
            self._closed = name
            self._open.pop(name, None)
        elif name and name != self._closed:
            self._open[name if len(self._open) < OPEN_MAX else OTHERS] = None

    def _progress(self, data: Json, found: list[Sighting]) -> None:
        """Read a message of a subagent that was shown as progress; the subagent's own log has it too."""
        inner = mapping(data.get("message"))
        if inner.get("type") == "assistant" and mapping(inner.get("message")):
            line, numbers = taken(inner)
            message = line.message or NO_MESSAGE
            if numbers and message.model != SYNTHETIC:
                self._requested(message, line, numbers, string(data.get("agentId")) or SIDECHAIN, found)


def _part(line: Line) -> str:
    return (line.agent_id or SIDECHAIN) if line.is_sidechain is True else ""


def _asks(line: Line) -> bool:
    """Return True for a prompt: not a tool result, nor a message by the program to the model."""
    if line.is_meta or line.is_compact_summary or line.is_sidechain or line.tool_use_result is not UNSET:
        return False
    content = (line.message or NO_MESSAGE).content
    return isinstance(content, str) or "tool_result" not in [block.type for block in content]


def _said(content: str | list[Block], found: list[Sighting]) -> str:
    """Return the text of a message, and append its tool calls. A line holds one block of a message, so several lines
    may form one text."""
    if isinstance(content, str):
        return content
    texts = []
    for block in content:
        if block.type == "text":
            if block.text:
                texts.append(block.text)
        elif block.type in CALLS:
            found.append(Used(tool=block.name[:128] or "?", id=block.id))
    return "\n".join(texts)


def _request_id(line: Line, name: str, session: str) -> str:
    return name if UNIQUE.fullmatch(name) else f"{line.request_id or line.caller or session}:{name}"


def _billed(line: Line) -> Billed:
    sums = (model_usage(model, mapping(numbers)) for model, numbers in mapping(line.model_usage).items())
    return Billed(
        reported_nanousd=None if line.has_unknown_model_cost else nanousd(line.total_cost),
        usage=tuple(usage for usage in sums if usage.input or usage.output),
    )


def fits(line: Mapping[str, object]) -> bool:
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
    return kind in PASSED_OVER or kind == "cost-state"


SESSION = Format(
    name=SessionReader.format,
    agent=AGENT,
    unit="line",
    fits=fits,
    reader=SessionReader,
    untold=("reasoning",),
    log=True,
)
