"""Facts: the exit codes of `mz`, public and stable, and which one wins when several apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum


class Exit(IntEnum):
    """What the exit status of a command says; `MEANINGS` has the sentences."""

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
    Exit.OK: "Everything that was asked for happened.",
    Exit.VERDICT: "The verdict is no: a gate, a conformance check or a feature failed.",
    Exit.USAGE: "The command line makes no sense; nothing was done.",
    Exit.DRIFT: "A replay went another way than its recording.",
    Exit.RECORDING: "A recording is missing, stale, unused or refused.",
    Exit.SECRET: "A secret was found where it must not be.",
    Exit.NETWORK: "Something tried to reach the network during a replay.",
    Exit.INVALID: "Settings, backlog or pipeline are invalid; nothing was done.",
    Exit.PREREQUISITE: "A tool, a login, disk space or the database is missing or unusable.",
    Exit.REPOSITORY: "The repository or a worktree cannot be used.",
    Exit.BUSY: "Another process holds the run, or an unfinished run of another shape waits.",
    Exit.STOPPED: "The user stopped it.",
    Exit.WAITING: "A person has to decide something.",
    Exit.LIMIT: "A budget or another limit is used up.",
    Exit.BUG: "A bug in `mz` itself.",
    Exit.NOT_COMPARABLE: "No comparison is possible: newer format, corrupt, or the world of a recording cannot be had.",
}
"""What each says, in one sentence."""

NEXT: Mapping[Exit, str] = {
    Exit.VERDICT: "Of a run: `mz show FEATURE` says why, `mz retry FEATURE` has it done once more, from an "
    "earlier phase with --from. Of other commands: they say what is not as it should be.",
    Exit.USAGE: "The message says what is wrong; `mz COMMAND --help` says what there is.",
    Exit.DRIFT: "The first difference is shown: a bug, or a change that is meant; then `mz record` records it anew.",
    Exit.RECORDING: "The message names the recording; `mz record` makes one of a run.",
    Exit.SECRET: "Take the secret out of the project, and replace it where it is used: consider it known.",
    Exit.NETWORK: "The message names what did; a replay needs no network.",
    Exit.INVALID: "Mend what the messages name, each with its line; `mz config validate` and `mz pipelines lint` "
    "check it.",
    Exit.PREREQUISITE: "`mz doctor` says what is missing and how to get it. A run that it stopped goes on with "
    "`mz resume`.",
    Exit.REPOSITORY: "Mend what the message names, then `mz run` or `mz resume` again.",
    Exit.BUSY: "Wait for that process, or end it with Ctrl-C; `mz status` shows what it does. A run that waits goes on "
    "with `mz resume`, or is given up with `mz cancel RUN`.",
    Exit.STOPPED: "`mz resume` goes on where it stopped; nothing is paid twice.",
    Exit.WAITING: "`mz review list` shows what is asked, and how to answer; `mz resume` takes the answer. `mz status` "
    "shows what is held, why, and what helps.",
    Exit.LIMIT: "`mz review list` shows which features are held. Raise `budget` in mz.yaml, then `mz resume RUN`: a "
    "budget is the one setting that a resume takes over, and the log says so.",
    Exit.BUG: "The message names a file to report it with. `mz resume` is safe.",
    Exit.NOT_COMPARABLE: "The message says what cannot be had: another version of mz, or a whole copy of the "
    "recording.",
}
"""How to go on."""

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
