"""git objects in memory, under git's own ids: read from a bundle by git, written by applying patches.

What cannot be done here exactly as git does it raises NotInMemory: then the cassette is replayed for real.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from mz_engine.git.content import EXECUTABLE, FILE, LINK, TreeEntry, is_valid_tree_name
from mz_engine.git.objects import DIRECTORY, format_tree, parse_tree
from mz_engine.git.process import Git, Repository
from mz_engine.git.workspace import MergedTree, merge_trees
from mz_engine.ports import RepositoryUnusable
from mz_events.names import Commit

from mz_recordings.cassette.repository import fetch_bundle

Edits = Mapping[bytes, TreeEntry | None]
"""New entries by path; None: the path is removed."""
OBJECT_BYTES_MAX = 50_000_000
PATHS_MAX, DEPTH_MAX = 500_000, 200
"""Paths of a tree, and the depth of its directories."""
COMMIT = re.compile(rb"tree ([0-9a-f]+)\n((?:parent [0-9a-f]+\n)*)author [^\n]+\ncommitter [^\n]+\n")
IDENTITY = b"mz <mz@localhost> 0 +0000"
BINARY_PROBE = 8000
"""git takes a file with a zero byte among the first of this many for a binary one."""
HARMLESS = re.compile(r"[-!]?(linguist-[\w-]+|export-ignore|export-subst|merge|whitespace)(=\S*)?|[-!](text|crlf)")
LINE_ENDS = re.compile(r"text(=auto)?|eol=lf")
"""Attributes that change nothing as long as no file has a carriage return."""
DIFFS = re.compile(r"[-!]?(diff|binary)(=\S*)?")
"""Attributes that change which lines git counts."""


class NotInMemory(Exception):
    """Only a real replay can do this exactly. The message says why, as a clause."""


class MemoryObjects:
    """Blobs, trees and commits of one repository. Objects never change."""

    def __init__(self, object_format: str = "sha1") -> None:
        self.object_format, self._id_bytes = object_format, hashlib.new(object_format).digest_size
        self.objects: dict[str, tuple[bytes, bytes]] = {}
        """Type and content by id."""
        self._entries: dict[str, dict[bytes, TreeEntry]] = {}
        self.line_counts: dict[tuple[str, str], tuple[int, int]] = {}
        """Added and deleted lines between two blobs (zeros: no file), as applied patches told them."""
        self.has_diff_attributes = self.has_line_ends = False
        self.empty_tree = self.add(b"tree", b"")

    def copy(self) -> MemoryObjects:
        """Return a separate store with the same objects."""
        store = MemoryObjects(self.object_format)
        store.objects, store._entries = {**self.objects, **store.objects}, dict(self._entries)
        store.has_diff_attributes, store.has_line_ends = self.has_diff_attributes, self.has_line_ends
        return store

    def add(self, kind: bytes, data: bytes) -> str:
        """Add an object; return its id. Raises NotInMemory for a file whose line ends git would convert."""
        if self.has_line_ends and kind == b"blob" and has_carriage_return(data):
            raise NotInMemory("git attributes convert line ends")
        oid = hashlib.new(self.object_format, b"%s %d\0%s" % (kind, len(data), data), usedforsecurity=False).hexdigest()
        self.objects[oid] = kind, data
        return oid

    def get(self, oid: str, kind: bytes) -> bytes:
        """Return an object's content. Raises NotInMemory if there is none of that type."""
        found_kind, data = self.objects.get(oid, (b"", b""))
        if found_kind != kind:
            raise NotInMemory(f"its repository lacks the {kind.decode()} {oid}")
        return data

    # trees ------------------------------------------------------------------------------------------------------------
    def entries(self, tree: str) -> dict[bytes, TreeEntry]:
        """Return the entries of a tree by name. Raises NotInMemory for those whose files need more than their bytes."""
        entries = self._entries.get(tree)
        if entries is None:
            entries = self._entries[tree] = dict(parse_tree(self.get(tree, b"tree"), self._id_bytes))
            for name, entry in entries.items():
                check_tree_name(name, entry.mode)
        return entries

    def write_tree(self, entries: Mapping[bytes, TreeEntry]) -> str:
        """Add a tree; return its id."""
        tree = self.add(b"tree", format_tree(entries))
        self._entries[tree] = dict(entries)
        return tree

    def edit(self, tree: str, edits: Edits) -> str:
        """Return the tree with these paths changed. Raises NotInMemory where a file would also be a directory."""
        below: dict[bytes, dict[bytes, TreeEntry | None]] = {}
        entries = dict(self.entries(tree))
        for path, entry in edits.items():
            name, slash, below_name = path.partition(b"/")
            if slash:
                below.setdefault(name, {})[below_name] = entry
            elif entry is None:
                entries.pop(name, None)
            elif name in entries and entries[name].mode == DIRECTORY:
                raise NotInMemory(f"a file replaces the directory {os.fsdecode(path)}")
            else:
                entries[name] = entry
        for name, inner_edits in below.items():
            old = entries.get(name, TreeEntry(DIRECTORY, self.empty_tree))
            if old.mode != DIRECTORY:
                raise NotInMemory(f"a directory replaces the file {os.fsdecode(name)}")
            inner = self.edit(old.oid, inner_edits)
            if inner == self.empty_tree:
                entries.pop(name, None)
            else:
                entries[name] = TreeEntry(DIRECTORY, inner)
        return self.write_tree(entries)

    def find(self, tree: str, path: bytes) -> TreeEntry | None:
        """Return the entry of a file or link; None if there is none."""
        *directories, name = path.split(b"/")
        for directory in directories:
            entry = self.entries(tree).get(directory)
            if entry is None or entry.mode != DIRECTORY:
                return None
            tree = entry.oid
        entry = self.entries(tree).get(name)
        return None if entry is None or entry.mode == DIRECTORY else entry

    def files(self, tree: str, prefix: bytes = b"") -> Iterator[tuple[bytes, TreeEntry]]:
        """Yield all files and links of a tree. Raises NotInMemory for a tree that is too deep."""
        if prefix.count(b"/") > DEPTH_MAX:
            raise NotInMemory("its repository has too deep directories")
        for name, entry in self.entries(tree).items():
            if entry.mode == DIRECTORY:
                yield from self.files(entry.oid, prefix + name + b"/")
            else:
                yield prefix + name, entry

    def differences(
        self, old: str, new: str, prefix: bytes = b""
    ) -> Iterator[tuple[bytes, TreeEntry | None, TreeEntry | None]]:
        """Yield the files and links that differ; equal directories are not read."""
        if old == new:
            return
        before, after = self.entries(old), self.entries(new)
        for name in before.keys() | after.keys():
            left, right = before.get(name), after.get(name)
            if left == right:
                continue
            left_tree, right_tree = (
                entry.oid if entry and entry.mode == DIRECTORY else self.empty_tree for entry in (left, right)
            )
            yield from self.differences(left_tree, right_tree, prefix + name + b"/")
            left, right = (entry if entry and entry.mode != DIRECTORY else None for entry in (left, right))
            if left or right:
                yield prefix + name, left, right

    # commits ----------------------------------------------------------------------------------------------------------
    def commit(self, tree: str, parents: tuple[str, ...], message: bytes, identity: bytes = IDENTITY) -> str:
        """Add a commit; return its id."""
        lines = b"".join(b"parent %s\n" % parent.encode() for parent in parents)
        header = b"tree %s\n%sauthor %s\ncommitter %s\n\n" % (tree.encode(), lines, identity, identity)
        return self.add(b"commit", header + message)

    def tree_of(self, commit: str) -> str:
        """Return the id of a commit's tree. Raises NotInMemory."""
        return self._read_commit(commit)[1].decode()

    def parents(self, commit: str) -> tuple[str, ...]:
        return tuple(line.split()[1].decode() for line in self._read_commit(commit)[2].splitlines())

    def _read_commit(self, commit: str) -> re.Match[bytes]:
        if match := COMMIT.match(self.get(commit, b"commit")):
            return match
        raise NotInMemory(f"its repository has the unusual commit {commit}")

    def history(self, head: str) -> bytes:
        """Return tree and subject of each commit from `head` back along first parents, as `git log` prints `%T %s`."""
        lines: list[bytes] = []
        parents: tuple[str, ...] = (head,)
        while parents:
            message = self.get(parents[0], b"commit").partition(b"\n\n")[2]
            subject = b" ".join(message.partition(b"\n\n")[0].split(b"\n")).strip()
            lines.append(b"%s %s\n" % (self.tree_of(parents[0]).encode(), subject))
            parents = self.parents(parents[0])
        return b"".join(lines)

    def contains(self, head: str, commit: str) -> bool:
        """Return True if `commit` is `head` or one of its ancestors."""
        return commit in self._ancestors(head)

    def _ancestors(self, *heads: str) -> Iterator[str]:
        """Yield the commits and their ancestors, each once."""
        pending, visited = [*heads], set[str]()
        while pending:
            candidate = pending.pop()
            if candidate not in visited:
                yield candidate
                visited.add(candidate)
                pending += self.parents(candidate)

    def merge(self, ours: str, theirs: str, environment: Mapping[str, str]) -> MergedTree:
        """Let git merge two commits, in a folder with the objects that it needs: all commits and trees, and the files
        that differ in their history. Raises NotInMemory."""
        commits, tree = tuple(self._ancestors(ours, theirs)), self.tree_of(ours)
        changed = (files for commit in commits for files in self.differences(tree, self.tree_of(commit)))
        needed = {entry.oid for _, *entries in changed for entry in entries if entry}
        needed |= {*commits, *(oid for oid, (kind, _) in self.objects.items() if kind == b"tree")}
        with tempfile.TemporaryDirectory(prefix="mz-objects-") as name:
            repository = Repository(Path(name), Path(name), self.object_format, has_file_modes=True)
            self.write(needed, Path(name, "objects"))
            try:
                merged = merge_trees(Git(repository, environment), Commit(ours), Commit(theirs))
            except RepositoryUnusable as error:
                raise NotInMemory("git cannot merge two commits") from error
            for file in Path(name, "objects").glob("??/*"):
                if file.parent.name + file.name not in needed:
                    head, _, data = zlib.decompress(file.read_bytes()).partition(b"\0")
                    self.add(head.split()[0], data)
        return merged

    def write(self, oids: Iterable[str], folder: Path) -> None:
        """Write objects that are not there as files of a repository."""
        for oid in oids:
            (kind, data), file = self.objects[oid], folder / oid[:2] / oid[2:]
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(zlib.compress(b"%s %d\0%s" % (kind, len(data), data), 1))


def check_tree_name(name: bytes, mode: int) -> None:
    """Raise NotInMemory for a mode of submodules or of early versions of git, and for a name that git's checks reject,
    or whose file changes what git does."""
    if mode not in (FILE, EXECUTABLE, LINK, DIRECTORY):
        raise NotInMemory("its repository has a submodule, or a tree in an old form")
    if name in (b"", b".", b"..", b".gitmodules") or b"/" in name or not is_valid_tree_name(name, mode == LINK):
        raise NotInMemory(f"its repository has a file named {os.fsdecode(name)!r}")


def has_carriage_return(data: bytes) -> bool:
    return b"\r" in data and b"\0" not in data[:BINARY_PROBE]


def check_attributes(objects: MemoryObjects, tree: str) -> None:
    """Note the tree's git attributes. Raises NotInMemory if they change how git reads or writes files."""
    for number, (path, entry) in enumerate(objects.files(tree)):
        if number > PATHS_MAX:
            raise NotInMemory("its repository has too many files")
        if path.rpartition(b"/")[2] == b".gitattributes":
            lines = objects.get(entry.oid, b"blob").decode("utf-8", "replace").splitlines()
            for name in (name for line in lines if not line.lstrip().startswith("#") for name in line.split()[1:]):
                objects.has_diff_attributes |= DIFFS.fullmatch(name) is not None
                objects.has_line_ends |= LINE_ENDS.fullmatch(name) is not None
                if not (HARMLESS.fullmatch(name) or DIFFS.fullmatch(name) or LINE_ENDS.fullmatch(name)):
                    raise NotInMemory(f"its repository has the git attribute {name}")


def check_line_ends(objects: MemoryObjects) -> None:
    """Raise NotInMemory if attributes convert the line ends of a file."""
    blobs = (data for kind, data in objects.objects.values() if kind == b"blob")
    if objects.has_line_ends and any(map(has_carriage_return, blobs)):
        raise NotInMemory("git attributes convert line ends")


def read_folder(objects: MemoryObjects, folder: Path) -> str:
    """Add all files of a folder, except caches; return the id of their tree."""
    edits: dict[bytes, TreeEntry | None] = {}
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        if path.is_file() and "__pycache__" not in relative.parts:
            mode = EXECUTABLE if path.stat().st_mode & stat.S_IXUSR else FILE
            edits[os.fsencode(relative.as_posix())] = TreeEntry(mode, objects.add(b"blob", path.read_bytes()))
    return objects.edit(objects.empty_tree, edits)


# bundles --------------------------------------------------------------------------------------------------------------
def read_bundle(bundle: bytes, environment: Mapping[str, str]) -> tuple[MemoryObjects, dict[str, str]]:
    """Return the objects of a bundle, and its refs, as git reads and checks them. Raises NotInMemory."""
    with tempfile.TemporaryDirectory(prefix="mz-bundle-") as name:
        try:
            repository = fetch_bundle(bundle, Path(name, "objects.git"), environment, "refs/*:refs/*", "--bare")
            lines = repository("for-each-ref", "--format=%(objectname) %(refname)").splitlines()
            objects = MemoryObjects(repository("rev-parse", "--show-object-format"))
            for _, kind, data in repository.objects(OBJECT_BYTES_MAX):
                objects.add(kind.encode(), data)
        except (OSError, RepositoryUnusable) as error:
            raise NotInMemory("git cannot read its bundle") from error
    refs = {ref: oid for oid, ref in (line.split(" ", 1) for line in lines)}
    for oid in refs.values():
        check_attributes(objects, objects.tree_of(oid))
    check_line_ends(objects)
    return objects, refs


# patches --------------------------------------------------------------------------------------------------------------
INDEX = re.compile(rb"index ([0-9a-f]{40,64})\.\.([0-9a-f]{40,64})(?: (\d{6}))?\n")
MODE = re.compile(rb"(old|new|deleted file|new file) mode (\d{6})\n")
HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
LINE = re.compile(rb"[^\n]*\n|[^\n]+")
NO_NEWLINE = b"\\ "
ABSENT = re.compile("0+")


class PatchedFile(NamedTuple):
    """The change of one file in a patch."""

    path: bytes
    old: str
    new: str
    """Object ids; zeros: the file does not exist. Empty: only the mode changes."""
    mode: int | None
    """The new mode; None: unchanged."""
    body: list[bytes]


def apply_patch(objects: MemoryObjects, tree: str, patch: bytes) -> tuple[str, tuple[bytes, ...]]:
    """Apply a patch of `git diff --binary --full-index --no-renames`; return the new tree and the paths that it adds.

    Raises NotInMemory if it does not name the content that it changes, or does not apply to exactly that.
    """
    edits: dict[bytes, TreeEntry | None] = {}
    added: list[bytes] = []
    for file in parse_patch(patch):
        entry = objects.find(tree, file.path)
        old = entry.oid if entry is not None else ""
        is_new, is_deleted = bool(ABSENT.fullmatch(file.old)), bool(ABSENT.fullmatch(file.new))
        if (entry is None) != is_new or (file.old and not is_new and file.old != old) or file.path in edits:
            raise NotInMemory("a patch does not fit its tree")
        mode = file.mode or (entry.mode if entry is not None else FILE)
        for name in file.path.split(b"/"):
            check_tree_name(name, mode)
        if file.path.rpartition(b"/")[2] in (b".gitattributes", b".gitignore") or file.path.count(b"/") > DEPTH_MAX:
            raise NotInMemory("a patch changes what git reads or ignores")
        if is_new:
            added.append(file.path)
        if file.old:
            _apply_body(objects, file, b"" if is_new else objects.get(old, b"blob"), is_deleted)
        edits[file.path] = None if is_deleted else TreeEntry(mode, file.new or old)
    return objects.edit(tree, edits), tuple(added)


def parse_patch(patch: bytes) -> Iterator[PatchedFile]:
    """Yield the files of a patch. Raises NotInMemory."""
    lines, at = LINE.findall(patch), 0
    while at < len(lines):
        path = _path_of(lines[at])
        old = new = ""
        mode: int | None = None
        at += 1
        while at < len(lines) and not lines[at].startswith((b"diff --git ", b"@@ ", b"GIT binary patch\n")):
            if match := INDEX.fullmatch(lines[at]):
                old, new = match[1].decode(), match[2].decode()
            elif (match := MODE.fullmatch(lines[at])) and match[1] in (b"new", b"new file"):
                mode = int(match[2], 8)
            elif match is None and not lines[at].startswith((b"--- ", b"+++ ")):
                raise NotInMemory("a patch has an unknown form")
            at += 1
        if mode is not None and mode not in (FILE, EXECUTABLE, LINK):
            raise NotInMemory("a patch adds a submodule")
        start = at
        while at < len(lines) and not lines[at].startswith(b"diff --git "):
            at += 1
        yield PatchedFile(path, old, new, mode, lines[start:at])


def _path_of(line: bytes) -> bytes:
    """Return the path in a `diff --git` line, which names it twice."""
    names = line.removeprefix(b"diff --git ").rstrip(b"\n")
    half = (len(names) - 1) // 2
    first, second = names[:half], names[half + 1 :]
    quoted = first.startswith(b'"')
    first, second = (name[1:-1] if quoted else name for name in (first, second))
    if line == names or first[2:] != second[2:] or (first[:2], second[:2]) != (b"a/", b"b/"):
        raise NotInMemory("a patch has an unknown form")
    if not quoted:
        return first[2:]
    return ESCAPE.sub(
        lambda match: bytes([int(match[1], 8)]) if match[1].isdigit() else ESCAPES.get(match[1], match[1]), first[2:]
    )


def _apply_body(objects: MemoryObjects, file: PatchedFile, content: bytes, is_deleted: bool) -> None:
    """Add the new content of a file, and note its changed lines."""
    if file.body[:1] == [b"GIT binary patch\n"]:
        data, counts = _apply_binary(file.body), (0, 0)
    else:
        data, counts = _apply_hunks(file.body, content)
    is_wrong = bool(data) if is_deleted else bool(file.new) and objects.add(b"blob", data) != file.new
    if is_wrong:
        raise NotInMemory("a patch does not make the content that it names")
    if file.new:
        objects.line_counts[file.old, file.new] = counts


def _apply_hunks(body: list[bytes], content: bytes) -> tuple[bytes, tuple[int, int]]:
    """Return the new content, and the numbers of added and deleted lines."""
    old = LINE.findall(content)
    out: list[bytes] = []
    at, added, deleted, index = 0, 0, 0, 0
    while index < len(body):
        hunk = HUNK.match(body[index])
        if hunk is None:
            raise NotInMemory("a patch has an unknown form")
        start = int(hunk[1]) - (0 if hunk[2] == b"0" else 1)
        out += old[at:start]
        at, index = start, index + 1
        while index < len(body) and not body[index].startswith(b"@@ "):
            sign, line = body[index][:1], body[index][1:]
            index += 1
            if index < len(body) and body[index].startswith(NO_NEWLINE):
                line, index = line.removesuffix(b"\n"), index + 1
            if sign in (b" ", b"-"):
                if at >= len(old) or old[at] != line:
                    raise NotInMemory("a patch does not fit its tree")
                at += 1
            if sign in (b" ", b"+"):
                out.append(line)
            elif sign != b"-":
                raise NotInMemory("a patch has an unknown form")
            added, deleted = added + (sign == b"+"), deleted + (sign == b"-")
    return b"".join((*out, *old[at:])), (added, deleted)


def _apply_binary(body: list[bytes]) -> bytes:
    """Return the new content of a binary file: git's base 85 of a compressed literal."""
    if not body[1].startswith(b"literal "):
        raise NotInMemory("a binary patch names only what differs")
    packed = bytearray()
    try:
        for line in body[2:]:
            if line == b"\n":
                break
            length = line[0] - (64 if line[0] < 91 else 70)
            packed += base64.b85decode(line[1:].rstrip(b"\n"))[:length]
        data = zlib.decompressobj().decompress(packed, OBJECT_BYTES_MAX)
    except (ValueError, IndexError, zlib.error) as error:
        raise NotInMemory("a binary patch is damaged") from error
    return data


def count_lines(data: bytes) -> int:
    """Return the number of lines that git counts for a file that is added or deleted; 0 for a binary one."""
    return 0 if b"\0" in data[:BINARY_PROBE] else data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
