"""`mz cost --imported`: cost of imported sessions by day, week, month, session, project, agent, model or subagent, as
table, JSON and CSV."""

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
"""Groups in the order of time; other groups are listed by cost, the highest first."""
EVER = Period()
NOT_TOLD = "(not reported)"
MAIN = "(main conversation)"
WHOLE = "(full calls)"
"""Group for money reported for a full call that several models or subagents share."""
NOTHING = "No imported session has requests in that time."
EMPTY = "Nothing imported yet: `mz import` found no sessions; give it files or directories."
ABSENT = "-"
DATED = re.compile(r"-20\d{6}$")
"""Date at the end of a model name, left out on a terminal."""
MODELS_SHOWN = 3
NUMBERS = (">requests", ">uncached", ">write 5m", ">write 1h", ">read", ">out", ">tokens", ">reported", ">computed")
SELDOM = ("write 5m", "write 1h", "read")
"""Columns that a terminal shows only if one of their numbers is not zero."""
FIELDS = (
    "requests", "unpriced", "input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning",
    "computed_nanousd",
)  # fmt: skip


class Totals(msgspec.Struct):
    """Running sums over rows."""

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
    """Sessions with reported money."""
    asking: set[str] = set()
    """Sessions with requests."""
    short: set[str] = set()
    """Sessions whose files may report fewer tokens than were used."""
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
        """Computed nano-dollars; None if no request has a price."""
        return None if self.unpriced >= self.requests else self.computed_nanousd


class ImportedCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of imported sessions with the options of the report."""

    log: str
    by: ImportedBy
    zone: str
    period: Period
    groups: tuple[tuple[str, Totals], ...]
    total: Totals
    notes: tuple[str, ...]
    empty: str
    """Text printed if there are no groups."""
    shorts: dict[str, str]
    """Short names of groups, for a terminal."""


def show_imported_costs(
    by: ImportedBy, period: Period = EVER, zone: tzinfo | None = None, *, as_json: bool = False, as_csv: bool = False
) -> None:
    """Print the costs. Raises MzError (MZ5011) if nothing was imported."""
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
    """Return the sums over all imported sessions. Days are those of `zone`, None: the machine's. A quarter of an hour
    belongs to the period in which it begins."""
    sessions = {session.stream: session for session in log.views.sessions()}
    named = _namer(log, by, sessions, zone)
    short = short_sessions(log)
    groups: dict[str, Totals] = {}
    total = Totals()
    told = set()
    for row in log.views.sums():
        told.add(row.session)
        if period.holds(row.start_s * SECOND_US):
            by_mz = row.session in sessions and sessions[row.session].by_mz
            for sums in (groups.setdefault(named(row), Totals()), total):
                sums.add(row, by_mz, row.session in short)
    ordered = sorted(
        groups.items(), key=lambda group: group[0] if by in IN_ORDER else (-group[1].computed_nanousd, group[0])
    )
    return ImportedCosts(
        log=str(log.home), by=by, zone=str(zone or "local"), period=period, groups=tuple(ordered), total=total,
        notes=tuple(_notes(total, len(sessions) - len(told) if period == EVER else 0)),
        empty=NOTHING if sessions else EMPTY,
        shorts={stream.removeprefix(PREFIX): name for stream, name in log.short_names().items()}
        if by == "session" else {},
    )  # fmt: skip


def short_sessions(log: Imported) -> frozenset[str]:
    """Return streams of sessions whose files may report fewer tokens than were used."""
    from mz_recordings.importing.settle import lacking  # Imports the readers of all formats.

    views = log.views
    return frozenset(each for each in views.lacking() if lacking(views.files_of(each), views.sums_of(each)))


def _namer(log: Imported, by: ImportedBy, sessions: dict[str, Session], zone: tzinfo | None) -> Callable[[Sum], str]:
    """Return a function from a row to the name of its group."""
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
    """Assign money reported for a full call to the only group in which the session has requests, else to the group of
    full calls."""
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
    """Yield notes on the sums. `uncounted`: number of sessions without any row."""
    if total.unpriced:
        yield f"{counted(total.unpriced, 'request')} without a price: the cost may be more than `computed` says"
    if total.reporting and len(total.reporting) < len(total.sessions):
        told = f"{len(total.reporting):,} of {counted(len(total.sessions), 'session')}"
        of = "all" if total.reporting <= total.asking else "those with requests"
        yield f"`reported` covers {told}: the others report no money; `computed` covers {of}"
    if untold := len(total.reporting - total.asking):
        told = f"{counted(untold, 'session')} with reported money but no requests"
        yield f"{told}: the cost may be more than `computed` says"
    if silent:
        yield f"not in these sums: {counted(silent, 'session')} without requests or money (mz audit --imported)"
    if total.short:
        told = f"{len(total.short):,} of {counted(len(total.sessions), 'session')}"
        yield f"{told} {FEWER}: the cost may be more than `computed` says"
    if total.by_mz:
        yield f"{counted(total.by_mz, 'request')} driven by mz, also contained in their repositories' logs"


# for programs ---------------------------------------------------------------------------------------------------------
def imported_report(costs: ImportedCosts) -> ImportedCostReport:
    return ImportedCostReport(
        log=costs.log, by=costs.by, timezone=costs.zone, since=instant(costs.period.since_us),
        until=instant(costs.period.until_us), groups=tuple(_group(name, sums) for name, sums in costs.groups),
        total=ImportedAmounts(**amounts(costs.total)), short_sessions=len(costs.total.short), notes=costs.notes,
    )  # fmt: skip


def amounts(sums: Totals) -> dict[str, Any]:
    """Return the fields of `ImportedAmounts`."""
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
    """Return models with requests, the most used first."""
    return tuple(sorted((name for name in sums.models if sums.models[name] > 0), key=lambda name: -sums.models[name]))


def when(start_s: int | None) -> str | None:
    return None if start_s is None else instant(start_s * SECOND_US)


# tables ---------------------------------------------------------------------------------------------------------------
def imported_table(costs: ImportedCosts, whole: bool) -> Table:
    """Return the groups and their total. `exact`: for a pipe, with exact numbers and all columns."""
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
    """Return True if a column is worth showing: not models beside each model, nor a column of zeros."""
    if head == "models":
        return by != "model"
    return head not in SELDOM or any(cell != "0" for cell in cells)


def imported_csv(costs: ImportedCosts) -> str:
    """Return the groups as CSV, without the total."""
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
    """Escape a name that a spreadsheet would take for a formula."""
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
