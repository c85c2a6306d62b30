"""Faults in the output format of any agent, derived from the recording of the call that they precede."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from mz_recordings.whatif.endings import STDERR_ENDINGS, STDOUT_ENDINGS
from mz_recordings.whatif.faults import FAULT_AGENT, FAULTS, Fault, fault_stdout

BLOCKER_TEXT = "Blocker: need a decision on the form before I can go on."


class FaultOutput(NamedTuple):
    """Output and exit code of a process."""

    stdout: bytes
    stderr: bytes
    exit: int | None


_API_ERRORS = {"rate-limit": "error-429", "overloaded": "error-529", "auth-failure": "error-401"}
ENDING_NAMES: Mapping[str, Mapping[str, str]] = {
    "anthropic": {**_API_ERRORS, "lost-connection": "disconnected", "turn-limit": "turns"},
    "gemini": {**_API_ERRORS, "overloaded": "overloaded", "lost-connection": "disconnected", "turn-limit": "turns"},
    "codex": {
        "rate-limit": "failed-429", "overloaded": "failed-529", "auth-failure": "failed-401",
        "lost-connection": "disconnected",
    },
    "aider": {
        "rate-limit": "ends-rate-limit", "overloaded": "ends-overloaded", "auth-failure": "ends-auth-failure",
        "lost-connection": "ends-connection",
    },
    "kiro": {
        "rate-limit": "ends-rate-limit", "overloaded": "ends-overloaded", "auth-failure": "ends-auth-failure",
    },
}  # fmt: skip
"""By agent and fault: name of the ending. Missing faults cannot be expressed by the agent."""


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
        return _blocked_output(agent, stdout, stderr)
    ending_name = ENDING_NAMES.get(agent, {}).get(fault.name, "")
    return _output_of_ending(agent, ending_name, stdout, stderr)


def _output_of_ending(agent: str, ending_name: str, stdout: bytes, stderr: bytes) -> FaultOutput | None:
    if agent in STDERR_ENDINGS:
        stderr_endings = (ending for ending in STDERR_ENDINGS[agent](stdout, stderr) if ending[0] == ending_name)
        return next((FaultOutput(out, err, code) for _, out, err, code in stderr_endings), None)
    head, last = _split_last_line(stdout)
    if agent not in STDOUT_ENDINGS or last is None:
        return None
    stdout_endings = (ending for ending in STDOUT_ENDINGS[agent](last) if ending[0] == ending_name)
    return next((FaultOutput(head + other, b"", code) for _, other, code in stdout_endings), None)


def _blocked_output(agent: str, stdout: bytes, stderr: bytes) -> FaultOutput | None:
    """Return the recorded reply with text that asks for a person."""
    head, last = _split_last_line(stdout)
    if agent in STDERR_ENDINGS:
        return FaultOutput(stdout + f"\n{BLOCKER_TEXT}\n".encode(), stderr, 0)
    if last is None:
        return None
    match agent:
        case "codex":
            blocker = {"type": "item.completed", "item": {"id": "item_99", "type": "agent_message", "text": BLOCKER_TEXT}}
            lines: tuple[Mapping[str, Any], ...] = (blocker, last)
        case "gemini":
            blocker_message = {"type": "message", "role": "assistant", "content": f"\n\n{BLOCKER_TEXT}", "delta": True}
            lines = (blocker_message, last)
        case "anthropic":
            lines = ({**last, "text": BLOCKER_TEXT},)
        case _:
            return None
    return FaultOutput(head + b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines), stderr, 0)


def _split_last_line(stdout: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """Return the bytes before the last line, and that line if it is an object."""
    lines = stdout.splitlines(keepends=True)
    try:
        last = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        last = None
    return b"".join(lines[:-1]), last if isinstance(last, dict) else None
