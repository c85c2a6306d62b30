"""`mz record`, `mz run --record` and `mz replay`: what they print, and the exit code that each finding has."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from mz_cli.replay.command import print_progress, render_text, summary
from mz_cli.replay.faults import bundled_cassettes
from mz_cli.reports.findings import fix_command
from mz_cli.terminal.text import plain_text
from mz_engine.errors.diagnostics import Exit
from mz_recordings.cassette.files import load, save
from mz_recordings.cassette.model import FORMAT
from mz_recordings.findings.model import KIND_PROPERTIES, Finding, ReplayResult
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, spawn
from tests.support.gitrepo import GitRepo
from tests.support.workshop import Copy, Workshop, clone

PROMPT = Finding(
    kind="PROMPT", message="the prompt differs from the recording", feature="alpha", call="write", cause="write.md.j2",
    detail=("@@ -1 +1 @@", "-Keep it short.", "+Be brief."), fix="mz replay {cassette} --accept PROMPT -m TEXT",
)  # fmt: skip
MISSING = Finding(
    kind="MISSING", message="the current pipeline makes a call that was not recorded", feature="beta", call="sign.a2",
    detail=("  nearest: beta/sign (attempt 1)",), fix="mz run && mz record --to {cassette} --replace",
)  # fmt: skip
RESULTS = (
    ReplayResult(
        path="recordings/a b",
        name="a b",
        recordings=3,
        calls_replayed=3,
        accepted_replies=1,
        findings=(PROMPT, MISSING),
    ),
    ReplayResult(
        path="recordings/c",
        name="c",
        recordings=2,
        calls_replayed=2,
        findings=(replace(PROMPT, call="sign", feature="gamma"),),
        changes=("removed 1 unused recordings: beta/sign.a2",),
    ),
)


# pages ----------------------------------------------------------------------------------------------------------------
def test_the_report(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(plain_text(line) for line in render_text(RESULTS)) == snapshot


def test_the_sum_of_what_is_as_recorded() -> None:
    clean = (ReplayResult(path="a", name="a", recordings=2, calls_replayed=2, offline=False),)
    assert summary(clean) == "1 cassette, 2 recordings replayed, network not cut off: matches the recording"


def test_a_command_that_mends_can_be_copied() -> None:
    assert fix_command(PROMPT.fix, ("recordings/a b",)) == "mz replay 'recordings/a b' --accept PROMPT -m TEXT"


def test_every_kind_has_the_exit_code_of_its_meaning() -> None:
    assert {kind: KIND_PROPERTIES[kind].exit for kind in ("PROMPT", "MISSING", "NETWORK", "UNREADABLE")} == {
        "PROMPT": Exit.DRIFT,
        "MISSING": Exit.RECORDING,
        "NETWORK": Exit.NETWORK,
        "UNREADABLE": Exit.NOT_COMPARABLE,
    }


def test_the_name_of_a_folder_is_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    print_progress(ReplayResult(path="evil\n::error file=x::pwned\u2028::y", name="evil"), 2)
    assert capsys.readouterr().err == "evil ::error file=x::pwned ::y: matches the recording (0.0 s)\n"


# wrong use ------------------------------------------------------------------------------------------------------------
def test_nothing_to_replay_is_no_success(empty: Path, mz: Mz) -> None:
    result = mz("replay")
    assert result.exit == 4
    assert result.err.startswith("error[MZ6001] no cassette in recordings\nhint: record a run first")
    (empty / "mz.yaml").write_text("recordings: tapes/of/agents\n")
    assert "no cassette in tapes/of/agents" in mz("replay").err


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("args", [("--accept", "PROMPT"), ("-m", "x"), ("--accept", "PROMPT", "-m", " ")])
def test_who_accepts_says_why(mz: Mz, args: tuple[str, ...]) -> None:
    result = mz("replay", *args)
    assert result.exit == 2
    assert "--accept and -m go together" in result.err


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("args", [("--bundled", "--prune"), ("--variants", "--prune"), ("--inject", "a=b", "--prune")])
def test_altered_recordings_are_not_updated(mz: Mz, args: tuple[str, ...]) -> None:
    answer = mz("replay", *args)
    assert (answer.exit, answer.err[:14]) == (2, "error[MZ1002] ")


@pytest.mark.slow
def test_several_cassettes_are_played_at_once(mz: Mz) -> None:
    answer = mz("replay", *map(str, bundled_cassettes()[-2:]), "-j", "2", "--json")
    assert len(msgspec.json.decode(answer.out)["cassettes"]) == 2, answer.err


def test_nothing_to_record(mz: Mz) -> None:
    assert "MZ5001" in mz("record").err
    assert mz("run", "--record", "--dry-run").exit == 2


REPLAYED = "1 cassette, 8 recordings replayed, 3 commands answered"


# the real thing -------------------------------------------------------------------------------------------------------
@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Copy:
    made = clone(recorded, tmp_path / "clone")
    GitRepo(made.root).commit()
    return made


@pytest.mark.slow
def test_a_run_is_recorded_and_played(recorded: Path, tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    shutil.rmtree(workshop.root)
    shutil.copytree(recorded, workshop.root, symlinks=True)
    shutil.rmtree(workshop.root / "recordings")
    made = spawn(workshop.root, "record", "--json", "--max-age", "90", **workshop.environment)
    assert made.exit == 0, made.err
    result = json.loads(made.out)
    assert (result["schema"], result["cassette"]) == ("mz.record/1", "recordings/notes-claude-code")
    assert (result["recordings"], result["features"], result["provenance"]) == (8, ["alpha", "beta"], "live")
    assert load(workshop.root / result["cassette"]).manifest.max_age_days == 90

    assert "* -text" in (workshop.root / "recordings" / ".gitattributes").read_text()

    again = spawn(workshop.root, "record", **workshop.environment)
    assert again.exit == 4
    assert "MZ6002" in again.err
    assert "--replace" in again.err
    elsewhere = spawn(workshop.root, "record", "--to", "tapes/mine", "--provenance", "copied", **workshop.environment)
    assert elsewhere.out == "tapes/mine: 8 recordings of 2 features, copied\n"
    assert spawn(workshop.root, "record", "--replace", **workshop.environment).exit == 0
    assert spawn(workshop.root, "record", "--to", "pipelines", **workshop.environment).exit == 125

    played = spawn(workshop.root, "replay", **workshop.environment)
    assert played.out == f"{REPLAYED}, network cut off: matches the recording\n"
    assert played.exit == 0
    seeded = spawn(workshop.root, "replay", "tapes", **workshop.environment)
    assert seeded.exit == 4
    assert "COPIED" in seeded.out


@pytest.mark.slow
def test_a_run_that_records_says_before_it_is_paid_that_it_could_not(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    done = spawn(workshop.root, "run", "--record", "--feature", "alpha", **workshop.environment)
    assert done.exit == 21
    assert "recordings/notes-claude-code: 3 recordings of 1 feature, live" in done.err
    refused = spawn(workshop.root, "run", "--record", **workshop.environment)
    assert refused.exit == 4
    assert "MZ6002" in refused.err
    assert "beta" not in spawn(workshop.root, "log").out


@pytest.mark.slow
def test_a_changed_prompt_is_one_finding_until_it_is_accepted(copy: Copy, snapshot: SnapshotAssertion) -> None:
    copy.edit("pipelines/templates/write.md.j2", "Keep it short.", "Be brief.")
    drifted = spawn(copy.root, "replay", "-j", "2")
    assert drifted.exit == 3
    assert drifted.out == snapshot
    accepted = spawn(copy.root, "replay", "--accept", "PROMPT", "-m", "shorter", "--json")
    result = json.loads(accepted.out)
    assert (result["schema"], result["exit"], accepted.exit) == ("mz.replay/1", 0, 0)
    assert result["cassettes"][0]["accepted_replies"] == 5
    after = spawn(copy.root, "replay")
    assert after.out == f"{REPLAYED}, network cut off, 5 replies accepted for changed prompts: matches the recording\n"


@pytest.mark.slow
def test_several_findings_end_with_the_gravest(copy: Copy) -> None:
    """Not comparable, of another pipeline, and drifted."""
    save(copy.cassette(), copy.folder.parent / "damaged")
    (copy.folder.parent / "damaged" / "alpha" / "write.patch").write_text("other")
    save(copy.cassette(), copy.folder.parent / "newer")
    manifest = copy.folder.parent / "newer" / "cassette.yaml"
    manifest.write_text(manifest.read_text().replace(f"format: {FORMAT}", "format: 9", 1))
    result = spawn(copy.root, "replay", "-j", "2", "--json")
    kinds = {
        entry["name"]: [item["kind"] for item in entry["findings"]] for entry in json.loads(result.out)["cassettes"]
    }
    assert kinds == {"damaged": ["UNREADABLE"], "newer": ["UNREADABLE"], "notes": []}
    assert result.exit == 125
    copy.edit("pipelines/templates/sign.md.j2", "Sign", "Please sign")
    assert spawn(copy.root, "replay").exit == 3


@pytest.mark.slow
def test_a_pipeline_that_is_gone(copy: Copy) -> None:
    (copy.root / "pipelines" / "notes.yaml").unlink()
    result = spawn(copy.root, "replay")
    assert result.exit == 10
    assert "there is no pipeline `notes`" in result.out
