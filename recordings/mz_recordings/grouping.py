"""Pure: findings of many cassettes by what caused them, so that one edited line is one thing to read and to mend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from mz_recordings.findings import RISKS, Finding, FindingKind, Played, Risk, risk_of

ORDER: tuple[FindingKind, ...] = (
    "CRASH", "PIPELINE", "UNUSABLE", "SECRET", "NETWORK", "PROMPT", "CONFIG", "WIRE", "EFFECT", "POLICY", "ARTIFACT",
    "EVENT", "COST", "MISSING", "UNUSED", "STALE", "SEEDED", "ADAPTER", "RULE", "FORMAT", "VARIANT", "EMPTY",
)  # fmt: skip


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Findings of one kind and one cause."""

    kind: FindingKind
    what: str
    causes: tuple[str, ...]
    places: tuple[tuple[str, Finding], ...]
    """Path of the cassette, and what was found there."""

    @property
    def risk(self) -> Risk:
        """Of the gravest."""
        return max((risk_of(finding) for _, finding in self.places), key=RISKS.index)

    @property
    def fails(self) -> bool:
        """Whether the command fails for one of them."""
        return any(finding.fails for _, finding in self.places)

    @property
    def detail(self) -> tuple[str, ...]:
        """Of the first; the others look alike."""
        return self.places[0][1].detail

    @property
    def cassettes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for path, _ in self.places))


def group(results: Iterable[Played]) -> tuple[Group, ...]:
    """All findings, by kind and cause."""
    return group_found((result.path, finding) for result in results for finding in result.findings)


def group_found(found: Iterable[tuple[str, Finding]]) -> tuple[Group, ...]:
    """The same for findings that each have a path or a name; prompts that the same template or the same changed lines
    are the cause of stand together. Takes time in proportion to their number."""
    groups: dict[int, list[tuple[str, Finding]]] = {}
    owner: dict[object, int] = {}
    keys: dict[int, list[object]] = {}
    for number, entry in enumerate(found):
        mine = list(_keys(entry[1]))
        first, *others = sorted({owner[key] for key in mine if key in owner}) or [number]
        groups.setdefault(first, []).append(entry)
        keys.setdefault(first, []).extend(mine)
        for other in others:
            groups[first] += groups.pop(other)
            keys[first] += keys.pop(other)
        owner |= dict.fromkeys(keys[first] if others else mine, first)
    made = (_group(entries) for entries in groups.values())
    return tuple(sorted(made, key=lambda one: ORDER.index(one.kind)))


def ended(played: Played, path: str) -> str:
    """A word on a cassette as it ends, always one line: whoever made the folder has chosen its name. `path` is what
    people know it by."""
    verdict = "as recorded" if not played.findings else ", ".join(sorted({one.kind for one in played.findings}))
    return f"{' '.join(path.split())}: {verdict} ({played.duration_ms / 1000:.1f} s)"


def _keys(finding: Finding) -> Iterator[object]:
    """Findings that share one of them have the same cause."""
    kind = finding.kind, risk_of(finding)
    if finding.kind == "PROMPT":
        yield kind, "cause", finding.cause
        yield kind, "changed", _changed(finding)
    elif finding.kind in ("CONFIG", "POLICY"):
        yield kind, finding.cause, finding.detail
    elif finding.kind in ("COST", "ARTIFACT") or (finding.kind == "EFFECT" and finding.risk == "low"):
        yield kind, finding.cause
    elif finding.kind == "WIRE":
        yield kind, finding.cause, finding.detail


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
    elif len(entries) > 1:
        what = f"{what}; {len(entries)} places in all"
    return Group(kind=first.kind, what=what, causes=causes, places=tuple(entries))
