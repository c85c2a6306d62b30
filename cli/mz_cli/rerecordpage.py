"""Plan and result of `mz rerecord`, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from mz_engine.estimate import Estimate, together
from mz_recordings.findings import KINDS, Finding, FindingKind, risk_of
from mz_recordings.rerecord.drive import Told
from mz_recordings.rerecord.plan import CHANGED, Planned
from mz_recordings.rerecord.rerecord import Outcome, Prepared

from mz_cli.render.styled import Line, Span
from mz_cli.render.table import Table, columns
from mz_cli.render.text import compact, count, counted, money, usd
from mz_cli.shapes.rerecord import Difference, DroppedFeature, PlannedCall, RerecordedCassette
from mz_cli.summary import UNPRICED

LOOKS = {"-": "red", "+": "green"}
LINES_MAX = 40
"""Printed lines of a class of differences; the JSON contains all."""
WORDS = {"ASKED": "selected", "AGENT": "another agent", "MISSING": "not recorded"}


# before ---------------------------------------------------------------------------------------------------------------
def table(works: Sequence[tuple[str, Prepared]], whole: bool) -> Table:
    """Return the planned calls with cause and estimate. `exact`: for a pipe, with exact numbers and the cassette."""
    several = whole or len(works) > 1
    rows = tuple(
        ((path,) if several else ()) + (one.identity.path, reason(one), *_amounts(one.estimate, whole))
        for path, prepared in works
        for one in prepared.planned
    )
    heads = ("*cassette",) if several else ()
    return Table(columns=columns(*heads, "*call", "cause", ">tokens", ">estimated"), rows=rows, empty="")


def reason(one: Planned) -> str:
    if one.paid:
        return "already paid in an unfinished attempt"
    return ", ".join(WORDS.get(why, why) for why in one.why) or f"follows {one.follows}"


def _amounts(estimate: Estimate, whole: bool) -> tuple[str, str]:
    tokens = (count if whole else compact)(estimate.tokens)
    amount = usd(estimate.nanousd) if whole else money(estimate.nanousd)
    return tokens, amount or UNPRICED


def total(works: Sequence[tuple[str, Prepared]]) -> Estimate:
    return together(one.estimate for _, prepared in works for one in prepared.planned)


def summing(works: Sequence[tuple[str, Prepared]], budget_nanousd: int | None) -> Iterator[str]:
    """Yield the sum, and a note on calls that may not be necessary."""
    planned = [one for _, prepared in works for one in prepared.planned]
    priced = [one.estimate for one in planned if one.estimate.nanousd is not None]
    words = f"{counted(len(planned), 'call')}, {compact(total(works).tokens)} tokens, "
    words += f"{money(sum(each.nanousd or 0 for each in priced))} estimated"
    if len(priced) < len(planned):
        words += f" + {len(planned) - len(priced)} {UNPRICED}"
    yield f"{words}; " + (f"budget {money(budget_nanousd)}" if budget_nanousd is not None else "no budget")
    if any(not one.why and not one.paid for one in planned):
        yield "later calls are repeated only if their prompt, arguments or tree change"


def nothing(path: str, prepared: Prepared) -> str:
    """Return why no call of a cassette is repeated."""
    other = sorted({finding.kind for finding in prepared.findings if finding.kind not in (*CHANGED, "STALE")})
    hint = f"; the replay differs ({', '.join(other)}): mz replay {quote(path)}" if other else ""
    return f"{path}: nothing to re-record{hint}"


# progress -------------------------------------------------------------------------------------------------------------
def words_of(told: Told) -> str:
    """Return the state of one call in a line."""
    if told.what in ("asked", "served"):
        return f"{told.call}: {'calling ...' if told.what == 'asked' else 'from the recording'}"
    taken = f"{told.seconds:.1f} s"
    if told.tokens is not None:
        taken += f", {compact(told.tokens)} tokens, {money(told.nanousd) or UNPRICED}"
    return f"{told.call}: {told.what}{f' ({told.why})' if told.why else ''}, {taken}"


# after ----------------------------------------------------------------------------------------------------------------
def differing(kind: FindingKind, findings: Sequence[Finding]) -> Iterator[Line]:
    """Yield one class of differences: its meaning, calls and details, limited to `LINES_MAX`."""
    mine = [finding for finding in findings if finding.kind == kind]
    risk = max((risk_of(finding) for finding in mine), key=("low", "medium", "high").index)
    yield (Span(kind, "bold"), Span(f"  {KINDS[kind].meaning}, {counted(len(mine), 'time')}, {risk} risk"))
    lines = [line for finding in mine for line in _one(finding)]
    yield from lines[:LINES_MAX]
    if len(lines) > LINES_MAX:
        yield (Span(f"  ... and {len(lines) - LINES_MAX} more lines", "dim"),)


def _one(finding: Finding) -> Iterator[Line]:
    where = "/".join(filter(None, (finding.feature, finding.call)))
    yield (Span(f"  {where}: {finding.what}" if where else f"  {finding.what}", "dim"),)
    for line in finding.detail:
        yield (Span(f"  {line}", LOOKS.get(line[:1], "")),)


def result(done: RerecordedCassette) -> Iterator[str]:
    """Yield the result for one cassette."""
    for each in done.dropped:
        yield f"{done.path}: {each.feature} keeps its old recordings: {each.why}"
    money_words = f"{counted(len(done.called), 'agent call')}, ${done.spent_usd}; {len(done.served)} from the recording"
    if done.written:
        gone = {each.kind for each in done.differences} == {"UNUSED"}
        taken = "unused recordings removed" if gone else "replaced by the new cassette"
        kept = f"new recordings of {', '.join(done.kept)} ({money_words})"
        yield f"{done.path}: {kept if done.kept else taken}"
    elif done.stopped:
        yield f"{done.path}: stopped ({done.stopped}) after {money_words}; the cassette is unchanged"
    elif done.waits:
        yield f"{done.path}: unchanged; the new cassette is in {done.waits}; not accepted: {', '.join(done.refused)}"
    else:
        yield f"{done.path}: unchanged ({money_words})"


# for programs ---------------------------------------------------------------------------------------------------------
def shape(path: str, prepared: Prepared | None, outcome: Outcome | None) -> RerecordedCassette:
    """Return the JSON form of a cassette before anything is written."""
    return RerecordedCassette(
        path=path,
        planned=tuple(_planned(one) for one in prepared.planned) if prepared else (),
        called=outcome.called if outcome else (),
        served=outcome.served if outcome else (),
        spent_usd=usd(outcome.ended.spent_nanousd if outcome else 0) or "",
        stopped=(outcome.ended.stopped or None) if outcome else None,
        kept=outcome.kept if outcome else (),
        dropped=tuple(DroppedFeature(feature=one.feature, why=one.why) for one in (outcome.dropped if outcome else ())),
        differences=(),
        refused=(),
        written=False,
        waits=None,
        backup=None,
        helps=None,
    )


def _planned(one: Planned) -> PlannedCall:
    return PlannedCall(
        call=one.identity.path,
        why=one.why,
        follows=one.follows or None,
        paid=one.paid,
        estimated_tokens=one.estimate.tokens,
        estimated_usd=usd(one.estimate.nanousd),
    )


def differences(findings: Sequence[Finding]) -> tuple[Difference, ...]:
    return tuple(
        Difference(
            kind=one.kind,
            risk=risk_of(one),
            what=one.what,
            feature=one.feature or None,
            call=one.call or None,
            detail=one.detail,
        )
        for one in findings
    )
