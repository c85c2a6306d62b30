"""Command `mz cost`."""

from __future__ import annotations

import sys
import time
from datetime import UTC, date, datetime, tzinfo
from fractions import Fraction
from typing import Any, cast, get_args

import click
import msgspec
from mz_projections.continued import continued
from mz_projections.spending import By, spending
from mz_projections.views import FeatureView

from mz_cli.context import Reading, reading
from mz_cli.costgate import Bill, delivered, gate, gate_table, gate_words, parse_allowed
from mz_cli.costing import (
    Spent,
    choice,
    crossing,
    explained,
    names,
    of_all,
    of_run,
    priced_at,
    prices_here,
    under,
    unmatched,
)
from mz_cli.costs import Asked, cost_csv, cost_report, cost_table, details, in_order, remarks
from mz_cli.help import command
from mz_cli.importedcosts import ImportedBy, show_imported_costs
from mz_cli.period import SECOND_US, Period, days_in, period_of, zone_of
from mz_cli.render.console import is_terminal, put, remark
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.savings import Side, measured_table, sessions_report, sessions_table

WHAT_IF = (
    "what if: the same tokens at the other model's prices. The other model would use another number of tokens, and its "
    "work might not have been accepted"
)


CHOICES = tuple(dict.fromkeys((*get_args(By), *get_args(ImportedBy))))
OF_RUNS = {
    "run": "RUN", "everything": "--all", "what_if": "--what-if", "prices": "--prices", "allowed": "--gate",
    "sessions": "--sessions", "baseline": "--baseline",
}  # fmt: skip
"""Options that cannot be combined with imported sessions."""
OF_CALLS = ("by", "since", "until", "what_if", "prices")
"""Options that cannot be combined with comparisons of runs."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The command line as given."""

    run: str | None
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


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed command line."""

    run: str | None
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
        ("mz cost --all --by model --json | jq .total.computed_usd", "the cost of all runs together"),
        ("mz cost --since 30d --by week", "the last month, over all runs"),
        ("mz cost --what-if mid=claude-haiku-4-5", "the same tokens with another model for the mid tier"),
        ("mz cost r4f1 --sessions --baseline r1a2", "the savings of continued sessions on the same work"),
        ("mz cost r4f1 --gate +15% --baseline r1a2", "fail if features cost over 15 % more"),
        ("mz cost --day --since 7d", "imported sessions, day by day"),
    ),
    following="`mz show FEATURE` shows why an attempt was rejected; `mz audit` what the money bought; `mz calibrate` "
    "improves estimates.",
)
@click.argument("run", required=False)
@click.option(
    "--by",
    type=click.Choice(CHOICES),
    metavar="WHAT",
    help=f"Group by: {', '.join(get_args(By))}; for imported sessions: {', '.join(get_args(ImportedBy))}.",
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
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one object: mz.cost/1, or mz.cost-gate/1, mz.cost-sessions/1, mz.cost-imported/1.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print the groups as CSV.")
@click.pass_context
def cost(context: click.Context, /, **values: Any) -> int:
    """Show what the agents cost: estimated, reported, computed.

    Estimated: before the call. Reported: by the agent. Computed: its tokens at the prices of that day. The difference
    is reported minus computed, with its cause: match, or the agent used other cache lifetimes, tiers or prices of
    another day, counted only its main conversation, or was killed. Wasted is the cost of failed, lost, rejected and
    superseded calls. Unknown amounts are not counted as zero. RUN is a run's id or its beginning (default: the newest
    run; with --since or --until, all runs).
    """
    given = Given(**values)
    _check(given, context)
    try:
        options = _parsed(given)
    except ValueError as error:
        raise click.UsageError(str(error), context) from None
    if given.imported or given.day:
        by = cast("ImportedBy", options.by or "day")
        show_imported_costs(by, options.period, options.zone, as_json=options.as_json, as_csv=options.as_csv)
        return 0
    with reading() as log:
        if given.sessions:
            return _sessions(log, options, given.baseline)
        if options.allowed is not None and given.baseline is not None:
            return _gate(log, options, given.baseline, options.allowed)
        _report(log, options, context)
    return 0


def _check(given: Given, context: click.Context) -> None:
    """Raise UsageError for options that cannot be combined."""
    of_imports, compares = given.imported or given.day, given.sessions or given.allowed is not None
    of_runs = [word for name, word in OF_RUNS.items() if getattr(given, name)]
    wrong = {
        "give either RUN or --all": given.run is not None and given.everything,
        "--sessions cannot be combined with --all or --gate":
            given.sessions and (given.everything or given.allowed is not None),
        "--gate cannot be combined with --all": given.allowed is not None and given.everything,
        "--gate and --sessions cannot be combined with --by, --since, --until, --what-if or --prices":
            compares and any(getattr(given, name) for name in OF_CALLS),
        "--gate and --baseline require each other":
            (given.allowed is None) != (given.baseline is None) and not given.sessions,
        "--json cannot be combined with --csv": given.as_json and given.as_csv,
        "--csv cannot be combined with --gate or --sessions": given.as_csv and compares,
        f"{', '.join(of_runs)}: not available with --imported and --day":
            of_imports and bool(of_runs),
        f"--day cannot be combined with --by {given.by}": given.day and given.by not in (None, "day"),
    }  # fmt: skip
    for problem, applies in wrong.items():
        if applies:
            raise click.UsageError(problem, context)
    known = get_args(ImportedBy if of_imports else By)
    if given.by is not None and given.by not in known:
        subject = "imported sessions" if of_imports else "runs"
        raise click.UsageError(f"{subject} cannot be grouped by {given.by}: use {', '.join(known)}", context)


def _parsed(given: Given) -> Options:
    """Parse the command line. Raises ValueError with a message for people."""
    zone = zone_of(given.timezone)
    return Options(
        run=given.run,
        by="day" if given.day else given.by,
        everything=given.everything,
        period=period_of(given.since, given.until, time.time_ns() // 1000, zone),
        zone=zone,
        prices_on=None if given.prices is None else _day(given.prices),
        what_if=tuple(map(_pair, given.what_if)),
        allowed=None if given.allowed is None else parse_allowed(given.allowed),
        as_json=given.as_json,
        as_csv=given.as_csv,
    )


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a day; write it as 2026-06-01") from None


def _pair(text: str) -> tuple[str, str]:
    name, equals, model = text.partition("=")
    if not (name.strip() and equals and model.strip()):
        raise ValueError(f"{text[:60]!r} has no model; write it as model=claude-opus-5, or mid=claude-haiku-4-5")
    return name.strip(), model.strip()


# the report -----------------------------------------------------------------------------------------------------------
def _report(log: Reading, options: Options, context: click.Context) -> None:
    all_runs = options.everything or (options.run is None and options.period != Period())
    chosen = None if all_runs else log.find_run(options.run)
    spent, asked = _spent(log, options, chosen, context)
    day_of = days_in(options.zone)
    sums = spending(spent.calls, cast("By", options.by or ("feature" if chosen else "run")), day_of)
    if chosen is not None:
        sums = in_order(sums, log.features(chosen))
    if options.as_json:
        show_document("cost", cost_report(sums, asked))
    elif options.as_csv:
        put(sys.stdout, cost_csv(sums))
    else:
        show(cost_table(sums, whole=not is_terminal(sys.stdout), compared=bool(options.what_if)))
        for each in (*remarks(sums), *details(spent.calls), *asked.notes):
            remark(each)


def _spent(log: Reading, options: Options, run: str | None, context: click.Context) -> tuple[Spent, Asked]:
    """Return the calls, priced as requested and with mismatch causes, and the report's options."""
    anew = options.prices_on is not None or bool(options.what_if)
    found = of_run(log, run, options.period) if run else of_all(log, options.period, needs_tokens=anew)
    prices, notes = prices_here(log)
    at_us = None if options.prices_on is None else _midnight_us(options.prices_on)
    report_notes = list(notes)
    if at_us is not None:
        found = priced_at(found, prices, at_us)
        report_notes.append(
            f"computed with the prices of {options.prices_on} ({prices.table.partition(' sha256:')[0]})"
        )
    found = explained(found, prices)
    if options.what_if:
        for _, model in options.what_if:
            if prices.estimate(model, 1, 1, time.time_ns() // 1000 if at_us is None else at_us) is None:
                raise click.UsageError("; ".join((f"no price for {model!r}", *notes)), context)
        named = names(log, found)
        if wrong := unmatched(options.what_if, named):
            raise click.UsageError(wrong, context)
        found = under(found, prices, choice(named, options.what_if), at_us)
        report_notes.append(WHAT_IF)
    crossed = crossing(found, prices) if found.usage else None
    asked = Asked(
        repository=str(log.home), run=run, since_us=options.period.since_us, until_us=options.period.until_us,
        prices_on=None if options.prices_on is None else options.prices_on.isoformat(), what_if=options.what_if,
        notes=(*report_notes, *([crossed] if crossed else [])),
    )  # fmt: skip
    return found, asked


def _midnight_us(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * SECOND_US


# the gate -------------------------------------------------------------------------------------------------------------
def _gate(log: Reading, options: Options, baseline: str, allowed: Fraction) -> int:
    run, against = log.find_run(options.run), log.find_run(baseline)
    if run == against:
        raise click.UsageError(f"run {run} cannot be its own baseline")
    found = gate(_bill(log, against), _bill(log, run), allowed)
    if options.as_json:
        show_document("cost-gate", found)
    else:
        show(gate_table(found, whole=not is_terminal(sys.stdout)))
        remark(gate_words(found))
    return found.exit


def _bill(log: Reading, run: str) -> Bill:
    features = log.view(run).features
    return Bill(
        run=run,
        calls=tuple(each.call for each in of_run(log, run, Period()).calls),
        delivered=delivered(feature.status for feature in features),
        borrowed=sum(map(_borrowed, features)),
    )


def _borrowed(feature: FeatureView) -> bool:
    """Return True if some of the feature's calls were made and paid for by another run."""
    return any(call.copied for call in feature.calls)


# sessions -------------------------------------------------------------------------------------------------------------
def _sessions(log: Reading, options: Options, baseline: str | None) -> int:
    run, against = log.find_run(options.run), None if baseline is None else log.find_run(baseline)
    if run == against:
        raise click.UsageError(f"run {run} cannot be its own baseline")
    found = sessions_report(_side(log, run), None if against is None else _side(log, against))
    if options.as_json:
        show_document("cost-sessions", found)
        return 0
    show(sessions_table(found))
    if found.measured:
        remark(f"measured over {', '.join(found.compared)}:")
        show(measured_table(found))
    for each in found.notes:
        remark(each)
    return 0


def _side(log: Reading, run: str) -> Side:
    features = (view for view in log.view(run).features if view.status == "delivered" and not _borrowed(view))
    return Side(run, continued(log.events(run)), tuple(view.feature for view in features))
