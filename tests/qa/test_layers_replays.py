"""Layer 7: cassettes of a project against the current code; each fault is located, with the command that fixes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_qa.layers.replays import check, check_bundled, read_project_library
from mz_qa.layers.run import run_layers
from mz_qa.variants import play
from mz_recordings.cassette.files import load
from mz_recordings.findings.model import Finding

from tests.support.gates import checked, findings, project_of
from tests.support.gitrepo import GitRepo
from tests.support.tree import ROOT
from tests.support.workshop import Copy, clone

CASSETTE = ROOT / "recordings" / "library" / "trial-claude-code"


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Copy:
    cloned = clone(recorded, tmp_path / "clone")
    GitRepo(cloned.root).commit()
    return cloned


@pytest.fixture
def home(tmp_path: Path) -> Copy:
    """A project whose cassette is one of the repository's; to record one of its own takes seconds."""
    made = Copy(tmp_path / "project")
    shutil.copytree(CASSETTE, made.folder)
    GitRepo(made.root).commit({"mz.yaml": "pipeline: trial\n"})
    return made


def findings_of(copy: Copy) -> list[Finding]:
    return findings(check(project_of(copy.root)))


@pytest.mark.slow
def test_a_library_that_is_as_it_was_recorded(copy: Copy) -> None:
    outputs = list(check(project_of(copy.root)))
    assert findings(outputs) == []
    artifacts = [file for call in load(copy.folder).calls for file in call.recording.files if file.kind == "artifact"]
    assert checked(outputs) == {"cassettes": 1, "recordings": 8, "recorded artifacts": len(artifacts)}


@pytest.mark.slow
def test_a_prompt_and_a_rule_that_have_changed(copy: Copy) -> None:
    copy.edit("pipelines/templates/write.md.j2", "Keep it short.", "Be brief.")
    copy.edit("pipelines/rules/note.yaml", "min: 10", "min: 22")
    result = run_layers(project_of(copy.root), (3, 7))
    artifacts, replays = (layer for layer in result.layers if layer.status != "skipped")
    assert (result.first_failure, artifacts.status) == (replays, "passed"), "recorded artifacts are judged once"
    decisions = {
        (finding.kind, finding.feature, finding.call) for finding in replays.findings if finding.kind == "DECISION"
    }
    assert decisions >= {("DECISION", "alpha", "sign"), ("DECISION", "beta", "sign")}
    prompt = next(finding for finding in replays.findings if finding.kind == "PROMPT")
    assert (prompt.file, prompt.line) == ("pipelines/templates/write.md.j2", 2)
    assert prompt.fix == "mz replay recordings/notes --accept PROMPT -m TEXT"


@pytest.mark.slow
def test_without_a_valid_pipeline_no_recorded_artifact_counts_as_checked(copy: Copy) -> None:
    copy.edit("pipelines/notes.yaml", "phases:", "phasen:")
    outputs = list(check(project_of(copy.root)))
    assert {finding.kind for finding in findings(outputs)} == {"PIPELINE"}
    assert checked(outputs)["recorded artifacts"] == 0


@pytest.mark.slow
def test_every_ending_of_the_bundled_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = list(check_bundled(project_of(tmp_path)))
    assert findings(outputs) == []
    assert checked(outputs)["variants"] > 5000
    monkeypatch.setattr(play, "violations", lambda *_: ("a failure passed as success",))
    finding = next(item for item in check_bundled(project_of(tmp_path)) if isinstance(item, Finding))
    assert (finding.kind, finding.fix) == ("VARIANT", "report it")
    assert finding.message.endswith(": a failure passed as success")


@pytest.mark.slow
def test_a_cassette_that_cannot_be_read(copy: Copy) -> None:
    (copy.folder / "alpha" / "write.json").write_text("{")
    (finding,) = findings_of(copy)
    assert (finding.kind, finding.file) == ("UNREADABLE", "recordings/notes/cassette.yaml")
    assert finding.fix == "git restore recordings/notes"
    assert str(copy.root) not in finding.message


@pytest.mark.parametrize(
    ("text", "value"), [("noise: 3\n", "noise.yaml"), ("noise: [{kind: FILES, path: a, reason: x}]\n", "entry 1")]
)
def test_noise_that_cannot_be_used(home: Copy, text: str, value: str) -> None:
    (home.root / "recordings" / "noise.yaml").write_text(text)
    library, (finding,) = read_project_library(project_of(home.root))
    assert library.noise == ()
    assert (finding.kind, finding.file) == ("PIPELINE", "recordings/noise.yaml")
    assert value in finding.message
    assert str(home.root) not in finding.message


def test_nothing_recorded_is_nothing_checked(tmp_path: Path) -> None:
    project = project_of(tmp_path)
    assert list(check(project)) == []
    (layer,) = (layer for layer in run_layers(project, (7,)).layers if layer.status == "failed")
    assert [finding.kind for finding in layer.findings] == ["NOTHING-CHECKED"]


def test_cassettes_can_be_named(home: Copy, tmp_path: Path) -> None:
    library = home.root / "recordings"
    library.rename(tmp_path / "elsewhere")
    assert project_of(home.root).cassettes == ()
    project = project_of(home.root, tmp_path / "elsewhere")
    assert project.cassettes == (tmp_path / "elsewhere" / "notes",)
    assert project.display_path(project.cassettes[0]) == str(tmp_path / "elsewhere" / "notes")
    assert replace(project, root=tmp_path).display_path(project.cassettes[0]) == "elsewhere/notes"
