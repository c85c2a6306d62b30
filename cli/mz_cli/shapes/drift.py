"""Facts: the shape of the JSON of `mz drift`."""

from __future__ import annotations

from mz_cli.shapes.base import Shape
from mz_cli.shapes.replay import ReplayFinding


class DriftClass(Shape, frozen=True, kw_only=True):
    """All findings of one kind and one risk."""

    kind: str
    risk: str
    """low, medium or high."""
    exit: int
    """Its own exit code; 0 where its risk is below `fail_on`."""
    count: int


class DriftedCassette(Shape, frozen=True, kw_only=True):
    path: str
    """Of the older of two; `noise.yaml` has findings too."""
    name: str
    provenance: str | None
    recordings: int
    played: int
    """0 with `--static` and where two cassettes are compared."""
    findings: tuple[ReplayFinding, ...]


class NoiseShape(Shape, frozen=True, kw_only=True):
    """An entry of `noise.yaml`."""

    kind: str
    path: str
    """A field, an artifact's text, or a pattern of lines."""
    within: int | None
    """Per cent by which an amount may vary."""
    reason: str
    cassette: str | None
    """Null: all."""
    until: str | None
    """The last day on which it holds, `2027-01-31`; null: for ever."""
    hides: int
    """Differences that it had a part in hiding."""


class RefusalShape(Shape, frozen=True, kw_only=True):
    """What cannot be noise."""

    name: str
    """Such as STRUCTURAL_CHANGE or HIDES_VERDICT."""
    what: str
    why: str


class BaselineShape(Shape, frozen=True, kw_only=True):
    """A baseline of streams that was written: what `mz` does with how many fields."""

    path: str
    agent: str
    version: str
    read: int
    kept: int
    ignored: int
    absent: int
    """Asked for and never seen."""


class DriftResult(Shape, frozen=True, kw_only=True):
    exit: int
    fail_on: str
    """low, medium or high: drift of less risk is told and does not fail."""
    against: str
    """`today`, or the path of the newer of two cassettes."""
    classes: tuple[DriftClass, ...]
    cassettes: tuple[DriftedCassette, ...]
    hidden: int
    """Differences that are not told, since they are noise."""
    noise: tuple[NoiseShape, ...]
    """Entries that hid something."""
    learned: tuple[NoiseShape, ...]
    refused: tuple[RefusalShape, ...]
    baselines: tuple[BaselineShape, ...]
    """Written by `--update-wire`; nothing is checked then."""
