"""Pure: `mz cost --sessions`: what sessions that go on saved, estimated and measured, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mz_projections.continued import Continued, Saving, estimated, measured, together

from mz_cli.render.table import Table, columns
from mz_cli.render.text import count, counted, usd
from mz_cli.shapes.sessions import SessionFigure, SessionsReport, SessionSums

ALL = "all"
ESTIMATED = (
    "prompts are estimates: what was sent, and the same prompts with everything in them. What agents read again by "
    "themselves is not in them"
)
NOT_MEASURED = "what it came to is not measured: name a run of the same features without sessions, --baseline RUN"
NOT_THE_SAME = "the two runs have delivered no feature in common: there is nothing to measure"
UNREAD = "nothing is known of what {} used: the figures are too low by them"


class Side:
    """One run: its calls by feature, and which features it delivered."""

    def __init__(self, run: str, features: Sequence[Continued], delivered: Collection[str]) -> None:
        self.run, self.features, self.delivered = run, tuple(features), frozenset(delivered)

    def of(self, names: Collection[str]) -> Continued:
        return together(ALL, (one for one in self.features if one.name in names))


def sessions_report(run: Side, baseline: Side | None) -> SessionsReport:
    """The whole answer; measured over features that both have delivered."""
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
    """The features, and all of them."""
    heads = columns("feature", ">calls", ">continued", ">sessions", ">sent", ">whole", ">saved", "could not go on")
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
    """What both runs used for the features that both delivered."""
    heads = columns("measured", f">{found.baseline or 'baseline'}", f">{found.run}", ">saved")
    rows = tuple((one.figure, one.baseline, one.run, _percent(one.saved)) for one in found.measured)
    return Table(columns=heads, rows=rows, empty=NOT_THE_SAME)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
