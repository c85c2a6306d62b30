"""Runs one external command under a guard process: feeds it, streams its output, enforces limits, ends its tree."""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import os
import pathlib
import selectors
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import IO, Literal, Protocol

import msgspec

from mz_engine.processes import guard, sandbox

TICK_SECONDS = 0.1
"""Maximum delay in noticing a time limit or a stop."""
PAUSE_SECONDS = 2.0
"""A longer time between two looks at a command means that this process did not run."""
CHUNK_BYTES = 1 << 16
DRAIN_SECONDS = 2.0
"""Time to read the pipes after the tree is gone; an escaped process may hold them open for ever."""
GRACE_SECONDS = 5.0
GIVE_UP_SECONDS = guard.GIVE_UP_SECONDS + 2.0
GUARD_EXIT_SECONDS = 1.0
"""Time for the guard of a dead mz process to clean up by itself."""


SERVER_PROGRAM = f"""import os, sys
sys.path.append({str(pathlib.Path(guard.__file__).parents[2])!r})
from mz_engine.processes import guard
os._exit(guard.serve(int(sys.argv[1])))"""
"""The guard is imported, not run as a file: Python caches only imported modules. It leaves by `os._exit`, since it
needs neither atexit handlers nor a flush."""

DeniedHandler = Callable[[str, int], None]
"""Receives the MZ_KEY of an offline command and its number of attempts to reach a network; called from any thread."""


class Mount(msgspec.Struct, frozen=True):
    """What a command sees at a path: nothing, or the same or another file or directory. `overlay`: a directory whose
    changes only the command sees; read-only where the system has no such mounts. `kept`: a directory whose changes are
    kept in `source`, and seen only by commands with that; where the system has no such mounts they are made. `own`: an
    empty directory that only the command sees."""

    target: pathlib.Path
    kind: Literal["empty", "read", "write", "overlay", "kept", "own"]
    source: pathlib.Path | None = None
    """None: what is at the target; a container has it from the image, unless it is writable."""


def is_below(path: pathlib.Path, folder: pathlib.Path) -> bool:
    """Return True if the path is the folder or in it; much faster than `is_relative_to`."""
    return path.parts[: len(folder.parts)] == folder.parts


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A complete command; nothing is inherited."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Holds MZ_KEY."""
    cwd: pathlib.Path
    stdin: bytes = b""
    """Written, then closed; empty: /dev/null."""
    mounts: tuple[Mount, ...] = ()
    """In this order, if mount namespaces work; see `can_hide`."""
    hidden: tuple[pathlib.Path, ...] = ()
    """Files and folders that seem empty, if mount namespaces work."""
    read_only: bool = False
    """With mount namespaces everything is read-only but writable mounts, and `/dev` has few devices."""
    offline: bool = False
    """No network but its own loopback; see `can_run_offline`."""
    memory_bytes: int = 0
    """Limit of all its processes together; 0: none, as for the others."""
    threads: int = 0
    file_bytes: int = 0
    """Limit of the size of each file."""
    cpu_seconds: int = 0
    """Limit of each process."""
    scratch: pathlib.Path | None = None
    """An empty directory for changes in overlays and own directories; None: they are kept in memory."""
    end_argv: tuple[str, ...] = ()
    """Ends what the tree started elsewhere, such as a container; with it the tree has no namespaces."""
    merge_stderr: bool = False
    """Standard error is merged into standard output."""

    def is_hidden(self, path: pathlib.Path) -> bool:
        """Return True if the command sees nothing at the path, where mount namespaces work."""
        kinds = [mount.kind for mount in self.mounts if is_below(path, mount.target)]
        return kinds[-1:] in (["empty"], ["own"])


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    total_seconds: float
    idle_seconds: float | None = None
    """Limit on the time without output; None: no limit."""
    output_bytes: int | None = None
    grace_seconds: float = GRACE_SECONDS
    """Between SIGTERM and SIGKILL."""


class EndReason(Enum):
    """Reason for the end of a command."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    IDLE = "idle"
    OUTPUT_LIMIT = "output-limit"
    OVER_BUDGET = "over-budget"
    EXCEEDED = "exceeded"
    """It used more memory, processes or threads than it may."""
    STOPPED = "stopped"
    """Its caller asked for it."""
    MISSING = "missing"
    """The program does not exist or cannot be executed."""
    UNSTARTABLE = "unstartable"
    """The system failed to start it: too many processes, arguments too long, no such directory."""
    LOST = "lost"
    """The guard was killed from outside, and its tree with it."""
    DISK_FULL = "disk-full"
    """No space left for the output."""
    BROKEN = "broken"
    """The isolation level does not work here; nothing was started."""


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    reason: EndReason
    exit: int | None = None
    """Negative: signal. None: the command never ran, or its end was not seen."""
    duration_ms: int = 0
    detail: str = ""
    """Why the command never ran, for people."""
    denied_connections: int = 0
    """Attempts of an offline command to reach a network (lower bound)."""


StopCheck = Callable[[], bool]


class Sink(Protocol):
    """Receives output as it comes, in the supervising thread. An exception ends the tree and propagates."""

    def out(self, data: bytes) -> None: ...

    def err(self, data: bytes) -> None: ...


class CapturedOutput:
    """A sink that keeps all output in memory."""

    def __init__(self) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()

    def out(self, data: bytes) -> None:
        self.stdout += data

    def err(self, data: bytes) -> None:
        self.stderr += data


def supervise(
    launch: Launch, limits: ProcessLimits, sink: Sink, *, stop: StopCheck | None = None, level: str | None = None
) -> ProcessEnd:
    """Run the command to its end; return when no process of its tree is left. Thread-safe.

    `stop` is asked at every tick; if it returns True, the command is ended. `level` is one of `guard.LEVELS`; None: the
    best that works on this machine.
    """
    if not launch.cwd.is_dir() or not os.access(launch.cwd, os.X_OK):
        return ProcessEnd(reason=EndReason.UNSTARTABLE, detail=f"{launch.cwd} is not a directory that can be entered")
    name = launch.argv[0]
    folders = launch.env.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(str(launch.cwd / folder) for folder in folders)
    program = str(launch.cwd / name) if "/" in name else shutil.which(name, path=path)
    if program is None:
        return ProcessEnd(reason=EndReason.MISSING, detail=f"{name} is not on PATH")
    level = level or (guard.SUBREAPER if launch.end_argv and can_confine() else best_level())
    if level == guard.BUBBLEWRAP and launch.read_only:
        from mz_engine.processes.bubblewrap import in_bubblewrap  # Few machines need it.

        launch = in_bubblewrap(launch, program)
        program = launch.argv[0]
    elif level == guard.BUBBLEWRAP:
        level = guard.SUBREAPER
    return Supervision(launch, limits, sink, program, level).run(stop)


@functools.cache
def best_level() -> str:
    """Return the first of `guard.LEVELS` that works on this machine; tried once per process."""
    levels = [level for level in guard.LEVELS if level != guard.NAMESPACE or os.geteuid() == 0]
    return next(filter(_works, levels), guard.MARKER)


@functools.cache
def can_run_offline() -> bool:
    """Return True if this machine can run commands without a network; tried once per process."""
    return can_hide() and _works(best_level(), offline=True)


def can_confine() -> bool:
    """Return True if this machine can keep commands from files at all, by mount namespaces or by Landlock."""
    return can_hide() or best_level() == guard.LANDLOCK


def can_hide() -> bool:
    """Return True if this machine has mount namespaces, so that commands can be kept from seeing or writing files."""
    return best_level() in guard.MOUNTING


PROBES_MAX = 6
"""How often a level is tried, since a busy machine may not tell."""


def _works(level: str, offline: bool = False) -> bool:
    """Return True if a command runs at the level, with everything that commands need there."""
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    launch = Launch(argv=("true",), env=environment, cwd=pathlib.Path("/"), offline=offline, read_only=True)
    for _ in range(PROBES_MAX):
        end = supervise(launch, ProcessLimits(total_seconds=10), CapturedOutput(), level=level)
        if end.reason in (EndReason.EXITED, EndReason.BROKEN):
            break
        time.sleep(TICK_SECONDS)
    return end.exit == 0


def kill_by_key(key: str, patience_seconds: float = GUARD_EXIT_SECONDS) -> None:
    """Kill every process with this MZ_KEY, after giving its guard a moment to do so."""
    patient_until = time.monotonic() + patience_seconds
    give_up_at = patient_until + GIVE_UP_SECONDS
    while (pids := guard.pids_with_key(key)) and time.monotonic() < give_up_at:
        if time.monotonic() > patient_until:
            for pid in pids:
                guard.send_signal(pid, guard.SIGKILL)
        time.sleep(0.01)


DEVICES = tuple(pathlib.Path("/dev", name) for name in (*sandbox.DEVICES, "shm"))
"""What any program may need of `/dev`, where nothing can be mounted."""


def allowed_paths(launch: Launch) -> tuple[list[pathlib.Path], ...]:
    """Return what the command may list, read and change, where nothing can be mounted: the same files as with mounts,
    but overlays are as their folders, and of folders of its own there is `scratch`. No link is among them: what it
    leads to is allowed by itself or not."""
    sources = [
        (mount.target if mount.kind == "kept" else mount.source or mount.target, mount.kind) for mount in launch.mounts
    ]
    if launch.scratch is not None:
        sources.append((launch.scratch, "write"))
    hidden, readable, changeable = range(3)
    access_of = {"empty": hidden, "own": hidden, "read": readable, "overlay": readable}
    named = {path.resolve(): access_of.get(kind, changeable) for path, kind in sources}
    named |= dict.fromkeys((*launch.hidden, pathlib.Path("/dev")), hidden) | dict.fromkeys(DEVICES, changeable)
    differing = {pathlib.Path("/"): named.pop(pathlib.Path("/"), readable)}
    for path in sorted(named, key=lambda path: len(path.parts)):
        above = next(differing[parent] for parent in path.parents if parent in differing)
        if named[path] != above and (named[path], above) != (readable, changeable):
            differing[path] = named[path]
    inner = {parent for path in differing for parent in path.parents}
    allowed: tuple[list[pathlib.Path], ...] = ([], [], [])
    pending = [(pathlib.Path("/"), readable)]
    while pending:
        path, access = pending.pop()
        access = differing.get(path, access)
        if path.is_symlink():
            continue
        if path in inner and path.is_dir():
            allowed[0].append(path)
            with contextlib.suppress(OSError):
                pending += ((child, access) for child in path.iterdir())
        elif access != hidden:
            allowed[access].append(path)
    return allowed


class GuardServer:
    """The process that forks guards: started at the first call, ended with this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start_guard(self, guard_end: socket.socket, namespaces: int) -> None:
        """Start a guard at this end of a connection, in these namespaces. Raises OSError."""
        message = namespaces.to_bytes(guard.FLAGS_BYTES, "big")
        with self._lock:
            # Once more if the server was killed meanwhile.
            reply = self._send(guard_end, message) or self._send(guard_end, message)
        number = reply[0] if reply else errno.ECHILD
        if number:
            raise OSError(number, os.strerror(number))

    def _send(self, guard_end: socket.socket, message: bytes) -> bytes:
        """Return the server's reply; empty if it was killed."""
        server = self._socket or self._start()
        with contextlib.suppress(ConnectionError):
            socket.send_fds(server, [message], [guard_end.fileno()])
            if reply := server.recv(1):
                return reply
        self.stop()
        return b""

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        library_path = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", SERVER_PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={guard.KEY_VARIABLE: guard.SERVER_MARK, **library_path},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._socket = ours
        atexit.register(self.stop)
        os.register_at_fork(after_in_child=self._forget)
        return ours

    def stop(self) -> None:
        """End the server; guards at work do not need it."""
        if self._socket is not None and self._process is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._process.wait()
        self._forget()

    def _forget(self) -> None:
        """Let the next guard start a server: a fork of this process needs its own."""
        self._socket = self._process = None


SERVER = GuardServer()


class Supervision:
    """One guard process and its pipes. Call `run` once, from one thread."""

    def __init__(self, launch: Launch, limits: ProcessLimits, sink: Sink, program: str, level: str) -> None:
        self._launch, self._limits, self._sink = launch, limits, sink
        self._program, self._level = program, level
        self._selector = selectors.DefaultSelector()
        self._outputs: set[IO[bytes]] = set()
        self._input: IO[bytes] | None = None
        self._control, self._guard_end = socket.socketpair()
        self._final_status: bytes | None = None
        """The guard's complete status; None until it closes the connection."""
        self._status_data = b""
        self._stdin_left = memoryview(launch.stdin)
        self._is_killed = False
        self._output_bytes = 0
        self._end_reason: EndReason | None = None
        self._kill_at = self._give_up_at = float("inf")
        self._started_at = self._last_output_at = time.monotonic()

    def run(self, stop: StopCheck | None) -> ProcessEnd:
        try:
            if failure := self._start():
                return ProcessEnd(reason=EndReason.UNSTARTABLE, detail=failure)
            self._wait_for_status(stop)
            self._kill_leftovers()
            until = time.monotonic() + DRAIN_SECONDS
            while self._outputs and time.monotonic() < until:
                self._handle(TICK_SECONDS)
        finally:
            self._kill()
            for pipe in (*self._outputs, *([self._input] if self._input else [])):
                pipe.close()  # Which also kills remaining processes.
            self._selector.close()
            self._wait_for_guard()
        return self._process_end()

    def _start(self) -> str:
        """Start the guard, in the namespaces of its level; return why that failed, or an empty text."""
        namespaces = guard.NAMESPACES.get(self._level, 0)
        namespaces |= guard.CLONE_NEWNET if namespaces and self._launch.offline else 0
        with self._guard_end, contextlib.ExitStack() as theirs:
            try:
                streams = self._open_streams(theirs)
                SERVER.start_guard(self._guard_end, namespaces)
                request = self._request().encode()
                socket.send_fds(self._control, [request[:8]], streams)
                self._control.sendall(request[8:])
            except OSError as error:
                return error.strerror or str(error)
        self._control.setblocking(False)
        self._selector.register(self._control, selectors.EVENT_READ, self._read_status)
        return ""

    def _request(self) -> guard.Request:
        launch = self._launch
        is_restricted = self._level == guard.LANDLOCK and launch.read_only
        return guard.Request(
            level=self._level,
            user=os.geteuid(),
            group=os.getegid(),
            cwd=os.fsencode(launch.cwd),
            program=os.fsencode(self._program),
            argv=[os.fsencode(text) for text in launch.argv],
            env={os.fsencode(name): os.fsencode(value) for name, value in launch.env.items()},
            mounts=[
                (mount.kind, os.fsencode(mount.source or mount.target), os.fsencode(mount.target))
                for mount in launch.mounts
            ],
            hidden=[os.fsencode(path) for path in launch.hidden],
            allowed=[list(map(os.fsencode, paths)) for paths in (allowed_paths(launch) if is_restricted else ())],
            read_only=launch.read_only,
            offline=launch.offline,
            scratch=os.fsencode(launch.scratch or ""),
            memory_bytes=launch.memory_bytes,
            threads=launch.threads,
            file_bytes=launch.file_bytes,
            cpu_seconds=launch.cpu_seconds,
            end_argv=list(map(os.fsencode, launch.end_argv)),
        )

    def _open_streams(self, theirs: contextlib.ExitStack) -> list[int]:
        """Return the command's streams, which `theirs` closes here; the input only if there is any. Raises OSError."""
        launch, streams = self._launch, []
        if launch.stdin:
            read_fd, write_fd = os.pipe()
            streams.append(read_fd)
            self._input = os.fdopen(write_fd, "wb", buffering=0)
            os.set_blocking(write_fd, False)
            self._selector.register(self._input, selectors.EVENT_WRITE, self._write_input)
            theirs.callback(os.close, read_fd)
        for sink in (self._sink.out,) if launch.merge_stderr else (self._sink.out, self._sink.err):
            read_fd, write_fd = os.pipe()
            streams.append(write_fd)
            pipe = os.fdopen(read_fd, "rb", buffering=0)
            os.set_blocking(read_fd, False)
            self._selector.register(pipe, selectors.EVENT_READ, functools.partial(self._read_output, sink))
            self._outputs.add(pipe)
            theirs.callback(os.close, write_fd)
        return [*streams, streams[-1]] if launch.merge_stderr else streams

    def _wait_for_status(self, stop: StopCheck | None) -> None:
        last = time.monotonic()
        while self._final_status is None and time.monotonic() < self._give_up_at:
            now = time.monotonic()
            if now - last > PAUSE_SECONDS:  # This process was stopped, not the command: that time counts for no limit.
                self._handle(0)
                self._started_at, self._last_output_at = self._started_at + now - last, now
            elif self._end_reason is None:
                reason = self._limit_reached(now, stop)
                if reason is not None:
                    self._begin_end(reason, self._limits.grace_seconds)
                now = time.monotonic()  # To ask may have taken time, in which nothing was stopped.
            elif now >= self._kill_at:
                self._kill()
            last = now
            self._handle(TICK_SECONDS)

    def _kill_leftovers(self) -> None:
        """Kill processes that the guard missed. If nothing was started, processes with the key belong to another
        call."""
        if b"unstartable" in self._status_data or b"broken" in self._status_data:
            return
        if self._level == guard.MARKER or b"exit" not in self._status_data:
            kill_by_key(self._launch.env.get(guard.KEY_VARIABLE, ""), patience_seconds=0)

    def _handle(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            key.data(key.fileobj)

    def _limit_reached(self, now: float, stop: StopCheck | None) -> EndReason | None:
        limits = self._limits
        if stop is not None and stop():
            return EndReason.STOPPED
        if now - self._started_at >= limits.total_seconds:
            return EndReason.TIMEOUT
        if limits.idle_seconds is not None and now - self._last_output_at >= limits.idle_seconds:
            return EndReason.IDLE
        return None

    def _begin_end(self, reason: EndReason, grace: float) -> None:
        """Start ending the tree and record the reason, since the exit code may not show it."""
        self._end_reason = reason
        self._kill_at = time.monotonic() + grace
        if grace:
            with contextlib.suppress(OSError):
                self._control.send(b"t")
        else:
            self._kill()

    def _kill(self) -> None:
        if not self._is_killed:
            self._is_killed = True
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
            self._give_up_at = time.monotonic() + GIVE_UP_SECONDS

    def _read_output(self, sink: Callable[[bytes], None], pipe: IO[bytes]) -> None:
        try:
            data = os.read(pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(pipe)
            self._outputs.discard(pipe)
            pipe.close()
            return
        self._last_output_at = time.monotonic()
        self._output_bytes += len(data)
        limit = self._limits.output_bytes
        if limit is None or self._output_bytes <= limit:
            sink(data)
        elif self._end_reason is None or not self._is_killed:
            self._begin_end(self._end_reason or EndReason.OUTPUT_LIMIT, 0)

    def _read_status(self, control: socket.socket) -> None:
        data = b""
        with contextlib.suppress(ConnectionError):
            data = control.recv(CHUNK_BYTES)
        if not data:
            self._selector.unregister(control)
            self._final_status = self._status_data
        self._status_data += data

    def _write_input(self, pipe: IO[bytes]) -> None:
        try:
            written = os.write(pipe.fileno(), self._stdin_left[:CHUNK_BYTES])
        except BlockingIOError:
            return
        except OSError:
            written = len(self._stdin_left)  # The command closed its standard input.
        self._stdin_left = self._stdin_left[written:]
        if not self._stdin_left:
            self._selector.unregister(pipe)
            self._input = None
            pipe.close()

    def _wait_for_guard(self) -> None:
        """Wait until the guard is gone; kill it if it does not end."""
        with self._control:
            self._control.settimeout(GIVE_UP_SECONDS)
            try:
                while self._final_status is None and self._control.recv(CHUNK_BYTES):
                    pass
            except TimeoutError:
                self._kill_leftovers()
            except ConnectionError:
                return

    def _process_end(self) -> ProcessEnd:
        duration_ms = int((time.monotonic() - self._started_at) * 1000)
        lines = [line.partition(" ") for line in self._status_data.decode("utf-8", "replace").splitlines()]
        fields = {name: value for name, _, value in lines}
        if "unstartable" in fields:
            number = int(fields["unstartable"])
            missing = number in (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR)
            ending = EndReason.MISSING if missing else EndReason.UNSTARTABLE
            return ProcessEnd(reason=ending, duration_ms=duration_ms, detail=f"{self._program}: {os.strerror(number)}")
        code = int(fields["exit"]) if "exit" in fields else None
        if self._level == guard.BUBBLEWRAP and code == 1 and b'"exit-code"' not in self._status_data:
            fields["broken"] = "bubblewrap failed before it started the command, and its message is in the output"
        if "broken" in fields:
            return ProcessEnd(reason=EndReason.BROKEN, duration_ms=duration_ms, detail=fields["broken"])
        if "exceeded" in fields:
            detail = f"ended, since it used more than {fields['exceeded']}"
            return ProcessEnd(reason=EndReason.EXCEEDED, exit=code, duration_ms=duration_ms, detail=detail)
        ending = self._end_reason or (EndReason.EXITED if code is not None else EndReason.LOST)
        denied = int(fields.get("denied", 0))
        return ProcessEnd(reason=ending, exit=code, duration_ms=duration_ms, denied_connections=denied)
