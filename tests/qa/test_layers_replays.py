"""Layer 7: cassettes of a project against today; each fault is found with its place and what mends it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from mz_qa.gate.artifacts import check_recorded as recorded_artifacts
from mz_qa.gate.drift import project_library
from mz_qa.gate.replays import check
from mz_qa.gate.run import run_gate
from mz_recordings.findings.model import Finding

from tests.support.gates import checked, findings, project_of
from tests.support.gitrepo import GitRepo
from tests.support.workshop import Copy, clone


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Copy:
    made = clone(recorded, tmp_path / "clone")
    GitRepo(made.root).commit()
    return made


def said_of(copy: Copy) -> list[Finding]:
    return findings(check(project_of(copy.root)))


@pytest.mark.slow
def test_a_library_that_is_as_it_was_recorded(copy: Copy) -> None:
    said = list(check(project_of(copy.root)))
    assert findings(said) == []
    counts = checked(said)
    assert (counts["cassettes"], counts["recordings"]) == (1, 8)
    assert counts["variants"] > 500
    assert findings(recorded_artifacts(project_of(copy.root))) == []


@pytest.mark.slow
def test_a_prompt_and_a_rule_that_have_changed(copy: Copy) -> None:
    copy.edit("pipelines/templates/write.md.j2", "Keep it short.", "Be brief.")
    copy.edit("pipelines/rules/note.yaml", "min: 10", "min: 22")
    result = run_gate(project_of(copy.root), (3, 7))
    artifacts, replays = (layer for layer in result.layers if layer.status != "skipped")
    assert result.first_failure is artifacts
    assert {(one.kind, one.feature, one.call) for one in artifacts.findings} == {
        ("DECISION", "alpha", "sign"),
        ("DECISION", "beta", "sign"),
    }
    assert {one.kind for one in replays.findings} >= {"PROMPT"}
    prompt = next(one for one in replays.findings if one.kind == "PROMPT")
    assert (prompt.file, prompt.line) == ("pipelines/templates/write.md.j2", 2)
    assert prompt.fix == "mz replay recordings/notes --accept PROMPT -m TEXT"
    assert "variants" not in replays.checked, "what drifted is mended first"


def test_a_cassette_that_cannot_be_read(copy: Copy) -> None:
    (copy.place / "alpha" / "write.json").write_text("{")
    (found,) = said_of(copy)
    assert (found.kind, found.file) == ("UNREADABLE", "recordings/notes/cassette.yaml")
    assert found.fix == "git restore recordings/notes"
    assert str(copy.root) not in found.message


def test_a_pipeline_that_is_invalid(copy: Copy) -> None:
    copy.edit("pipelines/notes.yaml", "phases:", "phasen:")
    assert {one.kind for one in said_of(copy)} == {"PIPELINE"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("noise: 3\n", "noise.yaml"),
        ("noise: [{class: FILES, path: a, reason: x}]\n", "entry 1"),
    ],
)
def test_noise_that_cannot_be_used(copy: Copy, text: str, words: str) -> None:
    (copy.root / "recordings" / "noise.yaml").write_text(text)
    known, (wrong,) = project_library(project_of(copy.root))
    assert known.noise == ()
    assert (wrong.kind, wrong.file) == ("PIPELINE", "recordings/noise.yaml")
    assert words in wrong.message
    assert str(copy.root) not in wrong.message


def test_nothing_recorded_is_nothing_checked(tmp_path: Path) -> None:
    project = project_of(tmp_path)
    assert list(check(project)) == []
    (layer,) = (one for one in run_gate(project, (7,)).layers if one.status == "failed")
    assert [one.kind for one in layer.findings] == ["NOTHING-CHECKED"]


def test_cassettes_can_be_named(copy: Copy, tmp_path: Path) -> None:
    library = copy.root / "recordings"
    library.rename(tmp_path / "elsewhere")
    assert project_of(copy.root).cassettes == ()
    project = project_of(copy.root, tmp_path / "elsewhere")
    assert project.cassettes == (tmp_path / "elsewhere" / "notes",)
    assert project.display_path(project.cassettes[0]) == str(tmp_path / "elsewhere" / "notes")
    assert msgspec.structs.replace(project, root=tmp_path).display_path(project.cassettes[0]) == "elsewhere/notes"
