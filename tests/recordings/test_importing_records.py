"""What Monozukuri and Mage wrote down is read, and adds nothing to what agents' own files tell already.

The files are made by hand, after the descriptions of both.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mz_recordings.importing.importer import UnpricedModel

from tests.support.sessionfiles import SESSION, request, sums, take, views, write

COST = {
    "feature_id": "login", "created_at": "2026-03-01T10:00:00Z", "prior_tokens": 0, "cumulative_tokens": 90_000,
    "cumulative_usd": 0.41,
    "phases": [
        {"phase": "prd", "estimated_tokens": 25_000, "estimated_usd": 0.1, "recorded_at": "2026-03-01T10:05:00Z"},
        {"phase": "code", "estimated_tokens": 60_000, "estimated_usd": 0.3, "recorded_at": "2026-03-01T10:20:00Z",
         "actual_tokens": 71_234},
    ],
}  # fmt: skip
EVENTS = (
    {"type": "run.started", "ts": "2026-03-01T10:00:00Z", "run_id": "run-7", "agent": "claude-code", "model": "opus"},
    {"type": "feature.started", "ts": "2026-03-01T10:00:01Z", "run_id": "run-7", "feature_id": "login"},
    {"type": "skill.completed", "ts": "2026-03-01T10:00:02Z", "run_id": "run-7", "skill": "mz-code"},
    {"type": "phase.progress", "ts": "2026-03-01T10:00:47Z", "run_id": "run-7", "tokens_used": 900},
)
RECORD = {"caller": "stitch", "started_at": "2026-03-02T09:00:00Z", "duration_s": 80, "loc_before": {"production": 1},
          "tokens": {"input": 1200, "output": 300}}  # fmt: skip
ISSUE = {"id": "bd-12", "title": "words", "comments": [{"text": json.dumps(RECORD)}, {"text": "just words"}]}
STATS = f"""caller: stitch
task_id: "12"
status: success
started_at: 2026-03-01T12:00:00Z
duration_s: 61
tokens:
  input: 20
  output: 200
  cache_creation: 400
  cache_read: 2000
cost_usd: 0.0051
num_turns: 4
session_id: {SESSION}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_what_was_counted_is_taken_and_estimates_are_not(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "run/login/cost.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(COST, indent=2))
    outcome = take(home, path)
    assert (outcome.new_requests, outcome.unpriced) == (1, (UnpricedModel("unknown", 1),))
    (row,) = sums(home)
    assert (row.session, row.model, row.input, row.output) == ("session/monozukuri/login", "", 71_234, 0)
    path.write_text(json.dumps({**COST, "cumulative_usd": 0.5}, indent=2))
    assert take(home, path).already_counted_requests == 1


def test_events_tell_of_runs_but_not_of_tokens(home: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "events.jsonl", [json.dumps(event).encode() for event in EVENTS])
    assert take(home, path).new_requests == 0
    with views(home) as imported_store:
        (file,) = imported_store.files()
    assert (file.session, file.read.prompts, file.read.tools) == ("session/monozukuri/run-7", 1, {"mz-code": 1})


def test_invocation_records_are_found_among_the_comments_of_issues(home: Path, tmp_path: Path) -> None:
    path = write(tmp_path / ".beads/issues.jsonl", [json.dumps(ISSUE).encode(), b'{"id": "bd-13", "comments": []}'])
    take(home, path)
    (row,) = sums(home)
    assert (row.session, row.input, row.output, row.unpriced) == ("session/mage/bd-12", 1200, 300, 1)


def test_a_measure_is_on_each_issue_that_it_made_and_counts_once(home: Path, tmp_path: Path) -> None:
    comments = [{"text": json.dumps({**RECORD, "caller": "measure"})}]
    lines = [json.dumps({**ISSUE, "id": name, "comments": comments}).encode() for name in ("bd-1", "bd-2")]
    assert take(home, write(tmp_path / "issues.jsonl", lines)).new_requests == 1


@pytest.mark.parametrize("stats_first", [True, False])
def test_a_record_of_a_session_adds_only_what_its_files_do_not_tell(
    home: Path, tmp_path: Path, stats_first: bool
) -> None:
    stats = tmp_path / "history/20260302-stitch-stats.yaml"
    stats.parent.mkdir()
    stats.write_text(STATS)
    log = write(tmp_path / "projects/a.jsonl", [request(1), request(2)])
    for path in (stats, log) if stats_first else (log, stats):
        take(home, path)
    rows = sums(home)
    assert {row.session for row in rows} == {f"session/claude-code/{SESSION}"}
    assert (sum(row.input for row in rows), sum(row.output for row in rows)) == (2420, 200)
    assert sum(row.reported_nanousd or 0 for row in rows) == 5_100_000
    assert sum(row.unpriced for row in rows) == 0


def test_a_record_alone_counts_without_a_price(home: Path, tmp_path: Path) -> None:
    stats = tmp_path / "stats.yaml"
    stats.write_text(STATS)
    take(home, stats)
    (row,) = (row for row in sums(home) if row.requests)
    assert (row.model, row.input, row.output, row.unpriced) == ("", 2420, 200, 1)
