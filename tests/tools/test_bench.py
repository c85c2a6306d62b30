"""What benchmarks say is computed from what was measured, and their tools do what they should. Nothing is timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.call import AgentRequested
from mz_events.catalog.feature import FeatureDelivered, FeatureStarted
from mz_events.catalog.validation import ArtifactValidated
from mz_events.names import run_stream
from mz_projections.views.run import run_view

from tools.bench import loop, profiled, shim
from tools.bench.answers import PHASES, files
from tools.bench.breakdown import Function, split, top
from tools.bench.clock import alternate, cpu_seconds, rate
from tools.bench.figure import compare, document
from tools.bench.history import FIRST, Past, fill, simulate
from tools.bench.noop import find_compiler, install
from tools.bench.overhead import FEATURES, RATIO_MAX, SECONDS_MAX, Replayed, figures
from tools.bench.page import BEGIN, END, Document, renewed, table
from tools.bench.redaction import output, redaction
from tools.bench.transcripts import samples, transcripts

DOCS = Path(__file__).parents[2] / "docs"
SESSION = "0f0f0f0f-1111-4222-8333-444444444444"
COMPILERS = tuple(dict.fromkeys((None, find_compiler())))


# figures --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "goals", "met"),
    [
        (50.0, {"at_least": 0.5}, True),
        (49.0, {"at_least": 0.5}, False),
        (50.0, {"at_most": 0.5}, True),
        (51.0, {"at_most": 0.5}, False),
    ],
)
def test_a_ratio_is_of_the_two_values_and_reaches_its_goal_from_one_side(
    value: float, goals: dict[str, float], met: bool
) -> None:
    figure = compare("a.b", value, "s", "other", 100.0, **goals)
    assert figure.ratio == value / 100.0
    assert figure.met is met
    assert figure.better == ("higher" if "at_least" in goals else "lower")


def test_the_document_has_just_these_fields() -> None:
    figure = compare("store.read", 3.0, "events/s", "raw", 4.0, at_least=0.9)
    assert document([figure]) == {
        "schema": "mz.bench/1",
        "figures": [
            {
                "name": "store.read", "value": 3.0, "unit": "events/s", "reference": "raw", "reference_value": 4.0,
                "ratio": 0.75, "goal": 0.9, "better": "higher",
            }
        ],
    }  # fmt: skip


def test_overhead_is_for_each_feature() -> None:
    run, limit = figures({"mz": 12.0, "loop": 6.0}, 20, "C")
    assert (run.value, run.reference_value, run.ratio, run.goal) == (0.6, 0.3, 2.0, RATIO_MAX)
    assert (limit.value, limit.reference_value, limit.ratio) == (0.6, SECONDS_MAX, 1.0)
    assert limit.met
    assert FEATURES * len(PHASES) == 120


def test_candidates_take_turns_and_the_median_counts() -> None:
    texts: list[str] = []
    values = {"a": iter((1.0, 9.0, 2.0)), "b": iter((5.0, 5.0, 50.0))}

    def measure(name: str) -> float:
        texts.append(name)
        return next(values[name])

    result = alternate(3, {"a": lambda: measure("a"), "b": lambda: measure("b")})
    assert result == {"a": 2.0, "b": 5.0}
    assert "".join(texts) == "ababab"


@pytest.mark.slow
def test_a_rate_counts_things_a_second() -> None:
    done: list[int] = []
    assert rate(10, lambda: done.append(1)) > 0
    assert done == [1]


@pytest.mark.slow
def test_the_cpu_time_of_children_counts(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.15: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    assert cpu_seconds((sys.executable, "-c", parent), tmp_path, os.environ, tmp_path / "log") >= 0.15


def test_a_process_that_fails_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with 3: out of luck"):
        cpu_seconds(("sh", "-c", "echo out of luck; exit 3"), tmp_path, os.environ, tmp_path / "log")


def test_a_page_is_given_its_new_table_and_keeps_the_rest() -> None:
    figure = compare("store.read", 312_000.0, "events/s", "raw", 390_000.0, at_least=0.9)
    page = f"# Figures\n{BEGIN}an old table\n{END}more\n"
    text = renewed(page, [figure], "a machine")
    assert text.startswith(f"# Figures\n{BEGIN}a machine\n")
    assert text.endswith(f"{END}more\n")
    assert "old" not in text
    assert "| `store.read` | 312,000 | events/s | raw | 390,000 | 0.80 | ≥ 0.90 | **missed** |\n" in text
    assert renewed(text, [figure], "a machine") == text
    with pytest.raises(ValueError, match="lacks"):
        renewed("# Figures\n", [figure], "a machine")


def test_the_page_shows_the_figures_that_were_measured_last() -> None:
    measured = msgspec.json.decode((DOCS / "figures.json").read_bytes(), type=Document)
    assert table(measured.figures) in (DOCS / "figures.md").read_text(), "write it anew: make figures"
    assert {item.name.split(".")[0] for item in measured.figures} == {
        *(
            "overhead",
            "changes",
            "redaction",
            "store",
            "startup",
            "transport",
            "library",
            "history",
            "transcripts",
            "import",
            "pricing",
            "simulation",
            "sandbox",
        )
    }
    assert all(figure.ratio == figure.value / figure.reference_value for figure in measured.figures)


# the agent ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.slow
def test_the_agent_leaves_the_prepared_files_and_says_the_prepared_stream(tmp_path: Path, compiler: str | None) -> None:
    kind = install(tmp_path / "bin", ("f-1",), compiler)
    assert kind == ("sh" if compiler is None else "C")
    claude = tmp_path / "bin" / "claude"
    assert subprocess.check_output([claude, "--version"]).startswith(b"2.")
    for phase in PHASES:
        tree = tmp_path / phase
        tree.mkdir()
        environment = {"MZ_KEY": f"r1/f-1/{phase}/-/1/1/agent.builder", "PATH": os.environ["PATH"]}
        args = (str(claude), "-p", "--session-id", SESSION)
        out = subprocess.check_output(args, cwd=tree, env=environment, input=b"x" * 200_000)
        left = {str(file.relative_to(tree)): file.read_text() for file in tree.rglob("*") if file.is_file()}
        assert left == files("f-1", phase)
        lines = [json.loads(line) for line in out.splitlines()]
        assert (lines[-1]["type"], lines[-1]["is_error"]) == ("result", False)
        if compiler:
            assert {line["session_id"] for line in lines} == {SESSION}


# histories ------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def past() -> Past:
    return simulate(2)


def test_a_history_is_a_run_in_which_every_phase_succeeds_at_once(past: Past) -> None:
    kinds = Counter(type(event) for _, event in past.entries)
    assert kinds[AgentRequested] == 2 * len(PHASES)
    assert kinds[FeatureDelivered] == 2
    assert not any(event.violations for _, event in past.entries if isinstance(event, ArtifactValidated))


def test_a_log_of_any_size_holds_whole_runs_under_names_of_their_own(past: Past, tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "mz.db") as store:
        count = fill(store, FileBlobs(tmp_path / "blobs"), past, 2 * len(past.entries) + 1)
        assert count == store.head() == 3 * len(past.entries)
        assert store.verify() == ()
        runs = [name for name, _ in store.streams("run/") if name.count("/") == 1]
        assert runs == [run_stream(f"r{number:08x}") for number in range(3)]
        view = run_view("r00000002", store.read_all())
        assert [feature.status for feature in view.features] == ["delivered", "delivered"]
        keys = {recorded.event.ref.key for recorded in store.read_all() if isinstance(recorded.event, AgentRequested)}
        assert len(keys) == 3 * 2 * len(PHASES)
        assert sum(key.startswith(f"{FIRST}/") for key in keys) == 2 * len(PHASES)
        started = [item.event for item in store.read_all() if isinstance(item.event, FeatureStarted)]
        assert FileBlobs(tmp_path / "blobs").get(started[-1].title).startswith(b"Add the file of")


@pytest.mark.slow
def test_transcripts_are_read_by_every_format_that_there_are_lines_of() -> None:
    result = transcripts(lines=50, rounds=1)
    assert {figure.name for figure in result} == {f"transcripts.{name}" for name in [*samples(), "file"]}
    assert all(item.reference_value > item.value > 0 for item in result)


# the bare loop --------------------------------------------------------------------------------------------------------
def record(tmp_path: Path) -> None:
    """A few calls of git, written down as a tape."""
    shim.install(tmp_path / "shims", tmp_path / "entries", ("git",))
    project = tmp_path / "project"
    project.mkdir()
    script = (
        "git init -q . && git -c a.b=c hash-object -w --stdin < ../text && git rev-parse --verify -q nothing;"
        " tree=$(git write-tree) && git commit-tree -m x $tree"
    )
    (tmp_path / "text").write_text("some text\n")
    who = {f"GIT_{role}_{part}": "me@here" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    environment = {**who, "PATH": f"{tmp_path / 'shims'}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    subprocess.run(["sh", "-c", script], cwd=project, env=environment, check=True, capture_output=True)
    calls = [json.loads(file.read_bytes()) for file in sorted((tmp_path / "entries").iterdir())]
    (tmp_path / "tape.json").write_text(json.dumps(calls))


def replay(tmp_path: Path) -> Replayed:
    args = (str(tmp_path / "tape.json"), str(tmp_path), str(tmp_path / "report.json"))
    subprocess.run([sys.executable, "-I", "-S", loop.__file__, *args], check=True)
    return msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=Replayed)


@pytest.mark.slow
def test_the_loop_makes_the_very_calls_that_were_recorded(tmp_path: Path) -> None:
    record(tmp_path)
    (tmp_path / "project").rename(tmp_path / "recorded")
    (tmp_path / "project").mkdir()
    replayed = replay(tmp_path)
    counts = {"git init": 1, "git hash-object": 1, "git rev-parse": 1, "git write-tree": 1, "git commit-tree": 1}
    assert replayed.calls == counts
    assert replayed.seconds.keys() == counts.keys()
    assert replayed.different == ()


@pytest.mark.slow
def test_a_call_that_ends_otherwise_is_told(tmp_path: Path) -> None:
    record(tmp_path)
    calls = json.loads((tmp_path / "tape.json").read_text())
    calls[2]["argv"][-1] = "HEAD"
    calls[2]["exit"] = 0
    (tmp_path / "tape.json").write_text(json.dumps(calls))
    (different,) = replay(tmp_path).different
    assert "rev-parse" in different
    assert different.endswith("1, not 0")


# the profile ----------------------------------------------------------------------------------------------------------
def test_the_parts_of_a_breakdown_are_the_whole() -> None:
    replayed = Replayed({"git log": 4, "claude": 12, "sh": 8}, {"git log": 1.0, "claude": 0.5, "sh": 0.5}, ())
    shares = {entry.what: entry for entry in split(10.0, 6.0, replayed, 2)}
    assert sum(item.part for item in shares.values()) == pytest.approx(1)
    assert sum(share.seconds for share in shares.values()) == pytest.approx(5.0)
    assert shares["git log"].calls == 2
    assert (shares["guards of agents and commands"].calls, shares["guards of agents and commands"].seconds) == (10, 2)
    assert (shares["mz itself"].calls, shares["mz itself"].seconds) == (None, 2)


def test_only_functions_of_ours_are_told() -> None:
    def function(file: str, value: float) -> Function:
        return Function(file, 1, "f", 1, 0.1, value)

    functions = top((function("/x/mz_engine/a.py", 1), function("/usr/lib/os.py", 9), function("/x/mz_events/b.py", 2)))
    assert [item.file for item in functions] == ["/x/mz_events/b.py", "/x/mz_engine/a.py"]


def test_the_profiler_sees_every_thread(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import threading\ndef work(): return sum(range(1000))\n"
        "def wait(): threading.Event().wait(0.01)\n"
        "threads = [threading.Thread(target=each) for each in (work, wait, work)]\n"
        "for each in threads: each.start()\nfor each in threads: each.join()\n"
    )
    report = tmp_path / "report.json"
    subprocess.run([sys.executable, profiled.__file__, report, program], check=True)
    summary = json.loads(report.read_text())
    calls = {item["name"]: item["calls"] for item in summary["functions"] if item["file"] == str(program)}
    assert (calls["work"], calls["wait"]) == (2, 1)
    assert summary["own"] > 0


# redaction ------------------------------------------------------------------------------------------------------------
def test_redaction_goes_over_recorded_output_and_changes_nothing() -> None:
    (figure,) = redaction(megabytes=1, rounds=1)
    assert (figure.name, figure.unit, figure.better) == ("redaction.rate", "MB/s", "higher")
    assert output(1000)[:1] == b"{"
    assert len(output(3_000_000)) == 3_000_000
