"""`mz bench import`: what is generated is imported, and figures come from what was measured. Nothing is timed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.sessionfiles import take, totals
from tools.bench.importing import Bench, Used, figures, generate, importing, write
from tools.bench.sessions import TURNS, session

MZ = Path(sys.executable).with_name("mz")


def test_figures_are_medians_and_the_highest_memory() -> None:
    useds = [Used(10.0, 90.0), Used(20.0, 150.0), Used(12.0, 80.0)]
    bare, again, days = [Used(3.0, 20.0)], [Used(1.0, 60.0)], [Used(0.5, 60.0)]
    rate, memory, second, sums = figures(600.0, useds, bare, again, days, 2000)
    assert (rate.value, rate.reference_value, rate.ratio, rate.met) == (50.0, 200.0, 0.25, False)
    assert (memory.value, memory.met) == (150.0, True)
    assert (second.ratio, sums.value, sums.met) == (0.5, 0.5, True)


def test_sessions_are_the_same_each_time_and_every_fifth_is_a_branch() -> None:
    assert list(session(3)) == list(session(3))
    branch = list(session(4))
    assert len(branch) == 3 * (TURNS + TURNS // 3)
    assert [line.replace(b"00000003-0000-4000-8000-000000000003", b"") for line in list(session(3))[:2]]
    assert branch[0].count(b'"id":"msg_000000000003') == 1


def test_what_is_generated_is_imported_whole(tmp_path: Path) -> None:
    assert generate(tmp_path / "sessions", 1.0) >= 1.0
    sessions = len(list((tmp_path / "sessions").rglob("*.jsonl")))
    outcome = take(tmp_path / "data", tmp_path / "sessions")
    assert (outcome.sessions, outcome.undecodable_lines, outcome.unpriced) == (sessions, 0, ())
    assert totals(tmp_path / "data")[0] == sessions * TURNS


@pytest.mark.slow
def test_small_sizes_are_measured_through_the_real_command(tmp_path: Path) -> None:
    result = importing(tmp_path, MZ, megabytes=2, rounds=1, year=5, small_files=3)
    assert [figure.name for figure in result] == [
        *("import.rate", "import.memory", "import.again", "import.days", "import.small", "import.small-memory")
    ]
    assert all(item.value > 0 for item in result)


@pytest.mark.slow
def test_a_command_that_fails_is_no_measurement(tmp_path: Path) -> None:
    write(tmp_path / "sessions", 0, 2)
    (tmp_path / "data").write_text("no directory")
    with pytest.raises(RuntimeError, match="ended with"):
        Bench(tmp_path, MZ).take(tmp_path / "sessions", tmp_path / "data")
