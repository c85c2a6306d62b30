"""Session files like those of Claude Code, as many as are wanted, the same for the same seed.

Sizes are those of real sessions: most of the bytes are what tools answered, an answer is told in two lines, and one
session in five is a branch that begins with the lines of the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

SEED = 11
BEGIN = datetime(2025, 1, 6, 8, tzinfo=UTC)
MODELS = ("claude-sonnet-4-5-20250929", "claude-opus-4-6", "claude-haiku-4-5-20251001")
TOOLS = ("Read", "Bash", "Edit")
TURNS = 60
"""Requests of a session."""
ANSWER_BYTES, RESULT_BYTES = 900, 9_000
TEXT = "The function reads the table, and every row of it is checked against the rules; then the next file is read. "
BRANCH_EVERY = 5


class Dice:
    """Numbers that look like chance; the same for the same seed, on any machine and in any version of Python."""

    def __init__(self, seed: int) -> None:
        self._state = seed * 2_862_933_555_777_941_757 + 3_037_000_493

    def randrange(self, low: int, high: int | None = None) -> int:
        """From `low` up to, but not including, `high`; of one argument from 0 up to it."""
        if high is None:
            low, high = 0, low
        self._state = (self._state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        return low + (self._state >> 33) % (high - low)


def session(number: int, turns: int = TURNS, days: int = 365) -> Iterator[bytes]:
    """The lines of a session, without their ends; over all numbers they spread over so many days."""
    if number % BRANCH_EVERY == BRANCH_EVERY - 1:
        yield from _lines(number - 1, number, turns // 3, days)
    yield from _lines(number, number, turns, days)


def _lines(of: int, number: int, turns: int, days: int) -> Iterator[bytes]:
    """The first turns of session `of`, as session `number` has them."""
    dice = Dice(SEED + of)
    at = BEGIN + timedelta(days=of * 7919 % days, minutes=dice.randrange(500))
    common = {
        "cwd": f"/home/dev/project-{of % 12}", "sessionId": _uuid(number), "version": "2.1.150", "userType": "external",
        "gitBranch": "main", "isSidechain": False,
    }  # fmt: skip
    read = 12_000
    for turn in range(turns):
        at += timedelta(seconds=dice.randrange(5, 90))
        model = MODELS[of % 3]
        usage = {
            "input_tokens": dice.randrange(4, 40), "cache_creation_input_tokens": dice.randrange(200, 4000),
            "cache_read_input_tokens": read, "output_tokens": dice.randrange(80, 1800),
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "service_tier": "standard",
        }  # fmt: skip
        usage["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage["cache_creation_input_tokens"], "ephemeral_1h_input_tokens": 0,
        }  # fmt: skip
        read = min(read + 2000, 150_000)
        message = {"id": f"msg_{of:012x}{turn:010x}", "type": "message", "role": "assistant", "model": model,
                   "stop_reason": "tool_use", "usage": usage}  # fmt: skip
        texts = {"type": "text", "text": _text(dice, ANSWER_BYTES)}
        call = {"type": "tool_use", "id": f"toolu_{of:012x}{turn:010x}", "name": TOOLS[dice.randrange(3)],
                "input": {"command": _text(dice, 200)}}  # fmt: skip
        for block in (texts, call):
            yield _line(common, at, of, turn, "assistant", {**message, "content": [block]}, f"req_{of:08x}{turn:08x}")
        answer = {"type": "tool_result", "tool_use_id": call["id"], "content": _text(dice, RESULT_BYTES)}
        content = "Go on." if turn % 10 == 0 else [answer]
        yield _line(common, at, of, turn, "user", {"role": "user", "content": content}, "")


def _line(
    common: dict[str, object], at: datetime, of: int, turn: int, kind: str, message: object, request: str
) -> bytes:
    line = {
        "parentUuid": _uuid(of * 1000 + turn), **common, "type": kind, "message": message,
        "uuid": _uuid(of * 1000 + turn + 1), "timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
    }  # fmt: skip
    if request:
        line["requestId"] = request
    return msgspec.json.encode(line)


def _text(dice: Dice, size: int) -> str:
    wanted = dice.randrange(size // 3, size * 2)
    return (TEXT * (wanted // len(TEXT) + 1))[:wanted]


def _uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{number:012x}"
