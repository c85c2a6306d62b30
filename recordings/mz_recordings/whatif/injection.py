"""Insertion of a fault before a recorded call, and the pipeline's reaction to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from mz_recordings.cassette import Cassette, Identity, StoredFile, Taken
from mz_recordings.whatif.faults import FAULTS, Fault, failure
from mz_recordings.whatif.variants import content
from mz_recordings.whatif.voices import Spoken, faults_of, speak


class FaultMisplaced(Exception):
    """There is no such call or fault; lists the valid ones."""


def inject(cassette: Cassette, call: str, name: str) -> tuple[Cassette, Identity]:
    """Return the cassette with a failed call inserted, and the call's identity: the attempt of `call` (such as
    `alpha/code.U1`). The recorded attempts follow it. Traces are removed, as they no longer apply. Raises
    InvalidFaultError."""
    fault = FAULTS.get(name)
    if fault is None:
        raise FaultMisplaced(f"there is no fault {name!r}; there are: {', '.join(FAULTS)}")
    found = next((one for one in cassette.taken if one.recording.identity.path == call), None)
    if found is None:
        known = ", ".join(one.recording.identity.path for one in cassette.taken)
        raise FaultMisplaced(f"the cassette has no call {call!r}; it has: {known}")
    agent, said = found.recording.agent, (content(found, "stdout"), content(found, "stderr"))
    spoken = speak(fault, agent, *said)
    if spoken is None:
        known = ", ".join(faults_of(agent, *said))
        raise FaultMisplaced(f"the form of {name} is not known for {agent}; possible faults for this call: {known}")
    wanted, taken = found.recording.identity, list[Taken]()
    for one in cassette.taken:
        identity = one.recording.identity
        if one is found:
            taken.append(_failed(one, fault, spoken))
        later = _cell(identity) == _cell(wanted) and identity.attempt >= wanted.attempt
        taken.append(_renamed(one, replace(identity, attempt=identity.attempt + 1)) if later else one)
    manifest = replace(cassette.manifest, stories={})
    return cassette._replace(manifest=manifest, taken=tuple(taken), stories={}), wanted


def _cell(identity: Identity) -> tuple[str, str, str, int, str]:
    return identity.feature, identity.phase, identity.unit, identity.iteration, identity.role


def _failed(one: Taken, fault: Fault, spoken: Spoken) -> Taken:
    """Return the same call with the fault; it changes nothing in the tree."""
    recording, name = one.recording, one.recording.identity.name
    contents = {f"{name}.stream-json": spoken.stdout}
    files = [StoredFile(kind="stdout", name=f"{name}.stream-json", sha256=_sha256(spoken.stdout))]
    if spoken.stderr:
        contents[f"{name}.stderr"] = spoken.stderr
        files.append(StoredFile(kind="stderr", name=f"{name}.stderr", sha256=_sha256(spoken.stderr)))
    if (prompt := recording.find("prompt")) is not None:
        files.insert(0, replace(prompt, name=f"{name}.prompt.md"))
        contents[f"{name}.prompt.md"] = one.contents[prompt.name]
    changed = replace(
        recording,
        outcome="lost" if fault.lost else "replied",
        exit=spoken.exit,
        failure=failure(fault),
        tree_after=recording.tree_before,
        files=tuple(files),
        offences=(),
        accepted=None,
    )
    return Taken(changed, contents)


def _renamed(one: Taken, identity: Identity) -> Taken:
    """Return the call with another identity and the file names that follow from it."""
    old, new = one.recording.identity.name, identity.name
    names = {file.name: new + file.name.removeprefix(old) for file in one.recording.files}
    files = tuple(replace(file, name=names[file.name]) for file in one.recording.files)
    contents = {names[name]: data for name, data in one.contents.items()}
    return Taken(replace(one.recording, identity=identity, files=files), contents)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# reaction -------------------------------------------------------------------------------------------------------------
def aftermath(story: bytes, wanted: Identity) -> Iterator[str]:
    """Yield descriptions of the pipeline's reaction to the call, from the feature's trace."""
    events = [json.loads(line) for line in story.splitlines()]
    begun = next((at for at, event in enumerate(events) if _asks(event, wanted)), None)
    if begun is None:
        yield "the call was not made"
        return
    for event in events[begun + 1 :]:
        reaction = _told(event)
        if reaction:
            yield reaction
        if event["type"] in ("unit.completed", "phase.rolled-back"):
            return


def _asks(event: dict[str, Any], wanted: Identity) -> bool:
    ref = event.get("ref", {})
    asked = (ref.get("phase"), ref.get("unit"), ref.get("iteration"), ref.get("attempt"), ref.get("role"))
    fields = (wanted.phase, wanted.unit, wanted.iteration, wanted.attempt, wanted.role)
    return bool(event["type"] == "agent.requested" and asked == fields)


def _told(event: dict[str, Any]) -> str:
    kind, problem = event["type"], event.get("problem") or {}
    broken = ", ".join(dict.fromkeys(one["rule"] for one in event.get("violations") or ()))
    match kind:
        case "agent.failed":
            return f"ended by mz: {problem['code']}"
        case "agent.lost":
            return "lost: mz was not running when it ended"
        case "reply.read" if problem:
            wait = problem.get("retry_after_seconds")
            return f"parsed: {problem['code']} ({problem['kind']}{f', in {wait} s' if wait else ''})"
        case "feature.held" if event["hold"] == "fatal":
            return f"the run halts: {event['code']}"
        case "feature.held":
            return f"held ({event['hold']}): {event['code']}"
        case "feature.hold-released":
            return "a person resumes the run" if event["hold"] == "fatal" else "released"
        case "agent.requested":
            return f"called again: attempt {event['ref']['attempt']}"
        case "artifact.validated" | "gate.checked" if broken:
            return f"rejected: {broken}"
        case "human.requested":
            return f"a person is asked: {event['code']}"
        case "human.answered":
            return f"a person answers: {event['verdict']}"
        case "phase.rolled-back":
            return f"rolled back to {event['to']}"
        case "unit.completed":
            return "the work was accepted"
    return ""
