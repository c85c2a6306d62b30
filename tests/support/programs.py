"""A program on PATH that does as a shell script says."""

from __future__ import annotations

from pathlib import Path


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
