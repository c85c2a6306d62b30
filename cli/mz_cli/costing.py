"""Adapter: the calls of one run or of all, from the log, with why their figures differ, and priced anew where asked."""

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
"""No price changes at a shorter request; the table is not loaded to find that out."""
EVERY = "model"
"""In `--what-if model=X`: whatever model was asked for."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Calls with what became of them, and what their agents told of tokens."""

    calls: tuple[Judged, ...]
    usage: Mapping[str, Usages]
    """By key of the call."""
    notes: tuple[str, ...] = ()


def of_run(log: Reading, run: str, period: Period) -> Spent:
    """The calls of one run, from its features' streams."""
    calls: list[CallCost] = []
    followed, usage = {}, dict[str, Usages]()
    for stream in log.streams(run)[1:]:
        events = tuple(log.store.read(stream))
        calls += (call for call in costs(events) if period.holds(call.requested_at_us))
        followed.update(courses(events))
        usage |= tokens(events)
    return Spent(calls=judged(calls, followed), usage=usage)


def of_all(log: Reading, period: Period, *, needs_tokens: bool) -> Spent:
    """The calls of all runs, from read models that are kept beside the log. Tokens entry by entry are many; they are
    read for calls whose figures differ, or where they are needed."""
    from mz_projections.runner import Views  # It brings SQLAlchemy, which one run does not need.

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
    """Today's prices in this repository, and what they lack: what is written wrongly must not hide what was paid."""
    notes: list[str] = []

    def sound(read: Callable[[], tuple[PriceRow, ...]]) -> tuple[PriceRow, ...]:
        try:
            return read()
        except MzError as error:
            notes.append(f"prices of your own are left out: {error.place or ''} {error.message}".replace("  ", " "))
            return ()

    config = sound(lambda: load_config(log.home, os.environ, {}).config.prices)
    return GenaiPrices(config, sound(lambda: user_prices(os.environ))), tuple(notes)


def explained(spent: Spent, prices: GenaiPrices) -> Spent:
    """With a reason for each call."""

    def told(each: Judged) -> Judged:
        why, detail = explain(each.call, spent.usage.get(each.call.key, ()), prices)
        return replace(each, why=why, detail=detail)

    return replace(spent, calls=tuple(map(told, spent.calls)))


def priced_at(spent: Spent, prices: GenaiPrices, at_us: int) -> Spent:
    """As if every call had been made then; without tokens there is no price, but what was refused costs nothing."""

    def priced(each: Judged) -> Judged:
        usage = spent.usage.get(each.call.key, ())
        price = prices.price(usage, at_us)
        again = computed_anew(each, price.nanousd if usage else 0 if was_refused(each.call) else None)
        return replace(again, call=replace(again.call, unpriced=price.unpriced, prices=price.prices))

    return replace(spent, calls=tuple(map(priced, spent.calls)))


def crossing(spent: Spent, prices: GenaiPrices) -> str | None:
    """What is to be said of calls whose agents told sums that may have been priced by the wrong step."""
    found = 0
    for each in spent.calls:
        at_us = each.call.ended_at_us or each.call.requested_at_us
        sums = [one for one in spent.usage.get(each.call.key, ()) if one.requests != 1 and one.input > STEP_MIN]
        cards = ((one, prices.card(one.model, at_us, one.tier)) for one in sums)
        found += any(card is not None and may_cross(card, one) for one, card in cards)
    if not found:
        return None
    return (
        f"{counted(found, 'call')} told sums of requests, some of which may have cost more or less for their length: "
        "a sum is priced as its average request, or as short ones where nobody knows how many they are"
    )


# under another model --------------------------------------------------------------------------------------------------
Choice = Callable[[Judged], str | None]
"""The model that a call would have gone to; None: the one that it did go to."""


Names = Mapping[str, tuple[str, str]]
"""By key of the call: the model that it was for, and the tier, empty where that cannot be known any more."""


def names(log: Reading, spent: Spent) -> Names:
    pins = _pins_of(log)
    calls = (each.call for each in spent.calls)
    return {call.key: (bare(call.model), _tier(pins(call.run), call)) for call in calls}


def choice(named: Names, what_if: Sequence[tuple[str, str]]) -> Choice:
    """From pairs of a tier, a model, or the word `model` for all, and another model; the last that fits wins."""

    def chosen(each: Judged) -> str | None:
        fitting = (EVERY, *named[each.call.key])
        return next((model for name, model in reversed(what_if) if bare(name) in fitting), None)

    return chosen


def unmatched(what_if: Sequence[tuple[str, str]], named: Names) -> str | None:
    """What is wrong with names that fit no call; None where all do, or where there are no calls."""
    models, tiers = ({pair[at] for pair in named.values()} - {""} for at in (0, 1))
    lost = next((name for name, _ in what_if if bare(name) not in {EVERY, *models, *tiers}), None)
    if lost is None or not named:
        return None
    listed = f"of the model{'s' * (len(models) > 1)} {', '.join(sorted(models))}"
    listed += f" and the tier{'s' * (len(tiers) > 1)} {', '.join(sorted(tiers))}" if tiers else ", of no tier known"
    return f"no call here is of {lost[:60]!r}: there are calls {listed}; `{EVERY}` means all of them"


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
    """Of the phase's agent or reviewer; empty where that cannot be known any more."""
    phase = next((one for one in pins.pipeline.phases if one.phase == call.phase), None) if pins else None
    if phase is None:
        return ""
    use = phase.agent if call.role == "builder" else phase.review
    return use.tier if use is not None else ""


def under(spent: Spent, prices: GenaiPrices, choose: Choice, at_us: int | None) -> Spent:
    """With what the same tokens would have cost: at the time of each call, or at that time."""

    def compared(each: Judged) -> Judged:
        model, usage = choose(each), spent.usage.get(each.call.key, ())
        if not usage:
            return each
        then = each.call.ended_at_us or each.call.requested_at_us
        told = usage if model is None else tuple(replace(one, model=model) for one in usage)
        return replace(each, other_nanousd=total(told, then if at_us is None else at_us, prices))

    return replace(spent, calls=tuple(map(compared, spent.calls)))
