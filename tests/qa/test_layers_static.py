"""Layer 1: what a project's own files may get wrong is found with its place; a fresh project is sound."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_qa.layers.static import check

from tests.cli.drive import run
from tests.support.examples import first_of_each
from tests.support.gates import checked, findings, project_of, remarks
from tests.support.gitrepo import GitRepo
from tests.support.workshop import ASK, BACKLOG, PIPELINE, RULES, SETTINGS, SIGN, WRITE

SOUND = {
    "mz.yaml": SETTINGS,
    "features.md": BACKLOG,
    "pipelines/notes.yaml": PIPELINE,
    "pipelines/rules/note.yaml": RULES,
    "pipelines/templates/write.md.j2": WRITE,
    "pipelines/templates/sign.md.j2": SIGN,
}


def write(root: Path, **changed: str) -> Path:
    """The sound project with other texts for some of its files, each named by its last part."""
    files = {name: changed.get(name.rpartition("/")[2].partition(".")[0], text) for name, text in SOUND.items()}
    GitRepo(root).write(files)
    return root


def test_a_project_that_has_just_begun_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    GitRepo(tmp_path).commit({"README.md": "x"})
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "init").exit == 0
    output = list(check(project_of(tmp_path)))
    assert findings(output) == []
    assert checked(output)["pipelines"] == 1
    assert checked(output)["backlog items"] == 1


def test_a_pipeline_of_ones_own_passes_and_its_prompts_are_made(tmp_path: Path) -> None:
    output = list(check(project_of(write(tmp_path))))
    assert findings(output) == []
    assert checked(output)["files of the project's own"] == 3
    assert checked(output)["prompts"] == 2 * 6, "two phases"
    assert "pipelines/notes.yaml: write.md.j2 does not state all rules to the agent of phase write; missing: 2" in (
        remarks(output)
    )


@pytest.mark.parametrize(
    ("changed", "file", "line", "text"),
    first_of_each([
        ({"mz": "pipeline: notes\nbudgte: 3\n"}, "mz.yaml", 2, "MZ2005"),
        ({"mz": "pipeline: nothing\n"}, "pipelines/nothing.yaml", None, "MZ3001"),
        ({"mz": f"{SETTINGS}agent: copycat\n"}, "mz.yaml", 5, "unknown agent 'copycat'"),
        ({"mz": "pipeline: notes\n"}, "pipelines/notes.yaml", 9, "mz.yaml has no command `check`"),
        ({"notes": PIPELINE.replace("to: write}", "to: nowhere}")}, "pipelines/notes.yaml", 16, "nowhere"),
        ({"notes": PIPELINE.replace("rules: note}", "rules: notes}", 1)}, "pipelines/notes.yaml", 8, "notes"),
        ({"note": RULES.replace("kind: bytes", "kind: byte")}, "pipelines/rules/note.yaml", None, "MZ3018"),
        ({"write": "{% if %}"}, "pipelines/templates/write.md.j2", 1, "MZ3017"),
        ({"write": f"one\n{{{{ inputs.nothing }}}}\n{ASK}"}, "pipelines/templates/write.md.j2", 2,
         "as the first prompt"),
        ({"write": f"{{% if rework %}}{{{{ rework.why }}}}{{% endif %}}{ASK}"}, "pipelines/templates/write.md.j2", 1,
         "cannot be rendered as a rework: "),
        ({"features": "## [FEAT] a b: c\n"}, "features.md", 1, "MZ40"),
    ], lambda _: None),
)  # fmt: skip
def test_a_fault_is_found_with_its_place(
    tmp_path: Path, changed: dict[str, str], file: str, line: int | None, text: str
) -> None:
    result = findings(check(project_of(write(tmp_path, **changed))))
    assert [finding.kind for finding in result] == ["PIPELINE"] * len(result)
    assert any(item.file == file and text in item.message and line in (None, item.line) for item in result), result


def test_one_broken_line_of_a_template_is_one_finding(tmp_path: Path) -> None:
    result = findings(check(project_of(write(tmp_path, write=f"{{{{ inputs.nothing }}}}{ASK}"))))
    assert len(result) == 1
