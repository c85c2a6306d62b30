"""Facts: the exit codes of `mz`, public and stable, and which one wins when several apply."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """What the exit status of a command says."""

    OK = 0
    """Everything that was asked for happened."""
    VERDICT = 1
    """The verdict is no: a gate, a conformance check or a feature failed."""
    USAGE = 2
    """The command line makes no sense; nothing was done."""
    DRIFT = 3
    """A replay went another way than its recording."""
    RECORDING = 4
    """A recording is missing, stale, unused or refused."""
    SECRET = 5
    """A secret was found where it must not be."""
    NETWORK = 6
    """Something tried to reach the network during a replay."""
    INVALID = 10
    """Settings, backlog or pipeline are invalid; nothing was done."""
    PREREQUISITE = 11
    """A tool, a login, disk space or the database is missing or unusable."""
    REPOSITORY = 15
    """The repository or a worktree cannot be used."""
    BUSY = 16
    """Another process holds the run, or an unfinished run of another shape waits."""
    STOPPED = 20
    """The user stopped it."""
    WAITING = 21
    """A person has to decide something."""
    LIMIT = 22
    """A budget or another limit is used up."""
    BUG = 70
    """A bug in `mz` itself."""
    NOT_COMPARABLE = 125
    """No comparison is possible: newer format, corrupt, or the world of a recording cannot be had."""


WORST_FIRST = (
    Exit.BUG,
    Exit.PREREQUISITE,
    Exit.USAGE,
    Exit.INVALID,
    Exit.REPOSITORY,
    Exit.BUSY,
    Exit.STOPPED,
    Exit.LIMIT,
    Exit.WAITING,
    Exit.VERDICT,
    Exit.NETWORK,
    Exit.SECRET,
    Exit.DRIFT,
    Exit.RECORDING,
    Exit.NOT_COMPARABLE,
    Exit.OK,
)
"""Usage, invalid, repository and busy are refusals before any work: they meet no other code but stand here so that
every pair has an answer."""


def worst(exits: Iterable[Exit], bisect: bool = False) -> Exit:
    """The one exit code of a command to which all of these apply; OK when there are none. Under `bisect`, "not
    comparable" beats drift and recording, so that `git bisect run` skips the commit and does not blame it."""
    found = frozenset(exits)
    if bisect and Exit.NOT_COMPARABLE in found:
        found -= {Exit.DRIFT, Exit.RECORDING}
    return next((code for code in WORST_FIRST if code in found), Exit.OK)
