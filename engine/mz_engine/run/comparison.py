"""Two versions of the code, each built in a clean checkout and run on the same cases, with their outputs compared byte
by byte, except the checkout's path. Commands run as gates do: set up as `workspace.setup` says, in the sandbox."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Literal

import msgspec
from mz_events.adapters.memory import MemoryBlobs, MemoryStore
from mz_events.names import Commit, FeatureId, RunId

from mz_engine.decoding.quantity import Duration, default_duration
from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import decode_document, parse_yaml
from mz_engine.effects.commands import open_checkout
from mz_engine.effects.steps import run_steps
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.agent_description import NonEmpty, Variable, matching
from mz_engine.model.config import Config, Name, SettingsBase
from mz_engine.paths import MZ_FOLDER, WORKTREES_FOLDER
from mz_engine.ports import FeatureWorktree
from mz_engine.processes.environment import remove_abandoned_scratch
from mz_engine.processes.guard import send_signal
from mz_engine.run.ports import SystemPorts

BUILD = "build"
RUN = "compare-{pid}-{token}"
OUTPUT_BYTES_MAX = 1_000_000
"""Of an output that can be compared."""
COMMAND_BYTES_MAX = (128 << 10) - 1
"""What Linux has room for in one argument, with a final NUL."""
CHECKOUT = b"<worktree>"
"""In outputs, in place of the path, which the versions do not share."""
MARK_CHARS = 32
SHOWN_BYTES = 2_000
"""Of the end of what a command printed that stops the comparison."""
Part = Literal["exit", "stdout", "stderr"]
Argument = Annotated[str, matching(r"[^\0]*", "a text without NUL", "leave NUL out")]


class Case(SettingsBase, frozen=True, kw_only=True):
    """A command line, which `sh -c` runs at the top of the checkout, and its input."""

    name: Name
    run: NonEmpty
    stdin: Argument = ""
    env: dict[Variable, Argument] = {}
    timeout: Duration = default_duration("10s")
    """After this time it is ended, and has neither exit code nor output."""


class Cases(SettingsBase, frozen=True, kw_only=True):
    """The file of `mz compare --cases`."""

    cases: tuple[Case, ...]


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a case ended in one version."""

    exit: int | None
    """None: it ran out of time."""
    stdout: bytes
    stderr: bytes
    is_cut: bool = False
    """An output has more bytes than can be compared."""


class ComparedCase(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    left: Ended
    right: Ended

    @property
    def differences(self) -> tuple[Part, ...]:
        parts: tuple[Part, ...] = ("exit", "stdout", "stderr")
        return tuple(part for part in parts if getattr(self.left, part) != getattr(self.right, part))


def read_cases(path: Path) -> tuple[Case, ...]:
    """Return the cases of a YAML file. Raises MzError: MZ2001 to MZ2013, and MZ2004 for two cases of one name."""
    document = parse_yaml(read_text(path, str(path)), str(path))
    cases = decode_document(document, Cases).cases
    if not cases:
        raise MzError("MZ2006", "there is no case", hint="write one", location=document.location("cases"))
    names = [case.name for case in cases]
    for index, case in enumerate(cases):
        if case.name in names[:index]:
            location = document.location("cases", index, "name")
            raise MzError("MZ2004", f"two cases have the name `{case.name}`", hint="rename one", location=location)
        if (size := len(_command(case, "").encode())) > COMMAND_BYTES_MAX - MARK_CHARS:
            problem = f"the case `{case.name}` has {size:,} bytes as a command, more than a command can have"
            hint = "commit long input as a file, and let `run` read it"
            raise MzError("MZ2006", problem, hint=hint, location=document.location("cases", index))
    return cases


def compare_versions(
    root: Path,
    config: Config,
    versions: tuple[tuple[str, Commit], tuple[str, Commit]],
    cases: tuple[Case, ...],
    environment: Mapping[str, str],
    show: Callable[[str], object],
) -> Iterator[ComparedCase]:
    """Build both versions, named by what the user calls them, and yield each case once both have run it. `show` is
    called with what is done. Raises MzError (MZ2018, MZ1008, MZ2008) if a version cannot be set up or built or a case
    cannot be compared, EnvironmentOutside and RepositoryUnusable."""
    run = RunId(RUN.format(pid=os.getpid(), token=token_hex(4)))
    ports = SystemPorts(root, config, MemoryStore(), MemoryBlobs(), environment)
    remove_abandoned_scratch(root)
    for folder in (root / MZ_FOLDER / WORKTREES_FOLDER).glob(RUN.format(pid="[0-9]*", token="*")):
        if not send_signal(int(folder.name.split("-")[1]), 0):  # The process of that comparison was killed.
            ports.workspace.close_checkouts(folder.name)
    try:
        sides = []
        for number, (name, commit) in enumerate(versions):
            show(f"building {name} at {commit[:12]}")
            worktree = FeatureWorktree(run=run, feature=FeatureId(f"_{number}"), branch="")
            sides.append(_build(name, worktree, commit, config, ports))
        for case in cases:
            show(f"running {case.name}")
            left, right = (_run_case(case, checkout, ports) for checkout in sides)
            compared = ComparedCase(name=case.name, left=left, right=right)
            if left.is_cut and not compared.differences:
                message = f"the case `{case.name}` prints {OUTPUT_BYTES_MAX:,} bytes or more, and these are equal"
                raise MzError("MZ2008", message, hint="let `run` print less, such as a checksum: `... | cksum`")
            yield compared
    finally:
        ports.kill.set()
        ports.workspace.close_checkouts(run)


def _build(name: str, worktree: FeatureWorktree, commit: Commit, config: Config, ports: SystemPorts) -> FeatureWorktree:
    """Set a version up and build it; return where it is."""
    key = f"{worktree.run}/{worktree.feature}"
    checkout, failed = run_steps(open_checkout(worktree, key, commit, commit, config), ports)
    if failed is not None:
        output = ports.blobs.get(failed.excerpt)
        raise _stopped("MZ2018", f"the set-up command `{failed.name}` failed on {name}", output)
    if (build := config.commands.get(BUILD)) is not None:
        result = ports.executor.run(checkout.worktree, build.run, build.timeout, f"{key}/{BUILD}")
        if result.exit != 0:
            raise _stopped("MZ1008", f"`commands.{BUILD}` failed on {name}", result.output)
    return checkout.worktree


def _stopped(code: str, message: str, output: bytes) -> MzError:
    printed = output[-SHOWN_BYTES:].decode("utf-8", "replace").strip()
    return MzError(code, message, hint=f"it printed:\n{printed}" if printed else "it printed nothing")


def _command(case: Case, mark: str) -> str:
    """Return the command of a case, which prints both outputs after lines `mark`. The case's variables are its own."""
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in case.env.items())
    stdin, run = shlex.quote(case.stdin), shlex.quote(exports + case.run)
    return (
        f'folder=$(mktemp -d)\nprintf %s {stdin} | sh -c {run} >>"$folder/out" 2>>"$folder/err"\ncode=$?\n'
        f"for part in out err; do printf '\\n%s\\n' {mark}; head -c {OUTPUT_BYTES_MAX} \"$folder/$part\"; done\n"
        f'rm -rf "$folder"\nexit "$code"'
    )


def _run_case(case: Case, worktree: FeatureWorktree, ports: SystemPorts) -> Ended:
    mark = token_hex(MARK_CHARS // 2)  # No program can know it.
    key = f"{worktree.run}/{worktree.feature}/{case.name}"
    result = ports.executor.run(worktree, _command(case, mark), case.timeout, key)
    if result.exit is None:
        return Ended(exit=None, stdout=b"", stderr=b"")
    before, *outputs = result.output.split(f"\n{mark}\n".encode())
    if len(outputs) != 2:
        raise _stopped("MZ1008", f"the case `{case.name}` cannot be run, or ended the shell that ran it", before)
    is_cut = OUTPUT_BYTES_MAX in map(len, outputs)
    stdout, stderr = (output.replace(result.root.encode(), CHECKOUT) for output in outputs)
    return Ended(exit=result.exit, stdout=stdout, stderr=stderr, is_cut=is_cut)
