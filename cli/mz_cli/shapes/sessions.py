"""Facts: the shape of the JSON of `mz cost --sessions`."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class SessionSums(Shape, frozen=True, kw_only=True):
    """Calls of one feature, or of all of them."""

    name: str | None
    """Null: all."""
    calls: int
    continued_calls: int
    """They went on in a session."""
    sessions: int
    """Begun to be continued; calls of reviewers, and of phases that begin anew, are not counted."""
    broken: dict[str, int]
    """Sessions that could not go on, by reason."""
    sent_tokens: int
    """Estimated: the prompts of the continued calls, as they were sent."""
    whole_tokens: int
    """Estimated: the same prompts with everything in them."""
    saved: float | None
    """As a share of `whole_tokens`; null: no call went on in a session."""


class SessionFigure(Shape, frozen=True, kw_only=True):
    """One measured figure over the features that both runs delivered."""

    figure: str
    """input (all that models were given), new-input (what no cache had), cache-reads, output, calls or usd."""
    baseline: str
    """A whole number, or with usd a decimal one."""
    run: str
    saved: float | None
    """As a share of the baseline; negative: it was more. Null: the baseline had none."""


class SessionsReport(Shape, frozen=True, kw_only=True):
    """`mz cost --sessions --json`."""

    run: str
    baseline: str | None
    """Null: no run to compare with was named, so that nothing is measured."""
    total: SessionSums
    features: tuple[SessionSums, ...]
    compared: tuple[str, ...]
    """Features that both runs delivered."""
    measured: tuple[SessionFigure, ...]
    notes: tuple[str, ...]
