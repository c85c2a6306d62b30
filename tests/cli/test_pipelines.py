"""`mz pipelines`: what there is, what one does, what is wrong with it, and the beginning of another."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec
import pytest
from mz_engine.pipelines.load import PipelineSource, built_in_pipelines, load_pipeline, load_pipeline_files
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, decoded, on_terminal
from tests.support.tree import ROOT

TRIAL = (ROOT / "pipelines" / "trial.yaml").read_text("utf-8")
BROKEN = """\
pipeline: broken
version: 1
phases:
- phase: code
  agent: {}
  prompt: cod.md.j2
  inputs: [{artifact: plan}]
  outputs: [{artifact: code, path: "tasks/{feature}/code.md", rules: cod}]
  on_block: [{cause: code, to: code, max_times: 0}]
- phase: pr
  deliver: [await_checks, open_pr, push, push, merge_base]
"""


def give(home: Path, name: str, text: str) -> None:
    (home / "pipelines").mkdir(exist_ok=True)
    (home / "pipelines" / f"{name}.yaml").write_text(text)


def commands(home: Path, *names: str) -> None:
    (home / "mz.yaml").write_text("commands:\n" + "".join(f"  {name}: 'true'\n" for name in names))


def test_those_of_the_repository_come_first(home: Path, mz: Mz) -> None:
    give(home, "broken", BROKEN)
    give(home, "torn", "phases: [")
    (home / "mz.yaml").write_text("pipeline: torn\n")
    summary = msgspec.json.decode(mz("pipelines", "list", "--json").out)["pipelines"]
    assert [(entry["name"], entry["file"], entry["chosen"]) for entry in summary] == [
        ("broken", "pipelines/broken.yaml", False),
        ("torn", "pipelines/torn.yaml", True),
        *((name, None, False) for name in built_in_pipelines()),
    ]
    assert [item["errors"] > 0 for item in summary[:2]] == [True, True]
    assert summary[1]["phases"] == []


def test_outside_of_a_repository_the_built_in_ones_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mz: Mz
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "monozukuri\tyes\tbuilt in" in mz("pipelines", "list").out


def test_everything_that_a_pipeline_does_is_shown(home: Path, mz: Mz, snapshot: SnapshotAssertion) -> None:
    give(home, "trial", TRIAL)
    assert mz("pipelines", "show", "trial").out == snapshot
    assert mz("pipelines", "show", "trial", "--yaml").out == TRIAL


def test_a_definition_is_printed_with_its_defaults(home: Path, mz: Mz) -> None:
    give(home, "trial", TRIAL)
    summary = msgspec.json.decode(mz("pipelines", "show", "trial", "--json").out)
    plan, build, *_ = summary["definition"]["phases"]
    assert plan["timeout"] == {"total": 1800, "idle": 300}
    assert build["ask_person"][0]["in"] == ["CRITICAL", "BLOCKER"]
    assert build["retries"] == 3
    assert summary["definition"]["dependencies"] == "stacked"


def test_rules_of_a_pipeline_are_shown_with_their_kind(home: Path, mz: Mz) -> None:
    give(home, "trial", TRIAL.replace("checks:\n", "checks:\n  late: {kind: added, pattern: TODO}\n", 1))
    assert "late: kind: added" in mz("pipelines", "show", "trial").out
    shown = msgspec.json.decode(mz("pipelines", "show", "trial", "--json").out)["definition"]["checks"]
    assert shown["late"] == {"kind": "added", "over": "feature", "pattern": "TODO", "files": [], "unless_in": None}


@pytest.mark.slow
def test_the_page_on_a_terminal(home: Path) -> None:
    give(home, "trial", TRIAL.replace("planner", "pla\\u001b[31mnner").replace("role: pla\\", 'role: "pla\\'))
    shown = on_terminal(home, "pipelines", "show", "monozukuri")
    assert "\nprd       agent          tier: mid; " in shown
    assert "\t" not in shown


def test_all_that_is_wrong_is_told_with_its_place(home: Path, mz: Mz, snapshot: SnapshotAssertion) -> None:
    give(home, "broken", BROKEN)
    answer = mz("pipelines", "lint")
    assert answer.exit == 10
    assert answer.out == snapshot
    summary = msgspec.json.decode(mz("pipelines", "lint", "broken", "--json").out)
    assert summary["errors"] == len(summary["diagnostics"]) == len(answer.out.splitlines()) - 1
    assert summary["diagnostics"][0]["location"] == {"file": "pipelines/broken.yaml", "line": 6, "column": 11}


def test_files_are_meant_from_where_one_stands(home: Path, monkeypatch: pytest.MonkeyPatch, mz: Mz) -> None:
    (home / "below").mkdir()
    (home / "below" / "own.yaml").write_text("phases: {}\n")
    monkeypatch.chdir(home / "below")
    answer = mz("pipelines", "lint", "own.yaml", "nowhere.yml", "monozukuri")
    assert answer.exit == 10
    assert "own.yaml:1:9\terror\tMZ2006" in answer.out
    assert "nowhere.yml\terror\tMZ2001" in answer.out
    assert answer.err == "3 files: 4 errors, 7 warnings\n"


def test_warnings_alone_are_no_failure(home: Path, mz: Mz) -> None:
    answer = mz("pipelines", "lint", "monozukuri")
    assert (answer.exit, answer.err) == (0, "1 file: 0 errors, 7 warnings\n")


@pytest.mark.parametrize("texts", [(), ("test",), ("build", "lint", "test")])
def test_a_new_one_passes_the_lint_and_says_what_each_line_is(home: Path, mz: Mz, texts: tuple[str, ...]) -> None:
    commands(home, *texts) if texts else None
    assert mz("pipelines", "new", "mine").exit == 0
    answer = mz("pipelines", "lint", "mine")
    assert (answer.exit, answer.err) == (0, "1 file: 0 errors, 0 warnings\n")
    text = (home / "pipelines" / "mine.yaml").read_text()
    pipeline, _ = PipelineSource(name="mine.yaml", text=text).parse()
    gates = [gate.run for phase in pipeline.phases for gate in phase.gates]
    assert gates == [name for name in ("build", "lint", "test") if name in texts]
    assert text.count("#") >= 15


@pytest.mark.slow
def test_a_copy_has_its_own_name_and_what_it_lacks_is_said(home: Path, mz: Mz) -> None:
    commands(home, "test", "lint")
    answer = mz("pipelines", "new", "mine", "--from", "monozukuri", "--json")
    summary = msgspec.json.decode(answer.out)
    assert (answer.exit, summary["copied_from"], summary["errors"]) == (0, "monozukuri", 0)
    copied, _ = PipelineSource(name="mine.yaml", text=(home / "pipelines" / "mine.yaml").read_text()).parse()
    assert copied.pipeline == "mine"
    origin = msgspec.json.decode(mz("pipelines", "show", "monozukuri", "--json").out)["definition"]
    mine = msgspec.json.decode(mz("pipelines", "show", "mine", "--json").out)["definition"]
    (code,) = (phase for phase in origin["phases"] if phase["phase"] == "code")
    code["gates"] = [gate for gate in code["gates"] if gate["run"] != "build"]
    assert mine == {**origin, "pipeline": "mine"}
    assert "# Without the steps of monozukuri that run build:" in (home / "pipelines" / "mine.yaml").read_text()


@pytest.mark.parametrize("texts", [(), ("test",), ("build", "lint"), ("build", "lint", "test")])
def test_a_copy_passes_the_lint(home: Path, mz: Mz, texts: tuple[str, ...]) -> None:
    commands(home, *texts) if texts else None
    output = mz("pipelines", "new", "mine", "--from", "monozukuri").err
    lacking = [name for name in ("test", "build", "lint") if name not in texts]
    assert output == (
        f"omitted, because mz.yaml does not define the command: steps that run {', '.join(lacking)}\n"
        if lacking
        else ""
    )
    assert mz("pipelines", "lint", "mine").err == "1 file: 0 errors, 0 warnings\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", built_in_pipelines())
def test_a_copy_with_its_material_renders_the_same_prompts(home: Path, mz: Mz, name: str) -> None:
    commands(home, "build", "lint", "test", "integration", "regression", "secrets")
    with (home / "mz.yaml").open("a") as settings:
        settings.write("edits: {seed: {}}\n")
    give_template(home, "partials/notes.md.j2", "a person's own")
    before = load_pipeline_files(home)
    answer = decoded(mz("pipelines", "copy", name, "--json"))
    assert (answer["file"], answer["copied_from"], answer["errors"]) == (f"pipelines/{name}.yaml", name, 0)
    assert "pipelines/templates/base.md.j2" in answer["material"]
    assert "pipelines/templates/partials/notes.md.j2" not in answer["material"], "never overwritten"
    after = load_pipeline_files(home)
    assert (after.templates, after.rules) == (before.templates, before.rules)
    assert not after.diagnostics
    pipeline = load_pipeline(name, home)[0]
    assert pipeline == PipelineSource(name="built in", text=built_in_text(name)).parse()[0]
    used = {f"pipelines/templates/{phase.prompt}" for phase in pipeline.phases if phase.prompt}
    assert used <= set(answer["material"])
    assert "error[MZ2015]" in mz("pipelines", "copy", name).err
    assert decoded(mz("pipelines", "copy", name, "--as", "mine", "--json"))["material"] == []


def give_template(home: Path, name: str, text: str) -> None:
    path = home / "pipelines" / "templates" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)


def built_in_text(name: str) -> str:
    return (files("mz_engine.pipelines") / f"{name}.yaml").read_text(encoding="utf-8")


def test_nothing_is_overwritten(home: Path, mz: Mz) -> None:
    give(home, "mine", "a person's own")
    answer = mz("pipelines", "new", "mine")
    assert answer.exit == 10
    assert "error[MZ2015] pipelines/mine.yaml already exists" in answer.err
    assert (home / "pipelines" / "mine.yaml").read_text() == "a person's own"


@pytest.mark.parametrize(
    ("args", "exit_code", "output"),
    [
        (("new", "../mine"), 10, "MZ2013"),
        (("new", "mine", "--from", "monozukri"), 10, "did you mean `monozukuri`?"),
        (("show", "monozukri"), 10, "did you mean `monozukuri`?"),
        (("show", "x\x1b[31my"), 10, "there is no pipeline `xy`"),
    ],
)
def test_what_cannot_be(home: Path, mz: Mz, args: tuple[str, ...], exit_code: int, output: str) -> None:
    answer = mz("pipelines", *args)
    assert (answer.exit, answer.out) == (exit_code, "")
    assert output in answer.err
    assert "\x1b" not in answer.err


def test_a_place_that_cannot_be_written(home: Path, mz: Mz) -> None:
    (home / "pipelines").write_text("a file in the way")
    answer = mz("pipelines", "new", "mine")
    assert answer.exit == 15
    assert "pipelines/mine.yaml cannot be written: " in answer.err


BACKLOG = "# Backlog\n\n## [FEAT] month: Show one month\n\nI want to look at a single month of the journal.\n"


def test_the_former_limit_of_files_is_refused(home: Path, mz: Mz) -> None:
    give(home, "old", TRIAL.replace("  agent: {tier: mid", "  context: {token_budget: 9}\n  agent: {tier: mid", 1))
    answer = mz("pipelines", "lint", "old")
    assert answer.exit == 10
    assert "MZ2005" in answer.out + answer.err
    assert "use `tokens_max`" in answer.out + answer.err


def test_the_prompt_of_a_phase_before_a_run(empty: Path, mz: Mz) -> None:
    (empty / "mz.yaml").write_text("backlog: features.md\n")
    (empty / "features.md").write_text(BACKLOG)
    answer = mz("pipelines", "prompt", "monozukuri", "techspec", "--item", "month")
    assert (answer.exit, answer.err) == (0, "not there before a run: prd\n")
    for text in ("> I want to look at a single month of the journal.", "### The file `README.md`"):
        assert text in answer.out
    for phase, message in (("techspc", "did you mean `techspec`?"), ("xyz", "phases with a prompt: prd, techspec")):
        answer = mz("pipelines", "prompt", "monozukuri", phase, "--item", "month")
        assert (answer.exit, answer.out) == (2, "")
        assert message in answer.err
