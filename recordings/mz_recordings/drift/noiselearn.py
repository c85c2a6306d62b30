"""Proposal of noise entries from differences between recordings of the same calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date
from math import ceil

import msgspec

from mz_recordings.cassette import Cassette
from mz_recordings.drift.difference import Difference
from mz_recordings.drift.noise import ENTRIES_MAX, WITHIN_MAX, Noise, Refusal, line_matches, refusal_of, refusal_of_kind
from mz_recordings.drift.outputs import grown
from mz_recordings.findings import FindingKind

STEP = 5
"""Percent to which a range is rounded up."""
VARIABLE = (
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", r"[0-9a-fA-F-]{36}"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?", r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?"),
    (r"(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}", r"[0-9a-f]{7,64}"),
    (r"\d+(?:[.,]\d+)*", r"\d[\d.,]*"),
)
"""Values that vary by themselves, and a pattern for each: ids, times, digests, numbers."""
_ANY = re.compile("|".join(f"({found})" for found, _ in VARIABLE))


def learn(
    differences: Iterable[Difference], cassette: str, reason: str, today: date
) -> tuple[tuple[Noise, ...], tuple[Refusal, ...]]:
    """Return entries for this cassette, and rejections of differences that cannot be noise."""
    found: dict[tuple[FindingKind, str], Noise] = {}
    refused = list[Refusal]()
    for each in differences:
        what = f"{each.finding.kind} {each.finding.feature} {each.finding.call}: {each.finding.what}"
        if not each.atoms or refusal_of_kind(each.finding.kind):
            refused.append(Refusal(refusal_of_kind(each.finding.kind) or "STRUCTURAL_CHANGE", " ".join(what.split())))
            continue
        for entry in _proposed(each, cassette, reason):
            if name := refusal_of(entry, today):
                refused.append(Refusal(name, f"{entry.kind} {entry.path}: {each.finding.what}"))
                continue
            key = entry.kind, entry.path
            before = found.get(key)
            wider = max((one.within or 0) for one in (entry, before) if one is not None) or None
            found[key] = msgspec.structs.replace(entry, within=wider)
    if len(found) > ENTRIES_MAX:
        refused.append(
            Refusal("TOO_MANY_DIFFS", f"{len(found)} entries would be needed, at most {ENTRIES_MAX} are proposed")
        )
        return (), tuple(refused)
    return tuple(found.values()), tuple(refused)


def _proposed(difference: Difference, cassette: str, reason: str) -> Iterator[Noise]:
    kind, atoms = difference.finding.kind, difference.atoms
    if kind == "ARTIFACT":
        patterns = [pattern_of(atom.old, atom.new) for atom in atoms]
        paths = [each for each in patterns if each] if all(patterns) else [atoms[0].path]
        for path in dict.fromkeys(paths):
            yield Noise(kind=kind, path=path, reason=reason, cassette=cassette)
        return
    for atom in atoms:
        change = grown(atom) if kind == "COST" else None
        within = ceil(abs(change) * 100 / STEP) * STEP if change is not None else None
        if kind == "COST":
            within = max(within, STEP) if within is not None else WITHIN_MAX + 1
        yield Noise(kind=kind, path=atom.path, reason=reason, cassette=cassette, within=within)


def pattern_of(old: str, new: str) -> str:
    """Return the pattern that matches both lines and varies only in VARIABLE_PATTERNS; empty: there is none."""
    one, other = _general(old), _general(new)
    return one if one == other and old and new else ""


def _general(line: str) -> str:
    parts, at = [], 0
    for found in _ANY.finditer(line):
        parts += [re.escape(line[at : found.start()]), VARIABLE[(found.lastindex or 1) - 1][1]]
        at = found.end()
    return f"^{''.join((*parts, re.escape(line[at:])))}$"


# unused entries -------------------------------------------------------------------------------------------------------
def may_match(entry: Noise, cassette: Cassette) -> bool:
    """Return True if the cassette has anything that the entry concerns."""
    if entry.cassette not in (None, cassette.manifest.name):
        return False
    if entry.kind == "COST":
        return bool(cassette.taken)
    if entry.kind == "WIRE":
        return any(_names_event(entry, one.contents.values()) for one in cassette.taken)
    files = [(one, file) for one in cassette.taken for file in one.recording.files if file.kind == "artifact"]
    if not entry.is_pattern:
        return any(f"{file.artifact}.text" == entry.path for _, file in files)
    texts = (one.contents[file.name].decode("utf-8", "replace") for one, file in files)
    return any(line_matches(entry.path, line) for text in texts for line in text.splitlines())


def _names_event(entry: Noise, contents: Iterable[bytes]) -> bool:
    """Return True if the field's name occurs in a stream."""
    event, _, path = entry.path.partition(":")
    words = [*event.split("/"), *re.findall(r"[\w-]+", path.rpartition(".")[2])]
    return any(all(f'"{word}"'.encode() in data for word in words) for data in contents)
