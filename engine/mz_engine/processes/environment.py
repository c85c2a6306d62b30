"""Environment of an outside command: its variables, directory, and write access."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import lru_cache

from mz_engine.git.files import remove_tree
from mz_engine.paths import MZ_FOLDER, PRIVATE_FOLDER, SCRATCH_FOLDER, WORKTREE_NOTES_FOLDER, worktree_folder
from mz_engine.ports import FeatureWorktree
from mz_engine.processes.guard import KEY_VARIABLE, send_signal
from mz_engine.processes.supervise import Mount, is_below

LOCATING_NAMES = (
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE CURL_CA_BUNDLE JAVA_HOME GOPATH GOROOT "
    "RUSTUP_HOME NVM_DIR PYENV_ROOT"
)
"""Variables with the paths of certificates and tools, which commands see. Not CARGO_HOME, where a login may be."""
INHERITED_NAMES = (
    "PATH HOME USER LOGNAME SHELL TERM TZ TMPDIR LANG LANGUAGE LC_* LD_LIBRARY_PATH XDG_CONFIG_HOME XDG_DATA_HOME "
    "XDG_CACHE_HOME XDG_STATE_HOME XDG_RUNTIME_DIR HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy "
    f"all_proxy no_proxy VIRTUAL_ENV CARGO_HOME {LOCATING_NAMES}"
)
"""Variables that locate tools and the network; anything else may be a secret and is passed by name only."""
INHERITED_VARIABLES = re.compile("|".join(INHERITED_NAMES.replace("*", r"\w+").split()))

WRITABLE_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")
OWN_VARIABLES = ("TMPDIR", "XDG_RUNTIME_DIR")
"""Of folders for temporary files and sockets, in whose place a command sees its own."""


VIRTUAL_ENVIRONMENTS = (".venv", "venv")
"""Folders of a worktree that are searched for a virtual environment, which its commands then use."""
ENVIRONMENT_MARK = "pyvenv.cfg"
"""The file that makes a folder a virtual environment."""
SCRATCH_PREFIX = "mz-"
DEFAULT_DIRECTORIES = ("/tmp", "/var/tmp")
"""Folders for temporary files."""
ALTERNATES_MAX = 5
"""Depth to which git follows alternates of object directories."""


def command_environment(
    environment: Mapping[str, str], key: str, *, passed: Iterable[str] = (), extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the complete environment of a command: the allow list and `passed` from `environment`, then `extra`, then
    MZ_KEY."""
    names = frozenset(passed)
    inherited = {
        name: value for name, value in environment.items() if name in names or INHERITED_VARIABLES.fullmatch(name)
    }
    return {**inherited, **(extra or {}), KEY_VARIABLE: key}


def in_worktree(environment: Mapping[str, str], folder: pathlib.Path) -> dict[str, str]:
    """Return a command's environment with the virtual environment of its worktree `folder`, if there is one, in place
    of the one that is active where mz was started."""
    variables = dict(environment)
    active = variables.pop("VIRTUAL_ENV", None)
    own = next((folder / name for name in VIRTUAL_ENVIRONMENTS if (folder / name / ENVIRONMENT_MARK).is_file()), None)
    if own is not None:
        path = variables.get("PATH", os.defpath).split(os.pathsep)
        others = [entry for entry in path if active is None or entry.rstrip(os.sep) != f"{active}{os.sep}bin"]
        variables |= {"VIRTUAL_ENV": str(own), "PATH": os.pathsep.join((str(own / "bin"), *others))}
    return variables


def existing_programs(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without folders of PATH that do not exist, since an agent could make them, or cannot be
    entered."""
    path = environment.get("PATH", os.defpath).split(os.pathsep)
    folders = (folder for folder in path if folder and (os.access(folder, os.X_OK) or folder[0] != os.sep))
    return {**environment, "PATH": os.pathsep.join(folders)}


def program_folders(environment: Mapping[str, str], worktree: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """Return the folders of PATH, and the virtual environments that they belong to, which an agent must not change,
    outside its worktree. Left out is what holds a home or a temporary directory."""
    path = environment.get("PATH", os.defpath).split(os.pathsep)
    folders = dict.fromkeys(pathlib.Path(folder) for folder in path if folder.startswith(os.sep))
    folders |= dict.fromkeys(folder.parent for folder in folders if (folder.parent / ENVIRONMENT_MARK).is_file())
    writable = [worktree, *map(pathlib.Path, DEFAULT_DIRECTORIES)]
    named = (environment.get(name) for name in (*WRITABLE_VARIABLES, *OWN_VARIABLES))
    writable += [pathlib.Path(name) for name in named if name]
    return tuple(
        folder
        for folder in folders
        if not (is_below(folder, worktree) or any(is_below(path, folder) for path in writable))
    )


def worktree_path(root: pathlib.Path, worktree: FeatureWorktree) -> pathlib.Path:
    """Return the path of a feature's worktree; it need not exist."""
    return worktree_folder(root, worktree.run, worktree.folder)


def sandbox_mounts(
    root: pathlib.Path,
    worktree: FeatureWorktree,
    environment: Mapping[str, str],
    enclosing: pathlib.Path | None = None,
    writable: Iterable[pathlib.Path] = (),
) -> tuple[Mount, ...]:
    """Return what a command in the worktree sees of the user's repository, and of the one that encloses it: of
    checkout, `.git` and `.mz` nothing but the worktree with its private repository, the objects of git, and the tools
    that are installed there; of HOME, and of what the set-up of a checkout made, an overlay, except `writable` folders.
    Empty if `root` is no repository."""
    common = git_directory(root)
    if common is None:
        return ()
    folder, mounts = worktree_path(root, worktree), list[Mount]()
    tools = tool_folders(environment.get("PATH", os.defpath))
    for checkout in (root,) if enclosing is None else (enclosing, root):
        outside = git_directory(checkout) or checkout
        mounts += [Mount(path, "empty") for path in (checkout, *([] if is_below(outside, checkout) else [outside]))]
        with os.scandir(checkout) as entries:
            marks = [entry.path for entry in entries if os.access(f"{entry.path}/{ENVIRONMENT_MARK}", os.F_OK)]
        for path in (*tools, *map(pathlib.Path, marks)):
            if is_below(path, checkout) and path != checkout:
                top = checkout / path.parts[len(checkout.parts)]
                mounts.append(Mount(path if top.name == MZ_FOLDER else top, "read"))
        for path in (pathlib.Path(environment.get(name, "")) for name in WRITABLE_VARIABLES):
            if is_below(path, checkout) and path != checkout:
                mounts.append(Mount(path, "write"))
    with contextlib.suppress(FileNotFoundError):
        names = os.fsdecode(environment_file(root, worktree).read_bytes()).split("\0")
        # A link that an agent put there would lead elsewhere.
        top, paths = folder.resolve(), [folder / name for name in names if name]
        mounts += [Mount(path, "overlay") for path in paths if path.resolve() == top / path.relative_to(folder)]
    home = pathlib.Path(environment.get("HOME", ""))
    if len(home.parts) > 1 and home.is_absolute() and not is_below(home, enclosing or root):
        mounts.append(Mount(home, "overlay"))
    mounts += [Mount(path, "write") for path in writable]
    if not worktree.is_scoped:  # Its repository has all that it may see.
        mounts += [Mount(path, "read", path) for path in object_directories(common / "objects")]
    mounts += [Mount(folder, "write"), Mount(folder / ".git", "write", private_repository(root, worktree))]
    by_target = {mount.target: mount for mount in mounts}
    return tuple(sorted(by_target.values(), key=lambda mount: len(mount.target.parts)))


@lru_cache(8)
def tool_folders(path: str) -> tuple[pathlib.Path, ...]:
    """Return the folders of PATH, and those from which mz itself is imported."""
    return tuple(map(pathlib.Path, (*path.split(os.pathsep), *sys.path)))


def object_directories(directory: pathlib.Path, depth: int = ALTERNATES_MAX) -> tuple[pathlib.Path, ...]:
    """Return the object directory and those that it borrows objects from."""
    try:
        lines = (directory / "info" / "alternates").read_text().splitlines() if depth else []
    except OSError:
        lines = []
    borrowed = (directory / line for line in lines if line and not line.startswith("#"))
    return (directory, *(path for other in borrowed for path in object_directories(other.resolve(), depth - 1)))


def private_repository(root: pathlib.Path, worktree: FeatureWorktree) -> pathlib.Path:
    """Return the repository that git sees in a feature's worktree; it need not exist."""
    return root / MZ_FOLDER / PRIVATE_FOLDER / worktree.run / worktree.folder


def environment_file(root: pathlib.Path, worktree: FeatureWorktree) -> pathlib.Path:
    """Return the file with the folders that the set-up of a checkout made; it exists once the set-up has ended."""
    return root / MZ_FOLDER / WORKTREE_NOTES_FOLDER / worktree.run / worktree.folder / "environment"


def agent_folder(root: pathlib.Path, worktree: FeatureWorktree, path: pathlib.Path) -> pathlib.Path:
    """Return the folder with what calls of the feature changed in a folder of their agent; it need not exist."""
    return environment_file(root, worktree).with_name("agent") / "+".join(path.parts[1:])


def scratch_folder(root: pathlib.Path) -> pathlib.Path:
    """Return the folder of directories in which running commands change overlays; their names have the number of the
    process of mz after SCRATCH_PREFIX."""
    return root / MZ_FOLDER / SCRATCH_FOLDER


def remove_scratch(path: pathlib.Path) -> None:
    """Remove a directory with changes of overlays. What cannot be removed stays."""
    with contextlib.suppress(OSError):
        remove_tree(os.fsencode(path))


def remove_abandoned_scratch(root: pathlib.Path) -> None:
    """Remove the directories of processes that are gone, and of this user: others may make any name in `/tmp`."""
    for folder in (scratch_folder(root), pathlib.Path(tempfile.gettempdir())):
        for path in folder.glob(f"{SCRATCH_PREFIX}[0-9]*-*"):
            with contextlib.suppress(OSError, ValueError):
                status, pid = path.lstat(), int(path.name.split("-")[1])
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not send_signal(pid, 0):
                    remove_scratch(path)


def git_directory(root: pathlib.Path) -> pathlib.Path | None:
    """Return the directory that all worktrees of the repository share; None if `root` is no repository."""
    path = root / ".git"
    if path.is_file():
        path = root / path.read_text().removeprefix("gitdir:").strip()
        common = path / "commondir"
        if common.is_file():
            path = path / common.read_text().strip()
    return path.resolve() if path.is_dir() else None
