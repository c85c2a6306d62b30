"""Faults in the output format of any agent, derived from the recording of the call that they precede."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from mz_recordings.whatif.endings import ASIDE, ENDINGS
from mz_recordings.whatif.faults import AGENT, FAULTS, Fault, stream

BLOCKED = "Blocker: need a decision on the form before I can go on."


class Spoken(NamedTuple):
    """Output and exit code of a process."""

    stdout: bytes
    stderr: bytes
    exit: int | None


_OF_THE_API = {"rate-limit": "error-429", "overloaded": "error-529", "auth-failure": "error-401"}
ENDS: Mapping[str, Mapping[str, str]] = {
    "anthropic": {**_OF_THE_API, "lost-connection": "disconnected", "turn-limit": "turns"},
    "gemini": {**_OF_THE_API, "overloaded": "overloaded", "lost-connection": "disconnected", "turn-limit": "turns"},
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


def faults_of(agent: str, stdout: bytes, stderr: bytes) -> tuple[str, ...]:
    """Return the names of the faults that can be inserted before this recorded call."""
    return tuple(name for name, fault in FAULTS.items() if speak(fault, agent, stdout, stderr) is not None)


def speak(fault: Fault, agent: str, stdout: bytes, stderr: bytes) -> Spoken | None:
    """Return the fault in the agent's format. None: the form is not known."""
    if agent == AGENT:
        return Spoken(stream(fault), b"", fault.exit)
    if not any(line["type"] == "result" for line in fault.lines):  # No last line: valid in every format.
        begun = stdout.splitlines(keepends=True)[:1] if fault.lines else []
        return Spoken(b"".join(begun), b"", fault.exit)
    if fault.name == "malformed-artifact":
        return Spoken(stdout, stderr, fault.exit)
    if fault.name == "human-blocker":
        return _blocked(agent, stdout, stderr)
    wanted = ENDS.get(agent, {}).get(fault.name, "")
    return _ended(agent, wanted, stdout, stderr)


def _ended(agent: str, wanted: str, stdout: bytes, stderr: bytes) -> Spoken | None:
    if agent in ASIDE:
        found = (each for each in ASIDE[agent](stdout, stderr) if each[0] == wanted)
        return next((Spoken(out, err, code) for _, out, err, code in found), None)
    head, last = _parted(stdout)
    if agent not in ENDINGS or last is None:
        return None
    others = (each for each in ENDINGS[agent](last) if each[0] == wanted)
    return next((Spoken(head + other, b"", code) for _, other, code in others), None)


def _blocked(agent: str, stdout: bytes, stderr: bytes) -> Spoken | None:
    """Return the recorded reply with text that asks for a person."""
    head, last = _parted(stdout)
    if agent in ASIDE:
        return Spoken(stdout + f"\n{BLOCKED}\n".encode(), stderr, 0)
    if last is None:
        return None
    match agent:
        case "codex":
            words = {"type": "item.completed", "item": {"id": "item_99", "type": "agent_message", "text": BLOCKED}}
            lines: tuple[Mapping[str, Any], ...] = (words, last)
        case "gemini":
            said = {"type": "message", "role": "assistant", "content": f"\n\n{BLOCKED}", "delta": True}
            lines = (said, last)
        case "anthropic":
            lines = ({**last, "text": BLOCKED},)
        case _:
            return None
    return Spoken(head + b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines), stderr, 0)


def _parted(stdout: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """Return the bytes before the last line, and that line if it is an object."""
    lines = stdout.splitlines(keepends=True)
    try:
        last = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        last = None
    return b"".join(lines[:-1]), last if isinstance(last, dict) else None
