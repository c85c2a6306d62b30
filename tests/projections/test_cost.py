"""What calls cost: by every account, unknown never zero."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentLost,
    AgentReplied,
    AgentRequested,
    CallPriced,
    CallRef,
    CallSettled,
    ReplyParsed,
    Usage,
)
from mz_events.names import feature_stream
from mz_events.store import Recorded
from mz_projections.cost.totals import Totals, totals
from mz_projections.feature.calls import paid_calls

from tests.projections.logs import feature_events
from tests.support.examples import examples
from tests.support.samples import sample

STREAM = feature_stream("r", "login")
REF = replace(sample(CallRef), key="k1")
REQUEST = replace(sample(AgentRequested), ref=REF, estimated_nanousd=70)
READ = replace(sample(ReplyParsed), ref=REF, reported_nanousd=55, usage=(
    Usage(model="big", input=100, output=20, cache_read=50, cache_write_5m=5, cache_write_1h=7),
    Usage(model="small", input=10, output=2),
))  # fmt: skip
PRICED = CallPriced(key="k1", computed_nanousd=60)
SETTLED = CallSettled(feature=REQUEST.ref.key, key="k1", nanousd=61)  # type: ignore[arg-type]
UNKNOWN = Totals(1, 1, 0, *[None] * 11)


def recorded(events: Iterable[Event]) -> list[Recorded[Event]]:
    return [Recorded(STREAM, at, at, at, at + 1000, event, "") for at, event in enumerate(events, 1)]


def test_a_call_from_request_to_settlement() -> None:
    (call,) = paid_calls(recorded([REQUEST, replace(sample(AgentReplied), ref=REF), READ, PRICED, SETTLED]))
    assert (call.run, call.feature, call.phase, call.role, call.agent, call.status, call.requested_at_us) == (
        "r", "login", "phase", "role", "agent", "replied", 1001)  # fmt: skip
    tokens = call.input_tokens, call.output_tokens, call.cache_read_tokens, call.cache_write_tokens
    assert tokens == (110, 22, 50, 12)
    assert (call.estimated_nanousd, call.reported_nanousd) == (70, 55)
    assert (call.computed_nanousd, call.charged_nanousd) == (60, 61)


def test_what_is_not_known_is_none() -> None:
    (call,) = paid_calls(recorded([replace(REQUEST, estimated_nanousd=None)]))
    assert call.status == "open"
    assert totals([call]) == UNKNOWN


def test_a_newer_reading_replaces_the_older() -> None:
    (call,) = paid_calls(recorded([REQUEST, READ, replace(READ, usage=(), reported_nanousd=None)]))
    tokens = call.input_tokens, call.output_tokens, call.cache_read_tokens, call.cache_write_tokens
    assert (*tokens, call.reported_nanousd) == (None,) * 5


def test_failed_and_lost_calls_count() -> None:
    other = replace(REF, key="k2")
    calls = paid_calls(recorded([
        REQUEST, replace(sample(AgentFailed), ref=REF),
        replace(REQUEST, ref=other), replace(sample(AgentLost), ref=other),
    ]))  # fmt: skip
    assert [call.status for call in calls] == ["failed", "lost"]
    assert totals(calls).calls == 2
    assert totals(calls).estimated_nanousd == 140


def test_totals_add_up_what_is_known_and_count_what_is_not() -> None:
    free = replace(REQUEST, ref=replace(REF, key="k2"), estimated_nanousd=None)
    result = totals(paid_calls(recorded([REQUEST, free, READ, PRICED])))
    assert result == Totals(
        calls=2,
        open_calls=2,
        unpriced_calls=0,
        duration_us=None,
        input_tokens=110,
        output_tokens=22,
        cache_read_tokens=50,
        cache_write_tokens=12,
        estimated_nanousd=70,
        reported_nanousd=55,
        computed_nanousd=60,
        charged_nanousd=None,
        difference_nanousd=-5,
        underestimate_nanousd=-10,
    )


def test_calls_that_ended_without_a_price_are_counted() -> None:
    replied = replace(sample(AgentReplied), ref=REF)
    stages: list[list[Event]] = [[REQUEST], [REQUEST, replied], [REQUEST, replied, PRICED]]
    assert [totals(paid_calls(recorded(events))).unpriced_calls for events in stages] == [0, 1, 0]


def test_what_was_refused_costs_nothing() -> None:
    """Only where something was set aside, no tokens were used, and nothing of it was kept."""
    replied = replace(sample(AgentReplied), ref=REF)
    nothing = replace(READ, usage=(), reported_nanousd=None, ending="error")
    free, unread = replace(SETTLED, nanousd=0), replace(PRICED, computed_nanousd=None)

    def actual(
        agent_requested: AgentRequested, read: ReplyParsed, priced: CallPriced, settled: CallSettled
    ) -> int | None:
        (call,) = paid_calls(recorded([agent_requested, replied, read, priced, settled]))
        assert totals([call]).unpriced_calls == (call.computed_nanousd is None)
        return call.computed_nanousd

    assert actual(REQUEST, nothing, unread, free) == 0
    assert actual(REQUEST, nothing, unread, SETTLED) is None, "lost: what was set aside counts"
    assert actual(REQUEST, READ, unread, free) is None, "tokens without a price"
    assert actual(REQUEST, replace(nothing, ending="success"), unread, free) is None, "answered, and told no tokens"
    assert actual(replace(REQUEST, estimated_nanousd=None), nothing, unread, free) is None, "nothing was set aside"


def test_a_difference_needs_both_sides() -> None:
    """Reported less computed; and what was paid less what was estimated."""

    def actual(*events: Event) -> tuple[int | None, int | None]:
        sums = totals(paid_calls(recorded(events)))
        return sums.difference_nanousd, sums.underestimate_nanousd

    free = replace(REQUEST, estimated_nanousd=None)
    assert actual(REQUEST, PRICED) == (None, -10)
    assert actual(REQUEST, READ) == (None, -15), "reported, where nobody computed"
    assert actual(REQUEST, READ, PRICED) == (-5, -10)
    assert actual(free, READ, PRICED) == (-5, None)
    assert actual(REQUEST) == (None, None)
    free_of_charge = replace(READ, usage=(), reported_nanousd=0, ending="success")
    assert actual(REQUEST, free_of_charge) == (None, None), "a subscription, whose tokens nobody counted"
    assert actual(REQUEST, replace(free_of_charge, ending="error")) == (None, -70)


def test_a_call_keeps_what_explains_its_price() -> None:
    priced = replace(PRICED, unpriced=("small",), prices="table 1")
    (call,) = paid_calls(recorded([REQUEST, replace(sample(AgentReplied), ref=REF), READ, priced]))
    assert (call.unpriced, call.prices, call.ending) == (("small",), "table 1", READ.ending)
    assert call.ended_at_us == 1002


def test_tokens_are_those_of_the_newest_reading() -> None:
    newer = replace(READ, usage=READ.usage[:1])
    assert [call.usage for call in paid_calls(recorded([REQUEST, READ]))] == [READ.usage]
    assert [call.usage for call in paid_calls(recorded([REQUEST, READ, newer]))] == [READ.usage[:1]]


def test_nothing_costs_nothing_that_is_known() -> None:
    assert totals([]) == replace(UNKNOWN, calls=0, open_calls=0)


def test_events_of_calls_that_were_never_asked_for_are_left() -> None:
    assert paid_calls(recorded([READ, PRICED, SETTLED, replace(sample(AgentReplied), ref=REF)])) == ()


@examples(40)
@given(st.lists(feature_events("r", "login"), max_size=30))
@pytest.mark.slow
def test_totals_are_sums_over_any_split(events: list[Event]) -> None:
    calls = paid_calls(recorded(events))
    together = totals(calls)
    apart = [totals([call]) for call in calls]
    for name in Totals.__struct_fields__:
        amounts = [amount for part in apart if (amount := getattr(part, name)) is not None]
        counts = amounts or name in ("calls", "open_calls", "unpriced_calls")
        assert getattr(together, name) == (sum(amounts) if counts else None)
