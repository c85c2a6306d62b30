"""Reports as a single HTML file without any external resource.

The page's Content-Security-Policy allows only its own style sheet and script, by digest, so that text from agents can
neither load nor run anything.

View model of the HTML report: every value that its template prints.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import Counter
from importlib import resources
from typing import Literal

import msgspec
from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup
from mz_engine.errors.codes import MEANINGS
from mz_engine.errors.exits import Exit
from mz_recordings.findings.grouping import ORDER, FindingGroup
from mz_recordings.findings.model import KIND_PROPERTIES, Risk

from mz_cli.reports.model import Report, Suite, finding_groups, findings_by_case, group_fix, highest_risk
from mz_cli.reports.sanitise import single_line
from mz_cli.terminal.text import count_noun, format_elapsed

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


def _sums(
    report: Report, groups: tuple[FindingGroup, ...], suites: tuple[SuiteView, ...]
) -> tuple[tuple[str, str], ...]:
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
    terms = (
        group.kind,
        group.message,
        file,
        *group.causes,
        *calls,
        *(name for names in calls.values() for name in names),
    )
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


def html(report: Report) -> str:
    """Return the HTML file of a sanitised report."""
    folder = resources.files("mz_cli.reports") / "page"
    template, style, script = ((folder / name).read_text("utf-8") for name in ("page.html.j2", "page.css", "page.js"))
    environment = ImmutableSandboxedEnvironment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(template).render(
        page=page_view(report),
        style=Markup(style),
        script=Markup(script),
        policy=content_security_policy(style, script),
    )


def content_security_policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy of the page."""
    allowed = (("style-src", style), ("script-src", script))
    directives = "; ".join(f"{name} 'sha256-{_digest(text)}'" for name, text in allowed)
    return f"default-src 'none'; {directives}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()
