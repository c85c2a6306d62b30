"""`mz cost --sessions`: savings by continued sessions: estimated for one run, or measured against another.

Within one run only prompts can be compared: the size of each as sent, and of the full prompt. Effects on what agents
read again and on a provider's cache only show against another run of the same features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from mz_events.catalog.base import Event
from mz_events.catalog.call import SessionDropped
from mz_events.store import Recorded
from mz_projections.cost.totals import totals
from mz_projections.feature.calls import Call, paid_calls

from mz_cli.terminal.json import Shape
from mz_cli.terminal.table import Table, columns, count_cell
from mz_cli.terminal.text import count_noun, exact_usd

ALL_FEATURES = "all"
ESTIMATED = (
    "prompt sizes are estimates: the prompts as sent, and the same prompts in full. Files that agents read again are "
    "not included"
)
NOT_MEASURED = "not measured; compare with a run without sessions: `--baseline RUN`"
NO_COMMON_FEATURES = "the two runs delivered no feature in common, so nothing can be measured"
UNREAD_USAGE = "the usage of {} is unknown, so the figures are too low"


class SessionSums(Shape, frozen=True, kw_only=True):
    """Sums over the calls of one feature, or of all features."""

    name: str | None
    """Null: all."""
    calls: int
    continued_calls: int
    """Calls that continued a session."""
    sessions: int
    """Sessions started to be continued, without calls of reviewers and of phases that start new sessions."""
    dropped: dict[str, int]
    """Number of dropped sessions by reason."""
    sent_tokens: int
    """Estimated tokens of the continued calls' prompts as sent."""
    full_prompt_tokens: int
    """Estimated tokens of the same prompts in full."""
    saved: float | None
    """Saved share of `full_prompt_tokens`; null: no call continued a session."""


class SessionFigure(Shape, frozen=True, kw_only=True):
    """One measured figure over the features that both runs delivered."""

    figure: str
    """input (all input), new-input (input not in a cache), cache-reads, output, calls or usd."""
    baseline: str
    """Integer, or a decimal number for usd."""
    run: str
    saved: float | None
    """Saved share of the baseline; negative: an increase. Null: the baseline is zero."""


class SessionsReport(Shape, frozen=True, kw_only=True):
    """`mz cost --sessions --json`."""

    run: str
    baseline: str | None
    """Null: no run to compare with, so nothing is measured."""
    total: SessionSums
    features: tuple[SessionSums, ...]
    compared: tuple[str, ...]
    """Features that both runs delivered."""
    measured: tuple[SessionFigure, ...]
    notes: tuple[str, ...]


class SessionCost(NamedTuple):
    """Calls of one run, the reasons of its dropped sessions by feature, and its delivered features."""

    run: str
    calls: tuple[Call, ...]
    dropped: tuple[tuple[str, str], ...]
    delivered: frozenset[str]


def session_cost(run: str, events: Iterable[Recorded[Event]], delivered: frozenset[str]) -> SessionCost:
    """Return the calls and dropped sessions of a run. Events copied by a fork are ignored."""
    own_events = [recorded for recorded in events if not recorded.is_forked_copy]
    dropped = (
        (recorded.stream.rpartition("/")[2], event.reason.value)
        for recorded in own_events
        if isinstance(event := recorded.event, SessionDropped)
    )
    return SessionCost(run, paid_calls(own_events), tuple(dropped), delivered)


def session_sums(cost: SessionCost, feature: str | None) -> SessionSums:
    """Return the sums over one feature; None: all. The saving on prompts that continued a session is estimated: as
    sent against in full."""
    calls = [call for call in cost.calls if feature in (None, call.feature)]
    prompts = [call.continued_prompt for call in calls if call.continued_prompt]
    sent, full = sum(sent for sent, _ in prompts), sum(full for _, full in prompts)
    return SessionSums(
        name=feature,
        calls=len(calls),
        continued_calls=len(prompts),
        sessions=sum(call.keeps_session and not call.continued_prompt for call in calls),
        dropped=Counter(reason for name, reason in cost.dropped if feature in (None, name)),
        sent_tokens=sent,
        full_prompt_tokens=full,
        saved=_saved_share(full, sent),
    )


def measured_figures(calls: Sequence[Call], baseline: Sequence[Call]) -> Iterator[SessionFigure]:
    """Yield the figures of the same work: with sessions against calls that each started anew."""
    figures_before, figures = _figures(baseline), _figures(calls)
    for name, before in figures_before.items():
        texts = [(exact_usd(number) or "") if name == "usd" else str(number) for number in (before, figures[name])]
        saved = _saved_share(before, figures[name])
        yield SessionFigure(figure=name, baseline=texts[0], run=texts[1], saved=saved)


def _figures(calls: Sequence[Call]) -> dict[str, int]:
    sums = totals(calls)
    return {
        "input": sums.input_tokens or 0,
        "new-input": (sums.input_tokens or 0) - (sums.cache_read_tokens or 0),
        "cache-reads": sums.cache_read_tokens or 0,
        "output": sums.output_tokens or 0,
        "usd": sums.charged_nanousd or 0,
        "calls": sums.calls,
    }


def _saved_share(before: int, after: int) -> float | None:
    return None if before == 0 else round((before - after) / before, 4)


def sessions_report(run: SessionCost, baseline: SessionCost | None) -> SessionsReport:
    """Return the report; savings are measured over features that both runs delivered."""
    names = tuple(dict.fromkeys(call.feature for call in run.calls))
    common = [] if baseline is None else [name for name in names if name in run.delivered & baseline.delivered]
    figures: tuple[SessionFigure, ...] = ()
    notes = [ESTIMATED]
    if baseline is None:
        notes.append(NOT_MEASURED)
    elif not common:
        notes.append(NO_COMMON_FEATURES)
    else:
        calls, baseline_calls = ([call for call in cost.calls if call.feature in common] for cost in (run, baseline))
        figures = tuple(measured_figures(calls, baseline_calls))
        if unread := sum(not call.usage for call in (*calls, *baseline_calls)):
            notes.append(UNREAD_USAGE.format(count_noun(unread, "call")))
    return SessionsReport(
        run=run.run,
        baseline=None if baseline is None else baseline.run,
        total=session_sums(run, None),
        features=tuple(session_sums(run, name) for name in names),
        compared=tuple(common),
        measured=figures,
        notes=tuple(notes),
    )


# for people -----------------------------------------------------------------------------------------------------------
def sessions_table(report: SessionsReport) -> Table:
    """Return one row per feature, and the total."""
    heads = columns("feature", ">calls", ">continued", ">sessions", ">sent", ">full", ">saved", ",not continued")
    rows = tuple(
        (
            row.name or ALL_FEATURES,
            str(row.calls),
            str(row.continued_calls),
            str(row.sessions),
            count_cell(row.sent_tokens),
            count_cell(row.full_prompt_tokens),
            _percent_cell(row.saved),
            ", ".join(f"{reason} {times}" for reason, times in sorted(row.dropped.items())) or "-",
        )
        for row in (*report.features, report.total)
    )
    return Table(columns=heads, rows=rows if report.features else (), empty="No agent was called.")


def measured_table(report: SessionsReport) -> Table:
    """Return the usage of both runs for the features that both delivered."""
    heads = columns("measured", f">{report.baseline or 'baseline'}", f">{report.run}", ">saved")
    rows = [(figure.figure, figure.baseline, figure.run, _percent_cell(figure.saved)) for figure in report.measured]
    return Table(columns=heads, rows=rows, empty=NO_COMMON_FEATURES)


def _percent_cell(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
