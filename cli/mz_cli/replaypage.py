"""Pure: what a replay found, as lines for a person: what is wrong and where, what differs, and what mends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from mz_recordings.findings import KINDS, Played
from mz_recordings.grouping import Group, group

from mz_cli.render.styled import Line, Span

PLACES_MAX = 6
LOOKS = {"-": "red", "+": "green"}


def page(results: Sequence[Played]) -> Iterator[Line]:
    """Findings by cause, the gravest first, then the sum."""
    for one in results:
        for words in one.renewed:
            yield (Span(f"{one.path}: {words}"),)
    for each in group(results):
        yield from _group(each)
        yield ()
    for one in results:
        if one.held:
            yield (Span(f"{one.path}: its own settings count, not those of mz.yaml: {', '.join(one.held)}", "dim"),)
    yield (Span(summary(results)),)


def mending(mend: str, cassettes: Sequence[str]) -> str:
    """The command, with the paths of the cassettes in it."""
    return mend.replace("{cassette}", " ".join(quote(path) for path in cassettes))


def summary(results: Sequence[Played]) -> str:
    """What was played, in one line."""
    played, found = sum(one.played for one in results), len(group(results))
    predates = sum(one.predates for one in results)
    offline = "network cut off" if all(one.offline for one in results) else "network not cut off"
    parts = [_number(len(results), "cassette"), f"{_number(played, 'recording')} played", offline]
    if predates:
        parts.append(
            f"{_number(predates, 'answer')} predates its prompt"
            if predates == 1
            else f"{predates} answers predate their prompts"
        )
    verdict = "as recorded" if not found else f"NOT as recorded: {_number(found, 'finding')}"
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
    yield (Span("  mend: ", "bold"), Span(mend), Span(f"  (exit {code})", "dim"))


def _places(each: Group) -> Iterator[tuple[str, str]]:
    for path in each.cassettes:
        calls = [
            "/".join(filter(None, (finding.feature, finding.call))) for where, finding in each.places if where == path
        ]
        known = [call for call in calls if call]
        more = f", and {len(known) - PLACES_MAX} more" if len(known) > PLACES_MAX else ""
        yield path, ", ".join(known[:PLACES_MAX]) + more


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
