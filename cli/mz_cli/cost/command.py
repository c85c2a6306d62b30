"""Command `mz cost`."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, tzinfo
from fractions import Fraction
from typing import Any, cast, get_args

import click
import msgspec
from mz_projections.cost.totals import GroupBy, spending
from mz_projections.imported.runs import find_imported_run
from mz_projections.views.model import DELIVERED_STATUSES, FeatureView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, format_options, parsed_by
from mz_cli.app.period import SECOND_US, Period, day_function, parse_period, parse_zone
from mz_cli.app.selectors import Selector, select_part
from mz_cli.cost.gate import RunCost, cost_gate, gate_table, gate_text, parse_allowed_increase
from mz_cli.cost.query import (
    Calls,
    all_costs,
    current_prices,
    price_step_warning,
    repriced_at,
    run_costs,
    with_alternative_costs,
    with_causes,
)
from mz_cli.cost.report import CostReport, cause_details, cost_table, in_backlog_order, remarks
from mz_cli.cost.sessions import SessionCost, measured_table, session_cost, sessions_report, sessions_table
from mz_cli.terminal.console import print_wrapped
from mz_cli.terminal.json import print_document, shape_of
from mz_cli.terminal.table import print_table
from mz_cli.usage.costs import ImportedBy, print_imported_costs

WHAT_IF = (
    "what if: the same tokens at the other model's prices. The other model would use another number of tokens, and its "
    "work might not have been accepted"
)
GROUPINGS = tuple(dict.fromkeys((*get_args(GroupBy), *get_args(ImportedBy))))
RUN_OPTIONS = {
    "selector": "SELECTOR", "everything": "--all", "what_if": "--what-if", "prices_on": "--prices",
    "allowed": "--gate", "sessions": "--sessions", "baseline": "--baseline",
}  # fmt: skip
"""Options that cannot be combined with imported sessions."""
CALL_OPTIONS = ("by", "since", "until", "what_if", "prices_on")
"""Options that cannot be combined with comparisons of runs."""


class CostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command line."""

    selector: str | None
    by: str | None
    everything: bool
    since: str | None
    until: str | None
    zone: tzinfo | None
    what_if: tuple[tuple[str, str], ...]
    prices_on: date | None
    allowed: Fraction | None
    sessions: bool
    baseline: str | None
    imported: bool
    day: bool
    as_json: bool


def parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a day; write it as 2026-06-01") from None


def parse_replacement(text: str) -> tuple[str, str]:
    name, equals, model = text.partition("=")
    if not (name.strip() and equals and model.strip()):
        raise ValueError(f"{text[:60]!r} has no model; write it as model=claude-opus-5, or mid=claude-haiku-4-5")
    return name.strip(), model.strip()


@command(
    "cost",
    examples=(
        ("mz cost", "the newest run, feature by feature"),
        ("mz cost r4f1 --by attempt", "every agent call of a run"),
        ("mz cost login/code", "the calls of one phase"),
        ("mz cost --all --by model --json | jq .total.computed_usd", "the cost of all runs together"),
        ("mz cost --since 30d --by week", "the last month, over all runs"),
        ("mz cost --what-if mid=claude-haiku-4-5", "the same tokens with another model for the mid tier"),
        ("mz cost r4f1 --sessions --baseline r1a2", "the savings of continued sessions on the same work"),
        ("mz cost r4f1 --gate +15% --baseline r1a2", "fail if features cost over 15 % more"),
        ("mz cost --day --since 7d", "imported sessions, day by day"),
    ),
    next_command="`mz show FEATURE` shows why an attempt was rejected; `mz audit` shows what was delivered "
    "for the money; `mz calibrate` improves estimates.",
)
@click.argument("selector", required=False)
@click.option(
    "--by",
    type=click.Choice(GROUPINGS),
    metavar="WHAT",
    help=f"Group by: {', '.join(get_args(GroupBy))}; for imported sessions: {', '.join(get_args(ImportedBy))}.",
)
@click.option("--all", "everything", is_flag=True, help="All runs of this repository.")
@click.option("--since", metavar="TIME", help="Calls since then: a day, a time, or an age (7d, 36h).")
@click.option("--until", metavar="TIME", help="Calls until then; a day is included.")
@click.option("--timezone", "zone", metavar="ZONE", callback=parsed_by(parse_zone),
              help="Time zone of days: Europe/Berlin, UTC. [default: the machine's]")  # fmt: skip
@click.option("--what-if", multiple=True, metavar="NAME=MODEL", callback=parsed_by(parse_replacement),
              help="Cost of the same tokens with MODEL; NAME is a model, a tier, or `model` for all.")  # fmt: skip
@click.option("--prices", "prices_on", metavar="DAY", callback=parsed_by(parse_day),
              help="Compute all costs with the prices of that day.")  # fmt: skip
@click.option("--gate", "allowed", metavar="SHARE", callback=parsed_by(parse_allowed_increase),
              help="Fail if RUN costs over SHARE more than the baseline: +15%.")  # fmt: skip
@click.option(
    "--sessions", is_flag=True, help="Savings of continued sessions: estimated, with --baseline also measured."
)
@click.option("--baseline", metavar="RUN", help="With --gate or --sessions: the run to compare with.")
@click.option("--imported", is_flag=True, help="Show imported sessions instead of this repository's runs.")
@click.option("--day", is_flag=True, help="Short for --imported --by day.")
@format_options("Print one object: mz.cost/1, or mz.cost-gate/1, mz.cost-sessions/1, mz.cost-imported/1.")
def cost(**values: Any) -> int:
    """Show what the agents cost: estimated, reported, computed.

    Estimated: before the call. Reported: by the agent. Computed: its tokens at the prices of that day. The difference
    is reported minus computed, with its cause: match, or the agent used other cache lifetimes, tiers or prices of
    another day, counted only its main conversation, or was killed. Wasted is the cost of failed, lost, rejected and
    superseded calls. Unknown amounts are not counted as zero. Durations are those of the calls, added up. SELECTOR is a
    run or [RUN/]FEATURE[/PHASE[#ATTEMPT]] (default: the newest run; with --since or --until, all runs).
    """
    options = CostOptions(**values)
    _check_combinations(options)
    period = parse_period(options.since, options.until, time.time_ns() // 1000, options.zone)
    if options.imported or options.day:
        print_imported_costs(cast("ImportedBy", options.by or "day"), period, options.zone, as_json=options.as_json)
        return 0
    with open_log() as log:
        if options.sessions:
            return _print_sessions(log, options)
        if options.allowed is not None:
            return _print_gate(log, options, options.allowed)
        _print_report(log, options, period)
    return 0


def _check_combinations(options: CostOptions) -> None:
    """Raise UsageError for options that cannot be combined."""
    is_import, is_comparison = options.imported or options.day, options.sessions or options.allowed is not None
    run_options = [option for name, option in RUN_OPTIONS.items() if getattr(options, name)]
    groupings = get_args(ImportedBy if is_import else GroupBy)
    subject = "imported sessions" if is_import else "runs"
    conflicts = {
        "give either SELECTOR or --all": options.selector is not None and options.everything,
        "--sessions cannot be combined with --all or --gate":
            options.sessions and (options.everything or options.allowed is not None),
        "--gate cannot be combined with --all": options.allowed is not None and options.everything,
        "--gate and --sessions cannot be combined with --by, --since, --until, --what-if or --prices":
            is_comparison and any(getattr(options, name) for name in CALL_OPTIONS),
        "--gate and --baseline require each other":
            (options.allowed is None) != (options.baseline is None) and not options.sessions,
        f"{', '.join(run_options)}: not available with --imported and --day":
            is_import and bool(run_options),
        f"--day cannot be combined with --by {options.by}": options.day and options.by not in (None, "day"),
        f"{subject} cannot be grouped by {options.by}: use {', '.join(groupings)}":
            options.by is not None and options.by not in groupings,
    }  # fmt: skip
    for problem, applies in conflicts.items():
        if applies:
            raise click.UsageError(problem)


# the report -----------------------------------------------------------------------------------------------------------
def _print_report(log: ProjectLog, options: CostOptions, period: Period) -> None:
    all_runs = options.everything or (options.selector is None and period != Period())
    imported = find_imported_run(log.store, options.selector)
    if all_runs:
        selected = None
    elif imported:
        selected = Selector(run=imported.run, names_run=True)
    else:
        selected = select_part(log, options.selector, phases=True)
    calls, notes = _priced_calls(log, options, selected, period)
    if selected is None:
        by = "run"
    elif selected.feature is None:
        by = "feature"
    else:
        by = "phase" if selected.phase is None else "attempt"
    totals = spending(
        calls, cast("GroupBy", options.by or by), day_function(options.zone), models=dict(options.what_if)
    )
    if selected is not None:
        totals = in_backlog_order(totals, log.features(selected.run))
    if options.as_json:
        report = shape_of(
            CostReport,
            totals,
            selected,
            period,
            repository=str(log.root),
            prices_on=options.prices_on and options.prices_on.isoformat(),
            notes=(*remarks(totals, calls), *notes),
        )
        print_document("cost", report)
        return
    print_table(cost_table(totals))
    for text in (*remarks(totals, calls), *cause_details(calls), *notes):
        print_wrapped(text)


def _priced_calls(
    log: ProjectLog, options: CostOptions, selected: Selector | None, period: Period
) -> tuple[Calls, list[str]]:
    """Return the calls, priced as requested and with mismatch causes, and notes on their prices."""
    calls = run_costs(log, selected, period) if selected else all_costs(log, period)
    prices, price_notes = current_prices(log)
    day, at_us, notes = options.prices_on, None, list(price_notes)
    if day is not None:
        at_us = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * SECOND_US
        calls = repriced_at(calls, prices, at_us)
        notes.append(f"computed with the prices of {day} ({prices.table.partition(' sha256:')[0]})")
    calls = with_causes(calls, prices)
    if options.what_if:
        try:
            calls = with_alternative_costs(log, calls, prices, options.what_if, at_us)
        except ValueError as error:
            raise click.UsageError("; ".join((str(error), *price_notes))) from None
        notes.append(WHAT_IF)
    if crossing_note := price_step_warning(calls, prices):
        notes.append(crossing_note)
    return calls, notes


# comparisons of runs --------------------------------------------------------------------------------------------------
def _find_runs(log: ProjectLog, options: CostOptions) -> tuple[str, str | None]:
    run, baseline = log.find_run(options.selector), options.baseline and log.find_run(options.baseline)
    if run == baseline:
        raise click.UsageError(f"run {run} cannot be its own baseline")
    return run, baseline


def _print_gate(log: ProjectLog, options: CostOptions, allowed: Fraction) -> int:
    run, baseline = _find_runs(log, options)
    result = cost_gate(_run_cost(log, baseline or ""), _run_cost(log, run), allowed)
    if options.as_json:
        print_document("cost-gate", result)
    else:
        print_table(gate_table(result))
        print_wrapped(gate_text(result))
    return result.exit


def _run_cost(log: ProjectLog, run: str) -> RunCost:
    features, calls = log.view(run).features, run_costs(log, Selector(run=run, names_run=True), Period())
    return RunCost(
        run=run,
        calls=tuple(priced.call for priced in calls),
        delivered=sum(feature.status in DELIVERED_STATUSES for feature in features),
        shared_features=sum(map(_has_copied_calls, features)),
    )


def _has_copied_calls(feature: FeatureView) -> bool:
    """Return True if some of the feature's calls were made and paid for by another run."""
    return any(call.is_forked_copy for call in feature.calls)


def _print_sessions(log: ProjectLog, options: CostOptions) -> int:
    run, baseline = _find_runs(log, options)
    report = sessions_report(_session_cost(log, run), _session_cost(log, baseline) if baseline else None)
    if options.as_json:
        print_document("cost-sessions", report)
        return 0
    print_table(sessions_table(report))
    if report.measured:
        print_wrapped(f"measured over {', '.join(report.compared)}:")
        print_table(measured_table(report))
    for text in report.notes:
        print_wrapped(text)
    return 0


def _session_cost(log: ProjectLog, run: str) -> SessionCost:
    features = (
        view for view in log.view(run).features if view.status in DELIVERED_STATUSES and not _has_copied_calls(view)
    )
    return session_cost(run, log.events(run), frozenset(view.feature for view in features))
