"""Calls of one run or of all runs with outcomes, causes of mismatches, and alternative prices."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import FILE_NAME, WRONG_NAMES, PriceRow
from mz_engine.pricing.mismatch import explain_mismatch
from mz_engine.pricing.models import base_name
from mz_engine.pricing.table import GenaiPrices, may_cross_step, user_prices
from mz_events.catalog.run import RunStarted
from mz_events.names import run_stream
from mz_projections.cost.totals import PricedCall, priced_calls
from mz_projections.feature.calls import CALLS, Call, paid_calls
from mz_projections.imported.runs import find_imported_run, imported_calls, imported_runs

from mz_cli.app.context import ProjectLog
from mz_cli.app.help import did_you_mean
from mz_cli.app.period import Period
from mz_cli.app.selectors import Selector
from mz_cli.terminal.text import count_noun

if TYPE_CHECKING:
    from mz_engine.model.pins import Pins

STEP_MIN = 30_000
"""Input tokens: no price step is lower, so the price table is not loaded for shorter requests."""
ANY_MODEL = "model"
"""In `--what-if model=X`: any requested model."""


Calls = tuple[PricedCall, ...]


def run_costs(log: ProjectLog, selected: Selector, period: Period) -> Calls:
    """Return the selected calls of one run, from its features' streams. Raises MzError (MZ1002) for a phase or an
    attempt without calls."""
    if imported := find_imported_run(log.store, selected.run):
        return priced_calls(call for call in imported_calls(imported) if period.contains(call.requested_at_us))
    streams = log.streams(selected.run)[1:] if selected.feature is None else (selected.stream,)
    calls = [call for stream in streams for call in paid_calls(log.store.read(stream))]
    for name, value in selected.part.items():
        names = list(dict.fromkeys(str(getattr(call, name)) for call in calls))
        if str(value) not in names:
            hint = f"{name}s with calls: {', '.join(names) or 'none'}"
            raise MzError("MZ1002", f"{selected} has no calls{did_you_mean(str(value), names)}", hint=hint)
        calls = [call for call in calls if getattr(call, name) == value]
    return priced_calls(call for call in calls if period.contains(call.requested_at_us))


def all_costs(log: ProjectLog, period: Period) -> Calls:
    """Return the calls of all runs, from the read model beside the log."""
    own = (call for row in log.rows(CALLS) for call in row.calls if not call.is_forked_copy)
    calls = chain(own, *map(imported_calls, imported_runs(log.store)))
    return priced_calls(call for call in calls if period.contains(call.requested_at_us))


# prices ---------------------------------------------------------------------------------------------------------------
def current_prices(log: ProjectLog) -> tuple[GenaiPrices, tuple[str, ...]]:
    """Return the current prices for this repository, and notes on custom prices that are invalid and left out."""
    notes: list[str] = []

    def valid_rows(read: Callable[[], tuple[PriceRow, ...]]) -> tuple[PriceRow, ...]:
        try:
            return read()
        except MzError as error:
            notes.append(f"custom prices are ignored: {error.location or ''} {error.message}".replace("  ", " "))
            return ()

    config = valid_rows(lambda: _configured_rows(log.root))
    return GenaiPrices(config, valid_rows(lambda: user_prices(os.environ))), tuple(notes)


def _configured_rows(root: Path) -> tuple[PriceRow, ...]:
    """Return the rows of the repository. Settings that cannot contain any are not decoded: that takes longer than the
    rest of `mz cost`. Raises MzError (MZ20nn)."""
    files = [path.read_bytes() for name in (FILE_NAME, *WRONG_NAMES) if (path := root / name).is_file()]
    has_prices = any(b"prices" in data or b"\\" in data for data in files)  # A key may be written with escapes.
    if not has_prices:
        return ()
    from mz_engine.run.settings import load_config

    return load_config(root, os.environ, {}).config.prices


def with_causes(calls: Calls, prices: GenaiPrices) -> Calls:
    """Add the cause of a mismatch to each call."""
    causes = (explain_mismatch(priced.call, priced.call.usage, prices) for priced in calls)
    return tuple(
        replace(priced, cause=cause, detail=detail) for priced, (cause, detail) in zip(calls, causes, strict=True)
    )


def repriced_at(calls: Calls, prices: GenaiPrices, at_us: int) -> Calls:
    """Price every call as if it had been made at that time. A call without tokens has no price, but a rejected request
    costs nothing."""

    def repriced(priced: PricedCall) -> PricedCall:
        usage, price = priced.call.usage, prices.price(priced.call.usage, at_us)
        nanousd = price.nanousd if usage else 0 if priced.call.was_rejected else None
        call = replace(priced.call, computed_nanousd=nanousd, unpriced=price.unpriced, prices=price.prices)
        return replace(priced, call=call)

    return tuple(map(repriced, calls))


def price_step_warning(calls: Calls, prices: GenaiPrices) -> str | None:
    """Return a warning if agents reported sums of requests that may have been priced at the wrong step."""

    def may_be_wrong(call: Call) -> bool:
        sums = [usage for usage in call.usage if usage.requests != 1 and usage.input > STEP_MIN]
        cards = ((usage, prices.card(usage.model, _priced_at_us(call), usage.tier)) for usage in sums)
        return any(card is not None and may_cross_step(card, usage) for usage, card in cards)

    affected_calls = sum(may_be_wrong(priced.call) for priced in calls)
    if not affected_calls:
        return None
    return (
        f"{count_noun(affected_calls, 'call')} reported only sums of requests, and prices may depend on the length of "
        "a request: a sum is priced as its average request, or as short requests if their number is unknown"
    )


def _priced_at_us(call: Call) -> int:
    return call.ended_at_us or call.requested_at_us


# under another model --------------------------------------------------------------------------------------------------
CallNames = Mapping[str, tuple[str, str]]
"""By key of the call: its model, and its tier, empty if that is unknown."""


def _names_of_calls(log: ProjectLog, calls: Calls) -> CallNames:
    """Return what `--what-if` may name a call by."""

    @cache
    def pins(run: str) -> Pins | None:
        events = (recorded.event for recorded in log.store.read(run_stream(run)))
        return log.load_pins(next((event.pins for event in events if isinstance(event, RunStarted)), None))

    return {
        priced.call.key: (base_name(priced.call.model), _tier_of(pins(priced.call.run), priced.call))
        for priced in calls
    }


def _tier_of(pins: Pins | None, call: Call) -> str:
    """Return the tier that was asked for, else that of the phase's agent or reviewer; empty if unknown."""
    if call.tier:
        return call.tier
    for phase in pins.pipeline.phases if pins else ():
        if phase.phase == call.phase:
            use = phase.agent if call.role == "builder" else phase.agent_review
            return use.tier if use is not None else ""
    return ""


def _check_names(what_if: Iterable[tuple[str, str]], names: CallNames) -> None:
    """Raise ValueError for a name that matches no call; without calls, all do."""
    models, tiers = ({pair[index] for pair in names.values()} - {""} for index in (0, 1))
    unknown = next((name for name, _ in what_if if base_name(name) not in {ANY_MODEL, *models, *tiers}), None)
    if unknown is not None and names:
        available = f"model{'s' * (len(models) > 1)} {', '.join(sorted(models))}"
        available += f", tier{'s' * (len(tiers) > 1)} {', '.join(sorted(tiers))}" if tiers else "; tiers are unknown"
        raise ValueError(f"no call uses {unknown[:60]!r}; there are {available}; `{ANY_MODEL}` means all calls")


def with_alternative_costs(
    log: ProjectLog, calls: Calls, prices: GenaiPrices, what_if: Sequence[tuple[str, str]], at_us: int | None
) -> Calls:
    """Add the cost of the same tokens under the alternative models, priced at the time of each call or at `at_us`. Of
    several pairs of a tier, a model, or the word `model` for all, and another model, the last match wins. Raises
    ValueError for a model without a price, and for a name that matches no call."""
    for _, model in what_if:
        if prices.estimate(model, 1, 1, time.time_ns() // 1000 if at_us is None else at_us) is None:
            raise ValueError(f"no price for {model!r}; set one under `prices:` in mz.yaml")
    names = _names_of_calls(log, calls)
    _check_names(what_if, names)

    def with_alternative(priced: PricedCall) -> PricedCall:
        call, fitting = priced.call, (ANY_MODEL, *names[priced.call.key])
        if not call.usage:
            return priced
        model = next((other for name, other in reversed(what_if) if base_name(name) in fitting), None)
        usage = call.usage if model is None else tuple(replace(entry, model=model) for entry in call.usage)
        price = prices.price(usage, _priced_at_us(call) if at_us is None else at_us)
        return replace(priced, alternative_nanousd=price.nanousd)

    return tuple(map(with_alternative, calls))
