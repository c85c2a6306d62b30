"""`mz cost --imported`: cost of imported sessions by day, week, month, session, project, agent, model or subagent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import tzinfo
from functools import cache
from typing import Any, Literal

from msgspec.structs import replace
from mz_projections.cost.totals import time_group
from mz_projections.imported.model import ADDED_FIELDS, QUARTER_S, ImportedSession, QuarterSum
from mz_projections.usage import TOKEN_FIELDS, sum_known
from mz_recordings.importing.names import project_of

from mz_cli.app.period import SECOND_US, Period, day_function
from mz_cli.app.user_log import PREFIX, ImportedLog, open_imported_log
from mz_cli.common.run_text import INCOMPLETE_TOKENS, UNPRICED
from mz_cli.cost.report import reported_cell
from mz_cli.terminal.json import Shape
from mz_cli.terminal.table import Cell, Table, columns, print_output, prints_tsv, usd_cell
from mz_cli.terminal.text import compact_number, count_noun, iso_time

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
DATE_SUFFIX = re.compile(r"-20\d\d-?\d\d-?\d\d$")
"""Date at the end of a model name, left out on a terminal."""
MODELS_SHOWN = 3


class ImportedAmounts(Shape, frozen=True, kw_only=True):
    """Sums over requests."""

    requests: int
    unpriced_requests: int
    """Requests that `computed_usd` does not include."""
    input_tokens: int
    """Including cache reads and writes."""
    uncached_input_tokens: int
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    """Including reasoning."""
    reasoning_tokens: int
    total_tokens: int
    """Input plus output."""
    computed_nanousd: int | None
    """Null: no request has a price."""
    reported_nanousd: int | None
    """Reported by the agents; null: none. It may cover other requests than `computed_usd`."""


class ImportedGroup(ImportedAmounts, frozen=True, kw_only=True):
    name: str
    models: tuple[str, ...]
    sessions: int
    incomplete_sessions: int
    """Sessions whose files may report fewer tokens than were used."""
    by_mz_requests: int
    """Requests driven by mz, which are in a repository's log too."""
    first: str | None
    last: str | None
    """`first` and `last` enclose all requests, rounded out to quarters of an hour."""


class ImportedCostReport(Shape, frozen=True, kw_only=True):
    """`mz cost --imported --json`. Every request is in exactly one group: the groups add up to `total`."""

    log: str
    by: str
    timezone: str
    since: str | None
    until: str | None
    groups: tuple[ImportedGroup, ...]
    total: ImportedAmounts
    incomplete_sessions: int
    """Sessions whose files may report fewer tokens than were used."""
    notes: tuple[str, ...]


def print_imported_costs(by: ImportedBy, period: Period, zone: tzinfo | None, *, as_json: bool) -> None:
    """Print the costs. Raises MzError (MZ5011) if nothing was imported."""
    with open_imported_log() as log:
        report = imported_costs(log, by, period, zone)
        empty = NONE_IN_PERIOD if log.views.sessions() else NOTHING_IMPORTED
        names = log.short_names() if by == "session" else {}
    notes = (*report.notes, *((empty,) if prints_tsv() and not report.groups else ()))
    print_output(as_json, "cost-imported", report, imported_table(report, names, empty), notes)


def imported_costs(
    log: ImportedLog, by: ImportedBy, period: Period = ALL_TIME, zone: tzinfo | None = None
) -> ImportedCostReport:
    """Return the sums over all imported sessions. Days are those of `zone`, None: the machine's. A quarter of an hour
    belongs to the period in which it begins."""
    sessions = {session.stream: session for session in log.views.sessions()}
    all_rows = _with_dated_models(log.views.sums())
    group_name, incomplete = _group_namer(log, by, sessions, zone), incomplete_sessions(log)
    if by in ("model", "part"):
        group_name = _with_shared_costs(all_rows, group_name)
    by_mz = {stream for stream, session in sessions.items() if session.by_mz}
    rows = [row for row in all_rows if period.contains(row.start_s * SECOND_US)]
    rows_by_group: dict[str, list[QuarterSum]] = {}
    for row in rows:
        rows_by_group.setdefault(group_name(row), []).append(row)
    groups = [_group(name, members, by_mz, incomplete) for name, members in rows_by_group.items()]
    groups.sort(key=lambda group: group.name)
    if by not in TIME_GROUPINGS:
        groups.sort(key=lambda group: -(group.computed_nanousd or 0))
    total = _group("", rows, by_mz, incomplete)
    uncounted = len(sessions) - len({row.session for row in all_rows}) if period == ALL_TIME else 0
    return ImportedCostReport(
        log=str(log.root),
        by=by,
        timezone=str(zone or "local"),
        since=iso_time(period.since_us),
        until=iso_time(period.until_us),
        groups=tuple(groups),
        total=ImportedAmounts(**amounts(rows)),
        incomplete_sessions=total.incomplete_sessions,
        notes=tuple(_notes(total, rows, uncounted)),
    )


def _with_dated_models(rows: Sequence[QuarterSum]) -> list[QuarterSum]:
    """Return the rows with dated names of models: totals without requests name a model without its date. It stays so if
    requests have several dates or none."""
    dated: dict[str, set[str]] = {}
    for name in {row.model for row in rows}:
        dated.setdefault(DATE_SUFFIX.sub("", name), set()).add(name)
    names = {base: next(iter(group - {base})) for base, group in dated.items() if len(group - {base}) == 1}
    return [replace(row, model=names.get(row.model, row.model)) for row in rows]


def amounts(rows: Sequence[QuarterSum]) -> dict[str, Any]:
    """Return the fields of `ImportedAmounts`."""
    sums = {name: sum(getattr(row, name) for row in rows) for name in ADDED_FIELDS}
    cached = sums["cache_read"] + sums["cache_write_5m"] + sums["cache_write_1h"]
    return {
        "requests": sums["requests"],
        "unpriced_requests": sums["unpriced"],
        **{f"{name}_tokens": sums[name] for name in TOKEN_FIELDS},
        "uncached_input_tokens": max(sums["input"] - cached, 0),
        "total_tokens": sums["input"] + sums["output"],
        "computed_nanousd": None if sums["unpriced"] >= sums["requests"] else sums["computed_nanousd"],
        "reported_nanousd": sum_known(row.reported_nanousd for row in rows),
    }


def models(rows: Sequence[QuarterSum]) -> tuple[str, ...]:
    """Return models with requests, the most used first."""
    requests = Counter[str]()
    for row in rows:
        requests[row.model or NOT_REPORTED_LABEL] += row.requests
    return tuple(name for name, number in requests.most_common() if number > 0)


def _group(name: str, rows: Sequence[QuarterSum], by_mz: Collection[str], incomplete: Collection[str]) -> ImportedGroup:
    sessions = {row.session for row in rows}
    starts_s = [row.start_s for row in rows if row.requests]
    return ImportedGroup(
        name=name,
        models=models(rows),
        sessions=len(sessions),
        incomplete_sessions=len(sessions.intersection(incomplete)),
        by_mz_requests=sum(row.requests for row in rows if row.session in by_mz),
        first=iso_time(min(starts_s) * SECOND_US) if starts_s else None,
        last=iso_time((max(starts_s) + QUARTER_S) * SECOND_US) if starts_s else None,
        **amounts(rows),
    )


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

    @cache
    def project(stream: str) -> str:
        return project_of(log.project(sessions.get(stream))) or NOT_REPORTED_LABEL

    def name(row: QuarterSum) -> str:
        match by:
            case "session":
                return row.session.removeprefix(PREFIX)
            case "project":
                return project(row.session)
            case "agent":
                return row.session.split("/")[1]
            case "model":
                return row.model or NOT_REPORTED_LABEL
            case "part":
                return row.subagent or MAIN_CONVERSATION
        return time_group(day_of(row.start_s * SECOND_US), by)

    return name


def _with_shared_costs(rows: Sequence[QuarterSum], name: Callable[[QuarterSum], str]) -> Callable[[QuarterSum], str]:
    """Assign money reported for a full call to the only group in which the session has requests, else to the group of
    full calls."""
    had: dict[str, set[str]] = {}
    for row in rows:
        if row.requests:
            had.setdefault(row.session, set()).add(name(row))

    def named(row: QuarterSum) -> str:
        groups = had.get(row.session, set())
        if row.requests or not groups:
            return name(row)
        return next(iter(groups)) if len(groups) == 1 else FULL_CALLS

    return named


def _notes(total: ImportedGroup, rows: Sequence[QuarterSum], uncounted: int) -> Iterator[str]:
    """Yield notes on the sums. `uncounted`: number of sessions without any row."""
    sessions = count_noun(total.sessions, "session")
    with_costs = {row.session for row in rows if row.reported_nanousd is not None}
    with_requests = {row.session for row in rows if row.requests}
    if total.unpriced_requests:
        count_text = count_noun(total.unpriced_requests, "request")
        yield f"{count_text} without a price: the cost may be more than `computed` says"
    if with_costs and len(with_costs) < total.sessions:
        scope = "all" if with_costs <= with_requests else "those with requests"
        count_text = f"{len(with_costs):,} of {sessions}"
        yield f"`reported` covers {count_text}: the others report no money; `computed` covers {scope}"
    if without_requests := len(with_costs - with_requests):
        count_text = f"{count_noun(without_requests, 'session')} with reported money but no requests"
        yield f"{count_text}: the cost may be more than `computed` says"
    if uncounted:
        yield f"not in these sums: {count_noun(uncounted, 'session')} without requests or money (mz audit --imported)"
    if total.incomplete_sessions:
        count_text = f"{total.incomplete_sessions:,} of {sessions}"
        yield f"{count_text} {INCOMPLETE_TOKENS}: the cost may be more than `computed` says"
    if total.by_mz_requests:
        yield f"{count_noun(total.by_mz_requests, 'request')} driven by mz, also contained in their repositories' logs"


# for people -----------------------------------------------------------------------------------------------------------
def imported_table(report: ImportedCostReport, short_names: dict[str, str], empty: str) -> Table:
    """Return the groups and their total. A terminal shows no models beside each model, no columns of zeros, and the
    `short_names` of streams."""

    def shown(name: str, is_informative: object) -> str:
        return f">{name}" if is_informative else f">|{name}"

    total = report.total
    heads = columns(
        f"*{report.by}",
        "|models" if report.by == "model" else ",models",
        ">requests",
        ">uncached",
        shown("write 5m", total.cache_write_5m_tokens),
        shown("write 1h", total.cache_write_1h_tokens),
        shown("read", total.cache_read_tokens),
        *(">out", ">tokens", ">reported", ">computed"),
    )
    rows = [
        (Cell(short_names.get(PREFIX + group.name, group.name), group.name), _models_cell(group.models), *_cells(group))
        for group in report.groups
    ]
    return Table(columns=heads, rows=[*rows, ("total", "", *_cells(total))] if rows else (), empty=empty)


def _models_cell(names: tuple[str, ...]) -> Cell:
    listed = list(dict.fromkeys(DATE_SUFFIX.sub("", name) for name in names))
    omitted = f" and {len(listed) - MODELS_SHOWN} more" if len(listed) > MODELS_SHOWN else ""
    return Cell(", ".join(listed[:MODELS_SHOWN]) + omitted, ", ".join(names))


def _cells(sums: ImportedAmounts) -> tuple[str, ...]:
    names = ("uncached_input", "cache_write_5m", "cache_write_1h", "cache_read", "output", "total")
    tokens = (getattr(sums, f"{name}_tokens") for name in names)
    return (
        str(sums.requests),
        *(Cell(compact_number(number), str(number)) for number in tokens),
        reported_cell(sums.reported_nanousd),
        usd_cell(sums.computed_nanousd, UNPRICED if sums.requests else "-"),
    )
