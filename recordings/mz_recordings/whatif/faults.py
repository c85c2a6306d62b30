"""Pure: what goes wrong with agents, as recorded calls: to be played as they come with `mz`, or put into a cassette.

The streams are written after what the agents' documentation and real streams of theirs show (`follows`); nothing in
them is measured. They speak with the voice of `AGENT`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from mz_events.catalog.call import ProblemClass

from mz_recordings.cassette import Failure

AGENT = "claude-code"
MODEL = "claude-sonnet-4-6"
SESSION = "<SESSION>"
RETRY_AFTER_SECONDS = 5
KINDS = {"timeout": ProblemClass.TRANSIENT, "idle": ProblemClass.TRANSIENT}


class Fault(NamedTuple):
    """One way in which a call goes wrong."""

    name: str
    what: str
    """What the agent does, for people."""
    becomes: str
    """What the pipeline makes of it, and how a feature ends with it that would have been delivered without."""
    follows: str
    """Which form of the agent's, and where it was seen."""
    lines: tuple[Mapping[str, Any], ...]
    """What it writes, a JSON object a line."""
    exit: int | None = 0
    """Negative: signal. None: nobody saw its end."""
    hangs: Literal["", "timeout", "idle"] = ""
    """It does not end; the limit that ends it."""
    lost: bool = False
    """`mz` dies while the agent works."""


def init() -> dict[str, Any]:
    return {
        "type": "system", "subtype": "init", "cwd": "<WORKTREE>", "session_id": SESSION, "model": MODEL,
        "permissionMode": "acceptEdits", "claude_code_version": "2.1.197",
    }  # fmt: skip


def says(text: str, error: str = "") -> dict[str, Any]:
    """A message; with `error` one that the command line made up itself, for what the API answered."""
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "<synthetic>" if error else MODEL,
        "content": [{"type": "text", "text": text}],
    }  # fmt: skip
    more = {"error": error} if error else {}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": SESSION, **more}


def retries(status: int, error: str, delay_ms: float) -> tuple[dict[str, Any], ...]:
    """The agent's own attempts, before it gives up."""
    return tuple(
        {
            "type": "system", "subtype": "api_retry", "attempt": attempt, "max_retries": 2, "retry_delay_ms": delay_ms,
            "error_status": status, "error": error, "session_id": SESSION,
        }
        for attempt in (1, 2)
    )  # fmt: skip


def ends(text: str, *, failed: bool = False, status: int | None = None, spent: bool = True) -> dict[str, Any]:
    """The last line. An error of the API has the subtype `success` and `is_error`."""
    tokens = {"input_tokens": 100 if spent else 0, "output_tokens": 20 if spent else 0}
    used = {
        "inputTokens": 100, "outputTokens": 20, "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0,
    }  # fmt: skip
    return {
        "type": "result", "subtype": "success", "is_error": failed, "api_error_status": status, "result": text,
        "session_id": SESSION, "total_cost_usd": 0.0006 if spent else 0, "usage": tokens,
        "modelUsage": {MODEL: used} if spent else {}, "terminal_reason": "completed", "num_turns": 1,
    }  # fmt: skip


def _refused(status: int | None, error: str, words: str, delay_ms: float = 0) -> tuple[dict[str, Any], ...]:
    """A call whose every request the API refused."""
    tried = retries(status, error, delay_ms) if status and delay_ms else ()
    return (init(), *tried, says(words, error), ends(words, failed=True, status=status, spent=False))


def _stopped(subtype: str, words: str) -> dict[str, Any]:
    """A result without a text, and with errors instead."""
    last = {**ends("", failed=True), "subtype": subtype, "errors": [words]}
    return {key: value for key, value in last.items() if key != "result"}


_CUT = "API Error: Connection to the API was lost (ECONNRESET). This is usually temporary; try again."
_ALL = (
    Fault(
        name="rate-limit",
        what="the API refuses all requests for a while, and says for how long",
        becomes=f"held by a timer for {RETRY_AFTER_SECONDS} s, called again, delivered",
        follows="`system/api_retry` with `retry_delay_ms` in whole seconds, `result` with `api_error_status` 429 and "
        "exit 1 (2.1.197)",
        lines=_refused(429, "rate_limit", "API Error: Request rejected (429)", RETRY_AFTER_SECONDS * 1000),
        exit=1,
    ),
    Fault(
        name="overloaded",
        what="the API has too much to do",
        becomes="held by a timer for half a minute, called again, delivered",
        follows="`result` with `api_error_status` 529 and exit 1 (2.1.197)",
        lines=_refused(529, "overloaded", "API Error: Overloaded (529)", 612.5),
        exit=1,
    ),
    Fault(
        name="lost-connection",
        what="the connection to the API breaks in the middle of an answer",
        becomes="held by a timer for half a minute, called again, delivered",
        follows="`result` with subtype `success`, `is_error` and no status, exit 1 (2.1.197, a stream that was cut)",
        lines=(
            init(),
            says("I begin with the note."),
            says(_CUT, "server_error"),
            ends(_CUT, failed=True, spent=False),
        ),
        exit=1,
    ),
    Fault(
        name="auth-failure",
        what="the API does not know the key",
        becomes="the run halts (auth-failure), for no other call would fare better",
        follows="`result` with `api_error_status` 401 and exit 1 (2.1.141, 2.1.197)",
        lines=_refused(401, "authentication_failed", "Invalid API key · Fix external API key", 509.9),
        exit=1,
    ),
    Fault(
        name="timeout",
        what="the agent works on and on",
        becomes="ended by the limit of the whole call (timeout), called again, delivered",
        follows="no `result` at all: the stream of a call that is still at work",
        lines=(init(), says("I look at everything once more.")),
        exit=None,
        hangs="timeout",
    ),
    Fault(
        name="idle",
        what="the agent falls silent after its first words",
        becomes="ended by the limit of silence (idle), called again, delivered",
        follows="no `result` at all: the stream of a call whose model does not answer",
        lines=(init(),),
        exit=None,
        hangs="idle",
    ),
    Fault(
        name="hang",
        what="the agent starts and says nothing, not even its first line",
        becomes="ended by the limit of silence (idle), called again, delivered",
        follows="an empty stream, as with a standard input that nobody closes",
        lines=(),
        exit=None,
        hangs="idle",
    ),
    Fault(
        name="killed",
        what="something else ends the agent's process",
        becomes="the reply has no end (no-terminal), called again, delivered",
        follows="exit 143 and no `result` (2.1.197, SIGTERM while the API hangs)",
        lines=(init(), says("I begin with the note.")),
        exit=143,
    ),
    Fault(
        name="turn-limit",
        what="the agent uses up its turns",
        becomes="the reply is an error (turn-limit), called again, delivered",
        follows="`result` with subtype `error_max_turns`, `errors` in place of a text, exit 1 (2.1.4)",
        lines=(init(), says("I look at everything once more."), _stopped("error_max_turns", "Reached the turn limit")),
        exit=1,
    ),
    Fault(
        name="malformed-artifact",
        what="the agent says that it is done, and what it hands over breaks the rules, or is not there",
        becomes="refused with the exact violations, called again to mend them, delivered",
        follows="an ordinary `result`: nothing in the stream tells",
        lines=(init(), says("Done."), ends("Done.")),
    ),
    Fault(
        name="human-blocker",
        what="the agent says that it cannot go on without a person",
        becomes="waits for a person (agent-blocker)",
        follows="an ordinary `result` whose text asks for a decision",
        lines=(init(), ends("I looked at everything.\n\nBlocker: need a decision on the form before I can go on.")),
    ),
    Fault(
        name="crash",
        what="mz itself is killed while the agent works",
        becomes="at the next start the call is found lost, called again, delivered",
        follows="a spool without an end",
        lines=(init(), says("I begin with the note.")),
        exit=None,
        lost=True,
    ),
)
FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in _ALL}


def stream(fault: Fault) -> bytes:
    """What the agent writes, as recorded bytes are stored."""
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in fault.lines)


def failure(fault: Fault) -> Failure | None:
    """How a call ends that a limit of ours ends."""
    return Failure(kind=KINDS[fault.hangs].value, code=fault.hangs) if fault.hangs else None
