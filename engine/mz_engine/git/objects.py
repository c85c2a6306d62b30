"""Read and write git objects: tree listings, files, and captures (each written by one `git fast-import`)."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import select
import stat
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import IO

from mz_events.names import Commit, Path

from mz_engine.git.content import EXECUTABLE, FILE, LINK, SUBMODULE, TreeEntry, TreeListing, display_path
from mz_engine.git.process import TIMEOUT_SECONDS, Git, file_error, git_error
from mz_engine.path_patterns import IgnoreRules
from mz_engine.ports import RepositoryUnusable

CACHED_LISTINGS_MAX = 8
"""Listings kept in memory; one of 10 000 files takes about 3 MB."""
CACHED_DIRECTORIES_MAX = 4096
BATCH_NAMES_MAX, BATCH_BYTES_MAX = 60, 16_000_000
"""So many names fit into the smallest pipe; files read at once, but for the last one."""
DIRECTORY = 0o040000
DirectoryEntries = tuple[tuple[bytes, TreeEntry], ...]

IgnoreFiles = tuple[tuple[bytes, str], ...]
"""Directory and object id of each `.gitignore`."""


class RefMovedError(RepositoryUnusable):
    """A concurrent change during a capture: a file or a ref moved. A retry may help."""


class ObjectStore:
    """The object store of one repository. Thread-safe; objects never change, so results are cached."""

    def __init__(self, git: Git) -> None:
        self._git, self._object_format = git, git.repository.object_format
        self._reader = ObjectReader(git)
        self._id_bytes = hashlib.new(self._object_format).digest_size
        self._directory: Callable[[str], DirectoryEntries] = lru_cache(CACHED_DIRECTORIES_MAX)(self._read_directory)
        self.listing: Callable[[str], TreeListing] = lru_cache(CACHED_LISTINGS_MAX)(self._read_listing)
        self._rules: Callable[[IgnoreFiles], IgnoreRules] = lru_cache(CACHED_LISTINGS_MAX)(self._read_rules)

    def _read_listing(self, commit: str) -> TreeListing:
        """List a commit's tree. Raises RepositoryUnusable if the commit does not exist."""
        listing: dict[bytes, TreeEntry] = {}
        directories = [(b"", f"{commit}^{{tree}}")]
        while directories:
            prefix, name = directories.pop()
            for path, entry in self._directory(name):
                if entry.mode == DIRECTORY:
                    directories.append((prefix + path + b"/", entry.oid))
                else:
                    listing[prefix + path] = entry
        return dict(sorted(listing.items()))

    def _read_directory(self, name: str) -> DirectoryEntries:
        """Return the entries of a tree object: `MODE NAME`, a zero byte and the binary id, without separators."""
        data, entries, offset = self._reader.read(name, b"tree"), [], 0
        while offset < len(data):
            end = data.index(b"\0", offset)
            mode, _, path = data[offset:end].partition(b" ")
            offset = end + 1 + self._id_bytes
            entries.append((path, TreeEntry(canonical_mode(int(mode, 8)), data[end + 1 : offset].hex())))
        return tuple(entries)

    def ignore_rules(self, commit: str) -> IgnoreRules:
        """Return the ignore rules in the commit's tree, without linked `.gitignore` files, as in git."""
        files = (
            (path.rpartition(b"/")[0], entry.oid)
            for path, entry in self.listing(commit).items()
            if path.rpartition(b"/")[2] == b".gitignore" and entry.mode in (FILE, EXECUTABLE)
        )
        return self._rules(tuple(files))

    def _read_rules(self, files: IgnoreFiles) -> IgnoreRules:
        return IgnoreRules({directory: self.blob(oid) for directory, oid in files})

    def blob(self, oid: str) -> bytes:
        """Return the bytes of a file. Raises RepositoryUnusable."""
        return self._reader.read(oid, b"blob")

    def read(self, tree: Commit, path: Path) -> bytes | None:
        """Return a file's bytes or a link's target; None for anything else. Raises RepositoryUnusable if git has lost
        it: a file that cannot be read must not pass for one that is absent."""
        entry = self.listing(tree).get(os.fsencode(path))
        return None if entry is None or entry.mode == SUBMODULE else self.blob(entry.oid)

    def blobs(self, oids: Sequence[str]) -> Iterator[bytes]:
        """Yield the bytes of many files. Raises RepositoryUnusable."""
        while oids:
            batch = self._reader.read_many(oids[:BATCH_NAMES_MAX])
            yield from batch or (self.blob(oids[0]),)  # It fails with git's own reason.
            oids = oids[max(len(batch), 1) :]

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
            for report in self._git.directory.glob("fast_import_crash_*"):
                if f" {ref}\n".encode() in report.read_bytes():
                    report.unlink(missing_ok=True)
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
                if blob_id(self._object_format, len(data), (data,)) != oid:
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
            raise file_error("git-failed", f"{self._git.directory} cannot be written", error) from error


class ObjectReader:
    """Reads objects through one `git cat-file --batch`, which ends with the reader or its process. Thread-safe."""

    def __init__(self, git: Git) -> None:
        self._git, self._lock = git, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, name: str, kind: bytes) -> bytes:
        """Return an object of that type. Raises RepositoryUnusable, also if git does not have it."""
        with self._lock:
            replies = self._query((name,)) or self._query((name,))  # Once more if the process has ended meanwhile.
        if not replies:
            return self._git.run("cat-file", kind.decode(), name).stdout  # It fails with git's own reason.
        if replies[0][0] != kind:
            raise RepositoryUnusable("git-failed", f"git has lost the {kind.decode()} {name}")
        return replies[0][1]

    def read_many(self, oids: Sequence[str]) -> list[bytes]:
        """Return the first of these blobs, up to the first that fails; about BATCH_BYTES_MAX at most."""
        with self._lock:
            replies = self._query(oids)
        return [data for _, data in itertools.takewhile(lambda reply: reply[0] == b"blob", replies)]

    def _query(self, names: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """Return type and bytes of the first of these objects, any other word in place of the type of a missing one;
        nothing if git has ended. All names are sent before the first reply is read."""
        if self._process is None:
            self._process = self._git.start("cat-file", "--batch")
            weakref.finalize(self, end_process, self._process)
        process, replies, bytes_left = self._process, list[tuple[bytes, bytes]](), BATCH_BYTES_MAX
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write("".join(f"{name}\n" for name in names).encode())
            process.stdin.flush()
            if not select.select([process.stdout], [], [], TIMEOUT_SECONDS)[0]:
                raise RepositoryUnusable("git-timeout", f"`git cat-file` did not answer in {TIMEOUT_SECONDS:.0f} s")
            while len(replies) < len(names) and bytes_left > 0:
                _, kind, *size = process.stdout.readline().split()
                data = process.stdout.read(int(size[0]) + 1) if size else b"\n"
                if size and len(data) != int(size[0]) + 1:
                    break
                replies.append((kind, data[:-1]))
                bytes_left -= len(data)
        except (BrokenPipeError, ValueError):
            pass  # It has ended.
        except BaseException:
            self._end()
            raise
        if len(replies) < len(names):
            self._end()
        return replies

    def _end(self) -> None:
        """End a process with which the dialogue is broken."""
        if self._process is not None:
            end_process(self._process)
        self._process = None


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End `git cat-file`, which holds nothing that can be lost."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):
            if pipe is not None:
                pipe.close()
    process.wait()


def canonical_mode(mode: int) -> int:
    """Return the mode as git understands it: early versions of git wrote others, such as 100664."""
    if stat.S_ISREG(mode):
        return EXECUTABLE if mode & 0o100 else FILE
    return DIRECTORY if stat.S_ISDIR(mode) else LINK if stat.S_ISLNK(mode) else SUBMODULE


def blob_id(object_format: str, size: int, chunks: Iterable[bytes]) -> str:
    """Return git's id of a file with these bytes."""
    digest = hashlib.new(object_format, b"blob %d\0" % size, usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def quote_path(path: bytes) -> bytes:
    return b'"%s"' % path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
