"""Command `mz calibrate`."""

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
    "All figures are about tokens, not money. input, output: tokens used per estimated token. error: median error of "
    "the estimates now. error after: with this calibration (leave-one-out). low: more tokens were used than estimated; "
    "they may still have cost less, because cached input is cheap."
)


@command(
    "calibrate",
    examples=(
        ("mz calibrate", "the error of estimates, and a calibration that reduces it"),
        ("mz calibrate --write && git add calibration.yaml", "use the calibration in future runs"),
        ("mz calibrate --since 30d --json | jq .fitted", "from the calls of the last 30 days, for programs"),
    ),
    following="`mz cost` shows the error of cost estimates; `mz run --dry-run` uses the calibration.",
)
@click.option("--since", metavar="TIME", help="Calls since then: a day, a time, or an age (7d, 36h).")
@click.option("--until", metavar="TIME", help="Calls until then; a day is included.")
@click.option("--write", is_flag=True, help=f"Write {FILE_NAME}, which runs use for estimates.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.calibrate/1.")
@click.pass_context
def calibrate(context: click.Context, since: str | None, until: str | None, write: bool, as_json: bool) -> int:
    """Improve estimates from past calls.

    Uses the successful calls of all runs. Shows for each agent, model and phase the tokens used per estimated token,
    and the error of estimates without and with the calibration. All figures are medians of at least five calls; a
    phase with fewer uses the figures of its model, a model those of its agent. A calibration that does not reduce the
    error is shown but not written. Nothing is written without --write; a run keeps the calibration it started with.
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
    """Yield the successful calls with known tokens; others do not show what the work needs."""
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
        remark(f"{few.agent} {few.model} {few.phase}: {counted(few.calls, 'call')}, too few for its own figures")
    if result.written:
        remark(f"wrote {result.written}; commit it to use it in the next run")
    elif write and result.fitted:
        calls = counted(result.calls, "successful call")
        remark(f"nothing written: {calls} would not improve the estimates")
    elif write:
        needed = f"{CALLS_MIN} successful calls of one agent are needed"
        remark(f"nothing written: {needed}, there are {result.calls} of all agents")


def _table(result: CalibrateResult, whole: bool) -> Table:
    """Return the table; with `exact`, exact numbers for a pipe."""
    rows = tuple(
        (
            each.agent, each.model or ANY, each.phase or ANY, str(each.calls), f"{each.input:g}", f"{each.output:g}",
            f"{each.cache_read:g}" if whole else f"{each.cache_read:.0%}",
            *((str(each.input_tokens), str(each.output_tokens)) if whole
              else (f"{compact(each.input_tokens)}+{compact(each.output_tokens)}",)),
            *((f"{each.error_before:g}", f"{each.error_after:g}") if whole
              else (f"{each.error_before:.0%}", f"{each.error_after:.0%}")),
            each.estimates if each.helps else f"{each.estimates}, not improved",
        )
        for each in result.fitted
    )  # fmt: skip
    typical = (">typical input", ">typical output") if whole else (">typical",)
    heads = columns(
        "*agent",
        "*model",
        "*phase",
        ">calls",
        ">input",
        ">output",
        ">cached",
        *typical,
        ">error",
        ">error after",
        "estimates",
    )
    empty = f"Too few calls: {CALLS_MIN} successful calls of an agent are needed, there are {result.calls}."
    return Table(columns=heads, rows=rows, empty=empty)
