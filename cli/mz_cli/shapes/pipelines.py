"""JSON documents of `mz pipelines`: list, show, lint, new."""

from __future__ import annotations

from typing import Any

from mz_cli.shapes.base import Shape


class PipelineListed(Shape, frozen=True, kw_only=True):
    """One pipeline that `pipeline:` in mz.yaml may name."""

    name: str
    file: str | None
    """Relative to the repository; null: built in."""
    chosen: bool
    """Selected by mz.yaml, a variable or the default."""
    phases: tuple[str, ...]
    """Phases of the pipeline; empty if the file cannot be parsed."""
    errors: int
    warnings: int


class PipelineList(Shape, frozen=True, kw_only=True):
    """`mz pipelines list --json`."""

    pipelines: tuple[PipelineListed, ...]


class PipelineShown(Shape, frozen=True, kw_only=True):
    """`mz pipelines show NAME --json`."""

    name: str
    file: str | None
    """Relative to the repository; null: built in."""
    definition: dict[str, Any]
    """All keys of docs/pipelines.md, including defaults; timeouts in seconds."""


class FileLocation(Shape, frozen=True, kw_only=True):
    """Location in a file; line and column count from 1."""

    file: str
    line: int | None
    """Null: the whole file."""
    column: int | None


class DiagnosticShape(Shape, frozen=True, kw_only=True):
    """One error or warning."""

    severity: str
    """`error` or `warning`."""
    code: str
    """Error code; `mz explain CODE` describes it."""
    message: str
    hint: str | None
    where: FileLocation | None


class LintResult(Shape, frozen=True, kw_only=True):
    """`mz pipelines lint --json`; the exit code is 10 if there are errors."""

    files: tuple[str, ...]
    errors: int
    warnings: int
    diagnostics: tuple[DiagnosticShape, ...]


class NewPipeline(Shape, frozen=True, kw_only=True):
    """`mz pipelines new NAME --json`."""

    name: str
    file: str
    """Relative to the repository."""
    copied_from: str | None
    errors: int
    """Lint errors: a copy may name commands that mz.yaml does not define."""
    warnings: int
