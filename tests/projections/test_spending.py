"""What counts of the last 24 hours, whatever the record holds and whatever the clock does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mz_projections.run.spending import DAY_US, Amount, SpendingEntry, day_spending, free_at_us, total

NOW = 10 * DAY_US


def entry(at_us: int, key: str = "k", *, nanousd: int = 5, tokens: int = 0, charged: bool = True) -> SpendingEntry:
    return SpendingEntry(at_us=at_us, key=key, charged=charged, nanousd=nanousd, tokens=tokens)


ENTRIES = st.lists(
    st.builds(
        SpendingEntry,
        at_us=st.integers(NOW - 2 * DAY_US, NOW + DAY_US),
        key=st.sampled_from("abcd"),
        charged=st.booleans(),
        nanousd=st.integers(0, 100),
        tokens=st.integers(0, 100),
    )
)


def test_a_charge_replaces_its_reservation_whichever_is_read_first() -> None:
    reserved, charged = entry(NOW, nanousd=9, charged=False), entry(NOW, nanousd=2)
    for order in ((reserved, charged), (charged, reserved)):
        assert total(day_spending(order, NOW)) == Amount(nanousd=2)
    assert total(day_spending([reserved], NOW)) == Amount(nanousd=9)


def test_a_day_ends_after_24_hours_and_the_next_day_counts() -> None:
    assert day_spending([entry(NOW - DAY_US)], NOW) == ()
    assert day_spending([entry(NOW - DAY_US + 1)], NOW)
    assert day_spending([entry(NOW)], NOW - DAY_US), "the clock went back"
    assert day_spending([entry(NOW)], NOW - DAY_US - 1) == (), "the clock was wrong"
    reserved = entry(NOW, nanousd=9, charged=False)
    assert day_spending([reserved, entry(NOW + 400 * DAY_US)], NOW) == (reserved,), "its charge is of a wrong clock"


def test_when_enough_is_free_again() -> None:
    day = day_spending([entry(NOW - 3, "a", nanousd=5), entry(NOW - 2, "b", nanousd=3), entry(NOW - 1, "c")], NOW)
    assert free_at_us(day, "nanousd", 8) == NOW - 3 + DAY_US
    assert free_at_us(day, "nanousd", 5) == NOW - 2 + DAY_US
    assert free_at_us(day, "nanousd", 0) == NOW - 1 + DAY_US
    assert free_at_us(day, "nanousd", -1) is None, "a call that is larger than the budget never fits"


@given(ENTRIES, st.randoms())
def test_the_order_of_the_lines_means_nothing(entries: list[SpendingEntry], random: st.randoms) -> None:  # type: ignore[valid-type]
    shuffled = list(entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert total(day_spending(entries, NOW)) == total(day_spending(shuffled, NOW))


@given(ENTRIES, st.integers(0, DAY_US))
def test_a_clock_that_goes_back_a_day_frees_nothing(entries: list[SpendingEntry], back_us: int) -> None:
    entries = [entry for entry in entries if entry.at_us <= NOW]
    before, after = total(day_spending(entries, NOW)), total(day_spending(entries, NOW - back_us))
    assert after.nanousd >= before.nanousd
    assert after.tokens >= before.tokens


@given(ENTRIES, st.integers(0, 400))
def test_it_is_free_when_it_is_said_to_be(entries: list[SpendingEntry], room: int) -> None:
    day = day_spending(entries, NOW)
    until_us = free_at_us(day, "nanousd", room)
    if day:
        assert until_us is not None
        assert total(day_spending(entries, until_us)).nanousd <= room
