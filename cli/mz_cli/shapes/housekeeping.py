"""Facts: the shapes of the JSON about what is cleaned up: clean, gc."""

from __future__ import annotations

from mz_cli.shapes.base import Shape


class HeapShape(Shape, frozen=True, kw_only=True):
    """So many things of one kind."""

    count: int
    bytes: int
    """On the disk: blobs are compressed."""


class GcResult(Shape, frozen=True, kw_only=True):
    """`mz gc --json`."""

    dry_run: bool
    """Nothing went; the numbers say what would."""
    blobs: HeapShape
    """That no event cites."""
    spools: HeapShape
    """Output of agent calls whose outcome is recorded, or that no event knows."""
    files: HeapShape
    """Never finished: their writer was killed."""
    freed_bytes: int
    kept_blobs: HeapShape
    """That stay, those that are too young to be sure included."""
    young_blobs: HeapShape
    """That no event cites, younger than 24 hours."""


class LeftoverShape(Shape, frozen=True, kw_only=True):
    """One thing that a run left."""

    kind: str
    """`worktree`, `capture`, `rescue`, `spool`, `temporary` or `pull-request`."""
    run: str
    feature: str | None
    name: str
    """A path relative to the repository, for `temporary` an absolute one; or the name of a ref."""
    bytes: int | None
    """Null for a ref: git decides when its objects go."""
    stays: str | None
    """Why it stays; null: it goes."""


class CleanResult(Shape, frozen=True, kw_only=True):
    """`mz clean --json`."""

    dry_run: bool
    """Nothing went; the list says what would."""
    removed: tuple[LeftoverShape, ...]
    stays: tuple[LeftoverShape, ...]
    freed_bytes: int
