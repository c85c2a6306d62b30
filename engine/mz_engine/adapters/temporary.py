"""Adapter: a temporary directory of a call's own, which is gone with the call."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import stat
from collections.abc import Mapping

VARIABLE = "TMPDIR"
USUAL = ("/tmp", "/var/tmp")


def temporary(root: pathlib.Path, key: str, environment: Mapping[str, str]) -> pathlib.Path:
    """Where the call under `key` in this repository has it: outside, since what is below the user's checkout is part
    of it for git and for most tools. The name is short, as sockets want it, and the same after a crash of ours."""
    name = hashlib.sha256(f"{root}\0{key}".encode()).hexdigest()[:16]
    return _place(environment) / f"mz-{name}"


def left_temporary(root: pathlib.Path, key: str, environment: Mapping[str, str]) -> tuple[pathlib.Path, ...]:
    """Those of the call that are there, wherever an environment like this one, or an ordinary one, has them."""
    name = temporary(root, key, environment).name
    places = dict.fromkeys((_place(environment), *map(pathlib.Path, USUAL)))
    return tuple(each for place in places if is_ours(each := place / name))


def is_ours(place: pathlib.Path) -> bool:
    """Whether it is a directory of this user's: in `/tmp` anybody can put a link or a directory of any name."""
    try:
        found = place.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def make_temporary(place: pathlib.Path) -> None:
    """Makes it, empty and for the caller alone. Raises OSError."""
    remove_temporary(place)
    place.mkdir(mode=0o700)


def remove_temporary(place: pathlib.Path) -> None:
    """Removes it with all that is in it, if it is there and this user's; what cannot be removed stays."""
    if not is_ours(place):
        return
    _open(place)
    for folder, below, _ in os.walk(place):
        for name in below:
            _open(pathlib.Path(folder, name))
    shutil.rmtree(place, ignore_errors=True)


def _open(folder: pathlib.Path) -> None:
    """Package managers make their caches read-only."""
    if not folder.is_symlink():
        try:
            folder.chmod(0o700)
        except OSError:
            return


def _place(environment: Mapping[str, str]) -> pathlib.Path:
    wanted = [pathlib.Path(name) for name in (environment.get(VARIABLE, ""), *USUAL)]
    usable = [place for place in wanted if place.is_absolute() and os.access(place, os.W_OK | os.X_OK)]
    return usable[0] if usable else wanted[1]
