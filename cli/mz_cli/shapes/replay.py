"""Facts: the shapes of the JSON about recordings: what was recorded, and what a replay found."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class LeftOutShape(Shape, frozen=True, kw_only=True):
    """A feature that is not in the cassette."""

    feature: str
    why: str


class CommittedSecret(Shape, frozen=True, kw_only=True):
    """A secret in a file of the project, which is in the cassette's `world.bundle` as it was committed."""

    file: str
    line: int
    what: str
    """In words, without the secret."""


class RecordResult(Shape, frozen=True, kw_only=True):
    run: str
    cassette: str
    """Path, relative to the current directory where it is below it."""
    pipeline: str
    agent: str
    provenance: str
    """`live`, `scripted-model`, `documented` or `seeded`."""
    features: tuple[str, ...]
    recordings: int
    left_out: tuple[LeftOutShape, ...]
    committed: tuple[CommittedSecret, ...]
    """What `mz recordings lint` will refuse."""


class ReplayFinding(Shape, frozen=True, kw_only=True):
    """One thing that is not as it was recorded."""

    kind: str
    """A class of drift (PROMPT, CONFIG, WIRE, EVENT, ARTIFACT, EFFECT, COST, POLICY, STALE, UNUSED), or MISSING,
    SEEDED, NETWORK, SECRET, PIPELINE, UNUSABLE."""
    risk: str
    """low, medium or high."""
    exit: int
    """What the command ends with for it; 0: it fails nothing."""
    what: str
    feature: str | None
    call: str | None
    """The recording, such as `code.a2`."""
    cause: str | None
    """Of a drift: the template, or the setting."""
    detail: tuple[str, ...]
    """Lines: `-` recorded, `+` today."""
    mend: str
    """The command that mends it."""
    file: str | None
    """What it is about, relative to the repository: a template, a rule set, mz.yaml, a file of the cassette."""
    line: int | None
    """Of that file, from 1, where it is known."""


class ReplayedCassette(Shape, frozen=True, kw_only=True):
    path: str
    name: str
    provenance: str | None
    """Null where the cassette cannot be read."""
    recordings: int
    played: int
    predates: int
    """Answers that were kept when their prompt was renewed."""
    offline: bool
    """The network was cut off; otherwise only the proxy variables lead nowhere."""
    stories: dict[str, str]
    """By feature, the log digest of what happened now."""
    compared: int
    """Features whose recorded story was there to compare with."""
    duration_ms: int
    findings: tuple[ReplayFinding, ...]
    held: tuple[str, ...]
    """Settings, such as `commands.test`, that mz.yaml has otherwise: the cassette's count."""
    renewed: tuple[str, ...]
    """What was written into the cassette, in words."""


class ReplayResult(Shape, frozen=True, kw_only=True):
    exit: int
    cassettes: tuple[ReplayedCassette, ...]
