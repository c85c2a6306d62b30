"""An engine of containers without isolation: a daemon, outside every tree of mz, starts what its clients ask for."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

VALUED = {"-w", "-e", "--label"}
"""Options of `run` whose value is the next word."""
IMAGE = "agent:1"


class FakeEngine:
    """A daemon with its state in `folder`, and a client `podman` in `folder/bin`. Its image has the programs of
    `folder/image` and of the system."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.image = folder, folder / "bin", folder / "image"
        for path in (self.bin, self.image, folder / "containers"):
            path.mkdir(parents=True)
        (folder / "requests").touch()
        client = self.bin / "podman"
        client.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" client "{folder}" "$@"\n')
        client.chmod(0o755)
        self._daemon = subprocess.Popen(
            [sys.executable, "-IS", __file__, "daemon", str(folder)], stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._daemon.stdout is not None
        self._daemon.stdout.readline()

    def __enter__(self) -> FakeEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._daemon.kill()
        self._daemon.communicate()

    @property
    def requests(self) -> list[list[str]]:
        """The arguments of each command that clients sent, in order."""
        return [json.loads(line) for line in (self.folder / "requests").read_text().splitlines()]

    @property
    def running(self) -> list[int]:
        """Process ids of running containers."""
        return [json.loads(path.read_text())["pid"] for path in (self.folder / "containers").iterdir()]


def client(folder: Path, argv: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "socket"))
        request = json.dumps({"argv": argv, "env": dict(os.environ)}).encode()
        socket.send_fds(connection, [len(request).to_bytes(8, "big")], [0, 1, 2])
        connection.sendall(request)
        return int(connection.recv(10) or b"125")


def daemon(folder: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "socket"))
    server.listen()
    print("ready", flush=True)
    while True:
        threading.Thread(target=serve, args=(folder, server.accept()[0]), daemon=True).start()


def serve(folder: Path, connection: socket.socket) -> None:
    head, streams, _, _ = socket.recv_fds(connection, 8, 3)
    data = connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    request = json.loads(data)
    argv: list[str] = request["argv"]
    with (folder / "requests").open("a") as log:
        log.write(json.dumps(argv) + "\n")
    if argv[0] == "run":
        code = run(folder, argv[1:], request["env"], streams)
    else:
        code = {"ps": ps, "kill": kill, "rm": remove}[argv[0]](folder, argv[1:], streams[1])
    for stream in streams:
        os.close(stream)
    try:
        connection.sendall(str(code).encode())
    except OSError:
        return  # The client was killed.


def run(folder: Path, arguments: list[str], values: dict[str, str], streams: list[int]) -> int:
    options: list[tuple[str, str]] = []
    while arguments[0].startswith("-"):
        word = arguments.pop(0)
        options.append((word, arguments.pop(0) if word in VALUED else ""))
    image, *command = arguments
    if image != IMAGE:
        os.write(streams[2], b"Error: image not known\n")
        return 125
    env = {value: values[value] for option, value in options if option == "-e"}
    env = {"HOME": "/root", "PATH": f"{folder / 'image'}:/usr/bin:/bin", **env}
    cwd = next(value for option, value in options if option == "-w")
    stdin, stdout, stderr = streams
    try:
        process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
    except FileNotFoundError:
        os.write(stderr, f"Error: {command[0]}: executable file not found\n".encode())
        return 127
    label = next(value for option, value in options if option == "--label")
    path = folder / "containers" / f"{process.pid:x}"
    unfinished = folder / f"{process.pid:x}"
    unfinished.write_text(json.dumps({"pid": process.pid, "label": label}))
    unfinished.rename(path)  # Others read it at any time.
    code = process.wait()
    path.unlink(missing_ok=True)
    return code if code >= 0 else 128 - code


def ps(folder: Path, arguments: list[str], output: int) -> int:
    label = arguments[arguments.index("--filter") + 1].removeprefix("label=")
    containers = [path for path in (folder / "containers").iterdir() if json.loads(path.read_text())["label"] == label]
    os.write(output, "".join(f"{path.name}\n" for path in containers).encode())
    return 0


def kill(folder: Path, arguments: list[str], output: int) -> int:
    for name in arguments:
        os.killpg(int(name, 16), signal.SIGKILL)
    return 0


def remove(folder: Path, arguments: list[str], output: int) -> int:
    for name in arguments[1:]:
        (folder / "containers" / name).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "daemon":
        daemon(Path(sys.argv[2]))
    sys.exit(client(Path(sys.argv[2]), sys.argv[3:]))
