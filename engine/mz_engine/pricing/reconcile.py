"""Pure: why what an agent reported is not what its tokens come to.

Nothing is stored: the tokens are priced again in every way in which agents are known to count, and the first way that
gives what was reported, to the tolerance, is the reason. So a log of any age profits from what is learned later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Literal, Protocol, TypeAlias

from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_projections.cost import CallCost
from mz_projections.spending import Why

from mz_engine.pricing.card import Card, all_hour, all_short, cost, tokens_in
from mz_engine.pricing.names import bare

TOLERANCE_NANOUSD = 1_000
"""A millionth of a dollar: agents add up binary fractions and print six decimals or more, while the smallest price of a
token that anybody asks for is a tenth of that; beyond it somebody counted otherwise."""
TIERS = ("batch", "flex", "priority", "fast")
STOPPED = frozenset({"failed", "lost"})
"""Outcomes of calls that we ended, or that nobody saw end."""
ENDED_BY_US = "the call ended before the agent said what it cost"

Usages: TypeAlias = tuple[Usage, ...]
Way = tuple[Why, str, int | None]
"""A reason, more of it in words, and what the tokens come to by it."""


class Pricer(Protocol):
    """See `mz_engine.adapters.prices.GenaiPrices`."""

    def entry(self, usage: Usage, at_us: int) -> int | None: ...

    def card(self, model: str, at_us: int, tier: str = "") -> Card | None: ...

    def history(self, model: str) -> tuple[Card, ...]: ...


def explain(call: CallCost, usage: Usages, prices: Pricer) -> tuple[Why, str]:
    """The reason, and more of it in words. `usage`: the call's, entry by entry."""
    reported, computed = call.reported_nanousd, call.computed_nanousd
    if reported is not None and computed is not None and agrees(reported, computed):
        return "agree", ""
    if was_killed(call):
        return "killed", ENDED_BY_US
    if reported is None or computed is None:
        return "unknown", _missing(call)
    at_us = call.requested_at_us if call.ended_at_us is None else call.ended_at_us
    for why, detail, nanousd in ways(usage, call.model, at_us, prices):
        if nanousd is not None and agrees(reported, nanousd):
            return why, detail
    return ("killed", ENDED_BY_US) if call.outcome in STOPPED else ("unexplained", "")


def agrees(reported: int, computed: int) -> bool:
    return abs(reported - computed) <= TOLERANCE_NANOUSD


def was_killed(call: CallCost) -> bool:
    """No terminal event, or a last word that says no money, or zeros after tokens were used."""
    zeros = call.reported_nanousd == 0 and bool(call.input or call.output)
    silent = call.outcome in STOPPED and (call.reported_nanousd is None or call.computed_nanousd is None)
    return silent or call.terminal == "no-terminal" or zeros


def _missing(call: CallCost) -> str:
    if call.unpriced:
        return f"no price for {', '.join(call.unpriced)}"
    if call.computed_nanousd is None:
        return "the agent told no tokens" if call.outcome == "replied" else ""
    return "the agent reported no money"


def ways(usage: Usages, model: str, at_us: int, prices: Pricer) -> Iterator[Way]:
    """In the order in which they are tried."""
    yield "promotion", "today's price table says what the agent said", total(usage, at_us, prices)
    yield from _lifetimes(usage, at_us, prices)
    yield from _service_tiers(("",), usage, at_us, prices)
    yield from _sizes(usage, at_us, prices)
    yield from _service_tiers(TIERS, usage, at_us, prices)
    yield from _other_prices(usage, at_us, prices)
    yield from _parts(usage, model, at_us, prices)


def _lifetimes(usage: Usages, at_us: int, prices: Pricer) -> Iterator[Way]:
    short, hour = sum(each.cache_write_5m for each in usage), sum(each.cache_write_1h for each in usage)
    if hour:
        found = total(map(all_short, usage), at_us, prices)
        yield "cache-lifetime", f"it priced {hour:,} cache writes for an hour as for five minutes", found
    if short:
        found = total(map(all_hour, usage), at_us, prices)
        yield "cache-lifetime", f"it priced {short:,} cache writes for five minutes as for an hour", found


def _service_tiers(tiers: Iterable[str], usage: Usages, at_us: int, prices: Pricer) -> Iterator[Way]:
    for tier in tiers:
        words = f"it priced the service tier {tier}" if tier else "it priced the standard service tier"
        if any(each.tier != tier for each in usage):
            yield "tier", words, total((replace(each, tier=tier) for each in usage), at_us, prices)


def _sizes(usage: Usages, at_us: int, prices: Pricer) -> Iterator[Way]:
    def at_size(size: Callable[[Usage], int]) -> int | None:
        cards = [(each, prices.card(each.model, at_us, each.tier)) for each in usage]
        return _sum(None if card is None else cost(card, each, size(each)) for each, card in cards)

    yield "tier", "it priced no request as a long one", at_size(lambda each: 0)
    yield "tier", "it priced every request as a long one", at_size(lambda each: 10**12)
    whole = {each.model: sum(other.input for other in usage if other.model == each.model) for each in usage}
    yield "tier", "it priced all requests to a model as one", at_size(lambda each: whole[each.model])
    yield "tier", "it priced a sum of requests as one", at_size(tokens_in)


def _other_prices(usage: Usages, at_us: int, prices: Pricer) -> Iterator[Way]:
    for model in dict.fromkeys(each.model for each in usage):
        others = total((each for each in usage if each.model != model), at_us, prices)
        for card in prices.history(model):
            mine = _sum(cost(card, each) for each in usage if each.model == model)
            found = None if mine is None or others is None else mine + others
            yield "promotion", f"it went by another price of {model}: listed, or of another day", found


def _parts(usage: Usages, model: str, at_us: int, prices: Pricer) -> Iterator[Way]:
    parts = [part for part in dict.fromkeys(each.part for each in usage) if part]
    if parts:
        yield "sub-agent", "it left out its sub-agents", total(_without(usage, "part", parts), at_us, prices)
        for part in parts if len(parts) > 1 else ():
            rest = _without(usage, "part", [part])
            yield "sub-agent", f"it left out its sub-agent {part}", total(rest, at_us, prices)
    models = tuple(dict.fromkeys(each.model for each in usage))
    if len(models) > 1:
        others = [each for each in models if bare(each) != bare(model)]
        yield "sub-agent", f"it counted {model} alone", total(_without(usage, "model", others), at_us, prices)
        for other in models:
            yield "sub-agent", f"it left out {other}", total(_without(usage, "model", [other]), at_us, prices)


def _without(usage: Usages, field: Literal["part", "model"], values: Collection[str]) -> Usages:
    return tuple(each for each in usage if getattr(each, field) not in values)


def total(usage: Iterable[Usage], at_us: int, prices: Pricer) -> int | None:
    """Of all entries; None where one has no price."""
    return _sum(prices.entry(each, at_us) for each in usage)


def _sum(amounts: Iterable[int | None]) -> int | None:
    found = 0
    for amount in amounts:
        if amount is None:
            return None
        found += amount
    return found
