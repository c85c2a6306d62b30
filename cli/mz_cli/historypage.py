"""Divergences of the current code from a past run, and results of the current rules: text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mz_engine.exits import Exit
from mz_recordings.findings import KINDS, Finding
from mz_recordings.history.changes import CHANGES
from mz_recordings.history.divergence import (
    PARTINGS,
    Cause,
    Divergence,
    History,
    Replayed,
    field_name,
    grouped,
)
from mz_recordings.history.judge import Judged, Judgement
from mz_recordings.history.told import MEND, lines_of

from mz_cli.render.styled import Line, Span
from mz_cli.render.text import counted
from mz_cli.shapes.history import (
    BrokenShape,
    CauseShape,
    DivergenceShape,
    FieldShape,
    JudgementShape,
    JudgeResult,
    LeftShape,
    PastRun,
    StreamShape,
)

PLACES_MAX = 6
LOOKS = {"-": "red", "+": "green"}


# a past run -----------------------------------------------------------------------------------------------------------
def page(history: History) -> Iterator[Line]:
    """Yield each stream's first divergence, then all divergences by cause, then the summary."""
    for stream in history.streams:
        if found := _open(stream):
            yield (Span(f"{stream.stream}", "bold"), Span(f": first divergence at {found[0].place}"))
            if stream.unfollowed:
                yield (Span(f"  {stream.unfollowed} later events are not comparable", "dim"),)
    causes = grouped(history.divergences)
    if causes:
        yield ()
    for cause in causes:
        yield from _cause(cause)
        yield ()
    yield from _explained(history.explained)
    yield from _left(left_of(history.streams), "taken from the log, not computed again")
    yield (Span(summary(history)),)


def _open(stream: Replayed) -> tuple[Divergence, ...]:
    return tuple(one for one in stream.divergences if not one.explained)


def _cause(cause: Cause) -> Iterator[Line]:
    first = cause.first
    yield (Span(first.finding, "bold red"), Span(f"  {PARTINGS[first.kind]} ({first.kind})"))
    yield (Span(f"  {places(cause.places)}", "dim"),)
    for line in lines_of(first):
        yield (Span(f"  {line}", LOOKS.get(line[:1], "")),)
    yield (Span("  fix: ", "bold"), Span(MEND), Span(f"  (exit {int(KINDS[first.finding].exit)})", "dim"))


def places(found: Sequence[str]) -> str:
    """Return the first event refs, and the number of the others."""
    more = len(found) - PLACES_MAX
    return ", ".join(found[:PLACES_MAX]) + (f", and {more} more" if more > 0 else "")


def _explained(found: tuple[Divergence, ...]) -> Iterator[Line]:
    why = {change.id: change.why for change in CHANGES}
    for name in dict.fromkeys(one.explained for one in found):
        number = sum(one.explained == name for one in found)
        yield (Span(f"explained by {name} ({number}): {why.get(name, '')}".removesuffix(": "), "dim"),)


def _left(left: Mapping[str, int], words: str) -> Iterator[Line]:
    for what, times in left.items():
        yield (Span(f"{words}: {what} ({times})", "dim"),)


def left_of(streams: Iterable[Replayed] | Iterable[Judged]) -> dict[str, int]:
    """Add up the skipped events of all streams, by kind."""
    found: dict[str, int] = {}
    for stream in streams:
        for what, times in stream.left.items():
            found[what] = found.get(what, 0) + times
    return found


def summary(history: History) -> str:
    """Return in one line what was replayed, and the verdict."""
    events = sum(stream.events for stream in history.streams)
    compared = sum(stream.compared for stream in history.streams)
    number, causes = len(history.divergences), len(grouped(history.divergences))
    verdict = "matches the log"
    if number:
        verdict = f"differs from the log: {counted(number, 'divergence')} of {counted(causes, 'cause')}"
    streams = counted(len(history.streams), "stream")
    return f"run {history.run} (mz {history.core}): {events} events in {streams}, {compared} compared: {verdict}"


def exit_of(history: History) -> Exit:
    """Return the exit code; a crash of the current code is a bug, and no verdict on its decisions."""
    if any(one.kind == "failure" for one in history.divergences):
        return Exit.BUG
    return Exit.DRIFT if history.divergences else Exit.OK


def document(history: History) -> PastRun:
    return PastRun(
        exit=int(exit_of(history)),
        run=history.run,
        core=history.core,
        streams=tuple(map(_stream, history.streams)),
        divergences=tuple(map(_divergence, history.divergences)),
        causes=tuple(map(_cause_shape, grouped(history.divergences))),
        explained=tuple(map(_divergence, history.explained)),
        left=_left_shapes(left_of(history.streams)),
    )


def _stream(one: Replayed) -> StreamShape:
    found = _open(one)
    return StreamShape(
        stream=one.stream, events=one.events, compared=one.compared, first=found[0].place if found else None,
        divergences=len(found), unfollowed=one.unfollowed,
    )  # fmt: skip


def _divergence(one: Divergence) -> DivergenceShape:
    return DivergenceShape(
        place=one.place, kind=one.kind, finding=one.finding, risk=KINDS[one.finding].risk, recorded=one.recorded,
        produced=one.produced, note=one.note or None, explained=one.explained or None,
        differences=tuple(
            FieldShape(field=each.field, recorded=each.recorded, produced=each.produced, lines=each.lines)
            for each in one.differences
        ),
    )  # fmt: skip


def _cause_shape(one: Cause) -> CauseShape:
    fields = sorted({field_name(each.field) for each in one.first.differences})
    return CauseShape(
        kind=one.first.kind, recorded=one.first.recorded, produced=one.first.produced, fields=tuple(fields),
        places=one.places,
    )  # fmt: skip


def _left_shapes(left: Mapping[str, int]) -> tuple[LeftShape, ...]:
    return tuple(LeftShape(what=what, times=times) for what, times in left.items())


# artifacts of past runs -----------------------------------------------------------------------------------------------
def judge_page(judged: Sequence[Judged]) -> Iterator[Line]:
    """Yield the artifacts with another verdict under the current rules, and the summary."""
    for change in (change for run in judged for change in run.differing):
        verdict = "now fails" if change.now_fails else "now passes"
        what = f"  {change.place}: {change.path or change.artifact} {verdict} ({change.rules})"
        yield (Span("POLICY", "bold red"), Span(what))
        for broken in change.broken:
            sign = "+" if change.now_fails else "-"
            yield (Span(f"  {sign} {broken.message or f'{broken.path} [{broken.rule}]'}", LOOKS[sign]),)
        yield ()
    yield from _left(left_of(judged), "not rechecked")
    yield (Span(judge_summary(judged)),)


def judge_summary(judged: Sequence[Judged]) -> str:
    artifacts = sum(run.artifacts for run in judged)
    fails, passes = (sum(one.now_fails is fails for run in judged for one in run.differing) for fails in (True, False))
    runs = counted(len(judged), "run")
    verdict = f"{fails} now fail, {passes} now pass" if fails or passes else "all verdicts are unchanged"
    return f"{counted(artifacts, 'artifact')} of {runs} rechecked with the current rules: {verdict}"


def judge_exit(judged: Sequence[Judged]) -> Exit:
    return Exit.DRIFT if any(run.differing for run in judged) else Exit.OK


def judge_findings(judged: Judged) -> tuple[Finding, ...]:
    """Return one finding for each changed verdict."""
    return tuple(
        Finding(
            kind="POLICY",
            what=f"{one.path or one.artifact} at {one.place} {'now fails' if one.now_fails else 'now passes'}",
            feature=one.feature,
            cause=one.rules,
            detail=tuple(f"{each.path}: {each.message or each.rule}" for each in one.broken),
            mend="revert the rules, or fix what they find",
        )
        for one in judged.differing
    )


def judge_document(judged: Sequence[Judged]) -> JudgeResult:
    return JudgeResult(
        exit=int(judge_exit(judged)),
        runs=tuple(run.run for run in judged),
        artifacts=sum(run.artifacts for run in judged),
        differing=tuple(_judgement(one) for run in judged for one in run.differing),
        left=_left_shapes(left_of(judged)),
    )


def _judgement(one: Judgement) -> JudgementShape:
    valid = ("valid", "invalid")
    was, now = valid if one.now_fails else valid[::-1]
    return JudgementShape(
        run=one.run, feature=one.feature, place=one.place, phase=one.phase, artifact=one.artifact,
        path=one.path or None, rules=one.rules, was=was, now=now,
        broken=tuple(
            BrokenShape(rule=each.rule, path=each.path, line=each.line, message=each.message or None)
            for each in one.broken
        ),
    )  # fmt: skip
