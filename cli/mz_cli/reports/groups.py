"""Findings grouped by kind and cause, and the texts that all reports share."""

from __future__ import annotations

from mz_recordings.findings import RISKS, FindingKind, Risk
from mz_recordings.grouping import FindingGroup, group_findings

from mz_cli.replaypage import fix_command
from mz_cli.reports.facts import Report


def finding_groups(report: Report) -> tuple[FindingGroup, ...]:
    """Return the findings grouped by kind and cause."""
    return group_findings((suite.label, finding) for suite, finding in report.findings)


def highest_risk(groups: tuple[FindingGroup, ...], kind: FindingKind) -> Risk:
    """Return the highest risk of the groups of a kind; at least one must exist."""
    return max((group.risk for group in groups if group.kind == kind), key=RISKS.index)


def call_locations(group: FindingGroup, calls_max: int) -> str:
    """Return `recordings/a: alpha/write, alpha/sign; recordings/b: ...` with at most `most` calls."""
    labelled_calls = [
        (label, "/".join(part for part in (finding.feature, finding.call) if part)) for label, finding in group.occurrences
    ]
    by_label: dict[str, list[str]] = {}
    for label, call in labelled_calls[:calls_max]:
        by_label.setdefault(label, []).extend([call] if call else [])
    parts = [f"{label}: {', '.join(calls)}" if calls else label for label, calls in by_label.items()]
    omitted = [f"and {len(labelled_calls) - calls_max:,} more"] if len(labelled_calls) > calls_max else []
    return "; ".join([*parts, *omitted])


def group_fix(group: FindingGroup, cassettes_max: int) -> str:
    """Return the fix command for at most `most` cassettes; empty if there is none."""
    finding = group.occurrences[0][1]
    return fix_command(finding.fix, group.cassettes[:cassettes_max]) + (" ..." if len(group.cassettes) > cassettes_max else "")
