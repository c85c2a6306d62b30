"""Cassettes as reviewable files. A folder with a `cassette.yaml` is a cassette.

A cassette is replaced atomically: readers see the old or the new one. `cassette.yaml` may come from anywhere, so
aliases, which can expand a few lines beyond any memory, and deep nesting are rejected. SHA256SUMS, in the format of
`sha256sum`, reveals a manual change of any byte, also where no other digest covers it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from mz_engine.decoding.yaml import RESOLVERS, CSafeDumper, parse_yaml
from mz_engine.errors.diagnostics import MzError
from mz_events.names import parse_name

from mz_recordings.cassette.model import (
    BUNDLE,
    COMMANDS,
    EVENTS,
    FORMAT,
    MANIFEST,
    Cassette,
    Manifest,
    RecordedCall,
    RecordedCommand,
    Recording,
    parse_time,
)
from mz_recordings.cassette.safe_files import (
    FILE_BYTES_MAX,
    NEW,
    TEXT_BYTES_MAX,
    locked,
    read_plain,
    replace_folder,
    restore_old,
    walk,
    work_folder,
)
from mz_recordings.cassette.safe_files import CassetteUnreadable as CassetteUnreadable
from mz_recordings.cassette.trace import call_positions, find_defect

S = TypeVar("S", Manifest, Recording)

CASSETTE_BYTES_MAX = 1_000_000_000
YEARS = (2000, 2999)


class NewerFormat(CassetteUnreadable):
    """A newer `mz` wrote the cassette, so nothing can be compared."""


class CassetteExists(CassetteUnreadable):
    """The cassette exists and may not be replaced."""


class CassetteChanged(CassetteUnreadable):
    """Another process changed the cassette after it was read, so it must not be replaced."""


# writing --------------------------------------------------------------------------------------------------------------
def save(cassette: Cassette, folder: Path, replace: bool = False, expected_digest: str | None = None) -> None:
    """Write the cassette; replace an existing one only with `replace`, and only with this digest.

    Raises CassetteExists, CassetteChanged, and CassetteUnreadable if `folder` holds something else.
    """
    check_vacant(folder, replace)
    with work_folder(folder.absolute()) as partial:
        write_copy(cassette, partial / NEW)
        with locked(folder.parent, exclusive=True):
            check_vacant(folder, replace)
            if expected_digest is not None and digest_of(folder) != expected_digest:
                raise CassetteChanged(folder, "was changed by another process in the meantime; replay it again")
            replace_folder(partial, folder.absolute())


def write_copy(cassette: Cassette, folder: Path) -> None:
    """Write the cassette to an empty or new folder, without flushing to disk. Raises CassetteUnreadable."""
    digests: dict[str, str] = {}
    for path, data in cassette_files(cassette):
        target = folder / path
        if target.exists():
            raise CassetteUnreadable(target, "two recordings would have the same name")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        digests[path] = digest(data)
    (folder / SUMS).write_bytes(write_sums(digests))


def check_vacant(folder: Path, replace: bool = False) -> None:
    """Raise CassetteExists or CassetteUnreadable if nothing may be saved here."""
    if not folder.exists():
        restore_old(folder.parent)
    if not folder.exists():
        return
    if (folder / MANIFEST).is_file():
        if not replace:
            raise CassetteExists(folder, "already exists")
    elif not folder.is_dir() or any(folder.iterdir()):
        raise CassetteUnreadable(folder, "is neither empty nor a cassette; name another folder")


def overwrite(cassette: Cassette, folder: Path, expected_digest: str | None = None) -> None:
    """Write a changed cassette over its original.

    Raises CassetteChanged if the cassette has another digest by now, and CassetteUnreadable if a feature has no
    trace.
    """
    _check_traces(cassette.manifest, folder)
    save(cassette, folder, True, expected_digest)


def digest_of(folder: Path) -> str:
    """Return a digest over all bytes of the cassette. Raises CassetteUnreadable."""
    digests = {name: digest(read_plain(folder / name)) for name, _ in walk(folder)}
    return digest(write_sums(digests))


def cassette_files(cassette: Cassette) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of every file but SHA256SUMS."""
    yield MANIFEST, write_yaml(msgspec.to_builtins(cassette.manifest)).encode()
    if cassette.bundle:
        yield BUNDLE, cassette.bundle
    for feature, events in cassette.traces.items():
        yield f"{feature}/{EVENTS}", events
    if cassette.commands is not None:
        yield COMMANDS, b"".join(msgspec.json.encode(entry) + b"\n" for entry in cassette.commands)
    for recording, contents in cassette.calls:
        identity = recording.identity
        yield f"{identity.path}.json", msgspec.json.format(msgspec.json.encode(recording), indent=2) + b"\n"
        for name, data in contents.items():
            yield f"{identity.feature}/{name}", data


# reading --------------------------------------------------------------------------------------------------------------
def load(folder: Path, evidence: bool = True) -> Cassette:
    """Read a cassette and verify every digest; without `evidence`, that part of the manifest, which a replay does not
    need, is not parsed. Raises CassetteUnreadable and NewerFormat."""
    cassette = load_without_traces(folder, evidence)
    _check_traces(cassette.manifest, folder)
    return cassette


def load_without_traces(folder: Path, evidence: bool = True) -> Cassette:
    """Read a cassette whose features may lack traces. Raises CassetteUnreadable and NewerFormat."""
    if not os.path.lexists(folder):
        restore_old(folder.parent)
    with locked(folder.parent, exclusive=False):
        return _Reader(folder).read(evidence)


def _check_traces(manifest: Manifest, folder: Path) -> None:
    """Raise CassetteUnreadable if a feature has no trace, so that its decisions could not be compared."""
    untraced = [item.feature for item in manifest.fixture.items if item.feature not in manifest.traces]
    if untraced:
        raise CassetteUnreadable(folder / MANIFEST, f"names no trace of {', '.join(untraced)}")


class _Reader:
    """Reads one cassette and collects the digest of every file that it reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[str, str] = {}

    def read(self, evidence: bool) -> Cassette:
        manifest = _parse_manifest(self._folder / MANIFEST, self._read_bytes(MANIFEST, TEXT_BYTES_MAX), evidence)
        calls = [self._read_call(path) for path in self._recordings()]
        traces, positions = dict[str, bytes](), dict[str, dict[str, int]]()
        for feature, sha256 in manifest.traces.items():
            trace = traces[feature] = self._read_verified(f"{feature}/{EVENTS}", sha256, MANIFEST)
            if defect := find_defect(trace):
                raise CassetteUnreadable(self._folder / feature / EVENTS, defect)
            positions[feature] = call_positions(trace)
        bundle_sha256 = manifest.fixture.bundle_sha256
        bundle = self._read_verified(BUNDLE, bundle_sha256, MANIFEST) if bundle_sha256 else b""
        commands = self._read_commands() if os.path.lexists(self._folder / COMMANDS) else None
        self._compare_sums(read_sums(self._folder))
        calls.sort(key=lambda call: _call_order(call, positions.get(call.identity.feature, {})))
        return Cassette(manifest, tuple(calls), traces, bundle, commands)

    def _recordings(self) -> Iterator[str]:
        """Yield the paths of recordings; artifacts in JSON end in `.out.json`.

        Raises CassetteUnreadable for clashing file names and for too much data.
        """
        total, names_by_casefold = 0, dict[str, str]()
        for name, status in walk(self._folder):
            total += status.st_size
            other = names_by_casefold.setdefault(name.casefold(), name)
            if other != name:
                reason = f"and {other} are the same file on case-insensitive file systems"
                raise CassetteUnreadable(self._folder / name, reason)
            if total > CASSETTE_BYTES_MAX:
                raise CassetteUnreadable(self._folder, f"is larger than {CASSETTE_BYTES_MAX // 1_000_000} MB")
            if is_recording(name):
                yield name

    def _read_call(self, name: str) -> RecordedCall:
        path = self._folder / name
        recording = _parse_recording(path, self._read_bytes(name, TEXT_BYTES_MAX))
        if name != f"{recording.identity.path}.json":
            raise CassetteUnreadable(path, f"contains the recording {recording.identity.path}; the names must agree")
        contents: dict[str, bytes] = {}
        for file in recording.files:
            if Path(file.name).name != file.name or not file.name.isprintable():
                raise CassetteUnreadable(path, f"names the file {file.name!r}, which is not in the same folder")
            if not os.path.lexists(path.with_name(file.name)):
                raise CassetteUnreadable(path.with_name(file.name), f"is named by {path.name} and is missing")
            contents[file.name] = self._read_verified(f"{path.parent.name}/{file.name}", file.sha256, path.name)
        return RecordedCall(recording, contents)

    def _read_commands(self) -> tuple[RecordedCommand, ...]:
        try:
            lines = self._read_bytes(COMMANDS, FILE_BYTES_MAX).splitlines()
            return tuple(msgspec.json.decode(line, type=RecordedCommand) for line in lines)
        except (msgspec.DecodeError, RecursionError) as error:
            raise CassetteUnreadable(self._folder / COMMANDS, str(error)) from error

    def _read_verified(self, name: str, sha256: str, source: str) -> bytes:
        data = self._read_bytes(name, FILE_BYTES_MAX)
        self._compare_digest(name, sha256, source)
        return data

    def _read_bytes(self, name: str, bytes_max: int) -> bytes:
        data = read_plain(self._folder / name, bytes_max)
        self._digests[name] = digest(data)
        return data

    def _compare_digest(self, name: str, sha256: str, source: str) -> None:
        if self._digests[name] != sha256:
            reason = f"was changed since it was recorded: {source} has another digest"
            raise CassetteUnreadable(self._folder / name, reason)

    def _compare_sums(self, sums: Mapping[str, str]) -> None:
        for name in self._digests:
            if name not in sums:
                raise CassetteUnreadable(self._folder / name, f"was added by hand: it is not listed in {SUMS}")
            self._compare_digest(name, sums[name], SUMS)
        for name in sums:
            if name not in self._digests:
                reason = "is not part of the cassette" if os.path.lexists(self._folder / name) else "is missing"
                raise CassetteUnreadable(self._folder / SUMS, f"lists {name}, which {reason}")


def is_recording(name: str) -> bool:
    """Return True if this path within a cassette is that of a recording."""
    return name.count("/") == 1 and name.endswith(".json") and not name.endswith(".out.json")


def _call_order(call: RecordedCall, positions: Mapping[str, int]) -> tuple[str, int, str, int, int]:
    """Return a sort key: position in the feature's trace, else the time of the recording in seconds."""
    identity = call.identity
    order = positions.get(identity.name, len(positions))
    return identity.feature, order, call.recording.recorded_at, identity.iteration, identity.attempt


def load_summary(folder: Path) -> Manifest:
    """Return `cassette.yaml` without its evidence, which is mostly not parsed. Raises CassetteUnreadable and
    NewerFormat."""
    path = folder / MANIFEST
    return _parse_manifest(path, read_plain(path, TEXT_BYTES_MAX), False)


def _parse_manifest(path: Path, data: bytes, evidence: bool) -> Manifest:
    try:
        values = parse_manifest_text(data.decode(), path.name, evidence)
    except (MzError, ValueError) as error:
        raise CassetteUnreadable(path, f"cannot be read ({error})") from error
    manifest = _convert(path, values, Manifest)
    fixture = manifest.fixture
    features = (*(item.feature for item in fixture.items), *(dependency.feature for dependency in fixture.delivered))
    try:
        for name in (fixture.run, *features, *manifest.traces):  # They become parts of paths.
            parse_name(name)
        _check_time(fixture.clock_start)
    except ValueError as error:
        raise CassetteUnreadable(path, str(error)) from error
    return manifest


def _check_time(text: str) -> None:
    if not YEARS[0] <= parse_time(text).year <= YEARS[1]:
        raise ValueError(f"{text} is not a plausible time")


def _parse_recording(path: Path, data: bytes) -> Recording:
    try:
        recording = _convert(path, msgspec.json.decode(data), Recording)
        _check_time(recording.recorded_at)
        if recording.accepted is not None:
            _check_time(recording.accepted.at)
    except (ValueError, RecursionError) as error:
        raise CassetteUnreadable(path, str(error)) from error
    return recording


def _convert(path: Path, values: Any, kind: type[S]) -> S:
    number = values.get("format") if isinstance(values, dict) else None
    if type(number) is not int or number < 1:
        raise CassetteUnreadable(path, "names no format version")
    if number < FORMAT:
        raise CassetteUnreadable(path, f"has format {number}, from before the first release: record the run again")
    if number > FORMAT:
        raise NewerFormat(path, f"has format {number}; this mz reads up to {FORMAT}: use a newer mz")
    try:
        return msgspec.convert(values, kind)
    except ValueError as error:
        raise CassetteUnreadable(path, str(error)) from error


def list_cassettes(library: Path) -> tuple[Path, ...]:
    """Return the cassettes of a library by name, including damaged ones. Hidden folders are skipped."""
    restore_old(library)
    try:
        names = sorted(entry.name for entry in os.scandir(library) if not entry.name.startswith("."))
    except OSError:
        return ()
    return tuple(library / name for name in names if is_cassette(library / name))


def is_cassette(folder: Path) -> bool:
    """Return True if the folder is a cassette, holds files of one, or cannot be examined."""
    if not os.path.lexists(folder):
        restore_old(folder.parent)
    try:
        if any(path.name in (MANIFEST, SUMS, BUNDLE) for path in folder.iterdir()):
            return True
        return any(path for pattern in (EVENTS, "*.prompt.md") for path in folder.glob(f"*/{pattern}"))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def find_cassettes(roots: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the cassettes at these paths, each a cassette or a library, without duplicates."""
    groups = [(root,) if is_cassette(root) else list_cassettes(root) for root in roots]
    return tuple(dict.fromkeys(path for group in groups for path in group))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# cassette.yaml and SHA256SUMS -----------------------------------------------------------------------------------------
VALUES_MAX = 1_000_000
EVIDENCE = "\nevidence:"
"""Start of the last and largest part; text in other parts is indented."""


def parse_manifest_text(text: str, name: str, evidence: bool = True) -> Any:
    """Return plain values; without `evidence`, that part is empty. Raises MzError."""
    if not evidence and (at := text.find(EVIDENCE)) >= 0:
        text = f"{text[:at]}{EVIDENCE} {{}}\n"
    return parse_yaml(text, name, VALUES_MAX).value


def write_yaml(content: Any) -> str:
    """Return YAML for review: keys in their order, multi-line strings as blocks."""
    for dumper in (_FastDumper, _Dumper):
        text = yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True, width=110)
        if not ESCAPED_BY_LIBYAML.search(text):
            break
    return text


ESCAPED_BY_LIBYAML = re.compile(r"\\U")
"""Characters above U+FFFF, which libyaml cannot write as they are."""
LINE_SEPARATORS = re.compile("[\x85\u2028\u2029]")
"""Line ends to YAML: they are lost, or become spaces, unless they are escaped."""


class _Style(yaml.representer.SafeRepresenter):
    """Writes multi-line strings as blocks, no aliases, and quotes around what any version of YAML reads as a number."""

    yaml_implicit_resolvers = {
        first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()), *RESOLVERS.get(first, ())]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *RESOLVERS}
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_data(self, data: Any) -> yaml.Node:
        if isinstance(data, str) and LINE_SEPARATORS.search(data):
            return self.represent_scalar("tag:yaml.org,2002:str", data, style='"')
        if isinstance(data, str) and "\n" in data and all(line == line.rstrip() for line in data.split("\n")):
            return self.represent_scalar("tag:yaml.org,2002:str", data, style="|")
        return super().represent_data(data)


class _Dumper(_Style, yaml.SafeDumper): ...


class _FastDumper(_Style, CSafeDumper): ...


SUMS = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  ([^\x00-\x1f\\]+)")


def write_sums(digests: Mapping[str, str]) -> bytes:
    """Return the file's content from sha256 digests in hexadecimal digits by path relative to the cassette."""
    return "".join(f"{digests[path]}  {path}\n" for path in sorted(digests)).encode()


def read_sums(folder: Path) -> dict[str, str]:
    """Return the digests of SHA256SUMS by path. Raises CassetteUnreadable for anything that `write_sums` would not have
    written."""
    path, digests = folder / SUMS, dict[str, str]()
    data = read_plain(path, TEXT_BYTES_MAX)
    for line in data.decode("utf-8", "replace").split("\n"):
        if line:
            match = LINE.fullmatch(line)
            if match is None:
                raise CassetteUnreadable(path, f"was changed by hand: {line[:80]!r} is not a digest and a path")
            digests[match[2]] = match[1]
    if write_sums(digests) != data:
        raise CassetteUnreadable(path, "was changed by hand: it was edited or reordered")
    return digests
