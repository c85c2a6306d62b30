"""`python -m tools.mutants`: which mutants it tests, what it counts, and when it fails. No mutant is made."""

from __future__ import annotations

import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tools import mutants
from tools.mutants import EXCLUDED, ROOT, TARGETS, Score, choose, configuration, copy_tree, outcome

TABLES = """
CREATE TABLE mutation_specs (job_id, module_path, operator_name, occurrence, start_pos_row);
CREATE TABLE work_results (job_id, worker_outcome, test_outcome, diff);
"""


def session(path: Path, *modules: str) -> Path:
    """A session of cosmic-ray with a mutant in each line of each module, the first excluded, the second of a class."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(TABLES)
        for module in modules:
            (path.parent / module).write_text("import\nclass A:\n" + "    pass\n" * 8)
            rows = [(f"{module}{n}", module, "core/AddNot", n, n + 1) for n in range(10)]
            database.executemany("INSERT INTO mutation_specs VALUES (?, ?, ?, ?, ?)", rows)
            database.execute("INSERT INTO work_results VALUES (?, 'SKIPPED', NULL, NULL)", (f"{module}0",))
    return path


def pending(path: Path) -> set[str]:
    query = "SELECT job_id FROM mutation_specs WHERE job_id NOT IN (SELECT job_id FROM work_results)"
    with closing(sqlite3.connect(path)) as database:
        return {job for (job,) in database.execute(query)}


def test_a_sample_depends_on_its_seed_and_hardly_on_other_modules(tmp_path: Path) -> None:
    chosen = []
    for name, seed, modules in [("a", 1, "xy"), ("b", 1, "xy"), ("c", 2, "xy"), ("d", 1, "xyz")]:
        choose(tmp_path, session(tmp_path / name, *modules), 9, seed)
        chosen.append(pending(tmp_path / name))
    first, again, other_seed, more_code = chosen
    assert {len(jobs) for jobs in chosen} == {9}
    assert first == again != other_seed
    assert {job for job in more_code if job[0] != "z"} < first


def test_excluded_mutants_and_those_of_class_statements_are_never_tested(tmp_path: Path) -> None:
    choose(tmp_path, session(tmp_path / "session", "x"), None, 1)
    assert pending(tmp_path / "session") == {f"x{n}" for n in range(2, 10)}


def test_only_mutants_with_a_result_count(tmp_path: Path) -> None:
    path = session(tmp_path / "session", "x")
    with closing(sqlite3.connect(path)) as database, database:
        rows = [("x3", "SURVIVED", "three"), ("x2", "SURVIVED", "two"), ("x4", "KILLED", "four"), ("x5", None, None)]
        database.executemany("INSERT INTO work_results VALUES (?, 'NORMAL', ?, ?)", rows)
    assert outcome(path) == (Score(detected=1, mutants=3), "two\nthree\n")


def test_the_interval_of_a_sample_holds_its_share() -> None:
    low, high = Score(63, 70).interval()
    assert (round(low, 3), round(high, 3)) == (0.808, 0.951)
    assert Score(70, 70).interval()[1] == pytest.approx(1.0)


@pytest.mark.parametrize("name", TARGETS)
def test_every_package_has_code_and_fast_tests(name: str) -> None:
    code, *tests = TARGETS[name]
    config = tomllib.loads(configuration(ROOT, code, *tests))["cosmic-ray"]
    assert (ROOT / config["module-path"]).is_dir()
    assert all(list(ROOT.glob(pattern)) for pattern in tests)
    assert config["test-command"].split()[-1].startswith("tests/")
    assert config["filters"]["operators-filter"]["exclude-operators"] == list(EXCLUDED)


@pytest.mark.parametrize(
    ("args", "measured", "exit_code", "kept"),
    [
        ((), Score(9, 10), 0, Score(9, 10)),
        ((), Score(10, 10), 0, Score(9, 10)),
        ((), Score(8, 10), 1, Score(9, 10)),
        (("--write",), Score(8, 10), 0, Score(8, 10)),
        (("--sample", "5"), Score(8, 10), 0, Score(9, 10)),
    ],
    ids=["as good", "better", "worse", "written", "not comparable"],
)
def test_a_lower_score_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], measured: Score, exit_code: int, kept: Score
) -> None:
    scores = tmp_path / "scores.json"
    scores.write_text('{"all": {"decide": {"detected": 9, "mutants": 10}}}')
    monkeypatch.setattr(mutants, "SCORES", scores)
    monkeypatch.setattr(mutants, "SURVIVORS", tmp_path / "survivors")
    monkeypatch.setattr(mutants, "copy_tree", lambda _: None)
    monkeypatch.setattr(mutants, "measure", lambda *_: (measured, "difference\n"))
    result: Result = CliRunner().invoke(mutants.mutants, ["decide", *args])
    assert result.exit_code == exit_code
    assert f"decide: {measured.share:.1%} of 10 mutants detected" in result.output
    assert (tmp_path / "survivors" / "decide.diff").read_text() == "difference\n"
    assert f'"detected": {kept.detected}' in scores.read_text()


@pytest.mark.slow
def test_a_copy_is_whole_and_changes_nothing_here(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    code, tests = TARGETS["decide"]
    assert {path.name for path in (tmp_path / code).glob("*.py")} == {path.name for path in (ROOT / code).glob("*.py")}
    assert list(tmp_path.glob(tests))
    assert not (tmp_path / ".venv").exists()
