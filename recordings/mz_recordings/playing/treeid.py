"""Adapter: git's id of a directory's content, computed from the bytes as they lie there.

No filter, no index and no new object, so that looking leaves nothing behind. Standard library only: the stand-in
starts with it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def tree_of(paths: Iterable[bytes], algorithm: str = "sha1") -> str:
    """The tree that holds these files and links, relative to the working directory; what is not there is left out.

    `algorithm` is the repository's object format, sha1 or sha256.
    """
    root: dict[bytes, Any] = {}
    for path in set(paths):
        if not os.path.lexists(path):
            continue
        *folders, name = path.split(b"/")
        folder = root
        for each in folders:
            folder = folder.setdefault(each, {})
        folder[name] = path
    return _tree_id(root, algorithm).hex()


def _tree_id(folder: dict[bytes, Any], algorithm: str) -> bytes:
    entries = []
    for name, content in folder.items():
        if isinstance(content, dict):
            # git sorts a directory as if its name ended in a slash.
            entries.append((name + b"/", b"40000 " + name, _tree_id(content, algorithm)))
        else:
            mode, data = _file(Path(os.fsdecode(content)))
            entries.append((name, mode + name, _object_id(b"blob", data, algorithm)))
    listing = b"".join(entry + b"\0" + oid for _, entry, oid in sorted(entries))
    return _object_id(b"tree", listing, algorithm)


def _file(path: Path) -> tuple[bytes, bytes]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return b"120000 ", os.fsencode(path.readlink())
    return (b"100755 " if mode & stat.S_IXUSR else b"100644 "), path.read_bytes()


def _object_id(kind: bytes, data: bytes, algorithm: str) -> bytes:
    return hashlib.new(algorithm, b"%s %d\0" % (kind, len(data)) + data).digest()
