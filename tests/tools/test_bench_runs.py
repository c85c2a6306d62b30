"""The benchmarks themselves, at the smallest size: what is counted and compared is what it says. Nothing is timed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import msgspec
import pytest
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore

from tools.bench import startup, store
from tools.bench.answers import PHASES
from tools.bench.breakdown import breakdown
from tools.bench.figure import Figure
from tools.bench.history import fill, simulate
from tools.bench.overhead import Bench, Replayed, overhead
from tools.bench.raw import read_all, rows_of

MZ = Path(sys.executable).with_name("mz")


def sound(figures: tuple[Figure, ...]) -> dict[str, Figure]:
    for item in figures:
        assert item.value > 0
        assert item.reference_value > 0
        assert item.ratio == item.value / item.reference_value
    return {figure.name: figure for figure in figures}


@pytest.mark.slow
def test_the_store_is_measured_in_all_its_uses(tmp_path: Path) -> None:
    figures = sound(store.store(tmp_path, events=4000, rounds=1))
    goals = {name: (figure.goal, figure.better) for name, figure in figures.items()}
    assert goals == {
        "store.append": (0.80, "higher"),
        "store.append-100": (0.50, "higher"),
        "store.append-citing": (0.50, "higher"),
        "store.read": (0.90, "higher"),
        "store.rebuild-calls": (0.25, "higher"),
        "store.rebuild-runs": (0.25, "higher"),
        "store.rebuild-delivered": (0.25, "higher"),
    }


@pytest.mark.slow
def test_both_sides_append_and_read_as_many_events(tmp_path: Path) -> None:
    past, log = simulate(), tmp_path / "log.db"
    with SqliteStore(log) as filled:
        count = fill(filled, FileBlobs(tmp_path / store.TEXTS), past, 1)
    assert read_all(log) == count == len(past.entries)
    with store.Writing(tmp_path, past, log) as writing:
        for _ in range(2):
            writing.single(), writing.single_raw(), writing.citing(), writing.citing_raw()
        mine, theirs = tmp_path / "mz.db", tmp_path / "raw.db"
        assert len(rows_of(mine)) == len(rows_of(theirs)) == 2 * (store.SINGLE + store.CITING)
        writing.batch()
        assert len(rows_of(mine)) == 2 * (store.SINGLE + store.CITING) + store.BATCHES * store.BATCH
    with SqliteStore(mine, read_only=True) as log_:
        assert log_.verify() == ()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> startup.Bench:
    """A log of some features and runs; only to be read."""
    return startup.Bench(tmp_path_factory.mktemp("bench"), MZ, 5000)


@pytest.mark.slow
def test_the_query_gives_the_answer_of_the_status(bench: startup.Bench) -> None:
    assert bench.query() > 0
    queried = [line.split("\t") for line in bench.output_file.read_text().splitlines()]
    assert bench.seconds(MZ, "status", "--json") > 0
    shown = json.loads(bench.output_file.read_text())["features"]
    assert len(shown) == 20
    assert [row[:5] for row in queried] == [
        [item["id"], item["status"], item["phase"], str(sum(item["attempts"].values())), item["branch"]]
        for item in shown
    ]
    actual = [row[5:7] for row in queried]
    assert actual == [[str(element["tokens"][key]) for key in ("input", "output")] for element in shown]
    assert [f"{int(row[9]) / 1e9:f}" for row in queried] == [f"{float(entry['computed_usd']):f}" for entry in shown]


@pytest.mark.slow
def test_the_query_gives_the_runs(bench: startup.Bench) -> None:
    assert bench.runs_query() > 0
    queried = [line.split("\t") for line in bench.output_file.read_text().splitlines()]
    assert bench.seconds(MZ, "runs", "--json") > 0
    shown = json.loads(bench.output_file.read_text())["runs"]
    assert len(shown) > 1
    assert [(row[0], row[2], row[3], row[4], row[5]) for row in queried] == [
        (f"run/{item['run']}", f"run.{item['status']}", item["pipeline"], item["base"],
         f"delivered {len(item['features'])}")
        for item in shown
    ]  # fmt: skip


@pytest.mark.slow
def test_starting_is_measured_for_all_commands(tmp_path: Path) -> None:
    figures = sound(startup.startup(tmp_path, MZ, events=1, rounds=1))
    assert figures.keys() == {"startup.version", "startup.status", "startup.runs", "startup.cost"}
    assert figures["startup.version"].goal == 2.0


@pytest.mark.slow
def test_a_breakdown_accounts_for_the_whole_run_and_overhead_is_measured_against_a_loop_that_makes_its_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = breakdown(tmp_path, MZ, features=1)
    assert {"git merge-base", "claude", "sh", "mz itself", "guards of agents and commands"} <= {
        share.what for share in result.shares
    }
    assert sum(item.part for item in result.shares) == pytest.approx(1)
    assert "step" in {function.name for function in result.functions}

    monkeypatch.setattr(Bench, "record", lambda _: None)  # The tape is that of the breakdown.
    for made in ("home", "agent"):
        shutil.rmtree(tmp_path / made)
    figures = sound(overhead(tmp_path, MZ, features=1, rounds=1))
    assert figures["overhead.run"].value == figures["overhead.limit"].value
    assert (figures["overhead.run"].goal, figures["overhead.run"].better) == (3.0, "lower")
    assert figures["overhead.limit"].reference_value == 0.6
    replayed = msgspec.json.decode((tmp_path / "loop.json").read_bytes(), type=Replayed)
    assert replayed.different == ()
    assert replayed.calls["claude"] == len(PHASES) + 1, "each phase once, and the version"
    assert replayed.calls["sh"] == 5, "on the base, before code and tests, and as their gates"
    assert replayed.calls["git unpack-objects"] == 2 * len(PHASES), "captures and commits"
    tape = json.loads((tmp_path / "tape.json").read_text())
    assert sum(replayed.calls.values()) == len(tape)
