"""JSON documents of `mz clean` and `mz clean --blobs`."""

from __future__ import annotations

from mz_cli.terminal.json import Shape


class CountAndSize(Shape, frozen=True, kw_only=True):
    """Number and size of the files of one kind."""

    count: int
    bytes: int
    """Size on disk; blobs are compressed."""


class GcResult(Shape, frozen=True, kw_only=True):
    """`mz clean --blobs --json`."""

    dry_run: bool
    """Nothing was removed; the numbers say what would be."""
    blobs: CountAndSize
    """Blobs that no event cites."""
    spools: CountAndSize
    """Output of agent calls whose outcome is recorded, or that no event cites."""
    files: CountAndSize
    """Unfinished files whose writer was killed."""
    freed_bytes: int
    kept_blobs: CountAndSize
    """Remaining blobs, including those too young to judge."""
    young_blobs: CountAndSize
    """Blobs that no event cites, younger than 24 hours."""


class LeftoverShape(Shape, frozen=True, kw_only=True):
    """One leftover of a run."""

    kind: str
    """`worktree`, `capture`, `rescue`, `spool`, `temporary` or `pull-request`."""
    run: str
    feature: str | None
    name: str
    """A path relative to the repository, for `temporary` an absolute one; or the name of a ref."""
    bytes: int | None
    """Null for a ref: git decides when its objects are deleted."""
    stays: str | None
    """Reason for keeping it; null: it is removed."""


class CleanResult(Shape, frozen=True, kw_only=True):
    """`mz clean --json`."""

    dry_run: bool
    """Nothing was removed; the list says what would be."""
    removed: tuple[LeftoverShape, ...]
    stays: tuple[LeftoverShape, ...]
    freed_bytes: int
