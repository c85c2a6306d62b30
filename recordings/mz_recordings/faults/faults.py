"""Faults of agents as recorded calls, to be replayed on their own or inserted into a cassette.

The streams follow the agents' documentation and real streams (`source`); nothing in them is measured. They have the
format of `FAULT_AGENT`.

Faults in the output format of any agent, derived from the recording of the call that they precede.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from mz_engine.agents.catalog import agent_package
from mz_engine.agents.package import AgentPackage
from mz_events.catalog.call import ProblemClass

from mz_recordings.cassette.model import Failure

FAULT_AGENT = "claude-code"
MODEL = "claude-sonnet-4-6"
SESSION = "<SESSION>"
RETRY_AFTER_SECONDS = 5
PROBLEM_CLASSES = {"timeout": ProblemClass.TRANSIENT, "idle": ProblemClass.TRANSIENT}


class Fault(NamedTuple):
    """One way in which a call fails."""

    name: str
    description: str
    """Description of the agent's behaviour."""
    outcome: str
    """Reaction of the pipeline, and the outcome of a feature that would otherwise be delivered."""
    source: str
    """The form of the agent's output, and its source."""
    lines: tuple[Mapping[str, Any], ...]
    """Output, a JSON object per line."""
    exit: int | None = 0
    """Negative: signal. None: the end was not observed."""
    hangs_until: Literal["", "timeout", "idle"] = ""
    """The limit that ends the call; empty: it ends by itself."""
    is_lost: bool = False
    """`mz` dies during the call."""


def init_line() -> dict[str, Any]:
    return {
        "type": "system", "subtype": "init", "cwd": "<WORKTREE>", "session_id": SESSION, "model": MODEL,
        "permissionMode": "acceptEdits", "claude_code_version": "2.1.197",
    }  # fmt: skip


def message_line(text: str, error: str = "") -> dict[str, Any]:
    """Return a message; with `error`, one that the CLI generates for an API error."""
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "<synthetic>" if error else MODEL,
        "content": [{"type": "text", "text": text}],
    }  # fmt: skip
    more = {"error": error} if error else {}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": SESSION, **more}


def retry_lines(status: int, error: str, delay_ms: float) -> tuple[dict[str, Any], ...]:
    """Return the agent's own retries before it fails."""
    return tuple(
        {
            "type": "system", "subtype": "api_retry", "attempt": attempt, "max_retries": 2, "retry_delay_ms": delay_ms,
            "error_status": status, "error": error, "session_id": SESSION,
        }
        for attempt in (1, 2)
    )  # fmt: skip


def result_line(
    text: str, *, failed: bool = False, status: int | None = None, has_usage: bool = True
) -> dict[str, Any]:
    """Return the last line. An API error has the subtype `success` and `is_error`."""
    tokens = {"input_tokens": 100 if has_usage else 0, "output_tokens": 20 if has_usage else 0}
    used = {
        "inputTokens": 100, "outputTokens": 20, "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0,
    }  # fmt: skip
    return {
        "type": "result", "subtype": "success", "is_error": failed, "api_error_status": status, "result": text,
        "session_id": SESSION, "total_cost_usd": 0.0006 if has_usage else 0, "usage": tokens,
        "modelUsage": {MODEL: used} if has_usage else {}, "terminal_reason": "completed", "num_turns": 1,
    }  # fmt: skip


def _rejected_call(status: int | None, error: str, text: str, delay_ms: float = 0) -> tuple[dict[str, Any], ...]:
    """Return a call whose requests the API all rejected."""
    retries_made = retry_lines(status, error, delay_ms) if status and delay_ms else ()
    return (
        init_line(),
        *retries_made,
        message_line(text, error),
        result_line(text, failed=True, status=status, has_usage=False),
    )


def _error_result(subtype: str, text: str) -> dict[str, Any]:
    """Return a result without text and with errors."""
    last = {**result_line("", failed=True), "subtype": subtype, "errors": [text]}
    return {key: value for key, value in last.items() if key != "result"}


_CONNECTION_ERROR = "API Error: Connection to the API was lost (ECONNRESET). This is usually temporary; try again."
_FAULTS = (
    Fault(
        name="rate-limit",
        description="the API rejects all requests for a while, and says for how long",
        outcome=f"held by a timer for {RETRY_AFTER_SECONDS} s, called again, delivered",
        source="`system/api_retry` with `retry_delay_ms` in whole seconds, `result` with `api_error_status` 429 and "
        "exit 1 (2.1.197)",
        lines=_rejected_call(429, "rate_limit", "API Error: Request rejected (429)", RETRY_AFTER_SECONDS * 1000),
        exit=1,
    ),
    Fault(
        name="overloaded",
        description="the API is overloaded",
        outcome="held by a timer for half a minute, called again, delivered",
        source="`result` with `api_error_status` 529 and exit 1 (2.1.197)",
        lines=_rejected_call(529, "overloaded", "API Error: Overloaded (529)", 612.5),
        exit=1,
    ),
    Fault(
        name="lost-connection",
        description="the connection to the API breaks during a reply",
        outcome="held by a timer for half a minute, called again, delivered",
        source="`result` with subtype `success`, `is_error` and no status, exit 1 (2.1.197, a stream that was cut)",
        lines=(
            init_line(),
            message_line("I begin with the note."),
            message_line(_CONNECTION_ERROR, "server_error"),
            result_line(_CONNECTION_ERROR, failed=True, has_usage=False),
        ),
        exit=1,
    ),
    Fault(
        name="auth-failure",
        description="the API does not know the key",
        outcome="the run halts (auth-failure), since every other call would fail too",
        source="`result` with `api_error_status` 401 and exit 1 (2.1.141, 2.1.197)",
        lines=_rejected_call(401, "authentication_failed", "Invalid API key · Fix external API key", 509.9),
        exit=1,
    ),
    Fault(
        name="timeout",
        description="the agent never finishes",
        outcome="ended by the limit of the call (timeout), called again, delivered",
        source="no `result` at all: the stream of a call that is still at work",
        lines=(init_line(), message_line("I look at everything once more.")),
        exit=None,
        hangs_until="timeout",
    ),
    Fault(
        name="idle",
        description="the agent stops writing after its first line",
        outcome="ended by the limit of silence (idle), called again, delivered",
        source="no `result` at all: the stream of a call whose model does not answer",
        lines=(init_line(),),
        exit=None,
        hangs_until="idle",
    ),
    Fault(
        name="hang",
        description="the agent starts and writes nothing",
        outcome="ended by the limit of silence (idle), called again, delivered",
        source="an empty stream, as with a standard input that nobody closes",
        lines=(),
        exit=None,
        hangs_until="idle",
    ),
    Fault(
        name="killed",
        description="another process kills the agent",
        outcome="the reply has no end (no-terminal), called again, delivered",
        source="exit 143 and no `result` (2.1.197, SIGTERM while the API hangs)",
        lines=(init_line(), message_line("I begin with the note.")),
        exit=143,
    ),
    Fault(
        name="turn-limit",
        description="the agent uses up its turns",
        outcome="the reply is an error (turn-limit), called again, delivered",
        source="`result` with subtype `error_max_turns`, `errors` in place of a text, exit 1 (2.1.4)",
        lines=(
            init_line(),
            message_line("I look at everything once more."),
            _error_result("error_max_turns", "Reached the turn limit"),
        ),
        exit=1,
    ),
    Fault(
        name="malformed-artifact",
        description="the agent reports success, but its artifact is missing or breaks the rules",
        outcome="rejected with the exact violations, called again to fix them, delivered",
        source="an ordinary `result`: nothing in the stream tells",
        lines=(init_line(), message_line("Done."), result_line("Done.")),
    ),
    Fault(
        name="human-blocker",
        description="the agent reports that it needs a person",
        outcome="waits for a person (agent-blocker)",
        source="an ordinary `result` whose text asks for a decision",
        lines=(
            init_line(),
            result_line("I looked at everything.\n\nBlocker: need a decision on the form before I can go on."),
        ),
    ),
    Fault(
        name="crash",
        description="mz is killed during a call",
        outcome="at the next start the call is found lost, called again, delivered",
        source="a spool without an end",
        lines=(init_line(), message_line("I begin with the note.")),
        exit=None,
        is_lost=True,
    ),
)
FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in _FAULTS}


def fault_stdout(fault: Fault) -> bytes:
    """Return the agent's output, in the form in which recordings store it."""
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in fault.lines)


def fault_failure(fault: Fault) -> Failure | None:
    """Return the failure of a call that a limit of mz ends."""
    return Failure(kind=PROBLEM_CLASSES[fault.hangs_until].value, code=fault.hangs_until) if fault.hangs_until else None


BLOCKER_TEXT = "Blocker: need a decision on the form before I can go on."


class FaultOutput(NamedTuple):
    """Output and exit code of a process."""

    stdout: bytes
    stderr: bytes
    exit: int | None


def possible_faults(agent: str, stdout: bytes, stderr: bytes) -> tuple[str, ...]:
    """Return the names of the faults that can be inserted before this recorded call."""
    return tuple(name for name, fault in FAULTS.items() if render_fault(fault, agent, stdout, stderr) is not None)


def render_fault(fault: Fault, agent: str, stdout: bytes, stderr: bytes) -> FaultOutput | None:
    """Return the fault in the agent's format. None: the form is not known."""
    if agent == FAULT_AGENT:
        return FaultOutput(fault_stdout(fault), b"", fault.exit)
    if not any(line["type"] == "result" for line in fault.lines):  # No last line: valid in every format.
        first_line = stdout.splitlines(keepends=True)[:1] if fault.lines else []
        return FaultOutput(b"".join(first_line), b"", fault.exit)
    if fault.name == "malformed-artifact":
        return FaultOutput(stdout, stderr, fault.exit)
    if fault.name == "human-blocker":
        return _blocked_output(agent_package(agent), stdout, stderr)
    return _output_of_ending(agent_package(agent), agent_package(agent).fault_endings.get(fault.name), stdout, stderr)


def _output_of_ending(agent: AgentPackage, ending_name: str | None, stdout: bytes, stderr: bytes) -> FaultOutput | None:
    if agent.stderr_endings is not None:
        stderr_endings = (ending for ending in agent.stderr_endings(stdout, stderr) if ending[0] == ending_name)
        return next((FaultOutput(out, err, code) for _, out, err, code in stderr_endings), None)
    head, last = _split_last_line(stdout)
    if agent.stdout_endings is None or last is None:
        return None
    stdout_endings = (ending for ending in agent.stdout_endings(last) if ending[0] == ending_name)
    return next((FaultOutput(head + other, b"", code) for _, other, code in stdout_endings), None)


def _blocked_output(agent: AgentPackage, stdout: bytes, stderr: bytes) -> FaultOutput | None:
    """Return the recorded reply with text that asks for a person."""
    if agent.stderr_endings is not None:
        return FaultOutput(stdout + f"\n{BLOCKER_TEXT}\n".encode(), stderr, 0)
    head, last = _split_last_line(stdout)
    if agent.blocked_lines is None or last is None:
        return None
    lines = agent.blocked_lines(last, BLOCKER_TEXT)
    return FaultOutput(
        head + b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines), stderr, 0
    )


def _split_last_line(stdout: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """Return the bytes before the last line, and that line if it is an object."""
    lines = stdout.splitlines(keepends=True)
    try:
        last = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        last = None
    return b"".join(lines[:-1]), last if isinstance(last, dict) else None
