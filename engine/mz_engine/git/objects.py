"""Read and write git objects: tree listings, files, and captures (each written by one `git fast-import`)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import IO

from mz_events.names import Commit, Path

from mz_engine.git.content import EXECUTABLE, FILE, SUBMODULE, TreeEntry, TreeListing, display_path
from mz_engine.git.process import Git, git_error
from mz_engine.path_patterns import IgnoreRules
from mz_engine.ports import RepositoryUnusable

CACHED_LISTINGS_MAX = 8
"""Listings kept in memory; one of 10 000 files takes about 3 MB."""

IgnoreFiles = tuple[tuple[bytes, str], ...]
"""Directory and object id of each `.gitignore`."""


class RefMovedError(RepositoryUnusable):
    """A concurrent change during a capture: a file or a ref moved. A retry may help."""


class ObjectStore:
    """The object store of one repository. Thread-safe; objects never change, so results are cached."""

    def __init__(self, git: Git, object_format: str) -> None:
        self._git = git
        self.object_format = object_format
        self.listing: Callable[[str], TreeListing] = lru_cache(CACHED_LISTINGS_MAX)(self._read_listing)
        self._rules: Callable[[IgnoreFiles], IgnoreRules] = lru_cache(CACHED_LISTINGS_MAX)(self._read_rules)

    def _read_listing(self, commit: str) -> TreeListing:
        """List a commit's tree. Raises RepositoryUnusable if the commit does not exist."""
        listing = {}
        for line in self._git.run("ls-tree", "-r", "-z", "--full-tree", commit).stdout.split(b"\0")[:-1]:
            head, _, path = line.partition(b"\t")
            mode, _, oid = head.split(b" ")
            listing[path] = TreeEntry(int(mode, 8), oid.decode())
        return listing

    def ignore_rules(self, commit: str) -> IgnoreRules:
        """Return the ignore rules in the commit's tree, without linked `.gitignore` files, as in git."""
        files = (
            (path.rpartition(b"/")[0], entry.oid)
            for path, entry in self.listing(commit).items()
            if path.rpartition(b"/")[2] == b".gitignore" and entry.mode in (FILE, EXECUTABLE)
        )
        return self._rules(tuple(files))

    def _read_rules(self, files: IgnoreFiles) -> IgnoreRules:
        texts = self.blobs([oid for _, oid in files])
        return IgnoreRules({directory: text for (directory, _), text in zip(files, texts, strict=True)})

    def blobs(self, oids: Sequence[str]) -> Iterator[bytes]:
        """Yield the bytes of these objects in order, with one file at a time in memory."""
        if not oids:
            return
        with self._scratch_file() as replies:
            self._git.run("cat-file", "--batch", stdin="\n".join([*oids, ""]).encode(), stdout=replies)
            replies.seek(0)
            for oid in oids:
                _, kind, *size = replies.readline().split()
                if kind != b"blob":
                    raise RepositoryUnusable("git-failed", f"git has lost the file with the id {oid}")
                yield replies.read(int(size[0]) + 1)[:-1]

    def read(self, tree: Commit, path: Path) -> bytes | None:
        """Return a file's bytes or a link's target; None for anything else. Raises RepositoryUnusable if git has lost
        it: a file that cannot be read must not pass for one that is absent."""
        entry = self.listing(tree).get(os.fsencode(path))
        if entry is None or entry.mode == SUBMODULE:
            return None
        return self._git.run("cat-file", "blob", entry.oid).stdout

    def changes(self, old: Commit, new: Commit) -> Iterator[tuple[bytes, TreeEntry | None, TreeEntry | None]]:
        """Yield differing paths with their old and new entries; None: absent. A rename is a deletion and an
        addition."""
        if old == new:
            return
        out = self._git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new).stdout
        fields = iter(out.split(b"\0")[:-1])
        for head, path in zip(fields, fields, strict=True):
            old_mode, new_mode, old_oid, new_oid, _ = head[1:].split(b" ")
            yield path, _parse_entry(old_mode, old_oid), _parse_entry(new_mode, new_oid)

    def write_capture(
        self, ref: str, content: TreeListing, readers: Mapping[bytes, Callable[[], bytes]], parents: tuple[str, ...]
    ) -> Commit:
        """Commit `content` durably and set `ref` to the commit. `parents[0]` is the current or first value of `ref`;
        `readers` read the files that git may not have. Raises RepositoryUnusable, RefMovedError."""
        with self._scratch_file() as commands:
            commands.writelines(self._import_commands(ref, content, readers, parents))
            commands.seek(0)
            result = self._git.run("fast-import", "--quiet", "--done", stdin=commands, check=False)
        if result.exit_code:
            self._remove_crash_reports(ref)
            if "Not updating" in result.stderr:
                raise RefMovedError("ref-moved", f"{ref} was moved by another process meanwhile")
            raise git_error("fast-import", result)
        return Commit(result.text)

    def _import_commands(
        self, ref: str, content: TreeListing, readers: Mapping[bytes, Callable[[], bytes]], parents: Sequence[str]
    ) -> Iterator[bytes]:
        """Yield the input of `git fast-import`: the files, then one commit as its difference from the first parent."""
        previous = self.listing(parents[0])
        changed = [path for path, entry in content.items() if previous.get(path) != entry]
        marks: dict[str, int] = {}
        for path in changed:
            oid = content[path].oid
            if path in readers and oid not in marks:
                data = readers[path]()
                if blob_id(self.object_format, len(data), (data,)) != oid:
                    raise RefMovedError("worktree-busy", f"{display_path(path)} changed while it was being captured")
                marks[oid] = len(marks) + 1
                yield b"# %s\nblob\nmark :%d\ndata %d\n" % (ref.encode(), marks[oid], len(data))
                yield data
                yield b"\n"
        last = len(marks) + 1
        yield f"commit {ref}\nmark :{last}\ncommitter mz <mz@localhost> {int(time.time())} +0000\n".encode()
        yield b"data 7\ncapture\n"
        yield "".join(
            f"{keyword} {parent}\n" for keyword, parent in zip(("from", "merge"), parents, strict=False)
        ).encode()
        yield from (b"D %s\n" % quote_path(path) for path in previous if path not in content)
        for path in changed:
            mode, oid = content[path]
            source = f":{marks[oid]}" if oid in marks else oid
            yield b"M %o %s %s\n" % (mode, source.encode(), quote_path(path))
        yield b"\nget-mark :%d\ndone\n" % last

    @contextlib.contextmanager
    def _scratch_file(self) -> Iterator[IO[bytes]]:
        """Open a file without a name on the repository's disk. Raises RepositoryUnusable."""
        try:
            with tempfile.TemporaryFile(dir=self._git.directory) as file:
                yield file
        except OSError as error:
            message = f"{self._git.directory} cannot be written: {error.strerror}"
            raise RepositoryUnusable("git-failed", message) from error

    def _remove_crash_reports(self, ref: str) -> None:
        """Remove the report of a `git fast-import` that failed."""
        for report in self._git.directory.glob("fast_import_crash_*"):
            if f" {ref}\n".encode() in report.read_bytes():
                report.unlink(missing_ok=True)


def blob_id(object_format: str, size: int, chunks: Iterable[bytes]) -> str:
    """Return git's id of a file with these bytes."""
    digest = hashlib.new(object_format, b"blob %d\0" % size, usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def quote_path(path: bytes) -> bytes:
    return b'"%s"' % path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


def _parse_entry(mode: bytes, oid: bytes) -> TreeEntry | None:
    return None if mode == b"000000" else TreeEntry(int(mode, 8), oid.decode())
