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
from mz_recordings.files.leaks import Leak, find_leaks
from mz_recordings.files.library import CassetteUnreadable, NewerFormat, digest, is_recording, load_with_format
from mz_recordings.files.plainfiles import FILE_BYTES_MAX, UnreadableFileError, read_plain, walk
from mz_recordings.files.sums import SUMS
from mz_recordings.findings import Finding
from mz_recordings.mending import RECORD_AGAIN, RERECORD_ALL
from mz_recordings.recording.scratch import BundleReader

LARGE_BYTES = 5_000_000
"""Larger files are a burden for everybody who clones the project."""
CASSETTES_PER_TASK = 16
"""Cassettes per task of a worker."""
REPEATS_MAX = 5
"""Maximum of equal leaks reported per file."""
RESTORE = "git restore {cassette}"
NEWER = "use the mz that wrote it, or a newer mz"


class LintNotice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to look at that may be harmless."""

    message: str
    """One sentence without a full stop."""
    file: str
    """Path within the cassette; for the bundle, followed by a colon and the path in the repository."""
    line: int | None = None
    column: int | None = None
    """From 1."""


class LintResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of linting one cassette."""

    path: str
    format: int | None = None
    """None: unknown."""
    recordings: int = 0
    files: int = 0
    bytes: int = 0
    findings: tuple[Finding, ...] = ()
    notices: tuple[LintNotice, ...] = ()


class Linter:
    """Lints cassettes one after the other; a repository that several of them hold is unpacked once."""

    def __init__(self, secrets: Secrets, environment: Mapping[str, str]) -> None:
        self._secrets, self._environment = secrets, environment
        self._bundles: dict[str, tuple[tuple[str, Leak], ...]] = {}

    def lint(self, folder: Path, path: str) -> LintResult:
        """Lint the cassette, displayed as `path`. Never raises for its content."""
        entries: list[Finding | LintNotice] = []
        cassette: Cassette | None = None
        format_number: int | None = None
        try:
            format_number, cassette = load_with_format(folder)
        except CassetteUnreadable as error:
            entries.append(unreadable_finding(error, folder, path))
        recordings = files = size = 0
        for name, data, length in self._files(folder, path, entries):
            recordings, files, size = recordings + is_recording(name), files + 1, size + length
            entries += self._lint_file(name, data, path)
        if cassette is not None:
            entries += _unexpected_files(cassette, folder, path)
            entries += _notices(cassette, format_number)
        return LintResult(
            path=path,
            format=format_number,
            recordings=recordings,
            files=files,
            bytes=size,
            findings=tuple(entry for entry in entries if isinstance(entry, Finding)),
            notices=tuple(entry for entry in entries if isinstance(entry, LintNotice)),
        )

    def _files(self, folder: Path, path: str, entries: list[Finding | LintNotice]) -> Iterator[tuple[str, bytes, int]]:
        """Yield name, bytes and size of every regular file; add findings for unreadable ones."""
        try:
            for name, status in walk(folder):
                try:
                    data = read_plain(folder / name)
                except UnreadableFileError as error:
                    finding = Finding(kind="UNREADABLE", message=f"{name} {error.reason}", file=f"{path}/{name}", fix=RESTORE)
                    if not any(isinstance(entry, Finding) and entry.file == finding.file for entry in entries):
                        entries.append(finding)
                    data = b""
                yield name, data, status.st_size
        except UnreadableFileError as error:
            entries.append(Finding(kind="UNREADABLE", message=str(error), file=path, fix=RESTORE))

    def _lint_file(self, name: str, data: bytes, path: str) -> Iterator[Finding | LintNotice]:
        if name == SUMS:
            return
        if name == BUNDLE:
            yield from self._lint_bundle(data, path)
            return
        if len(data) > LARGE_BYTES:
            yield LintNotice(message=f"large file ({len(data) / 1_000_000:.1f} MB)", file=name)
        yield from report_leaks(name, find_leaks(data, self._secrets), path)

    def _lint_bundle(self, data: bytes, path: str) -> Iterator[Finding | LintNotice]:
        bundle_sha256 = digest(data)
        if bundle_sha256 not in self._bundles:
            try:
                self._bundles[bundle_sha256] = tuple(bundle_leaks(data, self._secrets, self._environment))
            except (OSError, subprocess.SubprocessError) as error:
                reason = getattr(error, "stderr", "") or str(error)
                message = f"{BUNDLE} cannot be unpacked: {' '.join(str(reason).split())}"
                yield Finding(kind="UNREADABLE", message=message, file=f"{path}/{BUNDLE}", fix=RESTORE)
                return
        leaks_by_file: dict[str, list[Leak]] = {}
        for name, leak in self._bundles[bundle_sha256]:
            leaks_by_file.setdefault(name, []).append(leak)
        for name, file_leaks in leaks_by_file.items():
            yield from report_leaks(f"{BUNDLE}:{name}", tuple(file_leaks), path, RECORD_AGAIN)


def bundle_leaks(bundle: bytes, secrets: Secrets, environment: Mapping[str, str]) -> Iterator[tuple[str, Leak]]:
    """Yield secrets in a bundled repository, each with its file. Personal data in it is the user's own.

    Raises OSError and SubprocessError.
    """
    with tempfile.TemporaryDirectory(prefix="mz-lint-") as folder:
        for name, content in BundleReader(Path(folder), environment).contents(bundle, FILE_BYTES_MAX):
            yield from ((name, leak) for leak in find_leaks(content, secrets, personal=False))


def lint_all(
    paths: Mapping[Path, str], values: Mapping[str, str], environment: Mapping[str, str], workers: int
) -> Iterator[LintResult]:
    """Lint cassettes in the order of the mapping, which gives the path to display; several workers share the work.

    `values`: secrets by name.
    """
    tasks = [(folder, path) for folder, path in paths.items()]
    batches = [tasks[at : at + CASSETTES_PER_TASK] for at in range(0, len(tasks), CASSETTES_PER_TASK)]
    if workers == 1 or len(batches) == 1:
        yield from _lint_batch(tasks, values, environment)
        return
    with ProcessPoolExecutor(min(workers, len(batches)), mp_context=get_context("spawn")) as pool:
        try:
            for results in pool.map(_lint_batch_list, batches, repeat(dict(values)), repeat(dict(environment))):
                yield from results
        except BaseException:
            # Do not wait for tasks that have not started.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _lint_batch_list(batch: list[tuple[Path, str]], values: dict[str, str], environment: dict[str, str]) -> list[LintResult]:
    return list(_lint_batch(batch, values, environment))


def _lint_batch(batch: list[tuple[Path, str]], values: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[LintResult]:
    linter = Linter(Secrets(values), environment)
    return (linter.lint(folder, path) for folder, path in batch)


def unreadable_finding(error: CassetteUnreadable, folder: Path, path: str) -> Finding:
    """Return the finding for an unreadable cassette, with the file relative to it and the fix."""
    relative_path = error.path.relative_to(folder).as_posix() if error.path.is_relative_to(folder) else ""
    message = f"{relative_path or path} {str(error).removeprefix(f'{error.path}: ')}"
    file = f"{path}/{relative_path}" if relative_path not in ("", ".") else path
    fix = NEWER if isinstance(error, NewerFormat) else RESTORE
    return Finding(kind="UNREADABLE", message=message.removeprefix(". "), file=file, fix=fix)


def report_leaks(name: str, file_leaks: tuple[Leak, ...], path: str, fix: str = RERECORD_ALL) -> Iterator[Finding | LintNotice]:
    """Yield a finding or notice for each leak; repetitions in one file are limited."""
    counts: Counter[str] = Counter()
    totals = Counter(leak.description for leak in file_leaks)
    for leak in file_leaks:
        counts[leak.description] += 1
        if counts[leak.description] > REPEATS_MAX:
            continue
        remaining = totals[leak.description] - REPEATS_MAX if counts[leak.description] == REPEATS_MAX else 0
        suffix = f", and in {remaining} more lines" if remaining > 0 else ""
        if leak.is_secret:
            yield Finding(
                kind="SECRET",
                message=f"the file contains {leak.description}{suffix}",
                detail=(f"  column {leak.column}",),
                file=f"{path}/{name}",
                line=leak.line,
                fix=fix,
            )
        else:
            yield LintNotice(message=f"{leak.description}{suffix}", file=name, line=leak.line, column=leak.column)


def _unexpected_files(cassette: Cassette, folder: Path, path: str) -> Iterator[Finding]:
    """Yield findings for files that do not belong to the cassette."""
    expected_paths = {MANIFEST, SUMS, *([BUNDLE] if cassette.bundle else [])}
    expected_paths |= {f"{feature}/events.jsonl" for feature in cassette.traces}
    for recording, contents in cassette.calls:
        expected_paths.add(f"{recording.identity.path}.json")
        expected_paths |= {f"{recording.identity.feature}/{name}" for name in contents}
    for name, _ in walk(folder):
        if name not in expected_paths:
            file = f"{path}/{name}"
            yield Finding(kind="UNUSED", message=f"{name} is not part of the cassette", file=file, fix=f"rm {file}")


def _notices(cassette: Cassette, format_number: int | None) -> Iterator[LintNotice]:
    if format_number is not None and format_number < FORMAT:
        yield LintNotice(message=f"format {format_number}; the first change writes format {FORMAT}", file=MANIFEST)
    features = dict.fromkeys(call.recording.identity.feature for call in cassette.calls)
    for feature in features:
        if feature not in cassette.traces:
            yield LintNotice(
                message=f"{feature} has recordings but no trace: a replay cannot compare its events", file=MANIFEST
            )
