"""View model of the HTML report: every value that its template prints."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec
from mz_engine.exits import MEANINGS, Exit
from mz_recordings.findings import KIND_PROPERTIES, Risk
from mz_recordings.grouping import ORDER, FindingGroup

from mz_cli.render.text import count_noun, format_elapsed
from mz_cli.reports.cases import findings_by_case
from mz_cli.reports.facts import Report, Suite
from mz_cli.reports.groups import finding_groups, group_fix, highest_risk
from mz_cli.reports.plain import single_line

FIX_CASSETTES_MAX = 12
"""Maximum of cassettes in one fix command."""
FEW_GROUPS, OPEN_GROUPS = 12, 3
"""With at most `FEW_GROUPS` groups, `OPEN_GROUPS` are expanded at first, otherwise one."""


class DiffLine(msgspec.Struct, frozen=True):
    """A line of a diff."""

    tag: Literal["ins", "del", "span"]
    look: Literal["new", "old", "hunk", "same"]
    text: str


class SuiteCalls(msgspec.Struct, frozen=True):
    """Calls of a group in one suite."""

    suite: str
    anchor: str
    calls: tuple[str, ...]


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    risk: Risk
    message: str
    meaning: str
    file: str
    count: str
    fails: bool
    diff: tuple[DiffLine, ...]
    fix: str
    locations: tuple[SuiteCalls, ...]
    search: str
    """Text that the filter searches, in lower case."""


class SuiteView(msgspec.Struct, frozen=True, kw_only=True):
    anchor: str
    label: str
    passed: bool
    findings: int
    kinds: tuple[str, ...]
    cases: int
    failed: int
    time: str
    properties: tuple[tuple[str, str], ...]


class KindView(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    count: int
    """Number of groups."""
    risk: Risk


class PageView(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    version: str
    passed: bool
    exit: int
    meaning: str
    sums: tuple[tuple[str, str], ...]
    """Totals: label and value."""
    kinds: tuple[KindView, ...]
    groups: tuple[GroupView, ...]
    open: int
    """Number of groups expanded at first."""
    suites: tuple[SuiteView, ...]


def page_view(report: Report) -> PageView:
    """Return the view model of a sanitised report."""
    groups = finding_groups(report)
    suites = tuple(_suite(suite, f"suite-{number}") for number, suite in enumerate(report.suites, 1))
    anchors = {suite.label: suite.anchor for suite in suites}
    return PageView(
        title=report.title,
        version=report.version,
        passed=report.exit == Exit.OK,
        exit=report.exit,
        meaning=MEANINGS[Exit(report.exit)],
        sums=_sums(report, groups, suites),
        kinds=_kinds(groups),
        groups=tuple(_group(group, anchors) for group in groups),
        open=OPEN_GROUPS if len(groups) <= FEW_GROUPS else 1,
        suites=tuple(sorted(suites, key=lambda suite: suite.passed)),
    )


def _sums(report: Report, groups: tuple[FindingGroup, ...], suites: tuple[SuiteView, ...]) -> tuple[tuple[str, str], ...]:
    return (
        ("passed", f"{sum(suite.passed for suite in suites):,} of {len(suites):,}"),
        ("causes", f"{len(groups):,}"),
        ("findings", f"{len(report.findings):,}"),
        ("checks", f"{sum(suite.cases for suite in suites):,}"),
        ("time", _time(sum(suite.seconds for suite in report.suites))),
    )


def _kinds(groups: tuple[FindingGroup, ...]) -> tuple[KindView, ...]:
    counts = Counter(group.kind for group in groups)
    return tuple(
        KindView(kind=kind, count=counts[kind], risk=highest_risk(groups, kind)) for kind in ORDER if counts[kind]
    )


def _group(group: FindingGroup, anchors: dict[str, str]) -> GroupView:
    finding = group.occurrences[0][1]
    calls: dict[str, list[str]] = {}
    for label, located in group.occurrences:
        calls.setdefault(label, []).append("/".join(filter(None, (located.feature, located.call))))
    locations = tuple(SuiteCalls(label, anchors[label], tuple(filter(None, names))) for label, names in calls.items())
    file = f"{finding.file}:{finding.line}" if finding.file and finding.line else finding.file
    terms = (group.kind, group.message, file, *group.causes, *calls, *(name for names in calls.values() for name in names))
    return GroupView(
        kind=group.kind,
        risk=group.risk,
        message=single_line(group.message),
        meaning=KIND_PROPERTIES[group.kind].meaning,
        file=file,
        count=count_noun(len(group.occurrences), "place"),
        fails=group.fails,
        diff=tuple(_line(text) for line in group.detail for text in line.split("\n")),
        fix=group_fix(group, FIX_CASSETTES_MAX) if finding.fix else "",
        locations=locations,
        search=" ".join(terms).lower(),
    )


def _line(text: str) -> DiffLine:
    if text.startswith("@@"):
        return DiffLine("span", "hunk", text)
    if text.startswith("+"):
        return DiffLine("ins", "new", text)
    return DiffLine("del", "old", text) if text.startswith("-") else DiffLine("span", "same", text)


def _suite(suite: Suite, anchor: str) -> SuiteView:
    cases = findings_by_case(suite)
    kinds = tuple(dict.fromkeys(finding.kind for finding in suite.findings))
    return SuiteView(
        anchor=anchor,
        label=suite.label,
        passed=not suite.fails,
        findings=len(suite.findings),
        kinds=kinds,
        cases=len(cases),
        failed=sum(any(finding.fails for finding in findings) for findings in cases.values()),
        time=_time(suite.seconds),
        properties=suite.properties,
    )


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else format_elapsed(seconds)
