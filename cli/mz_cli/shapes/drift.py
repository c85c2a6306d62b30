"""JSON documents of `mz drift`."""

from __future__ import annotations

from mz_cli.shapes.base import Shape
from mz_cli.shapes.replay import ReplayFinding


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
