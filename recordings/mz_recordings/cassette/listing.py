"""Overview of a library: descriptions and sizes of cassettes, without reading their recordings."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mz_recordings.cassette.files import CassetteUnreadable, is_recording, load_summary, read_sums
from mz_recordings.cassette.model import Manifest
from mz_recordings.cassette.safe_files import UnreadableFileError, walk


class CassetteSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Description of one cassette."""

    folder: Path
    manifest: Manifest | None
    """Without its evidence; None if it cannot be read."""
    format: int | None
    """As stored."""
    recordings: int
    size_bytes: int
    problem: str
    """Why it cannot be replayed; empty: no defect seen, but the files were not read."""


def summarize(folder: Path) -> CassetteSummary:
    """Describe a cassette. Never raises for its content."""
    manifest: Manifest | None = None
    format_number: int | None = None
    problem = ""
    try:
        format_number, manifest = load_summary(folder)
    except CassetteUnreadable as error:
        problem = str(error)
    sizes: dict[str, int] = {}
    try:
        sizes = {name: status.st_size for name, status in walk(folder)}
    except UnreadableFileError as error:
        problem = problem or str(error)
    return CassetteSummary(
        folder=folder,
        manifest=manifest,
        format=format_number,
        recordings=sum(map(is_recording, sizes)),
        size_bytes=sum(sizes.values()),
        problem=problem or _missing_file(folder, sizes),
    )


def _missing_file(folder: Path, names: dict[str, int]) -> str:
    """Return the reason if files are missing, else an empty string."""
    try:
        missing = [name for name in read_sums(folder) if name not in names]
    except CassetteUnreadable as error:
        return str(error)
    return f"{folder}: {missing[0]} is missing" if missing else ""
