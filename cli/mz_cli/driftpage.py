"""Result of `mz drift` as text and as a table: by class, with risk and the command that fixes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from msgspec.structs import replace
from mz_engine.exits import Exit, worst
from mz_recordings.drift.noise import Noise, Refusal
from mz_recordings.drift.noisefile import NAME
from mz_recordings.drift.run import Drifted
from mz_recordings.findings import KINDS, RISKS, Finding, FindingKind, Risk, risk_of
from mz_recordings.grouping import Group, group

from mz_cli.render.styled import Line, Span
from mz_cli.render.table import Table, columns
from mz_cli.render.text import counted
from mz_cli.replaypage import mending
from mz_cli.shapes.drift import DriftClass

PLACES_MAX = 6
"""Listed calls of a cassette, and rejected entries of a name."""
CASSETTES_MAX = 12
LOOKS = {"-": "red", "+": "green", "!": "yellow"}
RISK_LOOKS: dict[Risk, str] = {"low": "dim", "medium": "bold yellow", "high": "bold red"}


def exit_of(findings: Iterable[Finding], fail_on: Risk) -> Exit:
    """Return the worst exit code. Drift of a risk below `fail_on` passes; findings that prevent a comparison always
    count."""
    return worst(own_exit(finding.kind, risk_of(finding), fail_on) for finding in findings)


def own_exit(kind: FindingKind, risk: Risk, fail_on: Risk) -> Exit:
    found = KINDS[kind].exit
    return Exit.OK if found is Exit.DRIFT and RISKS.index(risk) < RISKS.index(fail_on) else found


def judged(drifted: Drifted, fail_on: Risk) -> Drifted:
    """Set on each finding whether it fails."""
    played = tuple(
        replace(one, findings=tuple(_judged(finding, fail_on) for finding in one.findings)) for one in drifted.played
    )
    return replace(drifted, played=played)


def _judged(finding: Finding, fail_on: Risk) -> Finding:
    return replace(finding, fails=own_exit(finding.kind, risk_of(finding), fail_on) is not Exit.OK)


def classes(drifted: Drifted, fail_on: Risk) -> tuple[DriftClass, ...]:
    """Return kinds and risks with their numbers, in display order."""
    counts: Counter[tuple[FindingKind, Risk]] = Counter()
    for each in group(drifted.played):
        counts.update((each.kind, risk_of(finding)) for _, finding in each.places)
    return tuple(
        DriftClass(kind=kind, risk=risk, exit=int(own_exit(kind, risk, fail_on)), count=count)
        for (kind, risk), count in counts.items()
    )


def table(drifted: Drifted, fail_on: Risk) -> Table:
    """Return one row per cause."""
    rows = tuple(
        (
            each.kind,
            each.risk,
            str(len(each.places)),
            str(int(own_exit(each.kind, each.risk, fail_on))),
            mend_of(each),
        )
        for each in group(drifted.played)
    )
    return Table(columns=columns("*class", "risk", ">count", ">exit", "fix"), rows=rows, empty="no drift")


def page(drifted: Drifted, fail_on: Risk) -> Iterator[Line]:
    """Yield findings by cause, the worst first; then hidden, proposed and rejected noise."""
    for each in group(drifted.played):
        yield from _group(each, fail_on)
        yield ()
    for entry, count in drifted.hidden:
        yield (Span(f"hidden as noise: {entry_words(entry)}, {count} times ({entry.reason})", "dim"),)
    for entry in drifted.learned:
        yield (Span(f"proposed noise: {entry_words(entry)}"),)
    for name, refused in _by_name(drifted).items():
        yield (Span(f"not noise: {name}", "bold"), Span(f" ({refused[0].why})"))
        for one in refused[:PLACES_MAX]:
            yield (Span(f"  {one.what}", "dim"),)
        if len(refused) > PLACES_MAX:
            yield (Span(f"  and {len(refused) - PLACES_MAX} more", "dim"),)


def _by_name(drifted: Drifted) -> dict[str, list[Refusal]]:
    found: dict[str, list[Refusal]] = {}
    for one in drifted.refused:
        found.setdefault(one.name, []).append(one)
    return found


def _group(each: Group, fail_on: Risk) -> Iterator[Line]:
    yield (Span(each.kind, RISK_LOOKS[each.risk]), Span(f" {each.risk}", "dim"), Span(f"  {each.what}"))
    for path in each.cassettes[:CASSETTES_MAX]:
        calls = [
            "/".join(filter(None, (finding.feature, finding.call))) for where, finding in each.places if where == path
        ]
        known = [call for call in dict.fromkeys(calls) if call]
        more = f", and {len(known) - PLACES_MAX} more" if len(known) > PLACES_MAX else ""
        yield (Span(f"  {path}{': ' if known else ''}{', '.join(known[:PLACES_MAX])}{more}", "dim"),)
    if len(each.cassettes) > CASSETTES_MAX:
        yield (Span(f"  and {len(each.cassettes) - CASSETTES_MAX} more cassettes", "dim"),)
    for line in each.detail:
        yield (Span(f"  {line}", LOOKS.get(line[:1], "")),)
    mend = mend_of(each)
    code = int(own_exit(each.kind, each.risk, fail_on))
    yield (Span("  fix: ", "bold"), Span(mend), Span(f"  (exit {code})", "dim"))


def mend_of(each: Group) -> str:
    """Return the command with the paths of the first cassettes."""
    more = len(each.cassettes) - CASSETTES_MAX
    command = mending(each.places[0][1].mend, each.cassettes[:CASSETTES_MAX])
    return f"{command}  # and {more} more cassettes" if more > 0 else command


def entry_words(entry: Noise) -> str:
    within = f" within {entry.within}%" if entry.within is not None else ""
    return f"{entry.kind} {entry.path}{within} of {entry.cassette or 'all cassettes'}"


def summary(drifted: Drifted, fail_on: Risk, static: bool, against: str) -> str:
    """Return in one line what was compared, and the verdict."""
    real = [one for one in drifted.played if one.name != NAME or PurePath(one.path).name != NAME]
    how = (
        f"against {against}"
        if against != "today"
        else "not replayed"
        if static
        else f"{sum(one.played for one in real)} replayed"
    )
    recordings = sum(one.recordings for one in real)
    found = [finding for one in drifted.played for finding in one.findings]
    failing = [one for one in found if own_exit(one.kind, risk_of(one), fail_on) is not Exit.OK]
    hidden = f", {drifted.quiet} hidden as noise" if drifted.quiet else ""
    verdict = "no drift" if not found else f"{counted(len(found), 'finding')}, {len(failing)} of them fail"
    return f"{counted(len(real), 'cassette')}, {counted(recordings, 'recording')}, {how}: {verdict}{hidden}"
