"""Insertion of a fault before a recorded call, and the pipeline's reaction to it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from mz_recordings.cassette.model import Cassette, Identity, RecordedCall
from mz_recordings.cassette.trace import REQUESTED, EventJson, call_of_event, trace_events
from mz_recordings.faults.faults import FAULTS, Fault, FaultOutput, possible_faults, render_fault
from mz_recordings.faults.variants import with_output


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
    changed = with_output(call, output.stdout, output.stderr, {"prompt"})
    recording = replace(
        changed.recording,
        outcome="lost" if fault.is_lost else "replied",
        exit=output.exit,
        failure=fault.failure,
        tree_after=call.recording.tree_before,
        forbidden_changes=(),
        accepted=None,
    )
    return changed._replace(recording=recording)


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


def _describe_event(event: EventJson) -> str:
    kind, problem = event["type"], event.get("problem") or {}
    violated_rules = ", ".join(dict.fromkeys(violation["rule"] for violation in event.get("violations") or ()))
    match kind:
        case "agent.failed":
            return f"ended by mz: {problem['code']}"
        case "agent.lost":
            return "lost: mz was not running when it ended"
        case "reply.parsed" if problem:
            wait_seconds = problem.get("retry_after_seconds")
            return f"parsed: {problem['code']} ({problem['kind']}{f', in {wait_seconds} s' if wait_seconds else ''})"
        case "feature.held" if event["hold"] == "fatal":
            return f"the run halts: {event['code']}"
        case "feature.held":
            return f"held ({event['hold']}): {event['code']}"
        case "feature.hold-released":
            return "a person resumes the run" if event["hold"] == "fatal" else "released"
        case "agent.requested":
            return f"called again: attempt {event['ref']['attempt']}"
        case "artifact.validated" | "gate.checked" if violated_rules:
            return f"rejected: {violated_rules}"
        case "human.requested":
            return f"a person is asked: {event['code']}"
        case "human.answered":
            return f"a person answers: {event['verdict']}"
        case "phase.rolled-back":
            return f"rolled back to {event['to']}"
        case "unit.completed":
            return "the work was accepted"
    return ""
