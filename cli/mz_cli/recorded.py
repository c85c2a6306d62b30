"""Adapter: how old a project's recordings are. They are the user's files, kept in git below `recordings/`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from mz_engine.check import Check
from mz_recordings.cassette import MANIFEST
from mz_recordings.library import CassetteUnusable, load_manifest

FOLDER = "recordings"
DAYS_MAX = 180
DEPTHS = ("*", "*/*")
"""`recordings/NAME`, or one folder deeper."""


def recordings_check(root: Path, now: float) -> Check:
    """The age of the oldest cassette; `now` counts seconds since the epoch."""
    ages: dict[str, int] = {}
    for place in _cassettes(root / FOLDER):
        name = str(place.relative_to(root))
        try:
            begun = datetime.fromisoformat(load_manifest(place).world.clock_start)
        except (CassetteUnusable, ValueError) as error:
            return Check.warn("recordings", str(error), "record it again, or remove it")
        ages[name] = (datetime.fromtimestamp(now, UTC) - begun).days
    if not ages:
        return Check.ok("recordings", "none yet")
    oldest = max(ages, key=ages.__getitem__)
    said = f"{len(ages)}, the oldest {ages[oldest]} days: {oldest}"
    if ages[oldest] > DAYS_MAX:
        return Check.warn("recordings", said, "agents and models have changed since; record it again")
    return Check.ok("recordings", said)


def _cassettes(folder: Path) -> Iterator[Path]:
    for depth in DEPTHS:
        yield from sorted(path.parent for path in folder.glob(f"{depth}/{MANIFEST}"))
