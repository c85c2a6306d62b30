"""Read refs from git's own files, as git reads them: the loose file first, then `packed-refs`.

Each git call costs a process, and a worktree's branch is read before and after nearly everything. Anything unusual
(another ref store, symbolic refs, links, damaged files) is left to git."""

from __future__ import annotations

import pathlib
import re
import stat

OBJECT_ID_LINE = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\n?")
HEAD_LINE = re.compile(rb"ref: (refs/[^\s\0]+)\n|([0-9a-f]{40}|[0-9a-f]{64})\n")
REFTABLE = "reftable"


class NeedsGit(Exception):
    """Git itself has to read the ref."""


def read_ref(directory: pathlib.Path, name: str) -> str | None:
    """Return the object id of a ref; None: it does not exist. Raises NeedsGit."""
    if (directory / REFTABLE).exists():
        raise NeedsGit
    loose = _read(directory / name)
    if loose is not None:
        match = OBJECT_ID_LINE.fullmatch(loose)
        if match is None:
            raise NeedsGit
        return match[1].decode()
    packed = _read(directory / "packed-refs") or b""
    line = re.search(rb"^([0-9a-f]{40,64}) " + re.escape(name.encode()) + rb"$", packed, re.MULTILINE)
    return line[1].decode() if line else None


def read_head(entry: pathlib.Path) -> str:
    """Return HEAD of a worktree's entry: the full name of a branch, or an object id. Raises NeedsGit."""
    match = HEAD_LINE.fullmatch(_read(entry / "HEAD") or b"")
    if match is None:
        raise NeedsGit
    return (match[1] or match[2]).decode()


def _read(file: pathlib.Path) -> bytes | None:
    """Return the file's content; None without a file, or for a directory, which holds other refs."""
    try:
        status = file.lstat()
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            raise NeedsGit
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NeedsGit from error
