"""Result of a replay as text: findings by cause, with differences and fixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from mz_recordings.findings import KINDS, Played
from mz_recordings.grouping import Group, group

from mz_cli.render.styled import Line, Span
from mz_cli.render.text import counted

PLACES_MAX = 6
LOOKS = {"-": "red", "+": "green"}


def page(results: Sequence[Played]) -> Iterator[Line]:
    """Yield findings by cause, the worst first, then the summary."""
    for one in results:
        for words in one.renewed:
            yield (Span(f"{one.path}: {words}"),)
    for each in group(results):
        yield from _group(each)
        yield ()
    for one in results:
        if one.held:
            settings = ", ".join(one.held)
            yield (Span(f"{one.path}: using the cassette's settings instead of mz.yaml for: {settings}", "dim"),)
    yield (Span(summary(results)),)


def mending(mend: str, cassettes: Sequence[str]) -> str:
    """Return the command with the paths of the cassettes."""
    return mend.replace("{cassette}", " ".join(quote(path) for path in cassettes))


def summary(results: Sequence[Played]) -> str:
    """Return in one line what was replayed, and the verdict."""
    played, found = sum(one.played for one in results), len(group(results))
    predates = sum(one.predates for one in results)
    offline = "network cut off" if all(one.offline for one in results) else "network not cut off"
    parts = [counted(len(results), "cassette"), f"{counted(played, 'recording')} replayed", offline]
    if predates == 1:
        parts.append("1 prompt differs from the recording")
    elif predates:
        parts.append(f"{predates} prompts differ from the recording")
    verdict = "matches the recording" if not found else f"differs from the recording: {counted(found, 'finding')}"
    return f"{', '.join(parts)}: {verdict}"


def _group(each: Group) -> Iterator[Line]:
    yield (Span(each.kind, "bold red"), Span(f"  {each.what}"))
    for path, feature_calls in _places(each):
        yield (Span(f"  {path}{': ' + feature_calls if feature_calls else ''}", "dim"),)
    for line in each.detail:
        yield (Span(f"  {line}", LOOKS.get(line[:1], "")),)
    finding = each.places[0][1]
    mend = mending(finding.mend, each.cassettes)
    code = int(KINDS[each.kind].exit) if each.fails else 0
    yield (Span("  fix: ", "bold"), Span(mend), Span(f"  (exit {code})", "dim"))


def _places(each: Group) -> Iterator[tuple[str, str]]:
    for path in each.cassettes:
        calls = [
            "/".join(filter(None, (finding.feature, finding.call))) for where, finding in each.places if where == path
        ]
        known = [call for call in calls if call]
        more = f", and {len(known) - PLACES_MAX} more" if len(known) > PLACES_MAX else ""
        yield path, ", ".join(known[:PLACES_MAX]) + more
