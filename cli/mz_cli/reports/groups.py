"""Findings grouped by kind and cause, and the texts that all reports share."""

from __future__ import annotations

from mz_recordings.findings import RISKS, FindingKind, Risk
from mz_recordings.grouping import Group, group_found

from mz_cli.replaypage import mending
from mz_cli.reports.facts import Report


def groups_of(report: Report) -> tuple[Group, ...]:
    """Return the findings grouped by kind and cause."""
    return group_found((suite.label, finding) for suite, finding in report.findings)


def risk_of_kind(groups: tuple[Group, ...], kind: FindingKind) -> Risk:
    """Return the highest risk of the groups of a kind; at least one must exist."""
    return max((each.risk for each in groups if each.kind == kind), key=RISKS.index)


def places_of(each: Group, most: int) -> str:
    """Return `recordings/a: alpha/write, alpha/sign; recordings/b: ...` with at most `most` calls."""
    named = [
        (label, "/".join(part for part in (finding.feature, finding.call) if part)) for label, finding in each.places
    ]
    by_label: dict[str, list[str]] = {}
    for label, call in named[:most]:
        by_label.setdefault(label, []).extend([call] if call else [])
    parts = [f"{label}: {', '.join(calls)}" if calls else label for label, calls in by_label.items()]
    more = [f"and {len(named) - most:,} more"] if len(named) > most else []
    return "; ".join([*parts, *more])


def mend_of(each: Group, most: int) -> str:
    """Return the fix command for at most `most` cassettes; empty if there is none."""
    finding = each.places[0][1]
    return mending(finding.mend, each.cassettes[:most]) + (" ..." if len(each.cassettes) > most else "")
