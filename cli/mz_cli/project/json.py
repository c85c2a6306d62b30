"""JSON documents of `mz init`, `mz doctor`, `mz config`, `mz help` and `mz pipelines`."""

from __future__ import annotations

from typing import Any, Literal

from mz_engine.errors.diagnostics import Diagnostic
from mz_engine.setup.checks import DoctorCheck

from mz_cli.terminal.json import Shape


class InitFile(Shape, frozen=True, kw_only=True):
    path: str
    """Relative to the repository."""
    action: Literal["keep", "make", "add to", "renew"]
    """Action on the file; in a dry run, the planned one."""
    about: str
    content: str | None = None
    """Text written; with `add to`, the added text. Null: nothing is written."""


class InitShape(Shape, frozen=True, kw_only=True):
    """`mz init --json`."""

    repository: str
    dry_run: bool
    stacks: tuple[str, ...]
    base: str | None
    commands: dict[str, str]
    setup: tuple[str, ...]
    agent: str
    agents: tuple[str, ...]
    """Installed agents."""
    files: tuple[InitFile, ...]
    hints: tuple[str, ...]
    """Steps left to do by hand."""


class DoctorShape(Shape, frozen=True, kw_only=True):
    """`mz doctor --json`."""

    repository: str | None
    """Null: outside of a repository; no project was checked."""
    online: bool
    status: Literal["ok", "warn", "fail"]
    """Worst status of all checks."""
    exit: int
    checks: tuple[DoctorCheck, ...]


class SettingShape(Shape, frozen=True, kw_only=True):
    name: str
    """Key in mz.yaml, such as `budget.run`."""
    value: Any
    """Value as in mz.yaml: text, number, list, mapping; null: none."""
    origin: str
    """`default`, `mz.yaml:14:7`, or the name of a variable."""
    description: str


class ConfigShape(Shape, frozen=True, kw_only=True):
    """`mz config show --json`: the settings in effect."""

    repository: str
    file: str | None
    """Null: no mz.yaml."""
    settings: tuple[SettingShape, ...]


class ConfigValidShape(Shape, frozen=True, kw_only=True):
    """`mz config validate --json` if everything is valid; errors go to stderr (`mz.error/1`)."""

    repository: str
    file: str | None
    pipeline: str
    features: int | None
    """Number of features in the backlog; null: no backlog yet."""
    warnings: tuple[str, ...]


class ExplainShape(Shape, frozen=True, kw_only=True):
    """`mz help CODE --json`."""

    kind: Literal["error", "exit"]
    code: str
    """`MZ2003`, or the number of an exit code."""
    title: str
    explanation: str
    exit: int | None
    """Null: the code is only used for warnings."""
    codes: tuple[str, ...]
    """For an exit code: the errors that lead to it."""


class ExplainAllShape(Shape, frozen=True, kw_only=True):
    """`mz help codes --json`."""

    errors: tuple[ExplainShape, ...]
    exits: tuple[ExplainShape, ...]


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


class LintResult(Shape, frozen=True, kw_only=True):
    """`mz pipelines lint --json`; the exit code is 10 if there are errors."""

    files: tuple[str, ...]
    errors: int
    warnings: int
    diagnostics: tuple[Diagnostic, ...]


class NewPipeline(Shape, frozen=True, kw_only=True):
    """`mz pipelines new NAME --json`."""

    name: str
    file: str
    """Relative to the repository."""
    copied_from: str | None
    errors: int
    """Lint errors: a copy may name commands that mz.yaml does not define."""
    warnings: int
