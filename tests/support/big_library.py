"""A library of as many cassettes as are wanted: copies of one, each under a name of its own."""

from __future__ import annotations

import os
from pathlib import Path

from mz_recordings.cassette.files import SUMS, digest, read_sums, write_sums
from mz_recordings.cassette.model import MANIFEST
from mz_recordings.cassette.safe_files import walk


def big_library(library: Path, cassette: Path, number: int) -> tuple[Path, ...]:
    """Fills the library with `number` copies of the cassette: `c0000`, `c0001`, ... Files that are the same are hard
    links to the cassette's own, so that some thousand recordings take seconds and no disk: change none of them in
    place."""
    names = [name for name, _ in walk(cassette)]
    manifest, sums = (cassette / MANIFEST).read_text(), read_sums(cassette)
    head = next(line for line in manifest.splitlines() if line.startswith("name: "))
    return tuple(_copy(library / f"c{at:04}", cassette, names, manifest.replace(head, f"name: c{at:04}", 1), sums)
                 for at in range(number))  # fmt: skip


def _copy(path: Path, cassette: Path, names: list[str], manifest: str, sums: dict[str, str]) -> Path:
    for folder in {path / name for name in names}:
        folder.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name not in (MANIFEST, SUMS):
            os.link(cassette / name, path / name)
    (path / MANIFEST).write_text(manifest)
    (path / SUMS).write_bytes(write_sums({**sums, MANIFEST: digest(manifest.encode())}))
    return path
