"""Pure: where today's code parts from a past run, and what today's rules say of its artifacts: lines for a person,
and documents."""

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
    """Each stream's first divergence, then all of them by cause, then the sum."""
    for stream in history.streams:
        if found := _open(stream):
            yield (Span(f"{stream.stream}", "bold"), Span(f": parts from the record first at {found[0].place}"))
            if stream.unfollowed:
                yield (Span(f"  the record went another way: nothing is said of {stream.unfollowed} events", "dim"),)
    causes = grouped(history.divergences)
    if causes:
        yield ()
    for cause in causes:
        yield from _cause(cause)
        yield ()
    yield from _explained(history.explained)
    yield from _left(left_of(history.streams), "taken from the record and not computed again")
    yield (Span(summary(history)),)


def _open(stream: Replayed) -> tuple[Divergence, ...]:
    return tuple(one for one in stream.divergences if not one.explained)


def _cause(cause: Cause) -> Iterator[Line]:
    first = cause.first
    yield (Span(first.finding, "bold red"), Span(f"  {PARTINGS[first.kind]} ({first.kind})"))
    yield (Span(f"  {places(cause.places)}", "dim"),)
    for line in lines_of(first):
        yield (Span(f"  {line}", LOOKS.get(line[:1], "")),)
    yield (Span("  mend: ", "bold"), Span(MEND), Span(f"  (exit {int(KINDS[first.finding].exit)})", "dim"))


def places(found: Sequence[str]) -> str:
    """The first of them, and how many more."""
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
    """Added up."""
    found: dict[str, int] = {}
    for stream in streams:
        for what, times in stream.left.items():
            found[what] = found.get(what, 0) + times
    return found


def summary(history: History) -> str:
    """What was replayed, in one line."""
    events = sum(stream.events for stream in history.streams)
    compared = sum(stream.compared for stream in history.streams)
    number, causes = len(history.divergences), len(grouped(history.divergences))
    verdict = "as recorded"
    if number:
        verdict = f"NOT as recorded: {_number(number, 'divergence')} of {_number(causes, 'cause')}"
    streams = _number(len(history.streams), "stream")
    return f"run {history.run} (mz {history.core}): {events} events in {streams}, {compared} compared: {verdict}"


def exit_of(history: History) -> Exit:
    """A core that breaks off is a bug, and no verdict on what it decides."""
    if any(one.kind == "failure" for one in history.divergences):
        return Exit.BUG
    return Exit.DRIFT if history.divergences else Exit.OK


def document(history: History) -> PastRun:
    return PastRun(
        exit=int(exit_of(history)),
        run=history.run,
        core=history.core,
        streams=tuple(_stream(one) for one in history.streams),
        divergences=tuple(_divergence(one) for one in history.divergences),
        causes=tuple(_cause_shape(one) for one in grouped(history.divergences)),
        explained=tuple(_divergence(one) for one in history.explained),
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


# old artifacts --------------------------------------------------------------------------------------------------------
def judge_page(judged: Sequence[Judged]) -> Iterator[Line]:
    """What today's rules judge otherwise, and the sum."""
    for one in (each for run in judged for each in run.differing):
        verdict = "now fails" if one.now_fails else "now passes"
        yield (Span("POLICY", "bold red"), Span(f"  {one.place}: {one.path or one.artifact} {verdict} ({one.rules})"))
        for broken in one.broken:
            sign = "+" if one.now_fails else "-"
            yield (Span(f"  {sign} {broken.message or f'{broken.path} [{broken.rule}]'}", LOOKS[sign]),)
        yield ()
    yield from _left(left_of(judged), "not judged")
    yield (Span(judge_summary(judged)),)


def judge_summary(judged: Sequence[Judged]) -> str:
    artifacts = sum(run.artifacts for run in judged)
    fails, passes = (sum(one.now_fails is fails for run in judged for one in run.differing) for fails in (True, False))
    runs = _number(len(judged), "run")
    verdict = f"{fails} now fail, {passes} now pass" if fails or passes else "every verdict is the same"
    return f"{_number(artifacts, 'artifact')} of {runs} by today's rules: {verdict}"


def judge_exit(judged: Sequence[Judged]) -> Exit:
    return Exit.DRIFT if any(run.differing for run in judged) else Exit.OK


def judge_findings(judged: Judged) -> tuple[Finding, ...]:
    """One finding a verdict that is another one."""
    return tuple(
        Finding(
            kind="POLICY",
            what=f"{one.path or one.artifact}, judged at {one.place}, {'now fails' if one.now_fails else 'now passes'}",
            feature=one.feature,
            cause=one.rules,
            detail=tuple(f"{each.path}: {each.message or each.rule}" for each in one.broken),
            mend="change the rules back, or look at what they find",
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


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
