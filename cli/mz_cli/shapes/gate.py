"""JSON documents of `mz gate`."""

from __future__ import annotations

from mz_cli.shapes.base import Shape
from mz_cli.shapes.replay import ReplayFinding


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
