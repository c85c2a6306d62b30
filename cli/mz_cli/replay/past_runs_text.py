"""Divergences of the current code from a past run, and results of the current rules: text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mz_engine.errors.exits import Exit, most_severe
from mz_recordings.findings.model import KIND_PROPERTIES, Finding
from mz_recordings.past_runs.model import (
    DIVERGENCE_DESCRIPTIONS,
    FIX,
    INTENDED_CHANGES,
    Divergence,
    DivergenceCause,
    RunReplay,
    StreamReplay,
    divergence_lines,
    field_name,
    findings_of,
    group_by_cause,
)
from mz_recordings.past_runs.rejudge import Recheck, RuleChange

from mz_cli.replay.json import (
    CauseShape,
    ComparedStream,
    DivergenceShape,
    PastRun,
    RecheckResult,
    RuleChangeShape,
    RuleViolationShape,
    UncheckedPart,
)
from mz_cli.terminal.json import shape_of
from mz_cli.terminal.text import count_noun
from mz_cli.terminal.width import Line, Span

PLACES_MAX = 6
DIFF_STYLES = {"-": "red", "+": "green"}


# a past run -----------------------------------------------------------------------------------------------------------
def render_text(history: RunReplay) -> Iterator[Line]:
    """Yield each stream's first divergence, then all divergences by cause, then the summary."""
    for stream in history.streams:
        if unexplained := _unexplained(stream):
            yield (Span(f"{stream.stream}", "bold"), Span(f": first divergence at {unexplained[0].event_ref}"))
            if stream.not_compared:
                yield (Span(f"  {stream.not_compared} later events are not comparable", "dim"),)
        if stream.missing_data is not None:
            yield (Span(stream.stream, "bold"), Span(f": not comparable: {stream.missing_data}"))
    causes = group_by_cause(history.divergences)
    if causes:
        yield ()
    for cause in causes:
        yield from _cause_lines(cause)
        yield ()
    yield from _explained_lines(history.explained)
    yield from _skipped_lines(skipped_counts(history.streams), "taken from the log, not computed again")
    yield (Span(summary(history)),)


def _unexplained(stream: StreamReplay) -> tuple[Divergence, ...]:
    return tuple(divergence for divergence in stream.divergences if not divergence.intended_change)


def _cause_lines(cause: DivergenceCause) -> Iterator[Line]:
    first = cause.first
    yield (Span(first.finding, "bold red"), Span(f"  {DIVERGENCE_DESCRIPTIONS[first.kind]} ({first.kind})"))
    yield (Span(f"  {first_event_refs(cause.event_refs)}", "dim"),)
    for line in divergence_lines(first):
        yield (Span(f"  {line}", DIFF_STYLES.get(line[:1], "")),)
    yield (Span("  fix: ", "bold"), Span(FIX), Span(f"  (exit {int(KIND_PROPERTIES[first.finding].exit)})", "dim"))


def first_event_refs(event_refs: Sequence[str]) -> str:
    """Return the first event refs, and the number of the others."""
    hidden = len(event_refs) - PLACES_MAX
    return ", ".join(event_refs[:PLACES_MAX]) + (f", and {hidden} more" if hidden > 0 else "")


def _explained_lines(divergences: tuple[Divergence, ...]) -> Iterator[Line]:
    reasons = {change.id: change.reason for change in INTENDED_CHANGES}
    for name in dict.fromkeys(divergence.intended_change for divergence in divergences):
        number = sum(divergence.intended_change == name for divergence in divergences)
        yield (Span(f"explained by {name} ({number}): {reasons.get(name, '')}".removesuffix(": "), "dim"),)


def _skipped_lines(counts: Mapping[str, int], label: str) -> Iterator[Line]:
    for kind, times in counts.items():
        yield (Span(f"{label}: {kind} ({times})", "dim"),)


def skipped_counts(streams: Iterable[StreamReplay] | Iterable[Recheck]) -> dict[str, int]:
    """Add up the skipped events of all streams, by kind."""
    counts: dict[str, int] = {}
    for stream in streams:
        for kind, times in stream.not_recomputed.items():
            counts[kind] = counts.get(kind, 0) + times
    return counts


def summary(history: RunReplay) -> str:
    """Return in one line what was replayed, and the verdict."""
    events = sum(stream.events for stream in history.streams)
    compared = sum(stream.compared for stream in history.streams)
    number, causes = len(history.divergences), len(group_by_cause(history.divergences))
    verdict = "matches the log"
    if number:
        verdict = f"differs from the log: {count_noun(number, 'divergence')} of {count_noun(causes, 'cause')}"
    elif incomparable := sum(stream.missing_data is not None for stream in history.streams):
        verdict = f"{count_noun(incomparable, 'stream')} not comparable"
    streams = count_noun(len(history.streams), "stream")
    return f"run {history.run} (mz {history.mz_version}): {events} events in {streams}, {compared} compared: {verdict}"


def history_exit(history: RunReplay, bisect: bool = False) -> Exit:
    """Return the exit code; a crash of the current code is a bug, and no verdict on its decisions."""
    if any(divergence.kind == "failure" for divergence in history.divergences):
        return Exit.BUG
    return most_severe((KIND_PROPERTIES[finding.kind].exit for finding in findings_of(history)), bisect)


def past_run(history: RunReplay) -> PastRun:
    return PastRun(
        exit=int(history_exit(history)),
        run=history.run,
        mz_version=history.mz_version,
        streams=tuple(map(_stream_shape, history.streams)),
        divergences=tuple(map(_divergence_shape, history.divergences)),
        causes=tuple(map(_cause_shape, group_by_cause(history.divergences))),
        explained=tuple(map(_divergence_shape, history.explained)),
        left=_skipped_shapes(skipped_counts(history.streams)),
    )


def _stream_shape(stream: StreamReplay) -> ComparedStream:
    unexplained = _unexplained(stream)
    return shape_of(
        ComparedStream,
        stream,
        first=unexplained[0].event_ref if unexplained else None,
        divergences=len(unexplained),
        unfollowed=stream.not_compared,
        missing=stream.missing_data,
    )


def _divergence_shape(divergence: Divergence) -> DivergenceShape:
    return shape_of(
        DivergenceShape,
        divergence,
        risk=KIND_PROPERTIES[divergence.finding].risk,
        explained=divergence.intended_change or None,
    )


def _cause_shape(cause: DivergenceCause) -> CauseShape:
    fields = sorted({field_name(difference.field) for difference in cause.first.differences})
    return shape_of(CauseShape, cause.first, fields=tuple(fields), event_refs=cause.event_refs)


def _skipped_shapes(counts: Mapping[str, int]) -> tuple[UncheckedPart, ...]:
    return tuple(UncheckedPart(what=kind, times=times) for kind, times in counts.items())


# artifacts of past runs -----------------------------------------------------------------------------------------------
def recheck_text(rechecked: Sequence[Recheck]) -> Iterator[Line]:
    """Yield the artifacts with another verdict under the current rules, and the summary."""
    for change in (change for run in rechecked for change in run.rule_changes):
        verdict = "now fails" if change.now_fails else "now passes"
        what = f"  {change.event_ref}: {change.path or change.artifact} {verdict} ({change.rule_set})"
        yield (Span("DECISION", "bold red"), Span(what))
        for broken in change.violations:
            sign = "+" if change.now_fails else "-"
            yield (Span(f"  {sign} {broken.message or f'{broken.path} [{broken.rule}]'}", DIFF_STYLES[sign]),)
        yield ()
    yield from _skipped_lines(skipped_counts(rechecked), "not rechecked")
    yield (Span(recheck_summary(rechecked)),)


def recheck_summary(rechecked: Sequence[Recheck]) -> str:
    artifacts = sum(run.artifacts for run in rechecked)
    fails, passes = (
        sum(change.now_fails is fails for run in rechecked for change in run.rule_changes) for fails in (True, False)
    )
    runs = count_noun(len(rechecked), "run")
    verdict = f"{fails} now fail, {passes} now pass" if fails or passes else "all verdicts are unchanged"
    return f"{count_noun(artifacts, 'artifact')} of {runs} rechecked with the current rules: {verdict}"


def recheck_exit(rechecked: Sequence[Recheck]) -> Exit:
    return Exit.DRIFT if any(run.rule_changes for run in rechecked) else Exit.OK


def recheck_findings(rechecked: Recheck) -> tuple[Finding, ...]:
    """Return one finding for each changed verdict."""
    return tuple(
        Finding(
            kind="DECISION",
            message=f"{change.path or change.artifact} at {change.event_ref} "
            f"{'now fails' if change.now_fails else 'now passes'}",
            feature=change.feature,
            cause=change.rule_set,
            detail=tuple(f"{violation.path}: {violation.message or violation.rule}" for violation in change.violations),
            fix="revert the rules, or fix what they find",
        )
        for change in rechecked.rule_changes
    )


def recheck_result(rechecked: Sequence[Recheck]) -> RecheckResult:
    return RecheckResult(
        exit=int(recheck_exit(rechecked)),
        runs=tuple(run.run for run in rechecked),
        artifacts=sum(run.artifacts for run in rechecked),
        differing=tuple(_change_shape(change) for run in rechecked for change in run.rule_changes),
        left=_skipped_shapes(skipped_counts(rechecked)),
    )


def _change_shape(change: RuleChange) -> RuleChangeShape:
    valid = ("valid", "invalid")
    before, after = valid if change.now_fails else valid[::-1]
    violations = tuple(shape_of(RuleViolationShape, violation) for violation in change.violations)
    return shape_of(RuleChangeShape, change, rules=change.rule_set, was=before, now=after, broken=violations)
