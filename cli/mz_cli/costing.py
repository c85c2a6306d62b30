"""Calls of one run or of all runs with outcomes, causes of mismatches, and alternative prices."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from mz_engine.adapters.pricefile import user_prices
from mz_engine.adapters.prices import GenaiPrices
from mz_engine.config import Models, PriceRow
from mz_engine.configfile import load_config
from mz_engine.errors import MzError
from mz_engine.home import HOME, VIEWS
from mz_engine.pins import Pins, decode_pins
from mz_engine.pricing.card import may_cross
from mz_engine.pricing.deviations import Usages, total
from mz_engine.pricing.names import bare
from mz_engine.pricing.reconcile import agrees, explain
from mz_events.catalog.run import RunStarted
from mz_events.names import feature_stream, run_stream
from mz_events.store import BlobMissing
from mz_projections.cost import COSTS, CallCost, costs, difference, was_refused
from mz_projections.fates import COURSES, courses
from mz_projections.spending import Judged, computed_anew, judged
from mz_projections.tokens import TOKENS, tokens

from mz_cli.context import Reading
from mz_cli.period import Period
from mz_cli.render.text import counted

TIERS = Models.__struct_fields__
STEP_MIN = 30_000
"""Input tokens: no price step is lower, so the price table is not loaded for shorter requests."""
EVERY = "model"
"""In `--what-if model=X`: any requested model."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Calls with their outcomes, and the token usage that their agents reported."""

    calls: tuple[Judged, ...]
    usage: Mapping[str, Usages]
    """By key of the call."""
    notes: tuple[str, ...] = ()


def of_run(log: Reading, run: str, period: Period) -> Spent:
    """Return the calls of one run, from its features' streams."""
    calls: list[CallCost] = []
    followed, usage = {}, dict[str, Usages]()
    for stream in log.streams(run)[1:]:
        events = tuple(log.store.read(stream))
        calls += (call for call in costs(events) if period.holds(call.requested_at_us))
        followed.update(courses(events))
        usage |= tokens(events)
    return Spent(calls=judged(calls, followed), usage=usage)


def of_all(log: Reading, period: Period, *, needs_tokens: bool) -> Spent:
    """Return the calls of all runs, from the read models beside the log. Token usage is loaded only if a call has a
    mismatch, or with `needs_tokens`."""
    from mz_projections.runner import Views  # Imports SQLAlchemy, which costs of one run do not need.

    with Views(log.home / HOME / VIEWS, log.store, (COSTS, COURSES, TOKENS)) as views:
        views.refresh()
        followed = {feature_stream(row.run, row.feature): row for row in views.rows(COURSES)}
        calls = judged((call for call in views.rows(COSTS) if period.holds(call.requested_at_us)), followed)
        wanted = needs_tokens or any(_differs(each.call) for each in calls)
        return Spent(calls=calls, usage={row.key: row.usage for row in views.rows(TOKENS)} if wanted else {})


def _differs(call: CallCost) -> bool:
    return difference(call) is not None and not agrees(call.reported_nanousd or 0, call.computed_nanousd or 0)


# prices ---------------------------------------------------------------------------------------------------------------
def prices_here(log: Reading) -> tuple[GenaiPrices, tuple[str, ...]]:
    """Return the current prices for this repository, and notes on custom prices that are invalid and left out."""
    notes: list[str] = []

    def valid_rows(read: Callable[[], tuple[PriceRow, ...]]) -> tuple[PriceRow, ...]:
        try:
            return read()
        except MzError as error:
            notes.append(f"custom prices are ignored: {error.place or ''} {error.message}".replace("  ", " "))
            return ()

    config = valid_rows(lambda: load_config(log.home, os.environ, {}).config.prices)
    return GenaiPrices(config, valid_rows(lambda: user_prices(os.environ))), tuple(notes)


def explained(spent: Spent, prices: GenaiPrices) -> Spent:
    """Add the cause of a mismatch to each call."""
    calls = []
    for priced_call in spent.calls:
        why, detail = explain(priced_call.call, spent.usage.get(priced_call.call.key, ()), prices)
        calls.append(replace(priced_call, why=why, detail=detail))
    return replace(spent, calls=tuple(calls))


def priced_at(spent: Spent, prices: GenaiPrices, at_us: int) -> Spent:
    """Price every call as if it had been made at that time. A call without tokens has no price, but a rejected request
    costs nothing."""
    calls = []
    for priced_call in spent.calls:
        usage = spent.usage.get(priced_call.call.key, ())
        price = prices.price(usage, at_us)
        repriced = computed_anew(priced_call, price.nanousd if usage else 0 if was_refused(priced_call.call) else None)
        calls.append(replace(repriced, call=replace(repriced.call, unpriced=price.unpriced, prices=price.prices)))
    return replace(spent, calls=tuple(calls))


def crossing(spent: Spent, prices: GenaiPrices) -> str | None:
    """Return a warning if agents reported sums of requests that may have been priced at the wrong step."""
    found = 0
    for each in spent.calls:
        at_us = each.call.ended_at_us or each.call.requested_at_us
        sums = [one for one in spent.usage.get(each.call.key, ()) if one.requests != 1 and one.input > STEP_MIN]
        cards = ((one, prices.card(one.model, at_us, one.tier)) for one in sums)
        found += any(card is not None and may_cross(card, one) for one, card in cards)
    if not found:
        return None
    return (
        f"{counted(found, 'call')} reported only sums of requests, and prices may depend on the length of a request: "
        "a sum is priced as its average request, or as short requests if their number is unknown"
    )


# under another model --------------------------------------------------------------------------------------------------
Choice = Callable[[Judged], str | None]
"""Call -> alternative model; None: unchanged."""


Names = Mapping[str, tuple[str, str]]
"""By key of the call: its model, and its tier, empty if that is unknown."""


def names(log: Reading, spent: Spent) -> Names:
    pins = _pins_of(log)
    calls = (each.call for each in spent.calls)
    return {call.key: (bare(call.model), _tier(pins(call.run), call)) for call in calls}


def choice(named: Names, what_if: Sequence[tuple[str, str]]) -> Choice:
    """Return the choice made by pairs of a tier, a model, or the word `model` for all, and another model; the last
    match wins."""

    def alternative(priced_call: Judged) -> str | None:
        fitting = (EVERY, *named[priced_call.call.key])
        return next((model for name, model in reversed(what_if) if bare(name) in fitting), None)

    return alternative


def unmatched(what_if: Sequence[tuple[str, str]], named: Names) -> str | None:
    """Return an error for a name that matches no call; None if all match, or there are no calls."""
    models, tiers = ({pair[at] for pair in named.values()} - {""} for at in (0, 1))
    lost = next((name for name, _ in what_if if bare(name) not in {EVERY, *models, *tiers}), None)
    if lost is None or not named:
        return None
    listed = f"model{'s' * (len(models) > 1)} {', '.join(sorted(models))}"
    listed += f", tier{'s' * (len(tiers) > 1)} {', '.join(sorted(tiers))}" if tiers else "; tiers are unknown"
    return f"no call uses {lost[:60]!r}; there are {listed}; `{EVERY}` means all calls"


def _pins_of(log: Reading) -> Callable[[str], Pins | None]:
    known: dict[str, Pins | None] = {}

    def pins(run: str) -> Pins | None:
        if run not in known:
            known[run] = _read_pins(log, run)
        return known[run]

    return pins


def _read_pins(log: Reading, run: str) -> Pins | None:
    started = (one.event for one in log.store.read(run_stream(run)) if isinstance(one.event, RunStarted))
    try:
        return next((decode_pins(log.blobs.get(each.pins)) for each in started), None)
    except (BlobMissing, msgspec.MsgspecError):
        return None


def _tier(pins: Pins | None, call: CallCost) -> str:
    """Return the tier of the phase's agent or reviewer; empty if unknown."""
    phase = next((one for one in pins.pipeline.phases if one.phase == call.phase), None) if pins else None
    if phase is None:
        return ""
    use = phase.agent if call.role == "builder" else phase.review
    return use.tier if use is not None else ""


def under(spent: Spent, prices: GenaiPrices, choose: Choice, at_us: int | None) -> Spent:
    """Add the cost of the same tokens under the alternative models, priced at the time of each call or at `at_us`."""
    calls = []
    for priced_call in spent.calls:
        usage = spent.usage.get(priced_call.call.key, ())
        if usage:
            model = choose(priced_call)
            called_us = priced_call.call.ended_at_us or priced_call.call.requested_at_us
            other_usage = usage if model is None else tuple(replace(entry, model=model) for entry in usage)
            other_nanousd = total(other_usage, called_us if at_us is None else at_us, prices)
            priced_call = replace(priced_call, other_nanousd=other_nanousd)
        calls.append(priced_call)
    return replace(spent, calls=tuple(calls))
