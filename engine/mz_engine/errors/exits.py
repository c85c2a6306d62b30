"""The exit codes of `mz`, public and stable, and which one wins when several apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes; `MEANINGS` explains them."""

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


MEANINGS: Mapping[Exit, str] = {
    Exit.OK: "The command did what it was asked to do.",
    Exit.VERDICT: "A gate, a conformance check or a feature failed.",
    Exit.USAGE: "The command line is invalid; nothing was done.",
    Exit.DRIFT: "A replay differs from its recording.",
    Exit.RECORDING: "A recording is missing, expired, unused or rejected.",
    Exit.SECRET: "A secret was found where it must not be.",
    Exit.NETWORK: "Something tried to reach the network during a replay.",
    Exit.INVALID: "Settings, backlog or pipeline are invalid; nothing was done.",
    Exit.PREREQUISITE: "A tool, a login, disk space or the database is missing or unusable.",
    Exit.REPOSITORY: "The repository or a worktree cannot be used.",
    Exit.BUSY: "Another process drives the run, or an unfinished run with different settings exists.",
    Exit.STOPPED: "The user interrupted the command.",
    Exit.WAITING: "A person has to decide something.",
    Exit.LIMIT: "A budget or another limit is used up.",
    Exit.BUG: "A bug in `mz` itself.",
    Exit.NOT_COMPARABLE: "No comparison is possible: newer format, corrupt, or the fixture of a recording is missing.",
}
"""The meaning of each, in one sentence."""

NEXT_STEPS: Mapping[Exit, str] = {
    Exit.VERDICT: "After a run: see `mz show FEATURE` for the cause, then use `mz retry FEATURE`, or "
    "`mz retry FEATURE/PHASE` from an earlier phase. Other commands print what failed.",
    Exit.USAGE: "The message names the error; see `mz COMMAND --help`.",
    Exit.DRIFT: "See the first difference: fix the bug or, if the change is intended, record again with `mz record`.",
    Exit.RECORDING: "The message names the recording; `mz record` makes one from a run.",
    Exit.SECRET: "Remove the secret and rotate it.",
    Exit.NETWORK: "The message names the program; a replay needs no network.",
    Exit.INVALID: "Fix the errors above; check with `mz config validate` and `mz pipelines lint`.",
    Exit.PREREQUISITE: "`mz doctor` shows what is missing and how to get it. Then continue a stopped run with "
    "`mz resume`.",
    Exit.REPOSITORY: "Fix the error above, then `mz run` or `mz resume`.",
    Exit.BUSY: "Wait for that process, or end it with Ctrl-C; see `mz status`. Continue an unfinished run with "
    "`mz resume`, or cancel it with `mz cancel RUN`.",
    Exit.STOPPED: "`mz resume` continues; nothing is paid twice.",
    Exit.WAITING: "List and answer open questions with `mz review list`, then `mz resume`. `mz status` shows which "
    "features are held, and why.",
    Exit.LIMIT: "`mz review list` shows the held features. Raise `budget` in mz.yaml, then `mz resume RUN`: the budget "
    "is the only setting that a resume reads again.",
    Exit.BUG: "Report it with the file that the message names. `mz resume` is safe.",
    Exit.NOT_COMPARABLE: "The message names what is missing: another version of mz, or an intact copy of the "
    "recording.",
}
"""What to do next."""

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
