"""Adapter: values of refs read from git's own files, as git reads them: the loose file first, then `packed-refs`.

Asking git takes a process each time, and a worktree's branch is looked at before and after nearly everything. Whatever
is not plain (another store of refs, symbolic refs, links, damaged files) is left to git.
"""

from __future__ import annotations

import pathlib
import re
import stat

OBJECT_ID = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\n?")
HEAD = re.compile(rb"ref: (refs/[^\s\0]+)\n|([0-9a-f]{40}|[0-9a-f]{64})\n")
REFTABLE = "reftable"


class AskGit(Exception):
    """Only git can tell."""


def read_ref(directory: pathlib.Path, name: str) -> str | None:
    """The object that a ref of the repository names; None: there is no such ref. Raises AskGit."""
    if (directory / REFTABLE).exists():
        raise AskGit
    loose = _read(directory / name)
    if loose is not None:
        found = OBJECT_ID.fullmatch(loose)
        if found is None:
            raise AskGit
        return found[1].decode()
    packed = _read(directory / "packed-refs") or b""
    line = re.search(rb"^([0-9a-f]{40,64}) " + re.escape(name.encode()) + rb"$", packed, re.MULTILINE)
    return line[1].decode() if line else None


def read_head(entry: pathlib.Path) -> str:
    """What HEAD of a worktree's entry is: the full name of a branch, or an object. Raises AskGit."""
    found = HEAD.fullmatch(_read(entry / "HEAD") or b"")
    if found is None:
        raise AskGit
    return (found[1] or found[2]).decode()


def _read(file: pathlib.Path) -> bytes | None:
    """None where there is no such file; a directory of that name holds other refs."""
    try:
        status = file.lstat()
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            raise AskGit
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise AskGit from error
