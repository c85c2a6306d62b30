"""Histories of other systems in the log: `mz import mage`, `mz import monozukuri`, and the commands that show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.drive import Mz, decoded
from tests.cli.stored_run import RUN, StoredRun
from tests.recordings.test_histories import MEASURE, NEW, STITCH, at, issue, write
from tests.support.gitrepo import GitRepo


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in which Mage worked."""
    repository = GitRepo(tmp_path_factory.mktemp("other"))
    repository.commit({"a.go": "a\n"})
    repository.git("tag", f"{NEW}-start")
    repository.git("checkout", "-q", "-b", NEW)
    issues = "\n".join((issue(f"{NEW}-a", MEASURE, STITCH), issue(f"{NEW}-b", MEASURE, status="open")))
    repository.commit({".beads/issues.jsonl": issues})
    return repository.root


def test_generations_are_shown_with_what_is_known(empty: Path, other: Path, mz: Mz) -> None:
    run = f"mage-{NEW}"
    document = decoded(mz("import", "mage", str(other), "--json"))
    assert document["runs"] == [
        {"run": run, "status": "running", "items": 2, "calls": 2, "damaged": 0, "is_new": True},
    ]  # fmt: skip
    assert "unchanged" in mz("import", "mage", str(other)).out
    (line,) = decoded(mz("runs", "--json"))["runs"]
    assert (line["run"], line["status"], line["pipeline"]) == (run, "imported", "mage running")
    assert line["features"] == {f"{NEW}-a": "closed", f"{NEW}-b": "open"}
    costs = decoded(mz("cost", run, "--by", "phase", "--json"))
    assert [(group["name"], group["input_tokens"], group["computed_usd"]) for group in costs["groups"]] == [
        ("measure", 900, None), ("stitch", 1200, None),
    ]  # fmt: skip
    assert decoded(mz("cost", "--all", "--json"))["total"]["calls"] == 2
    stats = decoded(mz("stats", run, "--json"))
    assert (stats["before"]["code"], stats["after"]["tests"]) == ({"recorded": 10}, {"recorded": 24})
    assert [item["status"] for item in stats["items"]] == ["closed", "open"]
    assert [(call["duration_ms"], call["cache_read_tokens"], call["reported_usd"]) for call in stats["calls"]] == [
        (30_000, None, None), (80_000, None, None),
    ]  # fmt: skip
    assert stats["calls"][1]["recorded"]["insertions"] == 70
    assert "closed   +41    +20" in mz("stats", run, "--format", "table").out
    assert mz("audit", "--verify").exit == 0


def test_in_its_own_repository_the_commits_are_counted(other: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(other)
    assert mz("import", "mage").exit == 0
    stats = decoded(mz("stats", f"mage-{NEW[:15]}", "--json"))
    assert (stats["before"]["code"], stats["after"]["code"]) == ({"Go": 1}, {"Go": 1})


def test_runs_of_monozukuri_keep_tokens_that_are_no_input(empty: Path, mz: Mz) -> None:
    write(empty, at(".monozukuri/runs/7"))
    assert decoded(mz("import", "monozukuri", "--json"))["runs"][0]["run"] == "monozukuri-run-7"
    costs = decoded(mz("cost", "monozukuri-run-7", "--json"))["total"]
    assert (costs["calls"], costs["input_tokens"], costs["estimated_usd"]) == (2, None, "0.10")
    calls = decoded(mz("stats", "monozukuri-run", "--json"))["calls"]
    assert [call["recorded"]["tokens"] for call in calls] == [71_234, None]
    damage = empty / ".monozukuri/runs/7/login/state.json"
    damage.write_text("{")
    again = mz("import", "monozukuri")
    assert (again.exit, "not read: .monozukuri/runs/7/login/state.json" in again.err) == (1, True)
    assert "\tcompleted\t2\t1\t2\tnew\n" in again.out


@pytest.mark.parametrize(("system", "name", "calls"), [("monozukuri", RUN, 3), ("mage", "out", 5)])
def test_what_mz_exports_can_be_read(stored_run: StoredRun, mz: Mz, system: str, name: str, calls: int) -> None:
    stored_run.close()
    assert mz("export", "--as", system, "--to", "out").exit == 0
    (run,) = decoded(mz("import", system, "out", "--json"))["runs"]
    assert (run["run"], run["items"], run["calls"], run["damaged"]) == (f"{system}-{name}", 4, calls, 0)
    exported, own = (decoded(mz("cost", run, "--json"))["total"] for run in (run["run"], RUN))
    field = "estimated_usd" if system == "monozukuri" else "input_tokens"
    assert exported[field] == own[field]


@pytest.mark.parametrize(
    ("args", "message"), [(("mage",), "no history of mage in "), (("monozukuri", "nowhere"), "nowhere is not a folder")]
)
def test_a_folder_without_a_history_is_an_error(empty: Path, mz: Mz, args: tuple[str, ...], message: str) -> None:
    refused = mz("import", *args)
    assert (refused.exit, message in refused.err) == (2, True)
    assert not (empty / ".mz").exists()
