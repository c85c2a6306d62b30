"""Command `mz cost`."""

from __future__ import annotations

import sys
import time
from datetime import UTC, date, datetime, tzinfo
from fractions import Fraction
from typing import Any, cast, get_args

import click
import msgspec
from mz_projections.cost.session_savings import session_calls
from mz_projections.cost.totals import GroupBy, spending
from mz_projections.views.model import FeatureView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, format_options
from mz_cli.app.period import SECOND_US, Period, day_function, parse_period, parse_zone
from mz_cli.app.selectors import Selector, select_part
from mz_cli.cost.gate import RunCost, cost_gate, delivered_count, gate_table, gate_text, parse_allowed_increase
from mz_cli.cost.query import (
    CostData,
    all_costs,
    call_models,
    current_prices,
    model_choice,
    price_step_warning,
    repriced_at,
    run_costs,
    unmatched_names_error,
    with_alternative_costs,
    with_causes,
)
from mz_cli.cost.report import (
    CostReportOptions,
    cause_details,
    cost_csv,
    cost_report,
    cost_table,
    in_backlog_order,
    remarks,
)
from mz_cli.cost.sessions import SessionCost, measured_table, sessions_report, sessions_table
from mz_cli.terminal.console import print_wrapped, write_text
from mz_cli.terminal.json import print_document
from mz_cli.terminal.table import print_table, prints_tsv
from mz_cli.usage.costs import ImportedBy, print_imported_costs

WHAT_IF = (
    "what if: the same tokens at the other model's prices. The other model would use another number of tokens, and its "
    "work might not have been accepted"
)


GROUPINGS = tuple(dict.fromkeys((*get_args(GroupBy), *get_args(ImportedBy))))
RUN_OPTIONS = {
    "selector": "SELECTOR", "everything": "--all", "what_if": "--what-if", "prices": "--prices", "allowed": "--gate",
    "sessions": "--sessions", "baseline": "--baseline",
}  # fmt: skip
"""Options that cannot be combined with imported sessions."""
CALL_OPTIONS = ("by", "since", "until", "what_if", "prices")
"""Options that cannot be combined with comparisons of runs."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """The command line as given."""

    selector: str | None
    by: str | None
    everything: bool
    since: str | None
    until: str | None
    timezone: str | None
    what_if: tuple[str, ...]
    prices: str | None
    allowed: str | None
    sessions: bool
    baseline: str | None
    imported: bool
    day: bool
    as_json: bool
    as_csv: bool


class CostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed command line."""

    selector: str | None
    by: str | None
    everything: bool
    period: Period
    zone: tzinfo | None
    prices_on: date | None
    what_if: tuple[tuple[str, str], ...]
    allowed: Fraction | None
    as_json: bool
    as_csv: bool


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
    next_command="`mz show FEATURE` shows why an attempt was rejected; `mz audit` what the money bought; `mz "
    "calibrate` "
    "improves estimates.",
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
@click.option("--timezone", metavar="ZONE", help="Time zone of days: Europe/Berlin, UTC. [default: the machine's]")
@click.option("--what-if", multiple=True, metavar="NAME=MODEL",
              help="Cost of the same tokens with MODEL; NAME is a model, a tier, or `model` for all.")  # fmt: skip
@click.option("--prices", metavar="DAY", help="Compute all costs with the prices of that day.")
@click.option("--gate", "allowed", metavar="SHARE", help="Fail if RUN costs over SHARE more than the baseline: +15%.")
@click.option(
    "--sessions", is_flag=True, help="Savings of continued sessions: estimated, with --baseline also measured."
)
@click.option("--baseline", metavar="RUN", help="With --gate or --sessions: the run to compare with.")
@click.option("--imported", is_flag=True, help="Show imported sessions instead of this repository's runs.")
@click.option("--day", is_flag=True, help="Short for --imported --by day.")
@format_options("Print one object: mz.cost/1, or mz.cost-gate/1, mz.cost-sessions/1, mz.cost-imported/1.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the groups as CSV.")
@click.pass_context
def cost(context: click.Context, /, **values: Any) -> int:
    """Show what the agents cost: estimated, reported, computed.

    Estimated: before the call. Reported: by the agent. Computed: its tokens at the prices of that day. The difference
    is reported minus computed, with its cause: match, or the agent used other cache lifetimes, tiers or prices of
    another day, counted only its main conversation, or was killed. Wasted is the cost of failed, lost, rejected and
    superseded calls. Unknown amounts are not counted as zero. Durations are those of the calls, added up. SELECTOR is a
    run or [RUN/]FEATURE[/PHASE[#ATTEMPT]] (default: the newest run; with --since or --until, all runs).
    """
    arguments = Arguments(**values)
    _check_combinations(arguments, context)
    try:
        options = _parse(arguments)
    except ValueError as error:
        raise click.UsageError(str(error), context) from None
    if arguments.imported or arguments.day:
        by = cast("ImportedBy", options.by or "day")
        print_imported_costs(by, options.period, options.zone, as_json=options.as_json, as_csv=options.as_csv)
        return 0
    with open_log() as log:
        if arguments.sessions:
            return _print_sessions(log, options, arguments.baseline)
        if options.allowed is not None and arguments.baseline is not None:
            return _print_gate(log, options, arguments.baseline, options.allowed)
        _print_report(log, options, context)
    return 0


def _check_combinations(arguments: Arguments, context: click.Context) -> None:
    """Raise UsageError for options that cannot be combined."""
    is_import, is_comparison = arguments.imported or arguments.day, arguments.sessions or arguments.allowed is not None
    run_options = [option for name, option in RUN_OPTIONS.items() if getattr(arguments, name)]
    conflicts = {
        "give either SELECTOR or --all": arguments.selector is not None and arguments.everything,
        "--sessions cannot be combined with --all or --gate":
            arguments.sessions and (arguments.everything or arguments.allowed is not None),
        "--gate cannot be combined with --all": arguments.allowed is not None and arguments.everything,
        "--gate and --sessions cannot be combined with --by, --since, --until, --what-if or --prices":
            is_comparison and any(getattr(arguments, name) for name in CALL_OPTIONS),
        "--gate and --baseline require each other":
            (arguments.allowed is None) != (arguments.baseline is None) and not arguments.sessions,
        "--json cannot be combined with --csv": arguments.as_json and arguments.as_csv,
        "--csv cannot be combined with --gate or --sessions": arguments.as_csv and is_comparison,
        f"{', '.join(run_options)}: not available with --imported and --day":
            is_import and bool(run_options),
        f"--day cannot be combined with --by {arguments.by}": arguments.day and arguments.by not in (None, "day"),
    }  # fmt: skip
    for problem, applies in conflicts.items():
        if applies:
            raise click.UsageError(problem, context)
    groupings = get_args(ImportedBy if is_import else GroupBy)
    if arguments.by is not None and arguments.by not in groupings:
        subject = "imported sessions" if is_import else "runs"
        raise click.UsageError(f"{subject} cannot be grouped by {arguments.by}: use {', '.join(groupings)}", context)


def _parse(arguments: Arguments) -> CostOptions:
    """Parse the command line. Raises ValueError with a message for people."""
    zone = parse_zone(arguments.timezone)
    return CostOptions(
        selector=arguments.selector,
        by="day" if arguments.day else arguments.by,
        everything=arguments.everything,
        period=parse_period(arguments.since, arguments.until, time.time_ns() // 1000, zone),
        zone=zone,
        prices_on=None if arguments.prices is None else _parse_day(arguments.prices),
        what_if=tuple(map(_parse_replacement, arguments.what_if)),
        allowed=None if arguments.allowed is None else parse_allowed_increase(arguments.allowed),
        as_json=arguments.as_json,
        as_csv=arguments.as_csv,
    )


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a day; write it as 2026-06-01") from None


def _parse_replacement(text: str) -> tuple[str, str]:
    name, equals, model = text.partition("=")
    if not (name.strip() and equals and model.strip()):
        raise ValueError(f"{text[:60]!r} has no model; write it as model=claude-opus-5, or mid=claude-haiku-4-5")
    return name.strip(), model.strip()


# the report -----------------------------------------------------------------------------------------------------------
def _print_report(log: ProjectLog, options: CostOptions, context: click.Context) -> None:
    all_runs = options.everything or (options.selector is None and options.period != Period())
    selected = None if all_runs else select_part(log, options.selector, phases=True)
    cost_data, report_options = _cost_data(log, options, selected, context)
    if selected is None:
        by = "run"
    elif selected.feature is None:
        by = "feature"
    else:
        by = "phase" if selected.phase is None else "attempt"
    sums = spending(cost_data.calls, cast("GroupBy", options.by or by), day_function(options.zone))
    if selected is not None:
        sums = in_backlog_order(sums, log.features(selected.run))
    if options.as_json:
        print_document("cost", cost_report(sums, report_options))
    elif options.as_csv:
        write_text(sys.stdout, cost_csv(sums))
    else:
        print_table(cost_table(sums, exact=prints_tsv(sys.stdout), compared=bool(options.what_if)))
        for text in (*remarks(sums), *cause_details(cost_data.calls), *report_options.notes):
            print_wrapped(text)


def _cost_data(
    log: ProjectLog, options: CostOptions, selected: Selector | None, context: click.Context
) -> tuple[CostData, CostReportOptions]:
    """Return the calls, priced as requested and with mismatch causes, and the report's options."""
    cost_data = run_costs(log, selected, options.period) if selected else all_costs(log, options.period)
    prices, notes = current_prices(log)
    at_us = None if options.prices_on is None else _midnight_us(options.prices_on)
    report_notes = list(notes)
    if at_us is not None:
        cost_data = repriced_at(cost_data, prices, at_us)
        report_notes.append(
            f"computed with the prices of {options.prices_on} ({prices.table.partition(' sha256:')[0]})"
        )
    cost_data = with_causes(cost_data, prices)
    if options.what_if:
        for _, model in options.what_if:
            if prices.estimate(model, 1, 1, time.time_ns() // 1000 if at_us is None else at_us) is None:
                raise click.UsageError("; ".join((f"no price for {model!r}", *notes)), context)
        model_names = call_models(log, cost_data)
        if problem := unmatched_names_error(options.what_if, model_names):
            raise click.UsageError(problem, context)
        cost_data = with_alternative_costs(cost_data, prices, model_choice(model_names, options.what_if), at_us)
        report_notes.append(WHAT_IF)
    crossing_note = price_step_warning(cost_data, prices)
    report_options = CostReportOptions(
        repository=str(log.home), selected=selected,
        since_us=options.period.since_us, until_us=options.period.until_us,
        prices_on=None if options.prices_on is None else options.prices_on.isoformat(), what_if=options.what_if,
        notes=(*report_notes, *([crossing_note] if crossing_note else [])),
    )  # fmt: skip
    return cost_data, report_options


def _midnight_us(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * SECOND_US


# the gate -------------------------------------------------------------------------------------------------------------
def _print_gate(log: ProjectLog, options: CostOptions, baseline: str, allowed: Fraction) -> int:
    run, baseline_run = log.find_run(options.selector), log.find_run(baseline)
    if run == baseline_run:
        raise click.UsageError(f"run {run} cannot be its own baseline")
    gate_report = cost_gate(_run_cost(log, baseline_run), _run_cost(log, run), allowed)
    if options.as_json:
        print_document("cost-gate", gate_report)
    else:
        print_table(gate_table(gate_report, exact=prints_tsv(sys.stdout)))
        print_wrapped(gate_text(gate_report))
    return gate_report.exit


def _run_cost(log: ProjectLog, run: str) -> RunCost:
    features = log.view(run).features
    return RunCost(
        run=run,
        calls=tuple(
            priced_call.call for priced_call in run_costs(log, Selector(run=run, names_run=True), Period()).calls
        ),
        delivered=delivered_count(feature.status for feature in features),
        shared_features=sum(map(_has_copied_calls, features)),
    )


def _has_copied_calls(feature: FeatureView) -> bool:
    """Return True if some of the feature's calls were made and paid for by another run."""
    return any(call.is_forked_copy for call in feature.calls)


# sessions -------------------------------------------------------------------------------------------------------------
def _print_sessions(log: ProjectLog, options: CostOptions, baseline: str | None) -> int:
    run, baseline_run = log.find_run(options.selector), None if baseline is None else log.find_run(baseline)
    if run == baseline_run:
        raise click.UsageError(f"run {run} cannot be its own baseline")
    sessions = sessions_report(
        _session_cost(log, run), None if baseline_run is None else _session_cost(log, baseline_run)
    )
    if options.as_json:
        print_document("cost-sessions", sessions)
        return 0
    print_table(sessions_table(sessions))
    if sessions.measured:
        print_wrapped(f"measured over {', '.join(sessions.compared)}:")
        print_table(measured_table(sessions))
    for text in sessions.notes:
        print_wrapped(text)
    return 0


def _session_cost(log: ProjectLog, run: str) -> SessionCost:
    features = (view for view in log.view(run).features if view.status == "delivered" and not _has_copied_calls(view))
    return SessionCost(run, session_calls(log.events(run)), tuple(view.feature for view in features))
