"""Test cases of a suite, each with its findings. Checked cases count even without findings."""

from __future__ import annotations

from collections.abc import Mapping

from mz_recordings.findings import Finding

from mz_cli.reports.facts import Suite


def case_name(finding: Finding) -> str:
    """Return `alpha/write.a2`, `alpha`, or the kind of a finding that concerns the whole suite."""
    return "/".join(part for part in (finding.feature, finding.call) if part) or finding.kind


def findings_by_case(suite: Suite) -> Mapping[str, tuple[Finding, ...]]:
    """Return the suite's cases in order, then those that findings add; at least one."""
    findings_by_name: dict[str, list[Finding]] = {case: [] for case in suite.cases}
    for finding in suite.findings:
        findings_by_name.setdefault(case_name(finding), []).append(finding)
    return {case: tuple(findings) for case, findings in (findings_by_name or {suite.name: []}).items()}
