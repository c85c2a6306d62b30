"""Agents of a replay: stand-in processes for calls that replied, and the recorded end, without a process, for calls
that failed or were lost."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec
from mz_engine.adapters.environment import worktree
from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import AgentDoor
from mz_engine.ports import CallResult, CallSpec, Interrupted, Reading
from mz_events.catalog.call import Offence, Problem, ProblemClass, SessionEnd

from mz_recordings.cassette import Cassette, Identity, Taken
from mz_recordings.findings import Noted
from mz_recordings.playing.standin import DRIFT, KEY, MISSING, SESSION
from mz_recordings.recording.record import invocation_of
from mz_recordings.recording.scrub import Places, expand
from mz_recordings.recording.storycheck import counts_in

REFUSED = b"stand-in: "
HANGS_SECONDS = 2
"""Duration of a replayed call that hung until its limit."""


_NOTED = msgspec.json.Decoder(Noted)


class Crew:
    """Implements `mz_engine.ports.Agents` for one replay, and records which calls were made. Thread-safe."""

    def __init__(
        self, cassette: Cassette, root: Path, door: AgentDoor, journal: Path, home: str, environment: Mapping[str, str]
    ) -> None:
        self._cassette, self._root, self._door, self._journal = cassette, root, door, journal
        self._home, self._environment = home, environment
        self._taken = {one.recording.identity: one for one in cassette.taken}
        self._lock = threading.Lock()
        self._elsewhere, self._counted = elsewhere(cassette), counted(cassette)
        self.played: dict[Identity, Noted] = {}
        """Every recording that was used, with its differences."""
        self.missed: list[Identity] = []
        self.offences: dict[str, tuple[Offence, ...]] = {}
        """By feature: changes to add to the next capture of its tree."""

    # the port -----------------------------------------------------------------------------------------------------
    def call(self, spec: CallSpec) -> CallResult:
        identity = self._identity(spec.key)
        taken = self._taken.get(identity)
        if taken is None:
            with self._lock:
                self.missed.append(identity)
            return refused("recording-missing")
        if taken.recording.outcome == "replied":
            return self._spawn(spec, taken)
        places = self._places(spec)
        noted = self._compared(taken, spec, places)
        self._note(identity, noted)
        if taken.recording.outcome == "lost":
            raise Interrupted(spec.key)
        if words := self._apply(taken, worktree(self._root, spec.place)):
            self._note(identity, msgspec.structs.replace(noted, refused=words))
            return refused("drift")
        result = _result(taken, places)
        return msgspec.structs.replace(result, version=taken.recording.version)

    def salvage(self, key: str) -> CallResult | None:
        """Return the output that the spool of a lost call held."""
        taken = self._taken.get(self._identity(key))
        return None if taken is None else _result(taken, Places())

    def read(self, agent: str, result: CallResult) -> Reading:
        return self._door.read(agent, result)

    def estimate_tokens(self, agent: str, prompt: str) -> int:
        return self._door.estimate_tokens(agent, prompt)

    def count_tokens(self, spec: CallSpec) -> int | None:
        """Return the recorded count, if any; no agent is asked."""
        return self._counted.get(spec.key.partition("/")[2])

    def format_prompt(self, agent: str, prompt: str) -> str:
        return self._door.format_prompt(agent, prompt)

    def model(self, agent: str, tier: str) -> str:
        return self._door.model(agent, tier)

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        """Return True if the recorded call continued the session: the agent may not have had it."""
        known = session is None or key.partition("/")[2] not in self._elsewhere
        return known and self._door.continues(agent, session, key)

    # replies ------------------------------------------------------------------------------------------------------
    def _spawn(self, spec: CallSpec, taken: Taken) -> CallResult:
        identity = taken.recording.identity
        result = self._door.call(_shortened(spec, taken))
        note = self._journal / f"{identity.path}.json"
        noted = _NOTED.decode(note.read_bytes()) if note.is_file() else Noted()
        if result.exit in (DRIFT, MISSING) and result.stderr.startswith(REFUSED):
            words = result.stderr.removeprefix(REFUSED).decode("utf-8", "replace").strip()
            self._note(identity, noted if noted.tree else msgspec.structs.replace(noted, refused=words))
            return refused("drift")
        self._note(identity, noted)
        with self._lock:
            self.offences[spec.place.feature] = taken.recording.offences
        return result

    def _note(self, identity: Identity, noted: Noted) -> None:
        with self._lock:
            self.played[identity] = noted

    def _identity(self, key: str) -> Identity:
        parts = KEY.fullmatch(key)
        assert parts is not None, key
        _, feature, phase, unit, iteration, attempt, role = parts.groups()
        return Identity(
            pipeline=self._cassette.manifest.pipeline,
            feature=feature,
            phase=phase,
            unit="" if unit == "-" else unit,
            iteration=int(iteration),
            attempt=int(attempt),
            role=role,
        )

    def _places(self, spec: CallSpec) -> Places:
        user = self._environment.get("USER") or Path(self._home).name
        return Places(str(worktree(self._root, spec.place)), str(self._root), self._home, user, spec.session or "")

    def _compared(self, taken: Taken, spec: CallSpec, places: Places) -> Noted:
        """Compare a call that no stand-in compares. Without a process there are no variables to compare."""
        argv = called_with(spec, self._door.adapter(spec.agent))
        other = argv if argv != taken.recording.argv else None
        return Noted(prompt=self._other_prompt(taken, spec, places), argv=other)

    def _other_prompt(self, taken: Taken, spec: CallSpec, places: Places) -> str | None:
        recorded = expand(_content(taken, "prompt"), places)
        return None if recorded == spec.prompt.encode() else spec.prompt

    def _apply(self, taken: Taken, place: Path) -> str:
        """Apply the recorded changes to the worktree; return git's message if that fails."""
        patch = _content(taken, "patch")
        if not patch:
            return ""
        done = subprocess.run(
            ["git", "-c", "core.autocrlf=false", "apply", "--binary", "--whitespace=nowarn", "-"],
            cwd=place,
            env={**self._environment, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
            input=patch,
            capture_output=True,
            check=False,
        )
        return done.stderr.decode("utf-8", "replace").strip() or "git apply failed" if done.returncode else ""


def elsewhere(cassette: Cassette) -> frozenset[str]:
    """Return the keys, without the run, of calls whose agent did not have the session to continue."""
    lines = (line for told in cassette.stories.values() for line in told.splitlines() if b'"session.broken"' in line)
    ends = (json.loads(line) for line in lines)
    keys = (end.get("key") for end in ends if end.get("reason") == SessionEnd.ELSEWHERE.value)
    return frozenset(key.partition("/")[2] for key in keys if isinstance(key, str))


def counted(cassette: Cassette) -> Mapping[str, int]:
    """Return the agents' token counts of calls, by key without the run."""
    return counts_in(cassette.stories.values())


def called_with(spec: CallSpec, adapter: Adapter) -> tuple[str, ...]:
    """Return the arguments of a call, in the form of recordings."""
    argv = invocation_of(adapter, spec).argv
    return tuple(SESSION if word == spec.session else word for word in argv)


def _shortened(spec: CallSpec, taken: Taken) -> CallSpec:
    """Return the call with a short limit if the recorded call was ended by a limit."""
    failure = taken.recording.failure
    code = failure.code if failure else ""
    if code == "timeout":
        return msgspec.structs.replace(spec, total_seconds=min(spec.total_seconds, HANGS_SECONDS))
    if code == "idle":
        return msgspec.structs.replace(spec, idle_seconds=min(spec.idle_seconds, HANGS_SECONDS))
    return spec


def refused(code: str) -> CallResult:
    """Return a result that no retry can fix: the feature stops, the others continue."""
    problem = Problem(kind=ProblemClass.HUMAN, code=code)
    return CallResult(stdout=b"", stderr=b"", exit=None, duration_ms=0, problem=problem)


def _result(taken: Taken, places: Places) -> CallResult:
    """Return the recorded result of a failed or lost call."""
    recording = taken.recording
    failure = recording.failure
    return CallResult(
        stdout=expand(_content(taken, "stdout"), places, in_json=True),
        stderr=expand(_content(taken, "stderr"), places),
        exit=recording.exit,
        duration_ms=recording.duration_ms,
        problem=Problem(kind=ProblemClass(failure.kind), code=failure.code) if failure else None,
    )


def _content(taken: Taken, kind: str) -> bytes:
    file = next((file for file in taken.recording.files if file.kind == kind), None)
    return b"" if file is None else taken.contents[file.name]
