"""Temporary directory of a call, removed with the call."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import stat
from collections.abc import Mapping

TMPDIR_VARIABLE = "TMPDIR"
DEFAULT_DIRECTORIES = ("/tmp", "/var/tmp")


def temporary_path(root: pathlib.Path, key: str, environment: Mapping[str, str]) -> pathlib.Path:
    """Return the directory of the call under `key` in this repository. It is outside the user's checkout, since git and
    most tools treat everything in it as part of it. The name is short, for sockets, and stable across crashes."""
    name = hashlib.sha256(f"{root}\0{key}".encode()).hexdigest()[:16]
    return _base_directory(environment) / f"mz-{name}"


def existing_temporaries(root: pathlib.Path, key: str, environment: Mapping[str, str]) -> tuple[pathlib.Path, ...]:
    """Return the existing directories of the call, in this environment's and the default locations."""
    name = temporary_path(root, key, environment).name
    directories = dict.fromkeys((_base_directory(environment), *map(pathlib.Path, DEFAULT_DIRECTORIES)))
    return tuple(path for directory in directories if is_own_directory(path := directory / name))


def is_own_directory(path: pathlib.Path) -> bool:
    """Return True for a directory of this user: in `/tmp` anybody can create a link or directory of any name."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def make_temporary(path: pathlib.Path) -> None:
    """Create it, empty and accessible to the caller only. Raises OSError."""
    remove_temporary(path)
    path.mkdir(mode=0o700)


def remove_temporary(path: pathlib.Path) -> None:
    """Remove it with its content if it is this user's; what cannot be removed stays."""
    if not is_own_directory(path):
        return
    _make_writable(path)
    for folder, names, _ in os.walk(path):
        for name in names:
            _make_writable(pathlib.Path(folder, name))
    shutil.rmtree(path, ignore_errors=True)


def _make_writable(folder: pathlib.Path) -> None:
    """Make a directory writable: package managers make their caches read-only."""
    if not folder.is_symlink():
        try:
            folder.chmod(0o700)
        except OSError:
            return


def _base_directory(environment: Mapping[str, str]) -> pathlib.Path:
    candidates = [pathlib.Path(name) for name in (environment.get(TMPDIR_VARIABLE, ""), *DEFAULT_DIRECTORIES)]
    usable = [path for path in candidates if path.is_absolute() and os.access(path, os.W_OK | os.X_OK)]
    return usable[0] if usable else candidates[1]
