"""Confines a command by bubblewrap, for machines where no other program may make namespaces."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from mz_engine.processes.guard import STATUS_FD
from mz_engine.processes.sandbox import KERNEL_CONTROLS
from mz_engine.processes.supervise import Launch, Mount

FOLDERS = "/usr/bin:/bin:/usr/local/bin"
"""Where it may be: no agent can write there."""
OVERLAYS_SINCE = (0, 11)
SECONDS = 10
HIDDEN_MAX = 500
"""In one folder; bubblewrap takes 9,000 arguments."""
ALWAYS = (
    "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL", "--json-status-fd", f"{STATUS_FD}",
)  # fmt: skip
SYSTEM = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")


@functools.cache
def find_bubblewrap() -> tuple[str, bool]:
    """Return the program, empty if there is none, and True if it can mount overlays."""
    program = shutil.which("bwrap", path=FOLDERS) or ""
    try:
        printed = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "", False
    version = re.search(r"(\d+)\.(\d+)", printed.stdout)
    return program, version is not None and tuple(map(int, version.groups())) >= OVERLAYS_SINCE


def in_bubblewrap(launch: Launch, program: str) -> Launch:
    """Return the launch of bubblewrap with the same mounts, which then executes the program. Makes directories in
    `scratch`. Where overlays cannot be mounted, HOME is read-only, and an agent's own folders are the user's."""
    bubblewrap, has_overlays = find_bubblewrap()
    launch, links = _with_few_hidden(launch)
    options = [*ALWAYS, *(["--unshare-net"] if launch.offline else []), *SYSTEM]
    for control in map(os.fsdecode, KERNEL_CONTROLS):
        options += ["--ro-bind-try", control, control]
    covered = [mount.target for mount in launch.mounts if mount.kind == "empty"]
    for mount in launch.mounts:
        options += _mount(mount, launch.scratch, has_overlays)
    for link in links:
        options += ["--symlink", str(link.readlink()), str(link)]
    empty = "/dev/null"
    if launch.scratch is not None:  # Else it cannot be opened, since devices of a bound folder cannot.
        empty = str(launch.scratch / "empty")
        Path(empty).touch()
    for path in launch.hidden:
        options += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind-try", empty, str(path)]
    for path in (*covered, *launch.hidden):
        options += ["--remount-ro", str(path)] if path.is_dir() else []
    argv = (bubblewrap, *options, "--chdir", str(launch.cwd), "--", program, *launch.argv[1:])
    return replace(launch, argv=argv, mounts=(), hidden=(), read_only=False, offline=False)


def _with_few_hidden(launch: Launch) -> tuple[Launch, list[Path]]:
    """Return the launch with an own folder in place of each where very much is hidden, and with mounts of what is
    visible there; and the links there."""
    numbers = Counter(path.parent for path in launch.hidden)
    replaced = [folder for folder, number in numbers.items() if number > HIDDEN_MAX]
    visible = {path for folder in replaced for path in folder.iterdir()}.difference(launch.hidden)
    links = sorted(path for path in visible if path.is_symlink())
    mounts = {path: Mount(path, "overlay") for path in visible.difference(links)}
    mounts |= {mount.target.resolve(): mount for mount in launch.mounts}
    mounts |= {path: Mount(path, "own") for path in replaced}
    hidden = tuple(path for path in launch.hidden if path.parent not in replaced)
    in_order = tuple(mounts[path] for path in sorted(mounts, key=lambda path: len(path.parts)))
    return replace(launch, mounts=in_order, hidden=hidden), links


def _mount(mount: Mount, scratch: Path | None, has_overlays: bool) -> Iterator[str]:
    """Yield the options for a mount."""
    target, is_directory = str(mount.target.resolve()), mount.target.is_dir()
    source = str(mount.source or mount.target)
    if mount.kind == "own" and scratch is not None:
        folder = scratch / str(len(list(scratch.iterdir())))
        folder.mkdir()
        yield from ("--bind", str(folder), target)
    elif mount.kind == "own" or (mount.kind == "empty" and is_directory):
        yield from ("--tmpfs", target)
    elif mount.kind == "overlay" and has_overlays and is_directory:
        yield from ("--overlay-src", target, "--tmp-overlay", target)
    elif mount.kind == "kept" and has_overlays and is_directory:
        for name in ("upper", "work"):
            (Path(source) / name).mkdir(exist_ok=True)
        yield from ("--overlay-src", target, "--overlay", f"{source}/upper", f"{source}/work", target)
    elif mount.kind == "kept":
        yield from ("--bind-try", target, target)
    elif mount.kind in ("read", "write", "overlay"):
        yield from ("--bind-try" if mount.kind == "write" else "--ro-bind-try", source, target)
