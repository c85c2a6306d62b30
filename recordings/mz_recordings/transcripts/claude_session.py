"""Pure: reads session logs of Claude Code: `~/.claude/projects/**/*.jsonl`, those of sub-agents too.

One line a content block, several with the same message id; the one with the most tokens counts. Lines of sub-agents lie
in files of their own, in older versions between the others (`isSidechain`), or inside lines of progress. A log has no
end: what was said last is all that it tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from mz_engine.agents.claude_usage import model_usage, request_usage
from mz_engine.agents.jsonline import Json, decode, mapping, nanousd, string

from mz_recordings.transcripts.claude_lines import NOT_OBJECT, remarks, request_id, said, time_us, used
from mz_recordings.transcripts.facts import (
    Asked,
    Bad,
    Billed,
    Carry,
    Format,
    Opened,
    Remark,
    Requested,
    Sighting,
    Unknown,
)

AGENT = "claude-code"
SIDECHAIN = "sub-agent"
"""Part of lines whose sub-agent is not named."""
PASSED_OVER = frozenset(
    {"system", "summary", "attachment", "queue-operation", "file-history-snapshot", "file-history-delta",
     "last-prompt", "mode", "permission-mode", "custom-title", "ai-title", "agent-name", "agent-color",
     "agent-setting", "tag", "pr-link", "worktree-state", "content-replacement", "task-summary",
     "attribution-snapshot", "speculation-accept", "bridge-session", "invoked-skills", "atis-latch",
     "tools-used", "api-request", "api-request-blob", "api-request-shape"}
)  # fmt: skip
"""Types of lines that tell nothing about tokens, tools or words."""


class SessionReader:
    """Implements `facts.Reader`."""

    format = "claude-session"
    agent = AGENT
    unit: Literal["line", "file"] = "line"

    def __init__(self, carry: Carry) -> None:
        self._session, self._version, self._cwd, self._part = carry.session, carry.version, carry.cwd, carry.part
        self._last = ""
        """Id of the message that spoke last."""
        self._told: tuple[str, str, Json] = ("", "", {})
        """The newest request: most lines repeat that of the line before."""
        self._remarks: set[str] = set()
        self._open, self._closed = "", ""
        """Ids of the newest message whose end was not told, and of the newest whose end was."""
        self._alone: bool | None = None
        """The file is a sub-agent's own, so that its words are those of the conversation."""

    def carry(self) -> Carry:
        return Carry(session=self._session, version=self._version, cwd=self._cwd, part=self._part)

    def read(self, data: bytes) -> Iterator[Sighting]:
        line = decode(data)
        if line is None:
            yield Bad(why=NOT_OBJECT)
            return
        part = _part(line)
        if "isSidechain" in line:
            self._alone = bool(part) if self._alone is None else self._alone and bool(part)
        yield from self._opened(line, part)
        match line.get("type"):
            case "assistant":
                yield from self._message(line, part)
            case "user":
                yield from _asked(line)
            case "progress":
                yield from self._progress(mapping(line.get("data")))
            case "cost-state":
                yield _billed(line)
            case kind if string(kind) not in PASSED_OVER:
                yield Unknown(type=string(kind)[:64] or "?")

    def _opened(self, line: Json, part: str) -> Iterator[Sighting]:
        session = string(line.get("sessionId")) or self._session
        version = string(line.get("version")) or self._version
        cwd = string(line.get("cwd")) or self._cwd
        if (session, version, cwd, part) == (self._session, self._version, self._cwd, self._part):
            return
        self._session, self._version, self._cwd, self._part = session, version, cwd, part
        origin = mapping(line.get("forkedFrom"))
        yield Opened(
            session=session,
            version=version,
            cwd=cwd,
            part=part,
            parent=session if part else string(origin.get("sessionId")),
            at_us=time_us(line.get("timestamp")),
        )

    def _message(self, line: Json, part: str) -> Iterator[Sighting]:
        message = mapping(line.get("message"))
        yield from self._requested(message, line, part)
        yield from used(message.get("content"))
        # What the program says in place of its model is told only where it is an error.
        spoken = message.get("model") != "<synthetic>" or line.get("isApiErrorMessage") is True or "error" in line
        if spoken and (not part or self._alone):
            name = string(message.get("id"))
            yield from said(message.get("content"), continues=bool(name) and name == self._last)
            self._last = name

    def _requested(self, message: Json, line: Json, part: str) -> Iterator[Sighting]:
        name, model, numbers = string(message.get("id")), string(message.get("model")), mapping(message.get("usage"))
        if not numbers or model == "<synthetic>":
            return
        yield from self._left_open(name, message)
        if (name, part, numbers) == self._told and "costUSD" not in line:
            return
        self._told = (name, part, numbers)
        yield from self._remarked(remarks(numbers))
        yield Requested(
            id=request_id(message, line, self._session) if name else f"{self._session}:{string(line.get('uuid'))}",
            usage=request_usage(model, numbers, part),
            at_us=time_us(line.get("timestamp")),
            # Copies in a resumed session say that they cost nothing.
            reported_nanousd=(nanousd(line["costUSD"]) or None) if "costUSD" in line else None,
        )

    def _remarked(self, codes: Iterator[str]) -> Iterator[Remark]:
        """Each once is enough."""
        for code in codes:
            if code not in self._remarks:
                self._remarks.add(code)
                yield Remark(code=code)

    def _left_open(self, name: str, message: Json) -> Iterator[Remark]:
        """Some versions write a message when it begins, with a token or two, and never say what came of it."""
        if self._open and name != self._open:
            yield from self._remarked(iter(("output-open",)))
        ended = message.get("stop_reason") is not None
        self._open = "" if ended or name == self._closed else name
        self._closed = name if ended else self._closed

    def _progress(self, data: Json) -> Iterator[Sighting]:
        """Messages of a sub-agent that were shown while it worked; its own log has them too."""
        inner = mapping(data.get("message"))
        message = mapping(inner.get("message"))
        if inner.get("type") == "assistant" and message:
            yield from self._requested(message, inner, string(data.get("agentId")) or SIDECHAIN)


def _part(line: Json) -> str:
    if line.get("isSidechain") is not True:
        return ""
    return string(line.get("agentId")) or SIDECHAIN


def _asked(line: Json) -> Iterator[Sighting]:
    """Not what tools answered, nor what the program itself says to the model."""
    content = mapping(line.get("message")).get("content")
    results = isinstance(content, list) and any(mapping(block).get("type") == "tool_result" for block in content)
    own = line.get("isMeta") or line.get("isCompactSummary") or line.get("isSidechain") or "toolUseResult" in line
    if not results and not own:
        yield Asked(at_us=time_us(line.get("timestamp")))


def _billed(line: Json) -> Billed:
    sums = (model_usage(model, mapping(numbers)) for model, numbers in mapping(line.get("modelUsage")).items())
    return Billed(
        reported_nanousd=None if line.get("hasUnknownModelCost") else nanousd(line.get("totalCostUSD")),
        usage=tuple(usage for usage in sums if usage.input or usage.output),
    )


def fits(line: Mapping[str, object]) -> bool:
    """Whether the line can only be of such a log. Other programs copy the form: theirs have `parts` in messages."""
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
