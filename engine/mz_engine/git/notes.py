"""Notes of mz about a worktree: a cache, each of them may be lost."""

from __future__ import annotations

import pathlib
import zlib

import msgspec
from mz_events.names import Commit

from mz_engine.git.content import FileHash, FileSignature
from mz_engine.git.scan import stat_signature


class WorktreeNotes(msgspec.Struct, frozen=True):
    """State of a worktree after its last use."""

    hash_cache: dict[bytes, FileHash] = {}
    index_of: str = ""
    """Commit in the index."""
    index: FileSignature | None = None
    adopted: bool = False
    """The worktree contains the results of the set-up."""


NOTES_DECODER = msgspec.msgpack.Decoder(WorktreeNotes)


class NotesStore:
    """Notes of one worktree, in a directory of their own. Used by one thread at a time."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self._cached: WorktreeNotes | None = None

    @property
    def scratch(self) -> pathlib.Path:
        """A path on the worktree's file system, for atomic moves into it."""
        return self.directory / "scratch"

    def read(self) -> WorktreeNotes:
        if self._cached is None:
            try:
                self._cached = NOTES_DECODER.decode((self.directory / "notes").read_bytes())
            except (FileNotFoundError, msgspec.DecodeError):
                self._cached = WorktreeNotes()
        return self._cached

    def write(self, notes: WorktreeNotes) -> None:
        if notes != self._cached:
            write_bytes(self.directory / "notes", msgspec.msgpack.encode(notes))
        self._cached = notes

    def manifest(self, capture: Commit) -> set[bytes]:
        """Return the ignored files present at that capture; empty if unknown."""
        try:
            return set(zlib.decompress((self.directory / "ignored" / capture).read_bytes()).split(b"\0")) - {b""}
        except (FileNotFoundError, zlib.error):
            return set()

    def write_manifest(self, capture: Commit, ignored: set[bytes]) -> None:
        write_bytes(self.directory / "ignored" / capture, zlib.compress(b"\0".join(sorted(ignored)), 1))


def write_bytes(file: pathlib.Path, data: bytes) -> None:
    """Write a file atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    partial.write_bytes(data)
    partial.replace(file)


def file_signature(file: pathlib.Path) -> FileSignature | None:
    try:
        return stat_signature(file.lstat())
    except FileNotFoundError:
        return None
