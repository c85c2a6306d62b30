"""The sample project: it works, its backlog is what the demo needs, and one feature breaks a test when done naively."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import mz_recordings
import pytest
from mz_engine.artifacts.command_output import count_runs
from mz_engine.backlog.injection_screen import screen_item
from mz_engine.backlog.item import plan_backlog
from mz_engine.model.config import Config
from mz_engine.run.plan import read_backlog
from mz_engine.run.settings import load_config

SAMPLE = Path(mz_recordings.__file__).parent / "bundled" / "sample"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLE, tmp_path / "tally", ignore=shutil.ignore_patterns("__pycache__")))


def run_tests(folder: Path) -> tuple[int, str]:
    ran = subprocess.run([sys.executable, "-m", "unittest"], cwd=folder, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stderr


@pytest.mark.slow
def test_its_own_tests_pass(sample: Path) -> None:
    code, output = run_tests(sample)
    assert code == 0
    assert count_runs(output.encode()) == [(14, 0)]


@pytest.mark.slow
def test_the_readme_shows_what_the_command_prints(sample: Path) -> None:
    readme = (sample / "README.md").read_text("utf-8")
    [journal, shown, refused] = [block.split("```")[0] for block in readme.split("```\n")[1:7:2]]
    (sample / "journal.txt").write_text(journal, "utf-8")
    (sample / "broken.txt").write_text("2026-03-02 food 8.15\n2026-03-02 food 12,40\n", "utf-8")
    for text in (shown, refused):
        command, expected = text.split("\n", 1)
        arguments = command.removeprefix("$ python3 ").split()
        ran = subprocess.run([sys.executable, *arguments], cwd=sample, capture_output=True, text=True, check=False)
        assert ran.stdout + ran.stderr == expected


def test_its_backlog_has_a_chain_and_an_independent_feature() -> None:
    items = read_backlog(SAMPLE, Config(agent="a"), {})
    assert {item.id: item.depends_on for item in items} == {
        "month-filter": (),
        "month-compare": ("month-filter",),
        "group-thousands": (),
    }
    assert [item.id for item in plan_backlog(items)[0]] == ["month-filter", "month-compare", "group-thousands"]
    assert all(screen_item(item, "strict")[0].body == item.body for item in items)


def test_its_settings_name_the_test_command() -> None:
    loaded = load_config(SAMPLE, {}, {})
    assert loaded.warnings == ()
    assert {name: command.run for name, command in loaded.config.commands.items()} == {"test": "python3 -m unittest"}


@pytest.mark.slow
def test_grouping_digits_naively_breaks_a_test_that_a_mended_reader_passes(sample: Path) -> None:
    money = sample / "tally" / "money.py"
    naive = money.read_text("utf-8").replace("{abs(cents) // 100}", "{abs(cents) // 100:,}")
    money.write_text(naive, "utf-8")
    code, output = run_tests(sample)
    assert code != 0
    assert "test_what_is_shown_can_be_read_again" in output
    mended = naive.replace(r"(\d+)\.", r"(\d+|\d{1,3}(?:,\d{3})+)\.").replace(
        "int(whole)", 'int(whole.replace(",", ""))'
    )
    money.write_text(mended, "utf-8")
    assert run_tests(sample)[0] == 0


def test_nothing_of_it_is_ignored_or_a_cache() -> None:
    """Otherwise it is missing from the distribution."""
    files = [str(path) for path in SAMPLE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    ran = subprocess.run(["git", "check-ignore", *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert {Path(name).suffix for name in files} == {".py", ".md", ".yaml", ""}
