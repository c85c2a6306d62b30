"""Command `python -m tools.mutants`: how many small changes (mutants) of the core its fast tests detect.

cosmic-ray makes the mutants one after the other, in a copy of the tree, and runs the tests on each.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from hashlib import sha256
from math import sqrt
from pathlib import Path

import click
import msgspec

ROOT = Path(__file__).resolve().parents[1]
SCORES = ROOT / "tests" / "mutation_scores.json"
SURVIVORS = ROOT / "build" / "mutants"
TARGETS = {
    "artifacts": ("engine/mz_engine/artifacts", "tests/engine/test_artifacts_*.py", "tests/engine/test_output.py"),
    "decide": ("engine/mz_engine/decide", "tests/engine/test_decide_*.py"),
    "events": ("events/mz_events", "tests/events/test_*.py"),
}
"""Package -> its folder, and the test modules that must detect its mutants."""
CPU_SECONDS_MAX, SECONDS_MAX = 60, 600
"""A mutant that takes longer loops or waits, and counts as detected."""
EXCLUDED = (
    r"core/ReplaceBinaryOperator_(?!Add_Sub$|Sub_Add$|Mul_FloorDiv$|FloorDiv_Mul$|Mod_Mul$|BitAnd_BitXor$)",
    r"core/ReplaceComparisonOperator_"
    r"(?!Eq_NotEq$|NotEq_Eq$|Is_IsNot$|IsNot_Is$|Lt_LtE$|LtE_Lt$|Gt_GtE$|GtE_Gt$|Lt_GtE$|GtE_Lt$|Gt_LtE$|LtE_Gt$)",
)
"""Operators that repeat others, or change types only: one opposite and one neighbour of each operator are enough."""


class Score(msgspec.Struct, frozen=True):
    detected: int
    mutants: int

    @property
    def share(self) -> float:
        return self.detected / max(self.mutants, 1)

    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval (Wilson) of the share among all mutants, of which these are a sample."""
        z, count = 1.96, max(self.mutants, 1)
        centre = self.share + z**2 / (2 * count)
        half = z * sqrt(self.share * (1 - self.share) / count + (z / (2 * count)) ** 2)
        return (centre - half) / (1 + z**2 / count), (centre + half) / (1 + z**2 / count)


def copy_tree(target: Path) -> None:
    """Copy what git keeps or would keep, compiled so that Python notices a mutant by its content, not by its time."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, os.fsdecode(names).split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([*compiling, *(code for code, *_ in TARGETS.values())], cwd=target, check=True)


def configuration(tree: Path, code: str, *tests: str) -> str:
    """Return the configuration of cosmic-ray, in TOML."""
    modules = sorted(str(path.relative_to(tree)) for pattern in tests for path in tree.glob(pattern))
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not cli"]
    tested = shlex.join([*pytest, "--hypothesis-profile=quick", "--hypothesis-seed=0", *modules])
    test_command = shlex.join(["sh", "-c", f"ulimit -t {CPU_SECONDS_MAX}; exec {tested}"])
    return f"""[cosmic-ray]
module-path = {json.dumps(code)}
timeout = {SECONDS_MAX}
excluded-modules = []
test-command = {json.dumps(test_command)}
[cosmic-ray.distributor]
name = "local"
[cosmic-ray.filters.operators-filter]
exclude-operators = {json.dumps(EXCLUDED)}
"""


def choose(tree: Path, session: Path, sample: int | None, seed: int) -> None:
    """Skip mutants of class statements, whose options (`frozen`) only types check, and all but `sample` others. A hash
    of each decides, so that most stay chosen when code changes."""
    with closing(sqlite3.connect(session)) as database, database:
        query = """SELECT job_id, start_pos_row, module_path, operator_name, occurrence FROM mutation_specs
            WHERE job_id NOT IN (SELECT job_id FROM work_results)"""
        pending = sorted(database.execute(query), key=lambda row: sha256(f"{seed} {row[2:]}".encode()).digest())
        lines = {path: (tree / path).read_text("utf-8").splitlines() for path in {row[2] for row in pending}}
        others = [job for job, row, path, *_ in pending if not lines[path][row - 1].startswith("class ")]
        skipped = [(job, "SKIPPED") for job in {row[0] for row in pending}.difference(others[:sample])]
        database.executemany("INSERT INTO work_results (job_id, worker_outcome) VALUES (?, ?)", skipped)


def outcome(session: Path) -> tuple[Score, str]:
    """Return the score, and the differences that no test detected."""
    with closing(sqlite3.connect(session)) as database:
        query = """SELECT test_outcome, diff FROM work_results JOIN mutation_specs USING (job_id)
            WHERE test_outcome IN ('KILLED', 'SURVIVED') ORDER BY module_path, start_pos_row, operator_name"""
        results = database.execute(query).fetchall()
    survivors = [f"{diff}\n" for result, diff in results if result == "SURVIVED"]
    return Score(len(results) - len(survivors), len(results)), "".join(survivors)


def measure(tree: Path, name: str, sample: int | None, seed: int) -> tuple[Score, str]:
    """Test the mutants of a package. Raises CalledProcessError if its tests fail without any mutant."""
    config, session = tree / f"{name}.toml", tree / f"{name}.sqlite"
    config.write_text(configuration(tree, *TARGETS[name]), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(path.parent) for path in tree.glob("*/mz_*"))}

    def run(program: str, *arguments: Path | str) -> None:
        subprocess.run([Path(sys.executable).parent / program, *arguments], cwd=tree, env=environment, check=True)

    run("cosmic-ray", "baseline", config)
    run("cosmic-ray", "init", config, session)
    run("cr-filter-operators", session, config)
    choose(tree, session, sample, seed)
    run("cosmic-ray", "exec", config, session)
    return outcome(session)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*TARGETS]))
@click.option("--sample", metavar="N", type=click.IntRange(1), help="Test only N mutants of each package.")
@click.option("--seed", default=1, show_default=True, help="Chooses the sample.")
@click.option("--write", is_flag=True, help="Keep the scores, in tests/mutation_scores.json.")
def mutants(names: tuple[str, ...], sample: int | None, seed: int, write: bool) -> None:
    """Change the code of packages in small ways, and count the changes that their fast tests detect.

    build/mutants/NAME.diff gets the changes that no test detected. Exit code 1: fewer were detected than in the kept
    scores of the same sample.
    """
    kind = "all" if sample is None else f"{sample} by seed {seed}"
    every: dict[str, dict[str, Score]] = msgspec.json.decode(SCORES.read_bytes(), type=dict[str, dict[str, Score]])
    kept = every.setdefault(kind, {})
    lower = False
    SURVIVORS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mz-mutants-") as scratch:
        copy_tree(Path(scratch))
        for name in names or TARGETS:
            score, survivors = measure(Path(scratch), name, sample, seed)
            (SURVIVORS / f"{name}.diff").write_text(survivors, encoding="utf-8")
            interval = "" if sample is None else " ({:.1%} to {:.1%} of all)".format(*score.interval())
            before = f"; kept: {kept[name].share:.1%}" if name in kept else ""
            print(f"{name}: {score.share:.1%} of {score.mutants} mutants detected{interval}{before}", flush=True)
            lower |= name in kept and score.share < kept[name].share
            if write:
                kept[name] = score
    if write:
        SCORES.write_bytes(msgspec.json.format(msgspec.json.encode(every, order="sorted")) + b"\n")
    elif lower:
        sys.exit(1)


if __name__ == "__main__":
    mutants()
