"""Input and result types of `mz check` and its layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from os.path import relpath
from pathlib import Path
from shlex import quote
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from mz_engine.errors.diagnostics import Exit, most_severe
from mz_engine.model.config import Config
from mz_recordings.findings.model import KIND_PROPERTIES, Finding


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """The project to check; checking changes nothing in it."""

    root: Path
    cwd: Path
    """The current directory, in which suggested commands are run."""
    environment: dict[str, str]
    now: datetime
    """Current time with its zone; expiry dates are checked against it."""
    config: Config
    """The settings; the defaults if they are invalid, which the static layer reports."""
    cassettes: tuple[Path, ...]
    """Cassettes of the library, or the named ones."""
    workers: int = 1
    """Number of cassettes replayed in parallel."""
    report_progress: Callable[[str], None]
    """Receives progress messages of long layers."""

    def display_path(self, path: Path) -> str:
        """Return a path for display, relative to the project if it is inside."""
        path, root = path.resolve(), self.root.resolve()
        return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)

    def shell_path(self, path: Path) -> str:
        """Return a path quoted for a shell in the current directory."""
        path, root = path.resolve(), self.root.resolve()
        return quote(relpath(path, self.cwd) if path.is_relative_to(root) else str(path))


class CheckedItem(msgspec.Struct, frozen=True):
    """A number of things of one kind that were checked, whatever the result."""

    kind: str
    """In the plural, such as `templates`."""
    count: int = 1


class Remark(msgspec.Struct, frozen=True):
    """An observation that is no failure."""

    text: str


LayerOutput: TypeAlias = Finding | CheckedItem | Remark


class Layer(NamedTuple):
    """One group of checks."""

    number: int
    name: str
    about: str
    """Description, as half a sentence."""
    check: Callable[[Project], Iterator[LayerOutput]]
    may_be_empty: bool = False
    """True if a project may have nothing to check here."""


Status = Literal["passed", "failed", "empty", "skipped"]


class LayerResult(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    name: str
    about: str
    status: Status
    """empty: there was nothing to check, which was allowed. skipped: it was not selected."""
    reason: str = ""
    """Reason for `empty` or `skipped`."""
    duration_ms: int = 0
    checked: dict[str, int] = {}
    """Number of checked things by kind."""
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def checks(self) -> int:
        return sum(self.checked.values())


class CheckRun(msgspec.Struct, frozen=True, kw_only=True):
    """Results of all layers."""

    started: datetime
    """UTC."""
    finished: datetime
    duration_ms: int
    layers: tuple[LayerResult, ...]

    @property
    def first_failure(self) -> LayerResult | None:
        return next((layer for layer in self.layers if layer.status == "failed"), None)

    @property
    def exit(self) -> Exit:
        return most_severe(KIND_PROPERTIES[finding.kind].exit for layer in self.layers for finding in layer.findings)
