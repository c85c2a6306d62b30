"""Facts: what a replay of a cassette found: kinds of findings, each with its exit code, and the result as a whole."""

from __future__ import annotations

from typing import Literal

import msgspec
from mz_engine.exits import Exit

FindingKind = Literal[
    "PROMPT", "CONFIG", "EFFECT", "EVENT", "NETWORK", "MISSING", "UNUSED", "EXPIRED", "SEEDED", "UNUSABLE", "PIPELINE"
]

EXITS: dict[FindingKind, Exit] = {
    "PROMPT": Exit.DRIFT,
    "CONFIG": Exit.DRIFT,
    "EFFECT": Exit.DRIFT,
    "EVENT": Exit.DRIFT,
    "NETWORK": Exit.NETWORK,
    "MISSING": Exit.RECORDING,
    "UNUSED": Exit.RECORDING,
    "EXPIRED": Exit.RECORDING,
    "SEEDED": Exit.RECORDING,
    "UNUSABLE": Exit.NOT_COMPARABLE,
    "PIPELINE": Exit.INVALID,
}
ACCEPTABLE = ("PROMPT", "CONFIG", "EVENT")
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


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """One cassette, played through today's pipeline."""

    path: str
    name: str
    provenance: str = ""
    recordings: int = 0
    played: int = 0
    predates: int = 0
    """Answers that were kept when their prompt was renewed."""
    offline: bool = True
    """The network was cut off; otherwise only the proxy variables lead nowhere."""
    stories: dict[str, str] = {}
    """By feature, the log digest of what happened now."""
    compared: int = 0
    """Features whose recorded story was there to compare with."""
    duration_ms: int = 0
    findings: tuple[Finding, ...] = ()
    renewed: tuple[str, ...] = ()
    """What was written into the cassette, in words."""
