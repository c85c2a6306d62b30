"""Grouping of findings of many cassettes by cause, so that one edited line gives one entry to read and fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from mz_recordings.findings.model import KIND_PROPERTIES, RISKS, Finding, FindingKind, ReplayResult, Risk, risk_of

ORDER: tuple[FindingKind, ...] = tuple(KIND_PROPERTIES)


class FindingGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Findings with the same kind and cause."""

    kind: FindingKind
    message: str
    causes: tuple[str, ...]
    occurrences: tuple[tuple[str, Finding], ...]
    """Cassette path and finding."""

    @property
    def risk(self) -> Risk:
        """Return the highest risk of the findings."""
        return max((risk_of(finding) for _, finding in self.occurrences), key=RISKS.index)

    @property
    def fails(self) -> bool:
        """Return True if one of the findings makes the command fail."""
        return any(finding.fails for _, finding in self.occurrences)

    @property
    def first(self) -> Finding:
        return self.occurrences[0][1]

    @property
    def detail(self) -> tuple[str, ...]:
        """Return the detail of the first finding; the others are similar."""
        return self.first.detail

    @property
    def cassettes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for path, _ in self.occurrences))


def group_results(results: Iterable[ReplayResult]) -> tuple[FindingGroup, ...]:
    """Group the findings of all results by kind and cause."""
    return group_findings((result.path, finding) for result in results for finding in result.findings)


def group_findings(findings: Iterable[tuple[str, Finding]]) -> tuple[FindingGroup, ...]:
    """Group findings, each with a path or a name.

    Prompt findings with the same template or the same changed lines share a group. Runs in linear time.
    """
    groups: dict[int, list[tuple[str, Finding]]] = {}
    owner: dict[object, int] = {}
    keys: dict[int, list[object]] = {}
    for number, entry in enumerate(findings):
        own_keys = list(_keys(entry[1]))
        first, *others = sorted({owner[key] for key in own_keys if key in owner}) or [number]
        groups.setdefault(first, []).append(entry)
        keys.setdefault(first, []).extend(own_keys)
        for other in others:
            groups[first] += groups.pop(other)
            keys[first] += keys.pop(other)
        owner |= dict.fromkeys(keys[first] if others else own_keys, first)
    result = (_group(entries) for entries in groups.values())
    return tuple(sorted(result, key=lambda group: ORDER.index(group.kind)))


def verdict_line(result: ReplayResult, path: str) -> str:
    """Return one line with the verdict on a replayed cassette, labelled `path`. Whitespace in the path, which the
    author of the folder chose, is collapsed."""
    kinds = sorted({finding.kind for finding in result.findings})
    verdict = "matches the recording" if not kinds else ", ".join(kinds)
    return f"{' '.join(path.split())}: {verdict} ({result.duration_ms / 1000:.1f} s)"


def _keys(finding: Finding) -> Iterator[object]:
    """Yield keys; findings that share one have the same cause."""
    kind = finding.kind, risk_of(finding)
    if finding.kind == "PROMPT":
        yield kind, "cause", finding.cause
        yield kind, "changed", _changed_lines(finding)
    elif finding.kind in ("CONFIG", "DECISION"):
        yield kind, finding.cause, finding.detail
    elif finding.kind in ("COST", "ARTIFACT") or (finding.kind == "FILES" and finding.risk == "low"):
        yield kind, finding.cause
    elif finding.kind == "STREAM":
        yield kind, finding.cause, finding.detail


def _changed_lines(finding: Finding) -> frozenset[str]:
    return frozenset(line for line in finding.detail if line[:1] in "+-")


def _group(entries: list[tuple[str, Finding]]) -> FindingGroup:
    first = entries[0][1]
    causes = tuple(sorted({finding.cause for _, finding in entries if finding.cause}))
    message = first.message
    if first.kind == "PROMPT":
        number = f"{len(entries)} prompts differ" if len(entries) > 1 else "a prompt differs"
        message = f"{', '.join(causes)}: {number} from the recording"
    elif first.kind == "CONFIG" and len(entries) > 1:
        message = f"{message}, in {len(entries)} calls"
    elif len(entries) > 1:
        message = f"{message}; {len(entries)} occurrences in total"
    return FindingGroup(kind=first.kind, message=message, causes=causes, occurrences=tuple(entries))
