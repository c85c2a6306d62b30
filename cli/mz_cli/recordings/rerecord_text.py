"""Plan and result of `mz rerecord`, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from mz_engine.pricing.estimate import Estimate, total_estimate
from mz_recordings.findings.model import KIND_PROPERTIES, RISKS, Finding, FindingKind, risk_of
from mz_recordings.record.obstacles import ExcludedFeature
from mz_recordings.rerecord.driver import CallProgress
from mz_recordings.rerecord.plan import REPEATABLE_KINDS, RepeatedCall
from mz_recordings.rerecord.rerecord import RerecordPlan, RerecordResult

from mz_cli.common.run_text import UNPRICED
from mz_cli.reports.findings import RecordingDifference, call_name
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import Cell, Table, columns, usd_cell
from mz_cli.terminal.text import Line, Span, compact_number, count_noun, exact_usd, format_count, rounded_usd

DIFF_STYLES = {"-": "red", "+": "green"}
LINES_MAX = 40
"""Printed lines of a kind of differences; the JSON contains all."""
REASON_TEXTS = {"REQUESTED": "selected", "OTHER_AGENT": "another agent", "MISSING": "not recorded"}


class RerecordCall(Shape, frozen=True, kw_only=True):
    """A call to be re-recorded."""

    call: str
    """Feature and name, such as `login/code.a2`."""
    reasons: tuple[str, ...]
    """PROMPT, CONFIG, FILES, STREAM, EXPIRED, COPIED, MISSING; REQUESTED: named on the command line; OTHER_AGENT:
    another agent is to reply."""
    follows: str | None
    """Call or feature whose new reply probably changes this call's prompt."""
    paid: bool
    """An earlier, incomplete attempt already has the reply."""
    estimated_tokens: int
    estimated_nanousd: int | None
    """Null: unpriced."""


class RerecordedCassette(Shape, frozen=True, kw_only=True):
    path: str
    planned: tuple[RerecordCall, ...] = ()
    called: tuple[str, ...] = ()
    """Calls made to the real agent."""
    served: tuple[str, ...] = ()
    """Calls served from recordings."""
    charged_nanousd: int = 0
    """Cost of `called`: the higher of reported and computed."""
    stopped: str = ""
    """`interrupted`, `budget`, or the code of a problem that further calls cannot fix; null: completed."""
    kept: tuple[str, ...] = ()
    """Features with accepted new recordings."""
    dropped: tuple[ExcludedFeature, ...] = ()
    differences: tuple[RecordingDifference, ...] = ()
    rejected: tuple[str, ...] = ()
    """Kinds of differences that were not accepted."""
    written: bool = False
    """The cassette holds the new recordings."""
    pending: str = ""
    """Path of the new cassette that waits to be accepted."""
    backup: str = ""
    """Path of a copy, if the cassette had an older format: none is read so far."""
    next: str = ""
    """Command to run next."""


class RerecordReport(Shape, frozen=True, kw_only=True):
    exit: int
    budget_nanousd: int | None
    cassettes: tuple[RerecordedCassette, ...]


# before ---------------------------------------------------------------------------------------------------------------
def table(works: Sequence[tuple[str, RerecordPlan]]) -> Table:
    """Return the planned calls with cause and estimate; on a terminal, without the name of a single cassette."""
    rows = tuple(
        (
            path,
            call.identity.path,
            reason_text(call),
            Cell(compact_number(call.estimate.tokens), format_count(call.estimate.tokens)),
            usd_cell(call.estimate.nanousd, UNPRICED),
        )
        for path, prepared in works
        for call in prepared.calls
    )
    cassette = "*cassette" if len(works) > 1 else "*|cassette"
    return Table(columns=columns(cassette, "*call", "~cause", ">tokens", ">estimated"), rows=rows)


def reason_text(call: RepeatedCall) -> str:
    if call.is_paid:
        return "already paid in an unfinished attempt"
    return ", ".join(REASON_TEXTS.get(cause, cause) for cause in call.reasons) or f"follows {call.follows}"


def planned_estimate(works: Sequence[tuple[str, RerecordPlan]]) -> Estimate:
    return total_estimate(call.estimate for _, prepared in works for call in prepared.calls)


def summary_lines(works: Sequence[tuple[str, RerecordPlan]], budget_nanousd: int | None) -> Iterator[str]:
    """Yield the sum, and a note on calls that may not be necessary."""
    planned = [call for _, prepared in works for call in prepared.calls]
    priced = [call.estimate for call in planned if call.estimate.nanousd is not None]
    text = f"{count_noun(len(planned), 'call')}, {compact_number(planned_estimate(works).tokens)} tokens, "
    text += f"{rounded_usd(sum(estimate.nanousd or 0 for estimate in priced))} estimated"
    if len(priced) < len(planned):
        text += f" + {len(planned) - len(priced)} {UNPRICED}"
    yield f"{text}; " + (f"budget {rounded_usd(budget_nanousd)}" if budget_nanousd is not None else "no budget")
    if any(not call.reasons and not call.is_paid for call in planned):
        yield "later calls are repeated only if their prompt, arguments or tree change"


def nothing_to_do_text(path: str, prepared: RerecordPlan) -> str:
    """Return why no call of a cassette is repeated."""
    other_kinds = sorted(
        {finding.kind for finding in prepared.findings if finding.kind not in (*REPEATABLE_KINDS, "EXPIRED")}
    )
    hint = f"; the replay differs ({', '.join(other_kinds)}): mz replay {quote(path)}" if other_kinds else ""
    return f"{path}: nothing to re-record{hint}"


# progress -------------------------------------------------------------------------------------------------------------
def progress_text(progress: CallProgress) -> str:
    """Return the state of one call in a line."""
    if progress.status in ("asked", "served"):
        return f"{progress.call}: {'calling ...' if progress.status == 'asked' else 'from the recording'}"
    figures = f"{progress.seconds:.1f} s"
    if progress.tokens is not None:
        figures += f", {compact_number(progress.tokens)} tokens, {rounded_usd(progress.nanousd) or UNPRICED}"
    return (
        f"{progress.call}: {progress.status}{f' ({progress.problem_code})' if progress.problem_code else ''}, {figures}"
    )


# after ----------------------------------------------------------------------------------------------------------------
def kind_lines(kind: FindingKind, findings: Sequence[Finding]) -> Iterator[Line]:
    """Yield one kind of differences: its meaning, calls and details, limited to `LINES_MAX`."""
    class_findings = [finding for finding in findings if finding.kind == kind]
    risk = max((risk_of(finding) for finding in class_findings), key=RISKS.index)
    yield (
        Span(kind, "bold"),
        Span(f"  {KIND_PROPERTIES[kind].meaning}, {count_noun(len(class_findings), 'time')}, {risk} risk"),
    )
    lines = [line for finding in class_findings for line in _finding_lines(finding)]
    yield from lines[:LINES_MAX]
    if len(lines) > LINES_MAX:
        yield (Span(f"  ... and {len(lines) - LINES_MAX} more lines", "dim"),)


def _finding_lines(finding: Finding) -> Iterator[Line]:
    yield (Span("  " + ": ".join(filter(None, (call_name(finding), finding.message))), "dim"),)
    for line in finding.detail:
        yield (Span(f"  {line}", DIFF_STYLES.get(line[:1], "")),)


def result_lines(done: RerecordedCassette) -> Iterator[str]:
    for feature in done.dropped:
        yield f"{done.path}: {feature.feature} keeps its old recordings: {feature.reason}"
    charged_text = f"{count_noun(len(done.called), 'agent call')}, ${exact_usd(done.charged_nanousd)}"
    calls_text = f"{charged_text}; {len(done.served)} from the recording"
    if done.written:
        only_unused = {feature.kind for feature in done.differences} == {"UNUSED"}
        change_text = "unused recordings removed" if only_unused else "replaced by the new cassette"
        kept_text = f"new recordings of {', '.join(done.kept)} ({calls_text})"
        yield f"{done.path}: {kept_text if done.kept else change_text}"
    elif done.stopped:
        yield f"{done.path}: stopped ({done.stopped}) after {calls_text}; the cassette is unchanged"
    elif done.pending:
        yield f"{done.path}: unchanged; the new cassette is in {done.pending}; not accepted: {', '.join(done.rejected)}"
    else:
        yield f"{done.path}: unchanged ({calls_text})"


# for programs ---------------------------------------------------------------------------------------------------------
def rerecorded_cassette(path: str, prepared: RerecordPlan, outcome: RerecordResult) -> RerecordedCassette:
    """Return the JSON form of a cassette before anything is written."""
    return RerecordedCassette(
        path=path,
        planned=tuple(map(_planned_call, prepared.calls)),
        called=outcome.live_calls,
        served=outcome.served_calls,
        charged_nanousd=outcome.run_end.charged_nanousd,
        stopped=outcome.run_end.stop_reason,
        kept=outcome.kept_features,
        dropped=outcome.dropped_features,
    )


def _planned_call(call: RepeatedCall) -> RerecordCall:
    return RerecordCall(
        call=call.identity.path,
        reasons=call.reasons,
        follows=call.follows or None,
        paid=call.is_paid,
        estimated_tokens=call.estimate.tokens,
        estimated_nanousd=call.estimate.nanousd,
    )


def differences(findings: Sequence[Finding]) -> tuple[RecordingDifference, ...]:
    return tuple(shape_of(RecordingDifference, finding, risk=risk_of(finding)) for finding in findings)
