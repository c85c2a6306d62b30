"""Facts: the JSON of commands about a project's set-up: `init`, `doctor`, `config`, `explain`."""

from __future__ import annotations

from typing import Any, Literal

from mz_cli.shapes.base import Shape


class FirstFile(Shape, frozen=True, kw_only=True):
    path: str
    """Relative to the repository."""
    does: Literal["keep", "make", "add to", "renew"]
    """What becomes of it; in a dry run, what would."""
    about: str
    content: str | None
    """What is written; with `add to`, what is added. Null: nothing is."""


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
    """Those that are installed."""
    files: tuple[FirstFile, ...]
    hints: tuple[str, ...]
    """What is still to be done by hand."""


class CheckShape(Shape, frozen=True, kw_only=True):
    name: str
    """Stable; an agent's is `agent:NAME`."""
    status: Literal["ok", "warn", "fail"]
    """`fail`: runs cannot work so."""
    summary: str
    hint: str | None


class DoctorShape(Shape, frozen=True, kw_only=True):
    """`mz doctor --json`."""

    repository: str | None
    """Null: the directory is in none, and nothing about a project was checked."""
    online: bool
    status: Literal["ok", "warn", "fail"]
    """The worst of all checks."""
    exit: int
    checks: tuple[CheckShape, ...]


class SettingShape(Shape, frozen=True, kw_only=True):
    name: str
    """As the file names it, such as `budget.run`."""
    value: Any
    """As the file would have it: text, number, list, mapping; null: none."""
    origin: str
    """`default`, `mz.yaml:14:7`, or the name of a variable."""
    description: str


class ConfigShape(Shape, frozen=True, kw_only=True):
    """`mz config show --json`: the settings in effect."""

    repository: str
    file: str | None
    """Null: there is no mz.yaml."""
    settings: tuple[SettingShape, ...]


class ValidShape(Shape, frozen=True, kw_only=True):
    """`mz config validate --json`, where everything is valid; what is not is an error on stderr (`mz.error/1`)."""

    repository: str
    file: str | None
    pipeline: str
    features: int | None
    """In the backlog; null: there is none yet."""
    warnings: tuple[str, ...]


class ExplainShape(Shape, frozen=True, kw_only=True):
    """`mz explain --json`."""

    kind: Literal["error", "exit"]
    code: str
    """`MZ2003`, or the number of an exit code."""
    title: str
    explanation: str
    exit: int | None
    """null: it is only ever a warning."""
    codes: tuple[str, ...]
    """Of an exit code: the errors that lead to it."""


class ExplainAllShape(Shape, frozen=True, kw_only=True):
    """`mz explain --json` without a code."""

    errors: tuple[ExplainShape, ...]
    exits: tuple[ExplainShape, ...]
