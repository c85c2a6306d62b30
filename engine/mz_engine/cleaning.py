"""Decisions of `mz clean`: which leftovers of runs are removed, and why others are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

LeftoverKind = Literal["worktree", "capture", "rescue", "spool", "temporary", "pull-request"]
LeftoverRunStatus = Literal["ended", "open", "held", "told", "unknown"]
"""Status of a run. ended: finished. open: not finished. held: a process drives it now. told: finished, but a posted
message may continue it. unknown: the log does not have it."""
NAMED_MAX = 3

STATUS_REASONS: Mapping[LeftoverRunStatus, str] = {
    "open": "the run is not finished",
    "held": "a process is running this run",
    "told": "the run has an unread message; `mz resume {run}` processes it",
    "unknown": "the log has no such run",
}
WORKTREE_KEPT = "its worktree is kept"
IN_USE = "a process of its call is still running"
NOT_REMOVABLE = "it could not be removed"
RESUMABLE_STATUSES = frozenset({"open", "told"})
"""Runs whose captures a resume needs to rebuild worktrees."""


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """One leftover of a run."""

    kind: LeftoverKind
    run: str
    feature: str | None
    name: str
    """A path relative to the repository, for `temporary` an absolute one; or the name of a ref."""
    size_bytes: int | None = None
    """None for a ref."""
    commit: str = ""
    """Commit of a ref."""
    unsaved: tuple[str, ...] = ()
    """Files of a worktree that no capture and no branch contains; or the name of a rescued ref, if no other ref leads
    to its commit."""
    in_use: bool = False
    """Temporary directory only: a process of its call is still running."""
    keep_reason: str | None = None
    """Why it is kept; None: it is removed."""


class CleanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `mz clean`."""

    runs: frozenset[str] = frozenset()
    """Empty: every run that ended."""
    descriptions: bool = False
    """Also remove descriptions of pull requests that people open by hand."""
    force: bool = False
    """For the named runs: also remove leftovers of unfinished runs, and content that exists nowhere else."""


def with_keep_reasons(leftovers: Iterable[Leftover], statuses: Mapping[str, LeftoverRunStatus], options: CleanOptions) -> tuple[Leftover, ...]:
    """Return the leftovers of the selected runs, each with the reason to keep it.

    `standings` is by run; a run that is not in it is unknown.
    """
    judged = [
        replace(leftover, keep_reason=find_keep_reason(leftover, statuses.get(leftover.run, "unknown"), options))
        for leftover in leftovers
        if not options.runs or leftover.run in options.runs
    ]
    kept_worktrees = {(item.run, item.feature) for item in judged if item.kind == "worktree" and item.keep_reason}
    return tuple(
        replace(item, keep_reason=WORKTREE_KEPT) if item.kind == "capture" and depends_on_kept_worktree(item, kept_worktrees) else item
        for item in judged
    )


def depends_on_kept_worktree(capture: Leftover, kept_worktrees: Collection[tuple[str, str | None]]) -> bool:
    """Return True if the capture would be removed although its worktree is kept: only a capture shows its changes."""
    return capture.keep_reason is None and (capture.run, capture.feature) in kept_worktrees


def find_keep_reason(leftover: Leftover, status: LeftoverRunStatus, options: CleanOptions) -> str | None:
    """Return the reason to keep a leftover; None if it can be removed."""
    forced = options.force and leftover.run in options.runs
    if leftover.kind == "temporary" and status != "held":  # Every call starts with an empty one, even after a resume.
        return IN_USE if leftover.in_use else None
    if status == "held" or (status != "ended" and not forced):
        return STATUS_REASONS[status].format(run=leftover.run)
    if status in RESUMABLE_STATUSES and leftover.kind in ("capture", "rescue"):
        return f"`mz resume {leftover.run}` needs it"
    if leftover.kind == "pull-request" and not options.descriptions:
        return "a person may still open it; --all removes it"
    if leftover.unsaved and not forced:
        return _unsaved_reason(leftover)
    return None


def _unsaved_reason(leftover: Leftover) -> str:
    if leftover.kind == "rescue":
        return "no branch or tag contains its commit"
    names = ", ".join(leftover.unsaved[:NAMED_MAX]) + (", ..." if len(leftover.unsaved) > NAMED_MAX else "")
    return f"changes that no capture contains: {names}"
