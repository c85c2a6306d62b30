"""Read and write git objects: tree listings, files, and captures (each written by one `git fast-import`)."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from mz_events.names import Commit, Path

from mz_engine.git.content import EXECUTABLE, FILE, TreeEntry, TreeListing, display_path
from mz_engine.git.process import Git, GitProcess, GitResult, git_error
from mz_engine.path_patterns import IgnoreRules
from mz_engine.ports import RepositoryUnusable

CACHED_LISTINGS_MAX = 8
"""Listings kept in memory; one of 10 000 files takes about 3 MB."""
EMPTY_CRASH_REPORT = b"-\n\nActive Branch"
"""In a crash report of a `git fast-import` that read nothing, which is useless."""
BATCH_SIZE = 64
"""Requests written before their replies are read: few enough for the buffer of a pipe."""

K = TypeVar("K")
T = TypeVar("T")


class RefMovedError(RepositoryUnusable):
    """A concurrent change during a capture: a file or a ref moved. A retry may help."""


class ObjectStore:
    """The object store of one repository. Thread-safe; objects never change, so results are cached."""

    def __init__(self, git: Git, object_format: str) -> None:
        self._git = git
        self._format = object_format
        self._listings: OrderedDict[str, TreeListing] = OrderedDict()
        self._ignore_rules: OrderedDict[tuple[tuple[bytes, str], ...], IgnoreRules] = OrderedDict()
        self._lock = threading.Lock()

    def hasher(self, size: int) -> BlobHasher:
        """Return a hasher for the id of a file of `size` bytes."""
        return BlobHasher(self._format, size)

    def listing(self, commit: str) -> TreeListing:
        """List a commit's tree. Raises RepositoryUnusable if the commit does not exist."""
        return self._cached(self._listings, commit, lambda: self._read_listing(commit))

    def ignore_rules(self, commit: str) -> IgnoreRules:
        """Return the ignore rules in the commit's tree, without linked `.gitignore` files, as in git."""
        files = tuple(
            (path, entry.oid)
            for path, entry in self.listing(commit).items()
            if path.endswith(b".gitignore") and path[-11:-10] in (b"", b"/") and entry.mode in (FILE, EXECUTABLE)
        )
        return self._cached(self._ignore_rules, files, lambda: self._read_rules(files))

    def blobs(self, oids: Sequence[str]) -> Iterator[bytes]:
        """Yield the bytes of these objects in order, from one process and with one file at a time in memory."""
        if not oids:
            return
        with self._git.open_process("cat-file", "--batch") as process:
            for first in range(0, len(oids), BATCH_SIZE):
                batch = oids[first : first + BATCH_SIZE]
                request_objects(process, *batch)
                for oid in batch:
                    data = read_object(process)
                    if data is None:
                        raise RepositoryUnusable("git-failed", f"git has lost the file with the id {oid}")
                    yield data

    def read(self, tree: Commit, path: Path) -> bytes | None:
        """Return a file's bytes or a link's target; None for anything else."""
        with self._git.open_process("cat-file", "--batch") as process:
            request_objects(process, f"{tree}:{path}")
            return read_object(process)

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
        `fresh` reads the files that git may not have. Raises RepositoryUnusable, RefMovedError."""
        previous = self.listing(parents[0])
        crash_report = None
        try:
            with self._git.open_process("fast-import", "--quiet", "--done") as process:
                crash_report = self._git.directory / f"fast_import_crash_{process.pid}"
                out = b""
                with contextlib.suppress(BrokenPipeError):
                    for part in self._import_commands(ref, previous, content, readers, parents):
                        process.stdin_pipe.write(part)
                    process.stdin_pipe.close()
                    out = process.stdout_pipe.read()
        finally:
            if crash_report:
                crash_report.unlink(missing_ok=True)
        result = GitResult(process.returncode, out, process.read_stderr())
        if result.exit_code and "Not updating" in result.stderr:
            raise RefMovedError("ref-moved", f"{ref} was moved by another process meanwhile")
        if result.exit_code or not result.text:
            raise git_error(("fast-import",), result)
        commit = Commit(result.text)
        self._cached(self._listings, commit, lambda: content)
        return commit

    def _import_commands(
        self,
        ref: str,
        previous: TreeListing,
        content: TreeListing,
        readers: Mapping[bytes, Callable[[], bytes]],
        parents: Sequence[str],
    ) -> Iterator[bytes]:
        """Yield the input of `git fast-import`: the files, then one commit as its difference from the first parent."""
        changed = [path for path, entry in content.items() if previous.get(path) != entry]
        marks: dict[str, int] = {}
        for path in changed:
            oid = content[path].oid
            if path in readers and oid not in marks:
                data = readers[path]()
                if self.hasher(len(data)).hash_bytes(data) != oid:
                    raise RefMovedError("worktree-busy", f"{display_path(path)} changed while it was being captured")
                marks[oid] = len(marks) + 1
                yield f"# {ref}\n".encode()
                yield b"blob\nmark :%d\ndata %d\n" % (marks[oid], len(data))
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

    def remove_crash_reports(self) -> None:
        """Remove crash reports of `git fast-import` processes that were killed during a capture."""
        for report in self._git.directory.glob("fast_import_crash_*"):
            with contextlib.suppress(OSError):
                text = report.read_bytes()
                if b" refs/mz/" in text or EMPTY_CRASH_REPORT in text:
                    report.unlink()

    def _read_listing(self, commit: str) -> TreeListing:
        listing = {}
        for line in self._git.run("ls-tree", "-r", "-z", "--full-tree", commit).stdout.split(b"\0")[:-1]:
            head, _, path = line.partition(b"\t")
            mode, _, oid = head.split(b" ")
            listing[path] = TreeEntry(int(mode, 8), oid.decode())
        return listing

    def _read_rules(self, files: tuple[tuple[bytes, str], ...]) -> IgnoreRules:
        texts = self.blobs([oid for _, oid in files])
        return IgnoreRules({path[:-11]: text for (path, _), text in zip(files, texts, strict=True)})

    def _cached(self, store: OrderedDict[K, T], key: K, make: Callable[[], T]) -> T:
        with self._lock:
            if key in store:
                store.move_to_end(key)
                return store[key]
        value = make()
        with self._lock:
            store[key] = value
            while len(store) > CACHED_LISTINGS_MAX:
                store.popitem(last=False)
        return value


class BlobHasher:
    """Incremental git blob id."""

    def __init__(self, object_format: str, size: int) -> None:
        self._hash = hashlib.new(object_format, b"blob %d\0" % size, usedforsecurity=False)

    def feed(self, data: bytes) -> None:
        self._hash.update(data)

    def oid(self) -> str:
        return self._hash.hexdigest()

    def hash_bytes(self, data: bytes) -> str:
        self.feed(data)
        return self.oid()


def request_objects(process: GitProcess, *names: str) -> None:
    process.stdin_pipe.write("".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape"))
    process.stdin_pipe.flush()


def read_object(process: GitProcess) -> bytes | None:
    """Read the next reply of `cat-file --batch`; None if the object is missing or no blob. Raises
    RepositoryUnusable."""
    head = process.stdout_pipe.readline()
    fields = head.split()
    if not head.endswith(b"\n"):
        raise RepositoryUnusable("git-failed", f"`git cat-file` failed: {process.read_stderr()}")
    if len(fields) != 3 or not fields[2].isdigit():
        return None
    size = int(fields[2]) + 1
    data = process.stdout_pipe.read(size)
    if len(data) != size:
        raise RepositoryUnusable("git-failed", f"`git cat-file` ended early: {process.read_stderr()}")
    return data[:-1] if fields[1] == b"blob" else None


def quote_path(path: bytes) -> bytes:
    return b'"%s"' % path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


def _parse_entry(mode: bytes, oid: bytes) -> TreeEntry | None:
    return None if mode == b"000000" else TreeEntry(int(mode, 8), oid.decode())
