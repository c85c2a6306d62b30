"""Command `mz calibrate`."""

from __future__ import annotations

import time
from collections.abc import Iterable

import click
from mz_engine.effects.call import REPLY_TOKENS
from mz_engine.errors.diagnostics import Exit
from mz_engine.model.config import Coefficients
from mz_engine.pricing.calibration import GROUP_CALLS_MIN, CallSample, groups_with_too_few_calls, useful_coefficients
from mz_engine.pricing.calibration import calibrate as fit_all
from mz_engine.run.settings import CALIBRATION_FILE, write_calibration
from mz_projections.cost.totals import has_calibration_data
from mz_projections.feature.calls import Call

from mz_cli.app.context import open_log
from mz_cli.app.help import command, format_options
from mz_cli.app.period import parse_period
from mz_cli.cost.query import all_costs
from mz_cli.terminal.console import print_wrapped
from mz_cli.terminal.json import Shape, print_document, shape_of
from mz_cli.terminal.table import Cell, Table, columns, print_table, prints_tsv
from mz_cli.terminal.text import compact_number, count_noun

ANY = "any"
LEGEND = (
    "All figures are about tokens, not money. input, output: tokens used per estimated token. typical: "
    "input+output tokens of a call. error: median error of "
    "the estimates now. error after: with this calibration (leave-one-out). low: more tokens were used than estimated; "
    "they may still have cost less, because cached input is cheap."
)


class CalibrationShape(Coefficients, frozen=True, kw_only=True):
    """Calibration of one agent, of one of its models, or of one phase with that model."""

    error_before: float
    """Median of |estimated - used| / used over all tokens, without calibration."""
    error_after: float
    """The same with the calibration, leave-one-out."""
    ratio: float
    """Tokens used per estimated token, without calibration: below 0.9 estimates are high, above 1.1 low."""
    estimates: str
    """Quality of token estimates: fits, low (more were used than estimated) or high."""
    improves: bool
    """The calibration improves estimates; otherwise it is not written."""


class UncalibratedPhase(Shape, frozen=True, kw_only=True):
    """A phase with too few calls for coefficients of its own."""

    agent: str
    model: str
    phase: str
    calls: int


class CalibrateResult(Shape, frozen=True, kw_only=True):
    """`mz calibrate --json`."""

    calls: int
    """Number of successful calls with known tokens."""
    calls_min: int
    fitted: tuple[CalibrationShape, ...]
    too_few: tuple[UncalibratedPhase, ...]
    written: str | None
    """Path of the written file, with `--write`."""


@command(
    "calibrate",
    examples=(
        ("mz calibrate", "the error of estimates, and a calibration that reduces it"),
        ("mz calibrate --write && git add calibration.yaml", "use the calibration in future runs"),
        ("mz calibrate --since 30d --json | jq .fitted", "from the calls of the last 30 days, for programs"),
    ),
    next_command="`mz cost` shows the error of cost estimates; `mz run --dry-run` uses the calibration.",
)
@click.option("--since", metavar="TIME", help="Calls since then: a day, a time, or an age (7d, 36h).")
@click.option("--until", metavar="TIME", help="Calls until then; a day is included.")
@click.option("--write", is_flag=True, help=f"Write {CALIBRATION_FILE}, which runs use for estimates.")
@format_options("Print one object with the schema mz.calibrate/1.")
def calibrate(since: str | None, until: str | None, write: bool, as_json: bool) -> int:
    """Improve estimates from past calls.

    Uses the successful calls of all runs. Shows for each agent, model and phase the tokens used per estimated token,
    and the error of estimates without and with the calibration. All figures are medians of at least five calls; a
    phase with fewer uses the figures of its model, a model those of its agent. A calibration that does not reduce the
    error is shown but not written. Nothing is written without --write; a run keeps the calibration it started with.
    """
    period = parse_period(since, until, time.time_ns() // 1000, None)
    with open_log() as log:
        samples = tuple(calibration_samples(priced.call for priced in all_costs(log, period)))
        fitted = fit_all(samples)
        coefficients = useful_coefficients(fitted)
        written = write_calibration(log.root, coefficients) if write and coefficients else None
    result = CalibrateResult(
        calls=len(samples),
        calls_min=GROUP_CALLS_MIN,
        fitted=tuple(shape_of(CalibrationShape, group.coefficients, group) for group in fitted),
        too_few=tuple(
            UncalibratedPhase(agent=agent, model=model, phase=phase, calls=calls)
            for (agent, model, phase), calls in groups_with_too_few_calls(samples)
        ),
        written=str(written) if written else None,
    )
    if as_json:
        print_document("calibrate", result)
    else:
        _print_result(result, write)
    return Exit.NOT_COMPARABLE if write and not coefficients else Exit.OK


def calibration_samples(calls: Iterable[Call]) -> Iterable[CallSample]:
    """Yield the successful calls with known tokens; others do not show what the work needs."""
    for call in calls:
        if has_calibration_data(call) and call.input_tokens and call.output_tokens is not None:
            yield CallSample(
                agent=call.agent,
                model=call.model,
                phase=call.phase,
                estimated_input_tokens=call.estimated_tokens - REPLY_TOKENS,
                estimated_output_tokens=REPLY_TOKENS,
                input=call.input_tokens,
                output=call.output_tokens,
                cache_read=call.cache_read_tokens or 0,
                cache_write=call.cache_write_tokens or 0,
            )


# for people -----------------------------------------------------------------------------------------------------------
def _print_result(result: CalibrateResult, write: bool) -> None:
    print_table(_table(result))
    if result.fitted and not prints_tsv():
        print_wrapped(LEGEND)
    for phase_group in result.too_few:
        print_wrapped(
            f"{phase_group.agent} {phase_group.model} {phase_group.phase}: "
            f"{count_noun(phase_group.calls, 'call')}, too few for its own figures"
        )
    if result.written:
        print_wrapped(f"wrote {result.written}; commit it to use it in the next run")
    elif write and result.fitted:
        calls = count_noun(result.calls, "successful call")
        print_wrapped(f"nothing written: {calls} would not improve the estimates")
    elif write:
        needed = f"{GROUP_CALLS_MIN} successful calls of one agent are needed"
        print_wrapped(f"nothing written: {needed}, there are {result.calls} of all agents")


def _table(result: CalibrateResult) -> Table:
    rows = tuple(
        (
            calibration.agent,
            calibration.model or ANY,
            calibration.phase or ANY,
            str(calibration.calls),
            f"{calibration.input:g}",
            f"{calibration.output:g}",
            _share_cell(calibration.cache_read),
            f"{compact_number(calibration.input_tokens)}+{compact_number(calibration.output_tokens)}",
            str(calibration.input_tokens),
            str(calibration.output_tokens),
            _share_cell(calibration.error_before),
            _share_cell(calibration.error_after),
            calibration.estimates if calibration.improves else f"{calibration.estimates}, not improved",
        )
        for calibration in result.fitted
    )
    heads = columns(
        "*agent", "*model", "*phase", ">calls", ">input", ">output", ">cached", ">typical|", ">|typical input",
        ">|typical output", ">error", ">error after", ",estimates",
    )  # fmt: skip
    empty = f"Too few calls: {GROUP_CALLS_MIN} successful calls of an agent are needed, there are {result.calls}."
    return Table(columns=heads, rows=rows, empty=empty)


def _share_cell(share: float) -> Cell:
    return Cell(f"{share:.0%}", f"{share:g}")
