"""Run the user's own commands in a worktree, with time limits, redaction and process-tree clean-up as for agents."""

from __future__ import annotations

import os
import pathlib
import re
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

from msgspec.structs import replace
from mz_events.redaction.redactor import Redactor, Secrets

from mz_engine.artifacts.command_output import REPORT_BYTES_MAX, REPORT_NAMES, read_cases, read_coverage
from mz_engine.model.config import SandboxSettings
from mz_engine.paths import spending_folder, user_data_directory, worktree_folder
from mz_engine.ports import SETUP_KEY, CommandResult, FeatureWorktree, Interrupted, OutsideLink
from mz_engine.processes.environment import (
    SCRATCH_PREFIX,
    command_environment,
    existing_programs,
    in_worktree,
    remove_scratch,
    sandbox_mounts,
    scratch_folder,
    worktree_path,
)
from mz_engine.processes.guard import KEY_VARIABLE, SIGKILL
from mz_engine.processes.home import confine
from mz_engine.processes.links import environment_links
from mz_engine.processes.supervise import (
    DeniedHandler,
    EndReason,
    Launch,
    Mount,
    ProcessEnd,
    ProcessLimits,
    Sink,
    StopCheck,
    can_confine,
    can_hide,
    can_run_offline,
    is_below,
    supervise,
)

MB = 1_000_000
MACHINE_MB = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MB
DEFAULTS = SandboxSettings()
OUTPUT_BYTES_MAX = 20_000_000
"""Bytes kept of a command's output; half from its beginning, half from its end."""

PIECE_BYTES = 1_000_000
REPORTS_MAX, REPORTS_BYTES_MAX = 20_000, 200_000_000
"""Reports of one command that are read."""
FOREIGN_FOLDERS = frozenset({".git", ".mz", "node_modules", ".venv", "venv", ".tox", ".nox"})

NO_UPDATE_CHECKS = {"npm_config_update_notifier": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""Else tools ask for newer versions of themselves with each command, since what they note in HOME is lost."""

NOT_STARTED_EXIT = 127
"""Exit code of a shell for a command that it cannot start."""


class WorktreeProcesses:
    """Runs processes in the worktrees of one repository. Thread-safe.

    `environment` supplies variables, `passed` names additional ones to pass, `secrets` are redacted from all output.
    Setting `stop` ends every running process. With `on_denied`, processes get no network if the machine supports that,
    and it receives their attempts. `enclosing_repository` contains the root; no process may see it. With mount
    namespaces they may change their worktree, temporary directories of their own, and what `sandbox.write` names; what
    they change in HOME is lost.
    """

    def __init__(
        self,
        root: pathlib.Path,
        environment: Mapping[str, str],
        secrets: Secrets,
        *,
        passed: tuple[str, ...] = (),
        stop: threading.Event | None = None,
        on_denied: DeniedHandler | None = None,
        enclosing_repository: pathlib.Path | None = None,
        sandbox: SandboxSettings = DEFAULTS,
    ) -> None:
        self._root, self._secrets, self._passed = root, secrets, passed
        self._environment: Mapping[str, str] = existing_programs(environment)
        self._stop, self._on_denied = (stop or threading.Event()).is_set, on_denied
        self._enclosing_repository = enclosing_repository
        self._sandbox = sandbox
        home = environment.get("HOME", "~")
        self._writable, self._readable = (
            tuple(pathlib.Path(re.sub(r"\A~(?=/|\Z)", lambda _: home, path)).expanduser() for path in paths)
            for paths in (sandbox.write, sandbox.read)
        )
        data = user_data_directory(environment)  # The user's log and what was spent; worktrees in it are not hidden.
        is_around = is_below(worktree_folder(root.resolve(), "", ""), data.resolve())
        self._data = spending_folder(environment) if is_around else data

    def launch(
        self,
        argv: tuple[str, ...],
        worktree: FeatureWorktree,
        key: str,
        variables: Mapping[str, str] | None = None,
        own: tuple[Mount, ...] = (),
    ) -> Launch:
        """Return the command as it is run in the worktree. `variables` are set besides those that pass, and `own` is
        seen besides what settings name."""
        folder, sandbox = worktree_path(self._root, worktree), self._sandbox
        environment = command_environment(self._environment, key, passed=self._passed, extra=variables)
        mounts = sandbox_mounts(self._root, worktree, environment, self._enclosing_repository, self._writable)
        launch = Launch(
            argv=argv,
            env=in_worktree(environment, folder),
            cwd=folder,
            mounts=mounts,
            read_only=bool(mounts),
            offline=self._is_offline(key) and can_run_offline(),
            memory_bytes=(sandbox.memory_mb or MACHINE_MB * 3 // 4) * MB,
            threads=sandbox.processes,
            file_bytes=sandbox.file_size_mb * MB,
            cpu_seconds=int(sandbox.cpu or 0),
        )
        launch = confine(launch, self._readable, own) if mounts and can_confine() else launch
        return replace(launch, hidden=(*launch.hidden, self._data)) if mounts else launch

    def _is_offline(self, key: str) -> bool:
        return self._on_denied is not None

    def supervise(self, launch: Launch, limits: ProcessLimits, sink: Sink, is_over: StopCheck = bool) -> ProcessEnd:
        """Run the command to its end, or until `is_over`, and report its attempts to reach a network."""
        key, environment = launch.env[KEY_VARIABLE], launch.env
        folder = scratch_folder(self._root) if can_hide() else pathlib.Path(tempfile.gettempdir())
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            scratch = tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{os.getpid()}-", dir=folder)
            if not can_hide() and not launch.end_argv:
                environment = {**environment, "TMPDIR": scratch, **_without_hidden_includes(environment)}
            launch = replace(launch, env=environment, scratch=pathlib.Path(scratch))
        try:
            end = supervise(launch, limits, sink, stop=lambda: self._stop() or is_over())
        finally:
            if launch.scratch is not None:
                remove_scratch(launch.scratch)
        if self._on_denied is not None and end.denied_connections:
            self._on_denied(key, end.denied_connections)
        return end


def _without_hidden_includes(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables by which git works where files that the user's settings include cannot be opened."""
    with suppress(OSError):
        if can_confine() and b"[include" in pathlib.Path(environment["HOME"], ".gitconfig").read_bytes().lower():
            return {"GIT_CONFIG_GLOBAL": os.devnull}
    return {}


class ProcessExecutor(WorktreeProcesses):
    """Implements `ports.Executor`."""

    kept_bytes = OUTPUT_BYTES_MAX

    def _is_offline(self, key: str) -> bool:
        kind = "setup" if SETUP_KEY.match(key) else "commands"
        return super()._is_offline(key) or kind in self._sandbox.offline

    def run(self, feature_worktree: FeatureWorktree, command: str, timeout_seconds: int, key: str) -> CommandResult:
        """Run `sh -c command`; output beyond 20 MB loses its middle. Raises Interrupted."""
        launch = replace(self.launch(("sh", "-c", command), feature_worktree, key, NO_UPDATE_CHECKS), merge_stderr=True)
        output, before = BoundedOutput(self.kept_bytes, Redactor(self._secrets)), dict(report_files(launch.cwd))
        process_end = self.supervise(launch, ProcessLimits(total_seconds=timeout_seconds), output)
        if process_end.reason is EndReason.STOPPED:
            raise Interrupted(command)
        if process_end.detail:
            output.out(f"mz: {process_end.detail}\n".encode())
        elif process_end.denied_connections and self._on_denied is None:
            attempts = f"{process_end.denied_connections} attempts to reach a network failed"
            output.out(f"mz: {attempts}: `sandbox.offline` in mz.yaml\n".encode())
        links = environment_links(launch.cwd, self._root, launch.env)
        result = CommandResult(
            exit=exit_code(process_end),
            output=output.finish(),
            duration_ms=process_end.duration_ms,
            root=str(launch.cwd),
            outside_links=tuple(
                OutsideLink(text=str(link), is_hidden=can_hide() and not link.is_copy and launch.is_hidden(link.target))
                for link in links
            ),
        )
        texts = tuple(islice(new_reports(launch.cwd, before), REPORTS_MAX))
        reports, measured = [read_cases(data) for data in texts], list(filter(None, map(read_coverage, texts)))
        coverage = (sum(covered for covered, _ in measured), sum(total for _, total in measured)) if measured else ()
        passed, failed = (
            tuple(sorted(self._secrets.redact(" ".join(id_.split())) for report in reports for id_ in report[index]))
            for index in (0, 1)
        )
        return replace(result, passed_tests=passed, failed_tests=failed, coverage=coverage)


def new_reports(folder: pathlib.Path, before: Mapping[pathlib.Path, tuple[int, int, int]]) -> Iterator[bytes]:
    """Yield reports below the folder that are not as before; times alone are too coarse to tell what is new."""
    unread_bytes = REPORTS_BYTES_MAX
    for file, state in report_files(folder):
        if before.get(file) != state and state[1] <= min(REPORT_BYTES_MAX, unread_bytes):
            with suppress(OSError):
                unread_bytes -= state[1]
                yield file.read_bytes()


def report_files(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, tuple[int, int, int]]]:
    """Yield what may be reports below the folder with time, size and inode, without those of tools and dependencies."""
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - FOREIGN_FOLDERS)
        for file in (pathlib.Path(directory, name) for name in sorted(names) if name.endswith(REPORT_NAMES)):
            with suppress(OSError):
                status = file.lstat()
                if stat.S_ISREG(status.st_mode):
                    yield file, (status.st_mtime_ns, status.st_size, status.st_ino)


def exit_code(process_end: ProcessEnd) -> int | None:
    if process_end.reason is EndReason.EXITED:
        return process_end.exit
    if process_end.reason is EndReason.EXCEEDED:
        return -SIGKILL
    return None if process_end.reason is EndReason.TIMEOUT else NOT_STARTED_EXIT


class BoundedOutput:
    """A sink that keeps the first and last half of what fits into its limit, redacted if it has a redactor."""

    def __init__(self, kept_bytes: int, redactor: Redactor | None = None) -> None:
        self._redactor, self._half = redactor, kept_bytes // 2
        self._head, self._tail, self._pending = bytearray(), bytearray(), bytearray()
        self._omitted_bytes = 0

    def out(self, data: bytes) -> None:
        """Take output. It is redacted in large pieces, so that the result does not depend on how it came."""
        self._pending += data
        if len(self._pending) >= PIECE_BYTES:
            self._take()

    def _take(self) -> None:
        data, self._pending = bytes(self._pending), bytearray()
        data = self._redactor.feed(data) if self._redactor else data
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = max(0, len(self._tail) - self._half)
        del self._tail[:excess]
        self._omitted_bytes += excess

    err = out

    def finish(self) -> bytes:
        """Return the output, with a line in place of any omitted middle. Call once, after the last byte."""
        self._take()
        if self._redactor:
            held_back, self._redactor = self._redactor.finish(), None
            self._pending += held_back
            self._take()
        gap = f"\n[mz: {self._omitted_bytes} bytes left out]\n".encode() if self._omitted_bytes else b""
        return bytes(self._head) + gap + bytes(self._tail)
