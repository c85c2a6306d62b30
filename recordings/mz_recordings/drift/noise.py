"""Pure: what may differ between two recordings of the same thing, by entries of a reviewed file.

Only words of artifacts, amounts and fields that nobody reads can be noise. An entry that would hide more is refused,
with a name for the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from mz_recordings.drift.difference import Atom, Difference
from mz_recordings.drift.outputs import grown
from mz_recordings.findings import FindingKind

RefusalName: TypeAlias = Literal[
    "NO_REASON", "HIDES_VERDICT", "HIDES_INPUT", "STRUCTURAL_CHANGE", "OVER_BROAD_PATH", "OVER_BROAD_RANGE",
    "PATTERN_TOO_NARROW", "PATTERN_BROKEN", "TOO_MANY_DIFFS", "EXPIRED", "UNUSED_ENTRY",
]  # fmt: skip
WHY: dict[RefusalName, str] = {
    "NO_REASON": "an entry says why it is noise",
    "HIDES_VERDICT": "what a rule, a gate or a permission decides is never noise",
    "HIDES_INPUT": "what the agent is asked and how it is called is ours, so it does not vary by itself",
    "STRUCTURAL_CHANGE": "files, events, calls and the structure of an artifact are never noise",
    "OVER_BROAD_PATH": "it would hide more than one thing",
    "OVER_BROAD_RANGE": "an amount that varies by more than half is no noise",
    "PATTERN_TOO_NARROW": "a pattern without a variable part would hide this one line and never another",
    "PATTERN_BROKEN": "a pattern is a regular expression from `^` to `$`",
    "TOO_MANY_DIFFS": "recordings that differ in so much are not recordings of the same thing",
    "EXPIRED": "its date has passed",
    "UNUSED_ENTRY": "nothing is left that it could match",
}
AMOUNTS = ("usage.input", "usage.output", "usage.cache_read", "usage.cache_write", "reported", "prices")
WITHIN_MAX = 50
"""Per cent."""
ENTRIES_MAX = 30
"""That may be learned from one comparison."""
LINE_MAX = 500
"""Characters of a line that a pattern may match."""
PROBES = (
    "The report has one line a month.", "- a point of a list", "| month | total |", "0", "2026-03", "def main():",
    "So that nobody waits, it is done at once.", "x",
)  # fmt: skip
"""Lines that have nothing in common: who matches two of them matches nearly everything."""
SLOW = re.compile(r"[+*}][^()]*\)+[+*{]")
"""A repetition within a repetition: some lines would take for ever."""
FREE_MAX = 2
"""`.*` and `.+` in one pattern."""
LITERAL = re.compile(r"(?:[^\\.\[\](){}*+?|^$]|\\[^A-Za-z0-9])*")


class Noise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry."""

    kind: FindingKind = msgspec.field(name="class")
    path: str
    """A field (`usage.output`), an artifact's text (`prd.text`), or a pattern of lines (`^Took \\d+ s$`)."""
    reason: str = ""
    within: int | None = None
    """Per cent by which an amount may vary."""
    cassette: str | None = None
    """Its name; None: all."""
    until: date | None = None
    """The last day on which it holds; None: for ever."""

    @property
    def is_pattern(self) -> bool:
        return self.kind == "ARTIFACT" and not self.path.endswith(".text")


class Refusal(NamedTuple):
    """Why something cannot be noise."""

    name: RefusalName
    what: str
    """What it is about."""

    @property
    def why(self) -> str:
        return WHY[self.name]


# is an entry sound ----------------------------------------------------------------------------------------------------
def refusal_of(entry: Noise, today: date) -> RefusalName | None:
    """The first reason against it; None: it holds."""
    if found := refusal_of_kind(entry.kind):
        return found
    if not entry.reason.strip():
        return "NO_REASON"
    if entry.kind == "COST":
        found = _of_amount(entry)
    elif entry.is_pattern:
        found = _of_pattern(entry.path)
    else:
        found = "OVER_BROAD_PATH" if re.search(r"[*?\s]|^\.", entry.path) or not entry.path else None
    if found is None and entry.until is not None and entry.until < today:
        return "EXPIRED"
    return found


def refusal_of_kind(kind: FindingKind) -> RefusalName | None:
    if kind == "POLICY":
        return "HIDES_VERDICT"
    if kind in ("PROMPT", "CONFIG"):
        return "HIDES_INPUT"
    return None if kind in ("ARTIFACT", "COST", "WIRE") else "STRUCTURAL_CHANGE"


def _of_amount(entry: Noise) -> RefusalName | None:
    if entry.path == "models":
        return "STRUCTURAL_CHANGE"
    if entry.path not in AMOUNTS:
        return "OVER_BROAD_PATH"
    return None if entry.within is not None and 0 < entry.within <= WITHIN_MAX else "OVER_BROAD_RANGE"


def _of_pattern(path: str) -> RefusalName | None:
    if not path.startswith("^") and re.fullmatch(r"[\w-]+", path):
        return "STRUCTURAL_CHANGE"  # The whole artifact, structure and all.
    if not (path.startswith("^") and path.endswith("$")):
        return "PATTERN_BROKEN"
    try:
        pattern = re.compile(path)
    except (re.error, RecursionError, OverflowError):
        return "PATTERN_BROKEN"
    if SLOW.search(path) or len(re.findall(r"\.[*+]", path)) > FREE_MAX:
        return "OVER_BROAD_PATH"
    if sum(bool(pattern.fullmatch(line)) for line in PROBES) > 1 or pattern.fullmatch(""):
        return "OVER_BROAD_PATH"
    return "PATTERN_TOO_NARROW" if LITERAL.fullmatch(path[1:-1]) else None


# what it hides --------------------------------------------------------------------------------------------------------
class Heard(NamedTuple):
    """Differences, told apart."""

    kept: tuple[Difference, ...]
    hidden: tuple[tuple[Noise, int], ...]
    """Entries that hid something, and how many differences each had a part in."""
    differences: int
    """How many are hidden."""


def without_noise(differences: Iterable[Difference], entries: Iterable[Noise], names: Iterable[str]) -> Heard:
    """A difference is hidden where every part of it is noise. `names`: of the cassettes that are compared."""
    known = [entry for entry in entries if entry.cassette is None or entry.cassette in set(names)]
    kept, times, hidden = [], dict[int, int](), 0
    for each in differences:
        mine = [_first(each, atom, known) for atom in each.atoms]
        if mine and all(at is not None for at in mine):
            hidden += 1
            for at in {at for at in mine if at is not None}:
                times[at] = times.get(at, 0) + 1
        else:
            kept.append(each)
    return Heard(tuple(kept), tuple((known[at], count) for at, count in sorted(times.items())), hidden)


def _first(difference: Difference, atom: Atom, entries: list[Noise]) -> int | None:
    kind = difference.finding.kind
    return next((at for at, entry in enumerate(entries) if entry.kind == kind and matches(entry, atom)), None)


def matches(entry: Noise, atom: Atom) -> bool:
    """Whether the entry names this part of a difference."""
    if entry.kind == "COST":
        change = grown(atom)
        return entry.path == atom.path and change is not None and abs(change) * 100 <= (entry.within or 0)
    if entry.is_pattern:
        lines = [line for line in (atom.old, atom.new) if line]
        return bool(lines) and all(line_matches(entry.path, line) for line in lines)
    return entry.path == atom.path


def line_matches(pattern: str, line: str) -> bool:
    return len(line) <= LINE_MAX and re.fullmatch(pattern, line) is not None
