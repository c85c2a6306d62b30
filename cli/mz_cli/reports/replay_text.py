"""Result of a replay as text: findings by cause, with differences and fixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from mz_recordings.findings.grouping import FindingGroup, group_results
from mz_recordings.findings.model import KIND_PROPERTIES, ReplayResult

from mz_cli.terminal.text import count_noun
from mz_cli.terminal.width import Line, Span

PLACES_MAX = 6
DIFF_STYLES = {"-": "red", "+": "green"}


def render_text(results: Sequence[ReplayResult]) -> Iterator[Line]:
    """Yield findings by cause, the worst first, then the summary."""
    for cassette in results:
        for update in cassette.changes:
            yield (Span(f"{cassette.path}: {update}"),)
    for finding_group in group_results(results):
        yield from _group_lines(finding_group)
        yield ()
    for cassette in results:
        if cassette.overridden_settings:
            settings = ", ".join(cassette.overridden_settings)
            yield (Span(f"{cassette.path}: using the cassette's settings instead of mz.yaml for: {settings}", "dim"),)
    yield (Span(summary(results)),)


def fix_command(fix: str, cassettes: Sequence[str]) -> str:
    """Return the command with the paths of the cassettes."""
    return fix.replace("{cassette}", " ".join(quote(path) for path in cassettes))


def summary(results: Sequence[ReplayResult]) -> str:
    """Return in one line what was replayed, and the verdict."""
    played, finding_groups = sum(cassette.calls_replayed for cassette in results), len(group_results(results))
    accepted = sum(cassette.accepted_replies for cassette in results)
    offline = "network cut off" if all(cassette.offline for cassette in results) else "network not cut off"
    parts = [count_noun(len(results), "cassette"), f"{count_noun(played, 'recording')} replayed", offline]
    if accepted == 1:
        parts.append("1 reply accepted for a changed prompt")
    elif accepted:
        parts.append(f"{accepted} replies accepted for changed prompts")
    verdict = (
        "matches the recording"
        if not finding_groups
        else f"differs from the recording: {count_noun(finding_groups, 'finding')}"
    )
    return f"{', '.join(parts)}: {verdict}"


def _group_lines(finding_group: FindingGroup) -> Iterator[Line]:
    yield (Span(finding_group.kind, "bold red"), Span(f"  {finding_group.message}"))
    for path, feature_calls in _calls_by_cassette(finding_group):
        yield (Span(f"  {path}{': ' + feature_calls if feature_calls else ''}", "dim"),)
    for line in finding_group.detail:
        yield (Span(f"  {line}", DIFF_STYLES.get(line[:1], "")),)
    finding = finding_group.occurrences[0][1]
    fix = fix_command(finding.fix, finding_group.cassettes)
    code = int(KIND_PROPERTIES[finding_group.kind].exit) if finding_group.fails else 0
    yield (Span("  fix: ", "bold"), Span(fix), Span(f"  (exit {code})", "dim"))


def _calls_by_cassette(finding_group: FindingGroup) -> Iterator[tuple[str, str]]:
    for path in finding_group.cassettes:
        calls = [
            "/".join(filter(None, (finding.feature, finding.call)))
            for where, finding in finding_group.occurrences
            if where == path
        ]
        named_calls = [call for call in calls if call]
        hidden = f", and {len(named_calls) - PLACES_MAX} more" if len(named_calls) > PLACES_MAX else ""
        yield path, ", ".join(named_calls[:PLACES_MAX]) + hidden
