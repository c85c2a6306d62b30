"""Results of the checks of `mz doctor`, and the checks of the machine, from versions and sizes that the caller read."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import partial

import msgspec

from mz_engine.errors.diagnostics import MzError
from mz_engine.processes import guard


class CheckStatus(StrEnum):
    OK = "ok"
    WARN = "warn"
    """Runs work, but with limitations, or not for long."""
    FAIL = "fail"
    """Something that a run needs is missing."""


class DoctorCheck(msgspec.Struct, frozen=True):
    """Result of a check, as `mz doctor --json` prints it."""

    name: str
    """Stable, since scripts may rely on it; empty until the check is listed."""
    status: CheckStatus
    summary: str
    """One sentence, without a final full stop."""
    hint: str = ""
    """How to fix it."""


ok = partial(DoctorCheck, "", CheckStatus.OK)
warn = partial(DoctorCheck, "", CheckStatus.WARN)
fail = partial(DoctorCheck, "", CheckStatus.FAIL)


def fail_with_error(error: MzError, default_hint: str = "") -> DoctorCheck:
    """Fail with the first error's message, and the number of others. `default_hint` is the hint if there are several
    diagnostics, or none has a hint."""
    first, *more = [item for item in error.diagnostics if item.severity == "error"] or error.diagnostics
    location = f"{first.location} " if first.location else ""
    count = f" (and {len(more)} more)" if more else ""
    return fail(f"{location}{first.message}{count}", default_hint if more or not first.hint else first.hint)


Version = tuple[int, ...]

GIT_MIN = (2, 30)
GIT_MERGE_MIN = (2, 38)
"""Minimum for merging branches."""
SQLITE_MIN = (3, 24)
"""The first version with upserts."""
SQLITE_WAL_FIXED = (3, 51, 3)
"""In older versions two connections that write and checkpoint at the same time can damage a file in WAL mode."""
FREE_BYTES_MIN = 200 * 10**6
FREE_BYTES_WARN = 2 * 10**9

ISOLATION_SUMMARIES = {
    guard.NAMESPACE: "agents run in PID and mount namespaces of their own",
    guard.USER_NAMESPACE: "agents run in PID and mount namespaces of their own, inside a user namespace",
    guard.SUBREAPER: "an agent's child processes end with it, found by its process tree",
    guard.MARKER: "an agent's child processes end with it, found by a marker in their environment",
}
NOT_WRITE_PROTECTED = (
    "without mount namespaces your checkout is not write-protected; refs, configuration and hooks are compared"
)


def git_check(output: str) -> DoctorCheck:
    """Check the version in the output of `git version`."""
    match = re.search(r"(\d+)\.(\d+)[.\w]*", output)
    if match is None:
        return fail(f"`git version` says {output[:80]!r}", f"install git {format_version(GIT_MIN)} or newer")
    version = int(match[1]), int(match[2])
    if version < GIT_MIN:
        return fail(match[0], f"mz needs git {format_version(GIT_MIN)} or newer: update git")
    if version < GIT_MERGE_MIN:
        return warn(match[0], f"merging branches needs git {format_version(GIT_MERGE_MIN)} or newer: update git")
    return ok(match[0])


def identity_check(author: str) -> DoctorCheck:
    """Check the author that git would write into a commit, `Name <address> time zone`; empty: git has none."""
    name, bracket, _ = author.partition(">")
    if not bracket or name.strip().startswith("<"):
        hint = "git config --global user.name 'Your Name', and user.email"
        return warn("git has no name and address of yours; commits get the author mz", hint)
    return ok(f"commits are by {name}>")


def disk_check(free_bytes: int, directory: str) -> DoctorCheck:
    summary = f"{free_bytes / 10**9:.1f} GB free at {directory}"
    if free_bytes < FREE_BYTES_MIN:
        return fail(summary, "free disk space: worktrees, the log and agents' output need it")
    if free_bytes < FREE_BYTES_WARN:
        return warn(summary, "each active feature has a full worktree; `mz clean` and `mz clean --blobs` free space")
    return ok(summary)


def sqlite_check(version: Version) -> DoctorCheck:
    text = format_version(version)
    if version < SQLITE_MIN:
        return fail(text, f"mz needs SQLite {format_version(SQLITE_MIN)} or newer: update Python or SQLite")
    if version < SQLITE_WAL_FIXED:
        fault = f"mz's own lock avoids the write-ahead log bug of versions before {format_version(SQLITE_WAL_FIXED)}"
        return ok(f"{text}; {fault}", "let no other program write to .mz/mz.db")
    return ok(text)


def isolation_check(level: str, platform: str) -> DoctorCheck:
    """Check how agents are confined, by the best of `guard.LEVELS` that works here, and `sys.platform`."""
    summary = ISOLATION_SUMMARIES[level]
    if level in (guard.NAMESPACE, guard.USER_NAMESPACE):
        return ok(summary)
    if platform == "darwin":
        hint = "run mz on Linux, for example in a container, if agents must not write to your checkout"
        return warn(f"macOS: {summary}; {NOT_WRITE_PROTECTED}", hint)
    hint = "allow unprivileged user namespaces (`sysctl kernel.unprivileged_userns_clone=1`), or run mz as root"
    return warn(f"{summary}; {NOT_WRITE_PROTECTED}", hint)


def format_version(version: Version) -> str:
    return ".".join(str(part) for part in version)
