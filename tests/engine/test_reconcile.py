"""Why what agents report is not what their tokens come to."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_engine.decoding.yaml import load_yaml
from mz_engine.pricing.mismatch import (
    NEVER_BEGAN,
    TOLERANCE_NANOUSD,
    CountingRules,
    explain_mismatch,
    is_within_tolerance,
)
from mz_engine.pricing.table import GenaiPrices
from mz_events.catalog.call import Usage
from mz_projections.cost.totals import CAUSE_CODES, CauseCode
from mz_projections.feature.calls import Call

from tests.support.examples import examples
from tests.support.tree import ROOT

PRICES = GenaiPrices()
AT_US = int(datetime(2026, 6, 1, tzinfo=UTC).timestamp()) * 1_000_000


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    model: str
    usage: tuple[Usage, ...]
    reported: str | None
    why: CauseCode
    detail: str = ""
    terminal: str = "success"


CASES = msgspec.convert(
    load_yaml((ROOT / "tests" / "cases" / "prices" / "reconciled.yaml").read_text("utf-8")), list[Case]
)


def call(case: Case) -> Call:
    price = PRICES.price(case.usage, AT_US)
    return Call(
        key="key", run="r", feature="f", phase="code", unit="", iteration=1, attempt=1, role="builder",
        agent="an-agent", model=case.model, requested_at_us=AT_US, estimated_tokens=0, estimated_nanousd=None,
        status="replied", usage=case.usage,
        reported_nanousd=None if case.reported is None else int(Decimal(case.reported).scaleb(9)),
        computed_nanousd=price.nanousd if case.usage else None, ended_at_us=AT_US, ending=case.terminal,
        unpriced=price.unpriced,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reasons(case: Case) -> None:
    why, detail = explain_mismatch(call(case), case.usage, PRICES)
    assert why == case.why
    assert case.detail in detail


def test_every_reason_has_a_case() -> None:
    assert {case.why for case in CASES} == set(CAUSE_CODES)


@pytest.mark.parametrize("outcome", ["failed", "lost"])
def test_calls_that_we_ended_were_killed(outcome: str) -> None:
    ended = replace(call(CASES[-1]), status=outcome, reported_nanousd=None, ending="")
    assert explain_mismatch(ended, (), PRICES)[0] == "killed"


@pytest.mark.parametrize(
    ("model", "why", "summary"),
    [("claude-opus-4-6", "killed", "a subscription"), ("a-model-of-ones-own", "unknown", "no price for")],
)
def test_an_error_that_says_zero_may_be_of_an_agent_that_counts_no_money(model: str, why: str, summary: str) -> None:
    """Such as a turn limit: the agent did speak."""
    used = (Usage(model=model, input=10_000, output=5, requests=1),)
    case = Case("turns", model, used, "0.00", "unknown", terminal="error")
    assert explain_mismatch(call(case), used, PRICES)[0] == why
    assert summary in explain_mismatch(call(case), used, PRICES)[1]


def test_a_model_without_a_price_is_said_also_of_a_call_that_we_ended() -> None:
    used = (Usage(model="a-model-of-ones-own", input=10_000, output=5, requests=1),)
    case = Case("ended", "a-model-of-ones-own", used, "0.01", "unknown")
    ended = replace(call(case), status="failed")
    assert explain_mismatch(ended, used, PRICES) == ("unknown", "no price for a-model-of-ones-own")
    silent = replace(ended, reported_nanousd=None)
    assert explain_mismatch(silent, used, PRICES)[0] == "killed"


def test_a_call_that_never_began_was_not_killed() -> None:
    never = replace(
        call(CASES[0]), status="failed", ending="no-terminal", usage=(), reported_nanousd=None,
        computed_nanousd=0, estimated_nanousd=5, charged_nanousd=0,
    )  # fmt: skip
    assert explain_mismatch(never, (), PRICES) == ("unknown", NEVER_BEGAN)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("the main conversation alone", "sub-agent"),
        ("nothing explains it", "killed"),
        ("a call that ended well and says that it cost nothing", "killed"),
        (next(item.name for item in CASES if item.why == "match"), "match"),
    ],
)
def test_a_failed_call_that_said_what_it_cost_is_explained_first(name: str, why: str) -> None:
    """Its end may have come after the last word of the agent."""
    case = next(item for item in CASES if item.name == name)
    failed = replace(call(case), status="failed")
    assert explain_mismatch(failed, case.usage, PRICES)[0] == why


def test_another_table_is_a_reason() -> None:
    """The call was priced by a table that was wrong, and today's says what the agent said."""
    case = next(item for item in CASES if item.why == "match")
    why, detail = explain_mismatch(replace(call(case), computed_nanousd=1), case.usage, PRICES)
    assert (why, "today's" in detail) == ("promotion", True)


@examples(60)
@given(
    st.lists(
        st.builds(
            Usage, model=st.sampled_from(["claude-opus-4-6", "claude-haiku-4-5", "gpt-5.5", "nobody"]),
            input=st.integers(0, 500_000), output=st.integers(0, 10_000), cache_read=st.integers(0, 100_000),
            cache_write_5m=st.integers(0, 100_000), cache_write_1h=st.integers(0, 100_000),
            requests=st.sampled_from([None, 1, 7]), tier=st.sampled_from(["", "batch", "odd"]),
            subagent=st.sampled_from(["", "a", "b"]),
        ),
        max_size=4,
    ).map(tuple),
    st.none() | st.integers(0, 10**11),
)  # fmt: skip
def test_it_is_total_and_never_calls_a_difference_agreement(usage: tuple[Usage, ...], reported: int | None) -> None:
    case = Case("any", "claude-opus-4-6", usage, None, "unknown")
    made = replace(call(case), reported_nanousd=reported)
    why, _ = explain_mismatch(made, usage, PRICES)
    close = (
        reported is not None
        and made.computed_nanousd is not None
        and is_within_tolerance(reported, made.computed_nanousd)
    )
    assert (why == "match") == close


def test_the_tolerance_is_a_millionth_of_a_dollar() -> None:
    assert is_within_tolerance(10**9, 10**9 + TOLERANCE_NANOUSD)
    assert not is_within_tolerance(10**9, 10**9 - TOLERANCE_NANOUSD - 1)


def test_a_call_of_many_sub_agents_tries_few_pairs() -> None:
    usage = tuple(
        Usage(
            model="claude-opus-4-6", input=10_000, output=at, cache_write_1h=1_000, requests=1, subagent=f"agent-{at}"
        )
        for at in range(200)
    )
    assert 0 < len(list(CountingRules(usage, "claude-opus-4-6", AT_US, PRICES).pair_costs())) < 20
