"""`mz cost --imported`: cost of imported sessions by day, week, month, session, project, agent, model or subagent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta, tzinfo
from typing import Any, Literal

import msgspec
from mz_projections.imported.model import QUARTER_S, ImportedSession, QuarterSum
from mz_recordings.importing.names import project_of

from mz_cli.app.period import SECOND_US, Period, day_function
from mz_cli.app.user_log import PREFIX, ImportedLog, open_imported_log
from mz_cli.common.run_text import INCOMPLETE_TOKENS, UNPRICED
from mz_cli.cost.report import reported_cell
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import print_document
from mz_cli.terminal.table import Cell, Table, columns, print_table, prints_tsv, usd_cell
from mz_cli.terminal.text import compact_number, count_noun, exact_usd, iso_time
from mz_cli.usage.json import ImportedAmounts, ImportedCostReport, ImportedGroup

ImportedBy = Literal["day", "week", "month", "session", "project", "agent", "model", "part"]
TIME_GROUPINGS = ("day", "week", "month")
"""Groups in the order of time; other groups are listed by cost, the highest first."""
ALL_TIME = Period()
NOT_REPORTED_LABEL = "(not reported)"
MAIN_CONVERSATION = "(main conversation)"
FULL_CALLS = "(full calls)"
"""Group for money reported for a full call that several models or subagents share."""
NONE_IN_PERIOD = "No imported session has requests in that time."
NOTHING_IMPORTED = "Nothing imported yet: `mz import` found no sessions; give it files or directories."
DATE_SUFFIX = re.compile(r"-20\d{6}$")
"""Date at the end of a model name, left out on a terminal."""
MODELS_SHOWN = 3
SUM_FIELDS = (
    "requests", "unpriced", "input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning",
    "computed_nanousd",
)  # fmt: skip


class ImportedTotals(msgspec.Struct):
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
    models: Counter[str] = msgspec.field(default_factory=Counter)
    """Requests by model."""
    sessions: set[str] = set()
    sessions_with_costs: set[str] = set()
    """Sessions with reported money."""
    sessions_with_requests: set[str] = set()
    """Sessions with requests."""
    incomplete_sessions: set[str] = set()
    """Sessions whose files may report fewer tokens than were used."""
    first_s: int | None = None
    last_s: int | None = None

    def add(self, row: QuarterSum, by_mz: bool, is_incomplete: bool = False) -> None:
        for field in SUM_FIELDS:
            setattr(self, field, getattr(self, field) + getattr(row, field))
        if row.reported_nanousd is not None:
            self.reported_nanousd = (self.reported_nanousd or 0) + row.reported_nanousd
            self.sessions_with_costs.add(row.session)
        self.sessions.add(row.session)
        if is_incomplete:
            self.incomplete_sessions.add(row.session)
        if row.requests:
            self.sessions_with_requests.add(row.session)
            self.by_mz += row.requests if by_mz else 0
            self.models[row.model or NOT_REPORTED_LABEL] += row.requests
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
    groups: tuple[tuple[str, ImportedTotals], ...]
    total: ImportedTotals
    notes: tuple[str, ...]
    empty: str
    """Text printed if there are no groups."""
    short_names: dict[str, str]
    """Short names of groups, for a terminal."""


def print_imported_costs(by: ImportedBy, period: Period, zone: tzinfo | None, *, as_json: bool) -> None:
    """Print the costs. Raises MzError (MZ5011) if nothing was imported."""
    with open_imported_log() as log:
        costs = imported_costs(log, by, period, zone)
    if as_json:
        print_document("cost-imported", imported_report(costs))
        return
    print_table(imported_table(costs))
    for note_text in (*costs.notes, *((costs.empty,) if prints_tsv() and not costs.groups else ())):
        print_note(note_text)


def imported_costs(
    log: ImportedLog, by: ImportedBy, period: Period = ALL_TIME, zone: tzinfo | None = None
) -> ImportedCosts:
    """Return the sums over all imported sessions. Days are those of `zone`, None: the machine's. A quarter of an hour
    belongs to the period in which it begins."""
    sessions = {session.stream: session for session in log.views.sessions()}
    group_name = _group_namer(log, by, sessions, zone)
    incomplete = incomplete_sessions(log)
    groups: dict[str, ImportedTotals] = {}
    total = ImportedTotals()
    counted_sessions = set()
    for row in log.views.sums():
        counted_sessions.add(row.session)
        if period.contains(row.start_s * SECOND_US):
            by_mz = row.session in sessions and sessions[row.session].by_mz
            for sums in (groups.setdefault(group_name(row), ImportedTotals()), total):
                sums.add(row, by_mz, row.session in incomplete)
    ordered = sorted(
        groups.items(), key=lambda group: group[0] if by in TIME_GROUPINGS else (-group[1].computed_nanousd, group[0])
    )
    return ImportedCosts(
        log=str(log.home), by=by, zone=str(zone or "local"), period=period, groups=tuple(ordered), total=total,
        notes=tuple(_notes(total, len(sessions) - len(counted_sessions) if period == ALL_TIME else 0)),
        empty=NONE_IN_PERIOD if sessions else NOTHING_IMPORTED,
        short_names={stream.removeprefix(PREFIX): name for stream, name in log.short_names().items()}
        if by == "session" else {},
    )  # fmt: skip


def incomplete_sessions(log: ImportedLog) -> frozenset[str]:
    """Return streams of sessions whose files may report fewer tokens than were used."""
    from mz_recordings.importing.reconcile import incomplete_reasons  # Imports the readers of all formats.

    views = log.views
    return frozenset(
        session
        for session in views.incomplete_sessions()
        if incomplete_reasons(views.files_of(session), views.sums_of(session))
    )


def _group_namer(
    log: ImportedLog, by: ImportedBy, sessions: dict[str, ImportedSession], zone: tzinfo | None
) -> Callable[[QuarterSum], str]:
    """Return a function from a row to the name of its group."""
    day_of = day_function(zone)
    projects: dict[str, str] = {}

    def project(stream: str) -> str:
        if stream not in projects:
            projects[stream] = project_of(log.project(sessions.get(stream))) or NOT_REPORTED_LABEL
        return projects[stream]

    def week(row: QuarterSum) -> str:
        day = day_of(row.start_s * SECOND_US)
        return (day - timedelta(days=day.weekday())).isoformat()

    names: dict[ImportedBy, Callable[[QuarterSum], str]] = {
        "day": lambda row: day_of(row.start_s * SECOND_US).isoformat(),
        "week": week,
        "month": lambda row: day_of(row.start_s * SECOND_US).isoformat()[:7],
        "session": lambda row: row.session.removeprefix(PREFIX),
        "project": lambda row: project(row.session),
        "agent": lambda row: row.session.split("/")[1],
        "model": lambda row: row.model or NOT_REPORTED_LABEL,
        "part": lambda row: row.subagent or MAIN_CONVERSATION,
    }
    return _with_shared_costs(log, names[by]) if by in ("model", "part") else names[by]


def _with_shared_costs(log: ImportedLog, name: Callable[[QuarterSum], str]) -> Callable[[QuarterSum], str]:
    """Assign money reported for a full call to the only group in which the session has requests, else to the group of
    full calls."""
    had: dict[str, set[str]] = {}
    for row in log.views.sums():
        if row.requests:
            had.setdefault(row.session, set()).add(name(row))

    def named(row: QuarterSum) -> str:
        groups = had.get(row.session, set())
        if row.requests or not groups:
            return name(row)
        return next(iter(groups)) if len(groups) == 1 else FULL_CALLS

    return named


def _notes(total: ImportedTotals, uncounted: int) -> Iterator[str]:
    """Yield notes on the sums. `uncounted`: number of sessions without any row."""
    if total.unpriced:
        yield f"{count_noun(total.unpriced, 'request')} without a price: the cost may be more than `computed` says"
    if total.sessions_with_costs and len(total.sessions_with_costs) < len(total.sessions):
        count_text = f"{len(total.sessions_with_costs):,} of {count_noun(len(total.sessions), 'session')}"
        scope = "all" if total.sessions_with_costs <= total.sessions_with_requests else "those with requests"
        yield f"`reported` covers {count_text}: the others report no money; `computed` covers {scope}"
    if without_requests := len(total.sessions_with_costs - total.sessions_with_requests):
        count_text = f"{count_noun(without_requests, 'session')} with reported money but no requests"
        yield f"{count_text}: the cost may be more than `computed` says"
    if uncounted:
        yield f"not in these sums: {count_noun(uncounted, 'session')} without requests or money (mz audit --imported)"
    if total.incomplete_sessions:
        count_text = f"{len(total.incomplete_sessions):,} of {count_noun(len(total.sessions), 'session')}"
        yield f"{count_text} {INCOMPLETE_TOKENS}: the cost may be more than `computed` says"
    if total.by_mz:
        yield f"{count_noun(total.by_mz, 'request')} driven by mz, also contained in their repositories' logs"


# for programs ---------------------------------------------------------------------------------------------------------
def imported_report(costs: ImportedCosts) -> ImportedCostReport:
    return ImportedCostReport(
        log=costs.log,
        by=costs.by,
        timezone=costs.zone,
        since=iso_time(costs.period.since_us),
        until=iso_time(costs.period.until_us),
        groups=tuple(_group(name, sums) for name, sums in costs.groups),
        total=ImportedAmounts(**amounts(costs.total)),
        short_sessions=len(costs.total.incomplete_sessions),
        notes=costs.notes,
    )


def amounts(sums: ImportedTotals) -> dict[str, Any]:
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
        "computed_usd": exact_usd(sums.computed),
        "reported_usd": exact_usd(sums.reported_nanousd),
    }


def _group(name: str, sums: ImportedTotals) -> ImportedGroup:
    end_s = None if sums.last_s is None else sums.last_s + QUARTER_S
    return ImportedGroup(
        name=name, models=models(sums), sessions=len(sums.sessions), short_sessions=len(sums.incomplete_sessions),
        by_mz_requests=sums.by_mz, first=_iso_start(sums.first_s), last=_iso_start(end_s), **amounts(sums),
    )  # fmt: skip


def models(sums: ImportedTotals) -> tuple[str, ...]:
    """Return models with requests, the most used first."""
    return tuple(name for name, requests in sums.models.most_common() if requests > 0)


def _iso_start(start_s: int | None) -> str | None:
    return None if start_s is None else iso_time(start_s * SECOND_US)


# for people -----------------------------------------------------------------------------------------------------------
def imported_table(costs: ImportedCosts) -> Table:
    """Return the groups and their total. A terminal shows no models beside each model, and no columns of zeros."""

    def shown(name: str, is_informative: object) -> str:
        return f">{name}" if is_informative else f">|{name}"

    total = costs.total
    heads = columns(
        f"*{costs.by}", "|models" if costs.by == "model" else "models", ">requests", ">uncached",
        shown("write 5m", total.cache_write_5m), shown("write 1h", total.cache_write_1h),
        shown("read", total.cache_read), ">out", ">tokens", ">reported", ">computed",
    )  # fmt: skip
    rows = [
        (Cell(costs.short_names.get(name, name), name), _models_cell(models(sums)), *_cells(sums))
        for name, sums in costs.groups
    ]
    return Table(columns=heads, rows=[*rows, ("total", "", *_cells(total))] if rows else (), empty=costs.empty)


def _models_cell(names: tuple[str, ...]) -> Cell:
    listed = list(dict.fromkeys(DATE_SUFFIX.sub("", name) for name in names))
    omitted = f" and {len(listed) - MODELS_SHOWN} more" if len(listed) > MODELS_SHOWN else ""
    return Cell(", ".join(listed[:MODELS_SHOWN]) + omitted, ", ".join(names))


def _cells(sums: ImportedTotals) -> tuple[str, ...]:
    tokens = (sums.uncached, sums.cache_write_5m, sums.cache_write_1h, sums.cache_read, sums.output,
              sums.input + sums.output)  # fmt: skip
    return (
        str(sums.requests),
        *(Cell(compact_number(number), str(number)) for number in tokens),
        reported_cell(sums.reported_nanousd),
        usd_cell(sums.computed, UNPRICED if sums.requests else "-"),
    )
