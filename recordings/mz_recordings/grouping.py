"""Pure: findings of many cassettes by what caused them, so that one edited line is one thing to read and to mend."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mz_recordings.findings import Finding, FindingKind, Played

ORDER: tuple[FindingKind, ...] = (
    "PIPELINE", "UNUSABLE", "SECRET", "NETWORK", "PROMPT", "CONFIG", "WIRE", "EFFECT", "POLICY", "ARTIFACT", "EVENT",
    "COST", "MISSING", "UNUSED", "STALE", "SEEDED",
)  # fmt: skip


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Findings of one kind and one cause."""

    kind: FindingKind
    what: str
    causes: tuple[str, ...]
    places: tuple[tuple[str, Finding], ...]
    """Path of the cassette, and what was found there."""

    @property
    def detail(self) -> tuple[str, ...]:
        """Of the first; the others look alike."""
        return self.places[0][1].detail

    @property
    def cassettes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for path, _ in self.places))


def group(results: Iterable[Played]) -> tuple[Group, ...]:
    """All findings, by kind and cause; prompts that the same template or the same changed lines are the cause of stand
    together."""
    groups: list[list[tuple[str, Finding]]] = []
    for result in results:
        for finding in result.findings:
            mine = [one for one in groups if any(_alike(finding, other) for _, other in one)]
            groups = [one for one in groups if one not in mine]
            groups.append([*(entry for one in mine for entry in one), (result.path, finding)])
    made = (_group(entries) for entries in groups)
    return tuple(sorted(made, key=lambda one: ORDER.index(one.kind)))


def _alike(one: Finding, other: Finding) -> bool:
    if one.kind != other.kind:
        return False
    if one.kind == "PROMPT":
        return one.cause == other.cause or _changed(one) == _changed(other)
    return one.kind == "CONFIG" and (one.cause, one.detail) == (other.cause, other.detail)


def _changed(finding: Finding) -> frozenset[str]:
    return frozenset(line for line in finding.detail if line[:1] in "+-")


def _group(entries: list[tuple[str, Finding]]) -> Group:
    first = entries[0][1]
    causes = tuple(sorted({finding.cause for _, finding in entries if finding.cause}))
    what = first.what
    if first.kind == "PROMPT":
        number = f"{len(entries)} prompts are other ones" if len(entries) > 1 else "a prompt is another one"
        what = f"{', '.join(causes)}: {number} than recorded"
    elif first.kind == "CONFIG" and len(entries) > 1:
        what = f"{what}, in {len(entries)} calls"
    return Group(kind=first.kind, what=what, causes=causes, places=tuple(entries))
