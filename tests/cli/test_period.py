"""Spans of time as people write them, and the days of a time zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_cli.app.period import Period, day_function, parse_period, parse_zone

BERLIN, KATHMANDU = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kathmandu")
NOW = int(datetime(2026, 6, 15, 22, 30, tzinfo=UTC).timestamp()) * 1_000_000


def moment(us: int | None) -> str:
    return (
        "" if us is None else datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="minutes").removesuffix("+00:00")
    )


@pytest.mark.parametrize(
    ("since", "until", "zone", "expected"),
    [
        ("2026-06-01", "2026-06-01", UTC, ("2026-06-01T00:00", "2026-06-02T00:00")),
        ("2026-06-01", "2026-06-01", BERLIN, ("2026-05-31T22:00", "2026-06-01T22:00")),
        ("2026-03-29", "2026-03-29", BERLIN, ("2026-03-28T23:00", "2026-03-29T22:00")),
        ("today", None, UTC, ("2026-06-15T00:00", "")),
        ("today", None, BERLIN, ("2026-06-15T22:00", "")),
        ("yesterday", "yesterday", UTC, ("2026-06-14T00:00", "2026-06-15T00:00")),
        ("7d", "36h", UTC, ("2026-06-08T22:30", "2026-06-14T10:30")),
        ("2w", "1d12h30m", UTC, ("2026-06-01T22:30", "2026-06-14T10:00")),
        ("2026-06-01T14:30", None, BERLIN, ("2026-06-01T12:30", "")),
        ("2026-06-01T14:30+00:00", None, BERLIN, ("2026-06-01T14:30", "")),
        (None, None, None, ("", "")),
    ],
)
def test_spans(since: str | None, until: str | None, zone: ZoneInfo | None, expected: tuple[str, str]) -> None:
    period = parse_period(since, until, NOW, zone)
    assert (moment(period.since_us), moment(period.until_us)) == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-13-01", "7", "d", "-7d", "7x", "2026-6-1", "99999999999w", "٣d", "9999-12-31"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(click.UsageError, match="is not a time; write"):
        parse_period(None, text, NOW, UTC)


def test_an_end_before_the_beginning() -> None:
    with pytest.raises(click.UsageError, match="'2026-06-02' is not before '2026-06-01'"):
        parse_period("2026-06-02", "2026-06-01", NOW, UTC)


def test_the_end_is_not_in_it() -> None:
    period = Period(10, 20)
    assert [period.contains(at) for at in (9, 10, 19, 20)] == [False, True, True, False]
    assert Period().contains(0)


@pytest.mark.parametrize("name", ["Europe/Nowhere", "../../etc/passwd", "/etc/localtime", "", "Europe", "a\0b"])
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(ValueError, match="there is no time zone"):
        parse_zone(name)


def test_zones() -> None:
    assert parse_zone(None) is None
    assert parse_zone("utc") is UTC
    assert parse_zone("Europe/Berlin") == BERLIN


@given(st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)), st.sampled_from([UTC, BERLIN, KATHMANDU]))
def test_days_are_those_of_the_zone(at: datetime, zone: ZoneInfo) -> None:
    """Quarters of an hour are remembered, and no zone in use has finer steps."""
    aware = at.replace(tzinfo=UTC)
    us = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert day_function(zone)(us) == aware.astimezone(zone).date()


def test_the_machines_own_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        assert day_function(None)(NOW) == date(2026, 6, 16)
    finally:
        monkeypatch.undo()
        time.tzset()
