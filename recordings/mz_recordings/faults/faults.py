"""Faults of agents as recorded calls, to be replayed on their own or inserted before a call of a cassette, and the
pipeline's reaction to one. Also variants of a recorded call: its output cut, doubled or corrupted, its process killed;
each occurred or may occur. They are derived from the bytes alone, so every cassette has them at no cost.

`faults.toml` has them in the output format of `FAULT_AGENT`. For other agents they are derived from the recording of
the call that they precede.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from mz_engine.agents.catalog import agent_package
from mz_engine.agents.package import AgentPackage
from mz_events.catalog.call import Problem, ProblemClass

from mz_recordings.cassette.model import Cassette, Failure, Identity, Kind, RecordedCall, StoredFile
from mz_recordings.cassette.trace import REQUESTED, EventJson, call_of_event, trace_events

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


_TABLE = tomllib.loads((files("mz_recordings.faults") / "faults.toml").read_text("utf-8"))
FAULTS: Mapping[str, Fault] = {name: msgspec.convert({"name": name, **fault}, Fault) for name, fault in _TABLE.items()}


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
    return _endings(package, stdout, stderr).get(package.fault_endings.get(fault.name, ""))


def _endings(agent: AgentPackage, stdout: bytes, stderr: bytes) -> dict[str, FaultOutput]:
    """Return the output with each other end that the agent may write, by name."""
    if agent.stderr_endings is not None:
        return {name: FaultOutput(out, err, code) for name, out, err, code in agent.stderr_endings(stdout, stderr)}
    head, last = split_last_line(stdout)
    if agent.stdout_endings is None or last is None:
        return {}
    return {name: FaultOutput(head + other, b"", code) for name, other, code in agent.stdout_endings(last)}


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


# insertion ------------------------------------------------------------------------------------------------------------
class InvalidFaultError(Exception):
    """There is no such call or fault; lists the valid ones."""


def inject(cassette: Cassette, call: str, fault_name: str) -> tuple[Cassette, Identity]:
    """Return the cassette with a failed call inserted, and the call's identity: the attempt of `call` (such as
    `alpha/code.U1`). The recorded attempts follow it. Traces are removed, as they no longer apply. Raises
    InvalidFaultError."""
    fault = FAULTS.get(fault_name)
    if fault is None:
        raise InvalidFaultError(f"there is no fault {fault_name!r}; there are: {', '.join(FAULTS)}")
    target = next((recorded_call for recorded_call in cassette.calls if recorded_call.identity.path == call), None)
    if target is None:
        valid_names = ", ".join(recorded_call.identity.path for recorded_call in cassette.calls)
        raise InvalidFaultError(f"the cassette has no call {call!r}; it has: {valid_names}")
    agent, streams = target.recording.agent, (target.content("stdout"), target.content("stderr"))
    output = render_fault(fault, agent, *streams)
    if output is None:
        valid_names = ", ".join(possible_faults(agent, *streams))
        raise InvalidFaultError(
            f"the form of {fault_name} is not known for {agent}; possible faults for this call: {valid_names}"
        )
    target_identity, calls = target.identity, list[RecordedCall]()
    for recorded_call in cassette.calls:
        identity = recorded_call.identity
        if recorded_call is target:
            calls.append(_failed_call(recorded_call, fault, output))
        if (
            replace(identity, attempt=target_identity.attempt) == target_identity
            and identity.attempt >= target_identity.attempt
        ):
            recorded_call = _with_identity(recorded_call, replace(identity, attempt=identity.attempt + 1))
        calls.append(recorded_call)
    manifest = replace(cassette.manifest, traces={})
    return cassette._replace(manifest=manifest, calls=tuple(calls), traces={}), target_identity


def _failed_call(call: RecordedCall, fault: Fault, output: FaultOutput) -> RecordedCall:
    """Return the same call with the fault; it changes nothing in the tree."""
    name = call.identity.name
    outputs: dict[Kind, tuple[str, bytes]] = {
        "prompt": (f"{name}.prompt.md", call.content("prompt")),
        "stdout": (f"{name}.stream-json", output.stdout),
        "stderr": (f"{name}.stderr", output.stderr),
    }
    recording = replace(
        call.recording,
        outcome="lost" if fault.is_lost else "replied",
        exit=output.exit,
        failure=fault.failure,
        tree_after=call.recording.tree_before,
        forbidden_changes=(),
        accepted=None,
        files=tuple(
            StoredFile(kind=kind, name=file, sha256=hashlib.sha256(data).hexdigest())
            for kind, (file, data) in outputs.items()
        ),
    )
    return RecordedCall(recording, dict(outputs.values()))


def _with_identity(call: RecordedCall, identity: Identity) -> RecordedCall:
    """Return the call with another identity and the file names that follow from it."""
    old, new = call.identity.name, identity.name
    names = {file.name: new + file.name.removeprefix(old) for file in call.recording.files}
    files = tuple(replace(file, name=names[file.name]) for file in call.recording.files)
    contents = {names[name]: data for name, data in call.contents.items()}
    return RecordedCall(replace(call.recording, identity=identity, files=files), contents)


# reaction -------------------------------------------------------------------------------------------------------------
def fault_reaction(trace: bytes, identity: Identity) -> Iterator[str]:
    """Yield descriptions of the pipeline's reaction to the call, from the feature's trace."""
    events = trace_events(trace)
    for event in events:
        if event["type"] == REQUESTED and call_of_event(event, identity.pipeline, identity.feature) == identity:
            break
    else:
        yield "the call was not made"
        return
    for event in events:
        reaction = _describe_event(event)
        if reaction:
            yield reaction
        if event["type"] in ("unit.completed", "phase.rolled-back"):
            return


REACTIONS = {
    "agent.failed": "ended by mz: {problem[code]}",
    "agent.lost": "lost: mz was not running when it ended",
    "agent.requested": "called again: attempt {ref[attempt]}",
    "feature.held": "held ({hold}): {code}",
    "feature.hold-released": "released",
    "human.requested": "a person is asked: {code}",
    "human.answered": "a person answers: {verdict}",
    "phase.rolled-back": "rolled back to {to}",
    "unit.completed": "the work was accepted",
}
FATAL_REACTIONS = {"feature.held": "the run halts: {code}", "feature.hold-released": "a person resumes the run"}
"""Of a hold that stops the run."""


def _describe_event(event: EventJson) -> str:
    kind, problem = event["type"], event.get("problem")
    if kind == "reply.parsed" and problem:
        wait_seconds = problem.get("retry_after_seconds")
        return f"parsed: {problem['code']} ({problem['kind']}{f', in {wait_seconds} s' if wait_seconds else ''})"
    if kind in ("artifact.validated", "gate.checked") and event.get("violations"):
        return f"rejected: {', '.join(dict.fromkeys(violation['rule'] for violation in event['violations']))}"
    fatal_text = FATAL_REACTIONS.get(kind) if event.get("hold") == "fatal" else None
    return (fatal_text or REACTIONS.get(kind, "")).format_map(event)


# variants -------------------------------------------------------------------------------------------------------------
HUGE_BYTES = 2_000_000
SIGNALS = (-9, -15)
TERMINATED = 143
"""Exit code of a terminated program: 128 + 15."""
BINARY = bytes(range(256)) * 16
INVALID_UTF8 = b"\xff\xfe\xc3("
MZ_ENDINGS = (
    *(Problem(kind=ProblemClass.TRANSIENT, code=code) for code in ("timeout", "idle", "killed")),
    Problem(kind=ProblemClass.PHASE, code="output-limit"),
    Problem(kind=ProblemClass.FATAL, code="disk-full"),
)
"""Ways in which mz ends a call, whatever its output."""


class Variant(NamedTuple):
    """One way in which a recorded call might have ended."""

    identity: Identity
    name: str
    """Unique among the variants of a call."""
    stdout: bytes
    """In the form of recordings, with tokens for places."""
    stderr: bytes = b""
    exit: int | None = 0
    ended_by_mz: Problem | None = None
    """The problem with which mz ended the call."""
    keeps_changes: bool = True
    """The agent's changes are in the tree."""


def as_recorded(call: RecordedCall) -> Variant:
    """Return how the call really ended."""
    result = call.result()
    return Variant(call.identity, "", result.stdout, result.stderr, result.exit or 0, result.problem)


def derive_variants(call: RecordedCall) -> tuple[Variant, ...]:
    """Return all variants of a recording without duplicates."""
    stdout, stderr, code = call.content("stdout"), call.content("stderr"), call.recording.exit or 0
    agent = agent_package(call.recording.agent)
    stdout_variants = (*_cut_variants(stdout), *_corrupted_variants(stdout), *_ending_variants(agent, stdout))
    variants = [Variant(call.identity, name, data, stderr, exit_code) for name, data, exit_code in stdout_variants]
    if agent.stderr_endings is not None:
        variants += [Variant(call.identity, *ending) for ending in agent.stderr_endings(stdout, stderr)]
    variants += _process_end_variants(Variant(call.identity, "", stdout, stderr, code))
    unique_variants: dict[tuple[object, ...], Variant] = {}
    for variant in variants:
        unique_variants.setdefault(variant[2:], variant)
    return tuple(unique_variants.values())


# cut ------------------------------------------------------------------------------------------------------------------
def _cut_variants(stdout: bytes) -> Iterator[tuple[str, bytes, int]]:
    lines = stdout.splitlines(keepends=True)
    offset = 0
    for number, line in enumerate(lines):
        yield (f"cut-after-line-{number}" if number else "empty"), stdout[:offset], 0
        yield f"cut-in-line-{number + 1}", stdout[: offset + len(line) // 2], 0
        starts = [at for at in range(1, len(line)) if line[at] >= 0xC0]  # First bytes of multi-byte characters.
        if starts:
            yield f"cut-in-a-character-of-line-{number + 1}", stdout[: offset + starts[-1] + 1], 0
        offset += len(line)
    yield "cut-before-the-last-byte", stdout.rstrip(b"\r\n")[:-1], 0
    yield "cut-before-the-last-line-end", stdout.rstrip(b"\r\n"), 0
    yield "cut-in-a-character", b"".join(lines[:-1]) + '{"type":"assistant","text":"é'.encode()[:-1], 0
    for code in (*SIGNALS, TERMINATED, 1):
        yield f"cut-before-the-end-exit-{code}", b"".join(lines[:-1]), code
        yield f"empty-exit-{code}", b"", code


# corrupted ------------------------------------------------------------------------------------------------------------
def _corrupted_variants(stdout: bytes) -> Iterator[tuple[str, bytes, int]]:
    lines = stdout.splitlines(keepends=True)
    head, last = b"".join(lines[:-1]), b"".join(lines[-1:])
    huge = b'{"type":"user","text":"' + b"x" * HUGE_BYTES + b'"}\n'
    yield "garbage-after-the-end", stdout + b"\x00\x07garbage {[\n", 0
    yield "json-after-the-end", stdout + b'[1,2]\n"text"\nnull\n{}\n{"type":7}\n', 0
    yield "half-a-line-after-the-end", stdout + (lines[0] if lines else b"{")[:20], 0
    yield "a-line-again-after-the-end", stdout + b"".join(lines[:1]), 0
    yield "binary", BINARY, 0
    yield "binary-before", BINARY + b"\n" + stdout, 0
    yield "no-text-in-a-line", head + b'{"type":"user","text":"' + INVALID_UTF8 + b'"}\n' + last, 0
    yield "no-text-in-the-last-line", head + last.replace(b'"', b'"' + INVALID_UTF8, 1), 0
    yield "zeros-in-the-last-line", head + last.replace(b",", b",\x00", 1), 0
    yield "huge-line-before-the-end", head + huge + last, 0
    yield "huge-line-instead-of-the-end", head + huge, 0
    yield "huge-line-without-end", head + huge[: HUGE_BYTES // 2], 0
    yield "deep-line", head + b"[" * 100_000 + b"\n" + last, 0
    yield "no-line-ends", stdout.replace(b"\n", b" "), 0
    yield "other-line-ends", stdout.replace(b"\n", b"\r\n"), 0
    yield "empty-lines", stdout.replace(b"\n", b"\n\n \n"), 0
    yield "byte-order-mark", b"\xef\xbb\xbf" + stdout, 0
    yield "words-instead-of-lines", b"Done. Everything went well.\n", 0
    yield "twice", stdout + stdout, 0
    yield "end-twice", stdout + last, 0
    yield "end-first", last + head, 0
    yield "backwards", b"".join(reversed(lines)), 0
    yield "end-alone", last, 0


# other ends -----------------------------------------------------------------------------------------------------------
def _process_end_variants(base: Variant) -> Iterator[Variant]:
    """Yield the same bytes with other ends of the process."""
    for code in (*SIGNALS, TERMINATED, 1):
        yield base._replace(name=f"whole-exit-{code}", exit=code)
    for problem in MZ_ENDINGS:
        yield base._replace(name=f"whole-and-{problem.code}", exit=None, ended_by_mz=problem)
        half = base.stdout[: len(base.stdout) // 2]
        yield base._replace(name=f"half-and-{problem.code}", stdout=half, exit=None, ended_by_mz=problem)
    noise = b"Error: rate limit exceeded, please run /login\n"
    yield base._replace(name="words-of-failure-on-stderr", stderr=base.stderr + noise)
    yield base._replace(name="empty-with-words-of-failure", stdout=b"", stderr=noise, exit=1)
    yield base._replace(name="nothing-changed", keeps_changes=False)


def _ending_variants(agent: AgentPackage, stdout: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Yield other last lines in the agent's format, also before and after the recorded one."""
    head, last = split_last_line(stdout)
    if agent.stdout_endings is None or last is None:
        return
    for name, other, code in agent.stdout_endings(last):
        yield f"ends-{name}", head + other, code
        yield f"ends-{name}-exit-0", head + other, 0
        yield f"success-then-{name}", stdout + other, code
        yield f"{name}-then-success", head + other + stdout.removeprefix(head), 0
