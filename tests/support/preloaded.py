"""`mz` as a process of its own, without the time that it takes to load: a server process that has loaded every command
and has done nothing else forks for each call. What is about loading itself starts a Python of its own."""

from __future__ import annotations

import array
import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from tests.support.tree import ROOT

REQUEST_BYTES_MAX = 1 << 17
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""How names of variables begin that Python reads when it starts, and never again."""
LOADED_LATE = ("jinja2", "markdown_it", "re2", "mz_engine.agents.claude_code.adapter")
"""What commands load when they come to need it."""
SERVER = """
import sys
from mz_cli.main import main
from tests.support.preloaded import leave, serve
serve(int(sys.argv[1]))
try:
    main()
except SystemExit as ended:
    leave(ended)
"""


class Process:
    """A call of `mz` that the server forked."""

    def __init__(self, server: socket.socket, pid: int) -> None:
        self._server, self.pid = server, pid

    def kill(self) -> None:
        """End it, if it has not ended; its exit is then that of a killed process."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def wait(self) -> int:
        """Return the exit code, or minus the number of the signal; to be called once."""
        return int(self._server.recv(64))


def can_serve(environment: Mapping[str, str]) -> bool:
    """Say whether a Python started with this environment would be as the server is."""
    return read_at_start(environment) == read_at_start(os.environ)


def start(args: Sequence[str], cwd: Path, environment: Mapping[str, str], files: tuple[int, int, int]) -> Process:
    """Fork `mz` with these as its standard files. One at a time: it must have ended before the next one starts."""
    server = _server(os.getpid())
    request = json.dumps([list(args), str(cwd), dict(environment)]).encode()
    assert len(request) < REQUEST_BYTES_MAX
    socket.send_fds(server, [request], list(files))
    return Process(server, int(server.recv(64)))


def serve(descriptor: int) -> None:
    """Fork for each request; return in the child, which is to be `mz`, and end with whoever asks."""
    from mz_cli.app.command_table import MODULES

    for module in (*sorted(set(MODULES.values())), *LOADED_LATE):
        import_module(module)
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=descriptor)
    while True:
        request, ancillary, _, _ = channel.recvmsg(REQUEST_BYTES_MAX, socket.CMSG_SPACE(3 * 4))
        if not request:
            sys.exit()
        files = array.array("i")
        for _, _, data in ancillary:
            files.frombytes(data)
        pid = os.fork()
        if pid == 0:
            channel.close()
            arguments, cwd, environment = json.loads(request)
            _become(arguments, cwd, environment, files)
            return
        for file in files:
            os.close(file)
        channel.send(str(pid).encode())
        channel.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def leave(ended: SystemExit) -> None:
    """Exit as a Python does, without taking apart what was loaded before the fork."""
    if not isinstance(ended.code, int) or threading.active_count() > 1:
        raise ended
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended.code)


def _become(args: list[str], cwd: str, environment: dict[str, str], files: Sequence[int]) -> None:
    """Be as a Python would be that was started like this."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = ["-c", *args]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        buffering, encoding = 1 if os.isatty(number) else -1, before.encoding
        again = os.fdopen(number, before.mode, buffering, encoding, errors=before.errors, closefd=False)
        setattr(sys, name, again)
        setattr(sys, f"__{name}__", again)


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a process must share with the server."""
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


@cache
def _server(owner: int) -> socket.socket:
    """The one of this process, which ends with it."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", SERVER, str(theirs.fileno())]
    with theirs:
        server = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])

    def close() -> None:
        mine.close()
        server.wait()

    atexit.register(close)
    return mine
