"""Why what agents report is not what their tokens come to."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from mz_engine.adapters.prices import GenaiPrices
from mz_engine.pricing.reconcile import TOLERANCE_NANOUSD, agrees, explain
from mz_events.catalog.call import Usage
from mz_projections.cost import CallCost
from mz_projections.spending import WHYS, Why

from tests.support.tree import ROOT

PRICES = GenaiPrices()
AT_US = int(datetime(2026, 6, 1, tzinfo=UTC).timestamp()) * 1_000_000


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    model: str
    usage: tuple[Usage, ...]
    reported: str | None
    why: Why
    detail: str = ""
    terminal: str = "success"


CASES = msgspec.convert(
    yaml.safe_load((ROOT / "tests" / "cases" / "prices" / "reconciled.yaml").read_text("utf-8")), list[Case]
)


def call(case: Case) -> CallCost:
    price = PRICES.price(case.usage, AT_US)
    return CallCost(
        "key", "r", "f", "code", "", 1, 1, "builder", "an-agent", case.model, AT_US, 0, None, "replied",
        input=sum(each.input for each in case.usage), output=sum(each.output for each in case.usage),
        reported_nanousd=None if case.reported is None else int(Decimal(case.reported).scaleb(9)),
        computed_nanousd=price.nanousd if case.usage else None, ended_at_us=AT_US, terminal=case.terminal,
        unpriced=price.unpriced,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reasons(case: Case) -> None:
    why, detail = explain(call(case), case.usage, PRICES)
    assert why == case.why
    assert case.detail in detail


def test_every_reason_has_a_case() -> None:
    assert {case.why for case in CASES} == set(WHYS)


@pytest.mark.parametrize("outcome", ["failed", "lost"])
def test_calls_that_we_ended_were_killed(outcome: str) -> None:
    ended = msgspec.structs.replace(call(CASES[-1]), outcome=outcome, reported_nanousd=None, terminal="")
    assert explain(ended, (), PRICES)[0] == "killed"


def test_a_killed_call_that_told_both_right_agrees() -> None:
    case = next(each for each in CASES if each.why == "agree")
    assert explain(msgspec.structs.replace(call(case), outcome="failed"), case.usage, PRICES)[0] == "agree"


@pytest.mark.parametrize(
    ("name", "why"), [("the main conversation alone", "sub-agent"), ("nothing explains it", "killed")]
)
def test_a_failed_call_that_said_what_it_cost_is_explained_first(name: str, why: str) -> None:
    """Its end may have come after the last word of the agent."""
    case = next(each for each in CASES if each.name == name)
    failed = msgspec.structs.replace(call(case), outcome="failed")
    assert explain(failed, case.usage, PRICES)[0] == why


def test_another_table_is_a_reason() -> None:
    """The call was priced by a table that was wrong, and today's says what the agent said."""
    case = next(each for each in CASES if each.why == "agree")
    why, detail = explain(msgspec.structs.replace(call(case), computed_nanousd=1), case.usage, PRICES)
    assert (why, "today's" in detail) == ("promotion", True)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.builds(
            Usage, model=st.sampled_from(["claude-opus-4-6", "claude-haiku-4-5", "gpt-5.5", "nobody"]),
            input=st.integers(0, 500_000), output=st.integers(0, 10_000), cache_read=st.integers(0, 100_000),
            cache_write_5m=st.integers(0, 100_000), cache_write_1h=st.integers(0, 100_000),
            requests=st.sampled_from([None, 1, 7]), tier=st.sampled_from(["", "batch", "odd"]),
            part=st.sampled_from(["", "a", "b"]),
        ),
        max_size=4,
    ).map(tuple),
    st.none() | st.integers(0, 10**11),
)  # fmt: skip
def test_it_is_total_and_never_calls_a_difference_agreement(usage: tuple[Usage, ...], reported: int | None) -> None:
    case = Case("any", "claude-opus-4-6", usage, None, "unknown")
    made = msgspec.structs.replace(call(case), reported_nanousd=reported)
    why, _ = explain(made, usage, PRICES)
    close = reported is not None and made.computed_nanousd is not None and agrees(reported, made.computed_nanousd)
    assert (why == "agree") == close


def test_the_tolerance_is_a_millionth_of_a_dollar() -> None:
    assert agrees(10**9, 10**9 + TOLERANCE_NANOUSD)
    assert not agrees(10**9, 10**9 - TOLERANCE_NANOUSD - 1)
