"""Readers of aider's files: its analytics log, its chat history, and its terminal output.

The analytics log has exact tokens and money of each message, but names of models only if litellm knows them. History
and output are text for people: tokens are rounded to two digits there, and money to a few.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from decimal import Decimal

from mz_events.catalog.call import Usage

from mz_engine.agents.package import AgentPackage, cut_stderr, json_line
from mz_engine.agents.reading import records
from mz_engine.agents.reading.json_lines import Json, count, decode_lines, mapping, nanousd, string, token_count
from mz_engine.agents.reading.records import Reader, ReaderState, Records

HIDDEN_MODELS = ("None", "REDACTED")
US_PER_SECOND = 1_000_000
LINES_MAX = 100_000
"""Limit of the lines of one reply."""
PRINTED_BYTES = 4000
"""Aider prints its version within the first bytes of its output."""
UNREPORTED_FIELDS = ("cache_read", "cache_write_5m", "cache_write_1h", "reasoning")

_STARTED = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_VERSION = re.compile(r"Aider v(\d[\w.+-]*)")
_MODEL = re.compile(r"(?:Main model|Models?): (\S+) with \S+ edit format")
_TOKENS = re.compile(
    r"Tokens: (?P<sent>[\d.,]+k?) sent(?:, (?P<put>[\d.,]+k?) cache write)?(?:, (?P<hit>[\d.,]+k?) cache hit)?,"
    r" (?P<got>[\d.,]+k?) received\.(?: Cost: \$(?P<cost>[\d.]+) (?:message|request))?"
)
_FAILED = re.compile(r"litellm\.(\w+(?:Error|Timeout))\b.*")
_PRINTED = re.compile(rb"(?m)^Aider v\d[^\n]*\n(?:Main model|Models?): ")
_STARTED_BYTES = re.compile(rb"(?m)^# aider chat started at \d{4}-\d\d-\d\d ")
_PROGRAM_OUTPUT = re.compile(
    r"(?:Aider v\d|Main model: |Weak model: |Models?: |Git repo: |Repo-map: |Applied edit to |Tokens: "
    r"|HTTPSConnectionPool\()"
)


class LogReader(Reader):
    """Reader of the lines of `--analytics-log`."""

    name = "aider-analytics"
    agent = "aider"
    unreported_fields = UNREPORTED_FIELDS

    def read_object(self, event: Json, /) -> Records:
        seconds = count(event.get("time"))
        at_us = None if seconds is None else seconds * US_PER_SECOND
        properties = mapping(event.get("properties"))
        match event.get("event"):
            case "launched":
                self._names = {}
                yield records.SessionInfo(at_us=at_us)
            case "message_send_starting":
                self._names["open"] = "yes"
                yield records.UserPrompt(at_us=at_us)
            case "message_send":
                self._names |= {"open": "no", "usd": str(properties.get("total_cost"))}
                self._requests += 1
                model = string(properties.get("main_model"))
                yield records.ModelRequest(
                    id=f"aider:{string(event.get('user_id'))}:{at_us}:{self._requests}",
                    usage=Usage(
                        model="" if model.endswith(HIDDEN_MODELS) else model,
                        input=token_count(properties, "prompt_tokens"),
                        output=token_count(properties, "completion_tokens"),
                    ),
                    at_us=at_us,
                )
            case "message_send_exception":
                self._names["why"] = string(properties.get("exception"))[:500] or "?"
            case "exit":
                reason = self._names.get("why", "")
                failed = bool(reason) or self._names.get("open") != "no"
                yield records.StreamEnd(
                    status="error" if failed else "success",
                    # litellm writes 0 for an unknown price.
                    reported_nanousd=nanousd(self._names.get("usd")) or None,
                    cumulative=False,
                    detail=reason or string(properties.get("reason")),
                )

    @staticmethod
    def matches(event: dict[str, object]) -> bool:
        is_event = isinstance(event.get("event"), str) and isinstance(event.get("properties"), dict)
        return is_event and "user_id" in event and count(event.get("time")) is not None


class OutputReader(Reader):
    """Reader of terminal output, line by line."""

    name = "aider-output"
    agent = "aider"
    unreported_fields = UNREPORTED_FIELDS
    is_text = True

    def __init__(self, state: ReaderState) -> None:
        super().__init__(state)
        self._text_lines: list[str] = []
        """Lines that may be text of the model; they count once its tokens are reported."""

    def read(self, data: bytes) -> Records:
        line = data.decode("utf-8", "replace").rstrip()
        # No line has an id: the digest of all lines so far identifies a request.
        self._names["digest"] = hashlib.sha256(self._names.get("digest", "").encode() + data).hexdigest()[:32]
        yield from self._read_line(line)

    def _read_line(self, line: str) -> Records:
        if match := _VERSION.match(line):
            self._version = match[1]
            yield records.SessionInfo(version=self._version)
        elif match := _MODEL.match(line):
            self._model = match[1]
            yield records.SessionInfo(model=self._model)
        elif match := _TOKENS.match(line):
            yield from self._request_records(match)
        elif match := _FAILED.match(line):
            yield records.StreamEnd(status="error", detail=line[:500])
        elif not _PROGRAM_OUTPUT.match(line) and len(self._text_lines) < LINES_MAX:
            self._text_lines.append(line)

    def _request_records(self, match: re.Match[str]) -> Records:
        self._requests += 1
        read, written = _parse_rounded(match["hit"]), _parse_rounded(match["put"])
        if match["hit"] or match["put"]:
            yield records.Note(code="tells:cache_read")
            yield records.Note(code="tells:cache_write_5m")
        yield records.Note(code="rounded")
        yield records.ModelRequest(
            id=f"aider:{self._names.get('begun', '')}:{self._names['digest']}",
            usage=Usage(
                model=self._model,
                input=max(_parse_rounded(match["sent"]), read + written),
                output=_parse_rounded(match["got"]),
                cache_read=read,
                cache_write_5m=written,
            ),
        )
        text, self._text_lines = "\n".join(self._text_lines).strip(), []
        yield records.StreamEnd(
            status="success", text=text, reported_nanousd=nanousd(match["cost"]) or None, cumulative=False
        )

    @staticmethod
    def matches_text(head: bytes) -> bool:
        return _PRINTED.search(head[:PRINTED_BYTES]) is not None


class HistoryReader(OutputReader):
    """Reader of `.aider.chat.history.md`: aider's own output is quoted, a person's input is a
    heading. Text of other programs may precede the first start of aider."""

    name = "aider-history"
    is_session_log = True

    def _read_line(self, line: str) -> Records:
        if match := _STARTED.match(line):
            self._names["begun"], self._text_lines = match[1], []
        elif line.startswith("#### "):
            self._text_lines = []
            yield records.UserPrompt()
        elif line.startswith("> "):
            text_lines = list(self._text_lines)
            for record in super()._read_line(line[2:]):
                yield record
                text_lines = self._text_lines
            self._text_lines = text_lines
        elif len(self._text_lines) < LINES_MAX:
            self._text_lines.append(line)

    @staticmethod
    def matches_text(head: bytes) -> bool:
        return _STARTED_BYTES.search(head) is not None


def _parse_rounded(text: str | None) -> int:
    """Return 1200 for `1.2k`, and for `1,200` of early versions."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)(k?)", (text or "").replace(",", ""))
    return int(Decimal(match[1]) * (1000 if match[2] else 1)) if match else 0


# the agent -----------------------------------------------------------------------------------------------------------
ERRORS = {
    "rate-limit": "litellm.RateLimitError: RateLimitError: OpenAIException - Please try again in 20s.",
    "billing": "litellm.RateLimitError: RateLimitError: OpenAIException - insufficient_quota",
    "auth-failure": "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided.",
    "overloaded": "litellm.InternalServerError: InternalServerError: OpenAIException - The server had an error.",
    "connection": "litellm.APIConnectionError: APIConnectionError: OpenAIException - Connection error.",
    "model-missing": "litellm.NotFoundError: NotFoundError: OpenAIException - The model does not exist.",
}


def endings(stdout: bytes, stderr: bytes) -> Iterator[tuple[str, bytes, bytes, int]]:
    """The log tells that a message was sent and whether it completed; errors are plain text on stdout. Exits with 0."""
    lines = stderr.splitlines(keepends=True)
    sent_index = max((at for at, line in enumerate(lines) if b'"message_send"' in line), default=None)
    if sent_index is None:
        return
    head, last = b"".join(lines[:-1]), lines[-1]
    unsent = b"".join((*lines[:sent_index], *lines[sent_index + 1 :]))
    begun = json_line({"event": "message_send_starting", "properties": {}})
    failed = json_line({"event": "message_send_exception", "properties": {"exception": "it broke"}})
    for name, text in ERRORS.items():
        error_line = text.encode() + b"\n"
        yield f"ends-{name}", stdout + error_line, unsent, 0
        yield f"{name}-then-success", error_line + stdout, stderr, 0
        yield f"success-then-{name}", stdout + error_line, head + begun + last, 0
    yield "ends-exception", stdout, b"".join(lines[:sent_index]) + failed + b"".join(lines[sent_index + 1 :]), 0
    yield "ends-token-limit", stdout + b"Model openai/gpt-5.1 has hit a token limit!\n", stderr, 0
    yield "ends-in-words", stdout + lines[sent_index], unsent, 0
    yield from cut_stderr(stdout, stderr)


def succeeds(stdout: bytes, stderr: bytes) -> bool:
    """Success: the log ends, every message has a reply, and no reply exceeded the token limit."""
    names = [str(event.get("event")) for event in decode_lines(stderr) if event]
    sends = [event for event in names if event.startswith("message_send")]
    too_long = any(line.startswith(b"Model ") and b" has hit a token limit!" in line for line in stdout.split(b"\n"))
    return sends[-1:] == ["message_send"] and "exit" in names and not too_long


AGENT = AgentPackage(
    name="aider",
    tested_version="0.86.2",
    described=True,
    install="install aider (pip install aider-chat)",
    formats=(LogReader, HistoryReader, OutputReader),
    stderr_endings=endings,
    success_check=succeeds,
    fault_endings={
        "rate-limit": "ends-rate-limit",
        "overloaded": "ends-overloaded",
        "auth-failure": "ends-auth-failure",
        "lost-connection": "ends-connection",
    },
)
