"""Findings for people: their exit code, places and fix, as terminal lines and as the texts that all reports share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from shlex import quote

from msgspec.structs import replace
from mz_engine.errors.exits import Exit, most_severe
from mz_recordings.findings.grouping import FindingGroup
from mz_recordings.findings.model import KIND_PROPERTIES, Finding, ReplayResult, Risk

from mz_cli.terminal.width import Line, Span

PLACES_MAX = 12
"""Listed places of a group, and cassettes in its fix command."""
DETAIL_MAX = 40
DIFF_STYLES = {"-": "red", "+": "green", "!": "yellow"}
RISK_STYLES: dict[Risk, str] = {"low": "dim", "medium": "bold yellow", "high": "bold red"}


def with_failing(results: Iterable[ReplayResult], fails: Callable[[Finding], bool]) -> tuple[ReplayResult, ...]:
    """Return the results, where only the findings that `fails` selects make the command fail."""
    return tuple(
        replace(result, findings=tuple(replace(finding, fails=fails(finding)) for finding in result.findings))
        for result in results
    )


def results_exit(results: Iterable[ReplayResult], bisect: bool = False) -> Exit:
    """Return the exit code that the failing findings cause."""
    findings = (finding for result in results for finding in result.findings if finding.fails)
    return most_severe((KIND_PROPERTIES[finding.kind].exit for finding in findings), bisect)


def call_name(finding: Finding) -> str:
    """Return `alpha/write.a2`, `alpha`, or an empty text for a finding that concerns the whole suite."""
    return "/".join(filter(None, (finding.feature, finding.call)))


def file_position(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}" if finding.file and finding.line else finding.file


def places(group: FindingGroup, places_max: int = PLACES_MAX) -> list[str]:
    """Return `recordings/a: alpha/write, alpha/sign` for each cassette, and the number of omitted places; findings of
    no cassette are in their files."""
    names_by_path: dict[str, dict[str, None]] = {}
    for path, finding in group.occurrences[:places_max]:
        name = call_name(finding) if path else " ".join(filter(None, (file_position(finding), call_name(finding))))
        names_by_path.setdefault(path, {})[name] = None
    listed = [": ".join(filter(None, (path, ", ".join(filter(None, names))))) for path, names in names_by_path.items()]
    omitted = len(group.occurrences) - places_max
    return [*filter(None, listed), *([f"and {omitted:,} more"] if omitted > 0 else [])]


def fix_command(fix: str, cassettes: Iterable[str]) -> str:
    """Return the command with the paths of the cassettes."""
    return fix.replace("{cassette}", " ".join(quote(path) for path in cassettes))


def group_fix(group: FindingGroup, cassettes_max: int = PLACES_MAX) -> str:
    """Return the command for the first cassettes; empty if there is none."""
    omitted = len(group.cassettes) - cassettes_max
    command = fix_command(group.first.fix, group.cassettes[:cassettes_max])
    return f"{command}  # and {omitted} more cassettes" if command and omitted > 0 else command


def group_lines(group: FindingGroup) -> Iterator[Line]:
    """Yield the lines of a group: kind and message, places, differences, fix and exit code."""
    yield Span(group.kind, RISK_STYLES[group.risk]), Span(f"  {group.message}")
    for location in places(group):
        yield (Span(f"  {location}", "dim"),)
    for line in group.detail[:DETAIL_MAX]:
        yield (Span(f"  {line}", DIFF_STYLES.get(line[:1], "")),)
    if len(group.detail) > DETAIL_MAX:
        yield (Span(f"  and {len(group.detail) - DETAIL_MAX} more lines; --json has all", "dim"),)
    exit_text = f"  (exit {int(KIND_PROPERTIES[group.kind].exit) if group.fails else 0})"
    fix = (Span("  fix: ", "bold"), Span(group_fix(group))) if group.first.fix else ()
    yield (*fix, Span(exit_text, "dim"))


def finding_lines(finding: Finding) -> Iterator[Line]:
    """Yield the lines of a finding of no cassette."""
    group = FindingGroup(kind=finding.kind, message=finding.message, causes=(), occurrences=(("", finding),))
    return group_lines(group)
