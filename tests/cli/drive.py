"""Runs `mz` as people do: in this process, as a process with pipes, or on a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mz_cli.main import main

from tests.support import preloaded
from tests.support.programs import finished

SECONDS_MAX = 60
"""Then a program that waits for an answer which nobody gives is killed."""
MZ = (sys.executable, "-c", "from mz_cli.main import main; main()")


class Result(msgspec.Struct, frozen=True):
    exit: int
    out: str
    err: str


Mz = Callable[..., Result]
"""Runs the command with those arguments: the fixture `mz`."""


def decoded(answer: Result) -> Any:
    """The JSON document of a command that succeeded."""
    assert answer.exit == 0, answer
    return msgspec.json.decode(answer.out)


def run(capsys: pytest.CaptureFixture[str], *args: str, program: Callable[[tuple[str, ...]], object] = main) -> Result:
    """In this process and the present directory."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        program(args)
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return Result(ended.value.code, captured.out, captured.err)


def spawn(home: Path, *args: str, **environment: str) -> Result:
    """As a process of its own, with pipes."""
    return spawn_in(home, args, {**os.environ, **environment})


def spawn_in(home: Path, args: Sequence[str], environment: Mapping[str, str]) -> Result:
    """The same, with this environment and no other variable."""
    if preloaded.can_serve(environment):
        return fork(home, args, environment)
    done = finished(*MZ, *args, cwd=home, environment=environment)
    return Result(done.returncode, done.stdout, done.stderr)


def run_line(home: Path, line: str, environment: Mapping[str, str]) -> Result:
    """A line for a shell; `mz` alone is started without one."""
    if line.startswith("mz "):
        return spawn_in(home, shlex.split(line, comments=True)[1:], environment)
    done = finished("sh", "-c", line, cwd=home, environment=environment)
    return Result(done.returncode, done.stdout, done.stderr)


def fork(home: Path, args: Sequence[str], environment: Mapping[str, str], seconds: float = SECONDS_MAX) -> Result:
    """The same, where `preloaded.can_serve` this environment."""
    with open(os.devnull) as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = preloaded.start(args, home, environment, (nothing.fileno(), out.fileno(), err.fileno()))
        late = threading.Timer(seconds, child.kill)
        late.start()
        code = child.wait()
        late.cancel()
        texts = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (out, err)]
    return Result(code, *(text.replace("\r\n", "\n") for text in texts))


def on_terminal(
    home: Path, *args: str, columns: int = 100, rows: int = 30, env: Mapping[str, str] | None = None,
    answers: str = "", code: int | None = None,
) -> str:  # fmt: skip
    """What a terminal of that size receives; stdout and stderr are both that terminal, and `answers` is typed. `code`:
    how it must exit; None: anyhow."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    outside = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = {**outside, "TERM": "xterm-256color", "TZ": "UTC", **(env or {})}
    child: subprocess.Popen[bytes] | preloaded.Process
    if preloaded.can_serve(environment):
        child = preloaded.start(args, home, environment, (theirs, theirs, theirs))
    else:
        child = subprocess.Popen([*MZ, *args], cwd=home, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(mine, answers.encode())
    received, late = bytearray(), threading.Timer(SECONDS_MAX, child.kill)
    late.start()
    with suppress(OSError):
        while chunk := os.read(mine, 65536):
            received += chunk
    os.close(mine)
    exited = child.wait()
    late.cancel()
    assert code in (None, exited), received
    return received.decode("utf-8", "replace").replace("\r\n", "\n")
