"""Adapter: agent calls as processes: spawned into a spool, ended by their limits, salvaged after a crash of ours."""

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
"""Nobody waits longer for a number that can be done without."""
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
"""An exit code alone is no problem: the verdict is the parser's."""

NOTHING = Spooled(stdout=b"", stderr=b"", duration_ms=0, closing=None)


class AgentProcesses:
    """Spawns the agent calls of one repository; `spawn` is the `Spawn` that adapters are given. Thread-safe.

    `environment` is what variables are taken from, `passed` names further ones, `secrets` are taken out of
    all output, and setting `stop` ends every call that is under way (their problem is then `stopped`). With `denied`,
    calls are cut off from the network where that can be, and it hears of those that tried. `around` is a repository
    that the root lies in and that no call may write to.
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
        """Runs the call in its worktree. Returns when nothing of its tree is left; never raises for what the agent
        does, nor for a full disk."""
        launch = self._launch(spec, invocation)
        place = directory(self._spools, spec.key)
        try:
            if invocation.temporary:
                make_temporary(self._temporary(spec.key))
            ended = self._run(spec, launch, place)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            ended = Ended(ending=Ending.DISK_FULL)
        finally:
            if invocation.temporary:
                remove_temporary(self._temporary(spec.key))
        held = load(place) or NOTHING
        return CallResult(
            stdout=held.stdout,
            stderr=held.stderr,
            exit=ended.exit,
            duration_ms=held.duration_ms,
            problem=PROBLEMS[ended.ending],
        )

    def ask(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        """Runs a question beside the call, in the call's worktree, which it may not change where there is a mount
        namespace. It has a key of its own and `ASK_SECONDS`, whatever limits the call has, no temporary directory of
        its own, and leaves no spool, so that nobody takes it for the call. Never raises for what the program does.
        Raises Interrupted where `stop` ended it: what it was asked for must not begin any more."""
        asked = replace(spec, key=key_of_check(spec.agent))
        launch, said = replace(self._launch(asked, replace(invocation, temporary=False)), opened=()), Said()
        bounds = Bounds(total_seconds=ASK_SECONDS, output_bytes=ASK_BYTES_MAX)
        ended = supervise(launch, bounds, said, stop=self._stop)
        if ended.ending is Ending.STOPPED:
            raise Interrupted(asked.key)
        return CallResult(
            stdout=bytes(said.stdout),
            stderr=b"",
            exit=ended.exit,
            duration_ms=ended.duration_ms,
            problem=PROBLEMS[ended.ending],
        )

    def salvage(self, key: str) -> CallResult | None:
        """Kills what still runs under the key, and returns what its spool holds: with exit and problem where the end
        was seen, else with an unknown exit. None: the call never began."""
        kill_marked(key)
        for place in left_temporary(self._root, key, self._environment):
            remove_temporary(place)
        held = load(directory(self._spools, key))
        if held is None:
            return None
        return CallResult(
            stdout=held.stdout,
            stderr=held.stderr,
            exit=held.closing.exit if held.closing else None,
            duration_ms=held.duration_ms,
            problem=held.closing.problem if held.closing else None,
            version=held.version,
        )

    def _temporary(self, key: str) -> pathlib.Path:
        return temporary(self._root, key, self._environment)

    def _launch(self, spec: CallSpec, invocation: Invocation) -> Launch:
        own = {VARIABLE: str(self._temporary(spec.key))} if invocation.temporary else {}
        return Launch(
            argv=invocation.argv,
            env=variables(self._environment, spec.key, passed=self._passed, own={**invocation.env, **own}),
            cwd=worktree(self._root, spec.place),
            stdin=invocation.stdin,
            fenced=(*(fenced(self._around) if self._around else ()), *fenced(self._root)),
            opened=opened(self._root, spec.place, self._environment, self._around),
            offline=self._denied is not None and offline_works(),
        )

    def _run(self, spec: CallSpec, launch: Launch, place: pathlib.Path) -> Ended:
        spool = Spool(place, self._meta(spec, launch), self._secrets)
        try:
            ended = supervise(launch, self._bounds(spec), spool, stop=self._stop)
            if self._denied is not None and ended.denied:
                self._denied(spec.key, ended.denied)
            if ended.detail:
                spool.note(ended.detail)
            spool.flush()
            problem = PROBLEMS[ended.ending]
            spool.finish(Closing(exit=ended.exit, duration_ms=ended.duration_ms, problem=problem))
        finally:
            spool.close()
        return ended

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
