"""Readers of aider's files: its analytics log, its chat history, and its terminal output.

The analytics log has exact tokens and money of each message, but names of models only if litellm knows them. History
and output are text for people: tokens are rounded to two digits there, and money to a few.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

from mz_engine.agents.jsonline import Json, count, mapping, nanousd, string
from mz_events.catalog.call import Usage

from mz_recordings.transcripts.facts import (
    Asked,
    Carry,
    Ended,
    Format,
    Opened,
    Remark,
    Requested,
    Sighting,
)
from mz_recordings.transcripts.objects import ObjectReader

AGENT = "aider"
HIDDEN = ("None", "REDACTED")
US_PER_SECOND = 1_000_000
LINES_MAX = 100_000
"""Limit of the lines of one reply."""
PRINTED_BYTES = 4000
"""Aider prints its version within the first bytes of its output."""
UNTOLD = ("cache_read", "cache_write_5m", "cache_write_1h", "reasoning")

_STARTED = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_VERSION = re.compile(r"Aider v(\d[\w.+-]*)")
_MODEL = re.compile(r"(?:Main model|Model): (\S+) with \S+ edit format")
_TOKENS = re.compile(
    r"Tokens: (?P<sent>[\d.]+k?) sent(?:, (?P<put>[\d.]+k?) cache write)?(?:, (?P<hit>[\d.]+k?) cache hit)?,"
    r" (?P<got>[\d.]+k?) received\.(?: Cost: \$(?P<cost>[\d.]+) message)?"
)
_FAILED = re.compile(r"litellm\.(\w+(?:Error|Timeout))\b.*")
_PRINTED = re.compile(rb"(?m)^Aider v\d[^\n]*\n(?:Main model|Model): ")
_OWN = re.compile(
    r"(?:Aider v\d|Main model: |Weak model: |Model: |Git repo: |Repo-map: |Applied edit to |Tokens: "
    r"|HTTPSConnectionPool\()"
)


class LogReader(ObjectReader):
    """Implements `facts.Reader` for the lines of `--analytics-log`."""

    format = "aider-analytics"
    agent = AGENT

    def __init__(self, carry: Carry) -> None:
        self._requests, self._state = carry.requests, dict(carry.names)

    def carry(self) -> Carry:
        return Carry(requests=self._requests, names=tuple(self._state.items()))

    def see(self, event: Json, /) -> Iterator[Sighting]:
        seconds = count(event.get("time"))
        at_us = None if seconds is None else seconds * US_PER_SECOND
        properties = mapping(event.get("properties"))
        match event.get("event"):
            case "launched":
                self._state = {}
                yield Opened(at_us=at_us)
            case "message_send_starting":
                self._state["open"] = "yes"
                yield Asked(at_us=at_us)
            case "message_send":
                self._state |= {"open": "no", "usd": str(properties.get("total_cost"))}
                yield self._requested(event, properties, at_us)
            case "message_send_exception":
                self._state["why"] = string(properties.get("exception"))[:500] or "?"
            case "exit":
                why = self._state.get("why", "")
                failed = bool(why) or self._state.get("open") != "no"
                yield Ended(
                    status="error" if failed else "success",
                    # litellm writes 0 for an unknown price.
                    reported_nanousd=nanousd(self._state.get("usd")) or None,
                    cumulative=False,
                    detail=why or string(properties.get("reason")),
                )
            case _:
                pass

    def _requested(self, event: Json, properties: Json, at_us: int | None) -> Requested:
        self._requests += 1
        named = string(properties.get("main_model"))
        return Requested(
            id=f"aider:{string(event.get('user_id'))}:{at_us}:{self._requests}",
            usage=Usage(
                model="" if named.endswith(HIDDEN) else named,
                input=count(properties.get("prompt_tokens")) or 0,
                output=count(properties.get("completion_tokens")) or 0,
            ),
            at_us=at_us,
        )


class WordsReader:
    """Implements `facts.Reader` for terminal output, line by line."""

    format = "aider-output"
    agent = AGENT
    unit: Literal["line", "file"] = "line"

    def __init__(self, carry: Carry) -> None:
        self._version, self._model, self._requests = carry.version, carry.model, carry.requests
        state = dict(carry.names)
        self._begun, self._digest = state.get("begun", ""), state.get("digest", "")
        self._said: list[str] = []
        """Lines that may be text of the model; they count once its tokens are reported."""

    def carry(self) -> Carry:
        state = {"begun": self._begun, "digest": self._digest}
        names = tuple((name, value) for name, value in state.items() if value)
        return Carry(version=self._version, model=self._model, requests=self._requests, names=names)

    def read(self, data: bytes) -> Iterator[Sighting]:
        line = data.decode("utf-8", "replace").rstrip()
        # No line has an id: the digest of all lines so far identifies a request.
        self._digest = hashlib.sha256(self._digest.encode() + data).hexdigest()[:32]
        yield from self._line(line)

    def _line(self, line: str) -> Iterator[Sighting]:
        if found := _VERSION.match(line):
            self._version = found[1]
            yield Opened(version=self._version)
        elif found := _MODEL.match(line):
            self._model = found[1]
            yield Opened(model=self._model)
        elif found := _TOKENS.match(line):
            yield from self._requested(found)
        elif found := _FAILED.match(line):
            yield Ended(status="error", detail=line[:500])
        elif not _OWN.match(line) and len(self._said) < LINES_MAX:
            self._said.append(line)

    def _text(self) -> str:
        said, self._said = "\n".join(self._said).strip(), []
        return said

    def _requested(self, found: re.Match[str]) -> Iterator[Sighting]:
        self._requests += 1
        read, written = _rounded(found["hit"]), _rounded(found["put"])
        if found["hit"] or found["put"]:
            yield Remark(code="tells:cache_read")
            yield Remark(code="tells:cache_write_5m")
        yield Remark(code="rounded")
        yield Requested(
            id=f"aider:{self._begun}:{self._digest}",
            usage=Usage(
                model=self._model,
                input=max(_rounded(found["sent"]), read + written),
                output=_rounded(found["got"]),
                cache_read=read,
                cache_write_5m=written,
            ),
        )
        yield Ended(
            status="success", text=self._text(), reported_nanousd=nanousd(found["cost"]) or None, cumulative=False
        )


class HistoryReader(WordsReader):
    """Implements `facts.Reader` for `.aider.chat.history.md`: aider's own output is quoted, a person's input is a
    heading."""

    format = "aider-history"

    def _line(self, line: str) -> Iterator[Sighting]:
        if found := _STARTED.match(line):
            self._begun, self._said = found[1], []
        elif line.startswith("#### "):
            self._said = []
            yield Asked()
        elif line.startswith("> "):
            said = list(self._said)
            for seen in super()._line(line[2:]):
                yield seen
                said = self._said
            self._said = said
        elif len(self._said) < LINES_MAX:
            self._said.append(line)


def _rounded(text: str | None) -> int:
    """Return 1200 for `1.2k`."""
    if not text:
        return 0
    number = text.removesuffix("k")
    if not re.fullmatch(r"\d{1,9}(?:\.\d{1,3})?", number):
        return 0
    return int(Decimal(number) * (1000 if text.endswith("k") else 1))


def _fits(event: dict[str, object]) -> bool:
    known = isinstance(event.get("event"), str) and isinstance(event.get("properties"), dict)
    return known and "user_id" in event and count(event.get("time")) is not None


def _never(event: dict[str, object]) -> bool:
    return False


FORMATS: tuple[Format, ...] = (
    Format(name=LogReader.format, agent=AGENT, unit="line", fits=_fits, reader=LogReader, untold=UNTOLD),
    Format(
        name=HistoryReader.format, agent=AGENT, unit="line", fits=_never, reader=HistoryReader, untold=UNTOLD, log=True,
        fits_text=lambda head: head.lstrip().startswith(b"# aider chat started at "),
    ),
    Format(
        name=WordsReader.format, agent=AGENT, unit="line", fits=_never, reader=WordsReader, untold=UNTOLD,
        fits_text=lambda head: _PRINTED.search(head[:PRINTED_BYTES]) is not None,
    ),
)  # fmt: skip
