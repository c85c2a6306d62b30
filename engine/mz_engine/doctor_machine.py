"""Pure: the checks of `mz doctor` that concern the machine, given what was found there."""

from __future__ import annotations

import re

from mz_engine.agents import guard
from mz_engine.check import Check

Version = tuple[int, ...]

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


def python(version: Version, program: str) -> Check:
    if version < PYTHON_MIN:
        return Check.fail("python", dotted(version), f"install Python {dotted(PYTHON_MIN)} or newer")
    return Check.ok("python", f"{dotted(version)}, {program}")


def git(said: str) -> Check:
    """`said` is what `git version` prints."""
    found = re.search(r"(\d+)\.(\d+)[.\w]*", said)
    if found is None:
        return Check.fail("git", f"`git version` says {said[:80]!r}", f"install git {dotted(GIT_MIN)} or newer")
    version = int(found[1]), int(found[2])
    if version < GIT_MIN:
        return Check.fail("git", found[0], f"mz needs git {dotted(GIT_MIN)} or newer: update git")
    if version < GIT_MERGES:
        return Check.warn("git", found[0], f"merging branches needs git {dotted(GIT_MERGES)} or newer: update git")
    return Check.ok("git", found[0])


def identity(said: str) -> Check:
    """`said` is what git would write into a commit, `Name <address> time zone`; empty: it does not know."""
    who, mark, _ = said.partition(">")
    if not mark or who.strip().startswith("<"):
        hint = "git config --global user.name 'Your Name', and user.email"
        return Check.warn("git-identity", "git knows neither your name nor your address; commits are by mz", hint)
    return Check.ok("git-identity", f"commits are by {who}>")


def disk(free_bytes: int, place: str) -> Check:
    said = f"{free_bytes / 10**9:.1f} GB free at {place}"
    if free_bytes < FREE_BYTES_MIN:
        return Check.fail("disk", said, "make room: worktrees, the log and agents' output need it")
    if free_bytes < FREE_BYTES_GOOD:
        return Check.warn("disk", said, "every feature at work has a whole worktree; `mz clean` and `mz gc` make room")
    return Check.ok("disk", said)


def sqlite(version: Version) -> Check:
    if version < SQLITE_MIN:
        hint = f"mz needs SQLite {dotted(SQLITE_MIN)} or newer: update Python or SQLite"
        return Check.fail("sqlite", dotted(version), hint)
    if version < SQLITE_MENDED:
        fault = f"mz's own lock keeps clear of the write-ahead fault before {dotted(SQLITE_MENDED)}"
        return Check.ok("sqlite", f"{dotted(version)}; {fault}", "let no other program write to .mz/mz.db")
    return Check.ok("sqlite", dotted(version))


def isolation(level: str, platform: str) -> Check:
    """How well agents are kept in their worktrees: the best of `guard.LEVELS` that works here, and `sys.platform`."""
    if level in NAMESPACES:
        return Check.ok("isolation", NAMESPACES[level])
    if platform == "darwin":
        hint = "run mz on Linux, in a container for example, where agents must be kept out of your checkout"
        return Check.warn("isolation", f"macOS: {LEVELS[level]}; {NO_FENCE}", hint)
    return Check.warn("isolation", f"{LEVELS[level]}; {NO_FENCE}", HOW_TO_FENCE)


def dotted(version: Version) -> str:
    return ".".join(str(part) for part in version)
