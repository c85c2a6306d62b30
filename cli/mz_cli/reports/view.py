"""View model of the HTML report: every value that its template prints."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec
from mz_engine.exits import MEANINGS, Exit
from mz_recordings.findings import KINDS, Risk
from mz_recordings.grouping import ORDER, Group

from mz_cli.render.text import counted, duration
from mz_cli.reports.cases import by_case
from mz_cli.reports.facts import Report, Suite
from mz_cli.reports.groups import groups_of, mend_of, risk_of_kind
from mz_cli.reports.plain import one_line

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


def view(report: Report) -> PageView:
    """Return the view model of a sanitised report."""
    groups = groups_of(report)
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
        groups=tuple(_group(each, anchors) for each in groups),
        open=OPEN_GROUPS if len(groups) <= FEW_GROUPS else 1,
        suites=tuple(sorted(suites, key=lambda suite: suite.passed)),
    )


def _sums(report: Report, groups: tuple[Group, ...], suites: tuple[SuiteView, ...]) -> tuple[tuple[str, str], ...]:
    return (
        ("passed", f"{sum(suite.passed for suite in suites):,} of {len(suites):,}"),
        ("causes", f"{len(groups):,}"),
        ("findings", f"{len(report.findings):,}"),
        ("checks", f"{sum(suite.cases for suite in suites):,}"),
        ("time", _time(sum(suite.seconds for suite in report.suites))),
    )


def _kinds(groups: tuple[Group, ...]) -> tuple[KindView, ...]:
    counts = Counter(each.kind for each in groups)
    return tuple(
        KindView(kind=kind, count=counts[kind], risk=risk_of_kind(groups, kind)) for kind in ORDER if counts[kind]
    )


def _group(each: Group, anchors: dict[str, str]) -> GroupView:
    finding = each.places[0][1]
    calls: dict[str, list[str]] = {}
    for label, located in each.places:
        calls.setdefault(label, []).append("/".join(filter(None, (located.feature, located.call))))
    locations = tuple(SuiteCalls(label, anchors[label], tuple(filter(None, names))) for label, names in calls.items())
    file = f"{finding.file}:{finding.line}" if finding.file and finding.line else finding.file
    terms = (each.kind, each.what, file, *each.causes, *calls, *(name for names in calls.values() for name in names))
    return GroupView(
        kind=each.kind,
        risk=each.risk,
        message=one_line(each.what),
        meaning=KINDS[each.kind].meaning,
        file=file,
        count=counted(len(each.places), "place"),
        fails=each.fails,
        diff=tuple(_line(text) for line in each.detail for text in line.split("\n")),
        fix=mend_of(each, FIX_CASSETTES_MAX) if finding.mend else "",
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
    cases = by_case(suite)
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
        properties=suite.facts,
    )


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else duration(seconds)
