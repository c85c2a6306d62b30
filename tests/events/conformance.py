"""The conformance kit of the ports Store and Log: what every backend must do, whatever it is built on.

A backend joins by a subclass of `StoreConformance` or `LogConformance`, named `Test...`, in a test module of its own,
whose `log` fixture yields an empty one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pytest
from mz_events.catalog.base import Event
from mz_events.catalog.feature import PhaseCompleted, PhaseStarted, UnitStarted
from mz_events.chain import GENESIS, link
from mz_events.codec import CODEC, type_of
from mz_events.names import StreamId, feature_stream, inbox_stream, run_stream
from mz_events.store import Append, Log, Recorded, Store, VersionConflict

from tests.support.samples import samples

FIRST, OTHER, THIRD = feature_stream("r", "one"), feature_stream("r", "other"), run_stream("r2")
NOW = 1_700_000_000_000_000
POLL_SECONDS = 0.02


def unit(number: int) -> Event:
    """Events that tell one another apart."""
    return UnitStarted(phase="code", unit=f"u{number}", iteration=1)


def units(count: int, first: int = 1) -> tuple[Event, ...]:
    return tuple(unit(number) for number in range(first, first + count))


def events_of(recorded: Iterable[Recorded[Event]]) -> list[Event]:
    return [item.event for item in recorded]


def follow(log: Log, after: int, keep_polling: Callable[[], bool]) -> Iterator[Recorded[Event]]:
    """Yield the events after a position as they are appended, the last ones once `keep_polling()` is false."""
    is_last = False
    while not is_last:
        is_last = not keep_polling()  # Asked before reading, so that nothing appended before the answer is missed.
        for recorded in log.read_all(after):
            after = recorded.position
            yield recorded
        time.sleep(POLL_SECONDS)


class StoreConformance:
    def test_an_empty_log_has_nothing(self, log: Store) -> None:
        assert list(log.read(FIRST)) == list(log.read_all()) == []
        assert log.streams() == ()

    def test_what_is_appended_is_read_with_its_place(self, log: Store) -> None:
        recorded = log.append([Append(FIRST, 0, units(2), causation="run/r@4")], NOW)
        assert tuple(log.read(FIRST)) == tuple(log.read_all()) == recorded
        first, second = recorded
        assert (first.stream, first.version, first.position, first.causation) == (FIRST, 1, 1, "run/r@4")
        assert (second.stream, second.version, second.position, second.event_ref) == (FIRST, 2, 2, "run/r/one@2")
        assert (first.recorded_at_us, first.observed_at_us, first.event) == (NOW, NOW, unit(1))

    def test_every_event_type_comes_back(self, log: Store) -> None:
        log.append([Append(FIRST, 0, samples())], NOW)
        assert events_of(log.read(FIRST)) == list(samples())

    def test_several_streams_in_one_append(self, log: Store) -> None:
        recorded = log.append(
            [Append(FIRST, 0, units(2)), Append(OTHER, 0, units(1)), Append(FIRST, 2, units(1, 9))], NOW
        )
        assert [entry.event_ref for entry in recorded] == ["run/r/one@1", "run/r/one@2", "run/r/other@1", "run/r/one@3"]
        assert [item.position for item in recorded] == [1, 2, 3, 4]
        assert events_of(log.read(FIRST)) == [unit(1), unit(2), unit(9)]

    def test_a_wrong_version_is_refused_and_nothing_is_kept(self, log: Store) -> None:
        log.append([Append(FIRST, 0, units(2))], NOW)
        with pytest.raises(VersionConflict) as caught:
            log.append([Append(OTHER, 0, units(1)), Append(FIRST, 1, units(1))], NOW)
        assert (caught.value.stream, caught.value.expected, caught.value.actual) == (FIRST, 1, 2)
        assert log.streams() == ((FIRST, 2),)
        assert len(list(log.read_all())) == 2

    @pytest.mark.parametrize("expected", [1, 7])
    def test_a_stream_that_does_not_exist_has_version_0(self, log: Store, expected: int) -> None:
        with pytest.raises(VersionConflict):
            log.append([Append(FIRST, expected, units(1))], NOW)
        assert log.streams() == ()

    def test_a_stream_that_must_not_exist(self, log: Store) -> None:
        log.append([Append(FIRST, 0, units(1))], NOW)
        with pytest.raises(VersionConflict):
            log.append([Append(FIRST, 0, units(1))], NOW)

    def test_versions_within_one_append_build_on_each_other(self, log: Store) -> None:
        with pytest.raises(VersionConflict):
            log.append([Append(FIRST, 0, units(1)), Append(FIRST, 0, units(1))], NOW)
        assert list(log.read_all()) == []

    def test_whatever_version_it_has(self, log: Store) -> None:
        inbox = inbox_stream("r")
        for number in (1, 2, 3):
            log.append([Append(inbox, None, units(1, number))], NOW)
        assert events_of(log.read(inbox)) == list(units(3))

    def test_nothing_to_append_is_fine_and_still_checks_the_version(self, log: Store) -> None:
        assert log.append([], NOW) == ()
        assert log.append([Append(FIRST, 0, ())], NOW) == ()
        with pytest.raises(VersionConflict):
            log.append([Append(FIRST, 1, ())], NOW)
        assert log.streams() == ()

    def test_a_clock_that_goes_back_is_not_followed(self, log: Store) -> None:
        log.append([Append(FIRST, 0, units(1))], NOW)
        log.append([Append(OTHER, 0, units(1)), Append(FIRST, 1, units(1))], NOW - 5)
        log.append([Append(FIRST, 2, units(1))], NOW + 1)
        actual = [(item.recorded_at_us, item.observed_at_us) for item in log.read(FIRST)]
        assert actual == [(NOW, NOW), (NOW, NOW - 5), (NOW + 1, NOW + 1)]
        assert [recorded.recorded_at_us for recorded in log.read(OTHER)] == [NOW - 5]

    def test_reading_from_within(self, log: Store) -> None:
        log.append([Append(FIRST, 0, units(3)), Append(OTHER, 0, units(3))], NOW)
        assert [recorded.version for recorded in log.read(FIRST, after=1)] == [2, 3]
        assert [item.position for item in log.read_all(after=2)] == [3, 4, 5, 6]
        assert list(log.read(FIRST, after=3)) == list(log.read_all(after=6)) == list(log.read_all(after=99)) == []

    @pytest.mark.parametrize(
        ("limit", "positions"), [(0, []), (1, [2]), (2, [2, 3]), (9, [2, 3, 4]), (None, [2, 3, 4])]
    )
    def test_a_limit(self, log: Store, limit: int | None, positions: list[int]) -> None:
        log.append([Append(FIRST, 0, units(4))], NOW)
        assert [recorded.position for recorded in log.read_all(after=1, limit=limit)] == positions

    def test_more_than_a_page(self, log: Store) -> None:
        count = 2345
        log.append([Append(FIRST, 0, units(count))], NOW)
        assert [entry.version for entry in log.read(FIRST)] == list(range(1, count + 1))
        assert [item.position for item in log.read_all(after=1)] == list(range(2, count + 1))
        assert [recorded.position for recorded in log.read_all(limit=1500)] == list(range(1, 1501))

    def test_streams_by_prefix(self, log: Store) -> None:
        odd = StreamId("run/r/o_e%")
        log.append([Append(name, 0, units(2)) for name in (THIRD, OTHER, odd, FIRST, run_stream("R"))], NOW)
        assert log.streams("run/r/o") == ((odd, 2), (FIRST, 2), (OTHER, 2))
        assert log.streams("run/r/o_") == ((odd, 2),)
        assert [name for name, _ in log.streams("run/r")] == [odd, FIRST, OTHER, THIRD]
        assert [name for name, _ in log.streams()] == [run_stream("R"), odd, FIRST, OTHER, THIRD]


class LogConformance(StoreConformance):
    def test_the_head_is_the_last_position(self, log: Log) -> None:
        assert (log.head(), log.link(0), log.link(1)) == (0, None, None)
        log.append([Append(FIRST, 0, units(2))], NOW)
        assert (log.head(), log.link(3)) == (2, None)

    def test_the_store_may_be_used_while_a_reading_goes_on(self, log: Log) -> None:
        log.append([Append(FIRST, 0, units(1500))], NOW)
        reading = log.read_all()
        events = list(islice(reading, 10))
        log.append([Append(FIRST, 1500, units(1, 1501))], NOW)
        events += reading
        assert [recorded.position for recorded in events] == list(range(1, 1502))

    def test_by_type(self, log: Log) -> None:
        log.append(
            [Append(FIRST, 0, (unit(1), PhaseStarted(phase="p", iteration=1), unit(2), PhaseCompleted(phase="p")))], NOW
        )
        wanted = (type_of(UnitStarted), type_of(PhaseCompleted))
        assert [recorded.position for recorded in log.read_types(wanted, 0, 9)] == [1, 3, 4]
        assert [item.position for item in log.read_types(wanted, 1, 3)] == [3]
        assert list(log.read_types((), 0, 9)) == list(log.read_types(wanted, 4, 9)) == []

    def test_by_type_over_pages(self, log: Log) -> None:
        log.append([Append(FIRST, 0, units(2100))], NOW)
        actual = [recorded.position for recorded in log.read_types([type_of(UnitStarted)], 5, 2050)]
        assert actual == list(range(6, 2051))

    def test_the_chain_binds_each_event_to_the_one_before(self, log: Log) -> None:
        log.append([Append(FIRST, 0, units(2)), Append(OTHER, 0, units(1))], NOW)
        log.append([Append(FIRST, 2, units(1), causation="inbox/r@1")], NOW + 3)
        chain = GENESIS
        for recorded in log.read(FIRST):
            name, schema, payload = CODEC.encode(recorded.event)
            times = (recorded.recorded_at_us, recorded.observed_at_us)
            chain = link(chain, FIRST, recorded.version, name, schema, *times, recorded.causation, payload)
            assert log.link(recorded.position) == chain
        assert log.link(next(log.read(OTHER)).position) != log.link(next(log.read(FIRST)).position)

    def test_threads_may_share_it(self, log: Log) -> None:
        def work(number: int) -> None:
            stream = feature_stream("r", f"f{number}")
            for version in range(50):
                log.append([Append(stream, version, units(1, version)), Append(FIRST, None, units(1, number))], NOW)
                assert sum(1 for _ in log.read(stream)) == version + 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [recorded.position for recorded in log.read_all()] == list(range(1, 401))
        assert log.streams() == (*((feature_stream("r", f"f{number}"), 50) for number in range(4)), (FIRST, 200))
