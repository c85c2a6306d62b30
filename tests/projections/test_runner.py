"""Read models are exact: however far they were, whoever died meanwhile, wherever they are kept."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, CallRef
from mz_events.catalog.feature import FeatureDelivered
from mz_events.catalog.run import (
    FeatureOutcome,
    FeatureStopped,
    ItemAdded,
    RunFinished,
    RunHalted,
    RunIdle,
    RunResumed,
    RunStarted,
)
from mz_events.names import Digest, FeatureId, StreamId, feature_stream, run_stream
from mz_events.store import Append, Recorded, StoreUnusable
from mz_projections.feature.calls import CALLS, paid_calls
from mz_projections.memory.evidence import MEMORY
from mz_projections.read_models.model import Key, ReadModel
from mz_projections.read_models.store import ReadModelStore
from mz_projections.rewards.facts import FACTS
from mz_projections.run.delivered import DELIVERED, Delivery, latest_deliveries, text_digest
from mz_projections.views.run import RUNS

from tests.projections.logs import logs
from tests.support.examples import examples
from tests.support.mounts import in_small_filesystem
from tests.support.samples import sample

MODELS: tuple[ReadModel[Any], ...] = (DELIVERED, RUNS, CALLS, MEMORY, FACTS)
NOW = 1_700_000_000_000_000
Entries = Sequence[tuple[StreamId, Event]]


def append(store: SqliteStore, entries: Entries) -> None:
    store.append([Append(stream, None, (event,)) for stream, event in entries], NOW)


def plain(model: ReadModel[Any], events: Iterator[Recorded[Event]]) -> tuple[Any, ...]:
    """What the rows must be: the read model's own function over the whole log, in one go."""
    rows: dict[Key, Any] = {}
    for recorded in events:
        for row in model.evolve(rows.get, recorded) if isinstance(recorded.event, model.types) else ():
            rows[tuple(getattr(row, name) for name in model.key)] = row
    return tuple(rows[key] for key in sorted(rows))


def exact(views: ReadModelStore, store: SqliteStore) -> bool:
    return all(views.rows(model) == plain(model, store.read_all()) for model in MODELS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "mz.db") as opened:
        yield opened


ITEM = replace(sample(ItemAdded), feature=FeatureId("a"), source="backlog.md#a")
CALL = replace(sample(AgentRequested), ref=replace(sample(CallRef), key="k1"))
RUN, A = run_stream("r"), feature_stream("r", "a")
SMALL: Entries = [(RUN, sample(RunStarted)), (RUN, ITEM), (A, CALL), (A, sample(FeatureDelivered))]


@pytest.mark.slow
@examples(25)
@given(entries=logs, cuts=st.lists(st.integers(0, 40), max_size=4), page=st.sampled_from([1, 3, 10_000]))
def test_rebuilt_from_zero_and_step_by_step_and_in_memory_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, entries: Entries, cuts: list[int], page: int
) -> None:
    directory = tmp_path_factory.mktemp("views")
    ends = [*sorted(min(cut, len(entries)) for cut in cuts), len(entries)]
    with (
        SqliteStore(directory / "mz.db") as log,
        ReadModelStore(directory / "steps.sqlite", log, MODELS, page) as steps,
    ):
        for start, end in zip([0, *ends], ends, strict=False):
            append(log, entries[start:end])
            steps.refresh()
            assert exact(steps, log)
        with (
            ReadModelStore(directory / "whole.sqlite", log, MODELS) as read_model_store,
            ReadModelStore(None, log, MODELS, page) as memory,
        ):
            read_model_store.refresh()
            memory.refresh()
            assert exact(read_model_store, log)
            assert exact(memory, log)
            calls = [call for row in read_model_store.rows(CALLS) for call in row.calls]
            assert {*calls} == {*paid_calls(log.read_all())}


def test_what_was_taken_in_is_not_read_again(tmp_path: Path, store: SqliteStore) -> None:
    append(store, SMALL)
    with ReadModelStore(tmp_path / "views.sqlite", store, MODELS) as views:
        views.refresh()
    with ReadModelStore(tmp_path / "views.sqlite", Dying(store, at=1), MODELS) as views:
        views.refresh()
        assert exact(views, store)


class Dying:
    """A log whose reading breaks off at the n-th event."""

    def __init__(self, log: SqliteStore, at: int, code: int | None = None) -> None:
        self._log, self._left, self._code = log, at, code

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read_types(self, types: Collection[str], after: int, count: int) -> Iterator[Recorded[Event]]:
        for recorded in self._log.read_types(types, after, count):
            self._left -= 1
            if self._left == 0 and self._code is not None:
                os._exit(self._code)
            if self._left == 0:
                raise StoreUnusable("the disk is gone")
            yield recorded


@pytest.mark.parametrize("at", range(1, 12))
def test_a_reading_that_breaks_off_leaves_whole_pages(tmp_path: Path, store: SqliteStore, at: int) -> None:
    append(store, [*SMALL, (RUN, sample(RunIdle)), (A, CALL), (RUN, sample(RunResumed))])
    path = tmp_path / "views.sqlite"
    with ReadModelStore(path, Dying(store, at), MODELS, 2) as views:
        for _ in range(2):
            try:
                views.refresh()
            except StoreUnusable:
                continue
        views.refresh()
        assert exact(views, store)
        assert views.path is not None


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 4, 7])
def test_a_process_that_dies_while_it_takes_events_in(tmp_path: Path, store: SqliteStore, at: int) -> None:
    append(store, [*SMALL, *SMALL, *SMALL])
    argv = [sys.executable, "-m", "tests.projections.test_runner", str(tmp_path), str(at)]
    assert subprocess.run(argv, cwd=Path(__file__).parents[2], check=False).returncode == 9
    assert exact_on_disk(tmp_path / "views.sqlite", store)


def test_two_processes_take_each_event_in_once(tmp_path: Path, store: SqliteStore) -> None:
    path = tmp_path / "views.sqlite"
    with ReadModelStore(path, store, MODELS, 1) as read_model_store, ReadModelStore(path, store, MODELS, 2) as other:
        for entry in SMALL:
            append(store, [entry])
            read_model_store.refresh()
            other.refresh()
        assert exact(read_model_store, store)
        assert exact(other, store)


class Behind:
    """A log that has grown for another process only."""

    def __init__(self, log: SqliteStore, head: int) -> None:
        self._log, self._head = log, head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def head(self) -> int:
        return self._head


def test_a_process_that_is_behind_moves_no_cursor_back(tmp_path: Path, store: SqliteStore) -> None:
    append(store, SMALL)
    path = tmp_path / "views.sqlite"
    with ReadModelStore(path, store, MODELS) as ahead, ReadModelStore(path, Behind(store, 2), MODELS) as behind:
        ahead.refresh()
        behind.refresh()
    with ReadModelStore(path, Dying(store, at=1), MODELS) as views:
        views.refresh()
        assert exact(views, store)


def exact_on_disk(path: Path, store: SqliteStore) -> bool:
    with ReadModelStore(path, store, MODELS) as views:
        views.refresh()
        return exact(views, store) and views.path is not None


@pytest.fixture
def path(tmp_path: Path, store: SqliteStore) -> Path:
    """A file that holds the rows of SMALL."""
    append(store, SMALL)
    with ReadModelStore(tmp_path / "views.sqlite", store, MODELS) as views:
        views.refresh()
    return tmp_path / "views.sqlite"


def cursors(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE cursor SET log = 'another'",
        "UPDATE cursor SET code = 'older'",
        "UPDATE cursor SET chain = x'00'",
        "UPDATE cursor SET position = 2",
        "UPDATE cursor SET position = 99",
        "DELETE FROM cursor",
    ],
)
def test_rows_that_do_not_belong_to_this_log_and_code_are_made_anew(
    path: Path, store: SqliteStore, statement: str
) -> None:
    cursors(path, "DELETE FROM delivered")
    cursors(path, "UPDATE runs SET pipeline = 'wrong'")
    cursors(path, statement)
    assert exact_on_disk(path, store)


def test_rows_of_another_form_are_made_anew(path: Path, store: SqliteStore) -> None:
    cursors(path, "ALTER TABLE runs DROP COLUMN base")
    cursors(path, "UPDATE cursor SET code = 'older'")
    assert exact_on_disk(path, store)


def test_a_log_that_was_put_back_to_an_older_copy(tmp_path: Path) -> None:
    """The copy went on differently: same log id, same length, another past."""
    path, copy = tmp_path / "mz.db", tmp_path / "copy.db"
    with SqliteStore(path) as store:
        append(store, SMALL[:2])
    copy.write_bytes(path.read_bytes())
    with SqliteStore(path) as store, ReadModelStore(tmp_path / "views.sqlite", store, MODELS) as views:
        append(store, SMALL[2:])
        views.refresh()
    with SqliteStore(copy) as store, ReadModelStore(tmp_path / "views.sqlite", store, MODELS) as views:
        append(store, [(RUN, sample(RunIdle)), (RUN, sample(RunResumed))])
        views.refresh()
        assert exact(views, store)
        assert views.rows(CALLS) == ()


@pytest.mark.parametrize("damage", [b"", b"not a database at all" * 300, None])
def test_a_damaged_file_is_replaced(path: Path, store: SqliteStore, damage: bytes | None) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xaa" * (len(data) - 4096) if damage is None else damage)
    assert exact_on_disk(path, store)


def test_a_file_that_is_locked_is_left_and_memory_used(tmp_path: Path, store: SqliteStore) -> None:
    append(store, SMALL)
    path = tmp_path / "views.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with ReadModelStore(path, store, MODELS, busy_seconds=0.05) as views:
            views.refresh()
            assert exact(views, store)
            assert views.path is None
            append(store, [(RUN, sample(RunIdle))])
            views.refresh()
            assert exact(views, store)


def test_a_place_that_cannot_be_written(tmp_path: Path, store: SqliteStore) -> None:
    append(store, SMALL)
    with ReadModelStore(tmp_path / "nowhere" / "views.sqlite", store, MODELS) as views:
        views.refresh()
        assert exact(views, store)
        assert views.path is None


@pytest.mark.slow
@pytest.mark.parametrize("what", ["read-only", "full"])
def test_a_disk_that_cannot_take_it(tmp_path: Path, what: str) -> None:
    done = in_small_filesystem(tmp_path / "small", "1m", [sys.executable, "-m", "tests.projections.small_disk", what])
    assert done.returncode == 0, done.stdout + done.stderr


# the read models themselves ------------------------------------------------------------------------------------------
def rows(store: SqliteStore, model: ReadModel[Any], entries: Entries) -> tuple[Any, ...]:
    append(store, entries)
    with ReadModelStore(None, store, [model]) as views:
        views.refresh()
        return views.rows(model)


def test_an_item_is_delivered_by_the_event_that_says_so(store: SqliteStore) -> None:
    (row,) = rows(store, DELIVERED, SMALL)
    text = text_digest(ITEM.title, ITEM.body)
    assert row == Delivery("r", "a", "backlog.md#a", text, "run/r/a@2", 4, sample(FeatureDelivered).head)
    assert latest_deliveries([row]) == {"backlog.md#a": row}


def test_an_item_that_was_not_delivered_may_be_done_again(store: SqliteStore) -> None:
    assert latest_deliveries(rows(store, DELIVERED, SMALL[:3])) == {}


def test_the_newest_delivery_of_a_source_counts(store: SqliteStore) -> None:
    second = run_stream("0-sorted-first")
    again = replace(ITEM, body=Digest("0" * 64))
    deliveries = latest_deliveries(rows(store, DELIVERED, [
        *SMALL, (second, again), (feature_stream("0-sorted-first", "a"), sample(FeatureDelivered))
    ]))  # fmt: skip
    assert deliveries["backlog.md#a"].run == "0-sorted-first"
    assert (
        deliveries["backlog.md#a"].text_sha256
        == text_digest(again.title, again.body)
        != text_digest(ITEM.title, ITEM.body)
    )


def test_titles_and_bodies_do_not_run_into_each_other() -> None:
    assert text_digest(Digest("a"), Digest("bc")) != text_digest(Digest("ab"), Digest("c"))


@pytest.mark.parametrize(("last", "status"), [
    ((), "running"), ((RunHalted,), "halted"), ((RunHalted, RunIdle), "halted"), ((RunIdle,), "idle"),
    ((RunIdle, RunResumed), "running"), ((RunFinished,), "finished"), ((RunHalted, RunResumed, RunIdle), "idle"),
])  # fmt: skip
def test_how_a_run_stands(store: SqliteStore, last: tuple[type[Event], ...], status: str) -> None:
    (row,) = rows(store, RUNS, [*SMALL, *((RUN, sample(kind)) for kind in last)])
    assert (row.run, row.pipeline, row.base, row.status, row.started_us) == ("r", "pipeline", "base", status, NOW)


def test_how_the_features_of_a_run_stand(store: SqliteStore) -> None:
    rested = replace(sample(FeatureStopped), feature=FeatureId("a"), status=FeatureOutcome.DELIVERED)
    other = replace(ITEM, feature=FeatureId("b"))
    (row,) = rows(store, RUNS, [*SMALL, (RUN, other), (RUN, rested)])
    assert {feature.feature: feature.status for feature in row.features} == {"a": "delivered", "b": "queued"}


def test_rows_are_facts() -> None:
    for model in MODELS:
        assert issubclass(model.row, msgspec.Struct)
        assert set(model.key) <= set(model.row.__struct_fields__)


if __name__ == "__main__":
    with SqliteStore(Path(sys.argv[1]) / "mz.db") as opened:
        ReadModelStore(Path(sys.argv[1]) / "views.sqlite", Dying(opened, int(sys.argv[2]), code=9), MODELS, 3).refresh()
