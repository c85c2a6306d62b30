"""Decisions of `mz clean`: which leftovers of runs are removed, and why others are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

Kind = Literal["worktree", "capture", "rescue", "spool", "temporary", "pull-request"]
Standing = Literal["ended", "open", "held", "told", "unknown"]
"""Status of a run. ended: finished. open: not finished. held: a process drives it now. told: finished, but a posted
message may continue it. unknown: the log does not have it."""
NAMED_MAX = 3

WHY: Mapping[Standing, str] = {
    "open": "the run is not finished",
    "held": "a process is running this run",
    "told": "the run has an unread message; `mz resume {run}` processes it",
    "unknown": "the log has no such run",
}
BESIDE = "its worktree is kept"
USED = "a process of its call is still running"
STUCK = "it could not be removed"
RESUMABLE = frozenset({"open", "told"})
"""Runs whose captures a resume needs to rebuild worktrees."""


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """One leftover of a run."""

    kind: Kind
    run: str
    feature: str | None
    name: str
    """A path relative to the repository, for `temporary` an absolute one; or the name of a ref."""
    size_bytes: int | None = None
    """None for a ref."""
    value: str = ""
    """Commit of a ref."""
    unheld: tuple[str, ...] = ()
    """Files of a worktree that no capture and no branch contains; or the name of a rescued ref, if no other ref leads
    to its commit."""
    used: bool = False
    """Temporary directory only: a process of its call is still running."""
    stays: str | None = None
    """Why it is kept; None: it is removed."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `mz clean`."""

    runs: frozenset[str] = frozenset()
    """Empty: every run that ended."""
    bodies: bool = False
    """Also remove descriptions of pull requests that people open by hand."""
    force: bool = False
    """For the named runs: also remove leftovers of unfinished runs, and content that exists nowhere else."""


def judge(leftovers: Iterable[Leftover], standings: Mapping[str, Standing], asked: Asked) -> tuple[Leftover, ...]:
    """Return the leftovers of the selected runs, each with the reason to keep it.

    `standings` is by run; a run that is not in it is unknown.
    """
    judged = [
        replace(leftover, stays=why_stays(leftover, standings.get(leftover.run, "unknown"), asked))
        for leftover in leftovers
        if not asked.runs or leftover.run in asked.runs
    ]
    kept_worktrees = {(item.run, item.feature) for item in judged if item.kind == "worktree" and item.stays}
    return tuple(
        replace(item, stays=BESIDE) if item.kind == "capture" and goes_with(item, kept_worktrees) else item
        for item in judged
    )


def goes_with(capture: Leftover, spared: Collection[tuple[str, str | None]]) -> bool:
    """Return True if the capture would be removed although its worktree is kept: only a capture shows its changes."""
    return capture.stays is None and (capture.run, capture.feature) in spared


def why_stays(leftover: Leftover, standing: Standing, asked: Asked) -> str | None:
    """Return the reason to keep a leftover; None if it can be removed."""
    forced = asked.force and leftover.run in asked.runs
    if leftover.kind == "temporary" and standing != "held":  # Every call starts with an empty one, even after a resume.
        return USED if leftover.used else None
    if standing == "held" or (standing != "ended" and not forced):
        return WHY[standing].format(run=leftover.run)
    if standing in RESUMABLE and leftover.kind in ("capture", "rescue"):
        return f"`mz resume {leftover.run}` needs it"
    if leftover.kind == "pull-request" and not asked.bodies:
        return "a person may still open it; --all removes it"
    if leftover.unheld and not forced:
        return _unheld(leftover)
    return None


def _unheld(leftover: Leftover) -> str:
    if leftover.kind == "rescue":
        return "no branch or tag contains its commit"
    names = ", ".join(leftover.unheld[:NAMED_MAX]) + (", ..." if len(leftover.unheld) > NAMED_MAX else "")
    return f"changes that no capture contains: {names}"
