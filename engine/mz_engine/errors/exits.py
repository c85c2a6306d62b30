"""The exit codes of `mz`, public and stable, and which one wins when several apply."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes; `exits.toml` explains them."""

    OK = 0
    VERDICT = 1
    USAGE = 2
    DRIFT = 3
    RECORDING = 4
    SECRET = 5
    NETWORK = 6
    INVALID = 10
    PREREQUISITE = 11
    REPOSITORY = 15
    BUSY = 16
    STOPPED = 20
    WAITING = 21
    LIMIT = 22
    BUG = 70
    NOT_COMPARABLE = 125


BY_SEVERITY = (
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
"""Usage, invalid, repository and busy end a command before any work, so they meet no other code; they are listed so
that every pair is ordered."""


def most_severe(exits: Iterable[Exit], bisect: bool = False) -> Exit:
    """Return the exit code of a command to which all of these apply; OK if there are none.

    Under `bisect`, "not comparable" beats drift and recording, so that `git bisect run` skips the commit.
    """
    codes = frozenset(exits)
    if bisect and Exit.NOT_COMPARABLE in codes:
        codes -= {Exit.DRIFT, Exit.RECORDING}
    return next((code for code in BY_SEVERITY if code in codes), Exit.OK)
