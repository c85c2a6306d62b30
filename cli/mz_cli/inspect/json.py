"""JSON documents of `mz diff`."""

from __future__ import annotations

from mz_cli.terminal.json import Shape


class DifferenceShape(Shape, frozen=True, kw_only=True):
    path: str
    """Path of the value, such as `attempts.code`, `files.src/app.py`, `config.budget.run_usd`."""
    left: str | None
    """Null: missing or unknown. Long texts are shown by their digest."""
    right: str | None
    measured: bool
    """The value varies between any two runs, like a duration, and does not count for `--exit-code`."""


class FeatureDiff(Shape, frozen=True, kw_only=True):
    id: str
    left: bool
    """The left run has the feature."""
    right: bool
    differences: tuple[DifferenceShape, ...]


class DiffReport(Shape, frozen=True, kw_only=True):
    """`mz diff --json`."""

    repository: str
    left: str
    right: str
    differs: bool
    """At least one difference is not `measured`."""
    start: tuple[DifferenceShape, ...]
    """Differences in pipeline, base, version and every pinned setting, rule and template."""
    features: tuple[FeatureDiff, ...]
    """Features with differences."""
