"""Commands that fix findings. `{cassette}` stands for the path of the cassette."""

from __future__ import annotations

from shlex import quote

from mz_recordings.cassette import Identity

ACCEPT = "mz replay {cassette} --accept %s --reason TEXT"
"""Accept new inputs or events and keep the replies; takes the finding kind."""
RERECORD = "mz rerecord {cassette}"
RERECORD_ALL = f"{RERECORD} --all"
RERECORD_EXPIRED = f"{RERECORD} --expired"
RECORD_NEW = f"{RERECORD} --new"
PRUNE = "mz replay {cassette} --update-unused"
PROPOSE_NOISE = "mz drift {cassette} --learn --reason TEXT"
"""Propose entries of `noise.yaml` for the differences."""
RECORD_AGAIN = "take it out of the project and commit, then: mz run && mz record --replace --to {cassette}"
"""Record from another commit: re-recording replies does not change the content of the project."""
UPDATE_BASELINE = "mz drift {cassette} --update-wire --reason TEXT"


def rerecord_call(call: Identity) -> str:
    """Return the command that re-records this call."""
    return f"{RERECORD} --feature {quote(call.feature)} --phase {quote(call.phase)}"


def rerecord_feature(feature: str) -> str:
    """Return the command that re-records all calls of a feature."""
    return f"{RERECORD} --feature {quote(feature)}"
