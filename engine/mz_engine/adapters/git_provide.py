"""Write the engine's own files into a worktree, below `.mz/`, which captures ignore.

An agent may have written there before: a link in the way is removed, never followed."""

from __future__ import annotations

import pathlib
import shutil
import stat
from collections.abc import Mapping

from mz_events.names import Path

from mz_engine.home import HOME

IGNORE_ALL = b"*\n"


def provide(top: pathlib.Path, files: Mapping[Path, bytes]) -> None:
    """Write the files; paths begin with `.mz/`. Git in the worktree ignores them. Raises OSError."""
    for path, data in ({Path(f"{HOME}/.gitignore"): IGNORE_ALL} | dict(files)).items():
        place = top
        *folders, name = path.split("/")
        for folder in folders:
            place /= folder
            _make_folder(place)
        _write(place / name, data)


def _make_folder(place: pathlib.Path) -> None:
    mode = _mode(place)
    if mode is not None and not stat.S_ISDIR(mode):
        place.unlink()
    place.mkdir(exist_ok=True)


def _write(place: pathlib.Path, data: bytes) -> None:
    mode = _mode(place)
    if mode is not None and stat.S_ISREG(mode) and place.read_bytes() == data:
        return
    if mode is not None:
        shutil.rmtree(place) if stat.S_ISDIR(mode) else place.unlink()
    place.write_bytes(data)


def _mode(place: pathlib.Path) -> int | None:
    try:
        return place.lstat().st_mode
    except FileNotFoundError:
        return None
