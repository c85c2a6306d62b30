"""A pipeline that merges into the base itself: run, looked at, recorded, replayed, cleaned."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.drive import Result, fork
from tests.support.preloaded import read_at_start
from tests.support.workshop import PIPELINE, Copy, Workshop, clone

pytestmark = pytest.mark.slow

DELIVER = "deliver: [merge_base, push, open_pr]"
EDITS = "edits: {seed: {delete: [old], write: {seeds/first.txt: edits/seed.j2}}}\n"
STEPS = 'deliver: [merge_base, merge, {tag: "{item}-{date}", at: merge}, close_branch]'


def mz(made: Workshop, *arguments: str, code: int = 0) -> Result:
    environment = {**made.environment, **read_at_start(os.environ), "NO_COLOR": "1"}
    done = fork(made.root, arguments, environment, seconds=200)
    assert done.exit == code, f"{arguments} gave {done.exit}\n{done.out}\n{done.err}"
    return done


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workshop, str]:
    made = Workshop(tmp_path_factory.mktemp("merged"), settings=EDITS)
    pipeline = PIPELINE.replace(DELIVER, STEPS).replace("  prompt: write", "  edit: seed\n  prompt: write")
    template = "{{ base }}, {{ title }}\n"
    made.repository.write({"pipelines/notes.yaml": pipeline, "pipelines/templates/edits/seed.j2": template, "old": "1"})
    made.repository.commit()
    made.repository.write({"draft.txt": "mine"})
    return made, made.run()


def test_the_base_has_what_was_made_and_the_checkout_too(merged: tuple[Workshop, str]) -> None:
    made, _ = merged
    git = made.repository.git
    subjects = git("log", "--first-parent", "--format=%s", "main").splitlines()
    assert subjects[:2] == ["Merge branch 'feat/beta' into main", "Merge branch 'feat/alpha' into main"]
    assert (made.root / "letters/beta.md").read_text() == "# Letter\nabout beta\n"
    assert git("status", "--short", "--", ".", ":!recordings") == "?? draft.txt", "other tests record it"
    assert (made.root / "seeds/first.txt").read_text() == "main, The second\n"
    assert not (made.root / "old").exists()
    assert git("branch", "--format=%(refname:short)") == "main"
    tags = git("tag", "--format=%(refname:short) %(objectname)").splitlines()
    assert [tag.split("-")[0] for tag in tags] == ["alpha", "beta"]
    assert tags[1].split()[1] == made.repository.head("main")


def test_what_was_merged_is_told_everywhere(merged: tuple[Workshop, str]) -> None:
    made, run = merged
    head = made.repository.head("main")
    features = json.loads(mz(made, "status", "--json").out)["features"]
    assert [feature["status"] for feature in features] == ["merged", "merged"]
    assert features[1]["landed"] == {"branch": "main", "commit": head}
    for command in (("status", run), ("show", "beta"), ("log", "beta"), ("audit", run)):
        assert head[:7] in mz(made, *command).out, command
    mz(made, "audit", "--verify")
    mz(made, "replay", "--run", run)


def test_its_recording_is_replayed_in_memory_and_with_processes(merged: tuple[Workshop, str], tmp_path: Path) -> None:
    made, run = merged
    recorded = made.record(run)
    assert recorded.unrecordable == ()
    made.keep(recorded.cassette)
    assert Copy(made.root).settle(keep=True).findings == ()
    copy = clone(made.root, tmp_path / "clone")
    played = copy.settle()
    assert played.findings == ()
    assert played.calls_replayed == played.recordings
    assert copy.settle(seed=7, features_parallel=2, real=True).findings == ()


def test_cleaning_drops_the_closed_heads(merged: tuple[Workshop, str]) -> None:
    made, run = merged
    closed = f"refs/mz/{run}/closed/"
    assert len(made.repository.git("for-each-ref", closed).splitlines()) == 2
    mz(made, "clean", "--yes")
    assert made.repository.git("for-each-ref", closed) == ""
    assert made.repository.git("tag").splitlines() != []


def test_a_base_that_is_no_branch_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    made = Workshop(tmp_path, settings="base: v1\n")
    made.repository.write({"pipelines/notes.yaml": PIPELINE.replace(DELIVER, STEPS)})
    made.repository.commit()
    made.repository.git("tag", "v1")
    refused = mz(made, "run", code=10)
    assert "error[MZ2013] mz.yaml:5:7 `base`: notes merges into it, and v1 is no local branch" in refused.err
