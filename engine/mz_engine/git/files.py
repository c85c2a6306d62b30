"""Write the engine's own files into a worktree, below `.mz/`, which captures ignore.

An agent may have written there before: a link in the way is removed, never followed."""

from __future__ import annotations

import pathlib
import shutil
import stat
from collections.abc import Mapping

from mz_events.names import Path

from mz_engine.paths import MZ_FOLDER

IGNORE_ALL = b"*\n"


def write_engine_files(top: pathlib.Path, files: Mapping[Path, bytes]) -> None:
    """Write the files; paths begin with `.mz/`. Git in the worktree ignores them. Raises OSError."""
    for path, data in ({Path(f"{MZ_FOLDER}/.gitignore"): IGNORE_ALL} | dict(files)).items():
        directory = top
        *folders, name = path.split("/")
        for folder in folders:
            directory /= folder
            _make_folder(directory)
        _write(directory / name, data)


def _make_folder(path: pathlib.Path) -> None:
    mode = _mode(path)
    if mode is not None and not stat.S_ISDIR(mode):
        path.unlink()
    path.mkdir(exist_ok=True)


def _write(path: pathlib.Path, data: bytes) -> None:
    mode = _mode(path)
    if mode is not None and stat.S_ISREG(mode) and path.read_bytes() == data:
        return
    if mode is not None:
        shutil.rmtree(path) if stat.S_ISDIR(mode) else path.unlink()
    path.write_bytes(data)


def _mode(path: pathlib.Path) -> int | None:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None
