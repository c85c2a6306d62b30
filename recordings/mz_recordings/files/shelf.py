"""Adapter: what a library holds, at a glance: descriptions and sizes of cassettes, without reading what they hold."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mz_recordings.cassette import FORMAT, Manifest
from mz_recordings.files.library import SUMMED_SINCE, CassetteUnusable, is_recording, peek, sums_of
from mz_recordings.files.plainfiles import Unreadable, walk
from mz_recordings.files.sums import SUMS


class Shelved(msgspec.Struct, frozen=True, kw_only=True):
    """One cassette from the outside."""

    place: Path
    manifest: Manifest | None
    """Without its evidence; None where it cannot be read."""
    format: int | None
    """As it was written."""
    recordings: int
    bytes: int
    problem: str
    """Why it cannot be played; empty: nothing was seen. What is in its files was not looked at."""


def look(place: Path) -> Shelved:
    """Never raises for what is in a cassette."""
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
    """Words for files that are gone; empty where none is."""
    if number < SUMMED_SINCE and SUMS not in names:
        return ""
    try:
        gone = [name for name in sums_of(place) if name not in names]
    except CassetteUnusable as error:
        return str(error)
    return f"{place}: {gone[0]} is gone" if gone else ""
