"""Input of every report: suites with their findings, and the exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from mz_recordings.findings.grouping import FindingGroup, group_findings
from mz_recordings.findings.model import RISKS, Finding, FindingKind, ReplayResult, Risk

from mz_cli.reports.findings import call_name


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
    def findings_count(self) -> int:
        return sum(len(suite.findings) for suite in self.suites)


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


def findings_by_case(suite: Suite) -> dict[str, list[Finding]]:
    """Return the suite's cases in order, then those that findings add; at least one. A finding that concerns the whole
    suite has a case named by its kind."""
    cases: dict[str, list[Finding]] = {case: [] for case in suite.cases}
    for finding in suite.findings:
        cases.setdefault(call_name(finding) or finding.kind, []).append(finding)
    return cases or {suite.name: []}


def finding_groups(report: Report) -> tuple[FindingGroup, ...]:
    """Return the findings grouped by kind and cause."""
    return group_findings((suite.label, finding) for suite in report.suites for finding in suite.findings)


def kind_totals(groups: Iterable[FindingGroup]) -> tuple[tuple[FindingKind, Risk, int], ...]:
    """Return each kind with its highest risk and its number of findings, in the order of reports."""
    totals: dict[FindingKind, tuple[Risk, int]] = {}
    for group in groups:
        risk, count = totals.get(group.kind, (group.risk, 0))
        totals[group.kind] = max(risk, group.risk, key=RISKS.index), count + len(group.occurrences)
    return tuple((kind, risk, count) for kind, (risk, count) in totals.items())


def replay_suites(results: Iterable[ReplayResult], relative: Callable[[str], str]) -> tuple[Suite, ...]:
    """Return a suite per cassette, with a case per recording and per feature trace. `relative` maps cassette paths to
    project-relative ones."""
    return tuple(
        Suite(
            name=result.name,
            path=relative(result.path),
            seconds=result.duration_ms / 1000,
            findings=result.findings,
            properties=tuple(_properties(result)),
            cases=(*result.calls, *result.trace_digests),
        )
        for result in results
    )


def _properties(result: ReplayResult) -> Iterator[tuple[str, str]]:
    if result.provenance:
        yield "provenance", result.provenance
    yield "recordings", str(result.recordings)
    yield "played", str(result.calls_replayed)
    if result.accepted_replies:
        yield "replies accepted for changed prompts", str(result.accepted_replies)
    yield "network", "cut off" if result.offline else "not cut off"
    for feature, digest in result.trace_digests.items():
        yield f"log digest of {feature}", digest
    if result.overridden_settings:
        yield "settings from the cassette instead of mz.yaml", ", ".join(result.overridden_settings)
    for update in result.changes:
        yield "updated", update
