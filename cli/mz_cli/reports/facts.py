"""Input of every report: suites with their findings, and the exit code."""

from __future__ import annotations

import msgspec
from mz_recordings.findings import Finding


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
