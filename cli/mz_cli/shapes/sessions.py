"""JSON document of `mz cost --sessions`."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class SessionSums(Shape, frozen=True, kw_only=True):
    """Sums over the calls of one feature, or of all features."""

    name: str | None
    """Null: all."""
    calls: int
    continued_calls: int
    """Calls that continued a session."""
    sessions: int
    """Sessions started to be continued, without calls of reviewers and of phases that start new sessions."""
    broken: dict[str, int]
    """Number of dropped sessions by reason."""
    sent_tokens: int
    """Estimated tokens of the continued calls' prompts as sent."""
    full_prompt_tokens: int
    """Estimated tokens of the same prompts in full."""
    saved: float | None
    """Saved share of `full_prompt_tokens`; null: no call continued a session."""


class SessionFigure(Shape, frozen=True, kw_only=True):
    """One measured figure over the features that both runs delivered."""

    figure: str
    """input (all input), new-input (input not in a cache), cache-reads, output, calls or usd."""
    baseline: str
    """Integer, or a decimal number for usd."""
    run: str
    saved: float | None
    """Saved share of the baseline; negative: an increase. Null: the baseline is zero."""


class SessionsReport(Shape, frozen=True, kw_only=True):
    """`mz cost --sessions --json`."""

    run: str
    baseline: str | None
    """Null: no run to compare with, so nothing is measured."""
    total: SessionSums
    features: tuple[SessionSums, ...]
    compared: tuple[str, ...]
    """Features that both runs delivered."""
    measured: tuple[SessionFigure, ...]
    notes: tuple[str, ...]
