"""Facts: what a replay of a cassette found: kinds of findings, each with its exit code, and the result as a whole."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
from mz_engine.exits import Exit

FindingKind = Literal[
    "PROMPT", "CONFIG", "WIRE", "EVENT", "ARTIFACT", "EFFECT", "COST", "POLICY", "STALE", "UNUSED",
    "MISSING", "SEEDED", "NETWORK", "SECRET", "PIPELINE", "UNUSABLE",
    "ADAPTER", "RULE", "FORMAT", "VARIANT", "EMPTY", "CRASH",
]  # fmt: skip
"""The first line: classes of drift. The second: what keeps a replay from being one. The third: what a gate finds
besides."""
Risk = Literal["low", "medium", "high"]


class KindFacts(NamedTuple):
    """What is the same for all findings of a kind."""

    exit: Exit
    risk: Risk
    meaning: str
    """In half a sentence, for reports."""


KINDS: dict[FindingKind, KindFacts] = {
    "PROMPT": KindFacts(Exit.DRIFT, "medium", "the agent is asked something else"),
    "CONFIG": KindFacts(Exit.DRIFT, "medium", "the agent is called otherwise"),
    "WIRE": KindFacts(Exit.DRIFT, "medium", "the agent's stream has another shape"),
    "EVENT": KindFacts(Exit.DRIFT, "high", "the same calls lead to another story"),
    "ARTIFACT": KindFacts(Exit.DRIFT, "medium", "what is handed over is built otherwise"),
    "EFFECT": KindFacts(Exit.DRIFT, "high", "other files are changed, or other files are there to be changed"),
    "COST": KindFacts(Exit.DRIFT, "low", "it takes other tokens or other money"),
    "POLICY": KindFacts(Exit.DRIFT, "high", "a rule, a gate or a permission decides otherwise"),
    "STALE": KindFacts(Exit.RECORDING, "medium", "the answers are older than they may be"),
    "UNUSED": KindFacts(Exit.RECORDING, "low", "nothing asks for the recording"),
    "MISSING": KindFacts(Exit.RECORDING, "high", "a call or a story was not recorded"),
    "SEEDED": KindFacts(Exit.RECORDING, "high", "the answers are another agent's"),
    "NETWORK": KindFacts(Exit.NETWORK, "high", "something tried to reach the network"),
    "SECRET": KindFacts(Exit.SECRET, "high", "the recording holds a secret"),
    "PIPELINE": KindFacts(Exit.INVALID, "high", "today's pipeline or settings are invalid"),
    "UNUSABLE": KindFacts(Exit.NOT_COMPARABLE, "high", "the cassette cannot be read, or its world not be had"),
    "ADAPTER": KindFacts(Exit.VERDICT, "high", "an agent's adapter breaks its contract"),
    "RULE": KindFacts(Exit.VERDICT, "high", "a rule judges an artifact wrongly"),
    "FORMAT": KindFacts(Exit.VERDICT, "high", "what was written before is not read as it was meant"),
    "VARIANT": KindFacts(Exit.VERDICT, "high", "a call that ended otherwise is not met as it must be"),
    "EMPTY": KindFacts(Exit.RECORDING, "medium", "there was nothing to check"),
    "CRASH": KindFacts(Exit.BUG, "high", "the check itself broke"),
}
RISKS: tuple[Risk, ...] = ("low", "medium", "high")
"""The least first."""
ACCEPTABLE: tuple[FindingKind, ...] = ("PROMPT", "CONFIG", "EVENT", "POLICY", "ARTIFACT", "WIRE", "COST")
"""What a person may renew and keep the answers."""


class Noted(msgspec.Struct, frozen=True):
    """What a call was given that was not recorded so; None: nothing differs."""

    prompt: str | None = None
    argv: tuple[str, ...] | None = None
    environment: tuple[str, ...] | None = None
    """Names that no call may see."""
    tree: str | None = None
    refused: str | None = None
    """Why nothing was served, in words."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was recorded."""

    kind: FindingKind
    what: str
    """In one sentence, without a final full stop."""
    feature: str = ""
    call: str = ""
    """The recording's name, such as `code.a2`."""
    cause: str = ""
    """Of a drift: the template, or the setting."""
    detail: tuple[str, ...] = ()
    """Lines of a difference: `-` recorded, `+` today."""
    mend: str = ""
    """The command that mends it; `{cassette}` stands for its path."""
    risk: Risk | None = None
    """None: what the kind usually is."""
    file: str = ""
    """What it is about, relative to the project: a template, a rule set, mz.yaml, a file of the cassette."""
    line: int | None = None
    """Of that file, from 1, where it is known."""
    fails: bool = True
    """Whether the command that tells it fails for it."""


def risk_of(finding: Finding) -> Risk:
    """Its own, else its kind's."""
    return finding.risk or KINDS[finding.kind].risk


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """One cassette, played through today's pipeline."""

    path: str
    name: str
    provenance: str = ""
    recordings: int = 0
    played: int = 0
    calls: tuple[str, ...] = ()
    """Its recordings, such as `alpha/code.a2`, where it could be played."""
    predates: int = 0
    """Answers that were kept when their prompt was renewed."""
    offline: bool = True
    """The network was cut off; otherwise only the proxy variables lead nowhere."""
    stories: dict[str, str] = {}
    """By feature, the log digest of what happened now."""
    compared: int = 0
    """Features whose recorded story was there to compare with."""
    judged: int = 0
    """Recorded artifacts that today's rules judged."""
    duration_ms: int = 0
    findings: tuple[Finding, ...] = ()
    held: tuple[str, ...] = ()
    """Settings that `mz.yaml` has otherwise now: the cassette's count."""
    renewed: tuple[str, ...] = ()
    """What was written into the cassette, in words."""
