"""Adapter: cassettes as reviewable files. A folder with a `cassette.yaml` is a cassette."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from mz_recordings.cassette import FORMAT, MANIFEST, Cassette, Manifest, Recording, Taken


class CassetteUnusable(Exception):
    """A cassette cannot be read as what it says it is; names the file, and what to do."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class NewerFormat(CassetteUnusable):
    """A newer `mz` wrote it: nothing can be compared."""


def save(cassette: Cassette, place: Path) -> None:
    """Writes the cassette in place of what was there. Raises CassetteUnusable when `place` holds something else."""
    if place.exists() and any(place.iterdir()) and not (place / MANIFEST).is_file():
        raise CassetteUnusable(place, "is not empty and no cassette; name another folder")
    partial = place.with_name(place.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for recording, contents in cassette.taken:
        folder = partial / recording.identity.feature
        folder.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.format(msgspec.json.encode(recording), indent=2)
        for name, data in {**contents, f"{recording.identity.name}.json": text + b"\n"}.items():
            if (folder / name).exists():
                raise CassetteUnusable(folder / name, "two recordings would have the same name")
            (folder / name).write_bytes(data)
    partial.mkdir(parents=True, exist_ok=True)
    (partial / MANIFEST).write_text(_yaml(msgspec.to_builtins(cassette.manifest)), encoding="utf-8")
    shutil.rmtree(place, ignore_errors=True)
    partial.rename(place)


def load(place: Path) -> Cassette:
    """The whole cassette, every digest checked. Raises CassetteUnusable and NewerFormat."""
    manifest = load_manifest(place)
    taken = tuple(_load_taken(path) for path in _recordings(place))
    ordered = sorted(taken, key=lambda one: (one.recording.identity.feature, one.recording.recorded_at))
    return Cassette(manifest, tuple(ordered))


def load_manifest(place: Path) -> Manifest:
    """`cassette.yaml` alone. Raises CassetteUnusable and NewerFormat."""
    path = place / MANIFEST
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise CassetteUnusable(path, f"cannot be read ({error})") from error
    _check_format(path, found)
    try:
        return msgspec.convert(found, Manifest)
    except msgspec.ValidationError as error:
        raise CassetteUnusable(path, str(error)) from error


def load_recording(path: Path) -> Recording:
    """One recording's own file. Raises CassetteUnusable and NewerFormat."""
    try:
        data = path.read_bytes()
        _check_format(path, msgspec.json.decode(data))
        return msgspec.json.decode(data, type=Recording)
    except (OSError, msgspec.DecodeError) as error:
        raise CassetteUnusable(path, str(error)) from error


def cassettes(library: Path) -> tuple[Path, ...]:
    """The cassettes of a library, by name."""
    return tuple(sorted(path.parent for path in library.glob(f"*/{MANIFEST}")))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _recordings(place: Path) -> Iterator[Path]:
    """The recordings' own files: an artifact in JSON has `.out.json`."""
    for path in sorted(place.glob("*/*.json")):
        if not path.name.endswith(".out.json"):
            yield path


def _load_taken(path: Path) -> Taken:
    recording = load_recording(path)
    if path.name != f"{recording.identity.name}.json" or path.parent.name != recording.identity.feature:
        raise CassetteUnusable(path, f"holds the recording {recording.identity.path}; its name must be that")
    contents: dict[str, bytes] = {}
    for file in recording.files:
        beside = path.parent / file.name
        try:
            contents[file.name] = beside.read_bytes()
        except OSError as error:
            raise CassetteUnusable(beside, f"is named by {path.name} and cannot be read") from error
        if digest(contents[file.name]) != file.sha256:
            raise CassetteUnusable(beside, f"was changed since it was recorded: {path.name} has another digest")
    return Taken(recording, contents)


def _check_format(path: Path, found: Any) -> None:
    if not isinstance(found, dict) or not isinstance(found.get("format"), int):
        raise CassetteUnusable(path, "names no format version")
    if found["format"] > FORMAT:
        raise NewerFormat(path, f"has format {found['format']}; this mz knows {FORMAT}: use a newer one")


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stand as blocks, so that a review can read them."""

    def represent_data(self, data: Any) -> yaml.Node:
        if isinstance(data, str) and "\n" in data and all(line == line.rstrip() for line in data.split("\n")):
            return self.represent_scalar("tag:yaml.org,2002:str", data, style="|")
        return super().represent_data(data)


def _yaml(content: Any) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
