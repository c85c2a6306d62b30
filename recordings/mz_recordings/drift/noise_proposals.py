"""Proposal of noise entries from differences between recordings of the same calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date
from math import ceil

import msgspec

from mz_recordings.cassette.model import Cassette
from mz_recordings.drift.model import Difference
from mz_recordings.drift.noise import (
    ENTRIES_MAX,
    WITHIN_PERCENT_MAX,
    NoiseEntry,
    NoiseRejection,
    line_matches,
    rejection_of,
    rejection_of_kind,
)
from mz_recordings.drift.outputs import relative_growth
from mz_recordings.findings.model import FindingKind

STEP_PERCENT = 5
"""Percent to which a range is rounded up."""
VARIABLE_PATTERNS = (
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", r"[0-9a-fA-F-]{36}"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?", r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?"),
    (r"(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}", r"[0-9a-f]{7,64}"),
    (r"\d+(?:[.,]\d+)*", r"\d[\d.,]*"),
)
"""Values that vary by themselves, and a pattern for each: ids, times, digests, numbers."""
_ANY_VARIABLE = re.compile("|".join(f"({pattern})" for pattern, _ in VARIABLE_PATTERNS))


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
            entries[key] = msgspec.structs.replace(entry, within=wider)
    if len(entries) > ENTRIES_MAX:
        subject = f"{len(entries)} entries would be needed, at most {ENTRIES_MAX} are proposed"
        return (), (*rejections, NoiseRejection("TOO_MANY_DIFFS", subject))
    return tuple(entries.values()), tuple(rejections)


def _entries_for(difference: Difference, cassette: str, reason: str) -> Iterator[NoiseEntry]:
    kind, leaves = difference.finding.kind, difference.leaves
    if kind == "ARTIFACT":
        patterns = [common_pattern(leaf.old, leaf.new) for leaf in leaves]
        paths = [pattern_text for pattern_text in patterns if pattern_text] if all(patterns) else [leaves[0].path]
        for path in dict.fromkeys(paths):
            yield NoiseEntry(kind=kind, path=path, reason=reason, cassette=cassette)
        return
    for leaf in leaves:
        growth = relative_growth(leaf) if kind == "COST" else None
        within = ceil(abs(growth) * 100 / STEP_PERCENT) * STEP_PERCENT if growth is not None else None
        if kind == "COST":
            within = max(within, STEP_PERCENT) if within is not None else WITHIN_PERCENT_MAX + 1
        yield NoiseEntry(kind=kind, path=leaf.path, reason=reason, cassette=cassette, within=within)


def common_pattern(old: str, new: str) -> str:
    """Return the pattern that matches both lines and varies only in VARIABLE_PATTERNS; empty: there is none."""
    old_pattern, new_pattern = _generalise(old), _generalise(new)
    return old_pattern if old_pattern == new_pattern and old and new else ""


def _generalise(line: str) -> str:
    parts, at = [], 0
    for match in _ANY_VARIABLE.finditer(line):
        parts += [re.escape(line[at : match.start()]), VARIABLE_PATTERNS[(match.lastindex or 1) - 1][1]]
        at = match.end()
    return f"^{''.join((*parts, re.escape(line[at:])))}$"


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
