"""Run the user's own commands in a worktree, with time limits, redaction and process-tree clean-up as for agents."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Mapping

from mz_events.redaction.redactor import Redactor, Secrets

from mz_engine.ports import CommandResult, FeatureWorktree, Interrupted
from mz_engine.processes.environment import command_environment, protected_paths, worktree_path, writable_paths
from mz_engine.processes.supervise import (
    DeniedHandler,
    EndReason,
    Launch,
    ProcessEnd,
    ProcessLimits,
    can_run_offline,
    supervise,
)

OUTPUT_BYTES_MAX = 20_000_000
"""Bytes kept of a command's output; half from its beginning, half from its end."""

NOT_STARTED_EXIT = 127
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
        kept_bytes: int = OUTPUT_BYTES_MAX,
        denied: DeniedHandler | None = None,
    ) -> None:
        self._root, self._environment, self._secrets = root, environment, secrets
        self._denied = denied
        self._passed, self._kept_bytes = passed, kept_bytes
        self._stop = (stop or threading.Event()).is_set

    def run(self, feature_worktree: FeatureWorktree, command: str, timeout_seconds: int, key: str) -> CommandResult:
        """Run `sh -c command`; output beyond 20 MB loses its middle. Raises Interrupted."""
        launch = Launch(
            argv=("sh", "-c", command),
            env=command_environment(self._environment, key, passed=self._passed),
            cwd=worktree_path(self._root, feature_worktree),
            read_only=protected_paths(self._root),
            writable=writable_paths(self._root, feature_worktree, self._environment),
            merge_stderr=True,
            offline=self._denied is not None and can_run_offline(),
        )
        output = BoundedOutput(self._kept_bytes, Redactor(self._secrets))
        process_end = supervise(launch, ProcessLimits(total_seconds=timeout_seconds), output, stop=self._stop)
        if self._denied is not None and process_end.denied_connections:
            self._denied(key, process_end.denied_connections)
        if process_end.reason is EndReason.STOPPED:
            raise Interrupted(command)
        if process_end.detail:
            output.out(f"mz: {process_end.detail}\n".encode())
        return CommandResult(
            exit=exit_code(process_end),
            output=output.finish(),
            duration_ms=process_end.duration_ms,
            root=str(launch.cwd),
        )


def exit_code(process_end: ProcessEnd) -> int | None:
    if process_end.reason is EndReason.EXITED:
        return process_end.exit
    return None if process_end.reason is EndReason.TIMEOUT else NOT_STARTED_EXIT


class BoundedOutput:
    """A sink that keeps the first and last half of what fits into its limit, redacted if it has a redactor."""

    def __init__(self, kept_bytes: int, redactor: Redactor | None = None) -> None:
        self._redactor, self._half = redactor, kept_bytes // 2
        self._head, self._tail = bytearray(), bytearray()
        self._omitted_bytes = 0

    def out(self, data: bytes) -> None:
        data = self._redactor.feed(data) if self._redactor else data
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            self._trim()

    err = out

    def finish(self) -> bytes:
        """Return the output, with a line in place of any omitted middle. Call once, after the last byte."""
        if self._redactor:
            held_back, self._redactor = self._redactor.finish(), None
            self.out(held_back)
        self._trim()
        gap = f"\n[mz: {self._omitted_bytes} bytes left out]\n".encode() if self._omitted_bytes else b""
        return bytes(self._head) + gap + bytes(self._tail)

    def _trim(self) -> None:
        excess = max(0, len(self._tail) - self._half)
        del self._tail[:excess]
        self._omitted_bytes += excess
