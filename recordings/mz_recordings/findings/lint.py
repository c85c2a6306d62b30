"""Lint of cassettes: secrets and personal data in all files and in the bundled repository, and defects that prevent a
replay. Changes and replays nothing. A result names the kind and position of a leak, never the value."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from mz_engine.ports import RepositoryUnusable
from mz_events.redaction.key_rules import entropy
from mz_events.redaction.redactor import Secrets
from mz_events.seal import InvalidSeal, parse_seals

from mz_recordings.cassette.files import (
    SUMS,
    CassetteUnreadable,
    NewerFormat,
    cassette_files,
    digest,
    is_recording,
    load,
)
from mz_recordings.cassette.model import BUNDLE, MANIFEST, Cassette
from mz_recordings.cassette.repository import bundle_contents
from mz_recordings.cassette.safe_files import FILE_BYTES_MAX, read_plain, walk
from mz_recordings.findings.model import RECORD_AGAIN, RERECORD_ALL, Finding

CANDIDATE = re.compile(rb"[A-Za-z0-9+/_-]{32,}={0,2}")
"""Candidates for a key of unknown format."""
HOME = re.compile(
    rb"(?:(?:/|\\/|%2F)(?:home|Users)(?:/|\\/|%2F)|:\\{1,4}Users\\{1,4}|/-(?:home|Users)-)([A-Za-z0-9_][A-Za-z0-9_.]*)"
)
"""Home directories in text, JSON, URLs and directory names, with the user's name as group."""
GENERIC_USERS = frozenset(
    b"user username name you me someone public shared default runner runneradmin ubuntu debian node vscode circleci "
    b"app build builder jenkins ec2-user git docker codespace linuxbrew".split()
)
"""User names of images and examples."""
EMAIL = re.compile(
    rb"(?<![A-Za-z0-9._%+/:-])[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@((?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![\w@:])"
)
EXAMPLE_EMAIL = re.compile(
    rb"(?i)(?:^|\.)(?:example(?:\.\w+)?|test|invalid|localhost|local|noreply\.github\.com)$|^(?:git|no-?reply)@"
)
ENTROPY_MIN = 4.5
"""Bits per character: English words have about 4, random base64 of this length 5 or more."""
ENTROPY_CHARS_MAX = 128
"""Keys are shorter; a longer run is an encoded file or a signature."""
KNOWN_ID = re.compile(
    rb"(?:toolu|msg|req|call|chatcmpl|resp|run|sha256|sha512)[_-]|[0-9a-fA-F-]+\Z|[a-z_/-]+\Z|[A-Z_/-]+\Z"
)
"""Ids that agents assign, digests, and words."""


class Leak(NamedTuple):
    """A leak, without its value."""

    is_secret: bool
    """It is a secret; otherwise only a suspicion."""
    description: str
    line: int
    column: int
    """From 1, in characters."""


def find_leaks(data: bytes, secrets: Secrets, personal: bool = True) -> tuple[Leak, ...]:
    """Return all leaks by position, each kind at most once per line. Without `personal`, secrets only."""
    spans = [*_secrets(data, secrets), *(_personal_data(data) if personal else ())]
    leaks_by_line: dict[tuple[str, int], Leak] = {}
    for offset, is_secret, description in sorted(spans):
        line, begin = data.count(b"\n", 0, offset) + 1, data.rfind(b"\n", 0, offset) + 1
        column = len(data[begin:offset].decode("utf-8", "replace")) + 1
        leaks_by_line.setdefault((description, line), Leak(is_secret, description, line, column))
    return tuple(leaks_by_line.values())


Span = tuple[int, bool, str]
"""Offset, certain, description."""


def _secrets(data: bytes, secrets: Secrets) -> Iterator[Span]:
    for secret in secrets.find(data):
        name, encoding = secret.name, f", {secret.encoding}" if secret.encoding else ""
        # Names of variables are upper case, those of rules are not.
        text = f"the value of {name}" if name.upper() == name else f"what looks like a secret ({name})"
        yield secret.start, secret.certain, f"{text}{encoding}"


def _personal_data(data: bytes) -> Iterator[Span]:
    for match in HOME.finditer(data):
        if match[1].lower() not in GENERIC_USERS:
            yield match.start(), False, "a home directory"
    if b"@" in data:
        for match in EMAIL.finditer(data):
            if not EXAMPLE_EMAIL.search(match[1]) and not EXAMPLE_EMAIL.search(match[0]):
                yield match.start(), False, "an e-mail address"
    for match in CANDIDATE.finditer(data):
        is_candidate = not KNOWN_ID.match(match[0]) and len(match[0]) <= ENTROPY_CHARS_MAX and b"/" not in match[0]
        if is_candidate and entropy(match[0]) >= ENTROPY_MIN:
            yield match.start(), False, "a word that may be a key (high entropy)"


LARGE_BYTES = 5_000_000
"""Larger files are a burden for everybody who clones the project."""
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
    path: str
    format: int | None = None
    """None: unknown."""
    recordings: int = 0
    files: int = 0
    size_bytes: int = 0
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
        sizes: dict[str, int] = {}
        try:
            cassette = load(folder)
            manifest = cassette.manifest
            if manifest.seal and [seal.run for seal in parse_seals(manifest.seal)[0]] != [manifest.fixture.run]:
                raise InvalidSeal("it is not of the recorded run")
        except InvalidSeal as error:
            message = f"the seal in {MANIFEST}: {error}"
            entries.append(Finding(kind="UNREADABLE", message=message, file=f"{path}/{MANIFEST}", fix=RESTORE))
        except CassetteUnreadable as error:
            entries.append(unreadable_finding(error, folder, path))
        try:
            for name, status in walk(folder):
                sizes[name] = status.st_size
                entries += self._lint_file(folder, name, path)
        except CassetteUnreadable as error:
            entries.append(Finding(kind="UNREADABLE", message=str(error), file=path, fix=RESTORE))
        expected = {SUMS, BUNDLE, *(name for name, _ in cassette_files(cassette))} if cassette else sizes.keys()
        for name in sorted(sizes.keys() - expected):
            file = f"{path}/{name}"
            entries.append(
                Finding(kind="UNUSED", message=f"{name} is not part of the cassette", file=file, fix=f"rm {file}")
            )
        return LintResult(
            path=path,
            format=cassette.manifest.format if cassette else None,
            recordings=sum(map(is_recording, sizes)),
            files=len(sizes),
            size_bytes=sum(sizes.values()),
            findings=tuple(dict.fromkeys(entry for entry in entries if isinstance(entry, Finding))),
            notices=tuple(entry for entry in entries if isinstance(entry, LintNotice)),
        )

    def _lint_file(self, folder: Path, name: str, path: str) -> Iterator[Finding | LintNotice]:
        try:
            data = read_plain(folder / name)
        except CassetteUnreadable as error:
            yield Finding(kind="UNREADABLE", message=f"{name} {error.reason}", file=f"{path}/{name}", fix=RESTORE)
            return
        if name == BUNDLE:
            yield from self._lint_bundle(data, path)
        elif name != SUMS:
            if len(data) > LARGE_BYTES:
                yield LintNotice(message=f"large file ({len(data) / 1_000_000:.1f} MB)", file=name)
            yield from report_leaks(name, find_leaks(data, self._secrets), path)

    def _lint_bundle(self, data: bytes, path: str) -> Iterator[Finding | LintNotice]:
        bundle_sha256 = digest(data)
        if bundle_sha256 not in self._bundles:
            try:
                self._bundles[bundle_sha256] = tuple(bundle_leaks(data, self._secrets, self._environment))
            except (OSError, RepositoryUnusable) as error:
                message = f"{BUNDLE} cannot be unpacked: {' '.join(str(error).split())}"
                yield Finding(kind="UNREADABLE", message=message, file=f"{path}/{BUNDLE}", fix=RESTORE)
                return
        leaks_by_file: dict[str, list[Leak]] = {}
        for name, leak in self._bundles[bundle_sha256]:
            leaks_by_file.setdefault(name, []).append(leak)
        for name, file_leaks in leaks_by_file.items():
            yield from report_leaks(f"{BUNDLE}:{name}", tuple(file_leaks), path, RECORD_AGAIN)


def bundle_leaks(bundle: bytes, secrets: Secrets, environment: Mapping[str, str]) -> Iterator[tuple[str, Leak]]:
    """Yield secrets in a bundled repository, each with its file. Personal data in it is the user's own.

    Raises OSError and RepositoryUnusable.
    """
    with tempfile.TemporaryDirectory(prefix="mz-lint-") as folder:
        for name, content in bundle_contents(bundle, Path(folder), environment, FILE_BYTES_MAX):
            yield from ((name, leak) for leak in find_leaks(content, secrets, personal=False))


def cassette_secrets(
    cassette: Cassette, secrets: Secrets, environment: Mapping[str, str]
) -> Iterator[tuple[str, Leak]]:
    """Yield the secrets that lint would find in the cassette once it is written, each with its file.

    Raises OSError and RepositoryUnusable if the bundle cannot be unpacked.
    """
    for name, data in cassette_files(cassette):
        if name == BUNDLE:
            leaks = ((f"{BUNDLE}:{file}", leak) for file, leak in bundle_leaks(data, secrets, environment))
        else:
            leaks = ((name, leak) for leak in find_leaks(data, secrets, personal=False))
        yield from ((file, leak) for file, leak in leaks if leak.is_secret)


def unreadable_finding(error: CassetteUnreadable, folder: Path, path: str) -> Finding:
    """Return the finding for an unreadable cassette, with the file relative to it and the fix."""
    relative_path = error.path.relative_to(folder).as_posix() if error.path.is_relative_to(folder) else ""
    message = f"{relative_path or path} {error.reason}"
    file = f"{path}/{relative_path}" if relative_path not in ("", ".") else path
    fix = NEWER if isinstance(error, NewerFormat) else RESTORE
    return Finding(kind="UNREADABLE", message=message.removeprefix(". "), file=file, fix=fix)


def report_leaks(
    name: str, file_leaks: tuple[Leak, ...], path: str, fix: str = RERECORD_ALL
) -> Iterator[Finding | LintNotice]:
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
                kind="SECRET", message=f"the file contains {leak.description}{suffix}",
                detail=(f"  column {leak.column}",), file=f"{path}/{name}", line=leak.line, fix=fix,
            )  # fmt: skip
        else:
            yield LintNotice(message=f"{leak.description}{suffix}", file=name, line=leak.line, column=leak.column)
