"""Any sequence of appends and readings gives what a plain list would give."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.codec import type_of
from mz_events.names import StreamId
from mz_events.store import Append, Recorded, VersionConflict

from tests.support.examples import examples
from tests.support.samples import samples

STREAMS = st.sampled_from([StreamId(name) for name in ("run/r", "run/r/a", "run/r/b", "inbox/r")])
EVENTS = st.lists(st.sampled_from(samples()), max_size=4).map(tuple)
OFFSETS = st.sampled_from([0, 0, 0, None, 1, -1])


class Model:
    """What the log should be."""

    def __init__(self) -> None:
        self.entries: list[tuple[StreamId, int, int, Event]] = []
        """Stream, version, recorded_at_us, event."""

    def version(self, stream: StreamId) -> int:
        return sum(entry[0] == stream for entry in self.entries)

    def last_us(self, stream: StreamId) -> int:
        return max((entry[2] for entry in self.entries if entry[0] == stream), default=0)

    def append(self, appends: list[Append], now_us: int) -> int | None:
        """The number of events added, or None for a wrong version."""
        before = len(self.entries)
        for append in appends:
            version = self.version(append.stream)
            if append.expected not in (None, version):
                del self.entries[before:]
                return None
            at_us = max(now_us, self.last_us(append.stream))
            self.entries += [(append.stream, version + n, at_us, event) for n, event in enumerate(append.events, 1)]
        return len(self.entries) - before


def plain(recorded: Recorded[Event]) -> tuple[StreamId, int, int, Event]:
    return recorded.stream, recorded.version, recorded.recorded_at_us, recorded.event


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "mz.db"
        self.store = SqliteStore(self.path)
        self.model = Model()

    @rule(parts=st.lists(st.tuples(STREAMS, EVENTS, OFFSETS), max_size=3), now_us=st.integers(1, 1000))
    def append(self, parts: list[tuple[StreamId, tuple[Event, ...], int | None]], now_us: int) -> None:
        appends, grown = [], dict.fromkeys((stream for stream, _, _ in parts), 0)
        for stream, events, offset in parts:
            expected = None if offset is None else max(0, self.model.version(stream) + grown[stream] + offset)
            appends.append(Append(stream, expected, events))
            grown[stream] += len(events)
        before = len(self.model.entries)
        if self.model.append(appends, now_us) is None:
            with pytest.raises(VersionConflict):
                self.store.append(appends, now_us)
        else:
            recorded = self.store.append(appends, now_us)
            assert [plain(item) for item in recorded] == self.model.entries[before:]
            assert {entry.observed_at_us for entry in recorded} <= {now_us}

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = SqliteStore(self.path)

    @rule(stream=STREAMS, after=st.integers(0, 8))
    def read(self, stream: StreamId, after: int) -> None:
        expected = [entry for entry in self.model.entries if entry[0] == stream and entry[1] > after]
        assert [plain(recorded) for recorded in self.store.read(stream, after)] == expected

    @rule(after=st.integers(0, 12), limit=st.none() | st.integers(0, 5))
    def read_all(self, after: int, limit: int | None) -> None:
        expected = self.model.entries[after:][:limit]
        assert [plain(recorded) for recorded in self.store.read_all(after, limit)] == expected

    @rule(event=st.sampled_from(samples()), after=st.integers(0, 5), offset_end=st.integers(0, 12))
    def read_types(self, event: Event, after: int, offset_end: int) -> None:
        expected = [entry for entry in self.model.entries[after:offset_end] if type(entry[3]) is type(event)]
        assert [plain(recorded) for recorded in self.store.read_types([type_of(event)], after, offset_end)] == expected

    @invariant()
    def full(self) -> None:
        entries = self.model.entries
        assert self.store.head() == len(entries)
        assert self.store.streams_by_age("") == tuple(dict.fromkeys(entry[0] for entry in entries))
        assert dict(self.store.streams()) == {entry[0]: self.model.version(entry[0]) for entry in entries}
        assert self.store.verify() == ()

    def teardown(self) -> None:
        self.store.close()
        self.directory.cleanup()


LogMachine.TestCase.settings = examples(25, stateful_step_count=15)
TestLogMachine = pytest.mark.slow(LogMachine.TestCase)
