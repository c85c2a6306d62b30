"""Cassettes as reviewable files. A folder with a `cassette.yaml` is a cassette.

Older formats are upgraded when read; the first change of such a cassette writes it in the current format and keeps a
copy of the old one. A cassette is replaced atomically: readers see the old or the new one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from mz_events.names import parse_name

from mz_recordings.cassette import BUNDLE, EVENTS, FORMAT, MANIFEST, Cassette, Manifest, Recording, Taken, parse_time
from mz_recordings.files.manifestyaml import parse_manifest_text, write_yaml
from mz_recordings.files.plainfiles import FILE_BYTES_MAX, TEXT_BYTES_MAX, Unreadable, locked, read_plain, walk
from mz_recordings.files.sums import SUMS, parse_sums, write_sums
from mz_recordings.files.swap import NEW, beside, put, recover
from mz_recordings.recording.storycheck import Made, calls_in, wrong_in

BACKUPS = ".backup"
"""Folder beside the cassettes of a library; ignored by git."""
CASSETTE_BYTES_MAX = 1_000_000_000
SUMMED_SINCE = 2
"""First format with SHA256SUMS of all files."""
TOLD_SINCE = 2
"""First format with a trace of every feature."""
YEARS = (2000, 2999)
DAYS_MAX = 36_500
PRIORITY_MAX = 2**31


class CassetteUnusable(Exception):
    """A cassette cannot be read; names the file and the reason."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class NewerFormat(CassetteUnusable):
    """A newer `mz` wrote the cassette, so nothing can be compared."""


class CassetteExists(CassetteUnusable):
    """The cassette exists and may not be replaced."""


class CassetteChanged(CassetteUnusable):
    """Another process changed the cassette after it was read, so it must not be replaced."""


# writing --------------------------------------------------------------------------------------------------------------
def save(cassette: Cassette, place: Path, replace: bool = False) -> None:
    """Write the cassette; replace an existing one only with `replace`. Raises CassetteExists, and CassetteUnreadable if
    `folder` holds something else."""
    _save(cassette, place, replace, None)


def _save(cassette: Cassette, place: Path, replace: bool, seal: str | None) -> None:
    check_vacant(place, replace)
    with beside(place.absolute()) as partial:
        write_copy(cassette, partial / NEW)
        with locked(place.parent, alone=True):
            check_vacant(place, replace)
            if seal is not None and seal_of(place) != seal:
                raise CassetteChanged(place, "was changed by another process in the meantime; replay it again")
            put(partial, place.absolute())


def write_copy(cassette: Cassette, folder: Path) -> None:
    """Write the cassette to an empty or new folder, without flushing to disk. Raises CassetteUnreadable."""
    digests: dict[str, str] = {}
    for path, data in _files(cassette):
        target = folder / path
        if target.exists():
            raise CassetteUnusable(target, "two recordings would have the same name")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        digests[path] = digest(data)
    (folder / SUMS).write_bytes(write_sums(digests))


def check_vacant(place: Path, replace: bool = False) -> None:
    """Raise CassetteExists or CassetteUnreadable if nothing may be saved here."""
    if not place.exists():
        recover(place.parent)
    if not place.exists():
        return
    if (place / MANIFEST).is_file():
        if not replace:
            raise CassetteExists(place, "already exists")
    elif not place.is_dir() or any(place.iterdir()):
        raise CassetteUnusable(place, "is neither empty nor a cassette; name another folder")


def renew(cassette: Cassette, place: Path, seal: str | None = None) -> Path | None:
    """Write a changed cassette over its original; return the path of the copy that is kept of an older format.

    Raises CassetteChanged if the cassette no longer has the given `seal`, and CassetteUnreadable if a feature has no
    trace, which older formats lacked.
    """
    if untold := untold_in(cassette.manifest):
        why = f"has no trace of {', '.join(untold)}; add it with: mz replay {place} --accept EVENT --reason TEXT"
        raise CassetteUnusable(place, why)
    kept = keep_copy(place) if written_format(place) < FORMAT else None
    _save(cassette, place, True, seal)
    return kept


def seal_of(place: Path) -> str:
    """Return a digest over all bytes of the cassette. Raises CassetteUnreadable."""
    found = {name: digest(_read(place / name, FILE_BYTES_MAX)) for name, _ in _walked(place)}
    return digest(write_sums(found))


def keep_copy(place: Path) -> Path:
    """Copy the cassette to the library's backup folder, never over an earlier copy; return the path."""
    folder = place.parent / BACKUPS
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    name = f"{place.name}.format-{written_format(place)}"
    numbered = (folder / (name if at == 1 else f"{name}.{at}") for at in range(1, 10_000))
    target = next(path for path in numbered if not path.exists())
    shutil.copytree(place, target)
    return target


def _files(cassette: Cassette) -> Iterator[tuple[str, bytes]]:
    yield MANIFEST, write_yaml(msgspec.to_builtins(cassette.manifest)).encode()
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
    """Read a cassette and verify every digest. Raises CassetteUnreadable and NewerFormat."""
    return load_written(place)[1]


def load_written(place: Path) -> tuple[int, Cassette]:
    """Return the stored format and the cassette, as `load`."""
    number, cassette = _load(place)
    if number >= TOLD_SINCE and (untold := untold_in(cassette.manifest)):
        raise CassetteUnusable(place / MANIFEST, f"names no trace of {', '.join(untold)}")
    return number, cassette


def load_part(place: Path) -> Cassette:
    """Read a cassette whose features may lack traces. Raises CassetteUnreadable and NewerFormat."""
    return _load(place)[1]


def _load(place: Path) -> tuple[int, Cassette]:
    if not os.path.lexists(place):
        recover(place.parent)
    with locked(place.parent, alone=False):
        return _Reader(place).cassette()


def untold_in(manifest: Manifest) -> tuple[str, ...]:
    """Return the features without a trace, whose decisions cannot be compared."""
    return tuple(item.feature for item in manifest.world.items if item.feature not in manifest.stories)


class _Reader:
    """Reads one cassette and collects the digest of every file that it reads."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._read: dict[str, str] = {}
        self._format = FORMAT

    def cassette(self) -> tuple[int, Cassette]:
        number, manifest = _manifest(self._place / MANIFEST, self._bytes(MANIFEST, TEXT_BYTES_MAX))
        self._format = number
        taken = tuple(self._taken(path) for path in self._recordings())
        stories = {
            feature: self._checked(f"{feature}/{EVENTS}", sha256, f"{MANIFEST} has another digest")
            for feature, sha256 in manifest.stories.items()
        }
        for feature, told in stories.items():
            if why := wrong_in(told):
                raise CassetteUnusable(self._place / feature / EVENTS, why)
        calls = {feature: calls_in(told) for feature, told in stories.items()}
        ordered = sorted((_when(call, calls), at) for at, call in enumerate(taken))
        bundle_sha256 = manifest.world.bundle_sha256
        bundle = self._checked(BUNDLE, bundle_sha256, f"{MANIFEST} has another digest") if bundle_sha256 else b""
        if number >= SUMMED_SINCE or os.path.lexists(self._place / SUMS):
            self._compare(sums_of(self._place))
        return number, Cassette(manifest, tuple(taken[at] for _, at in ordered), stories, bundle)

    def _recordings(self) -> Iterator[str]:
        """Yield the paths of recordings; artifacts in JSON end in `.out.json`.

        Raises CassetteUnreadable for clashing file names and for too much data.
        """
        total, seen = 0, dict[str, str]()
        for name, status in _walked(self._place):
            total += status.st_size
            other = seen.setdefault(name.casefold(), name)
            if other != name:
                raise CassetteUnusable(
                    self._place / name, f"and {other} are the same file on case-insensitive file systems"
                )
            if total > CASSETTE_BYTES_MAX:
                raise CassetteUnusable(self._place, f"is larger than {CASSETTE_BYTES_MAX // 1_000_000} MB")
            if is_recording(name):
                yield name

    def _taken(self, name: str) -> Taken:
        path = self._place / name
        number, recording = _recording(path, self._bytes(name, TEXT_BYTES_MAX))
        if number > self._format:
            raise CassetteUnusable(path, f"has format {number} in a cassette of format {self._format}")
        if name != f"{recording.identity.path}.json":
            raise CassetteUnusable(path, f"contains the recording {recording.identity.path}; the names must agree")
        contents: dict[str, bytes] = {}
        for file in recording.files:
            if Path(file.name).name != file.name or not file.name.isprintable():
                raise CassetteUnusable(path, f"names the file {file.name!r}, which is not in the same folder")
            beside = f"{recording.identity.feature}/{file.name}"
            contents[file.name] = self._checked(
                beside, file.sha256, f"{path.name} has another digest", f"is named by {path.name} and "
            )
        return Taken(recording, contents)

    def _checked(self, name: str, sha256: str, why: str, absent: str = "") -> bytes:
        data = self._bytes(name, FILE_BYTES_MAX, absent)
        if self._read[name] != sha256:
            raise CassetteUnusable(self._place / name, f"was changed since it was recorded: {why}")
        return data

    def _bytes(self, name: str, bytes_max: int, absent: str = "") -> bytes:
        data = _read(self._place / name, bytes_max, absent)
        self._read[name] = digest(data)
        return data

    def _compare(self, sums: Mapping[str, str]) -> None:
        for name, sha256 in self._read.items():
            if name not in sums:
                raise CassetteUnusable(self._place / name, f"was added by hand: it is not listed in {SUMS}")
            if sums[name] != sha256:
                raise CassetteUnusable(
                    self._place / name, f"was changed since it was recorded: {SUMS} has another digest"
                )
        for name in sums:
            if name not in self._read:
                why = "is not part of the cassette" if os.path.lexists(self._place / name) else "is missing"
                raise CassetteUnusable(self._place / SUMS, f"lists {name}, which {why}")


def is_recording(name: str) -> bool:
    """Return True if this path within a cassette is that of a recording."""
    return name.count("/") == 1 and name.endswith(".json") and not name.endswith(".out.json")


def _when(one: Taken, calls: Mapping[str, Mapping[Made, int]]) -> tuple[str, int, str, int, int]:
    """Return a sort key: position in the feature's trace, else the time of the recording in seconds."""
    identity = one.recording.identity
    positions = calls.get(identity.feature, {})
    key = identity.phase, identity.unit, identity.iteration, identity.attempt, identity.role
    return (
        identity.feature,
        positions.get(key, len(positions)),
        one.recording.recorded_at,
        identity.iteration,
        identity.attempt,
    )


def sums_of(place: Path) -> dict[str, str]:
    """Return the digests of SHA256SUMS by path. Raises CassetteUnreadable."""
    path = place / SUMS
    try:
        return parse_sums(_read(path, TEXT_BYTES_MAX))
    except ValueError as error:
        raise CassetteUnusable(path, f"was changed by hand: {error}") from error


def load_manifest(place: Path) -> Manifest:
    """Read `cassette.yaml` only. Raises CassetteUnreadable and NewerFormat."""
    path = place / MANIFEST
    return _manifest(path, _read(path, TEXT_BYTES_MAX))[1]


def peek(place: Path) -> tuple[int, Manifest]:
    """Return the stored format and `cassette.yaml` without its evidence, which is mostly not parsed. Raises
    CassetteUnreadable and NewerFormat."""
    path = place / MANIFEST
    return _manifest(path, _read(path, TEXT_BYTES_MAX), False)


def _manifest(path: Path, data: bytes, evidence: bool = True) -> tuple[int, Manifest]:
    """Return the stored format and the manifest."""
    try:
        found = parse_manifest_text(data.decode(), evidence)
    except ValueError as error:
        raise CassetteUnusable(path, f"cannot be read ({error})") from error
    try:
        manifest = msgspec.convert(_lifted(path, found, MANIFEST_LIFTS), Manifest)
        for name in _names(manifest):
            parse_name(name)
        _check_numbers(manifest)
    except ValueError as error:
        raise CassetteUnusable(path, str(error)) from error
    return found["format"], manifest


def _names(manifest: Manifest) -> Iterator[str]:
    """Yield all names that become parts of paths."""
    world = manifest.world
    yield world.run
    yield from (item.feature for item in world.items)
    yield from (dependency.feature for dependency in world.delivered)
    yield from manifest.stories


def _check_numbers(manifest: Manifest) -> None:
    """Raise ValueError for numbers and times out of range."""
    _check_time(manifest.world.clock_start)
    if manifest.max_age_days is not None and not 1 <= manifest.max_age_days <= DAYS_MAX:
        raise ValueError(f"`max_age_days` must be between 1 and {DAYS_MAX}")
    if any(abs(item.priority) > PRIORITY_MAX for item in manifest.world.items):
        raise ValueError("the priority of an item is too large")


def _check_time(text: str) -> None:
    if not YEARS[0] <= parse_time(text).year <= YEARS[1]:
        raise ValueError(f"{text} is not a plausible time")


def _recording(path: Path, data: bytes) -> tuple[int, Recording]:
    """Return the stored format and the recording."""
    try:
        found = msgspec.json.decode(data)
        recording = msgspec.convert(_lifted(path, found, RECORDING_LIFTS), Recording)
        _check_time(recording.recorded_at)
        if recording.accepted is not None:
            _check_time(recording.accepted.at)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CassetteUnusable(path, str(error)) from error
    return found["format"], recording


def cassettes(library: Path) -> tuple[Path, ...]:
    """Return the cassettes of a library by name, including damaged ones. Hidden folders are skipped."""
    recover(library)
    try:
        names = sorted(entry.name for entry in os.scandir(library) if not entry.name.startswith("."))
    except OSError:
        return ()
    return tuple(library / name for name in names if is_cassette(library / name))


def is_cassette(place: Path) -> bool:
    """Return True if the folder is a cassette, the remains of one, or cannot be examined."""
    if not os.path.lexists(place):
        recover(place.parent)
    for name in (MANIFEST, SUMS):
        try:
            os.lstat(place / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return True
        return True
    return _holds_recordings(place)


def _holds_recordings(place: Path) -> bool:
    """Return True if a subfolder holds the files of a call, recognised by their names."""
    try:
        with os.scandir(place) as entries:
            folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        return any(_holds_a_call(folder) for folder in folders if not folder.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _holds_a_call(folder: os.DirEntry[str]) -> bool:
    with os.scandir(folder) as entries:
        names = {entry.name for entry in entries}
    return any(name.endswith(".json") and f"{name.removesuffix('.json')}.prompt.md" in names for name in names)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _walked(place: Path) -> Iterator[tuple[str, os.stat_result]]:
    try:
        yield from walk(place)
    except Unreadable as error:
        raise CassetteUnusable(error.path, error.why) from error


def _read(path: Path, bytes_max: int, absent: str = "") -> bytes:
    try:
        return read_plain(path, bytes_max)
    except Unreadable as error:
        raise CassetteUnusable(path, f"{absent if error.missing else ''}{error.why}") from error


# formats --------------------------------------------------------------------------------------------------------------
Lift = Callable[[dict[str, Any]], dict[str, Any]]


def _manifest_2(found: dict[str, Any]) -> dict[str, Any]:
    """Upgrade format 1, which had neither the run's id nor traces. Raises ValueError if it has them."""
    if "stories" in found:
        raise ValueError("has format 1 and names traces, which format 1 did not have: it was changed by hand")
    return {**found, "stories": {}, "world": {**_map(found.get("world")), "run": "replayed"}}


MANIFEST_LIFTS: Mapping[int, Lift] = {1: _manifest_2}
"""By format: the upgrade to the next one. Never removed after a release."""
RECORDING_LIFTS: Mapping[int, Lift] = {1: lambda found: found}


def _lifted(path: Path, found: Any, lifts: Mapping[int, Lift]) -> dict[str, Any]:
    number = _number(path, found)
    for version in range(number, FORMAT):
        found = lifts[version](found)
    return {**found, "format": FORMAT}


def _number(path: Path, found: Any) -> int:
    number = found.get("format") if isinstance(found, dict) else None
    if type(number) is not int or number < 1:
        raise CassetteUnusable(path, "names no format version")
    if number > FORMAT:
        raise NewerFormat(path, f"has format {number}; this mz reads up to {FORMAT}: use a newer mz")
    return number


def written_format(place: Path) -> int:
    """Return the stored format of a cassette. Raises CassetteUnreadable and NewerFormat."""
    path = place / MANIFEST
    try:
        return _number(path, parse_manifest_text(_read(path, TEXT_BYTES_MAX).decode(), False))
    except ValueError as error:
        raise CassetteUnusable(path, f"cannot be read ({error})") from error


def _map(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
