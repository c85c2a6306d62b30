"""Input of every report: suites with their findings, and the exit code.

Test cases of a suite, each with its findings. Checked cases count even without findings.

Findings grouped by kind and cause, and the texts that all reports share.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from mz_recordings.findings.grouping import FindingGroup, group_findings
from mz_recordings.findings.model import RISKS, Finding, FindingKind, Risk

from mz_cli.reports.replay_text import fix_command


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """One checked unit: a cassette, or a layer of the gate."""

    name: str
    path: str = ""
    """Path relative to the project; empty: not a file."""
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    """Further properties: name and value."""
    cases: tuple[str, ...] = ()
    """Checked cases, such as `alpha/write.a2` and `alpha`. A finding belongs to the case of its call, otherwise to
    that of its feature."""

    @property
    def label(self) -> str:
        """Return the path, or the name of a suite without one."""
        return self.path or self.name

    @property
    def fails(self) -> bool:
        """Return True if a finding makes the command fail."""
        return any(finding.fails for finding in self.findings)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All suites of one command."""

    title: str
    """Command, such as `mz replay`."""
    suites: tuple[Suite, ...]
    exit: int
    version: str
    """Version of `mz`."""

    @property
    def findings(self) -> tuple[tuple[Suite, Finding], ...]:
        """Return all findings, each with its suite."""
        return tuple((suite, finding) for suite in self.suites for finding in suite.findings)


class ReportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Destinations of the reports: path as on the command line, `-` for stdout, None for no report."""

    junit: str | None = None
    sarif: str | None = None
    html: str | None = None
    github: bool = False

    @property
    def files(self) -> dict[str, str]:
        """Return the path of each requested format."""
        paths = {"junit": self.junit, "sarif": self.sarif, "html": self.html}
        return {form: path for form, path in paths.items() if path is not None}

    @property
    def takes_stdout(self) -> bool:
        """Return True if a report is written to stdout instead of the text for people."""
        return "-" in self.files.values()


def case_name(finding: Finding) -> str:
    """Return `alpha/write.a2`, `alpha`, or the kind of a finding that concerns the whole suite."""
    return "/".join(part for part in (finding.feature, finding.call) if part) or finding.kind


def findings_by_case(suite: Suite) -> Mapping[str, tuple[Finding, ...]]:
    """Return the suite's cases in order, then those that findings add; at least one."""
    findings_by_name: dict[str, list[Finding]] = {case: [] for case in suite.cases}
    for finding in suite.findings:
        findings_by_name.setdefault(case_name(finding), []).append(finding)
    return {case: tuple(findings) for case, findings in (findings_by_name or {suite.name: []}).items()}


def finding_groups(report: Report) -> tuple[FindingGroup, ...]:
    """Return the findings grouped by kind and cause."""
    return group_findings((suite.label, finding) for suite, finding in report.findings)


def highest_risk(groups: tuple[FindingGroup, ...], kind: FindingKind) -> Risk:
    """Return the highest risk of the groups of a kind; at least one must exist."""
    return max((group.risk for group in groups if group.kind == kind), key=RISKS.index)


def call_locations(group: FindingGroup, calls_max: int) -> str:
    """Return `recordings/a: alpha/write, alpha/sign; recordings/b: ...` with at most `most` calls."""
    labelled_calls = [
        (label, "/".join(part for part in (finding.feature, finding.call) if part))
        for label, finding in group.occurrences
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
    return fix_command(finding.fix, group.cassettes[:cassettes_max]) + (
        " ..." if len(group.cassettes) > cassettes_max else ""
    )
