"""JSON documents of `mz gate` and `mz drift`."""

from __future__ import annotations

from mz_cli.replay.json import ReplayFinding
from mz_cli.terminal.json import Shape


class GateLayer(Shape, frozen=True, kw_only=True):
    """Result of one layer of checks."""

    id: int
    name: str
    about: str
    """Short description."""
    status: str
    """`passed`, `failed`, `empty` (nothing to check, and that was allowed) or `skipped` (not selected)."""
    reason: str | None
    """Reason for an empty or skipped layer."""
    seconds: float
    checks: int
    """Total number of checked items."""
    checked: dict[str, int]
    """Checked items by kind, such as `templates`."""
    findings: tuple[ReplayFinding, ...]
    """Kinds beside those of `mz replay`: ADAPTER, RULE, FORMAT, VARIANT, NOTHING-CHECKED, INTERNAL-ERROR."""
    remarks: tuple[str, ...]
    """Remarks that do not fail the layer."""


class GateFailure(Shape, frozen=True, kw_only=True):
    """First failed layer and its first finding."""

    layer: int
    name: str
    message: str


class GateReport(Shape, frozen=True, kw_only=True):
    version: str
    """Version of `mz`."""
    verdict: str
    """`passed` or `failed`."""
    exit: int
    started: str
    """ISO 8601, UTC."""
    finished: str
    seconds: float
    cost_usd: str
    """Always zero: no model is called."""
    layers: tuple[GateLayer, ...]
    first_failure: GateFailure | None


class DriftClass(Shape, frozen=True, kw_only=True):
    """Number of findings of one kind and one risk."""

    kind: str
    risk: str
    """low, medium or high."""
    exit: int
    """Exit code of the class; 0 if its risk is below `fail_on`."""
    count: int


class DriftedCassette(Shape, frozen=True, kw_only=True):
    path: str
    """Path of the cassette, of the older one when two are compared; `noise.yaml` has findings too."""
    name: str
    provenance: str | None
    recordings: int
    played: int
    """Number of replayed calls; 0 with `--static` and when two cassettes are compared."""
    findings: tuple[ReplayFinding, ...]


class NoiseShape(Shape, frozen=True, kw_only=True):
    """An entry of `noise.yaml`."""

    kind: str
    path: str
    """A field, an artifact's text, or a pattern of lines."""
    within: int | None
    """Allowed variation of an amount, in per cent."""
    reason: str
    cassette: str | None
    """Null: all."""
    until: str | None
    """Last day of validity, such as `2027-01-31`; null: unlimited."""
    hides: int
    """Number of differences that the entry helped to hide."""


class RejectedNoise(Shape, frozen=True, kw_only=True):
    """A difference that cannot be accepted as noise."""

    name: str
    """Such as STRUCTURAL_CHANGE or HIDES_VERDICT."""
    what: str
    why: str


class BaselineShape(Shape, frozen=True, kw_only=True):
    """A baseline of stream shapes that was written, with field counts."""

    path: str
    agent: str
    version: str
    read: int
    kept: int
    ignored: int
    absent: int
    """Fields that mz reads but never saw."""


class DriftResult(Shape, frozen=True, kw_only=True):
    exit: int
    fail_on: str
    """low, medium or high: drift of lower risk is reported and does not fail."""
    against: str
    """`today`, or the path of the newer of two cassettes."""
    classes: tuple[DriftClass, ...]
    cassettes: tuple[DriftedCassette, ...]
    hidden: int
    """Number of differences hidden as noise."""
    noise: tuple[NoiseShape, ...]
    """Noise entries that hid a difference."""
    learned: tuple[NoiseShape, ...]
    refused: tuple[RejectedNoise, ...]
    baselines: tuple[BaselineShape, ...]
    """Baselines written by `--update-baseline`, which checks nothing."""
