"""Lint of cassettes: secrets in all files and in the bundled repository, and defects that prevent a replay. Changes and
replays nothing."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import msgspec
from mz_events.redact import Secrets

from mz_recordings.cassette import BUNDLE, FORMAT, MANIFEST, Cassette
from mz_recordings.files.leaks import Leak, leaks
from mz_recordings.files.library import CassetteUnusable, NewerFormat, digest, is_recording, load_written
from mz_recordings.files.plainfiles import FILE_BYTES_MAX, Unreadable, read_plain, walk
from mz_recordings.files.sums import SUMS
from mz_recordings.findings import Finding
from mz_recordings.mending import ALL, COMMITTED
from mz_recordings.recording.scratch import Packed

LARGE_BYTES = 5_000_000
"""Larger files are a burden for everybody who clones the project."""
PART = 16
"""Cassettes per task of a worker."""
PLACES_MAX = 5
"""Maximum of equal leaks reported per file."""
RESTORE = "git restore {cassette}"
NEWER = "use the mz that wrote it, or a newer mz"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to look at that may be harmless."""

    what: str
    """One sentence without a full stop."""
    file: str
    """Path within the cassette; for the bundle, followed by a colon and the path in the repository."""
    line: int | None = None
    column: int | None = None
    """From 1."""


class Linted(msgspec.Struct, frozen=True, kw_only=True):
    """Result of linting one cassette."""

    path: str
    format: int | None = None
    """None: unknown."""
    recordings: int = 0
    files: int = 0
    bytes: int = 0
    findings: tuple[Finding, ...] = ()
    notices: tuple[Notice, ...] = ()


class Linter:
    """Lints cassettes one after the other; a repository that several of them hold is unpacked once."""

    def __init__(self, secrets: Secrets, environment: Mapping[str, str]) -> None:
        self._secrets, self._environment = secrets, environment
        self._bundles: dict[str, tuple[tuple[str, Leak], ...]] = {}

    def lint(self, place: Path, path: str) -> Linted:
        """Lint the cassette, displayed as `path`. Never raises for its content."""
        found: list[Finding | Notice] = []
        cassette: Cassette | None = None
        number: int | None = None
        try:
            number, cassette = load_written(place)
        except CassetteUnusable as error:
            found.append(unusable(error, place, path))
        recordings = files = size = 0
        for name, data, length in self._files(place, path, found):
            recordings, files, size = recordings + is_recording(name), files + 1, size + length
            found += self._look(name, data, path)
        if cassette is not None:
            found += _strange(cassette, place, path)
            found += _notices(cassette, number)
        return Linted(
            path=path,
            format=number,
            recordings=recordings,
            files=files,
            bytes=size,
            findings=tuple(entry for entry in found if isinstance(entry, Finding)),
            notices=tuple(entry for entry in found if isinstance(entry, Notice)),
        )

    def _files(self, place: Path, path: str, found: list[Finding | Notice]) -> Iterator[tuple[str, bytes, int]]:
        """Yield name, bytes and size of every regular file; add findings for unreadable ones."""
        try:
            for name, status in walk(place):
                try:
                    data = read_plain(place / name)
                except Unreadable as error:
                    wrong = Finding(kind="UNUSABLE", what=f"{name} {error.why}", file=f"{path}/{name}", mend=RESTORE)
                    if not any(isinstance(one, Finding) and one.file == wrong.file for one in found):
                        found.append(wrong)
                    data = b""
                yield name, data, status.st_size
        except Unreadable as error:
            found.append(Finding(kind="UNUSABLE", what=str(error), file=path, mend=RESTORE))

    def _look(self, name: str, data: bytes, path: str) -> Iterator[Finding | Notice]:
        if name == SUMS:
            return
        if name == BUNDLE:
            yield from self._unpacked(data, path)
            return
        if len(data) > LARGE_BYTES:
            yield Notice(what=f"large file ({len(data) / 1_000_000:.1f} MB)", file=name)
        yield from told(name, leaks(data, self._secrets), path)

    def _unpacked(self, data: bytes, path: str) -> Iterator[Finding | Notice]:
        known = digest(data)
        if known not in self._bundles:
            try:
                self._bundles[known] = tuple(packed(data, self._secrets, self._environment))
            except (OSError, subprocess.SubprocessError) as error:
                reason = getattr(error, "stderr", "") or str(error)
                what = f"{BUNDLE} cannot be unpacked: {' '.join(str(reason).split())}"
                yield Finding(kind="UNUSABLE", what=what, file=f"{path}/{BUNDLE}", mend=RESTORE)
                return
        inside: dict[str, list[Leak]] = {}
        for name, leak in self._bundles[known]:
            inside.setdefault(name, []).append(leak)
        for name, found in inside.items():
            yield from told(f"{BUNDLE}:{name}", tuple(found), path, COMMITTED)


def packed(bundle: bytes, secrets: Secrets, environment: Mapping[str, str]) -> Iterator[tuple[str, Leak]]:
    """Yield secrets in a bundled repository, each with its file. Personal data in it is the user's own.

    Raises OSError and SubprocessError.
    """
    with tempfile.TemporaryDirectory(prefix="mz-lint-") as folder:
        for name, content in Packed(Path(folder), environment).contents(bundle, FILE_BYTES_MAX):
            yield from ((name, leak) for leak in leaks(content, secrets, personal=False))


def lint_all(
    shown: Mapping[Path, str], values: Mapping[str, str], environment: Mapping[str, str], workers: int
) -> Iterator[Linted]:
    """Lint cassettes in the order of the mapping, which gives the path to display; several workers share the work.

    `values`: secrets by name.
    """
    work = [(place, path) for place, path in shown.items()]
    parts = [work[at : at + PART] for at in range(0, len(work), PART)]
    if workers == 1 or len(parts) == 1:
        yield from _part(work, values, environment)
        return
    with ProcessPoolExecutor(min(workers, len(parts)), mp_context=get_context("spawn")) as pool:
        try:
            for results in pool.map(_listed, parts, repeat(dict(values)), repeat(dict(environment))):
                yield from results
        except BaseException:
            # Do not wait for tasks that have not started.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _listed(part: list[tuple[Path, str]], values: dict[str, str], environment: dict[str, str]) -> list[Linted]:
    return list(_part(part, values, environment))


def _part(part: list[tuple[Path, str]], values: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[Linted]:
    linter = Linter(Secrets(values), environment)
    return (linter.lint(place, path) for place, path in part)


def unusable(error: CassetteUnusable, place: Path, path: str) -> Finding:
    """Return the finding for an unreadable cassette, with the file relative to it and the fix."""
    inside = error.path.relative_to(place).as_posix() if error.path.is_relative_to(place) else ""
    what = f"{inside or path} {str(error).removeprefix(f'{error.path}: ')}"
    file = f"{path}/{inside}" if inside not in ("", ".") else path
    mend = NEWER if isinstance(error, NewerFormat) else RESTORE
    return Finding(kind="UNUSABLE", what=what.removeprefix(". "), file=file, mend=mend)


def told(name: str, found: tuple[Leak, ...], path: str, mend: str = ALL) -> Iterator[Finding | Notice]:
    """Yield a finding or notice for each leak; repetitions in one file are limited."""
    counts: Counter[str] = Counter()
    totals = Counter(leak.what for leak in found)
    for leak in found:
        counts[leak.what] += 1
        if counts[leak.what] > PLACES_MAX:
            continue
        remaining = totals[leak.what] - PLACES_MAX if counts[leak.what] == PLACES_MAX else 0
        more = f", and in {remaining} more lines" if remaining > 0 else ""
        if leak.certain:
            yield Finding(
                kind="SECRET",
                what=f"the file contains {leak.what}{more}",
                detail=(f"  column {leak.column}",),
                file=f"{path}/{name}",
                line=leak.line,
                mend=mend,
            )
        else:
            yield Notice(what=f"{leak.what}{more}", file=name, line=leak.line, column=leak.column)


def _strange(cassette: Cassette, place: Path, path: str) -> Iterator[Finding]:
    """Yield findings for files that do not belong to the cassette."""
    known = {MANIFEST, SUMS, *([BUNDLE] if cassette.bundle else [])}
    known |= {f"{feature}/events.jsonl" for feature in cassette.stories}
    for recording, contents in cassette.taken:
        known.add(f"{recording.identity.path}.json")
        known |= {f"{recording.identity.feature}/{name}" for name in contents}
    for name, _ in walk(place):
        if name not in known:
            file = f"{path}/{name}"
            yield Finding(kind="UNUSED", what=f"{name} is not part of the cassette", file=file, mend=f"rm {file}")


def _notices(cassette: Cassette, number: int | None) -> Iterator[Notice]:
    if number is not None and number < FORMAT:
        yield Notice(what=f"format {number}; the first change writes format {FORMAT}", file=MANIFEST)
    features = dict.fromkeys(call.recording.identity.feature for call in cassette.taken)
    for feature in features:
        if feature not in cassette.stories:
            yield Notice(
                what=f"{feature} has recordings but no trace: a replay cannot compare its events", file=MANIFEST
            )
