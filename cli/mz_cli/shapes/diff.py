"""Facts: the shapes of the JSON about two runs: diff."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class DifferingShape(Shape, frozen=True, kw_only=True):
    path: str
    """What it is, such as `attempts.code`, `files.src/app.py`, `config.budget.run_usd`."""
    left: str | None
    """Null: there is none, or it is not known. Long texts are given by their digest."""
    right: str | None
    measured: bool
    """It differs between any two runs, as durations do, and does not count for `--exit-code`."""


class FeatureDiff(Shape, frozen=True, kw_only=True):
    id: str
    left: bool
    """The left run has it."""
    right: bool
    differences: tuple[DifferingShape, ...]


class DiffReport(Shape, frozen=True, kw_only=True):
    """`mz diff --json`."""

    repository: str
    left: str
    right: str
    differs: bool
    """In more than what is measured."""
    start: tuple[DifferingShape, ...]
    """Pipeline, base, version, and every setting, rule and template that the runs were started with."""
    features: tuple[FeatureDiff, ...]
    """Those in which something differs."""
