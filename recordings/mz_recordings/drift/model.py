"""Differences between two recordings of a call, and the parts of them that noise can hide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mz_engine.model.agent_description import AgentDescription

from mz_recordings.cassette.model import Cassette, Identity, RecordedCall
from mz_recordings.findings.model import Finding, FindingKind, Risk, rerecord_call

AgentDescriptions = Mapping[str, AgentDescription]
"""The project's own agents, needed to read their streams."""


class RecordingPair(NamedTuple):
    """Two recordings of one call, and their cassettes."""

    old: RecordedCall
    new: RecordedCall
    old_cassette: Cassette
    new_cassette: Cassette

    @property
    def identity(self) -> Identity:
        return self.old.recording.identity


class LeafDifference(NamedTuple):
    """The smallest part of a difference that noise can hide."""

    path: str
    """A field, such as `usage.output`, or an artifact's text, such as `prd.text`."""
    old: str = ""
    """The removed line of a text, or the old value of a number."""
    new: str = ""


class Difference(NamedTuple):
    finding: Finding
    leaves: tuple[LeafDifference, ...] = ()
    """Empty: it can never be noise."""


def call_difference(
    kind: FindingKind, call: Identity, message: str, cause: str = "", detail: tuple[str, ...] = (),
    risk: Risk | None = None, leaves: tuple[LeafDifference, ...] = (), fix: str | None = None,
) -> Difference:  # fmt: skip
    """Return a difference of one call, which a new reply fixes unless `fix` names another command."""
    finding = Finding(
        kind=kind, message=message, feature=call.feature, call=call.name, cause=cause, detail=detail,
        fix=rerecord_call(call) if fix is None else fix, risk=risk,
    )  # fmt: skip
    return Difference(finding, leaves)
