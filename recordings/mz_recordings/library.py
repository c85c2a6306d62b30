"""Adapter: cassettes as reviewable files. A folder with a `cassette.yaml` is a cassette.

What an older `mz` wrote is lifted when it is read; the first change of such a cassette writes the whole of it in
today's format, and keeps a copy of what it was.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from mz_events.names import parse_name

from mz_recordings.cassette import BUNDLE, EVENTS, FORMAT, MANIFEST, Cassette, Manifest, Recording, Taken, parse_time

BACKUPS = ".backup"
"""Beside the cassettes of a library; ignored by git."""
FILE_BYTES_MAX = 250_000_000


class CassetteUnusable(Exception):
    """A cassette cannot be read as what it says it is; names the file, and what to do."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class NewerFormat(CassetteUnusable):
    """A newer `mz` wrote it: nothing can be compared."""


class CassetteExists(CassetteUnusable):
    """There is a cassette already, and nobody said that it may be replaced."""


# writing --------------------------------------------------------------------------------------------------------------
def save(cassette: Cassette, place: Path, replace: bool = False) -> None:
    """Writes the cassette; in place of the one that was there only with `replace`. Raises CassetteExists, and
    CassetteUnusable when `place` holds something else."""
    check_vacant(place, replace)
    partial = place.with_name(place.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for path, data in _files(cassette):
        target = partial / path
        if target.exists():
            raise CassetteUnusable(target, "two recordings would have the same name")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    shutil.rmtree(place, ignore_errors=True)
    partial.rename(place)


def check_vacant(place: Path, replace: bool = False) -> None:
    """Raises CassetteExists and CassetteUnusable where nothing may be saved."""
    if not place.exists():
        return
    if (place / MANIFEST).is_file():
        if not replace:
            raise CassetteExists(place, "is a cassette already")
    elif not place.is_dir() or any(place.iterdir()):
        raise CassetteUnusable(place, "is not empty and no cassette; name another folder")


def renew(cassette: Cassette, place: Path) -> Path | None:
    """Writes a changed cassette over the one that it was made from. Where that had an older format, a copy of it is
    kept; returns where."""
    kept = keep_copy(place) if _format_of(place) < FORMAT else None
    save(cassette, place, replace=True)
    return kept


def keep_copy(place: Path) -> Path:
    """Copies the cassette into the library's folder of backups; returns where. Never replaces an earlier copy."""
    folder = place.parent / BACKUPS
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    name = f"{place.name}.format-{_format_of(place)}"
    numbered = (folder / (name if at == 1 else f"{name}.{at}") for at in range(1, 10_000))
    target = next(path for path in numbered if not path.exists())
    shutil.copytree(place, target)
    return target


def _files(cassette: Cassette) -> Iterator[tuple[str, bytes]]:
    yield MANIFEST, _yaml(msgspec.to_builtins(cassette.manifest)).encode()
    if cassette.bundle:
        yield BUNDLE, cassette.bundle
    for feature, events in cassette.stories.items():
        yield f"{feature}/{EVENTS}", events
    for recording, contents in cassette.taken:
        identity = recording.identity
        yield f"{identity.path}.json", msgspec.json.format(msgspec.json.encode(recording), indent=2) + b"\n"
        for name, data in contents.items():
            yield f"{identity.feature}/{name}", data


# reading --------------------------------------------------------------------------------------------------------------
def load(place: Path) -> Cassette:
    """The whole cassette, every digest checked. Raises CassetteUnusable and NewerFormat."""
    manifest = load_manifest(place)
    taken = tuple(_load_taken(path) for path in _recordings(place))
    ordered = sorted((_when(one), at) for at, one in enumerate(taken))
    stories = {
        feature: _read_checked(place / feature / EVENTS, sha256, f"{MANIFEST} has another digest")
        for feature, sha256 in manifest.stories.items()
    }
    known = manifest.world.bundle_sha256
    bundle = _read_checked(place / BUNDLE, known, f"{MANIFEST} has another digest") if known else b""
    return Cassette(manifest, tuple(taken[at] for _, at in ordered), stories, bundle)


def _when(one: Taken) -> tuple[str, str, int, int]:
    """Calls of one feature in the order in which they were made, as far as seconds tell."""
    identity = one.recording.identity
    return identity.feature, one.recording.recorded_at, identity.iteration, identity.attempt


def load_manifest(place: Path) -> Manifest:
    """`cassette.yaml` alone. Raises CassetteUnusable and NewerFormat."""
    path = place / MANIFEST
    try:
        found = yaml.safe_load(_read(path).decode())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CassetteUnusable(path, f"cannot be read ({error})") from error
    lifted = _lifted(path, found, MANIFEST_LIFTS)
    try:
        manifest = msgspec.convert(lifted, Manifest)
        for name in _names(manifest):
            parse_name(name)
        parse_time(manifest.world.clock_start)
    except (msgspec.ValidationError, ValueError) as error:
        raise CassetteUnusable(path, str(error)) from error
    return manifest


def _names(manifest: Manifest) -> Iterator[str]:
    """Everything that becomes part of a path."""
    world = manifest.world
    yield world.run
    yield from (item.feature for item in world.items)
    yield from (one.feature for one in world.delivered)
    yield from manifest.stories


def load_recording(path: Path) -> Recording:
    """One recording's own file. Raises CassetteUnusable and NewerFormat."""
    try:
        lifted = _lifted(path, msgspec.json.decode(_read(path)), RECORDING_LIFTS)
        recording = msgspec.convert(lifted, Recording)
        parse_time(recording.recorded_at)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CassetteUnusable(path, str(error)) from error
    return recording


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
        if Path(file.name).name != file.name:
            raise CassetteUnusable(path, f"names the file {file.name!r}, which does not lie beside it")
        beside = path.parent / file.name
        contents[file.name] = _read_checked(
            beside, file.sha256, f"{path.name} has another digest", f"is named by {path.name} and cannot be read"
        )
    return Taken(recording, contents)


def _read_checked(path: Path, sha256: str, why: str, absent: str = "cannot be read") -> bytes:
    data = _read(path, absent)
    if digest(data) != sha256:
        raise CassetteUnusable(path, f"was changed since it was recorded: {why}")
    return data


def _read(path: Path, absent: str = "cannot be read") -> bytes:
    """A plain file of sensible size: a link may lead out of the cassette."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise CassetteUnusable(path, "is no plain file")
        if status.st_size > FILE_BYTES_MAX:
            raise CassetteUnusable(path, f"is larger than {FILE_BYTES_MAX // 1_000_000} MB")
        return path.read_bytes()
    except OSError as error:
        raise CassetteUnusable(path, f"{absent} ({error.strerror})") from error


# formats --------------------------------------------------------------------------------------------------------------
Lift = Callable[[dict[str, Any]], dict[str, Any]]


def _manifest_2(found: dict[str, Any]) -> dict[str, Any]:
    """Format 1 knew neither the run's id nor what happened in it."""
    return {**found, "stories": {}, "world": {**_map(found.get("world")), "run": "replayed"}}


MANIFEST_LIFTS: Mapping[int, Lift] = {1: _manifest_2}
"""By format: what makes the next one of it. Once released, never removed."""
RECORDING_LIFTS: Mapping[int, Lift] = {1: lambda found: found}


def _lifted(path: Path, found: Any, lifts: Mapping[int, Lift]) -> dict[str, Any]:
    number = _number(path, found)
    for each in range(number, FORMAT):
        found = lifts[each](found)
    return {**found, "format": FORMAT}


def _number(path: Path, found: Any) -> int:
    number = found.get("format") if isinstance(found, dict) else None
    if not isinstance(number, int) or number < 1:
        raise CassetteUnusable(path, "names no format version")
    if number > FORMAT:
        raise NewerFormat(path, f"has format {number}; this mz knows {FORMAT}: use a newer one")
    return number


def _format_of(place: Path) -> int:
    return _number(place / MANIFEST, yaml.safe_load(_read(place / MANIFEST)))


def _map(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stand as blocks, so that a review can read them."""

    def represent_data(self, data: Any) -> yaml.Node:
        if isinstance(data, str) and "\n" in data and all(line == line.rstrip() for line in data.split("\n")):
            return self.represent_scalar("tag:yaml.org,2002:str", data, style="|")
        return super().represent_data(data)


def _yaml(content: Any) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
