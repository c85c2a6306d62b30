"""JSON documents of `mz calibrate`."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class CalibrationShape(Shape, frozen=True, kw_only=True):
    """Calibration of one agent, of one of its models, or of one phase with that model."""

    agent: str
    model: str | None
    phase: str | None
    calls: int
    input: float
    """Input tokens used per reserved token; in a session, reservations cover all that it holds."""
    output: float
    """Output tokens used per estimated reply token."""
    cache_read: float
    """Cache reads as a share of the input."""
    cache_write: float
    input_tokens: int
    """Input tokens of a typical call."""
    output_tokens: int
    error_before: float
    """Median of |estimated - used| / used over all tokens, without calibration."""
    error_after: float
    """The same with the calibration, leave-one-out."""
    ratio: float
    """Tokens used per estimated token, without calibration: below 0.9 estimates are high, above 1.1 low."""
    estimates: str
    """Quality of token estimates: fits, low (more were used than estimated) or high."""
    helps: bool
    """The calibration improves estimates; otherwise it is not written."""


class UncalibratedPhase(Shape, frozen=True, kw_only=True):
    """A phase with too few calls for coefficients of its own."""

    agent: str
    model: str
    phase: str
    calls: int


class CalibrateResult(Shape, frozen=True, kw_only=True):
    """`mz calibrate --json`."""

    calls: int
    """Number of successful calls with known tokens."""
    calls_min: int
    fitted: tuple[CalibrationShape, ...]
    too_few: tuple[UncalibratedPhase, ...]
    written: str | None
    """Path of the written file, with `--write`."""
