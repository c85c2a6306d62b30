"""Overview of a library: descriptions and sizes of cassettes, without reading their recordings."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mz_recordings.cassette import FORMAT, Manifest
from mz_recordings.files.library import SUMMED_SINCE, CassetteUnusable, is_recording, peek, sums_of
from mz_recordings.files.plainfiles import Unreadable, walk
from mz_recordings.files.sums import SUMS


class Shelved(msgspec.Struct, frozen=True, kw_only=True):
    """Description of one cassette."""

    place: Path
    manifest: Manifest | None
    """Without its evidence; None if it cannot be read."""
    format: int | None
    """As stored."""
    recordings: int
    bytes: int
    problem: str
    """Why it cannot be replayed; empty: no defect seen, but the files were not read."""


def look(place: Path) -> Shelved:
    """Describe a cassette. Never raises for its content."""
    manifest: Manifest | None = None
    number: int | None = None
    problem = ""
    try:
        number, manifest = peek(place)
    except CassetteUnusable as error:
        problem = str(error)
    names: dict[str, int] = {}
    try:
        names = {name: status.st_size for name, status in walk(place)}
    except Unreadable as error:
        problem = problem or str(error)
    return Shelved(
        place=place,
        manifest=manifest,
        format=number,
        recordings=sum(map(is_recording, names)),
        bytes=sum(names.values()),
        problem=problem or _incomplete(place, number or FORMAT, names),
    )


def _incomplete(place: Path, number: int, names: dict[str, int]) -> str:
    """Return the reason if files are missing, else an empty string."""
    if number < SUMMED_SINCE and SUMS not in names:
        return ""
    try:
        missing = [name for name in sums_of(place) if name not in names]
    except CassetteUnusable as error:
        return str(error)
    return f"{place}: {missing[0]} is missing" if missing else ""
