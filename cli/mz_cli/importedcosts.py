"""Adapter: what imported sessions cost, for `mz cost --imported`: sums by day, month, session, project, agent, model or
sub-agent, as a table, as JSON and for a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta, tzinfo
from typing import Any, Literal

import msgspec
from mz_projections.imported import QUARTER_S, Session, Sum
from mz_recordings.importing.names import project_of

from mz_cli.period import SECOND_US, Period, days_in
from mz_cli.render.console import is_terminal, note, put
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.table import Table, columns
from mz_cli.render.text import compact, counted, instant, money, usd
from mz_cli.shapes.imported import ImportedAmounts, ImportedCostReport, ImportedGroup
from mz_cli.summary import FEWER, NOT_REPORTED, UNPRICED
from mz_cli.userlog import PREFIX, Imported, reading_imported

ImportedBy = Literal["day", "week", "month", "session", "project", "agent", "model", "part"]
IN_ORDER = ("day", "week", "month")
"""Groups of these stand in the order of time; of others the dearest first."""
EVER = Period()
NOT_TOLD = "(not told)"
MAIN = "(main conversation)"
WHOLE = "(whole calls)"
"""Money that is told for a call as a whole, of which several models or sub-agents had a part."""
NOTHING = "No imported session has requests in that time."
EMPTY = "Nothing was imported: `mz import` found no sessions so far; name files or directories to it."
ABSENT = "-"
DATED = re.compile(r"-20\d{6}$")
"""What people need not read of a model's name, where that is not what is asked for."""
MODELS_SHOWN = 3
NUMBERS = (">requests", ">uncached", ">write 5m", ">write 1h", ">read", ">out", ">tokens", ">reported", ">computed")
SELDOM = ("write 5m", "write 1h", "read")
"""Columns that a terminal gets only where one of their numbers is not zero."""
FIELDS = (
    "requests", "unpriced", "input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning",
    "computed_nanousd",
)  # fmt: skip


class Totals(msgspec.Struct):
    """Sums over rows, as they are added up."""

    requests: int = 0
    unpriced: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    computed_nanousd: int = 0
    reported_nanousd: int | None = None
    by_mz: int = 0
    models: dict[str, int] = {}
    """Requests by model."""
    sessions: set[str] = set()
    reporting: set[str] = set()
    """The sessions with reported money."""
    asking: set[str] = set()
    """The sessions with requests."""
    short: set[str] = set()
    """The sessions whose files may tell fewer tokens than were used."""
    first_s: int | None = None
    last_s: int | None = None

    def add(self, row: Sum, by_mz: bool, short: bool = False) -> None:
        for field in FIELDS:
            setattr(self, field, getattr(self, field) + getattr(row, field))
        if row.reported_nanousd is not None:
            self.reported_nanousd = (self.reported_nanousd or 0) + row.reported_nanousd
            self.reporting.add(row.session)
        self.sessions.add(row.session)
        if short:
            self.short.add(row.session)
        if row.requests:
            self.asking.add(row.session)
            self.by_mz += row.requests if by_mz else 0
            self.models[row.model or NOT_TOLD] = self.models.get(row.model or NOT_TOLD, 0) + row.requests
            self.first_s = row.start_s if self.first_s is None else min(self.first_s, row.start_s)
            self.last_s = row.start_s if self.last_s is None else max(self.last_s, row.start_s)

    @property
    def uncached(self) -> int:
        return max(self.input - self.cache_read - self.cache_write_5m - self.cache_write_1h, 0)

    @property
    def computed(self) -> int | None:
        """None where no tokens are told, or nothing that was asked has a price."""
        return None if self.unpriced >= self.requests else self.computed_nanousd


class ImportedCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    log: str
    by: ImportedBy
    zone: str
    period: Period
    groups: tuple[tuple[str, Totals], ...]
    total: Totals
    notes: tuple[str, ...]
    empty: str
    """Said where there are no groups."""
    shorts: dict[str, str]
    """What people call the groups, where that is shorter."""


def show_imported_costs(
    by: ImportedBy, period: Period = EVER, zone: tzinfo | None = None, *, as_json: bool = False, as_csv: bool = False
) -> None:
    """Prints them. Raises MzError (MZ5011) where nothing was imported."""
    with reading_imported() as log:
        costs = imported_costs(log, by, period, zone)
    if as_json:
        show_document("cost-imported", imported_report(costs))
    elif as_csv:
        put(sys.stdout, imported_csv(costs))
    else:
        whole = not is_terminal(sys.stdout)
        show(imported_table(costs, whole))
        for remark in (*costs.notes, *((costs.empty,) if whole and not costs.groups else ())):
            note(remark)


def imported_costs(log: Imported, by: ImportedBy, period: Period = EVER, zone: tzinfo | None = None) -> ImportedCosts:
    """The sums over all imported sessions; days are those of `zone`, None: the machine's. A quarter of an hour is in
    the period where it begins in it."""
    sessions = {each.stream: each for each in log.views.sessions()}
    named = _namer(log, by, sessions, zone)
    short = short_sessions(log)
    groups: dict[str, Totals] = {}
    total = Totals()
    told = set()
    for row in log.views.sums():
        told.add(row.session)
        if period.holds(row.start_s * SECOND_US):
            session = sessions.get(row.session)
            for sums in (groups.setdefault(named(row), Totals()), total):
                sums.add(row, session is not None and session.by_mz, row.session in short)
    ordered = sorted(
        groups.items(), key=lambda each: each[0] if by in IN_ORDER else (-each[1].computed_nanousd, each[0])
    )
    return ImportedCosts(
        log=str(log.home), by=by, zone=str(zone or "local"), period=period, groups=tuple(ordered), total=total,
        notes=tuple(_notes(total, len(sessions) - len(told) if period == EVER else 0)),
        empty=NOTHING if sessions else EMPTY,
        shorts={stream.removeprefix(PREFIX): name for stream, name in log.short_names().items()}
        if by == "session" else {},
    )  # fmt: skip


def short_sessions(log: Imported) -> frozenset[str]:
    """Streams of sessions whose files may tell fewer tokens than were used."""
    from mz_recordings.importing.settle import lacking  # With it come the readers of all formats.

    views = log.views
    return frozenset(each for each in views.lacking() if lacking(views.files_of(each), views.sums_of(each)))


def _namer(log: Imported, by: ImportedBy, sessions: dict[str, Session], zone: tzinfo | None) -> Callable[[Sum], str]:
    """From a row to the name of its group."""
    day_of = days_in(zone)
    projects: dict[str, str] = {}

    def project(stream: str) -> str:
        if stream not in projects:
            projects[stream] = project_of(log.project(sessions.get(stream))) or NOT_TOLD
        return projects[stream]

    def week(row: Sum) -> str:
        day = day_of(row.start_s * SECOND_US)
        return (day - timedelta(days=day.weekday())).isoformat()

    names: dict[ImportedBy, Callable[[Sum], str]] = {
        "day": lambda row: day_of(row.start_s * SECOND_US).isoformat(),
        "week": week,
        "month": lambda row: day_of(row.start_s * SECOND_US).isoformat()[:7],
        "session": lambda row: row.session.removeprefix(PREFIX),
        "project": lambda row: project(row.session),
        "agent": lambda row: row.session.split("/")[1],
        "model": lambda row: row.model or NOT_TOLD,
        "part": lambda row: row.part or MAIN,
    }
    return _shared(log, names[by]) if by in ("model", "part") else names[by]


def _shared(log: Imported, name: Callable[[Sum], str]) -> Callable[[Sum], str]:
    """The same; but money that is told for a whole call belongs to the only group that the session has requests in."""
    had: dict[str, set[str]] = {}
    for row in log.views.sums():
        if row.requests:
            had.setdefault(row.session, set()).add(name(row))

    def named(row: Sum) -> str:
        groups = had.get(row.session, set())
        if row.requests or not groups:
            return name(row)
        return next(iter(groups)) if len(groups) == 1 else WHOLE

    return named


def _notes(total: Totals, silent: int) -> Iterator[str]:
    """`silent`: sessions that are in no sum."""
    if total.unpriced:
        yield f"{counted(total.unpriced, 'request')} without a price: the cost may be more than `computed` says"
    if total.reporting and len(total.reporting) < len(total.sessions):
        told = f"{len(total.reporting):,} of {counted(len(total.sessions), 'session')}"
        of = "all" if total.reporting <= total.asking else "those with requests"
        yield f"`reported` is of {told}: the files of the others tell no money; `computed` is of {of}"
    if untold := len(total.reporting - total.asking):
        told = f"{counted(untold, 'session')} with money but no requests of its own"
        yield f"{told}: the cost may be more than `computed` says"
    if silent:
        yield f"not in these sums: {counted(silent, 'session')} without requests or money (mz audit --imported)"
    if total.short:
        told = f"{len(total.short):,} of {counted(len(total.sessions), 'session')}"
        yield f"{told} {FEWER}: the cost may be more than `computed` says"
    if total.by_mz:
        yield f"{counted(total.by_mz, 'request')} were driven by mz, and are in their repositories' logs too"


# for programs ---------------------------------------------------------------------------------------------------------
def imported_report(costs: ImportedCosts) -> ImportedCostReport:
    return ImportedCostReport(
        log=costs.log, by=costs.by, timezone=costs.zone, since=instant(costs.period.since_us),
        until=instant(costs.period.until_us), groups=tuple(_group(name, sums) for name, sums in costs.groups),
        total=ImportedAmounts(**amounts(costs.total)), short_sessions=len(costs.total.short), notes=costs.notes,
    )  # fmt: skip


def amounts(sums: Totals) -> dict[str, Any]:
    """The fields of `ImportedAmounts`."""
    return {
        "requests": sums.requests,
        "unpriced_requests": sums.unpriced,
        "input_tokens": sums.input,
        "uncached_input_tokens": sums.uncached,
        "cache_read_tokens": sums.cache_read,
        "cache_write_5m_tokens": sums.cache_write_5m,
        "cache_write_1h_tokens": sums.cache_write_1h,
        "output_tokens": sums.output,
        "reasoning_tokens": sums.reasoning,
        "total_tokens": sums.input + sums.output,
        "computed_usd": usd(sums.computed),
        "reported_usd": usd(sums.reported_nanousd),
    }


def _group(name: str, sums: Totals) -> ImportedGroup:
    return ImportedGroup(
        name=name, models=models(sums), sessions=len(sums.sessions), short_sessions=len(sums.short),
        by_mz_requests=sums.by_mz, first=when(sums.first_s),
        last=when(None if sums.last_s is None else sums.last_s + QUARTER_S), **amounts(sums),
    )  # fmt: skip


def models(sums: Totals) -> tuple[str, ...]:
    """The most asked first."""
    return tuple(sorted((name for name in sums.models if sums.models[name] > 0), key=lambda name: -sums.models[name]))


def when(start_s: int | None) -> str | None:
    return None if start_s is None else instant(start_s * SECOND_US)


# tables ---------------------------------------------------------------------------------------------------------------
def imported_table(costs: ImportedCosts, whole: bool) -> Table:
    """In a pipe (`whole`) numbers are exact, and all columns are there."""
    heads = columns(f"*{costs.by}", "models", *NUMBERS)
    rows = [
        (_called(costs, name, whole), _few(models(sums), whole), *_cells(sums, whole)) for name, sums in costs.groups
    ]
    if rows:
        rows.append(("total", "", *_cells(costs.total, whole)))
    kept = [at for at, head in enumerate(heads) if whole or _says(head.name, [row[at] for row in rows], costs.by)]
    return Table(
        columns=tuple(heads[at] for at in kept), rows=tuple(tuple(row[at] for at in kept) for row in rows),
        empty=costs.empty,
    )  # fmt: skip


def _called(costs: ImportedCosts, name: str, whole: bool) -> str:
    return name if whole else costs.shorts.get(name, name)


def _says(head: str, cells: Sequence[str], by: ImportedBy) -> bool:
    """Whether a column tells people something: models do not beside each model, nor a column of nothing."""
    if head == "models":
        return by != "model"
    return head not in SELDOM or any(cell != "0" for cell in cells)


def imported_csv(costs: ImportedCosts) -> str:
    """The groups, for a spreadsheet; without the total."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    fields = ("models", "sessions", *ImportedAmounts.__struct_fields__)
    writer.writerow((costs.by, *fields))
    for name, sums in costs.groups:
        group = _group(name, sums)
        values = (" ".join(group.models), *(getattr(group, field) for field in fields[1:]))
        writer.writerow((_harmless(name), *("" if value is None else value for value in values)))
    return out.getvalue()


def _harmless(name: str) -> str:
    """A spreadsheet would compute what begins like a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@")) else name


def _few(names: Iterable[str], whole: bool) -> str:
    listed = tuple(names) if whole else tuple(dict.fromkeys(DATED.sub("", name) for name in names))
    if whole or len(listed) <= MODELS_SHOWN:
        return ", ".join(listed)
    return f"{', '.join(listed[:MODELS_SHOWN])} and {len(listed) - MODELS_SHOWN} more"


def _cells(sums: Totals, whole: bool) -> tuple[str, ...]:
    tokens = (sums.uncached, sums.cache_write_5m, sums.cache_write_1h, sums.cache_read, sums.output,
              sums.input + sums.output)  # fmt: skip
    amount = usd if whole else money
    return (
        str(sums.requests),
        *(str(number) if whole else compact(number) for number in tokens),
        amount(sums.reported_nanousd) or (NOT_REPORTED if whole else ABSENT),
        amount(sums.computed) or (UNPRICED if sums.requests else ABSENT),
    )
