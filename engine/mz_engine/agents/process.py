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

from mz_engine.adapters.environment import fenced, opened, variables, worktree
from mz_engine.adapters.temporary import VARIABLE, left_temporary, make_temporary, remove_temporary, temporary
from mz_engine.agents.asking import Said, key_of_check
from mz_engine.agents.contract import Invocation
from mz_engine.agents.spool import Closing, Meta, Spool, Spooled, directory, load
from mz_engine.agents.supervise import Bounds, Denied, Ended, Ending, Launch, kill_marked, offline_works, supervise
from mz_engine.home import HOME, SPOOL
from mz_engine.ports import CallResult, CallSpec, Interrupted

OUTPUT_BYTES_MAX = 200_000_000
ASK_SECONDS = 30
"""The number is optional, so no call waits longer for it."""
ASK_BYTES_MAX = 1_000_000

PROBLEMS: Mapping[Ending, Problem | None] = {
    Ending.EXITED: None,
    Ending.TIMEOUT: Problem(kind=ProblemClass.TRANSIENT, code="timeout"),
    Ending.IDLE: Problem(kind=ProblemClass.TRANSIENT, code="idle"),
    Ending.OUTPUT_LIMIT: Problem(kind=ProblemClass.PHASE, code="output-limit"),
    Ending.STOPPED: Problem(kind=ProblemClass.TRANSIENT, code="stopped"),
    Ending.MISSING: Problem(kind=ProblemClass.FATAL, code="tool-missing"),
    Ending.UNSTARTABLE: Problem(kind=ProblemClass.TRANSIENT, code="unstartable"),
    Ending.LOST: Problem(kind=ProblemClass.TRANSIENT, code="killed"),
    Ending.DISK_FULL: Problem(kind=ProblemClass.FATAL, code="disk-full"),
    Ending.BROKEN: Problem(kind=ProblemClass.FATAL, code="unstartable"),
}
"""An exit code alone is no problem: the parser decides."""

NOTHING = Spooled(stdout=b"", stderr=b"", duration_ms=0, closing=None)


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
        denied: Denied | None = None,
        around: pathlib.Path | None = None,
    ) -> None:
        self._around = around
        self._root, self._environment, self._secrets = root, environment, secrets
        self._passed, self._stop = passed, stop
        self._output_bytes_max, self._denied = output_bytes_max, denied
        self._spools = root / HOME / SPOOL

    def spawn(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        """Run the call in its worktree, until no process of it is left. Never raises for what the agent does, nor for a
        full disk."""
        launch = self._launch(spec, invocation)
        folder = directory(self._spools, spec.key)
        try:
            if invocation.temporary:
                make_temporary(self._temporary(spec.key))
            end = self._run(spec, launch, folder)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            end = Ended(ending=Ending.DISK_FULL)
        finally:
            if invocation.temporary:
                remove_temporary(self._temporary(spec.key))
        spooled = load(folder) or NOTHING
        return CallResult(
            stdout=spooled.stdout,
            stderr=spooled.stderr,
            exit=end.exit,
            duration_ms=spooled.duration_ms,
            problem=PROBLEMS[end.ending],
        )

    def ask(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        """Run a helper process for a call, such as a token count, in the call's worktree (read-only if mount namespaces
        work). It has its own key and `QUERY_SECONDS`, no temporary directory and no spool, so nothing takes it for the
        call. Never raises for what the program does. Raises Interrupted if `stop` ended it: the call must not start."""
        query = replace(spec, key=key_of_check(spec.agent))
        launch, output = replace(self._launch(query, replace(invocation, temporary=False)), opened=()), Said()
        limits = Bounds(total_seconds=ASK_SECONDS, output_bytes=ASK_BYTES_MAX)
        end = supervise(launch, limits, output, stop=self._stop)
        if end.ending is Ending.STOPPED:
            raise Interrupted(query.key)
        return CallResult(
            stdout=bytes(output.stdout),
            stderr=b"",
            exit=end.exit,
            duration_ms=end.duration_ms,
            problem=PROBLEMS[end.ending],
        )

    def salvage(self, key: str) -> CallResult | None:
        """Kill all processes of the key and return the call's spooled output, with exit and problem if mz saw the end.
        None: the call never began."""
        kill_marked(key)
        for folder in left_temporary(self._root, key, self._environment):
            remove_temporary(folder)
        spooled = load(directory(self._spools, key))
        if spooled is None:
            return None
        return CallResult(
            stdout=spooled.stdout,
            stderr=spooled.stderr,
            exit=spooled.closing.exit if spooled.closing else None,
            duration_ms=spooled.duration_ms,
            problem=spooled.closing.problem if spooled.closing else None,
            version=spooled.version,
        )

    def _temporary(self, key: str) -> pathlib.Path:
        return temporary(self._root, key, self._environment)

    def _launch(self, spec: CallSpec, invocation: Invocation) -> Launch:
        tmpdir = {VARIABLE: str(self._temporary(spec.key))} if invocation.temporary else {}
        return Launch(
            argv=invocation.argv,
            env=variables(self._environment, spec.key, passed=self._passed, own={**invocation.env, **tmpdir}),
            cwd=worktree(self._root, spec.place),
            stdin=invocation.stdin,
            fenced=(*(fenced(self._around) if self._around else ()), *fenced(self._root)),
            opened=opened(self._root, spec.place, self._environment, self._around),
            offline=self._denied is not None and offline_works(),
        )

    def _run(self, spec: CallSpec, launch: Launch, folder: pathlib.Path) -> Ended:
        spool = Spool(folder, self._meta(spec, launch), self._secrets)
        try:
            end = supervise(launch, self._bounds(spec), spool, stop=self._stop)
            if self._denied is not None and end.denied:
                self._denied(spec.key, end.denied)
            if end.detail:
                spool.note(end.detail)
            spool.flush()
            problem = PROBLEMS[end.ending]
            spool.finish(Closing(exit=end.exit, duration_ms=end.duration_ms, problem=problem))
        finally:
            spool.close()
        return end

    def _bounds(self, spec: CallSpec) -> Bounds:
        return Bounds(
            total_seconds=spec.total_seconds, idle_seconds=spec.idle_seconds, output_bytes=self._output_bytes_max
        )

    def _meta(self, spec: CallSpec, launch: Launch) -> Meta:
        return Meta(
            key=spec.key,
            agent=spec.agent,
            model=spec.model,
            argv=tuple(self._secrets.redact(argument) for argument in launch.argv),
            environment=tuple(sorted(launch.env)),
            started_us=time.time_ns() // 1000,
            version=spec.version,
        )
