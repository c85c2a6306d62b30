"""Histories of Mage and Monozukuri become imported runs; what is damaged is counted, and nothing is made up.

The files are made by hand, after the descriptions of both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mz_events.catalog.imported import ImportedRunRead
from mz_events.codec import CODEC
from mz_recordings.importing import histories
from mz_recordings.importing.histories import ISSUES, HistoryFiles, imported_history

from tests.support.gitrepo import GitRepo
from tests.support.sessionfiles import SESSION, take

OLD, NEW = "generation-2026-03-01-09-00-00", "generation-2026-03-02-09-00-00"
MEASURE = {"caller": "measure", "started_at": "2026-03-02T09:01:00Z", "duration_s": 30,
           "tokens": {"input": 900, "output": 100}}  # fmt: skip
STITCH = {"caller": "stitch", "started_at": "2026-03-02T09:05:00Z", "duration_s": 80,
          "tokens": {"input": 1200, "output": 300}, "loc_before": {"production": 10, "test": 4},
          "loc_after": {"production": 51, "test": 24},
          "diff": {"files": 3, "insertions": 70, "deletions": 2}}  # fmt: skip
STATS = f"""caller: stitch
task_id: "{NEW}-b"
status: success
started_at: 2026-03-02T09:07:00Z
duration_s: 61
tokens:
  input: 20
  output: 200
  cache_creation: 400
  cache_read: 2000
cost_usd: 0.0051
session_id: {SESSION}
"""


def issue(name: str, *records: object, status: str = "closed", **fields: object) -> str:
    comments = [{"text": json.dumps(record)} for record in records]
    own = {"id": name, "title": "words", "status": status, "issue_type": "task", "comments": comments}
    return json.dumps({**own, **fields})


def write(root: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return root


def imported(root: Path, system: str) -> tuple[tuple[ImportedRunRead, ...], list[str]]:
    files = HistoryFiles(root)
    return imported_history(files, system), files.damaged


# Mage -----------------------------------------------------------------------------------------------------------------
def test_generations_are_runs_with_their_issues_and_calls(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path)
    start = repository.commit({"a.go": "a\n"})
    repository.git("tag", f"{OLD}-abandoned")
    repository.git("tag", "-a", "-m", "begun", f"{NEW}-start")
    repository.git("tag", "v1-start")
    repository.git("checkout", "-q", "-b", NEW)
    done = issue(f"{NEW}-a", MEASURE, STITCH, closed_at="2026-03-02T09:06:30Z")
    head = repository.commit({ISSUES: f"{done}\n{issue(f'{NEW}-b', MEASURE, status='open')}\n"})
    repository.git("checkout", "-q", "main")
    write(tmp_path, {"history/20260302-stitch-stats.yaml": STATS})
    (run,), damaged = imported(tmp_path, "mage")
    assert (run.run, run.status, run.base_commit, run.head, damaged) == (f"mage-{NEW}", "running", start, head, [])
    assert run.items == {f"{NEW}-a": "closed", f"{NEW}-b": "open"}
    measure, first, second = run.records
    assert (measure.item, measure.phase, measure.input) == ("", "measure", 900), "once, though two issues have it"
    assert (first.item, first.duration_ms, first.cache_read, first.reported_nanousd) == (f"{NEW}-a", 80_000, None, None)
    assert (first.code_before, first.code_after, first.tests_after, first.insertions) == (10, 51, 24, 70)
    assert (second.item, second.input, second.output, second.reported_nanousd) == (f"{NEW}-b", 2420, 200, 5_100_000)
    assert (second.status, second.code_before) == ("success", None)
    repository.git("tag", f"{NEW}-merged", NEW)
    repository.git("branch", "-q", "-D", NEW)
    ((merged,), _) = imported(tmp_path, "mage")
    assert (merged.status, merged.head, merged.records) == ("merged", head, run.records)


def test_a_folder_of_a_repository_has_nothing_of_its_tags(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path)
    repository.commit({"out/.beads/issues.jsonl": issue("bd-1", STITCH)})
    repository.git("tag", f"{NEW}-start")
    assert [run.run for run in imported(tmp_path / "out", "mage")[0]] == ["mage-out"]


def test_without_tags_the_files_are_one_run(tmp_path: Path) -> None:
    record = {**STITCH, "tokens": {"input": -1}, "duration_s": "long", "loc_before": [], "cost_usd": "NaN"}
    lines = (issue("bd-1", record), "{broken", '{"title": "without an id"}', issue("bd-2", issue_type="epic"), "")
    write(tmp_path / "app", {ISSUES: "\n".join(lines), "history/1-stats.yaml": "caller: nobody\n"})
    (run,), damaged = imported(tmp_path / "app", "mage")
    assert (run.run, run.status, run.base_commit, list(run.items)) == ("mage-app", "", None, ["bd-1"])
    (only,) = run.records
    numbers = (only.input, only.output, only.duration_ms, only.code_before, only.reported_nanousd)
    assert numbers == (None, None, None, None, None)
    assert sorted(damaged) == [".beads/issues.jsonl:2", ".beads/issues.jsonl:3", "history/1-stats.yaml"]


# Monozukuri -----------------------------------------------------------------------------------------------------------
RUN: dict[str, object] = {
    "manifest.json": {"run_id": "run-7", "started_at": "2026-03-01T10:00:00Z", "status": "completed",
                      "completed_at": "2026-03-01T11:00:00Z", "features": [{"feat_id": "gone", "status": "failed"}]},
    "login/state.json": {"feature_id": "login", "status": "pr-created", "created_at": "2026-03-01T10:01:00Z",
                         "updated_at": "2026-03-01T10:50:00Z"},
    "login/results.json": {"status": "completed", "title": "words"},
    "login/cost.json": {"phases": [
        {"phase": "prd", "estimated_tokens": 25_000, "estimated_usd": 0.1, "recorded_at": "2026-03-01T10:05:00Z"},
        {"phase": "code", "estimated_tokens": 60_000, "actual_tokens": 71_234},
    ]},
    "login/logs/x.json": "{}",
    "memory/notes.json": {},
}  # fmt: skip


def at(name: str) -> dict[str, object]:
    return {f"{name}/{path}": content for path, content in RUN.items()}


@pytest.mark.parametrize(("folder", "inner"), [(".monozukuri/runs/7", ""), ("runs/7", ""), ("", ""), ("x", "x")])
def test_runs_are_read_wherever_the_folder_begins(tmp_path: Path, folder: str, inner: str) -> None:
    write(tmp_path, at(folder or "."))
    (run,), damaged = imported(tmp_path / inner, "monozukuri")
    assert (run.run, run.status, damaged) == ("monozukuri-run-7", "completed", [])
    assert run.items == {"gone": "failed", "login": "pr-created"}
    code, prd = run.records
    assert (code.tokens, code.input, code.estimated_tokens, code.reported_nanousd) == (71_234, None, 60_000, None)
    assert (prd.tokens, prd.estimated_nanousd, prd.started_us - code.started_us) == (None, 100_000_000, 240_000_000)


def test_the_older_folder_of_states_is_a_run(tmp_path: Path) -> None:
    write(tmp_path, {".monozukuri/state/login/status.json": {"status": "done"}})
    ((run,), _) = imported(tmp_path, "monozukuri")
    assert (run.run, run.items) == ("monozukuri-state", {"login": "done"})


# both -----------------------------------------------------------------------------------------------------------------
def test_hostile_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = [{"feat_id": "../../secret", "status": "x" * 10_000}, {"feat_id": 7}, "login", None]
    folder = tmp_path / "runs/7"
    write(folder, {"manifest.json": {"features": features}, "a/cost.json": {"phases": [{"phase": "prd"}, 1]},
                   "b/state.json": "[" * 100_000, "c/state.json": '{"status": "done"',
                   "d/state.json": '{"status": "\x00"}', "h/state.json": {"status": "y" * 500}})  # fmt: skip
    (folder / "e").symlink_to("/etc")
    (folder / "f").mkdir()
    os.mkfifo(folder / "f/state.json")
    (folder / "g").mkdir()
    (folder / "g/state.json").write_bytes(b'{"status": "\xff"}')
    monkeypatch.setattr(histories, "FILE_BYTES_MAX", 200_000)
    (folder / "h/results.json").write_text("x" * 300_000)
    (run,), damaged = imported(tmp_path, "monozukuri")
    names = list(run.items)
    assert names[1:] == ["a", "h"]
    assert names[0].startswith("sha256-"), "no name of a path"
    assert sorted(damaged) == [f"runs/7/{name}" for name in (
        "a/cost.json", "b/state.json", "c/state.json", "d/state.json", "f/state.json", "g/state.json", "h/results.json",
    )]  # fmt: skip
    assert run.damaged == len(damaged)
    assert max(map(len, run.items.values())) < 100


def test_what_is_too_much_is_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "ENTRIES_MAX", 2)
    times = (f"2026-03-02T09:0{minute}:00Z" for minute in range(5))
    lines = [issue(f"bd-{number}", {**STITCH, "started_at": time}) for number, time in enumerate(times)]
    write(tmp_path, {ISSUES: "\n".join(lines)})
    ((run,), _) = imported(tmp_path, "mage")
    assert (len(run.items), len(run.records), run.damaged) == (2, 2, 6)


def test_nothing_gives_no_run(tmp_path: Path) -> None:
    assert [imported(tmp_path, system) for system in ("mage", "monozukuri")] == [((), [])] * 2


NUMBERS = (-1, 10**30, 1.5, float("nan"))
VALUES: tuple[object, ...] = (*NUMBERS, None, True, "x", "\0", "9999-12-31T23:59:59Z", [], [[]], {}, {"x": 1})


def altered(document: object) -> Iterator[object]:
    """This document with any other value in one place."""
    yield from VALUES
    if isinstance(document, dict):
        yield from ({**document, key: other} for key, value in document.items() for other in altered(value))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from ([*document[:index], other, *document[index + 1 :]] for other in altered(value))


@pytest.mark.parametrize("name", [name for name in RUN if "/x" not in name])
def test_any_values_of_monozukuri_are_read(tmp_path: Path, name: str) -> None:
    write(tmp_path, at("runs/7"))
    for document in altered(RUN[name]):
        write(tmp_path / "runs/7", {name: document})
        for run in imported(tmp_path, "monozukuri")[0]:
            CODEC.decode(*CODEC.encode(run), "")


def test_any_values_of_mage_are_read(tmp_path: Path) -> None:
    """Also by `mz import PATH`, which counts requests."""
    lines = [issue("bd-1", document) for document in altered(STITCH)]
    lines += [json.dumps(document) for document in altered(json.loads(issue("bd-2", STITCH)))]
    stats = {"history/stats.yaml": "caller:\n  stitch: 1\n", "history/stats2.yaml": "a: [\n"}
    path = write(tmp_path, {ISSUES: "\n".join(lines), **stats})
    ((run,), damaged) = imported(path, "mage")
    CODEC.decode(*CODEC.encode(run), "")
    assert set(stats) <= set(damaged)
    assert take(tmp_path / "data", path / ISSUES).files_read == 1
