"""Search for session files, with their metadata. No file is opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from mz_engine.agents.catalog import AGENTS

SUFFIXES = (".jsonl", ".json", ".ndjson", ".stream-json", ".md", ".yaml", ".log")
"""Suffixes of files that are searched for in directories. A file that the user names is read whatever its name."""
SUBAGENT_DIRECTORY = "subagents"
"""Directory in which Claude Code keeps the files of subagents."""
SUBAGENT_PREFIX = "agent-"


class FileMetadata(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    status: os.stat_result
    is_named: bool
    """True if the user named it, so that an unknown format must be reported."""


class UnreadableFile(msgspec.Struct, frozen=True):
    """A file or directory that could not be read, and the reason."""

    path: str
    reason: str


def session_directories(home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the directories where agents keep their sessions, existing or not."""
    agents_folders = (agent.session_folders for agent in AGENTS.values())
    return tuple(path for folders in agents_folders if folders is not None for path in folders.paths(home, environment))


def scan_files(paths: Iterable[Path], unreadable: list[UnreadableFile]) -> list[FileMetadata]:
    """Return the files, each once however often it is named or linked to: main conversations before subagents, older
    ones before newer ones, so that a request counts for the session that made it. Append to `unreadable`."""
    files_by_inode: dict[tuple[int, int], FileMetadata] = {}
    for path in paths:
        for file in _files_below(path, unreadable):
            inode = file.status.st_dev, file.status.st_ino
            earlier = files_by_inode.get(inode)
            if earlier is None or (file.is_named and not earlier.is_named):
                files_by_inode[inode] = file

    def order(file: FileMetadata) -> tuple[bool, int, str]:
        is_subagent = file.path.name.startswith(SUBAGENT_PREFIX) or file.path.parent.name == SUBAGENT_DIRECTORY
        return is_subagent, file.status.st_mtime_ns, str(file.path)

    return sorted(files_by_inode.values(), key=order)


def _files_below(path: Path, unreadable: list[UnreadableFile]) -> Iterator[FileMetadata]:
    """Yield the file itself, or those of a directory. Links to directories are not followed, to avoid loops."""

    def report(error: OSError) -> None:
        unreadable.append(UnreadableFile(str(error.filename), error.strerror or str(error)))

    is_directory = os.path.isdir(path)  # noqa: PTH112 (`Path.is_dir` raises PermissionError)
    folders = os.walk(path, onerror=report) if is_directory else ()
    below = (Path(folder, name) for folder, _, names in folders for name in names if name.endswith(SUFFIXES))
    for file in below if is_directory else (path,):
        try:
            status = file.stat()
        except OSError as error:
            if not (is_directory and isinstance(error, FileNotFoundError)):
                report(error)
            continue
        if stat.S_ISREG(status.st_mode):
            yield FileMetadata(path=file, status=status, is_named=not is_directory)
        elif not is_directory:
            unreadable.append(UnreadableFile(str(path), "is neither a file nor a directory"))
