"""The exit codes of `mz`, public and stable, and which one wins when several apply."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes, the most severe first; `exits.toml` explains them. Usage, invalid, repository and busy end a command
    before any work, so they meet no other code; they have a rank so that every pair is ordered."""

    BUG = 70
    PREREQUISITE = 11
    USAGE = 2
    INVALID = 10
    REPOSITORY = 15
    BUSY = 16
    STOPPED = 20
    LIMIT = 22
    WAITING = 21
    VERDICT = 1
    NETWORK = 6
    SECRET = 5
    DRIFT = 3
    RECORDING = 4
    NOT_COMPARABLE = 125
    OK = 0


def most_severe(exits: Iterable[Exit], bisect: bool = False) -> Exit:
    """Return the exit code if all of these apply; OK if there are none. Under `bisect`, "not comparable" beats drift
    and recording, so that `git bisect run` skips the commit."""
    codes = frozenset(exits)
    if bisect and Exit.NOT_COMPARABLE in codes:
        codes -= {Exit.DRIFT, Exit.RECORDING}
    return next((code for code in Exit if code in codes), Exit.OK)
