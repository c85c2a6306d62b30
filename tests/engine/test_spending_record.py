"""The record of what all runs of a user spent: concurrent runs, lines that are cut off, unwritable folders."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Budget
from mz_engine.paths import spending_folder, user_data_directory
from mz_engine.run import spending_record
from mz_engine.run.spending_record import NOT_RECORDED, SpendingRecord, open_record
from mz_events.store import StoreUnusable
from mz_projections.run.spending import DAY_US, Amount, total

NOW = 20_000 * DAY_US
LINES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans()), min_size=1, max_size=8)


def spent(record: SpendingRecord, now_us: int = NOW) -> Amount:
    return total(record.day(now_us))


def test_two_repositories_see_what_each_spends(tmp_path: Path) -> None:
    first, second = (SpendingRecord(tmp_path / "spending", name) for name in ("/one", "/two"))
    with first.lock():
        first.add("r1/a", Amount(nanousd=7, tokens=70), NOW, charged=False)
    with second.lock():
        second.add("r1/a", Amount(nanousd=2, tokens=20), NOW, charged=True)
    assert spent(first) == spent(second) == Amount(nanousd=9, tokens=90)
    with first.lock():
        first.add("r1/a", Amount(nanousd=1, tokens=10), NOW, charged=True)
    assert spent(second) == Amount(nanousd=3, tokens=30)


def test_days_are_files_and_old_ones_are_not_read(tmp_path: Path) -> None:
    record = SpendingRecord(tmp_path)
    for days in (2, 1, 0):
        with record.lock():
            record.add(f"k{days}", Amount(nanousd=10**days), NOW - days * DAY_US + 1, charged=True)
    assert len(list(tmp_path.glob("*.jsonl"))) == 3
    assert spent(record) == Amount(nanousd=11)
    assert spent(record, NOW + DAY_US + 1) == Amount()


def test_a_call_that_reserves_again_does_not_count_itself(tmp_path: Path) -> None:
    """A crash may come between the record and the event of a reservation. What was charged was spent."""
    record, other = SpendingRecord(tmp_path, "/one"), SpendingRecord(tmp_path, "/two")
    with record.lock():
        record.add("k", Amount(nanousd=3), NOW, charged=False)
    assert (record.day(NOW, "k"), total(record.day(NOW, "j")), total(other.day(NOW, "k"))) == ((), *[spent(record)] * 2)
    with record.lock():
        record.add("k", Amount(nanousd=2), NOW, charged=True)
    assert total(record.day(NOW, "k")) == Amount(nanousd=2)


def test_at_a_time_only_one_run_decides(tmp_path: Path) -> None:
    """Each reserves if there is room, as the coordinator does: never too many."""

    def reserve(name: str) -> None:
        record = SpendingRecord(tmp_path, name)
        for number in range(5):
            with record.lock():
                if spent(record).nanousd + 10 <= 70:
                    record.add(f"{number}", Amount(nanousd=10), NOW, charged=False)

    threads = [threading.Thread(target=reserve, args=(name,)) for name in ("/one", "/two", "/three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spent(SpendingRecord(tmp_path)) == Amount(nanousd=70)


@given(LINES, st.integers(0, 10**6), st.binary(max_size=30))
def test_what_a_crash_cut_off_takes_nothing_with_it(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[int, int, bool]], cut: int, garbage: bytes
) -> None:
    folder = tmp_path_factory.mktemp("spending")
    record = SpendingRecord(folder)
    for number, (nanousd, tokens, charged) in enumerate(lines):
        with record.lock():
            record.add(str(number), Amount(nanousd=nanousd, tokens=tokens), NOW, charged=charged)
    acknowledged = spent(record)
    (file,) = folder.glob("*.jsonl")
    with record.lock():
        record.add("torn", Amount(nanousd=10**9), NOW, charged=True)
    content = file.read_bytes()
    start = content.rindex(b"\n{")
    file.write_bytes(content[: start + 1 + cut % (len(content) - start - 2)] + garbage.replace(b"\n", b""))
    assert spent(record) == acknowledged
    with record.lock():
        record.add("next", Amount(nanousd=1), NOW, charged=True)
    assert spent(record) == acknowledged + Amount(nanousd=1)


def test_a_line_that_gives_money_back_is_none(tmp_path: Path) -> None:
    record = SpendingRecord(tmp_path)
    with record.lock():
        record.add("k", Amount(nanousd=5), NOW, charged=True)
    (file,) = tmp_path.glob("*.jsonl")
    line = file.read_bytes().strip()
    for change in (b'"nanousd":-5', b'"nanousd":NaN', b'"nanousd":"x"', b'"nanousd":1.5', b'"nanousd":null'):
        file.write_bytes(line + b"\n" + line.replace(b'"nanousd":5', change).replace(b" k", b" other") + b"\n")
        assert spent(record) == Amount(nanousd=5)


def test_a_lock_that_is_never_released_does_not_stop_a_run_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spending_record, "LOCK_SECONDS", 0.01)
    with (
        SpendingRecord(tmp_path).lock(),
        pytest.raises(StoreUnusable, match="stays locked"),
        SpendingRecord(tmp_path).lock(),
    ):
        pass


def test_where_it_cannot_be_written_only_a_budget_of_a_day_stops_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {"MZ_DATA": str(tmp_path / "file")}
    assert open_record(environment, "/one", Budget(run_tokens=1)) is NOT_RECORDED
    with pytest.raises(MzError, match="the day's spending cannot be recorded"):
        open_record(environment, "/one", Budget(day_tokens=1))


def test_it_is_in_the_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spending_folder({"MZ_DATA": str(tmp_path)}) == tmp_path / "spending"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert user_data_directory({}) == tmp_path / "share/mz"
