"""Agents of a replay: stand-in processes for calls that replied, and the recorded end, without a process, for calls
that failed or were lost."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import AgentRegistry, Processes
from mz_engine.git.process import NO_USER_CONFIG, run_git, safe_environment
from mz_engine.ports import CallResult, CallSpec, FeatureWorktree, Interrupted
from mz_engine.processes.environment import worktree_path
from mz_events.catalog.call import ForbiddenChange, Problem, ProblemClass, SessionDropReason

from mz_recordings.cassette.model import Cassette, Identity, RecordedCall
from mz_recordings.cassette.placeholders import MachineValues, expand
from mz_recordings.cassette.trace import counted_tokens, trace_events
from mz_recordings.findings.model import CallMismatch
from mz_recordings.record.recorder import invocation_of
from mz_recordings.replay.stand_in import DRIFT, MISSING, SESSION, parse_key

STAND_IN_PREFIX = b"stand-in: "
HANG_SECONDS = 2
"""Duration of a replayed call that hung until its limit."""
HANGING_LIMITS = {"timeout": "total_seconds", "idle": "idle_seconds"}
"""Limit of a call, by the code of the failure that it leads to."""


_MISMATCH_DECODER = msgspec.json.Decoder(CallMismatch)


class ReplayAgents(AgentRegistry):
    """The agents of one cassette, whose programs on PATH are stand-ins; records which calls were made. Thread-safe."""

    def __init__(
        self,
        cassette: Cassette,
        root: Path,
        processes: Processes,
        journal: Path,
        environment: Mapping[str, str],
        adapters: Mapping[str, Adapter] | None = None,
    ) -> None:
        super().__init__(processes, environment, adapters)
        self._cassette, self._root, self._journal = cassette, root, journal
        self._recorded_calls = cassette.by_identity()
        self._lock = threading.Lock()
        self._dropped_sessions = calls_with_dropped_session(cassette)
        self._token_counts = counted_tokens(cassette)
        self.mismatches: dict[Identity, CallMismatch] = {}
        """Every recording that was used, with its differences."""
        self.missing_calls: list[Identity] = []
        self.forbidden_changes: dict[str, tuple[ForbiddenChange, ...]] = {}
        """By feature: changes to add to the next capture of its tree."""

    def call(self, spec: CallSpec) -> CallResult:
        identity = self._identity(spec.key)
        recorded_call = self._recorded_calls.get(identity)
        if recorded_call is None:
            with self._lock:
                self.missing_calls.append(identity)
            return rejected_result("recording-missing")
        if recorded_call.recording.outcome == "replied":
            return self._reply(spec, recorded_call)
        machine_values = self._machine_values(spec)
        mismatch = self._compare(recorded_call, spec, machine_values)
        self._note(identity, mismatch)
        if recorded_call.recording.outcome == "lost":
            raise Interrupted(spec.key)
        if error_text := self._apply(recorded_call, spec.worktree):
            self._note(identity, replace(mismatch, rejection=error_text))
            return rejected_result("drift")
        return _recorded_result(recorded_call, machine_values)

    def salvage(self, key: str) -> CallResult | None:
        """Return the output that the spool of a lost call held."""
        recorded_call = self._recorded_calls.get(self._identity(key))
        if recorded_call is None or recorded_call.recording.outcome != "lost":
            return super().salvage(key)
        return _recorded_result(recorded_call, MachineValues())

    def count_tokens(self, spec: CallSpec) -> int | None:
        """Return the recorded count, if any; no agent is asked."""
        return self._token_counts.get(spec.key.partition("/")[2])

    def continues(self, agent: str, session: str | None, key: str) -> bool:
        """Return True if the recorded call continued the session: the agent may not have had it."""
        had_session = session is None or key.partition("/")[2] not in self._dropped_sessions
        return had_session and super().continues(agent, session, key)

    # replies ------------------------------------------------------------------------------------------------------
    def _reply(self, spec: CallSpec, recorded_call: RecordedCall) -> CallResult:
        """Make a call that replied."""
        identity = recorded_call.identity
        result = super().call(_shorten_limit(spec, recorded_call))
        journal_file = self._journal / f"{identity.path}.json"
        mismatch = _MISMATCH_DECODER.decode(journal_file.read_bytes()) if journal_file.is_file() else CallMismatch()
        if result.exit in (DRIFT, MISSING) and result.stderr.startswith(STAND_IN_PREFIX):
            error_text = result.stderr.removeprefix(STAND_IN_PREFIX).decode("utf-8", "replace").strip()
            self._note(identity, mismatch if mismatch.tree else replace(mismatch, rejection=error_text))
            return rejected_result("drift")
        self._note(identity, mismatch)
        with self._lock:
            self.forbidden_changes[spec.worktree.feature] = recorded_call.recording.forbidden_changes
        return result

    def _note(self, identity: Identity, mismatch: CallMismatch) -> None:
        with self._lock:
            self.mismatches[identity] = mismatch

    def _identity(self, key: str) -> Identity:
        return identity_of_key(self._cassette.manifest.pipeline, key)

    def _machine_values(self, spec: CallSpec) -> MachineValues:
        home = self._environment.get("HOME", "")
        user = self._environment.get("USER") or Path(home).name
        worktree = worktree_path(self._root, spec.worktree)
        return MachineValues(str(worktree), str(self._root), home, user, spec.session or "")

    def _compare(self, recorded_call: RecordedCall, spec: CallSpec, machine_values: MachineValues) -> CallMismatch:
        """Compare a call that no stand-in compares. Without a process there are no variables to compare."""
        argv, prompt = recorded_argv(spec, self.adapter(spec.agent)), spec.prompt
        return CallMismatch(
            prompt=prompt if prompt.encode() != expand(recorded_call.content("prompt"), machine_values) else None,
            argv=argv if argv != recorded_call.recording.argv else None,
        )

    def _apply(self, recorded_call: RecordedCall, worktree: FeatureWorktree) -> str:
        """Apply the recorded changes to the worktree; return git's message if that fails."""
        patch = recorded_call.content("patch")
        if not patch:
            return ""
        folder = worktree_path(self._root, worktree)
        # As part of the checkout, only what is below this folder would be applied.
        ceiling = {**NO_USER_CONFIG, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
        arguments = ("apply", "--binary", "--whitespace=nowarn", "-")
        result = run_git(arguments, folder, {**safe_environment(self._environment), **ceiling}, patch)
        return result.stderr or "git apply failed" if result.exit_code else ""


def identity_of_key(pipeline: str, key: str) -> Identity:
    call = parse_key(key)
    assert call is not None, key
    return Identity(pipeline=pipeline, **call)


def calls_with_dropped_session(cassette: Cassette) -> frozenset[str]:
    """Return the keys, without the run, of calls whose agent did not have the session to continue."""
    drops = (drop for trace in cassette.traces.values() for drop in trace_events(trace, "session.dropped"))
    keys = (drop.get("key") for drop in drops if drop.get("reason") == SessionDropReason.RECORDED.value)
    return frozenset(key.partition("/")[2] for key in keys if isinstance(key, str))


def recorded_argv(spec: CallSpec, adapter: Adapter) -> tuple[str, ...]:
    """Return the arguments of a call, in the form of recordings."""
    argv = invocation_of(adapter, spec).argv
    return tuple(SESSION if word == spec.session else word for word in argv)


def empty_spec(agent: str) -> CallSpec:
    """Return a call without any input, to ask an adapter for its arguments."""
    return CallSpec(
        key="",
        worktree=FeatureWorktree(run="", feature="", branch=""),
        agent=agent,
        model="",
        prompt="",
        session=None,
        resumes=False,
        tools=(),
        total_seconds=1,
        idle_seconds=1,
    )


def _shorten_limit(spec: CallSpec, recorded_call: RecordedCall) -> CallSpec:
    """Return the call with a short limit if the recorded call was ended by a limit."""
    failure = recorded_call.recording.failure
    field = HANGING_LIMITS.get(failure.code) if failure else None
    return replace(spec, **{field: min(getattr(spec, field), HANG_SECONDS)}) if field else spec


def rejected_result(code: str) -> CallResult:
    """Return a result that no retry can fix: the feature stops, the others continue."""
    problem = Problem(kind=ProblemClass.NEEDS_PERSON, code=code)
    return CallResult(stdout=b"", stderr=b"", exit=None, duration_ms=0, problem=problem)


def _recorded_result(recorded_call: RecordedCall, machine_values: MachineValues) -> CallResult:
    """Return the recorded result of a failed or lost call, with the values of this machine."""
    result = recorded_call.result()
    return replace(
        result,
        stdout=expand(result.stdout, machine_values, in_json=True),
        stderr=expand(result.stderr, machine_values),
        model="",
        session_usage_before=(),
    )
