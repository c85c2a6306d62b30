"""JSON documents of `mz recordings`: list and lint."""

from __future__ import annotations

from mz_cli.shapes.base import Shape
from mz_cli.shapes.replay import ReplayFinding


class CassetteLine(Shape, frozen=True, kw_only=True):
    """One cassette. Unknown values are null; then `problem` has the reason."""

    path: str
    name: str | None
    pipeline: str | None
    agent: str | None
    provenance: str | None
    """`live`, `scripted-model`, `documented` or `copied`."""
    recordings: int
    features: tuple[str, ...]
    recorded: str | None
    """Start of the recorded run; ISO 8601, UTC."""
    age_days: int | None
    max_age_days: int | None
    """Days until its replies expire; null: never."""
    format: int | None
    bytes: int
    problem: str | None
    """Reason why it cannot be replayed. Only `mz recordings lint` reads every file; null here is no proof."""


class CassetteList(Shape, frozen=True, kw_only=True):
    exit: int
    library: tuple[str, ...]
    """Searched folders."""
    cassettes: tuple[CassetteLine, ...]


class NoticeShape(Shape, frozen=True, kw_only=True):
    """A possible problem, to be judged by a person."""

    message: str
    file: str
    """Path within the cassette; files of its repository follow `world.bundle:`."""
    line: int | None
    column: int | None
    """From 1."""


class LintedCassette(Shape, frozen=True, kw_only=True):
    path: str
    format: int | None
    recordings: int
    files: int
    bytes: int
    findings: tuple[ReplayFinding, ...]
    notices: tuple[NoticeShape, ...]


class RecordingsLint(Shape, frozen=True, kw_only=True):
    exit: int
    cassettes: tuple[LintedCassette, ...]
