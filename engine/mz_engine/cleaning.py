"""Pure: what of that which runs left may go, and why the rest stays."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

Kind = Literal["worktree", "capture", "rescue", "spool", "temporary", "pull-request"]
Standing = Literal["ended", "open", "held", "told", "unknown"]
"""Of a run. ended: finished. open: not finished. held: a process works on it now. told: finished, but a message waits
that may take it up again. unknown: the log does not have it."""
NAMED_MAX = 3

WHY: Mapping[Standing, str] = {
    "open": "the run is not finished",
    "held": "a process works on the run",
    "told": "a message for the run waits: `mz resume {run}` takes it",
    "unknown": "the log has no such run",
}
BESIDE = "its worktree stays"
USED = "a process of its call still runs"
STUCK = "it could not be removed"
RESUMABLE = frozenset({"open", "told"})
"""Runs whose captures a resume would build worktrees from."""


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a run left."""

    kind: Kind
    run: str
    feature: str | None
    name: str
    """A path relative to the repository, for `temporary` an absolute one; or the name of a ref."""
    size_bytes: int | None = None
    """None for a ref."""
    value: str = ""
    """Of a ref: the commit that it names."""
    unheld: tuple[str, ...] = ()
    """Of a worktree: files that no capture and no branch holds. Of a rescued ref: itself, where nothing else leads to
    its commit."""
    used: bool = False
    """Of a temporary directory: a process of its call still runs."""
    stays: str | None = None
    """Why it stays; None: it goes."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants cleaned."""

    runs: frozenset[str] = frozenset()
    """Empty: every run that ended."""
    bodies: bool = False
    """Files with pull requests to be opened by hand, too."""
    force: bool = False
    """For the runs named: also those that did not end, and what nothing else holds."""


def judge(leftovers: Iterable[Leftover], standings: Mapping[str, Standing], asked: Asked) -> tuple[Leftover, ...]:
    """All leftovers of the runs that are meant, each with the reason why it stays. `standings` by run; one that is not
    in it is unknown."""
    judged = [
        replace(each, stays=why_stays(each, standings.get(each.run, "unknown"), asked))
        for each in leftovers
        if not asked.runs or each.run in asked.runs
    ]
    spared = {(each.run, each.feature) for each in judged if each.kind == "worktree" and each.stays}
    return tuple(
        replace(each, stays=BESIDE) if each.kind == "capture" and goes_with(each, spared) else each for each in judged
    )


def goes_with(capture: Leftover, spared: Collection[tuple[str, str | None]]) -> bool:
    """Whether the capture would go although its worktree stays: what changed there is told by comparing the two."""
    return capture.stays is None and (capture.run, capture.feature) in spared


def why_stays(leftover: Leftover, standing: Standing, asked: Asked) -> str | None:
    """None: it goes."""
    forced = asked.force and leftover.run in asked.runs
    if leftover.kind == "temporary" and standing != "held":  # A call begins with an empty one, also after a resume.
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
        return "no branch or tag leads to its commit"
    names = ", ".join(leftover.unheld[:NAMED_MAX]) + (", ..." if len(leftover.unheld) > NAMED_MAX else "")
    return f"no capture holds what was changed: {names}"
