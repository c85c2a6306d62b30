"""Facts: what a gate looks at, what its layers say, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from os.path import relpath
from pathlib import Path
from shlex import quote
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from mz_engine.config import Config
from mz_engine.exits import Exit, worst
from mz_recordings.findings import KINDS, Finding


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """What is judged. Nothing in it is changed by a gate."""

    root: Path
    here: Path
    """The current directory: commands that mend something are typed there."""
    environment: dict[str, str]
    today: datetime
    """With its zone; what is older than it may be is found by it."""
    config: Config
    """The settings, or those by default where they are invalid: the static layer says so."""
    cassettes: tuple[Path, ...]
    """Those of the library, or those that were named."""
    workers: int = 1
    """Cassettes that are played at the same time."""
    say: Callable[[str], None]
    """Hears what goes on while a layer takes long."""

    def shown(self, path: Path) -> str:
        """Relative to the project where it lies in it."""
        path, root = path.resolve(), self.root.resolve()
        return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)

    def typed(self, path: Path) -> str:
        """As a shell in the current directory takes it."""
        path, root = path.resolve(), self.root.resolve()
        return quote(relpath(path, self.here) if path.is_relative_to(root) else str(path))


class Checked(msgspec.Struct, frozen=True):
    """So many things of a kind were looked at, whatever was found."""

    kind: str
    """In the plural, such as `templates`."""
    count: int = 1


class Remark(msgspec.Struct, frozen=True):
    """Worth knowing, and no reason to fail."""

    words: str


Said: TypeAlias = Finding | Checked | Remark


class Layer(NamedTuple):
    """One kind of proof."""

    number: int
    name: str
    about: str
    """What it proves, in half a sentence."""
    check: Callable[[Project], Iterator[Said]]


Status = Literal["passed", "failed", "empty", "skipped"]


class LayerResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a layer."""

    number: int
    name: str
    about: str
    status: Status
    """empty: there was nothing to check, and that was allowed. skipped: it was not asked for."""
    reason: str = ""
    """Of an empty or skipped one."""
    duration_ms: int = 0
    checked: dict[str, int] = {}
    """How many things of each kind."""
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def checks(self) -> int:
        return sum(self.checked.values())


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, and what it rests on."""

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
        return worst(KINDS[finding.kind].exit for layer in self.layers for finding in layer.findings)
