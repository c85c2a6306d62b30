"""What budgets count: every combination of what is known of a call."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace
from mz_engine.effects.steps import SettleCall
from mz_engine.ports import ParsedReply, Price
from mz_engine.pricing.budget_charge import final_charge, known_cost, known_tokens, may_be_higher
from mz_events.catalog.call import Problem, ProblemClass, Usage
from mz_projections.run.spending import Amount

RESERVED = 100
USED = (Usage(model="m", input=1, output=1),)


def reading(
    reported: int | None, used: bool, terminal: Literal["success", "error", "no-terminal"],
    kind: ProblemClass | None = None,
) -> ParsedReply:  # fmt: skip
    return ParsedReply(
        parser="a/1", ending=terminal, text="", session=None, usage=USED if used else (), reported_nanousd=reported,
        problem=Problem(kind=kind, code="x") if kind else None, problem_detail="", undecodable_lines=0, version="",
    )  # fmt: skip


def charge(parsed_reply: ParsedReply, price: Price) -> int:
    return final_charge(known_cost(parsed_reply, price), may_be_higher(parsed_reply, price), RESERVED)


@pytest.mark.parametrize("terminal", ["success", "error", "no-terminal"])
@pytest.mark.parametrize("computed", [None, 40, 70])
@pytest.mark.parametrize("reported", [None, 0, 50, 200])
@pytest.mark.parametrize("used", [True, False])
def test_the_worst_of_what_is_known(
    terminal: Literal["success", "error", "no-terminal"], computed: int | None, reported: int | None, used: bool
) -> None:
    reply = reading(reported, used, terminal)
    price = Price(nanousd=computed if used else 0, unpriced=(), prices="")
    settled = charge(reply, price)
    amounts = [amount for amount in (reported, computed if used else None) if amount is not None]
    ended = terminal != "no-terminal"
    silent = terminal == "success" and not used and not reported
    sure = ended and not silent and not (used and computed is None and not reported)
    assert settled == (max(amounts) if amounts and sure else max([RESERVED, *amounts]))


@pytest.mark.parametrize(
    ("kind", "settled"),
    [(ProblemClass.TRANSIENT, 0), (ProblemClass.FATAL, 0), (ProblemClass.PHASE, RESERVED), (None, RESERVED)],
)
def test_a_call_that_was_refused_took_nothing(kind: ProblemClass | None, settled: int) -> None:
    """A rate limit must not eat the budget; a failure in the middle of the work may have cost all of it."""
    reply = reading(None, False, "error", kind)
    price = Price(nanousd=0, unpriced=(), prices="")
    assert charge(reply, price) == settled


@pytest.mark.parametrize("kind", list(ProblemClass))
@pytest.mark.parametrize("used", [True, False])
def test_work_of_which_no_tokens_were_told_keeps_its_reservation(kind: ProblemClass, used: bool) -> None:
    """It broke off in the middle: what was told, if anything, is not all."""
    reply = replace(reading(None, used, "error", kind), usage_incomplete=True)
    price = Price(nanousd=40 if used else 0, unpriced=(), prices="")
    assert charge(reply, price) == RESERVED


@pytest.mark.parametrize(("reported", "settled"), [(None, RESERVED), (50, 50)])
def test_a_sum_that_may_be_priced_too_low_keeps_its_reservation(reported: int | None, settled: int) -> None:
    """Unless the agent says itself what it took."""
    reply, price = (reading(reported, True, "success"), Price(nanousd=40, unpriced=(), prices="", may_be_higher=True))
    assert charge(reply, price) == settled


NO_PRICE = Price(nanousd=None, unpriced=("m",), prices="")


@pytest.mark.parametrize("ending", ["success", "error", "no-terminal"])
@pytest.mark.parametrize("used", [True, False])
def test_a_negative_bill_gives_nothing_back(ending: Literal["success", "error", "no-terminal"], used: bool) -> None:
    assert charge(reading(-(10**12), used, ending), NO_PRICE) == RESERVED
    assert charge(reading(-5, True, ending), Price(nanousd=-7, unpriced=(), prices="")) == RESERVED
    negative = replace(reading(None, False, ending), usage=(Usage(model="m", input=-5, output=-5),))
    assert known_tokens(negative) is None


def test_tokens_of_a_call() -> None:
    many = replace(reading(None, True, "success"), usage=(Usage(model="m", input=90, output=9, cache_read=50),) * 2)
    assert known_tokens(many) == 198
    assert known_tokens(reading(None, False, "success")) is None, "a success without tokens is not free"
    assert known_tokens(reading(None, False, "error", ProblemClass.TRANSIENT)) == 0
    assert known_tokens(reading(None, False, "no-terminal", ProblemClass.TRANSIENT)) is None
    killed = SettleCall("k", 5, (), True, 7, True)
    assert killed.charge(Amount(nanousd=50, tokens=6)) == Amount(nanousd=50, tokens=7)
    assert SettleCall("k", None, (), False, None).charge(Amount(nanousd=50, tokens=6)) == Amount(nanousd=50, tokens=6)


def test_a_refusal_that_was_cut_off_may_have_cost_something() -> None:
    reply = reading(None, False, "no-terminal", ProblemClass.TRANSIENT)
    assert known_cost(reply, Price(nanousd=0, unpriced=(), prices="")) is None
