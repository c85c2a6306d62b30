"""Checks of `mz doctor` on the machine, from versions and sizes that the caller has read."""

from __future__ import annotations

import re

from mz_engine.agents import guard
from mz_engine.check import Check

Version = tuple[int, ...]

PYTHON_MIN = (3, 11)
GIT_MIN = (2, 30)
GIT_MERGES = (2, 38)
"""Minimum for merging branches."""
SQLITE_MIN = (3, 24)
"""The first version with upserts."""
SQLITE_MENDED = (3, 51, 3)
"""In older versions two connections that write and checkpoint at the same time can damage a file in WAL mode."""
FREE_BYTES_MIN = 200 * 10**6
FREE_BYTES_GOOD = 2 * 10**9

NAMESPACES = {
    guard.NAMESPACE: "agents run in PID and mount namespaces of their own",
    guard.USER_NAMESPACE: "agents run in PID and mount namespaces of their own, inside a user namespace",
}
LEVELS = {
    guard.SUBREAPER: "an agent's child processes end with it, found by its process tree",
    guard.MARKER: "an agent's child processes end with it, found by a marker in their environment",
}
NO_FENCE = "without mount namespaces your checkout is not write-protected; refs, configuration and hooks are compared"
HOW_TO_FENCE = "allow unprivileged user namespaces (`sysctl kernel.unprivileged_userns_clone=1`), or run mz as root"


def python(version: Version, program: str) -> Check:
    if version < PYTHON_MIN:
        return Check.fail("python", dotted(version), f"install Python {dotted(PYTHON_MIN)} or newer")
    return Check.ok("python", f"{dotted(version)}, {program}")


def git(output: str) -> Check:
    """Check the version in the output of `git version`."""
    match = re.search(r"(\d+)\.(\d+)[.\w]*", output)
    if match is None:
        return Check.fail("git", f"`git version` says {output[:80]!r}", f"install git {dotted(GIT_MIN)} or newer")
    version = int(match[1]), int(match[2])
    if version < GIT_MIN:
        return Check.fail("git", match[0], f"mz needs git {dotted(GIT_MIN)} or newer: update git")
    if version < GIT_MERGES:
        return Check.warn("git", match[0], f"merging branches needs git {dotted(GIT_MERGES)} or newer: update git")
    return Check.ok("git", match[0])


def identity(author: str) -> Check:
    """Check the author that git would write into a commit, `Name <address> time zone`; empty: git has none."""
    name, bracket, _ = author.partition(">")
    if not bracket or name.strip().startswith("<"):
        hint = "git config --global user.name 'Your Name', and user.email"
        return Check.warn("git-identity", "git has no name and address of yours; commits get the author mz", hint)
    return Check.ok("git-identity", f"commits are by {name}>")


def disk(free_bytes: int, directory: str) -> Check:
    summary = f"{free_bytes / 10**9:.1f} GB free at {directory}"
    if free_bytes < FREE_BYTES_MIN:
        return Check.fail("disk", summary, "free disk space: worktrees, the log and agents' output need it")
    if free_bytes < FREE_BYTES_GOOD:
        return Check.warn("disk", summary, "each active feature has a full worktree; `mz clean` and `mz gc` free space")
    return Check.ok("disk", summary)


def sqlite(version: Version) -> Check:
    if version < SQLITE_MIN:
        hint = f"mz needs SQLite {dotted(SQLITE_MIN)} or newer: update Python or SQLite"
        return Check.fail("sqlite", dotted(version), hint)
    if version < SQLITE_MENDED:
        fault = f"mz's own lock avoids the write-ahead log bug of versions before {dotted(SQLITE_MENDED)}"
        return Check.ok("sqlite", f"{dotted(version)}; {fault}", "let no other program write to .mz/mz.db")
    return Check.ok("sqlite", dotted(version))


def isolation(level: str, platform: str) -> Check:
    """Check how agents are confined, by the best of `guard.LEVELS` that works here, and `sys.platform`."""
    if level in NAMESPACES:
        return Check.ok("isolation", NAMESPACES[level])
    if platform == "darwin":
        hint = "run mz on Linux, for example in a container, if agents must not write to your checkout"
        return Check.warn("isolation", f"macOS: {LEVELS[level]}; {NO_FENCE}", hint)
    return Check.warn("isolation", f"{LEVELS[level]}; {NO_FENCE}", HOW_TO_FENCE)


def dotted(version: Version) -> str:
    return ".".join(str(part) for part in version)
