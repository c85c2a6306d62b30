"""Facts: the shapes of the JSON about a library of recordings: what is in it, and what should not be."""

from __future__ import annotations

from mz_cli.shapes.base import Shape
from mz_cli.shapes.replay import ReplayFinding


class CassetteLine(Shape, frozen=True, kw_only=True):
    """One cassette. What cannot be known is null; then `problem` says why."""

    path: str
    name: str | None
    pipeline: str | None
    agent: str | None
    provenance: str | None
    """`live`, `scripted-model`, `documented` or `seeded`."""
    recordings: int
    features: tuple[str, ...]
    recorded: str | None
    """When its run began; ISO 8601, UTC."""
    age_days: int | None
    max_age_days: int | None
    """How long its answers are believed; null: for ever."""
    format: int | None
    bytes: int
    problem: str | None
    """Why it cannot be played; null where nothing was seen: only `mz recordings lint` reads every file."""


class CassetteList(Shape, frozen=True, kw_only=True):
    exit: int
    library: tuple[str, ...]
    """Where it was looked."""
    cassettes: tuple[CassetteLine, ...]


class NoticeShape(Shape, frozen=True, kw_only=True):
    """Something to look at that is no fault for certain."""

    what: str
    file: str
    """Within the cassette; what lies in its repository follows `world.bundle:`."""
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
