"""Rows of imported sessions are sums of what the events say, however they were reached and wherever they are kept."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import Usage
from mz_events.catalog.imported import (
    ImportedFileRead,
    ImportedPriced,
    ImportedRequest,
    ImportedSessionFound,
    ImportedTotalsReconciled,
    PricedSum,
)
from mz_events.names import Digest, StreamId
from mz_events.store import Append
from mz_projections.imported.model import CountedRequest, QuarterSum, count_session, quarter_start_s
from mz_projections.imported.store import ImportedStore

from tests.support.examples import examples
from tests.support.samples import sample

NOW = 1_700_000_000_000_000
A, B = StreamId("session/claude-code/a"), StreamId("session/claude-code/b")
US = 1_000_000
Entry = tuple[StreamId, Event]

usages = st.builds(
    Usage, model=st.sampled_from(["m", "n"]), input=st.integers(0, 99), output=st.integers(0, 99),
    cache_read=st.integers(0, 9), subagent=st.sampled_from(["", "sub"]),
)  # fmt: skip
requests = st.builds(
    ImportedRequest, key=st.integers(0, 5).map("{:032x}".format), at_us=st.integers(0, 4000 * US), usage=usages,
    reported_nanousd=st.none() | st.integers(0, 9), session=st.sampled_from([StreamId(""), A, B]),
    before=st.none() | usages, before_nanousd=st.none() | st.integers(0, 9),
    before_at_us=st.none() | st.integers(0, 4000 * US),
)  # fmt: skip
priced = st.builds(
    PricedSum, session=st.sampled_from([StreamId(""), A]), start_s=st.sampled_from([0, 900]), model=st.just("m"),
    subagent=st.just(""), nanousd=st.integers(-99, 99), unpriced=st.integers(-1, 1),
)  # fmt: skip
events = st.one_of(
    st.lists(requests, max_size=4).map(lambda some: replace(sample(ImportedFileRead), requests=tuple(some))),
    st.lists(requests, max_size=2).map(lambda some: ImportedTotalsReconciled(requests=tuple(some))),
    st.lists(priced, max_size=3).map(lambda some: ImportedPriced(sums=tuple(some))),
    st.just(sample(ImportedSessionFound)),
)
logs = st.lists(st.tuples(st.sampled_from([A, B]), events), max_size=12)


def by_hand(entries: Iterable[Entry]) -> dict[tuple[str, int, str, str], list[int]]:
    """Requests, tokens in and out, money: as a person would add them up."""
    result: dict[tuple[str, int, str, str], list[int]] = defaultdict(lambda: [0] * 5)

    def add(stream: str, usage: Usage, at_us: int, sign: int) -> None:
        row = result[stream, at_us // US // 900 * 900, usage.model, usage.subagent]
        count = int(usage.input + usage.output > 0)
        for index, number in enumerate((count, usage.input, usage.output)):
            row[index] += sign * number

    for stream, event in entries:
        if isinstance(event, ImportedFileRead | ImportedTotalsReconciled):
            for request in event.requests:
                add(request.session or stream, request.usage, request.at_us, 1)
                if request.before is not None:
                    at_us = request.at_us if request.before_at_us is None else request.before_at_us
                    add(request.session or stream, request.before, at_us, -1)
        elif isinstance(event, ImportedPriced):
            for priced_sum in event.sums:
                row = result[priced_sum.session or stream, priced_sum.start_s, priced_sum.model, priced_sum.subagent]
                row[3] += priced_sum.nanousd
                row[4] += priced_sum.unpriced
    return result


def sums_by_key(rows: Iterable[QuarterSum]) -> dict[tuple[str, int, str, str], list[int]]:
    return {
        (row.session, row.start_s, row.model, row.subagent):
        [row.requests, row.input, row.output, row.computed_nanousd, row.unpriced] for row in rows
    }  # fmt: skip


@examples(25)
@given(entries=logs, cut=st.integers(0, 12), page=st.sampled_from([1, 3, 1000]))
@pytest.mark.slow
def test_rows_are_what_the_events_add_up_to(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Entry], cut: int, page: int
) -> None:
    path = tmp_path_factory.mktemp("imported")
    with (
        SqliteStore(path / "mz.db") as log,
        ImportedStore(path / "views", log, page) as steps,
        ImportedStore(None, log, page) as handed,
        ImportedStore(None, log) as memory,
    ):
        for part in (entries[:cut], entries[cut:], entries):
            appended = log.append([Append(stream, None, (event,)) for stream, event in part], NOW)
            steps.refresh()
            if len(part) % 3:
                handed.refresh(appended)
        for views in (steps, handed, memory):
            views.refresh()
        assert sums_by_key(memory.sums()) == by_hand([*entries, *entries])
        assert everything(steps) == everything(handed) == everything(memory)


def everything(views: ImportedStore) -> list[object]:
    keys = [f"{number:032x}" for number in range(6)]
    rows = (
        views.sums(),
        views.sessions(),
        views.files(),
        views.times(None).items(),
        views.counted_requests(keys).items(),
    )
    return [sorted(map(repr, row)) for row in rows]


def filled(log: SqliteStore) -> None:
    request = ImportedRequest(key="0" * 32, at_us=5, usage=Usage(model="m", input=3, output=4), reported_nanousd=7)
    log.append([Append(A, 0, (replace(sample(ImportedFileRead), requests=(request,)),))], NOW)


def test_a_request_is_found_by_its_key(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "mz.db") as log, ImportedStore(tmp_path / "views", log) as views:
        filled(log)
        views.refresh()
        result = views.counted_requests([f"{number:032x}" for number in range(1500)])
    assert list(result) == ["0" * 32]
    counted_request = result["0" * 32]
    assert (counted_request.session, counted_request.at_us, counted_request.dated) == (A, 5, True)
    assert (counted_request.usage.output, counted_request.reported_nanousd) == (4, 7)


@pytest.mark.parametrize("requests", [None, 1, 7])
def test_nothing_of_a_request_is_lost(tmp_path: Path, requests: int | None) -> None:
    counted = Usage(
        model="m[1m]", input=99, output=8, cache_read=7, cache_write_5m=6, cache_write_1h=5, reasoning=4, tier="fast",
        subagent="sub", requests=requests,
    )  # fmt: skip
    request = ImportedRequest(key="a" * 32, at_us=5, dated=False, usage=counted, session=B)
    with SqliteStore(tmp_path / "mz.db") as log, ImportedStore(tmp_path / "views", log) as views:
        views.refresh(log.append([Append(A, 0, (replace(sample(ImportedFileRead), requests=(request,)),))], NOW))
        assert views.counted_requests(["a" * 32]) == {"a" * 32: CountedRequest("a" * 32, B, 5, False, counted, None)}
        assert views.times(B) == {}


def test_times_are_of_the_session_that_is_asked_for(tmp_path: Path) -> None:
    appends = [
        Append(stream, 0, (replace(sample(ImportedFileRead), requests=tuple(
            ImportedRequest(key=f"{at:032x}", at_us=at, usage=Usage(model="m", input=3, output=4)) for at in times
        )),))
        for stream, times in ((A, (5, 9)), (B, (7,)))
    ]  # fmt: skip
    with SqliteStore(tmp_path / "mz.db") as log, ImportedStore(tmp_path / "views", log) as views:
        views.refresh(log.append(appends, NOW))
        assert (views.times(A), views.times(B)) == ({A: (5, 9)}, {B: (7, 7)})
        assert views.times(None) == {A: (5, 9), B: (7, 7)}
        assert views.times("session/claude-code/nobody") == {}


@pytest.mark.parametrize(
    ("reasons_by_read", "missing"),
    [
        ([("output-open",)], True), ([("output-open",), ()], False), ([("tool-requests",), ()], True),
        ([(), ("output-open",)], True), ([()], False),
    ],
)  # fmt: skip
def test_what_is_open_may_end_and_what_is_left_out_stays_so(
    tmp_path: Path, reasons_by_read: list[tuple[str, ...]], missing: bool
) -> None:
    with SqliteStore(tmp_path / "mz.db") as log, ImportedStore(tmp_path / "views", log) as views:
        for start, codes in enumerate(reasons_by_read):
            read = replace(sample(ImportedFileRead), requests=(), offset_start=start, incomplete_reasons=codes)
            views.refresh(log.append([Append(A, None, (read,))], NOW))
        assert views.incomplete_sessions() == ((A,) if missing else ())


@pytest.mark.parametrize("damage", ["garbage", "emptied", "other code", "other log"])
def test_rows_that_are_not_of_this_log_and_this_code_are_made_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "views"
    with SqliteStore(tmp_path / "mz.db") as log:
        filled(log)
        with ImportedStore(path, log) as views:
            views.refresh()
            good = list(views.sums())
        if damage == "garbage":
            path.write_bytes(b"no database " * 500)
        else:
            change = {"emptied": "DROP TABLE sum", "other code": "UPDATE cursor SET code = 'x'",
                      "other log": "UPDATE cursor SET log = 'x'"}[damage]  # fmt: skip
            with sqlite3.connect(path) as connection:
                connection.execute("UPDATE sum SET input = 99")
                connection.execute(change)
            connection.close()
        if damage == "emptied":
            log.append([Append(B, 0, (replace(sample(ImportedFileRead), requests=()),))], NOW)
        with ImportedStore(path, log) as views:
            views.refresh()
            assert list(views.sums()) == good
        assert path.exists()


def test_where_nothing_can_be_written_rows_are_made_in_memory(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "mz.db") as log, ImportedStore(tmp_path / "no/such/folder", log) as views:
        filled(log)
        views.refresh()
        assert [row.output for row in views.sums()] == [4]


@pytest.mark.parametrize("at_s", [0, 899, 900, 1_792_000_123])
def test_a_quarter_begins_where_every_zone_has_its_midnight(at_s: int) -> None:
    begun = quarter_start_s(at_s * US)
    assert begun % 900 == 0
    assert begun <= at_s < begun + 900


def test_copies_of_a_file_do_not_count_twice(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "mz.db") as log, ImportedStore(None, log) as views:
        read = replace(
            sample(ImportedFileRead), requests=(), offset_start=0, subagent="", prompts=3, lines=9, tools={"Read": 2}
        )
        longer = replace(read, file="other", prompts=4, lines=10, tools={"Read": 3})
        sub = replace(read, file="sub", subagent="agent", prompts=0, tools={"Bash": 1}, paths=Digest("0" * 64))
        log.append([Append(A, 0, (read, longer, sub))], NOW)
        views.refresh()
        counts = count_session(views.files_of(A))
    assert (counts.prompts, counts.tools) == (4, {"Bash": 1, "Read": 3})
