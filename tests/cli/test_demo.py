"""`mz demo`: a whole run, for nothing."""

from __future__ import annotations

import signal
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

import msgspec
import pytest
from mz_cli.app.context import open_log
from mz_cli.common.recording import run_provenance
from mz_cli.start import demo
from mz_cli.start.demo import AGENTS
from mz_engine.agents.process import SpoolMeta
from mz_recordings.cassette.files import load
from mz_recordings.cassette.model import Cassette
from mz_recordings.record.recorder import RecordSources, record_run

from tests.cli.drive import Mz, spawn
from tests.support.bench import MZ

FEATURE_KEYS = {"id", "status", "branch", "phases", "attempts", "tests", "tokens", "estimated_usd", "reported_usd",
                "computed_usd"}  # fmt: skip


def load_one_feature(folder: Path) -> Cassette:
    cassette = load(folder)
    return cassette._replace(traces={"group-thousands": cassette.traces["group-thousands"]})


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS[1:])
def test_another_agents_answers_as_json(tmp_path: Path, agent: str, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one feature; all of the first agent are shown on a terminal where the bundled recordings are tested."""
    monkeypatch.setattr(demo, "load", load_one_feature)
    monkeypatch.chdir(tmp_path)
    answer = mz("demo", "--agent", agent, "--keep", "tally", "--json")
    assert answer.exit == 0, answer
    shown = msgspec.json.decode(answer.out)
    assert set(shown) == {"schema", "repository", "run", "features"}
    assert (shown["schema"], shown["repository"]) == ("mz.demo/1", str(tmp_path / "tally"))
    assert [feature["id"] for feature in shown["features"]] == ["group-thousands"]
    for feature in shown["features"]:
        assert set(feature) == FEATURE_KEYS
        assert (feature["status"], feature["branch"]) == ("delivered", f"feat/{feature['id']}")
        assert list(feature["attempts"]) == feature["phases"]
        assert feature["tests"]["passed"] > 0
        assert feature["tests"]["failed"] == 0
        assert min(feature["tokens"].values()) > 0
        assert all(float(feature[name]) > 0 for name in ("estimated_usd", "computed_usd"))
        requested = ["git", "rev-parse", "--verify", "--quiet", feature["branch"]]
        subprocess.run(requested, cwd=shown["repository"], check=True)
    looked = spawn(tmp_path / "tally", "status", "--json")
    assert msgspec.json.decode(looked.out)["run"] == shown["run"]
    assert agents_of(tmp_path / "tally") == [agent]
    with (
        as_file(files("mz_recordings") / "bundled" / f"monozukuri-{agent}") as folder,
        open_log(tmp_path / "tally") as log,
    ):
        assert run_provenance(log, shown["run"]) == load(folder).manifest.provenance != "live"


def agents_of(home: Path) -> list[str]:
    """Who was asked."""
    groups = msgspec.json.decode(spawn(home, "cost", "--by", "agent", "--json").out)["groups"]
    return [group["name"] for group in groups]


def test_the_agents_of_the_demo_are_those_that_are_bundled() -> None:
    bundled = files("mz_recordings") / "bundled"
    assert {f"monozukuri-{agent}" for agent in AGENTS} == {
        traversable.name for traversable in bundled.iterdir() if traversable.name.startswith("monozukuri-")
    }


@pytest.mark.parametrize(("folder", "message"), [("tally", "already exists"), ("file/tally", "cannot be created")])
def test_a_place_that_is_taken_or_cannot_be_made(tmp_path: Path, folder: str, message: str) -> None:
    (tmp_path / "tally").mkdir()
    (tmp_path / "file").touch()
    answer = spawn(tmp_path, "demo", "--keep", folder)
    assert (answer.exit, answer.out) == (15, "")
    assert message in answer.err


def test_without_git(tmp_path: Path) -> None:
    answer = spawn(tmp_path, "demo", "--keep", "tally", PATH=str(tmp_path))
    assert answer.exit == 11
    assert "MZ1004" in answer.err


SCENARIO = {
    "phase.completed": 10, "phase.rolled-back": 1, "human.requested": 1, "learnings.captured": 1, "agent.requested": 15,
}  # fmt: skip
"""Number of events: eight phases, of which two are done again."""


@pytest.mark.slow
def test_eight_phases_with_the_recorded_answer_of_a_person(tmp_path: Path) -> None:
    answer = spawn(tmp_path, "demo", "--pipeline", "agentswe", "--keep", "tally", "--json")
    assert answer.exit == 0, answer
    assert "the recorded answer of a person: approve; Yes: limit it." in answer.err
    (feature,) = msgspec.json.decode(answer.out)["features"]
    assert (feature["id"], feature["status"]) == ("group-thousands", "delivered")
    assert {phase: count for phase, count in feature["attempts"].items() if count > 1} == {
        "implementation": 5, "verification": 2, "security": 2,
    }  # fmt: skip
    log = [msgspec.json.decode(line) for line in spawn(tmp_path / "tally", "log", "--json").out.splitlines()]
    bodies = {kind: [line["event"] for line in log if line.get("type") == kind] for kind in SCENARIO}
    assert {kind: len(events) for kind, events in bodies.items()} == SCENARIO
    (rollback,) = bodies["phase.rolled-back"]
    assert (rollback["source"], rollback["to"], rollback["units"]) == (
        "security",
        "implementation",
        ["unit-001", "unit-002"],
    ), "with the unit that depends on it"
    assert "mid" in {call.get("escalated_to") for call in bodies["agent.requested"]}, "a tier was raised"
    promoted = msgspec.json.decode(spawn(tmp_path / "tally", "memory", "list", "--layer", "project", "--json").out)
    assert {entry["kind"] for entry in promoted["learnings"]} == {"anti_pattern", "answer", "failure", "pattern"}
    name = next(entry["id"] for entry in promoted["learnings"] if entry["kind"] == "failure")
    assert "project layer" in spawn(tmp_path / "tally", "memory", "why", name).out


@pytest.mark.slow
def test_a_generation_with_a_conflict_a_failed_task_and_a_lost_call(tmp_path: Path) -> None:
    """It goes as it was recorded, and is recorded again with the same traces."""
    answer = spawn(tmp_path, "demo", "--pipeline", "generation", "--keep", "tally", "--json")
    assert answer.exit == 0, answer
    assert "mz was killed in this call, and the run resumed: mz resume" in answer.err
    assert "and a person ends the run: mz finish" in answer.err
    root, document = tmp_path / "tally", msgspec.json.decode(answer.out)
    attempts = {feature["id"]: sum(feature["attempts"].values()) for feature in document["features"]}
    assert (attempts["t1"], attempts["t2"], attempts["t3"]) == (1, 2, 5)
    assert "builder: claude-code claude-sonnet-4-6 lost (lost); " in spawn(root, "show", "t3").out
    assert "t3: 1 call lost" in spawn(root, "audit").out
    (killed,) = [line.split("\t") for line in spawn(root, "cost").out.splitlines() if line.startswith("wasted\tlost")]
    assert killed[3] == "1", "a lost call counts"
    assert float(killed[9]) > 0, "so much as it said"
    with as_file(demo.BUNDLED / "generation-claude-code") as folder, open_log(root) as log:
        recorded, run = load(folder), document["run"]
        sources = RecordSources(root, {"HOME": str(root / ".mz/demo/home")}, log.store, log.blobs)
        again = record_run(sources, run, name="again", provenance="scripted-model", template="sample").cassette
    own = recorded.manifest.fixture.run
    for feature, trace in recorded.traces.items():
        assert again.traces[feature].replace(run.encode(), own.encode()) == trace
    assert {call.identity: call.content("stdout") for call in again.calls} == {
        call.identity: call.content("stdout") for call in recorded.calls
    }


def test_a_call_is_lost_when_it_has_printed_all_that_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stderr").touch()
    (tmp_path / "stdout").touch()
    meta = SpoolMeta(key="", agent="", model="", argv=(), environment=(), started_us=0)
    (tmp_path / "meta.json").write_bytes(msgspec.json.encode(meta))
    printed = iter((b"first\n", b"first\nsecond"))
    monkeypatch.setattr(demo, "sleep", lambda _: (tmp_path / "stdout").write_bytes(next(printed)))
    demo.wait_for_lines(tmp_path, 2)
    assert next(printed, None) is None


@pytest.mark.slow
def test_a_demo_that_is_stopped_is_not_ended_for_the_person(tmp_path: Path) -> None:
    command = [str(MZ), "demo", "--pipeline", "generation", "--keep", "tally", "--no-progress"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    while "agent requested" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    shown, notes = process.communicate()
    assert "group-thousands: interrupted" in shown
    assert "The demo did not finish" in notes
    assert "a person ends the run" not in notes


def test_a_pipeline_without_a_recording_of_the_agent(tmp_path: Path) -> None:
    answer = spawn(tmp_path, "demo", "--pipeline", "agentswe", "--agent", "codex")
    assert answer.exit == 2
    assert "there is no recording of codex with the pipeline agentswe" in answer.err
