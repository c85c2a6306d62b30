"""Facts: the shapes of the JSON about pipelines: list, show, lint, new."""

from __future__ import annotations

from typing import Any

from mz_cli.shapes.base import Shape


class PipelineListed(Shape, frozen=True, kw_only=True):
    """One pipeline that `pipeline:` in mz.yaml may name."""

    name: str
    file: str | None
    """Relative to the repository; null: it comes with mz."""
    chosen: bool
    """mz.yaml, a variable or the default chooses it."""
    phases: tuple[str, ...]
    """Empty where the file cannot be understood."""
    errors: int
    warnings: int


class PipelineList(Shape, frozen=True, kw_only=True):
    """`mz pipelines list --json`."""

    pipelines: tuple[PipelineListed, ...]


class PipelineShown(Shape, frozen=True, kw_only=True):
    """`mz pipelines show NAME --json`."""

    name: str
    file: str | None
    """Relative to the repository; null: it comes with mz."""
    definition: dict[str, Any]
    """All keys as docs/pipelines.md names them, defaults included; timeouts in seconds."""


class Where(Shape, frozen=True, kw_only=True):
    """A place in a file; line and column count from 1."""

    file: str
    line: int | None
    """Null: the whole file."""
    column: int | None


class Found(Shape, frozen=True, kw_only=True):
    """One thing that is wrong, or looks wrong."""

    severity: str
    """`error` or `warning`."""
    code: str
    """`mz explain CODE` says more."""
    message: str
    hint: str | None
    where: Where | None


class LintResult(Shape, frozen=True, kw_only=True):
    """`mz pipelines lint --json`; the exit code is 10 where there are errors."""

    files: tuple[str, ...]
    errors: int
    warnings: int
    diagnostics: tuple[Found, ...]


class NewPipeline(Shape, frozen=True, kw_only=True):
    """`mz pipelines new NAME --json`."""

    name: str
    file: str
    """Relative to the repository."""
    copied_from: str | None
    errors: int
    """Of the lint: a copy may name commands that mz.yaml does not have."""
    warnings: int
