"""Age of a project's recordings, for `mz doctor`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from mz_engine.check import Check
from mz_engine.errors import MzError
from mz_recordings.cassette import parse_time
from mz_recordings.files.library import CassetteUnusable, cassettes, peek

from mz_cli.recording import library_of

DAYS_MAX = 180


def recordings_check(root: Path, now: float) -> Check:
    """Check the age of the oldest cassette of the library. `now`: seconds since the epoch."""
    try:
        library = library_of(root)
    except MzError:
        return Check.warn("recordings", "not checked: the settings are invalid", "mz config validate")
    ages: dict[Path, int] = {}
    unusable: list[CassetteUnusable] = []
    for place in cassettes(library):
        try:
            ages[place] = age_days(peek(place)[1].world.clock_start, datetime.fromtimestamp(now, UTC))
        except CassetteUnusable as error:
            unusable.append(error)
    if unusable:
        said = f"{len(unusable)} of {len(unusable) + len(ages)} unreadable: {unusable[0]}"
        return Check.warn("recordings", said, "restore it from git, or record it again; mz recordings list")
    if not ages:
        return Check.ok("recordings", "none yet")
    oldest = max(ages, key=ages.__getitem__)
    name = oldest.relative_to(root) if oldest.is_relative_to(root) else oldest
    said = f"{len(ages)}, the oldest {ages[oldest]} days: {name}"
    if ages[oldest] > DAYS_MAX:
        return Check.warn("recordings", said, "agents and models may have changed; record it again")
    return Check.ok("recordings", said)


def age_days(recorded: str, today: datetime) -> int:
    """Return full days since a time in the format of cassettes."""
    return (today - parse_time(recorded)).days
