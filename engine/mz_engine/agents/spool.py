"""Spools: directories that receive an agent call's output as it comes, so that a crash of mz loses none of it.

<spools>/<key>/stdout, stderr    redacted, written as it comes
               meta.json         what was started, and when
               exit.json         how it ended; missing if mz did not see the end
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re

import msgspec
from mz_events.catalog.call import Problem
from mz_events.redact import Redactor, Secrets

NAME_LENGTH_MAX = 200


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


META_DECODER, END_DECODER = msgspec.json.Decoder(SpoolMeta), msgspec.json.Decoder(SpoolEnd)


class SpoolContent(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a spool; `closing` is None if the writer died before the call ended."""

    stdout: bytes
    stderr: bytes
    duration_ms: int
    end: SpoolEnd | None
    version: str = ""
    """Version of the agent, as in `SpoolMeta`."""


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

    def flush(self) -> None:
        """Write what the redactors held back, durably. Call once, after the last byte."""
        for stream, redactor in enumerate(self._redactors):
            self._write(stream, redactor.finish())
            os.fsync(self._files[stream])

    def write_note(self, text: str) -> None:
        """Add a line by mz to the call's standard error."""
        self.err(f"mz: {text}\n".encode())

    def finish(self, end: SpoolEnd) -> None:
        """Record how the call ended, durably and atomically."""
        partial = self._folder / "exit.json.tmp"
        file = open_new(partial)
        try:
            os.write(file, msgspec.json.encode(end))
            os.fsync(file)
        finally:
            os.close(file)
        partial.replace(self._folder / "exit.json")

    def close(self) -> None:
        for file in self._files:
            os.close(file)

    def _write(self, stream: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._files[stream], view) :]


def open_new(path: pathlib.Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


def load_spool(folder: pathlib.Path) -> SpoolContent | None:
    """Read a spool; None if there is none, or its writer died before the call began."""
    try:
        meta = META_DECODER.decode((folder / "meta.json").read_bytes())
        stdout, stderr = (folder / "stdout").read_bytes(), (folder / "stderr").read_bytes()
        ended_us = max((folder / name).stat().st_mtime_ns for name in ("stdout", "stderr")) // 1000
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    end = load_end(folder / "exit.json")
    duration_ms = end.duration_ms if end else max(0, (ended_us - meta.started_us) // 1000)
    return SpoolContent(stdout=stdout, stderr=stderr, duration_ms=duration_ms, end=end, version=meta.version)


def load_end(path: pathlib.Path) -> SpoolEnd | None:
    try:
        return END_DECODER.decode(path.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None
