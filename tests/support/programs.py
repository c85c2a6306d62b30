"""A program on PATH that does as a shell script says; and what a program printed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


def finished(
    *argv: str, cwd: Path, environment: Mapping[str, str] = os.environ, seconds: int = 60
) -> subprocess.CompletedProcess[str]:
    """The program's exit code and texts; it has so long to end and nothing to read."""
    done = subprocess.run(
        argv, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
    )
    return subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())


def put_program(directory: Path, name: str, script: str) -> Path:
    """Writes it into the directory, which is made where there is none, and returns that."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return directory


def outside(home: Path, name: str, script: str, **more: str) -> dict[str, str]:
    """An environment with the program first on PATH."""
    return {"HOME": str(home), "PATH": f"{put_program(home / 'bin', name, script)}:/usr/bin:/bin", **more}
