"""Adapter: runs one outside command under a guard: feeds it, streams what it says, bounds it, ends its whole tree."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pathlib
import selectors
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import IO, Protocol

import msgspec

from mz_engine.agents import guard

TICK_SECONDS = 0.1
"""How late a time limit or a stop may be noticed."""
CHUNK_BYTES = 1 << 16
DRAIN_SECONDS = 2.0
"""After the tree is gone, for what still stands in the pipes; a process that escaped may hold them open for ever."""
GRACE_SECONDS = 5.0
GIVE_UP_SECONDS = guard.GIVE_UP_SECONDS + 2.0
VANISH_SECONDS = 1.0
"""For the guard of a process of ours that died to clear up by itself."""


START = f"""import os, sys
sys.path.append({str(pathlib.Path(guard.__file__).parent)!r})
import guard
os._exit(guard.main(sys.argv[1:]))"""
"""The guard is imported, not run as a file: Python keeps only imported modules compiled, and compiling took a fifth
of its start. It leaves without a farewell: neither atexit nor a flush is owed to anybody, and both cost."""


Denied = Callable[[str, int], None]
"""Hears the MZ_KEY of an offline command that tried to reach a network, and how often. From any thread."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A command, complete: nothing is inherited."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Holds MZ_KEY."""
    cwd: pathlib.Path
    stdin: bytes = b""
    """Written and closed; empty: /dev/null."""
    fenced: tuple[pathlib.Path, ...] = ()
    """Read-only to the command where there is a mount namespace."""
    opened: tuple[pathlib.Path, ...] = ()
    """Writable all the same, inside of what is fenced."""
    offline: bool = False
    """Cut off from every network but its own loopback; see `offline_works`."""
    merged: bool = False
    """Standard error goes where standard output goes, in the order in which they came."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    total_seconds: float
    idle_seconds: float | None = None
    """Without a byte of output; None: no limit."""
    output_bytes: int | None = None
    grace_seconds: float = GRACE_SECONDS
    """Between SIGTERM and SIGKILL."""


class Ending(Enum):
    """Why the command is over."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    IDLE = "idle"
    OUTPUT_LIMIT = "output-limit"
    STOPPED = "stopped"
    """The stop token was set."""
    MISSING = "missing"
    """There is no such program, or it cannot be executed."""
    UNSTARTABLE = "unstartable"
    """The system refused: too many processes, arguments too long, no such directory."""
    LOST = "lost"
    """The guard was killed from outside, and its tree with it."""
    DISK_FULL = "disk-full"
    """There was no room for the output."""
    BROKEN = "broken"
    """The level cannot be had here; nothing was started."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    ending: Ending
    exit: int | None = None
    """Negative: signal. None: the command never ran, or nobody saw its end."""
    duration_ms: int = 0
    detail: str = ""
    """In words, where the command never ran."""
    denied: int = 0
    """How often an offline command tried to reach a network, at least."""


class Sink(Protocol):
    """Takes the output as it comes, from the thread that supervises. What it raises ends the tree and goes on up."""

    def out(self, data: bytes) -> None: ...

    def err(self, data: bytes) -> None: ...


def supervise(
    launch: Launch, bounds: Bounds, sink: Sink, *, stop: threading.Event | None = None, level: str | None = None
) -> Ended:
    """Runs the command to its end and returns when nothing of its tree is left. Safe to call from any thread.

    `level` is one of `guard.LEVELS`; None: the best that this machine has.
    """
    if not launch.cwd.is_dir():
        return Ended(ending=Ending.UNSTARTABLE, detail=f"{launch.cwd} is not a directory")
    program = find_program(launch)
    if program is None:
        return Ended(ending=Ending.MISSING, detail=f"{launch.argv[0]} is not on PATH")
    levels = guard.LEVELS[guard.LEVELS.index(best_level()) :] if level is None else (level,)
    for each in levels:
        ended = Supervision(launch, bounds, sink, program, each).run(stop)
        if ended.ending is not Ending.BROKEN:
            break
    return ended


def find_program(launch: Launch) -> str | None:
    name = launch.argv[0]
    if "/" in name:
        return str(launch.cwd / name)
    return shutil.which(name, path=launch.env.get("PATH", os.defpath))


@functools.cache
def best_level() -> str:
    """The first of `guard.LEVELS` that works on this machine; found by trying, once per process."""
    launch = Launch(argv=("true",), env={"PATH": os.environ.get("PATH", os.defpath)}, cwd=pathlib.Path("/"))
    for level in guard.LEVELS:
        if level == guard.NAMESPACE and os.geteuid() != 0:
            continue
        if supervise(launch, Bounds(total_seconds=10), Nowhere(), level=level).ending is Ending.EXITED:
            return level
    return guard.MARKER


@functools.cache
def offline_works() -> bool:
    """Whether this machine can cut a command off; found by trying, once per process."""
    if best_level() not in (guard.NAMESPACE, guard.USER_NAMESPACE):
        return False
    launch = Launch(
        argv=("true",), env={"PATH": os.environ.get("PATH", os.defpath)}, cwd=pathlib.Path("/"), offline=True
    )
    return supervise(launch, Bounds(total_seconds=10), Nowhere(), level=best_level()).ending is Ending.EXITED


def kill_marked(key: str, patience_seconds: float = VANISH_SECONDS) -> None:
    """Ends every process that carries this MZ_KEY; a guard among them gets a moment to do it itself."""
    patient_until = time.monotonic() + patience_seconds
    give_up_at = patient_until + GIVE_UP_SECONDS
    while (pids := guard.marked(key)) and time.monotonic() < give_up_at:
        if time.monotonic() > patient_until:
            for pid in pids:
                guard.send(pid, guard.SIGKILL)
        time.sleep(0.01)


class Nowhere:
    """A sink that keeps nothing."""

    def out(self, data: bytes) -> None:
        del data

    def err(self, data: bytes) -> None:
        del data


class Supervision:
    """One guard and its pipes. `run` once, from one thread."""

    def __init__(self, launch: Launch, bounds: Bounds, sink: Sink, program: str, level: str) -> None:
        self._launch, self._bounds, self._sink = launch, bounds, sink
        self._command = [sys.executable, "-I", "-S", "-c", START, level]
        self._program, self._level = program, level
        self._selector = selectors.DefaultSelector()
        self._outputs: set[IO[bytes]] = set()
        """Pipes that are still open; the guard's status is one."""
        self._input: IO[bytes] | None = None
        self._status: bytes | None = None
        """What the guard said; None until it has said its last."""
        self._said = b""
        self._unfed = memoryview(launch.stdin)
        self._lifeline = -1
        self._bytes = 0
        self._ending: Ending | None = None
        self._kill_at = self._leave_at = float("inf")
        self._begun = self._heard = time.monotonic()

    def run(self, stop: threading.Event | None) -> Ended:
        try:
            process = self._start()
        except OSError as error:
            self._close()
            return Ended(ending=Ending.UNSTARTABLE, detail=error.strerror or str(error))
        try:
            self._listen(stop)
            self._sweep()
            self._drain()
        finally:
            self._close()
            self._bury(process)
        return self._ended()

    def _start(self) -> subprocess.Popen[bytes]:
        launch = self._launch
        life, self._lifeline = os.pipe()
        status, says = os.pipe()
        foreign = "" if "LC_CTYPE" in launch.env else "LC_CTYPE"
        fences = (*(f"+{path}" for path in launch.opened), *map(str, launch.fenced))
        fences += (guard.OFFLINE,) if launch.offline else ()
        command = [*self._command, str(life), str(says), foreign, *fences, "--", self._program]
        try:
            process = subprocess.Popen(
                [*command, *launch.argv],
                stdin=subprocess.PIPE if launch.stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if launch.merged else subprocess.PIPE,
                bufsize=0,
                cwd=launch.cwd,
                env=dict(launch.env),
                pass_fds=(life, says),
                start_new_session=True,
            )
        except OSError:
            os.close(status)
            raise
        finally:
            os.close(life)
            os.close(says)
        self._watch(os.fdopen(status, "rb", buffering=0), self._hear_status)
        self._watch(process.stdout, functools.partial(self._hear, self._sink.out))
        self._watch(process.stderr, functools.partial(self._hear, self._sink.err))
        if process.stdin is not None:
            self._input = process.stdin
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE, self._feed)
        return process

    def _watch(self, pipe: IO[bytes] | None, handler: Callable[[IO[bytes]], None]) -> None:
        if pipe is None:
            return
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, selectors.EVENT_READ, handler)
        self._outputs.add(pipe)

    def _listen(self, stop: threading.Event | None) -> None:
        """Until the guard has said its last."""
        while self._status is None and time.monotonic() < self._leave_at:
            self._look_at_clock(stop)
            self._handle(TICK_SECONDS)

    def _sweep(self) -> None:
        """What the guard did not live to kill, or cannot see. Where nothing was started, nothing is left: whoever
        carries the key then belongs to somebody else."""
        if b"unstartable" in self._said or b"broken" in self._said:
            return
        if self._level == guard.MARKER or b"exit" not in self._said:
            kill_marked(self._launch.env.get(guard.MARK, ""), patience_seconds=0)

    def _drain(self) -> None:
        until = time.monotonic() + DRAIN_SECONDS
        while self._outputs and time.monotonic() < until:
            self._handle(TICK_SECONDS)

    def _handle(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            key.data(key.fileobj)

    def _look_at_clock(self, stop: threading.Event | None) -> None:
        now = time.monotonic()
        if self._ending is None:
            why = self._overdue(now, stop)
            if why is not None:
                self._end(why, self._bounds.grace_seconds)
        elif now >= self._kill_at:
            self._kill()

    def _overdue(self, now: float, stop: threading.Event | None) -> Ending | None:
        bounds = self._bounds
        if stop is not None and stop.is_set():
            return Ending.STOPPED
        if now - self._begun >= bounds.total_seconds:
            return Ending.TIMEOUT
        if bounds.idle_seconds is not None and now - self._heard >= bounds.idle_seconds:
            return Ending.IDLE
        return None

    def _end(self, why: Ending, grace: float) -> None:
        """Remembers that it was us; a command may call a signal a success."""
        self._ending = why
        self._kill_at = time.monotonic() + grace
        if grace:
            with contextlib.suppress(OSError):
                os.write(self._lifeline, b"t")
        else:
            self._kill()

    def _kill(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
            self._leave_at = time.monotonic() + GIVE_UP_SECONDS

    def _hear(self, sink: Callable[[bytes], None], pipe: IO[bytes]) -> None:
        data = self._read(pipe)
        if not data:
            return
        self._heard = time.monotonic()
        self._bytes += len(data)
        limit = self._bounds.output_bytes
        if limit is None or self._bytes <= limit:
            sink(data)
        elif self._ending is None or self._lifeline >= 0:
            self._end(self._ending or Ending.OUTPUT_LIMIT, 0)

    def _hear_status(self, pipe: IO[bytes]) -> None:
        data = self._read(pipe)
        if data == b"":
            self._status = self._said
        self._said += data or b""

    def _read(self, pipe: IO[bytes]) -> bytes | None:
        """None: nothing now. Empty: the end, and the pipe is closed."""
        try:
            data = os.read(pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return None
        if not data:
            self._selector.unregister(pipe)
            self._outputs.discard(pipe)
            pipe.close()
        return data

    def _feed(self, pipe: IO[bytes]) -> None:
        try:
            written = os.write(pipe.fileno(), self._unfed[:CHUNK_BYTES])
        except BlockingIOError:
            return
        except OSError:
            written = len(self._unfed)  # It does not want to hear more.
        self._unfed = self._unfed[written:]
        if not self._unfed:
            self._selector.unregister(pipe)
            self._input = None
            pipe.close()

    def _close(self) -> None:
        """Closes every pipe; whatever still lives dies of it."""
        self._kill()
        for pipe in (*self._outputs, *([self._input] if self._input else [])):
            pipe.close()
        self._selector.close()

    def _bury(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(GIVE_UP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._sweep()

    def _ended(self) -> Ended:
        duration_ms = int((time.monotonic() - self._begun) * 1000)
        lines = [line.partition(" ") for line in self._said.decode("utf-8", "replace").splitlines()]
        words = {first: rest for first, _, rest in lines}
        if "unstartable" in words:
            number = int(words["unstartable"])
            missing = number in (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR)
            ending = Ending.MISSING if missing else Ending.UNSTARTABLE
            return Ended(ending=ending, duration_ms=duration_ms, detail=f"{self._program}: {os.strerror(number)}")
        if "broken" in words:
            return Ended(ending=Ending.BROKEN, duration_ms=duration_ms, detail=words["broken"])
        code = int(words["exit"]) if "exit" in words else None
        ending = self._ending or (Ending.EXITED if code is not None else Ending.LOST)
        denied = int(words.get("denied", 0))
        return Ended(ending=ending, exit=code, duration_ms=duration_ms, denied=denied)
