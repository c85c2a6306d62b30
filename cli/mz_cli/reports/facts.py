"""Facts: what every report is made of: suites, what was found in each, and the exit code of it all."""

from __future__ import annotations

import msgspec
from mz_recordings.findings import Finding


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was checked as a whole: a cassette, a layer of a gate."""

    name: str
    path: str = ""
    """Where it lies, relative to the project; empty: it is no file."""
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """What else there is to know about it: name and value."""
    cases: tuple[str, ...] = ()
    """What was checked in it, such as `alpha/write.a2` and `alpha`. A finding belongs to the case of its call, else to
    that of its feature."""

    @property
    def label(self) -> str:
        """What people know it by."""
        return self.path or self.name

    @property
    def fails(self) -> bool:
        """Whether something in it is found that the command fails for; else it passed, whatever there is to tell."""
        return any(finding.fails for finding in self.findings)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All suites of one command."""

    title: str
    """The command, such as `mz replay`."""
    suites: tuple[Suite, ...]
    exit: int
    version: str
    """Of `mz`."""

    @property
    def findings(self) -> tuple[tuple[Suite, Finding], ...]:
        """All of them, each with its suite."""
        return tuple((suite, finding) for suite in self.suites for finding in suite.findings)


class ReportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where reports are wanted: paths as they were given, `-` is stdout, None is nowhere."""

    junit: str | None = None
    sarif: str | None = None
    html: str | None = None
    github: bool = False

    @property
    def files(self) -> dict[str, str]:
        """Format and path of each that is wanted."""
        named = {"junit": self.junit, "sarif": self.sarif, "html": self.html}
        return {form: path for form, path in named.items() if path is not None}

    @property
    def takes_stdout(self) -> bool:
        """Whether a report is the answer, and not the page for people."""
        return "-" in self.files.values()
