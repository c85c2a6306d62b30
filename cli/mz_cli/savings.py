"""`mz cost --sessions`: estimated and measured savings of continued sessions, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mz_projections.continued import Continued, Saving, estimated, measured, together

from mz_cli.render.table import Table, columns
from mz_cli.render.text import count, counted, usd
from mz_cli.shapes.sessions import SessionFigure, SessionsReport, SessionSums

ALL = "all"
ESTIMATED = (
    "prompt sizes are estimates: the prompts as sent, and the same prompts in full. Files that agents read again are "
    "not included"
)
NOT_MEASURED = "not measured; compare with a run without sessions: `--baseline RUN`"
NOT_THE_SAME = "the two runs delivered no feature in common, so nothing can be measured"
UNREAD = "the usage of {} is unknown, so the figures are too low"


class Side:
    """Calls of one run by feature, and its delivered features."""

    def __init__(self, run: str, features: Sequence[Continued], delivered: Collection[str]) -> None:
        self.run, self.features, self.delivered = run, tuple(features), frozenset(delivered)

    def of(self, names: Collection[str]) -> Continued:
        return together(ALL, (one for one in self.features if one.name in names))


def sessions_report(run: Side, baseline: Side | None) -> SessionsReport:
    """Return the report; savings are measured over features that both runs delivered."""
    names = [one.name for one in run.features]
    both = [] if baseline is None else [name for name in names if name in run.delivered & baseline.delivered]
    figures: tuple[SessionFigure, ...] = ()
    notes = [ESTIMATED]
    if baseline is None:
        notes.append(NOT_MEASURED)
    elif not both:
        notes.append(NOT_THE_SAME)
    else:
        mine, theirs = run.of(both), baseline.of(both)
        figures = tuple(map(_figure, measured(mine, theirs)))
        if unread := mine.unread + theirs.unread:
            notes.append(UNREAD.format(counted(unread, "call")))
    return SessionsReport(
        run=run.run,
        baseline=None if baseline is None else baseline.run,
        total=_sums(run.of(names), None),
        features=tuple(_sums(one, one.name) for one in run.features),
        compared=tuple(both),
        measured=figures,
        notes=tuple(notes),
    )


def _sums(one: Continued, name: str | None) -> SessionSums:
    return SessionSums(
        name=name,
        calls=one.calls,
        continued_calls=one.continued,
        sessions=one.kept,
        broken=one.broken,
        sent_tokens=one.sent_tokens,
        whole_tokens=one.whole_tokens,
        saved=_share(estimated(one)),
    )


def _figure(saving: Saving) -> SessionFigure:
    if saving.figure == "money":
        before, after = usd(saving.before) or "", usd(saving.after) or ""
        return SessionFigure(figure="usd", baseline=before, run=after, saved=_share(saving))
    name = saving.figure.replace(" ", "-")
    return SessionFigure(figure=name, baseline=str(saving.before), run=str(saving.after), saved=_share(saving))


def _share(saving: Saving) -> float | None:
    return None if saving.percent is None else round(saving.percent / 100, 4)


# for people -----------------------------------------------------------------------------------------------------------
def sessions_table(found: SessionsReport) -> Table:
    """Return one row per feature, and the total."""
    heads = columns("feature", ">calls", ">continued", ">sessions", ">sent", ">full", ">saved", "not continued")
    rows = tuple(
        (
            one.name or ALL, str(one.calls), str(one.continued_calls), str(one.sessions), count(one.sent_tokens),
            count(one.whole_tokens), _percent(one.saved),
            ", ".join(f"{reason} {times}" for reason, times in sorted(one.broken.items())) or "-",
        )
        for one in (*found.features, found.total)
    )  # fmt: skip
    return Table(columns=heads, rows=rows if found.features else (), empty="No agent was called.")


def measured_table(found: SessionsReport) -> Table:
    """Return the usage of both runs for the features that both delivered."""
    heads = columns("measured", f">{found.baseline or 'baseline'}", f">{found.run}", ">saved")
    rows = tuple((one.figure, one.baseline, one.run, _percent(one.saved)) for one in found.measured)
    return Table(columns=heads, rows=rows, empty=NOT_THE_SAME)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
