"""Faults of agents as recorded calls, to be replayed on their own or inserted into a cassette.

`faults.toml` has them in the output format of `FAULT_AGENT`. For other agents they are derived from the recording of
the call that they precede.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import msgspec
from mz_engine.agents.catalog import agent_package
from mz_engine.agents.package import AgentPackage
from mz_events.catalog.call import ProblemClass

from mz_recordings.cassette.model import Failure

FAULT_AGENT = "claude-code"
TERMINAL_EVENT = '"type": "result"'
"""In the last line of `FAULT_AGENT`, which reports the end of the call."""
BLOCKER_TEXT = "Blocker: need a decision on the form before I can go on."


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a call fails."""

    name: str
    description: str
    """Description of the agent's behaviour."""
    outcome: str
    """Reaction of the pipeline, and the outcome of a feature that would otherwise be delivered."""
    source: str
    """The form of the agent's output, and its source."""
    stdout: str = ""
    """Output, a JSON object per line."""
    exit: int | None = None
    """None: the end was not observed."""
    hangs_until: Literal["", "timeout", "idle"] = ""
    """The limit that ends the call; empty: it ends by itself."""
    is_lost: bool = False
    """`mz` dies during the call."""

    @property
    def failure(self) -> Failure | None:
        """The failure of a call that a limit of mz ends."""
        return Failure(kind=ProblemClass.TRANSIENT.value, code=self.hangs_until) if self.hangs_until else None


def _load_faults() -> Mapping[str, Fault]:
    table = tomllib.loads((files("mz_recordings.faults") / "faults.toml").read_text("utf-8"))
    return {name: msgspec.convert({"name": name, **fault}, Fault) for name, fault in table.items()}


FAULTS = _load_faults()


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
        return FaultOutput(fault.stdout.encode(), b"", fault.exit)
    if TERMINAL_EVENT not in fault.stdout:  # No last line: valid in every format.
        first_line = stdout.splitlines(keepends=True)[:1] if fault.stdout else []
        return FaultOutput(b"".join(first_line), b"", fault.exit)
    if fault.name == "malformed-artifact":
        return FaultOutput(stdout, stderr, fault.exit)
    package = agent_package(agent)
    if fault.name == "human-blocker":
        return _blocked_output(package, stdout, stderr)
    return _output_of_ending(package, package.fault_endings.get(fault.name), stdout, stderr)


def _output_of_ending(agent: AgentPackage, ending_name: str | None, stdout: bytes, stderr: bytes) -> FaultOutput | None:
    if agent.stderr_endings is not None:
        stderr_endings = (ending for ending in agent.stderr_endings(stdout, stderr) if ending[0] == ending_name)
        return next((FaultOutput(out, err, code) for _, out, err, code in stderr_endings), None)
    head, last = split_last_line(stdout)
    if agent.stdout_endings is None or last is None:
        return None
    stdout_endings = (ending for ending in agent.stdout_endings(last) if ending[0] == ending_name)
    return next((FaultOutput(head + other, b"", code) for _, other, code in stdout_endings), None)


def _blocked_output(agent: AgentPackage, stdout: bytes, stderr: bytes) -> FaultOutput | None:
    """Return the recorded reply with text that asks for a person."""
    if agent.stderr_endings is not None:
        return FaultOutput(stdout + f"\n{BLOCKER_TEXT}\n".encode(), stderr, 0)
    head, last = split_last_line(stdout)
    if agent.blocked_lines is None or last is None:
        return None
    lines = agent.blocked_lines(last, BLOCKER_TEXT)
    return FaultOutput(
        head + b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines), stderr, 0
    )


def split_last_line(stdout: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """Return the bytes before the last line, and that line if it is an object."""
    lines = stdout.splitlines(keepends=True)
    try:
        last = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        last = None
    return b"".join(lines[:-1]), last if isinstance(last, dict) else None
