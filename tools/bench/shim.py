"""Takes a program's place on PATH, writes down how it is called, and calls it. Run as a script of its own.

Each call becomes a file TAPE/<start in ns>-<pid>.json: argv, working directory, environment, what came in by stdin
(base64), exit code; of a `git update-ref` that stays, each request. It imports little: a run makes hundreds of calls.
"""

from __future__ import annotations

import binascii
import json
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIGPIPE, SIGXFSZ = 13, 25
"""Ignored by Python; the program must not inherit that. The signal module costs as much to import as all the rest."""
CHUNK_BYTES = 1 << 16
WRAPPER = """#!{python} -IS
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, {directory!r})
from shim import main
main({directory!r}, {tape!r})
"""


def install(directory: Path, tape: Path, programs: tuple[str, ...]) -> None:
    """Puts the shim into `directory` under each of the names; it belongs first on PATH."""
    import shutil

    directory.mkdir(parents=True)
    tape.mkdir(parents=True)
    shutil.copy(__file__, directory)  # An agent sees nothing else of these tools.
    for name in programs:
        file = directory / name
        text = WRAPPER.format(python=sys.executable, directory=str(directory), tape=str(tape))
        file.write_text(text)
        file.chmod(0o755)


def main(directory: str, tape: str) -> None:
    """What the wrapper runs: the program of the same name that comes next on PATH."""
    begun, stays = time.time_ns(), "update-ref" in sys.argv
    argv = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    environment = dict(os.environ)
    places = [text for text in environment.get("PATH", os.defpath).split(os.pathsep) if text != directory]
    environment["PATH"] = os.pathsep.join(places)

    def keep(when: int, fed: bytes, code: int) -> None:
        entry = {"argv": argv, "cwd": os.getcwd(), "env": environment, "stdin": binascii.b2a_base64(fed).decode()}
        with open(f"{tape}/{when}-{os.getpid()}.json", "w") as file:
            json.dump({**entry, "exit": code}, file)

    def keep_request(data: bytes) -> None:
        if stays:
            keep(time.time_ns(), data, 0)

    fed, code = call(argv, environment, keep_request)
    if not stays:
        keep(begun, fed, code)
    sys.exit(code)


def call(argv: list[str], environment: dict[str, str], on_data: Callable[[bytes], None]) -> tuple[bytes, int]:
    """What the program was fed by stdin, and how it ended."""
    ours, theirs = os.pipe()
    inherits = [(os.POSIX_SPAWN_DUP2, ours, 0), (os.POSIX_SPAWN_CLOSE, theirs)]
    os.environ["PATH"] = environment["PATH"]
    pid = os.posix_spawnp(argv[0], argv, environment, file_actions=inherits, setsigdef=(SIGPIPE, SIGXFSZ))
    os.close(ours)
    fed = feed(theirs, on_data)
    return fed, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def feed(pipe: int, on_data: Callable[[bytes], None]) -> bytes:
    """Passes on what comes in, as it comes: the caller may wait for an answer before it asks on."""
    fed = b""
    while data := os.read(0, CHUNK_BYTES):
        fed += data
        on_data(data)
        try:
            os.write(pipe, data)
        except BrokenPipeError:
            break
    os.close(pipe)
    return fed
