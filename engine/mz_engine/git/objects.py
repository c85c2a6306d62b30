"""Read and write git objects: tree listings, files, captures."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import pathlib
import stat
import struct
import tempfile
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from mz_events.names import Commit, Path

from mz_engine.git.content import EXECUTABLE, FILE, LINK, SUBMODULE, TreeEntry, TreeListing, display_path
from mz_engine.git.process import MZ, Git, Person, file_error
from mz_engine.path_patterns import IgnoreRules
from mz_engine.ports import RepositoryUnusable

CACHED_LISTINGS_MAX = 8
"""Listings kept in memory; one of 10 000 files takes about 3 MB."""
CACHED_DIRECTORIES_MAX = 4096
LOOSE_OBJECTS_MAX = 100
"""A capture of more objects is written as one pack: the default of git's `fastimport.unpackLimit`."""
PACK_KINDS = {b"commit": 1, b"tree": 2, b"blob": 3}
BATCH_NAMES_MAX, BATCH_BYTES_MAX = 60, 16_000_000
"""So many names fit into the smallest pipe; files read at once, but for the last one."""
DIRECTORY = 0o040000
NUMSTAT = ("-r", "-z", "--numstat", "--no-renames")
NO_ENTRY = TreeEntry(0, "")
DirectoryEntries = tuple[tuple[bytes, TreeEntry], ...]

IgnoreFiles = tuple[tuple[bytes, str], ...]
"""Directory and object id of each `.gitignore`."""


class RefMovedError(RepositoryUnusable):
    """A concurrent change during a capture: a file or a ref moved. A retry may help."""


class ObjectStore:
    """The object store of one repository. Thread-safe; objects never change, so results are cached."""

    def __init__(self, git: Git) -> None:
        self._git, self._object_format = git, git.repository.object_format
        self.repository = git.repository
        self._objects, self._reader = str(git.directory / "objects"), ObjectReader(git)
        self._differ, self._differ_lock = git.dialogue("diff-tree", "--stdin", *NUMSTAT), threading.Lock()
        self._id_bytes = hashlib.new(self._object_format).digest_size
        self._empty_tree = object_id(self._object_format, b"tree", 0, ())
        own = weakref.proxy(self)  # With a true reference, the processes would live until the garbage collector comes.
        self._directory: Callable[[str], DirectoryEntries] = lru_cache(CACHED_DIRECTORIES_MAX)(
            lambda name: own._read_directory(name)
        )
        self.listing: Callable[[str], TreeListing] = lru_cache(CACHED_LISTINGS_MAX)(
            lambda commit: own._read_listing(commit)
        )
        self._rules: Callable[[IgnoreFiles], IgnoreRules] = lru_cache(CACHED_LISTINGS_MAX)(
            lambda files: IgnoreRules({directory: own.blob(oid) for directory, oid in files})
        )

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
        data = self._reader.read(name, b"tree")
        return tuple(
            (path, entry._replace(mode=canonical_mode(entry.mode))) for path, entry in parse_tree(data, self._id_bytes)
        )

    def ignore_rules(self, commit: str) -> IgnoreRules:
        """Return the ignore rules in the commit's tree, without linked `.gitignore` files, as in git."""
        files = (
            (path.rpartition(b"/")[0], entry.oid)
            for path, entry in self.listing(commit).items()
            if path.rpartition(b"/")[2] == b".gitignore" and entry.mode in (FILE, EXECUTABLE)
        )
        return self._rules(tuple(files))

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

    def entries(self, files: Mapping[bytes, bytes]) -> dict[bytes, TreeEntry]:
        """Return the entries of files with these contents, which need not exist."""
        return {
            path: TreeEntry(FILE, object_id(self._object_format, b"blob", len(data), (data,)))
            for path, data in files.items()
        }

    def write_capture(
        self, content: TreeListing, readers: Mapping[bytes, Callable[[], bytes]], parents: tuple[str, ...]
    ) -> Commit:
        """Write a commit of `content` and all its objects durably; `readers` read the files that git may not have.
        Raises RepositoryUnusable, RefMovedError."""
        previous, trees = self.listing(parents[0]), dict[str, bytes]()
        changes = {path: content.get(path) for path in (*content, *previous) if content.get(path) != previous.get(path)}
        tree = self._change_tree(f"{parents[0]}^{{tree}}", changes, trees)
        files = {entry.oid: path for path, entry in changes.items() if entry and path in readers}
        blobs = ((oid, b"blob", self._read_file(path, oid, readers[path])) for oid, path in files.items())
        objects = itertools.chain(blobs, ((oid, b"tree", data) for oid, data in trees.items()))
        with self._explain_storage():
            if len(files) + len(trees) <= LOOSE_OBJECTS_MAX:
                for oid, kind, data in objects:
                    self._write_loose(oid, kind, data)
            else:
                self._write_pack(objects, len(files) + len(trees))
        return self._write_commit(tree, parents, b"capture", (MZ, MZ))

    def make_commit(self, tree: str, parents: tuple[str, ...], message: bytes, date: str = "") -> Commit:
        """Commit the content of `tree` (a commit or a tree) in the user's name, now or at a date as commits hold it,
        without moving a ref. Raises RepositoryUnusable."""
        text = message.replace(b"\0", b"").removesuffix(b"\n") + b"\n"  # Git refuses zero bytes.
        return self._write_commit(self._tree(tree), parents, text, self._git.people, date)

    def _write_commit(
        self, tree: str, parents: tuple[str, ...], message: bytes, people: Sequence[Person], date: str = ""
    ) -> Commit:
        author, committer = (f"{person} {date or time.strftime(f'{int(time.time())} %z')}" for person in people)
        lines = (f"tree {tree}", *(f"parent {oid}" for oid in parents), f"author {author}", f"committer {committer}")
        data = "\n".join((*lines, "\n")).encode() + message
        oid = object_id(self._object_format, b"commit", len(data), (data,))
        with self._explain_storage():
            self._write_loose(oid, b"commit", data)
        return Commit(oid)

    def line_counts(self, old: str, new: str) -> list[tuple[int, int]]:
        """Return the number of lines added and deleted in each file that differs between two commits; none in binary
        files. Raises RepositoryUnusable."""
        trees, counts = f"{self._tree(old)} {self._tree(new)}\n".encode(), b""
        try:
            with self._differ_lock:
                reply = self._differ.ask(trees + b"end\n")  # Git writes out all that it holds, then this line.
                while not counts.endswith((b"\0end\n", trees + b"end\n")):
                    if not (data := reply.read1(1 << 16)):
                        raise BrokenPipeError
                    counts += data
        except BrokenPipeError:
            self._differ.end()
            counts = self._git.run("diff-tree", *NUMSTAT, old, new).stdout  # It fails with git's own reason.
        rows = [row.split(b"\t", 2) for row in counts.removeprefix(trees).split(b"\0")[:-1]]
        return [(int(row[0]), int(row[1])) if row[0] != b"-" else (0, 0) for row in rows]

    def _tree(self, name: str) -> str:
        """Return the id of the tree of a commit or tree. Raises RepositoryUnusable."""
        data = self._reader.read(f"{name}^{{tree}}", b"tree")
        return object_id(self._object_format, b"tree", len(data), (data,))

    @contextlib.contextmanager
    def _explain_storage(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise file_error("git-failed", f"{self._git.directory} cannot be written", error) from error

    def _change_tree(self, name: str, changes: Mapping[bytes, TreeEntry | None], trees: dict[str, bytes]) -> str:
        """Return the id of a tree (empty: none) with these paths set or removed; what is new is added to `trees`."""
        before, below = dict(self._directory(name)) if name else {}, dict[bytes, dict[bytes, TreeEntry | None]]()
        entries = dict(before)
        for path, entry in changes.items():
            first, slash, remainder = path.partition(b"/")
            if slash:
                below.setdefault(first, {})[remainder] = entry
            elif entry:
                entries[first] = entry
            else:
                del entries[first]
        for first, inner in below.items():
            old = before.get(first, NO_ENTRY)
            new = self._change_tree(old.oid if old.mode == DIRECTORY else "", inner, trees)
            if new != self._empty_tree:
                entries[first] = TreeEntry(DIRECTORY, new)
            elif entries.get(first) == old:
                del entries[first]
        data = format_tree(entries)
        oid = object_id(self._object_format, b"tree", len(data), (data,))
        trees[oid] = data
        return oid

    def _read_file(self, path: bytes, oid: str, read: Callable[[], bytes]) -> bytes:
        data = read()
        if object_id(self._object_format, b"blob", len(data), (data,)) != oid:
            raise RefMovedError("worktree-busy", f"{display_path(path)} changed while it was being captured")
        return data

    def _write_loose(self, oid: str, kind: bytes, data: bytes) -> None:
        """Write an object as a file of its own, unless it is there. Source: gitrepository-layout(5)."""
        folder = f"{self._objects}/{oid[:2]}"
        if os.access(f"{folder}/{oid[2:]}", os.F_OK):
            return
        if not os.access(folder, os.F_OK):
            new = pathlib.Path(folder)
            new.mkdir(exist_ok=True)
            new.chmod(new.parent.stat().st_mode)  # In a repository of a group it is writable for the group.
        descriptor, temporary = tempfile.mkstemp(prefix="tmp_obj_", dir=folder)  # `git gc` removes what is left.
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(zlib.compress(b"%s %d\0%s" % (kind, len(data), data), 1))
            stream.flush()
            os.fsync(descriptor)
            os.fchmod(descriptor, 0o444)
        pathlib.Path(temporary).replace(f"{folder}/{oid[2:]}")

    def _write_pack(self, objects: Iterable[tuple[str, bytes, bytes]], count: int) -> None:
        """Write many objects as one pack. Source: gitformat-pack(5)."""
        with tempfile.TemporaryFile(dir=self._git.directory) as pack:
            digest = hashlib.new(self._object_format, usedforsecurity=False)

            def write(data: bytes) -> None:
                digest.update(data)
                pack.write(data)

            write(struct.pack(">4sLL", b"PACK", 2, count))
            for _, kind, data in objects:
                first, size = PACK_KINDS[kind] << 4 | len(data) & 15, len(data) >> 4
                while size:
                    write(bytes((first | 128,)))
                    first, size = size & 127, size >> 7
                write(bytes((first,)) + zlib.compress(data, 1))
            pack.write(digest.digest())
            pack.seek(0)
            self._git.run("index-pack", "--stdin", stdin=pack)


class ObjectReader:
    """Reads objects through one `git cat-file --batch`, which ends with the reader or its process. Thread-safe."""

    def __init__(self, git: Git) -> None:
        self._git, self._lock = git, threading.Lock()
        self._dialogue = git.dialogue("cat-file", "--batch")

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
        replies, bytes_left = list[tuple[bytes, bytes]](), BATCH_BYTES_MAX
        try:
            reply = self._dialogue.ask("".join(f"{name}\n" for name in names).encode())
            while len(replies) < len(names) and bytes_left > 0:
                _, kind, *size = reply.readline().split()
                data = reply.read(int(size[0]) + 1) if size else b"\n"
                if size and len(data) != int(size[0]) + 1:
                    break
                replies.append((kind, data[:-1]))
                bytes_left -= len(data)
        except (BrokenPipeError, ValueError):
            pass  # It has ended.
        except BaseException:
            self._dialogue.end()
            raise
        if len(replies) < len(names):
            self._dialogue.end()
        return replies


def parse_tree(data: bytes, id_bytes: int) -> Iterator[tuple[bytes, TreeEntry]]:
    """Yield the entries of a tree object: `MODE NAME`, a zero byte and the binary id, without separators."""
    offset = 0
    while offset < len(data):
        end = data.index(b"\0", offset)
        mode, _, name = data[offset:end].partition(b" ")
        offset = end + 1 + id_bytes
        yield name, TreeEntry(int(mode, 8), data[end + 1 : offset].hex())


def format_tree(entries: Mapping[bytes, TreeEntry]) -> bytes:
    """Return the tree object with these entries; a directory is sorted as if its name ended in a slash."""
    in_order = sorted(entries.items(), key=lambda item: item[0] + b"/" * (item[1].mode == DIRECTORY))
    return b"".join(b"%o %s\0%s" % (entry.mode, name, bytes.fromhex(entry.oid)) for name, entry in in_order)


def canonical_mode(mode: int) -> int:
    """Return the mode as git understands it: early versions of git wrote others, such as 100664."""
    if stat.S_ISREG(mode):
        return EXECUTABLE if mode & 0o100 else FILE
    return DIRECTORY if stat.S_ISDIR(mode) else LINK if stat.S_ISLNK(mode) else SUBMODULE


def object_id(object_format: str, kind: bytes, size: int, chunks: Iterable[bytes]) -> str:
    """Return git's id of an object with these bytes."""
    digest = hashlib.new(object_format, b"%s %d\0" % (kind, size), usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
