"""Agent calls as processes: spawned into a spool, bounded by limits, recovered after a crash of mz.

A spool is a directory that receives the call's output as it comes, so that a crash of mz loses none of it:

<spools>/<key>/stdout, stderr    redacted, written as it comes
               meta.json         what was started, and when
               exit.json         how it ended; missing if mz did not see the end
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import pathlib
import re
import stat
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress

import msgspec
from msgspec.structs import asdict, replace
from mz_events.catalog.call import Problem, ProblemClass
from mz_events.redaction.redactor import Redactor, Secrets

from mz_engine.agents.contract import Invocation, OwnPaths, load_object, query_key
from mz_engine.paths import MZ_FOLDER, SPOOL_FOLDER
from mz_engine.ports import CallResult, CallSpec, Interrupted
from mz_engine.processes.commands import MB, WorktreeProcesses
from mz_engine.processes.container import Container
from mz_engine.processes.environment import agent_folder
from mz_engine.processes.supervise import (
    CapturedOutput,
    EndReason,
    Launch,
    Mount,
    ProcessEnd,
    ProcessLimits,
    can_hide,
    is_below,
    kill_by_key,
    supervise,
)

NAME_LENGTH_MAX = 200
LOGIN_BYTES_MAX = 1_000_000
EMPTY_TEXT = b'""'
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
LOGIN_LOCK = threading.Lock()
TAKEN_LOGINS = dict[pathlib.Path, bytes]()
"""What calls of this process last changed there."""


class SpoolMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The command that was started. Of the environment only names are written, never values."""

    key: str
    agent: str
    model: str
    argv: tuple[str, ...]
    environment: tuple[str, ...]
    started_us: int
    """Microseconds since the epoch, UTC."""
    version: str = ""
    """Version of the agent, if this process queried it; else empty."""


class SpoolEnd(msgspec.Struct, frozen=True, kw_only=True):
    exit: int | None
    duration_ms: int
    problem: Problem | None


def spool_directory(spools: pathlib.Path, key: str) -> pathlib.Path:
    """Return the call's own directory; different keys never share one, on any file system."""
    safe = re.sub(r"[^A-Za-z0-9_./-]", "_", key)[:NAME_LENGTH_MAX]
    name = safe.replace("/", "+")
    return spools / (name if safe == key else f"{name}+{hashlib.sha256(key.encode()).hexdigest()[:16]}")


class Spool:
    """Writer of a spool; replaces what an earlier call left under the key."""

    def __init__(self, folder: pathlib.Path, meta: SpoolMeta, secrets: Secrets) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "exit.json").unlink(missing_ok=True)
        self._folder = folder
        self._redactors = Redactor(secrets), Redactor(secrets)
        self._files = open_new(folder / "stdout"), open_new(folder / "stderr")
        (folder / "meta.json").write_bytes(msgspec.json.encode(meta))

    def out(self, data: bytes) -> None:
        self._write(0, self._redactors[0].feed(data))

    def err(self, data: bytes) -> None:
        self._write(1, self._redactors[1].feed(data))

    def finish(self, end: SpoolEnd) -> None:
        """Write what the redactors held back, and how the call ended, durably and atomically."""
        for stream, redactor in enumerate(self._redactors):
            self._write(stream, redactor.finish())
            os.fsync(self._files[stream])
        partial = self._folder / "exit.json.tmp"
        with open(partial, "wb") as file:
            file.write(msgspec.json.encode(end))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._folder / "exit.json")

    def close(self) -> None:
        for file in self._files:
            os.close(file)

    def _write(self, stream: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._files[stream], view) :]


def make_missing(own: OwnPaths) -> None:
    """Make the folders and files that do not exist. Raises OSError."""
    for folder in (*own.folders, *(path.parent for path in own.files)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in own.files:
        if not path.exists():
            path.write_bytes(b"{}\n")


def read_changed(folder: pathlib.Path, name: pathlib.Path) -> tuple[bytes, int]:
    """Return the content of a file that an agent may be changing, and when it was changed; empty and 0 if it is none, a
    link led elsewhere, or it is too large."""
    with suppress(OSError), open(os.open(folder / name, READ_FLAGS), "rb") as file:
        status, path = os.fstat(file.fileno()), pathlib.Path(f"/proc/self/fd/{file.fileno()}").readlink()
        if stat.S_ISREG(status.st_mode) and path == folder.resolve() / name:
            return (file.read() if status.st_size <= LOGIN_BYTES_MAX else b""), status.st_mtime_ns
    return b"", 0


def take_login(
    folder: pathlib.Path, name: pathlib.Path, login: pathlib.Path, before: bytes | None, *, has_ended: bool = True
) -> None:
    """Write the file of that name in the folder, which an agent can change, to `login`, if no link leads to it, and it
    is a newer JSON object with at least the same names and no new empty text, which a program writes if another one was
    faster. If something else than another call changed the login since it was `before`, that change stays. Once the
    call has ended, what cannot be a login is removed, also the mark that it was deleted. Raises OSError, also if there
    is no change."""
    changed, login = folder / name, login.resolve()
    if changed.parent.resolve() != (folder.resolve() / name).parent:
        return
    with open(login, "rb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)  # Other processes of mz write the login too.
        old, (new, changed_ns) = opened.read(), read_changed(folder, name)
        if changed_ns <= login.stat().st_mtime_ns:
            new = b""
        is_expected = before in (None, old) or TAKEN_LOGINS.get(login) == old
        if is_expected and new and (EMPTY_TEXT not in new or EMPTY_TEXT in old):
            if not load_object(old) or not load_object(old).keys() <= load_object(new).keys():
                return
            with open(login, "r+b", buffering=0) as file:  # In place: running calls have this file.
                os.posix_fallocate(file.fileno(), 0, len(new))
                file.write(new.ljust(len(old)))  # A valid object also before the end is cut off.
                file.truncate(len(new))
                os.fsync(file.fileno())
            os.utime(login, ns=(changed_ns, changed_ns))
            TAKEN_LOGINS[login] = new
    if has_ended:
        changed.unlink()


def open_new(path: pathlib.Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


def load_spool(folder: pathlib.Path) -> CallResult | None:
    """Read a spool; None if there is none, or its writer died before the call began. Exit and problem are those that mz
    saw, if it saw the end."""
    try:
        meta = msgspec.json.decode((folder / "meta.json").read_bytes(), type=SpoolMeta)
        stdout, stderr = (folder / "stdout").read_bytes(), (folder / "stderr").read_bytes()
        ended_us = max((folder / name).stat().st_mtime_ns for name in ("stdout", "stderr")) // 1000
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    try:
        end = msgspec.json.decode((folder / "exit.json").read_bytes(), type=SpoolEnd)
    except (FileNotFoundError, msgspec.DecodeError):
        end = SpoolEnd(exit=None, duration_ms=max(0, (ended_us - meta.started_us) // 1000), problem=None)
    return CallResult(stdout=stdout, stderr=stderr, version=meta.version, **asdict(end))


class Meter:
    """Reads the output of a running call again and again, in a tenth of the time, to see if it is over its budget."""

    def __init__(self, folder: pathlib.Path, is_over_budget: Callable[[CallResult], bool] | None) -> None:
        self._folder, self._is_over_budget = folder, is_over_budget
        self.is_over, self._next_at_seconds = False, 0.0

    def check(self) -> bool:
        started_at = time.monotonic()
        if self._is_over_budget is not None and not self.is_over and started_at >= self._next_at_seconds:
            result = load_spool(self._folder)
            self.is_over = result is not None and self._is_over_budget(result)
            self._next_at_seconds = started_at + 10 * (time.monotonic() - started_at)
        return self.is_over


QUERY_SECONDS = 30
"""The number is optional, so no call waits longer for it."""
QUERY_BYTES_MAX = 1_000_000

PROBLEM_BY_REASON: Mapping[EndReason, Problem | None] = {
    EndReason.EXITED: None,
    EndReason.TIMEOUT: Problem(kind=ProblemClass.TRANSIENT, code="timeout"),
    EndReason.IDLE: Problem(kind=ProblemClass.TRANSIENT, code="idle"),
    EndReason.OUTPUT_LIMIT: Problem(kind=ProblemClass.PHASE, code="output-limit"),
    EndReason.OVER_BUDGET: Problem(kind=ProblemClass.PHASE, code="call-budget"),
    EndReason.EXCEEDED: Problem(kind=ProblemClass.PHASE, code="resource-limit"),
    EndReason.STOPPED: Problem(kind=ProblemClass.TRANSIENT, code="stopped"),
    EndReason.MISSING: Problem(kind=ProblemClass.FATAL, code="tool-missing"),
    EndReason.UNSTARTABLE: Problem(kind=ProblemClass.TRANSIENT, code="unstartable"),
    EndReason.LOST: Problem(kind=ProblemClass.TRANSIENT, code="killed"),
    EndReason.DISK_FULL: Problem(kind=ProblemClass.FATAL, code="disk-full"),
    EndReason.BROKEN: Problem(kind=ProblemClass.TRANSIENT, code="unstartable"),
}
"""An exit code alone is no problem: the parser decides."""


class AgentProcesses(WorktreeProcesses):
    """Runs the agent calls of one repository; `spawn` is the `Spawn` that adapters get. A call that `stop` ends has the
    problem `stopped`."""

    container: Container | None = None
    """Where calls are run instead of the sandbox."""

    def spawn(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        """Run the call in its worktree, until no process of it is left. Never raises for what the agent does, nor for a
        full disk."""
        make_missing(invocation.own)
        self._take_logins(spec, invocation.own, {})  # Of a call whose end mz did not see.
        launch = self._launch(spec, invocation)
        folder = spool_directory(self._root / MZ_FOLDER / SPOOL_FOLDER, spec.key)
        try:
            end = self._run(spec, launch, folder, invocation)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            end = ProcessEnd(reason=EndReason.DISK_FULL)
        spooled = load_spool(folder) or CallResult(stdout=b"", stderr=b"", exit=None, duration_ms=0)
        return replace(spooled, exit=end.exit, problem=PROBLEM_BY_REASON[end.reason])

    def query(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        """Run a helper process for a call, such as a token count, in the call's worktree (read-only if mount namespaces
        work). It has its own key and `QUERY_SECONDS`, and no spool, so nothing takes it for the call. Never raises for
        what the program does. Raises Interrupted if `stop` ended it: the call must not start."""
        query, output = replace(spec, key=query_key(spec.agent)), CapturedOutput()
        launch = self._launch(query, invocation)
        read_only = (replace(mount, kind="read") if mount.kind == "write" else mount for mount in launch.mounts)
        launch = replace(launch, mounts=tuple(read_only))
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
        if self.container:
            self.container.end(key)
        return load_spool(spool_directory(self._root / MZ_FOLDER / SPOOL_FOLDER, key))

    def _launch(self, spec: CallSpec, invocation: Invocation) -> Launch:
        if self.container:
            launch = self.launch(invocation.argv, spec.worktree, spec.key, invocation.env)
            return replace(self.container.wrap(launch, (*self._passed, *invocation.env)), stdin=invocation.stdin)
        own = invocation.own
        mounts = list[Mount]()
        for path in (*own.folders, *own.new_folders):
            kept = agent_folder(self._root, spec.worktree, path)
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            mounts.append(Mount(path, "kept" if path in own.folders else "write", kept))
        for path, names in own.files.items():
            copy = agent_folder(self._root, spec.worktree, path)
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_small = copy.is_file() and copy.stat().st_size <= LOGIN_BYTES_MAX
            members = {name: value for name, value in load_object(path).items() if name in names}
            copy.write_text(json.dumps({**(load_object(copy) if is_small else {}), **members}))
            mounts.append(Mount(path, "write", copy if can_hide() else None))
        others = (path for path in own.logins if not any(is_below(path, folder) for folder in own.folders))
        mounts += [Mount(path, "read") for path in others]
        mounts += [Mount(path, "write") for path in own.shared_logins]
        launch = self.launch(invocation.argv, spec.worktree, spec.key, invocation.env, tuple(mounts))
        hidden = (*launch.hidden, *(own.empty_files if can_hide() else ()))
        return replace(launch, stdin=invocation.stdin, hidden=hidden)

    def _take_logins(
        self, spec: CallSpec, own: OwnPaths, before: Mapping[pathlib.Path, bytes], *, has_ended: bool = True
    ) -> None:
        """Let the user and other calls have what the program changed of its login: they cannot use the old one."""
        for login in own.logins:
            for path in (path for path in own.folders if is_below(login, path)):
                upper, name = agent_folder(self._root, spec.worktree, path) / "upper", login.relative_to(path)
                with suppress(OSError), LOGIN_LOCK:
                    take_login(upper, name, login, before.get(login), has_ended=has_ended)

    def _run(self, spec: CallSpec, launch: Launch, folder: pathlib.Path, invocation: Invocation) -> ProcessEnd:
        meta = SpoolMeta(
            key=spec.key,
            agent=spec.agent,
            model=spec.model,
            argv=tuple(self._secrets.redact(argument) for argument in launch.argv),
            environment=tuple(sorted(launch.env)),
            started_us=time.time_ns() // 1000,
            version=spec.version,
        )
        output_bytes, total, idle = self._sandbox.output_mb * MB, spec.total_seconds, spec.idle_seconds
        limits = ProcessLimits(total_seconds=total, idle_seconds=idle, output_bytes=output_bytes)
        with closing(Spool(folder, meta, self._secrets)) as spool:
            meter, own = Meter(folder, invocation.is_over_budget), invocation.own
            logins = {path: path.read_bytes() for path in own.logins if path.is_file()}

            def is_over() -> bool:
                self._take_logins(spec, own, logins, has_ended=False)
                return meter.check()

            try:
                end = self.supervise(launch, limits, spool, is_over)
            finally:
                self._take_logins(spec, own, logins)
            if meter.is_over and end.reason is EndReason.STOPPED:
                end = replace(end, reason=EndReason.OVER_BUDGET)
            if end.detail:
                spool.err(f"mz: {end.detail}\n".encode())
            spool.finish(SpoolEnd(exit=end.exit, duration_ms=end.duration_ms, problem=PROBLEM_BY_REASON[end.reason]))
        return end
