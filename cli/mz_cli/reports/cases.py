"""Test cases of a suite, each with its findings. Checked cases count even without findings."""

from __future__ import annotations

from collections.abc import Mapping

from mz_recordings.findings import Finding

from mz_cli.reports.facts import Suite


def case_of(finding: Finding) -> str:
    """Return `alpha/write.a2`, `alpha`, or the kind of a finding that concerns the whole suite."""
    return "/".join(part for part in (finding.feature, finding.call) if part) or finding.kind


def by_case(suite: Suite) -> Mapping[str, tuple[Finding, ...]]:
    """Return the suite's cases in order, then those that findings add; at least one."""
    found: dict[str, list[Finding]] = {case: [] for case in suite.cases}
    for finding in suite.findings:
        found.setdefault(case_of(finding), []).append(finding)
    return {case: tuple(findings) for case, findings in (found or {suite.name: []}).items()}
