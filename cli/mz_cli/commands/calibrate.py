"""Adapter: `mz calibrate`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

import click
from mz_engine.adapters.calibrationfile import FILE_NAME, write_calibration
from mz_engine.calibration import CALLS_MIN, Fitted, Sample, advice, too_few, worth_writing
from mz_engine.calibration import calibrate as fit_all
from mz_engine.effects.call import REPLY_TOKENS
from mz_engine.exits import Exit
from mz_engine.home import HOME, VIEWS
from mz_projections.cost import COSTS, CallCost
from mz_projections.runner import Views
from mz_projections.spending import tells

from mz_cli.context import Reading, reading
from mz_cli.help import command
from mz_cli.period import Period, period_of
from mz_cli.render.console import is_terminal, remark
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.table import Table, columns
from mz_cli.render.text import compact, counted
from mz_cli.shapes.calibrate import CalibrateResult, FittedShape, TooFew

ANY = "any"
LEGEND = (
    "all of it is about tokens, not money; input, output: tokens used for each one estimated; off: how far estimates "
    "were off; then: how far they are off with this calibration, each call judged by the others alone (medians); low: "
    "more tokens were used than estimated, though they may have cost less, as cached input is cheap"
)


@command(
    "calibrate",
    examples=(
        ("mz calibrate", "how good estimates are, and what would make them better"),
        ("mz calibrate --write && git add calibration.yaml", "have runs estimate and reserve by it"),
        ("mz calibrate --since 30d --json | jq .fitted", "from the last month's calls, for programs"),
    ),
    following="`mz cost` says how far estimates of money were off; `mz run --dry-run` estimates by the calibration.",
)
@click.option("--since", metavar="TIME", help="Calls from then on: a day, a time, or how long ago (7d, 36h).")
@click.option("--until", metavar="TIME", help="Calls until then; a day counts whole.")
@click.option("--write", is_flag=True, help=f"Write {FILE_NAME}, which runs estimate by.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.calibrate/1.")
@click.pass_context
def calibrate(context: click.Context, since: str | None, until: str | None, write: bool, as_json: bool) -> int:
    """Fit estimates to what calls really took.

    Takes the calls of all runs that ended well, and says for each agent, each of its models and each phase how many
    tokens were used for one that was estimated, how far estimates were off, and how far they are off then, with the
    calibration. These are medians, of five calls or more; a phase with fewer goes by
    its model, a model by its agent. What would make estimates worse is shown, and not written. Nothing changes
    without --write; a run keeps the calibration that it began with.
    """
    try:
        period = period_of(since, until, time.time_ns() // 1000, None)
    except ValueError as error:
        raise click.UsageError(str(error), context) from None
    with reading() as log:
        samples = tuple(samples_of(calls_of(log, period)))
        fitted = fit_all(samples)
        found = worth_writing(fitted)
        written = write_calibration(log.home, found) if write and found else None
    result = CalibrateResult(
        calls=len(samples),
        calls_min=CALLS_MIN,
        fitted=tuple(map(_shape, fitted)),
        too_few=tuple(
            TooFew(agent=agent, model=model, phase=phase, calls=calls)
            for (agent, model, phase), calls in too_few(samples)
        ),
        written=str(written) if written else None,
    )
    show_document("calibrate", result) if as_json else _tell(result, write)
    return Exit.NOT_COMPARABLE if write and not found else Exit.OK


def calls_of(log: Reading, period: Period) -> tuple[CallCost, ...]:
    with Views(log.home / HOME / VIEWS, log.store, (COSTS,)) as views:
        views.refresh()
        return tuple(call for call in views.rows(COSTS) if period.holds(call.requested_at_us))


def samples_of(calls: Iterable[CallCost]) -> Iterable[Sample]:
    """Calls that ended well and whose tokens are known: others say nothing of what the work takes."""
    for call in calls:
        if tells(call) and call.input and call.output is not None:
            yield Sample(
                agent=call.agent,
                model=call.model,
                phase=call.phase,
                asked_tokens=call.estimated_tokens - REPLY_TOKENS,
                reply_tokens=REPLY_TOKENS,
                input=call.input,
                output=call.output,
                cache_read=call.cache_read or 0,
                cache_write=call.cache_write or 0,
            )


def _shape(fitted: Fitted) -> FittedShape:
    by = fitted.coefficients
    return FittedShape(
        agent=by.agent,
        model=by.model or None,
        phase=by.phase or None,
        calls=by.calls,
        input=by.input,
        output=by.output,
        cache_read=by.cache_read,
        cache_write=by.cache_write,
        input_tokens=by.input_tokens,
        output_tokens=by.output_tokens,
        error_before=round(fitted.error_before, 4),
        error_after=round(fitted.error_after, 4),
        ratio=round(fitted.ratio, 4),
        estimates=advice(fitted.ratio),
        helps=fitted.helps,
    )


# for people -----------------------------------------------------------------------------------------------------------
def _tell(result: CalibrateResult, write: bool) -> None:
    terminal = is_terminal(sys.stdout)
    show(_table(result, whole=not terminal))
    if terminal and result.fitted:
        remark(LEGEND)
    for few in result.too_few:
        remark(f"{few.agent} {few.model} {few.phase}: {counted(few.calls, 'call')}, too few for figures of its own")
    if result.written:
        remark(f"written: {result.written}; commit it, and the next run estimates by it")
    elif write and result.fitted:
        called = counted(result.calls, "call")
        remark(f"nothing written: estimates would be no better by what the {called} that ended well took")
    elif write:
        remark(f"nothing written: of {counted(result.calls, 'call')} that ended well there are no {CALLS_MIN} alike")


def _table(result: CalibrateResult, whole: bool) -> Table:
    """`whole`: for a pipe, exact."""
    rows = tuple(
        (
            each.agent, each.model or ANY, each.phase or ANY, str(each.calls), f"{each.input:g}", f"{each.output:g}",
            f"{each.cache_read:g}" if whole else f"{each.cache_read:.0%}",
            *((str(each.input_tokens), str(each.output_tokens)) if whole
              else (f"{compact(each.input_tokens)}+{compact(each.output_tokens)}",)),
            *((f"{each.error_before:g}", f"{each.error_after:g}") if whole
              else (f"{each.error_before:.0%}", f"{each.error_after:.0%}")),
            each.estimates if each.helps else f"{each.estimates}, too unlike",
        )
        for each in result.fitted
    )  # fmt: skip
    typical = (">typical input", ">typical output") if whole else (">typical",)
    heads = columns(
        "*agent", "*model", "*phase", ">calls", ">input", ">output", ">cached", *typical, ">off", ">then", "estimates"
    )
    few = f"Too few calls: {CALLS_MIN} of an agent have to end well, {result.calls} did."
    return Table(columns=heads, rows=rows, empty=few)
