"""Age of a project's recordings, for `mz doctor`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from mz_engine.errors.diagnostics import MzError
from mz_engine.setup.checks import CheckOutcome, ok, warn
from mz_recordings.cassette.files import CassetteUnreadable, list_cassettes, load_summary
from mz_recordings.cassette.model import parse_time

from mz_cli.common.recording import library_path

DAYS_MAX = 180


def recordings_check(root: Path, now: float) -> CheckOutcome:
    """Check the age of the oldest cassette of the library. `now`: seconds since the epoch."""
    try:
        library = library_path(root)
    except MzError:
        return warn("not checked: the settings are invalid", "mz config validate")
    ages: dict[Path, int] = {}
    unusable: list[CassetteUnreadable] = []
    for cassette_path in list_cassettes(library):
        try:
            clock_start = load_summary(cassette_path).fixture.clock_start
            ages[cassette_path] = days_since(clock_start, datetime.fromtimestamp(now, UTC))
        except CassetteUnreadable as error:
            unusable.append(error)
    if unusable:
        summary = f"{len(unusable)} of {len(unusable) + len(ages)} unreadable: {unusable[0]}"
        return warn(summary, "restore it from git, or record it again; mz recordings list")
    if not ages:
        return ok("none yet")
    oldest = max(ages, key=ages.__getitem__)
    name = oldest.relative_to(root) if oldest.is_relative_to(root) else oldest
    summary = f"{len(ages)}, the oldest {ages[oldest]} days: {name}"
    if ages[oldest] > DAYS_MAX:
        return warn(summary, "agents and models may have changed; record it again")
    return ok(summary)


def days_since(recorded: str, today: datetime) -> int:
    """Return full days since a time in the format of cassettes."""
    return (today - parse_time(recorded)).days
