"""`python -m tools.bench`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import drive
from tests.cli.drive import Mz
from tools.bench import __main__, breakdown
from tools.bench.breakdown import Breakdown, Function, Share
from tools.bench.figure import Figure, compare

FIGURES = (
    compare("store.read", 312_000.0, "events/s", "raw", 390_000.0, at_least=0.9),
    compare("startup.version", 0.1, "CPU s", "click", 0.08, at_most=2.0),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bench(home: Path, capsys: pytest.CaptureFixture[str]) -> Mz:
    return lambda *args: drive.run(capsys, *args, program=__main__.main)


def test_the_table_says_whether_goals_are_met() -> None:
    assert __main__.table(FIGURES).rows == (
        ("store.read", "312,000", "events/s", "raw", "390,000", "0.80", ">= 0.90", "missed"),
        ("startup.version", "0.1", "CPU s", "click", "0.08", "1.25", "<= 2.00", "met"),
    )


@pytest.mark.slow
def test_figures_go_to_a_file_and_to_the_screen(home: Path, bench: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[tuple[bool, bool]] = []

    def measure(folder: Path, mz: Path, quick: bool) -> tuple[Figure, ...]:
        observed.append((folder.is_dir(), quick))
        return FIGURES[:1]

    monkeypatch.setitem(__main__.MEASURES, "store", measure)
    monkeypatch.setitem(__main__.MEASURES, "startup", lambda *_: FIGURES[1:])
    for other in {*__main__.NAMES} - {"store", "startup"}:
        monkeypatch.setitem(__main__.MEASURES, other, lambda *_: ())
    result = bench("all", "--quick", "--out", "figures.json")
    assert result.exit == 0, "a goal that is missed is no failure"
    assert [line.split("\t")[0] for line in result.out.splitlines()] == ["figure", "store.read", "startup.version"]
    assert observed == [(True, True)]
    written = json.loads((home / "figures.json").read_text())
    assert written["schema"] == "mz.bench/1"
    assert [item["ratio"] for item in written["figures"]] == [0.8, 0.1 / 0.08]


@pytest.mark.parametrize(
    "args", [("nothing",), ("store", "--profile"), ("overhead", "--profile", "--out", "f"), ("store", "--path", "no")]
)
def test_what_makes_no_sense_is_refused(bench: Mz, args: tuple[str, ...]) -> None:
    assert bench(*args).exit == 2


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    home: Path, bench: Mz, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__main__.MEASURES, "store", lambda *_: pytest.fail("measured"))
    result = bench("store", "--out", "nowhere/figures.json")
    assert result.exit == 11
    assert "error[MZ1006]" in result.err


def test_a_profile_is_two_tables(home: Path, bench: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    actual = Breakdown(
        (Share("git log", 4.0, 0.25, 0.5), Share("mz itself", None, 0.25, 0.5)),
        (Function("/x/engine/mz_engine/run/feature_loop.py", 9, "step", 1200, 0.5, 2.0),),
    )
    monkeypatch.setattr(breakdown, "breakdown", lambda *_, **__: actual)
    result = bench("overhead", "--profile")
    assert result.exit == 0
    assert [line.split("\t") for line in result.out.splitlines()] == [
        ["process", "calls/feature", "CPU s/feature", "share"],
        ["git log", "4.0", "0.250", "50%"],
        ["mz itself", "-", "0.250", "50%"],
        ["function", "calls", "own CPU s", "total CPU s"],
        ["engine/run/feature_loop.step", "1,200", "0.500", "2.000"],
    ]
