"""Run the user's own commands in a worktree, with time limits, redaction and process-tree clean-up as for agents."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Mapping

from mz_events.redact import Redactor, Secrets

from mz_engine.adapters.environment import fenced, opened, variables, worktree
from mz_engine.agents.supervise import Bounds, Denied, Ended, Ending, Launch, offline_works, supervise
from mz_engine.ports import CommandResult, Interrupted, Place

KEPT_BYTES = 20_000_000
"""Bytes kept of a command's output; half from its beginning, half from its end."""

NOT_STARTED = 127
"""Exit code of a shell for a command that it cannot start."""


class ProcessExecutor:
    """Implements `ports.Executor`; thread-safe. Parameters as for `AgentProcesses`. With `denied`, commands run without
    network where possible, and `denied` is called for those that tried to use it."""

    def __init__(
        self,
        root: pathlib.Path,
        environment: Mapping[str, str],
        secrets: Secrets,
        *,
        passed: tuple[str, ...] = (),
        stop: threading.Event | None = None,
        kept_bytes: int = KEPT_BYTES,
        denied: Denied | None = None,
    ) -> None:
        self._root, self._environment, self._secrets = root, environment, secrets
        self._denied = denied
        self._passed, self._stop, self._kept_bytes = passed, stop, kept_bytes

    def run(self, place: Place, command: str, timeout_seconds: int, key: str) -> CommandResult:
        """Run `sh -c command`; output beyond 20 MB loses its middle. Raises Interrupted."""
        launch = Launch(
            argv=("sh", "-c", command),
            env=variables(self._environment, key, passed=self._passed),
            cwd=worktree(self._root, place),
            fenced=fenced(self._root),
            opened=opened(self._root, place, self._environment),
            merged=True,
            offline=self._denied is not None and offline_works(),
        )
        kept = Kept(Redactor(self._secrets), self._kept_bytes)
        ended = supervise(launch, Bounds(total_seconds=timeout_seconds), kept, stop=self._stop)
        if self._denied is not None and ended.denied:
            self._denied(key, ended.denied)
        if ended.ending is Ending.STOPPED:
            raise Interrupted(command)
        if ended.detail:
            kept.out(f"mz: {ended.detail}\n".encode())
        return CommandResult(
            exit=exit_of(ended), output=kept.joined(), duration_ms=ended.duration_ms, root=str(launch.cwd)
        )


def exit_of(ended: Ended) -> int | None:
    if ended.ending is Ending.EXITED:
        return ended.exit
    return None if ended.ending is Ending.TIMEOUT else NOT_STARTED


class Kept:
    """A sink that keeps the redacted first and last half of what fits into its limit."""

    def __init__(self, redactor: Redactor, kept_bytes: int) -> None:
        self._redactor, self._half = redactor, kept_bytes // 2
        self._head, self._tail = bytearray(), bytearray()
        self._left_out = 0

    def out(self, data: bytes) -> None:
        self._keep(self._redactor.feed(data))

    err = out

    def joined(self) -> bytes:
        """Return the output, with a line in place of any omitted middle. Call once, after the last byte."""
        self._keep(self._redactor.finish())
        self._trim(self._half)
        gap = f"\n[mz: {self._left_out} bytes left out]\n".encode() if self._left_out else b""
        return bytes(self._head) + gap + bytes(self._tail)

    def _keep(self, data: bytes) -> None:
        room = max(0, self._half - len(self._head))
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            self._trim(self._half)

    def _trim(self, size: int) -> None:
        excess = len(self._tail) - size
        if excess > 0:
            del self._tail[:excess]
            self._left_out += excess
