"""Adapter: where an agent call's output stands while it comes, so that a crash of ours loses none of it.

<spools>/<key>/stdout, stderr    redacted, written as it comes
               meta.json         what was started, and when
               exit.json         how it ended; there only if we saw the end
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


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What was started. No value of the environment is ever written, only names."""

    key: str
    agent: str
    model: str
    argv: tuple[str, ...]
    environment: tuple[str, ...]
    started_us: int
    """Microseconds since the epoch, UTC."""
    version: str = ""
    """Of the agent, as its command said when this process asked it; empty: it was not asked."""


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    exit: int | None
    duration_ms: int
    problem: Problem | None


META, CLOSING = msgspec.json.Decoder(Meta), msgspec.json.Decoder(Closing)


class Spooled(msgspec.Struct, frozen=True, kw_only=True):
    """What a spool holds; `closing` is None when the writer died before the call was over."""

    stdout: bytes
    stderr: bytes
    duration_ms: int
    closing: Closing | None
    version: str = ""
    """As in `Meta`."""


def directory(spools: pathlib.Path, key: str) -> pathlib.Path:
    """The call's own directory; different keys have different ones, on any file system."""
    safe = re.sub(r"[^A-Za-z0-9_./-]", "_", key)[:NAME_LENGTH_MAX]
    name = safe.replace("/", "+")
    return spools / (name if safe == key else f"{name}+{hashlib.sha256(key.encode()).hexdigest()[:16]}")


class Spool:
    """The writing end. Anything that an earlier call left under the key is gone."""

    def __init__(self, place: pathlib.Path, meta: Meta, secrets: Secrets) -> None:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        (place / "exit.json").unlink(missing_ok=True)
        self._place = place
        self._redactors = Redactor(secrets), Redactor(secrets)
        self._files = create(place / "stdout"), create(place / "stderr")
        (place / "meta.json").write_bytes(msgspec.json.encode(meta))

    def out(self, data: bytes) -> None:
        self._write(0, self._redactors[0].feed(data))

    def err(self, data: bytes) -> None:
        self._write(1, self._redactors[1].feed(data))

    def flush(self) -> None:
        """Writes what the redactors held back, durably. Once, after the last byte."""
        for stream, redactor in enumerate(self._redactors):
            self._write(stream, redactor.finish())
            os.fsync(self._files[stream])

    def note(self, words: str) -> None:
        """A line of our own on the call's standard error."""
        self.err(f"mz: {words}\n".encode())

    def finish(self, closing: Closing) -> None:
        """Says how the call ended; durable, whole or not at all."""
        partial = self._place / "exit.json.tmp"
        file = create(partial)
        try:
            os.write(file, msgspec.json.encode(closing))
            os.fsync(file)
        finally:
            os.close(file)
        partial.replace(self._place / "exit.json")

    def close(self) -> None:
        for file in self._files:
            os.close(file)

    def _write(self, stream: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._files[stream], view) :]


def create(path: pathlib.Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


def load(place: pathlib.Path) -> Spooled | None:
    """What the spool holds now; None when there is none, or when its writer died before the call began."""
    try:
        meta = META.decode((place / "meta.json").read_bytes())
        stdout, stderr = (place / "stdout").read_bytes(), (place / "stderr").read_bytes()
        ended_us = max((place / name).stat().st_mtime_ns for name in ("stdout", "stderr")) // 1000
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    closing = load_closing(place / "exit.json")
    duration_ms = closing.duration_ms if closing else max(0, (ended_us - meta.started_us) // 1000)
    return Spooled(stdout=stdout, stderr=stderr, duration_ms=duration_ms, closing=closing, version=meta.version)


def load_closing(path: pathlib.Path) -> Closing | None:
    try:
        return CLOSING.decode(path.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None
