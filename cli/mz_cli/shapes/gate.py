"""Facts: the shape of the JSON of `mz gate`."""

from __future__ import annotations

from mz_cli.shapes.base import Shape
from mz_cli.shapes.replay import ReplayFinding


class GateLayer(Shape, frozen=True, kw_only=True):
    """One kind of proof."""

    id: int
    name: str
    about: str
    """What it proves, in half a sentence."""
    status: str
    """`passed`, `failed`, `empty` (there was nothing to check, and that was allowed) or `skipped` (not asked for)."""
    reason: str | None
    """Of an empty or skipped one."""
    seconds: float
    checks: int
    """How many things were looked at."""
    checked: dict[str, int]
    """The same by what they are, such as `templates`."""
    findings: tuple[ReplayFinding, ...]
    """Kinds beside those of `mz replay`: ADAPTER, RULE, FORMAT, VARIANT, EMPTY, CRASH."""
    remarks: tuple[str, ...]
    """Worth knowing, and no reason to fail."""


class GateFailure(Shape, frozen=True, kw_only=True):
    """The first layer that failed, and what it found first."""

    layer: int
    name: str
    what: str


class GateReport(Shape, frozen=True, kw_only=True):
    version: str
    """Of `mz`."""
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
