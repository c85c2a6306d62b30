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

from mz_engine.adapters.git_facts import EXECUTABLE, FILE, Entry, Listing
from mz_engine.adapters.git_ignore import Rules
from mz_engine.adapters.git_paths import shown
from mz_engine.adapters.git_process import Done, Git, Process, failed
from mz_engine.ports import RepositoryUnusable

REMEMBERED = 8
"""Listings kept in memory; one of 10 000 files takes about 3 MB."""
NO_COMMANDS = b"-\n\nActive Branch"
"""In a crash report of a `git fast-import` that read nothing, which is useless."""
AT_ONCE = 64
"""Requests written before their replies are read: few enough for the buffer of a pipe."""

K = TypeVar("K")
T = TypeVar("T")


class Restless(RepositoryUnusable):
    """A concurrent change during a capture: a file or a ref moved. A retry may help."""


class Objects:
    """The object store of one repository. Thread-safe; objects never change, so results are cached."""

    def __init__(self, git: Git, object_format: str) -> None:
        self._git = git
        self._format = object_format
        self._listings: OrderedDict[str, Listing] = OrderedDict()
        self._rules: OrderedDict[tuple[tuple[bytes, str], ...], Rules] = OrderedDict()
        self._lock = threading.Lock()

    def hasher(self, size: int) -> Hasher:
        """Return a hasher for the id of a file of `size` bytes."""
        return Hasher(self._format, size)

    def listing(self, commit: str) -> Listing:
        """List a commit's tree. Raises RepositoryUnusable if the commit does not exist."""
        return self._remembered(self._listings, commit, lambda: self._list(commit))

    def rules(self, commit: str) -> Rules:
        """Return the ignore rules in the commit's tree, without linked `.gitignore` files, as in git."""
        files = tuple(
            (path, entry.oid)
            for path, entry in self.listing(commit).items()
            if path.endswith(b".gitignore") and path[-11:-10] in (b"", b"/") and entry.mode in (FILE, EXECUTABLE)
        )
        return self._remembered(self._rules, files, lambda: self._read_rules(files))

    def blobs(self, oids: Sequence[str]) -> Iterator[bytes]:
        """Yield the bytes of these objects in order, from one process and with one file at a time in memory."""
        if not oids:
            return
        with self._git.talk("cat-file", "--batch") as process:
            for first in range(0, len(oids), AT_ONCE):
                some = oids[first : first + AT_ONCE]
                ask(process, *some)
                for oid in some:
                    data = answer(process)
                    if data is None:
                        raise RepositoryUnusable("git-failed", f"git has lost the file with the id {oid}")
                    yield data

    def read(self, tree: Commit, path: Path) -> bytes | None:
        """Return a file's bytes or a link's target; None for anything else."""
        with self._git.talk("cat-file", "--batch") as process:
            ask(process, f"{tree}:{path}")
            return answer(process)

    def changes(self, old: Commit, new: Commit) -> Iterator[tuple[bytes, Entry | None, Entry | None]]:
        """Yield differing paths with their old and new entries; None: absent. A rename is a deletion and an
        addition."""
        if old == new:
            return
        out = self._git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new).out
        fields = iter(out.split(b"\0")[:-1])
        for head, path in zip(fields, fields, strict=True):
            old_mode, new_mode, old_oid, new_oid, _ = head[1:].split(b" ")
            yield path, _entry(old_mode, old_oid), _entry(new_mode, new_oid)

    def record(
        self, ref: str, content: Listing, fresh: Mapping[bytes, Callable[[], bytes]], parents: tuple[str, ...]
    ) -> Commit:
        """Commit `content` durably and set `ref` to the commit. `parents[0]` is the current or first value of `ref`;
        `fresh` reads the files that git may not have. Raises RepositoryUnusable, RefMovedError."""
        before = self.listing(parents[0])
        crash_report = None
        try:
            with self._git.talk("fast-import", "--quiet", "--done") as process:
                crash_report = self._git.directory / f"fast_import_crash_{process.pid}"
                out = b""
                with contextlib.suppress(BrokenPipeError):
                    for part in self._stream(ref, before, content, fresh, parents):
                        process.into.write(part)
                    process.into.close()
                    out = process.out.read()
        finally:
            if crash_report:
                crash_report.unlink(missing_ok=True)
        done = Done(process.returncode, out, process.words())
        if done.code and "Not updating" in done.words:
            raise Restless("ref-moved", f"{ref} was moved by another process meanwhile")
        if done.code or not done.text:
            raise failed(("fast-import",), done)
        commit = Commit(done.text)
        self._remembered(self._listings, commit, lambda: content)
        return commit

    def _stream(
        self,
        ref: str,
        before: Listing,
        content: Listing,
        fresh: Mapping[bytes, Callable[[], bytes]],
        parents: Sequence[str],
    ) -> Iterator[bytes]:
        """Yield the input of `git fast-import`: the files, then one commit as its difference from the first parent."""
        changed = [path for path, entry in content.items() if before.get(path) != entry]
        marks: dict[str, int] = {}
        for path in changed:
            oid = content[path].oid
            if path in fresh and oid not in marks:
                data = fresh[path]()
                if self.hasher(len(data)).of(data) != oid:
                    raise Restless("worktree-busy", f"{shown(path)} changed while it was being captured")
                marks[oid] = len(marks) + 1
                yield f"# {ref}\n".encode()
                yield b"blob\nmark :%d\ndata %d\n" % (marks[oid], len(data))
                yield data
                yield b"\n"
        last = len(marks) + 1
        yield f"commit {ref}\nmark :{last}\ncommitter mz <mz@localhost> {int(time.time())} +0000\n".encode()
        yield b"data 7\ncapture\n"
        yield "".join(f"{word} {parent}\n" for word, parent in zip(("from", "merge"), parents, strict=False)).encode()
        yield from (b"D %s\n" % quoted(path) for path in before if path not in content)
        for path in changed:
            mode, oid = content[path]
            source = f":{marks[oid]}" if oid in marks else oid
            yield b"M %o %s %s\n" % (mode, source.encode(), quoted(path))
        yield b"\nget-mark :%d\ndone\n" % last

    def sweep(self) -> None:
        """Remove crash reports of `git fast-import` processes that were killed during a capture."""
        for report in self._git.directory.glob("fast_import_crash_*"):
            with contextlib.suppress(OSError):
                text = report.read_bytes()
                if b" refs/mz/" in text or NO_COMMANDS in text:
                    report.unlink()

    def _list(self, commit: str) -> Listing:
        found = {}
        for line in self._git.run("ls-tree", "-r", "-z", "--full-tree", commit).out.split(b"\0")[:-1]:
            head, _, path = line.partition(b"\t")
            mode, _, oid = head.split(b" ")
            found[path] = Entry(int(mode, 8), oid.decode())
        return found

    def _read_rules(self, files: tuple[tuple[bytes, str], ...]) -> Rules:
        texts = self.blobs([oid for _, oid in files])
        return Rules({path[:-11]: text for (path, _), text in zip(files, texts, strict=True)})

    def _remembered(self, store: OrderedDict[K, T], key: K, make: Callable[[], T]) -> T:
        with self._lock:
            if key in store:
                store.move_to_end(key)
                return store[key]
        made = make()
        with self._lock:
            store[key] = made
            while len(store) > REMEMBERED:
                store.popitem(last=False)
        return made


class Hasher:
    """Incremental git blob id."""

    def __init__(self, object_format: str, size: int) -> None:
        self._hash = hashlib.new(object_format, b"blob %d\0" % size, usedforsecurity=False)

    def feed(self, data: bytes) -> None:
        self._hash.update(data)

    def oid(self) -> str:
        return self._hash.hexdigest()

    def of(self, data: bytes) -> str:
        self.feed(data)
        return self.oid()


def ask(process: Process, *names: str) -> None:
    process.into.write("".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape"))
    process.into.flush()


def answer(process: Process) -> bytes | None:
    """Read the next reply of `cat-file --batch`; None if the object is missing or no blob. Raises
    RepositoryUnusable."""
    head = process.out.readline()
    fields = head.split()
    if not head.endswith(b"\n"):
        raise RepositoryUnusable("git-failed", f"`git cat-file` failed: {process.words()}")
    if len(fields) != 3 or not fields[2].isdigit():
        return None
    size = int(fields[2]) + 1
    data = process.out.read(size)
    if len(data) != size:
        raise RepositoryUnusable("git-failed", f"`git cat-file` ended early: {process.words()}")
    return data[:-1] if fields[1] == b"blob" else None


def quoted(path: bytes) -> bytes:
    return b'"%s"' % path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


def _entry(mode: bytes, oid: bytes) -> Entry | None:
    return None if mode == b"000000" else Entry(int(mode, 8), oid.decode())
