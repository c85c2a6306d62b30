"""Detect changes to refs, configuration and hooks that no feature may change, and keep the old values of refs."""

from __future__ import annotations

import hashlib
import pathlib
import re
import stat

from mz_engine.adapters.git_process import Git
from mz_engine.adapters.git_worktree import rescue_ref
from mz_engine.ports import FeatureWorktree, RefChange

IGNORED_REFS = ("refs/mz/", "refs/bisect/", "refs/worktree/", "refs/rewritten/")
"""Captures, and refs that are private to a worktree."""


def snapshot(git: Git, hooks: tuple[pathlib.Path, ...]) -> dict[str, str]:
    """Return every ref by its value; `config`, `config.worktree` and `hooks/<name>` by digest. Raises
    RepositoryUnusable."""
    lines = git.run("for-each-ref", "--format=%(objectname) %(refname)").stdout.decode("utf-8", "surrogateescape")
    refs = (line.split(" ", 1) for line in lines.splitlines())
    values = {display_ref(name): oid for oid, name in refs if not name.startswith(IGNORED_REFS)}
    for name in ("config", "config.worktree"):
        values |= _digests(name, git.directory / name)
    for directory in hooks:
        for file in sorted(directory.iterdir()) if directory.is_dir() else ():
            if file.suffix != ".sample":
                values |= _digests(f"hooks/{file.name}", file)
    return values


def display_ref(name: str) -> str:
    """Return a ref's name as events may hold it: bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _digests(name: str, file: pathlib.Path) -> dict[str, str]:
    """Digest content, executable bit and link target; for a link, content and bit are those of its target."""
    try:
        status = file.stat()
        link = str(file.readlink()) if file.is_symlink() else ""
    except OSError:
        return {}
    content = file.read_bytes() if stat.S_ISREG(status.st_mode) else b"special"
    executable_mark = "x" if status.st_mode & 0o111 else "-"
    return {display_ref(name): hashlib.sha256(f"{executable_mark}{link}\0".encode("utf-8", "surrogateescape") + content).hexdigest()}


def rescue(git: Git, worktree: FeatureWorktree, changes: tuple[RefChange, ...]) -> None:
    """Keep the old values of refs, except objects that no longer exist. Raises RepositoryUnusable."""
    refs = (change for change in changes if change.name.startswith("refs/"))
    old = [(change.name, change.old) for change in refs if re.fullmatch(r"[0-9a-f]{40,64}", change.old)]
    if not old:
        return
    oids = "".join(f"{oid}\n" for _, oid in old).encode()
    lines = git.run("cat-file", "--batch-check", stdin=oids).stdout.splitlines()
    existing = [pair for pair, line in zip(old, lines, strict=True) if not line.endswith(b" missing")]
    commands = "".join(f"update {rescue_ref(worktree, name, oid)} {oid}\n" for name, oid in existing)
    git.run("update-ref", "--stdin", stdin=commands.encode("utf-8", "surrogateescape"))
