"""Findings of all checks: their kinds, each with its exit code, and the result of replaying one cassette."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
from mz_engine.exits import Exit

FindingKind = Literal[
    "PROMPT", "CONFIG", "WIRE", "EVENT", "ARTIFACT", "EFFECT", "COST", "POLICY", "STALE", "UNUSED",
    "MISSING", "SEEDED", "NETWORK", "SECRET", "PIPELINE", "UNUSABLE",
    "ADAPTER", "RULE", "FORMAT", "VARIANT", "EMPTY", "CRASH",
]  # fmt: skip
"""First line: drift. Second line: reasons why a cassette cannot be replayed or trusted. Third line: findings of a gate
only."""
Risk = Literal["low", "medium", "high"]


class KindFacts(NamedTuple):
    """Properties shared by all findings of a kind."""

    exit: Exit
    risk: Risk
    meaning: str
    """Short clause for reports."""


KINDS: dict[FindingKind, KindFacts] = {
    "PROMPT": KindFacts(Exit.DRIFT, "medium", "the agent gets another prompt"),
    "CONFIG": KindFacts(Exit.DRIFT, "medium", "the agent is called with other settings"),
    "WIRE": KindFacts(Exit.DRIFT, "medium", "the agent's output format changed"),
    "EVENT": KindFacts(Exit.DRIFT, "high", "the same calls produce different events"),
    "ARTIFACT": KindFacts(Exit.DRIFT, "medium", "an artifact has another structure"),
    "EFFECT": KindFacts(Exit.DRIFT, "high", "other files are changed, or the call starts from another tree"),
    "COST": KindFacts(Exit.DRIFT, "low", "tokens or cost differ"),
    "POLICY": KindFacts(Exit.DRIFT, "high", "a rule, a gate or a permission decides differently"),
    "STALE": KindFacts(Exit.RECORDING, "medium", "the recordings are older than allowed"),
    "UNUSED": KindFacts(Exit.RECORDING, "low", "the recording is unused"),
    "MISSING": KindFacts(Exit.RECORDING, "high", "a call or a trace was not recorded"),
    "SEEDED": KindFacts(Exit.RECORDING, "high", "the replies were copied from another agent"),
    "NETWORK": KindFacts(Exit.NETWORK, "high", "a process tried to reach the network"),
    "SECRET": KindFacts(Exit.SECRET, "high", "the recording contains a secret"),
    "PIPELINE": KindFacts(Exit.INVALID, "high", "the current pipeline or settings are invalid"),
    "UNUSABLE": KindFacts(Exit.NOT_COMPARABLE, "high", "the cassette or its fixture cannot be read"),
    "ADAPTER": KindFacts(Exit.VERDICT, "high", "an agent's adapter breaks its contract"),
    "RULE": KindFacts(Exit.VERDICT, "high", "a rule judges an artifact wrongly"),
    "FORMAT": KindFacts(Exit.VERDICT, "high", "an older file is not read as it was meant"),
    "VARIANT": KindFacts(Exit.VERDICT, "high", "a failing call is not handled as required"),
    "EMPTY": KindFacts(Exit.RECORDING, "medium", "there was nothing to check"),
    "CRASH": KindFacts(Exit.BUG, "high", "the check itself failed"),
}
RISKS: tuple[Risk, ...] = ("low", "medium", "high")
"""In ascending order."""
ACCEPTABLE: tuple[FindingKind, ...] = ("PROMPT", "CONFIG", "EVENT", "POLICY", "ARTIFACT", "WIRE", "COST")
"""Kinds whose new inputs a person may accept while keeping the replies."""


class Noted(msgspec.Struct, frozen=True):
    """Differences between a call and its recording; None: no difference."""

    prompt: str | None = None
    argv: tuple[str, ...] | None = None
    environment: tuple[str, ...] | None = None
    """Names of variables that no call may see."""
    tree: str | None = None
    refused: str | None = None
    """Why the recorded reply could not be served."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One difference from a recording, or one defect."""

    kind: FindingKind
    what: str
    """One sentence without a full stop."""
    feature: str = ""
    call: str = ""
    """Name of the recording, such as `code.a2`."""
    cause: str = ""
    """The template or the setting that caused drift."""
    detail: tuple[str, ...] = ()
    """Lines of a diff: `-` recorded, `+` current."""
    mend: str = ""
    """Command that fixes it; `{cassette}` stands for the cassette's path."""
    risk: Risk | None = None
    """None: the default of the kind."""
    file: str = ""
    """Path relative to the project: a template, a rule set, mz.yaml or a file of the cassette."""
    line: int | None = None
    """Line of that file, from 1, if known."""
    fails: bool = True
    """The finding makes the command fail."""


def risk_of(finding: Finding) -> Risk:
    """Return the finding's own risk, else the default of its kind."""
    return finding.risk or KINDS[finding.kind].risk


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """Result of replaying one cassette through the current pipeline."""

    path: str
    name: str
    provenance: str = ""
    recordings: int = 0
    played: int = 0
    calls: tuple[str, ...] = ()
    """Its recordings, such as `alpha/code.a2`; empty if the replay was impossible."""
    predates: int = 0
    """Replies that were kept when their inputs were updated."""
    offline: bool = True
    """The network was blocked; False: only the proxy variables were set to an address without a proxy."""
    stories: dict[str, str] = {}
    """By feature, the log digest of the replayed trace."""
    compared: int = 0
    """Number of features whose recorded trace was compared."""
    judged: int = 0
    """Number of recorded artifacts that the current rules checked."""
    duration_ms: int = 0
    findings: tuple[Finding, ...] = ()
    held: tuple[str, ...] = ()
    """Settings where the cassette's value is used instead of that of `mz.yaml`."""
    renewed: tuple[str, ...] = ()
    """Descriptions of changes that were written to the cassette."""
