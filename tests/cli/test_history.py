"""`mz replay --run`, `--recheck-rules` and `--bisect`: what they print, and their exit codes."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_cli.replay.command import clamp_exit, failing_by_commit
from mz_cli.replay.command import replay_exit as exit_of_replay
from mz_cli.replay.past_runs import history_exit, past_run, recheck_summary, recheck_text, render_text, summary
from mz_cli.terminal.text import plain_text
from mz_engine.errors.diagnostics import Exit
from mz_engine.model.rules import RuleFinding
from mz_events.catalog.validation import Violation
from mz_events.names import StreamId
from mz_recordings.cassette.files import save
from mz_recordings.findings.model import Finding, ReplayResult
from mz_recordings.past_runs.model import Divergence, EventFieldDifference, RunReplay, StreamReplay
from mz_recordings.past_runs.recheck import Recheck, RuleChange
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import MZ, Mz, spawn
from tests.cli.stored_run import RUN, StoredRun
from tests.support.gitrepo import GitRepo
from tests.support.programs import finished
from tests.support.tapes import git
from tests.support.workshop import clone

PROMPT = Divergence(
    event_ref="run/r1/alpha@12",
    kind="arguments",
    finding="PROMPT",
    recorded="agent.requested",
    produced="agent.requested",
    differences=(
        EventFieldDifference(
            field="prompt", recorded='"1"', produced='"2"', lines=("@@ -1 +1 @@", "-Be brief.", "+Be kind.")
        ),
        EventFieldDifference(field="estimated_tokens", recorded="2003", produced="2004"),
    ),
)
EXTRA = Divergence(
    event_ref="run/r1/alpha@40", kind="extra", finding="TRACE", recorded="unit.started", produced="phase.started"
)
EXPLAINED = Divergence(
    event_ref="run/r1/alpha@50", kind="order", finding="TRACE", recorded="call.priced", produced="call.priced",
    intended_change="some-change",
)  # fmt: skip
HISTORY = RunReplay(
    run="r1",
    mz_version="0.1.0",
    streams=(
        StreamReplay(stream=StreamId("run/r1"), events=9, compared=4),
        StreamReplay(
            stream=StreamId("run/r1/alpha"),
            events=60,
            compared=40,
            not_compared=3,
            not_recomputed={"prices of another table": 2},
            divergences=(PROMPT, EXTRA, EXPLAINED),
        ),
    ),
)
JUDGED = Recheck(
    run="r1",
    artifacts=3,
    not_recomputed=Counter({"texts that were erased or lost": 1}),
    rule_changes=[
        RuleChange(
            run="r1",
            feature="alpha",
            event_ref="run/r1/alpha@9",
            phase="write",
            artifact="note",
            path="notes/alpha.md",
            rule_set="note",
            now_fails=True,
            violations=(
                RuleFinding(
                    violation=Violation(rule="note.bytes", path="notes/alpha.md"), message="too short [note.bytes]"
                ),
            ),
        ),
        RuleChange(
            run="r1",
            feature="alpha",
            event_ref="run/r1/alpha@19",
            phase="write",
            artifact="verdict",
            path="",
            rule_set="verdict",
            now_fails=False,
            violations=(RuleFinding(violation=Violation(rule="verdict.json", path="verdict", line=1), message=""),),
        ),
    ],
)


# pages ----------------------------------------------------------------------------------------------------------------
def test_the_report_of_a_past_run(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(plain_text(line) for line in render_text(HISTORY)) == snapshot
    assert history_exit(HISTORY) is Exit.DRIFT


def test_what_is_as_recorded_is_one_line() -> None:
    clean = RunReplay(run="r1", mz_version="0.1.0", streams=HISTORY.streams[:1])
    assert [plain_text(line) for line in render_text(clean)] == [summary(clean)]
    assert summary(clean) == "run r1 (mz 0.1.0): 9 events in 1 stream, 4 compared: matches the log"
    assert history_exit(clean) is Exit.OK


def test_code_that_breaks_off_is_a_bug_and_no_verdict() -> None:
    failure = Divergence(
        event_ref="run/r1@3", kind="failure", finding="TRACE", recorded="x", produced=None, note="KeyError"
    )
    stream = StreamReplay(stream=StreamId("run/r1"), events=9, compared=4, divergences=(failure,))
    history = RunReplay(run="r1", mz_version="0", streams=(stream,))
    assert history_exit(history) is Exit.BUG
    assert past_run(history, Exit.BUG).divergences[0].note == "KeyError"


def test_the_report_of_old_artifacts(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(plain_text(line) for line in recheck_text((JUDGED,))) == snapshot
    same = Recheck(run="r1", artifacts=1)
    actual = recheck_summary((same, same))
    assert actual == "2 artifacts of 2 runs rechecked with the current rules: all verdicts are unchanged"


# words ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "--run r recordings",
        "--recheck-rules recordings",
        "--run r -j 2",
        "--recheck-rules --shuffle 3",
        "--run r --variants",
    ],
)
def test_a_past_run_takes_nothing_that_is_for_cassettes(stored_run: StoredRun, mz: Mz, text: str) -> None:
    result = mz("replay", *text.split())
    assert result.exit == 2
    assert "replays runs of the log" in result.err


def test_an_unknown_run(stored_run: StoredRun, mz: Mz) -> None:
    result = mz("replay", "--run", "nope")
    assert "MZ5001" in result.err
    assert result.exit not in (0, 3)


def test_pins_that_are_gone_are_not_comparable(stored_run: StoredRun, mz: Mz) -> None:
    result = mz("replay", "--run", RUN)
    assert (result.exit, "MZ6010" in result.err) == (125, True), result


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 3), (4, 4), (1, 125), (2, 125), (70, 125), (130, 125)])
def test_only_verdicts_are_verdicts_for_git(code: int, expected: int) -> None:
    assert clamp_exit(code) == expected


@pytest.mark.parametrize("text", ["--run nope", "--frob", "--accept PROMPT", "recordings", "--recheck-rules x"])
def test_whatever_is_no_verdict_is_skipped(stored_run: StoredRun, mz: Mz, text: str) -> None:
    result = mz("replay", "--bisect", *text.split())
    assert result.exit == 125
    assert result.err.startswith("error[")


def test_no_commit_is_blamed_for_the_clock_or_for_where_answers_are_from() -> None:
    """They come and go whatever is changed, so no verdict may rest on them."""
    aged = Finding(kind="EXPIRED", message="old"), Finding(kind="COPIED", message="copied")
    drift, broken = Finding(kind="PROMPT", message="other"), Finding(kind="UNREADABLE", message="damaged")
    for findings, usual, bisected in ((aged, 4, 0), ((*aged, drift), 3, 3), ((*aged, broken), 4, 125), ((), 0, 0)):
        results = (ReplayResult(path="a", name="a", findings=findings),)
        assert (exit_of_replay(results), exit_of_replay(failing_by_commit(results), True)) == (usual, bisected)
    crashed = (ReplayResult(path="a", name="a", findings=(Finding(kind="PIPELINE", message="invalid"),)),)
    assert (exit_of_replay(crashed), exit_of_replay(failing_by_commit(crashed), True)) == (10, 125)


# the real thing -------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_real_run_in_words_as_json_and_for_reports(recorded: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    shutil.copytree(recorded, root, symlinks=True)
    done = spawn(root, "replay", "--run", "r")
    assert done.exit == 0, done.err
    assert done.out.endswith("compared: matches the log\n")
    reported = json.loads(spawn(root, "replay", "--run", "r", "--json").out)
    name = reported["run"]
    assert (reported["schema"], reported["exit"], reported["divergences"]) == ("mz.replay-run/1", 0, [])
    actual = [stream["stream"] for stream in reported["streams"]]
    assert actual == [f"run/{name}", f"run/{name}/alpha", f"run/{name}/beta"]

    rules = root / "pipelines" / "rules" / "note.yaml"
    rules.write_text(rules.read_text().replace("min: 10", "min: 24"))
    result = spawn(root, "replay", "--recheck-rules", "--junit", "judge.xml")
    assert result.exit == 3
    assert "now fails (note)" in result.out
    assert "note.bytes" in (root / "judge.xml").read_text()
    reported = json.loads(spawn(root, "replay", "--recheck-rules", "--run", name, "--json").out)
    assert (reported["schema"], reported["exit"]) == ("mz.replay-recheck/1", 3)
    assert {(item["was"], item["now"]) for item in reported["differing"]} == {("valid", "invalid")}
    assert spawn(root, "replay", "--run", name).exit == 0  # It has its own rules.
    rules.write_text("name: [")
    assert spawn(root, "replay", "--recheck-rules", "--bisect").exit == 125


@pytest.mark.slow
def test_git_finds_the_commit_that_changed_a_prompt(recorded: Path, tmp_path: Path) -> None:
    """Six commits: one edits a template, one is broken and is skipped."""
    copy = clone(recorded, tmp_path / "clone")
    repository = GitRepo(copy.root)
    commits = [repository.commit()]
    repository.write({"other.txt": "1"})
    commits.append(repository.commit())
    pipeline = (copy.root / "pipelines" / "notes.yaml").read_text()
    repository.write({"pipelines/notes.yaml": "phases: ["})
    commits.append(repository.commit())
    repository.write({"pipelines/notes.yaml": pipeline})
    commits.append(repository.commit())
    copy.edit("pipelines/templates/write.md.j2", "Keep it short.", "Be brief.")
    commits.append(repository.commit())
    repository.write({"other.txt": "2"})
    commits.append(repository.commit())

    git(copy.root, "bisect", "start", commits[-1], commits[0])
    done = finished("git", "bisect", "run", *MZ, "replay", "--bisect", "-j", "2", cwd=copy.root, seconds=250)
    assert f"{commits[4]} is the first bad commit" in done.stdout, done
    git(copy.root, "checkout", "--quiet", commits[2])
    broken = spawn(copy.root, "replay", "--bisect", "--json", "--sarif", "mz.sarif")
    assert (broken.exit, json.loads(broken.out)["exit"]) == (125, 125), broken
    assert json.loads((copy.root / "mz.sarif").read_text())["runs"][0]["invocations"][0]["exitCode"] == 125


@pytest.mark.slow
def test_a_library_that_has_expired_still_finds_the_commit(recorded: Path, tmp_path: Path) -> None:
    copy = clone(recorded, tmp_path / "clone")
    cassette = copy.cassette()
    manifest = replace(cassette.manifest, max_age_days=30)
    used = tuple(
        call._replace(recording=replace(call.recording, recorded_at="2020-01-01T00:00:00Z")) for call in cassette.calls
    )
    save(cassette._replace(manifest=manifest, calls=used), copy.folder, replace=True)
    GitRepo(copy.root).commit()
    assert spawn(copy.root, "replay").exit == 4
    result = spawn(copy.root, "replay", "--bisect", "--json", "--junit", "junit.xml")
    shown = json.loads(result.out)
    assert (result.exit, shown["exit"]) == (0, 0)
    assert [item["kind"] for item in shown["cassettes"][0]["findings"]] == ["EXPIRED"]
    assert 'failures="0"' in (copy.root / "junit.xml").read_text()
    copy.edit("pipelines/templates/write.md.j2", "Keep it short.", "Be brief.")
    assert spawn(copy.root, "replay", "--bisect").exit == 3
