"""Result of `mz drift` as text and as a table: by class, with risk and the command that fixes it.

Result of `mz drift` for `--json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from msgspec.structs import replace
from mz_engine.errors.exits import Exit, most_severe
from mz_recordings.drift.noise import FILE_NAME, REJECTION_REASONS, NoiseEntry, NoiseRejection
from mz_recordings.drift.run import LibraryDrift
from mz_recordings.findings.grouping import FindingGroup, group_results
from mz_recordings.findings.model import KIND_PROPERTIES, RISKS, Finding, FindingKind, Risk, risk_of

from mz_cli.check.json import BaselineShape, DriftClass, DriftedCassette, DriftResult, NoiseShape, RejectedNoise
from mz_cli.common.json import finding_shape
from mz_cli.reports.replay_text import fix_command
from mz_cli.terminal.json import shape_of
from mz_cli.terminal.table import Table, columns
from mz_cli.terminal.text import count_noun
from mz_cli.terminal.width import Line, Span

PLACES_MAX = 6
"""Listed calls of a cassette, and rejected entries of a name."""
CASSETTES_MAX = 12
DIFF_STYLES = {"-": "red", "+": "green", "!": "yellow"}
RISK_STYLES: dict[Risk, str] = {"low": "dim", "medium": "bold yellow", "high": "bold red"}


def exit_of(findings: Iterable[Finding], fail_on: Risk) -> Exit:
    """Return the worst exit code. Drift of a risk below `fail_on` passes; findings that prevent a comparison always
    count."""
    return most_severe(finding_exit(finding.kind, risk_of(finding), fail_on) for finding in findings)


def finding_exit(kind: FindingKind, risk: Risk, fail_on: Risk) -> Exit:
    exit_code = KIND_PROPERTIES[kind].exit
    return Exit.OK if exit_code is Exit.DRIFT and RISKS.index(risk) < RISKS.index(fail_on) else exit_code


def with_failures(drift: LibraryDrift, fail_on: Risk) -> LibraryDrift:
    """Set on each finding whether it fails."""
    played = tuple(
        replace(cassette, findings=tuple(_with_failure(finding, fail_on) for finding in cassette.findings))
        for cassette in drift.results
    )
    return replace(drift, results=played)


def _with_failure(finding: Finding, fail_on: Risk) -> Finding:
    return replace(finding, fails=finding_exit(finding.kind, risk_of(finding), fail_on) is not Exit.OK)


def drift_classes(drift: LibraryDrift, fail_on: Risk) -> tuple[DriftClass, ...]:
    """Return kinds and risks with their numbers, in display order."""
    counts: Counter[tuple[FindingKind, Risk]] = Counter()
    for finding_group in group_results(drift.results):
        counts.update((finding_group.kind, risk_of(finding)) for _, finding in finding_group.occurrences)
    return tuple(
        DriftClass(kind=kind, risk=risk, exit=int(finding_exit(kind, risk, fail_on)), count=count)
        for (kind, risk), count in counts.items()
    )


def table(drift: LibraryDrift, fail_on: Risk) -> Table:
    """Return one row per cause."""
    rows = tuple(
        (
            finding_group.kind,
            finding_group.risk,
            str(len(finding_group.occurrences)),
            str(int(finding_exit(finding_group.kind, finding_group.risk, fail_on))),
            group_fix_command(finding_group),
        )
        for finding_group in group_results(drift.results)
    )
    return Table(columns=columns("*class", "risk", ">count", ">exit", "fix"), rows=rows, empty="no drift")


def render_text(drift: LibraryDrift, fail_on: Risk) -> Iterator[Line]:
    """Yield findings by cause, the worst first; then hidden, proposed and rejected noise."""
    for finding_group in group_results(drift.results):
        yield from _group_lines(finding_group, fail_on)
        yield ()
    for entry, count in drift.matched_entries:
        yield (Span(f"hidden as noise: {noise_text(entry)}, {count} times ({entry.reason})", "dim"),)
    for entry in drift.proposed:
        yield (Span(f"proposed noise: {noise_text(entry)}"),)
    for name, rejected in _rejected_by_name(drift).items():
        yield (Span(f"not noise: {name}", "bold"), Span(f" ({rejected[0].reason})"))
        for rejected_entry in rejected[:PLACES_MAX]:
            yield (Span(f"  {rejected_entry.subject}", "dim"),)
        if len(rejected) > PLACES_MAX:
            yield (Span(f"  and {len(rejected) - PLACES_MAX} more", "dim"),)


def _rejected_by_name(drift: LibraryDrift) -> dict[str, list[NoiseRejection]]:
    rejected: dict[str, list[NoiseRejection]] = {}
    for entry in drift.rejections:
        rejected.setdefault(entry.name, []).append(entry)
    return rejected


def _group_lines(finding_group: FindingGroup, fail_on: Risk) -> Iterator[Line]:
    yield (
        Span(finding_group.kind, RISK_STYLES[finding_group.risk]),
        Span(f" {finding_group.risk}", "dim"),
        Span(f"  {finding_group.message}"),
    )
    for path in finding_group.cassettes[:CASSETTES_MAX]:
        calls = [
            "/".join(filter(None, (finding.feature, finding.call)))
            for where, finding in finding_group.occurrences
            if where == path
        ]
        named_calls = [call for call in dict.fromkeys(calls) if call]
        more = f", and {len(named_calls) - PLACES_MAX} more" if len(named_calls) > PLACES_MAX else ""
        yield (Span(f"  {path}{': ' if named_calls else ''}{', '.join(named_calls[:PLACES_MAX])}{more}", "dim"),)
    if len(finding_group.cassettes) > CASSETTES_MAX:
        yield (Span(f"  and {len(finding_group.cassettes) - CASSETTES_MAX} more cassettes", "dim"),)
    for line in finding_group.detail:
        yield (Span(f"  {line}", DIFF_STYLES.get(line[:1], "")),)
    fix = group_fix_command(finding_group)
    code = int(finding_exit(finding_group.kind, finding_group.risk, fail_on))
    yield (Span("  fix: ", "bold"), Span(fix), Span(f"  (exit {code})", "dim"))


def group_fix_command(finding_group: FindingGroup) -> str:
    """Return the command with the paths of the first cassettes."""
    hidden = len(finding_group.cassettes) - CASSETTES_MAX
    command = fix_command(finding_group.occurrences[0][1].fix, finding_group.cassettes[:CASSETTES_MAX])
    return f"{command}  # and {hidden} more cassettes" if hidden > 0 else command


def noise_text(entry: NoiseEntry) -> str:
    within = f" within {entry.within}%" if entry.within is not None else ""
    return f"{entry.kind} {entry.path}{within} of {entry.cassette or 'all cassettes'}"


def summary(drift: LibraryDrift, fail_on: Risk, static: bool, against: str) -> str:
    """Return in one line what was compared, and the verdict."""
    real_cassettes = [
        cassette
        for cassette in drift.results
        if cassette.name != FILE_NAME or PurePath(cassette.path).name != FILE_NAME
    ]
    mode = (
        f"against {against}"
        if against != "today"
        else "not replayed"
        if static
        else f"{sum(cassette.calls_replayed for cassette in real_cassettes)} replayed"
    )
    recordings = sum(cassette.recordings for cassette in real_cassettes)
    findings = [finding for cassette in drift.results for finding in cassette.findings]
    failing = [
        cassette for cassette in findings if finding_exit(cassette.kind, risk_of(cassette), fail_on) is not Exit.OK
    ]
    hidden = f", {drift.hidden_count} hidden as noise" if drift.hidden_count else ""
    verdict = "no drift" if not findings else f"{count_noun(len(findings), 'finding')}, {len(failing)} of them fail"
    return (
        f"{count_noun(len(real_cassettes), 'cassette')}, {count_noun(recordings, 'recording')}, "
        f"{mode}: {verdict}{hidden}"
    )


def drift_result(
    drift: LibraryDrift, exit_code: int, fail_on: Risk, against: str, baselines: tuple[BaselineShape, ...] = ()
) -> DriftResult:
    """Return the JSON document. `baselines`: those that were written."""
    return DriftResult(
        exit=exit_code,
        fail_on=fail_on,
        against=against,
        classes=drift_classes(drift, fail_on),
        cassettes=tuple(
            shape_of(
                DriftedCassette,
                cassette,
                played=cassette.calls_replayed,
                findings=tuple(finding_shape(finding, cassette.path) for finding in cassette.findings),
            )
            for cassette in drift.results
        ),
        hidden=drift.hidden_count,
        noise=tuple(_noise_shape(entry, count) for entry, count in drift.matched_entries),
        learned=tuple(_noise_shape(entry, 0) for entry in drift.proposed),
        refused=tuple(
            RejectedNoise(name=refusal.name, what=refusal.subject, why=REJECTION_REASONS[refusal.name])
            for refusal in drift.rejections
        ),
        baselines=baselines,
    )


def _noise_shape(entry: NoiseEntry, hidden_count: int) -> NoiseShape:
    return shape_of(NoiseShape, entry, until=entry.until.isoformat() if entry.until else None, hides=hidden_count)
