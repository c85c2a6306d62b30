"""Facts: the commands that mend what a replay or a comparison found. `{cassette}` stands for the cassette's path."""

from __future__ import annotations

from shlex import quote

from mz_recordings.cassette import Identity

ACCEPT = "mz replay {cassette} --accept %s --reason TEXT"
"""Renew what went in or what happened, and keep the answers; with the class of drift."""
RERECORD = "mz rerecord {cassette}"
ALL = f"{RERECORD} --all"
EXPIRED = f"{RERECORD} --expired"
NEW = f"{RERECORD} --new"
UPDATE_UNUSED = "mz replay {cassette} --update-unused"
LEARN = "mz drift {cassette} --learn --reason TEXT"
"""Propose what differs as noise."""
COMMITTED = "take it out of the project and commit, then: mz run && mz record --replace --to {cassette}"
"""Have the world of another commit: no answer of an agent changes what the project holds."""
UPDATE_WIRE = "mz drift {cassette} --update-wire --reason TEXT"


def again(call: Identity) -> str:
    """Has the agent answer this call anew."""
    return f"{RERECORD} --feature {quote(call.feature)} --phase {quote(call.phase)}"


def again_feature(feature: str) -> str:
    """Has the agent answer all calls of a feature anew."""
    return f"{RERECORD} --feature {quote(feature)}"
