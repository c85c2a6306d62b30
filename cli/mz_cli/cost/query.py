"""Calls of one run or of all runs with outcomes, causes of mismatches, and alternative prices."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Models, PriceRow
from mz_engine.model.pins import Pins, decode_pins
from mz_engine.paths import MZ_FOLDER, READ_MODELS_FILE
from mz_engine.pricing.mismatch import explain_mismatch
from mz_engine.pricing.models import base_name
from mz_engine.pricing.rate_card import may_cross_step
from mz_engine.pricing.table import GenaiPrices, user_prices
from mz_engine.run.settings import load_config
from mz_events.catalog.run import RunStarted
from mz_events.names import run_stream
from mz_events.store import BlobMissing
from mz_projections.cost.totals import PricedCall, priced_calls, reprice
from mz_projections.feature.calls import CALLS, Call, paid_calls

from mz_cli.app.context import ProjectLog
from mz_cli.app.help import did_you_mean
from mz_cli.app.period import Period
from mz_cli.app.selectors import Selector
from mz_cli.terminal.text import count_noun

TIERS = Models.__struct_fields__
STEP_MIN = 30_000
"""Input tokens: no price step is lower, so the price table is not loaded for shorter requests."""
ANY_MODEL = "model"
"""In `--what-if model=X`: any requested model."""


class CostData(msgspec.Struct, frozen=True, kw_only=True):
    calls: tuple[PricedCall, ...]
    notes: tuple[str, ...] = ()


def run_costs(log: ProjectLog, selected: Selector, period: Period) -> CostData:
    """Return the selected calls of one run, from its features' streams. Raises MzError (MZ1002) for a phase or an
    attempt without calls."""
    streams = log.streams(selected.run)[1:] if selected.feature is None else (selected.stream,)
    calls = [call for stream in streams for call in paid_calls(log.store.read(stream))]
    for name, value in (("phase", selected.phase), ("attempt", selected.attempt)):
        names = list(dict.fromkeys(str(getattr(call, name)) for call in calls))
        if value is not None and str(value) not in names:
            hint = f"{name}s with calls: {', '.join(names) or 'none'}"
            raise MzError("MZ1002", f"{selected} has no calls{did_you_mean(str(value), names)}", hint=hint)
        calls = [call for call in calls if value in (None, getattr(call, name))]
    return CostData(calls=priced_calls(call for call in calls if period.contains(call.requested_at_us)))


def all_costs(log: ProjectLog, period: Period) -> CostData:
    """Return the calls of all runs, from the read model beside the log."""
    from mz_projections.read_models.store import ReadModelStore

    with ReadModelStore(log.home / MZ_FOLDER / READ_MODELS_FILE, log.store, (CALLS,)) as views:
        views.refresh()
        calls = (call for row in views.rows(CALLS) for call in row.calls if not call.is_forked_copy)
        return CostData(calls=priced_calls(call for call in calls if period.contains(call.requested_at_us)))


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

    config = valid_rows(lambda: load_config(log.home, os.environ, {}).config.prices)
    return GenaiPrices(config, valid_rows(lambda: user_prices(os.environ))), tuple(notes)


def with_causes(cost_data: CostData, prices: GenaiPrices) -> CostData:
    """Add the cause of a mismatch to each call."""
    calls = []
    for priced_call in cost_data.calls:
        why, detail = explain_mismatch(priced_call.call, priced_call.call.usage, prices)
        calls.append(replace(priced_call, cause=why, detail=detail))
    return replace(cost_data, calls=tuple(calls))


def repriced_at(cost_data: CostData, prices: GenaiPrices, at_us: int) -> CostData:
    """Price every call as if it had been made at that time. A call without tokens has no price, but a rejected request
    costs nothing."""
    calls = []
    for priced_call in cost_data.calls:
        usage = priced_call.call.usage
        price = prices.price(usage, at_us)
        repriced = reprice(priced_call, price.nanousd if usage else 0 if priced_call.call.was_rejected else None)
        calls.append(replace(repriced, call=replace(repriced.call, unpriced=price.unpriced, prices=price.prices)))
    return replace(cost_data, calls=tuple(calls))


def price_step_warning(cost_data: CostData, prices: GenaiPrices) -> str | None:
    """Return a warning if agents reported sums of requests that may have been priced at the wrong step."""
    affected_calls = 0
    for priced_call in cost_data.calls:
        at_us = priced_call.call.ended_at_us or priced_call.call.requested_at_us
        sums = [usage for usage in priced_call.call.usage if usage.requests != 1 and usage.input > STEP_MIN]
        cards = ((usage, prices.card(usage.model, at_us, usage.tier)) for usage in sums)
        affected_calls += any(card is not None and may_cross_step(card, usage) for usage, card in cards)
    if not affected_calls:
        return None
    return (
        f"{count_noun(affected_calls, 'call')} reported only sums of requests, and prices may "
        "depend on the length of a request: "
        "a sum is priced as its average request, or as short requests if their number is unknown"
    )


# under another model --------------------------------------------------------------------------------------------------
ModelChoice = Callable[[PricedCall], str | None]
"""Call -> alternative model; None: unchanged."""


CallModels = Mapping[str, tuple[str, str]]
"""By key of the call: its model, and its tier, empty if that is unknown."""


def call_models(log: ProjectLog, cost_data: CostData) -> CallModels:
    pins = _pins_reader(log)
    calls = (priced_call.call for priced_call in cost_data.calls)
    return {call.key: (base_name(call.model), _tier_of(pins(call.run), call)) for call in calls}


def model_choice(models_by_call: CallModels, what_if: Sequence[tuple[str, str]]) -> ModelChoice:
    """Return the choice made by pairs of a tier, a model, or the word `model` for all, and another model; the last
    match wins."""

    def alternative(priced_call: PricedCall) -> str | None:
        fitting = (ANY_MODEL, *models_by_call[priced_call.call.key])
        return next((model for name, model in reversed(what_if) if base_name(name) in fitting), None)

    return alternative


def unmatched_names_error(what_if: Sequence[tuple[str, str]], models_by_call: CallModels) -> str | None:
    """Return an error for a name that matches no call; None if all match, or there are no calls."""
    models, tiers = ({pair[index] for pair in models_by_call.values()} - {""} for index in (0, 1))
    unknown_name = next((name for name, _ in what_if if base_name(name) not in {ANY_MODEL, *models, *tiers}), None)
    if unknown_name is None or not models_by_call:
        return None
    available = f"model{'s' * (len(models) > 1)} {', '.join(sorted(models))}"
    available += f", tier{'s' * (len(tiers) > 1)} {', '.join(sorted(tiers))}" if tiers else "; tiers are unknown"
    return f"no call uses {unknown_name[:60]!r}; there are {available}; `{ANY_MODEL}` means all calls"


def _pins_reader(log: ProjectLog) -> Callable[[str], Pins | None]:
    pins_by_run: dict[str, Pins | None] = {}

    def pins(run: str) -> Pins | None:
        if run not in pins_by_run:
            pins_by_run[run] = _read_pins(log, run)
        return pins_by_run[run]

    return pins


def _read_pins(log: ProjectLog, run: str) -> Pins | None:
    started = (recorded.event for recorded in log.store.read(run_stream(run)) if isinstance(recorded.event, RunStarted))
    try:
        return next((decode_pins(log.blobs.get(event.pins)) for event in started), None)
    except (BlobMissing, msgspec.MsgspecError):
        return None


def _tier_of(pins: Pins | None, call: Call) -> str:
    """Return the tier of the phase's agent or reviewer; empty if unknown."""
    phase = (
        next((pinned_phase for pinned_phase in pins.pipeline.phases if pinned_phase.phase == call.phase), None)
        if pins
        else None
    )
    if phase is None:
        return ""
    use = phase.agent if call.role == "builder" else phase.agent_review
    return use.tier if use is not None else ""


def with_alternative_costs(
    cost_data: CostData, prices: GenaiPrices, choose_model: ModelChoice, at_us: int | None
) -> CostData:
    """Add the cost of the same tokens under the alternative models, priced at the time of each call or at `at_us`."""
    calls = []
    for priced_call in cost_data.calls:
        usage = priced_call.call.usage
        if usage:
            model = choose_model(priced_call)
            called_us = priced_call.call.ended_at_us or priced_call.call.requested_at_us
            other_usage = usage if model is None else tuple(replace(entry, model=model) for entry in usage)
            price = prices.price(other_usage, called_us if at_us is None else at_us)
            priced_call = replace(priced_call, alternative_nanousd=price.nanousd)
        calls.append(priced_call)
    return replace(cost_data, calls=tuple(calls))
