"""Agent calls as processes: spawned into a spool, bounded by limits, recovered after a crash of mz."""

from __future__ import annotations

import errno
import pathlib
import threading
import time
from collections.abc import Mapping

from msgspec.structs import replace
from mz_events.catalog.call import Problem, ProblemClass
from mz_events.redact import Secrets

from mz_engine.adapters.environment import command_environment, protected_paths, worktree_path, writable_paths
from mz_engine.adapters.temporary import (
    TMPDIR_VARIABLE,
    existing_temporaries,
    make_temporary,
    remove_temporary,
    temporary_path,
)
from mz_engine.agents.asking import CapturedOutput, query_key
from mz_engine.agents.contract import Invocation
from mz_engine.agents.spool import Spool, SpoolContent, SpoolEnd, SpoolMeta, load_spool, spool_directory
from mz_engine.agents.supervise import (
    DeniedHandler,
    EndReason,
    Launch,
    ProcessEnd,
    ProcessLimits,
    can_run_offline,
    kill_by_key,
    supervise,
)
from mz_engine.home import MZ_FOLDER, SPOOL_FOLDER
from mz_engine.ports import CallResult, CallSpec, Interrupted

OUTPUT_BYTES_MAX = 200_000_000
QUERY_SECONDS = 30
"""The number is optional, so no call waits longer for it."""
QUERY_BYTES_MAX = 1_000_000

PROBLEM_BY_REASON: Mapping[EndReason, Problem | None] = {
    EndReason.EXITED: None,
    EndReason.TIMEOUT: Problem(kind=ProblemClass.TRANSIENT, code="timeout"),
    EndReason.IDLE: Problem(kind=ProblemClass.TRANSIENT, code="idle"),
    EndReason.OUTPUT_LIMIT: Problem(kind=ProblemClass.PHASE, code="output-limit"),
    EndReason.STOPPED: Problem(kind=ProblemClass.TRANSIENT, code="stopped"),
    EndReason.MISSING: Problem(kind=ProblemClass.FATAL, code="tool-missing"),
    EndReason.UNSTARTABLE: Problem(kind=ProblemClass.TRANSIENT, code="unstartable"),
    EndReason.LOST: Problem(kind=ProblemClass.TRANSIENT, code="killed"),
    EndReason.DISK_FULL: Problem(kind=ProblemClass.FATAL, code="disk-full"),
    EndReason.BROKEN: Problem(kind=ProblemClass.FATAL, code="unstartable"),
}
"""An exit code alone is no problem: the parser decides."""

EMPTY_SPOOL = SpoolContent(stdout=b"", stderr=b"", duration_ms=0, end=None)


class AgentProcesses:
    """Runs the agent calls of one repository; `spawn` is the `Spawn` that adapters get. Thread-safe.

    `environment` supplies variables, `passed` names additional ones to pass, `secrets` are redacted from all output.
    Setting `stop` ends every running call (problem `stopped`). With `on_denied`, calls get no network if the machine
    supports that, and it receives their attempts. `enclosing_repository` contains the root; no call may write to it.
    """

    def __init__(
        self,
        root: pathlib.Path,
        environment: Mapping[str, str],
        secrets: Secrets,
        *,
        passed: tuple[str, ...] = (),
        stop: threading.Event | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        on_denied: DeniedHandler | None = None,
        enclosing_repository: pathlib.Path | None = None,
    ) -> None:
        self._enclosing_repository = enclosing_repository
        self._root, self._environment, self._secrets = root, environment, secrets
        self._passed, self._stop = passed, stop
        self._output_bytes_max, self._on_denied = output_bytes_max, on_denied
        self._spools = root / MZ_FOLDER / SPOOL_FOLDER

    def spawn(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        """Run the call in its worktree, until no process of it is left. Never raises for what the agent does, nor for a
        full disk."""
        launch = self._launch(spec, invocation)
        folder = spool_directory(self._spools, spec.key)
        try:
            if invocation.private_tmpdir:
                make_temporary(self._temporary(spec.key))
            end = self._run(spec, launch, folder)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            end = ProcessEnd(reason=EndReason.DISK_FULL)
        finally:
            if invocation.private_tmpdir:
                remove_temporary(self._temporary(spec.key))
        spooled = load_spool(folder) or EMPTY_SPOOL
        return CallResult(
            stdout=spooled.stdout,
            stderr=spooled.stderr,
            exit=end.exit,
            duration_ms=spooled.duration_ms,
            problem=PROBLEM_BY_REASON[end.reason],
        )

    def query(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        """Run a helper process for a call, such as a token count, in the call's worktree (read-only if mount namespaces
        work). It has its own key and `QUERY_SECONDS`, no temporary directory and no spool, so nothing takes it for the
        call. Never raises for what the program does. Raises Interrupted if `stop` ended it: the call must not start."""
        query = replace(spec, key=query_key(spec.agent))
        launch, output = replace(self._launch(query, replace(invocation, private_tmpdir=False)), writable=()), CapturedOutput()
        limits = ProcessLimits(total_seconds=QUERY_SECONDS, output_bytes=QUERY_BYTES_MAX)
        end = supervise(launch, limits, output, stop=self._stop)
        if end.reason is EndReason.STOPPED:
            raise Interrupted(query.key)
        return CallResult(
            stdout=bytes(output.stdout),
            stderr=b"",
            exit=end.exit,
            duration_ms=end.duration_ms,
            problem=PROBLEM_BY_REASON[end.reason],
        )

    def salvage(self, key: str) -> CallResult | None:
        """Kill all processes of the key and return the call's spooled output, with exit and problem if mz saw the end.
        None: the call never began."""
        kill_by_key(key)
        for folder in existing_temporaries(self._root, key, self._environment):
            remove_temporary(folder)
        spooled = load_spool(spool_directory(self._spools, key))
        if spooled is None:
            return None
        return CallResult(
            stdout=spooled.stdout,
            stderr=spooled.stderr,
            exit=spooled.end.exit if spooled.end else None,
            duration_ms=spooled.duration_ms,
            problem=spooled.end.problem if spooled.end else None,
            version=spooled.version,
        )

    def _temporary(self, key: str) -> pathlib.Path:
        return temporary_path(self._root, key, self._environment)

    def _launch(self, spec: CallSpec, invocation: Invocation) -> Launch:
        tmpdir = {TMPDIR_VARIABLE: str(self._temporary(spec.key))} if invocation.private_tmpdir else {}
        return Launch(
            argv=invocation.argv,
            env=command_environment(self._environment, spec.key, passed=self._passed, extra={**invocation.env, **tmpdir}),
            cwd=worktree_path(self._root, spec.worktree),
            stdin=invocation.stdin,
            read_only=(*(protected_paths(self._enclosing_repository) if self._enclosing_repository else ()), *protected_paths(self._root)),
            writable=writable_paths(self._root, spec.worktree, self._environment, self._enclosing_repository),
            offline=self._on_denied is not None and can_run_offline(),
        )

    def _run(self, spec: CallSpec, launch: Launch, folder: pathlib.Path) -> ProcessEnd:
        spool = Spool(folder, self._meta(spec, launch), self._secrets)
        try:
            end = supervise(launch, self._limits(spec), spool, stop=self._stop)
            if self._on_denied is not None and end.denied_connections:
                self._on_denied(spec.key, end.denied_connections)
            if end.detail:
                spool.write_note(end.detail)
            spool.flush()
            problem = PROBLEM_BY_REASON[end.reason]
            spool.finish(SpoolEnd(exit=end.exit, duration_ms=end.duration_ms, problem=problem))
        finally:
            spool.close()
        return end

    def _limits(self, spec: CallSpec) -> ProcessLimits:
        return ProcessLimits(
            total_seconds=spec.total_seconds, idle_seconds=spec.idle_seconds, output_bytes=self._output_bytes_max
        )

    def _meta(self, spec: CallSpec, launch: Launch) -> SpoolMeta:
        return SpoolMeta(
            key=spec.key,
            agent=spec.agent,
            model=spec.model,
            argv=tuple(self._secrets.redact(argument) for argument in launch.argv),
            environment=tuple(sorted(launch.env)),
            started_us=time.time_ns() // 1000,
            version=spec.version,
        )
