"""`mz cost --sessions`: estimated and measured savings of continued sessions, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from mz_projections.cost.session_savings import Saving, SessionCalls, estimated_saving, measured_savings, sum_sessions

from mz_cli.cost.json import SessionFigure, SessionsReport, SessionSums
from mz_cli.terminal.json import shape_of
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


class SessionCost(NamedTuple):
    """Calls of one run by feature, and its delivered features."""

    run: str
    features: tuple[SessionCalls, ...]
    delivered: frozenset[str]

    def total_of(self, names: Collection[str]) -> SessionCalls:
        return sum_sessions(ALL_FEATURES, (feature for feature in self.features if feature.name in names))


def sessions_report(run: SessionCost, baseline: SessionCost | None) -> SessionsReport:
    """Return the report; savings are measured over features that both runs delivered."""
    names = [feature.name for feature in run.features]
    common = [] if baseline is None else [name for name in names if name in run.delivered & baseline.delivered]
    figures: tuple[SessionFigure, ...] = ()
    notes = [ESTIMATED]
    if baseline is None:
        notes.append(NOT_MEASURED)
    elif not common:
        notes.append(NO_COMMON_FEATURES)
    else:
        run_usage, baseline_usage = run.total_of(common), baseline.total_of(common)
        figures = tuple(map(_figure_shape, measured_savings(run_usage, baseline_usage)))
        if unread := run_usage.calls_without_usage + baseline_usage.calls_without_usage:
            notes.append(UNREAD_USAGE.format(count_noun(unread, "call")))
    return SessionsReport(
        run=run.run,
        baseline=None if baseline is None else baseline.run,
        total=_session_sums(run.total_of(names), None),
        features=tuple(_session_sums(feature, feature.name) for feature in run.features),
        compared=tuple(common),
        measured=figures,
        notes=tuple(notes),
    )


def _session_sums(feature: SessionCalls, name: str | None) -> SessionSums:
    return shape_of(
        SessionSums,
        feature,
        name=name,
        calls=len(feature.calls),
        continued_calls=len(feature.continued),
        sessions=feature.sessions_kept,
        broken=feature.dropped,
        saved=_saved_share(estimated_saving(feature)),
    )


def _figure_shape(saving: Saving) -> SessionFigure:
    is_money = saving.figure == "money"
    before, after = (exact_usd(number) or "" if is_money else str(number) for number in (saving.before, saving.after))
    figure = "usd" if is_money else saving.figure.replace(" ", "-")
    return SessionFigure(figure=figure, baseline=before, run=after, saved=_saved_share(saving))


def _saved_share(saving: Saving) -> float | None:
    return None if saving.percent is None else round(saving.percent / 100, 4)


# for people -----------------------------------------------------------------------------------------------------------
def sessions_table(report: SessionsReport) -> Table:
    """Return one row per feature, and the total."""
    heads = columns("feature", ">calls", ">continued", ">sessions", ">sent", ">full", ">saved", "not continued")
    rows = tuple(
        (
            row.name or ALL_FEATURES,
            str(row.calls),
            str(row.continued_calls),
            str(row.sessions),
            count_cell(row.sent_tokens),
            count_cell(row.full_prompt_tokens),
            _percent_cell(row.saved),
            ", ".join(f"{reason} {times}" for reason, times in sorted(row.broken.items())) or "-",
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
