"""Noise: differences between two recordings that a reviewed file allows.

Only text of artifacts, amounts and unread fields can be noise. An entry that would hide more is rejected with a named
reason.

Also reads, extends and proposes `noise.yaml` of a library, which people review like code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from math import ceil
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import yaml
from msgspec.structs import replace
from mz_engine.decoding.yaml import format_yaml, load_yaml
from mz_engine.git.files import write_bytes

from mz_recordings.cassette.model import Cassette
from mz_recordings.cassette.safe_files import TEXT_BYTES_MAX, CassetteUnreadable, locked, read_plain
from mz_recordings.drift.model import Difference, LeafDifference
from mz_recordings.drift.outputs import relative_growth
from mz_recordings.findings.model import FindingKind

RejectionName: TypeAlias = Literal[
    "NO_REASON", "HIDES_VERDICT", "HIDES_INPUT", "STRUCTURAL_CHANGE", "OVER_BROAD_PATH", "OVER_BROAD_RANGE",
    "PATTERN_TOO_NARROW", "PATTERN_BROKEN", "TOO_MANY_DIFFS", "EXPIRED", "UNUSED_ENTRY",
]  # fmt: skip
REJECTION_REASONS: dict[RejectionName, str] = {
    "NO_REASON": "an entry must give a reason",
    "HIDES_VERDICT": "decisions of a rule, a gate or a permission are never noise",
    "HIDES_INPUT": "prompts and settings come from mz, so they do not vary by themselves",
    "STRUCTURAL_CHANGE": "files, events, calls and the structure of an artifact are never noise",
    "OVER_BROAD_PATH": "it would hide more than one thing",
    "OVER_BROAD_RANGE": "an amount that varies by more than half is not noise",
    "PATTERN_TOO_NARROW": "a pattern without a variable part hides only this line",
    "PATTERN_BROKEN": "a pattern is a regular expression from `^` to `$`",
    "TOO_MANY_DIFFS": "recordings with so many differences are not recordings of the same calls",
    "EXPIRED": "its date has passed",
    "UNUSED_ENTRY": "nothing can match it any more",
}
AMOUNTS = ("usage.input", "usage.output", "usage.cache_read", "usage.cache_write", "reported", "prices")
WITHIN_PERCENT_MAX = 50
"""Percent."""
ENTRIES_MAX = 30
"""Maximum of entries to propose from one comparison."""
LINE_CHARS_MAX = 500
"""Maximum characters of a line that a pattern may match."""
PROBES = (
    "The report has one line a month.", "- a point of a list", "| month | total |", "0", "2026-03", "def main():",
    "So that nobody waits, it is done at once.", "x",
)  # fmt: skip
"""Unrelated lines: a pattern that matches two of them matches nearly everything."""
NESTED_REPETITION = re.compile(r"[+*}][^()]*\)+[+*{]")
"""A repetition within a repetition, which can take exponential time."""
WILDCARDS_MAX = 2
"""Maximum of `.*` and `.+` in one pattern."""
LITERAL = re.compile(r"(?:[^\\.\[\](){}*+?|^$]|\\[^A-Za-z0-9])*")
STEP_PERCENT = 5
"""Percent to which a range is rounded up."""


class NoiseEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of `noise.yaml`."""

    kind: FindingKind
    path: str
    """A field (`usage.output`), an artifact's text (`prd.text`), or a pattern of lines (`^Took \\d+ s$`)."""
    reason: str = ""
    within: int | None = None
    """Percent by which an amount may vary."""
    cassette: str | None = None
    """Name of a cassette; None: all."""
    until: date | None = None
    """Last day of validity; None: unlimited."""

    @property
    def is_pattern(self) -> bool:
        return self.kind == "ARTIFACT" and not self.path.endswith(".text")


class NoiseRejection(NamedTuple):
    """Why something cannot be noise."""

    name: RejectionName
    subject: str
    """Subject of the rejection."""

    @property
    def reason(self) -> str:
        return REJECTION_REASONS[self.name]


# validity of an entry -------------------------------------------------------------------------------------------------
def rejection_of(entry: NoiseEntry, today: date) -> RejectionName | None:
    """Return the first reason against the entry; None: it is valid."""
    if rejection := rejection_of_kind(entry.kind):
        return rejection
    if not entry.reason.strip():
        return "NO_REASON"
    if entry.kind == "COST":
        rejection = _rejection_of_amount(entry)
    elif entry.is_pattern:
        rejection = _rejection_of_pattern(entry.path)
    else:
        rejection = "OVER_BROAD_PATH" if re.search(r"[*?\s]|^\.", entry.path) or not entry.path else None
    if rejection is None and entry.until is not None and entry.until < today:
        return "EXPIRED"
    return rejection


def rejection_of_kind(kind: FindingKind) -> RejectionName | None:
    if kind == "DECISION":
        return "HIDES_VERDICT"
    if kind in ("PROMPT", "CONFIG"):
        return "HIDES_INPUT"
    return None if kind in ("ARTIFACT", "COST", "STREAM") else "STRUCTURAL_CHANGE"


def _rejection_of_amount(entry: NoiseEntry) -> RejectionName | None:
    if entry.path == "models":
        return "STRUCTURAL_CHANGE"
    if entry.path not in AMOUNTS:
        return "OVER_BROAD_PATH"
    return None if entry.within is not None and 0 < entry.within <= WITHIN_PERCENT_MAX else "OVER_BROAD_RANGE"


def _rejection_of_pattern(path: str) -> RejectionName | None:
    if not path.startswith("^") and re.fullmatch(r"[\w-]+", path):
        return "STRUCTURAL_CHANGE"  # Would hide the whole artifact.
    if not (path.startswith("^") and path.endswith("$")):
        return "PATTERN_BROKEN"
    try:
        pattern = re.compile(path)
    except (re.error, RecursionError, OverflowError):
        return "PATTERN_BROKEN"
    if NESTED_REPETITION.search(path) or len(re.findall(r"\.[*+]", path)) > WILDCARDS_MAX:
        return "OVER_BROAD_PATH"
    if sum(bool(pattern.fullmatch(line)) for line in PROBES) > 1 or pattern.fullmatch(""):
        return "OVER_BROAD_PATH"
    return "PATTERN_TOO_NARROW" if LITERAL.fullmatch(path[1:-1]) else None


# matching -------------------------------------------------------------------------------------------------------------
class NoiseMatch(NamedTuple):
    """Differences that remain, and the entries that hid others."""

    remaining: tuple[Difference, ...]
    matched_entries: Counter[NoiseEntry]
    """Number of differences that each entry hid, at least in part."""
    hidden_count: int
    """Number of hidden differences."""


def hide_noise(differences: Sequence[Difference], entries: Iterable[NoiseEntry], names: Iterable[str]) -> NoiseMatch:
    """Hide the differences of which every part is noise. `names`: names of the compared cassettes."""
    cassettes = {None, *names}
    applicable = [entry for entry in entries if entry.cassette in cassettes]
    remaining, counts = [], Counter[NoiseEntry]()
    for difference in differences:
        of_kind = [entry for entry in applicable if entry.kind == difference.finding.kind]
        matching = dict.fromkeys(
            next((entry for entry in of_kind if matches(entry, leaf)), None) for leaf in difference.leaves
        )
        if matching and None not in matching:
            counts.update(entry for entry in matching if entry is not None)
        else:
            remaining.append(difference)
    return NoiseMatch(tuple(remaining), counts, len(differences) - len(remaining))


def matches(entry: NoiseEntry, leaf: LeafDifference) -> bool:
    if entry.kind == "COST":
        growth = relative_growth(leaf)
        return entry.path == leaf.path and growth is not None and abs(growth) * 100 <= (entry.within or 0)
    if entry.is_pattern:
        lines = [line for line in (leaf.old, leaf.new) if line]
        return bool(lines) and all(line_matches(entry.path, line) for line in lines)
    return entry.path == leaf.path


def line_matches(pattern: str, line: str) -> bool:
    return len(line) <= LINE_CHARS_MAX and re.fullmatch(pattern, line) is not None


# proposals ------------------------------------------------------------------------------------------------------------
def propose_noise(
    differences: Iterable[Difference], cassette: str, reason: str, today: date
) -> tuple[tuple[NoiseEntry, ...], tuple[NoiseRejection, ...]]:
    """Return entries for this cassette, and rejections of differences that cannot be noise."""
    entries: dict[tuple[FindingKind, str], NoiseEntry] = {}
    rejections = list[NoiseRejection]()
    for difference in differences:
        finding = difference.finding
        rejection = rejection_of_kind(finding.kind)
        if not difference.leaves or rejection:
            subject = f"{finding.kind} {finding.feature} {finding.call}: {finding.message}"
            rejections.append(NoiseRejection(rejection or "STRUCTURAL_CHANGE", " ".join(subject.split())))
            continue
        for entry in _entries_for(difference, cassette, reason):
            if name := rejection_of(entry, today):
                rejections.append(NoiseRejection(name, f"{entry.kind} {entry.path}: {finding.message}"))
                continue
            key = entry.kind, entry.path
            before = entries.get(key)
            wider = max((candidate.within or 0) for candidate in (entry, before) if candidate is not None) or None
            entries[key] = replace(entry, within=wider)
    if len(entries) > ENTRIES_MAX:
        subject = f"{len(entries)} entries would be needed, at most {ENTRIES_MAX} are proposed"
        return (), (*rejections, NoiseRejection("TOO_MANY_DIFFS", subject))
    return tuple(entries.values()), tuple(rejections)


def _entries_for(difference: Difference, cassette: str, reason: str) -> Iterator[NoiseEntry]:
    kind = difference.finding.kind
    if kind != "COST":
        for path in dict.fromkeys(leaf.path for leaf in difference.leaves):
            yield NoiseEntry(kind=kind, path=path, reason=reason, cassette=cassette)
        return
    for leaf in difference.leaves:
        growth, within = relative_growth(leaf), WITHIN_PERCENT_MAX + 1
        if growth is not None:
            within = max(ceil(abs(growth) * 100 / STEP_PERCENT), 1) * STEP_PERCENT
        yield NoiseEntry(kind=kind, path=leaf.path, reason=reason, cassette=cassette, within=within)


# unused entries -------------------------------------------------------------------------------------------------------
def may_match(entry: NoiseEntry, cassette: Cassette) -> bool:
    """Return True if the cassette has anything that the entry concerns."""
    if entry.cassette not in (None, cassette.manifest.name):
        return False
    if entry.kind == "COST":
        return bool(cassette.calls)
    if entry.kind == "STREAM":
        return any(_names_event(entry, call.contents.values()) for call in cassette.calls)
    artifacts = [(file.artifact, text) for call in cassette.calls for file, text in call.artifacts().items()]
    if not entry.is_pattern:
        return any(f"{artifact}.text" == entry.path for artifact, _ in artifacts)
    return any(line_matches(entry.path, line) for _, text in artifacts for line in text.splitlines())


def _names_event(entry: NoiseEntry, contents: Iterable[bytes]) -> bool:
    """Return True if the field's name occurs in a stream."""
    event, _, path = entry.path.partition(":")
    names = [*event.split("/"), *re.findall(r"[\w-]+", path.rpartition(".")[2])]
    return any(all(f'"{name}"'.encode() in data for name in names) for data in contents)


# noise.yaml -----------------------------------------------------------------------------------------------------------
FILE_NAME = "noise.yaml"
"""File name in a library."""
HEADER = """\
# What may differ between two recordings of the same thing. Each entry hides differences, so review it like code.
"""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    noise: tuple[NoiseEntry, ...] | None = None


def read_noise(library: Path) -> tuple[NoiseEntry, ...]:
    """Return its entries; none if there is no file. Raises CassetteUnreadable."""
    path = library / FILE_NAME
    if not path.exists() and not path.is_symlink():
        return ()
    try:
        return _parse(read_plain(path, TEXT_BYTES_MAX))
    except (CassetteUnreadable, yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise CassetteUnreadable(path, " ".join(str(error).split())) from error


def add_noise(library: Path, entries: tuple[NoiseEntry, ...]) -> Path:
    """Append entries, keeping the text and comments of the file; atomic. Raises CassetteUnreadable."""
    library.mkdir(parents=True, exist_ok=True)
    path = library / FILE_NAME
    with locked(library, exclusive=True):
        before = read_noise(library)
        text = path.read_text("utf-8") if path.exists() else HEADER
        write_bytes(path, append_entries(text, before, entries).encode())
    return path


def append_entries(text: str, before: tuple[NoiseEntry, ...], entries: tuple[NoiseEntry, ...]) -> str:
    """Return the file's text with more entries. If they cannot be appended in its style, the file is generated again,
    with all comments at the top."""
    appended = f"{text.rstrip()}\n{_yaml(entries)}"
    with suppress(yaml.YAMLError, msgspec.ValidationError, ValueError):
        if _parse(appended) == (*before, *entries):
            return appended
    comments = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("#"))
    return f"{comments or HEADER}noise:\n{_yaml((*before, *entries))}"


def _parse(text: str | bytes) -> tuple[NoiseEntry, ...]:
    values = load_yaml(text)
    return msgspec.convert(values if values is not None else {}, _File).noise or ()


def _yaml(entries: tuple[NoiseEntry, ...]) -> str:
    values = [msgspec.to_builtins(entry, builtin_types=(date,)) for entry in entries]
    return format_yaml(values)
