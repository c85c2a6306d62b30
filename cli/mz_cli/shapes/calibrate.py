"""Facts: the shapes of the JSON about estimates: calibrate."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class FittedShape(Shape, frozen=True, kw_only=True):
    """Calls of one agent, or of one of its models, or of one phase with it."""

    agent: str
    model: str | None
    phase: str | None
    calls: int
    input: float
    """Tokens of input used for each one that was reserved: of the prompt, and in a session of all that it held."""
    output: float
    """Tokens of output used for each token of the reply that estimates assume."""
    cache_read: float
    """Share of the input."""
    cache_write: float
    input_tokens: int
    """Of a typical call."""
    output_tokens: int
    error_before: float
    """Median of |estimated - used| / used over all tokens, without calibration."""
    error_after: float
    """The same with it, each call estimated by the others alone."""
    ratio: float
    """Used for each token estimated, without calibration: below 0.9 estimates are high, above 1.1 low."""
    estimates: str
    """Of tokens: fits, low (more were used than estimated) or high."""
    helps: bool
    """Estimates are better with it; else it is not written."""


class TooFew(Shape, frozen=True, kw_only=True):
    """Too few calls for coefficients of their own."""

    agent: str
    model: str
    phase: str
    calls: int


class CalibrateResult(Shape, frozen=True, kw_only=True):
    """`mz calibrate --json`."""

    calls: int
    """That ended well and whose tokens are known."""
    calls_min: int
    fitted: tuple[FittedShape, ...]
    too_few: tuple[TooFew, ...]
    written: str | None
    """The file, with --write."""
