"""Adapter: the checks of `mz doctor` that concern the machine."""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path

from mz_engine.adapters.git_process import start, theirs
from mz_engine.agents import guard
from mz_engine.agents.supervise import best_level
from mz_engine.check import Check

PYTHON_MIN = (3, 11)
GIT_MIN, GIT_MERGES = (2, 30), (2, 38)
"""What everything needs, and what merging branches needs."""
SQLITE_MIN = (3, 24)
"""Upserts."""
SQLITE_MENDED = (3, 51, 3)
"""Before it, two connections that write and checkpoint at one moment can damage a file in WAL mode."""
FREE_BYTES_MIN, FREE_BYTES_GOOD = 200 * 10**6, 2 * 10**9

NAMESPACES = {
    guard.NAMESPACE: "agents run in PID and mount namespaces of their own",
    guard.USER_NAMESPACE: "agents run in PID and mount namespaces of their own, inside a user namespace",
}
LEVELS = {
    guard.SUBREAPER: "what an agent starts is ended with it, by its tree of processes",
    guard.MARKER: "what an agent starts is ended with it, by a mark in its environment",
}
NO_FENCE = "without mount namespaces your checkout is not write-protected; refs, configuration and hooks are compared"
HOW_TO_FENCE = "allow unprivileged user namespaces (`sysctl kernel.unprivileged_userns_clone=1`), or run mz as root"


def python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < PYTHON_MIN:
        return Check.fail("python", version, f"install Python {dotted(PYTHON_MIN)} or newer")
    return Check.ok("python", f"{version}, {sys.executable}")


def git(place: Path, environment: Mapping[str, str]) -> Check:
    """Raises RepositoryUnusable where there is no git."""
    said = _git(place, environment, "version")
    found = re.search(r"(\d+)\.(\d+)[.\w]*", said)
    if found is None:
        return Check.fail("git", f"`git version` says {said[:80]!r}", f"install git {dotted(GIT_MIN)} or newer")
    version = int(found[1]), int(found[2])
    if version < GIT_MIN:
        return Check.fail("git", found[0], f"mz needs git {dotted(GIT_MIN)} or newer: update git")
    if version < GIT_MERGES:
        return Check.warn("git", found[0], f"merging branches needs git {dotted(GIT_MERGES)} or newer: update git")
    return Check.ok("git", found[0])


def identity(place: Path, environment: Mapping[str, str]) -> Check:
    """In whose name commits will be; raises RepositoryUnusable where there is no git."""
    said = _git(place, environment, "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
    who, mark, _ = said.partition(">")
    if not mark or who.startswith("<"):
        hint = "git config --global user.name 'Your Name', and user.email"
        return Check.warn("git-identity", "git knows neither your name nor your address; commits are by mz", hint)
    return Check.ok("git-identity", f"commits are by {who}>")


def disk(place: Path) -> Check:
    """Raises OSError."""
    free = shutil.disk_usage(place).free
    said = f"{free / 10**9:.1f} GB free at {place}"
    if free < FREE_BYTES_MIN:
        return Check.fail("disk", said, "make room: worktrees, the log and agents' output need it")
    if free < FREE_BYTES_GOOD:
        return Check.warn("disk", said, "every feature at work has a whole worktree; `mz clean` and `mz gc` make room")
    return Check.ok("disk", said)


def sqlite() -> Check:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        return Check.fail("sqlite", version, f"mz needs SQLite {dotted(SQLITE_MIN)} or newer: update Python or SQLite")
    if sqlite3.sqlite_version_info < SQLITE_MENDED:
        said = f"{version}; mz's own lock keeps clear of the write-ahead fault before {dotted(SQLITE_MENDED)}"
        return Check.ok("sqlite", said, "let no other program write to .mz/mz.db")
    return Check.ok("sqlite", version)


def isolation() -> Check:
    """How well agents are kept in their worktrees; found out by trying."""
    level = best_level()
    if level in NAMESPACES:
        return Check.ok("isolation", NAMESPACES[level])
    if sys.platform == "darwin":
        hint = "run mz on Linux, in a container for example, where agents must be kept out of your checkout"
        return Check.warn("isolation", f"macOS: {LEVELS[level]}; {NO_FENCE}", hint)
    return Check.warn("isolation", f"{LEVELS[level]}; {NO_FENCE}", HOW_TO_FENCE)


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _git(place: Path, environment: Mapping[str, str], *words: str) -> str:
    with start(words, place, theirs(environment), settings=()) as process:
        out, _ = process.communicate()
    return out.decode("utf-8", "replace").strip() if process.returncode == 0 else ""
