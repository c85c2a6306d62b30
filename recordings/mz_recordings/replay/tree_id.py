"""git's tree id of a directory, computed from the files.

Uses no filter, index or new object, so it leaves no trace. Standard library only: the stand-in starts with it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

NO_MODULES: Mapping[bytes, str] = MappingProxyType({})


def tree_id(paths: Iterable[bytes], algorithm: str = "sha1", modules: Mapping[bytes, str] = NO_MODULES) -> str:
    """Return the id of the tree with these files and links, relative to the working directory. Missing paths,
    directories and paths behind a link are left out.

    `algorithm`: the repository's object format, sha1 or sha256. `modules`: commits of submodules by path, included if
    their directory exists.
    """
    root: dict[bytes, Any] = {}
    links: dict[bytes, bool] = {}
    for path in set(paths):
        mode = _mode_of(path)
        if mode is None or _is_behind_link(path, links):
            continue
        if stat.S_ISDIR(mode):
            if path in modules:
                _add_path(root, path, modules[path])
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            _add_path(root, path, path)
    return _tree_id(root, algorithm).hex()


def _mode_of(path: bytes) -> int | None:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None


def _is_behind_link(path: bytes, links: dict[bytes, bool]) -> bool:
    """Return True if a directory of the path is a link, which git does not follow."""
    folder = path.rpartition(b"/")[0]
    if not folder:
        return False
    if folder not in links:
        links[folder] = stat.S_ISLNK(_mode_of(folder) or 0) or _is_behind_link(folder, links)
    return links[folder]


def _add_path(root: dict[bytes, Any], path: bytes, content: bytes | str) -> None:
    *folders, name = path.split(b"/")
    for folder in folders:
        root = root.setdefault(folder, {})
    root[name] = content


def _tree_id(folder: dict[bytes, Any], algorithm: str) -> bytes:
    entries = []
    for name, content in folder.items():
        if isinstance(content, dict):
            # git sorts a directory as if its name ended in a slash, but not a submodule.
            entries.append((name + b"/", b"40000 " + name, _tree_id(content, algorithm)))
        elif isinstance(content, str):
            entries.append((name, b"160000 " + name, bytes.fromhex(content)))
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
