"""JSON documents of `mz record` and `mz replay`."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class ExcludedFeature(Shape, frozen=True, kw_only=True):
    """A feature that is not in the cassette."""

    feature: str
    why: str


class CommittedSecret(Shape, frozen=True, kw_only=True):
    """A secret in a file of the project, which is in the cassette's `world.bundle` as it was committed."""

    file: str
    line: int
    what: str
    """Description without the secret."""


class RecordResult(Shape, frozen=True, kw_only=True):
    run: str
    cassette: str
    """Path, relative to the current directory where it is below it."""
    pipeline: str
    agent: str
    provenance: str
    """`live`, `scripted-model`, `documented` or `copied`."""
    features: tuple[str, ...]
    recordings: int
    left_out: tuple[ExcludedFeature, ...]
    committed: tuple[CommittedSecret, ...]
    """Secrets that `mz recordings lint` will reject."""


class ReplayFinding(Shape, frozen=True, kw_only=True):
    """One difference from the recording, or defect of it."""

    kind: str
    """A class of drift (PROMPT, CONFIG, STREAM, TRACE, ARTIFACT, FILES, COST, DECISION, EXPIRED, UNUSED), or MISSING,
    COPIED, NETWORK, SECRET, PIPELINE, UNREADABLE."""
    risk: str
    """low, medium or high."""
    exit: int
    """Exit code for this finding; 0: it does not fail the command."""
    message: str
    feature: str | None
    call: str | None
    """The recording, such as `code.a2`."""
    cause: str | None
    """For a drift: the template or setting."""
    detail: tuple[str, ...]
    """Diff lines: `-` recorded, `+` current."""
    fix: str
    """Command that repairs it."""
    file: str | None
    """File concerned, relative to the repository: a template, a rule set, mz.yaml, a file of the cassette."""
    line: int | None
    """Line in that file, from 1; null: unknown."""


class ReplayedCassette(Shape, frozen=True, kw_only=True):
    path: str
    name: str
    provenance: str | None
    """Null where the cassette cannot be read."""
    recordings: int
    played: int
    accepted_replies: int
    """Number of replies that were kept when their prompt changed."""
    offline: bool
    """The network was cut off; otherwise only the proxy variables point nowhere."""
    traces: dict[str, str]
    """Digest of each feature's current trace."""
    compared: int
    """Number of features with a recorded trace to compare."""
    duration_ms: int
    findings: tuple[ReplayFinding, ...]
    held: tuple[str, ...]
    """Settings, such as `commands.test`, used from the cassette instead of mz.yaml."""
    renewed: tuple[str, ...]
    """Description of each change written into the cassette."""


class ReplayReport(Shape, frozen=True, kw_only=True):
    exit: int
    cassettes: tuple[ReplayedCassette, ...]
