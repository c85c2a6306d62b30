"""Edits: files that the engine deletes and writes before an agent is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.decoding.yaml import decode_document, parse_yaml
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Config
from mz_engine.model.pipeline import Edit, Pipeline
from mz_engine.pipelines.material import check_template, edit_problems, misspelt_edits
from mz_engine.ports import CallSpec
from mz_engine.prompts.render import load_templates
from mz_events.catalog.feature import EditMade, FeatureHeld
from mz_events.catalog.run import FeatureOutcome
from mz_events.names import Path as TreePath
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply

from tests.engine.test_delivery import Bench, progress, status
from tests.engine.test_pipelines_lint import said_of
from tests.support.crashing import CrashingWorld
from tests.support.desk import WORKTREE, Desk

SEED = Edit(delete=("*.md", "!letters/**", "*.key"), write={"version.txt": "edits/version.j2"})
TEMPLATE = "{{ item }} from {{ base }}{{ integration }}: {{ title }}\n"


def seeded(bench: Bench, template: str = TEMPLATE, edit: Edit = SEED) -> Bench:
    """The first phase of the trial has an edit."""
    plan, *others = bench.pins.pipeline.phases
    pipeline = replace(bench.pins.pipeline, phases=(replace(plan, edit="seed"), *others))
    config = replace(bench.pins.config, edits={"seed": edit})
    templates = {**bench.pins.templates, "edits/version.j2": template}
    bench.pins = replace(bench.pins, pipeline=pipeline, config=config, templates=templates)
    return bench


def test_an_edit_is_made_before_the_agent_sees_the_files_and_is_part_of_the_commit() -> None:
    bench, visible = seeded(Bench()), list[Files]()

    def script(spec: CallSpec, files: Files) -> ScriptedReply:
        visible.append(files)
        return trial.script(spec, files)

    bench.world.script = script
    bench.world.refs["refs/heads/main"] = bench.world.base
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert visible[0] == {"version.txt": b"b from main: Feature b\n"}
    [made] = [event for event in bench.events() if isinstance(event, EditMade)]
    assert (made.edit, made.written, made.deleted) == ("seed", ("version.txt",), ("README.md",))
    assert bench.on_the_branch().keys() >= {"version.txt", "letters/b.md"}
    assert "README.md" not in bench.on_the_branch()


def test_a_phase_without_an_agent_commits_its_edit() -> None:
    bench = seeded(Bench())
    plan, *others = bench.pins.pipeline.phases
    seed = replace(plan, phase="seed", agent=None, prompt=None, outputs=(), commit="seed {feature}")
    pipeline = replace(bench.pins.pipeline, phases=(seed, replace(plan, edit=None), *others))
    bench.pins = replace(bench.pins, pipeline=pipeline)
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    subjects = [tree.message.split(b"\n")[0] for tree in bench.world.commits("feat/b") if tree.message]
    assert subjects[-2:] == [b"plan b", b"seed b"]


def test_what_no_agent_may_change_no_edit_deletes() -> None:
    bench = seeded(Bench(), edit=Edit(delete=("*",)))
    bench.pins = replace(bench.pins, config=replace(bench.pins.config, denied_paths=("README.md",)))
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert "README.md" in bench.on_the_branch()


def test_a_step_whose_edit_the_settings_lack_is_left_out() -> None:
    bench = seeded(Bench())
    bench.pins = replace(bench.pins, config=replace(bench.pins.config, edits={}))
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert bench.kinds()["EditMade"] == 0


def test_a_template_that_cannot_be_rendered_holds_the_run_with_its_line() -> None:
    bench = seeded(Bench(), template="\n{{ item.nothing }}")
    bench.run()
    [held] = [event for event in bench.events() if isinstance(event, FeatureHeld)]
    assert (held.template, held.line) == ("edits/version.j2", 2)


@pytest.mark.slow
def test_a_crash_around_an_edit_changes_nothing() -> None:
    world = CrashingWorld(trial.FILES, trial.script, trial.commands)
    bench = seeded(Bench(world=world))
    trial.begin(world, bench.pins, bench.items)
    world.crash_at(every=3)
    bench.run()
    expected = dict(world.objects[progress(bench).head].files)
    for left in world.left:
        drive_run(left, trial.RUN, bench.pins, 1)
        assert dict(left.objects[left.refs["refs/heads/feat/b"]].files) == expected


# settings and templates -----------------------------------------------------------------------------------------------
def problems_of(pipeline: Pipeline, edits: str) -> list[str]:
    document = parse_yaml(f"edits:\n{edits}", "mz.yaml")
    config = decode_document(document, Config)
    problems = edit_problems(config, pipeline, {**load_templates(), "edits/a.j2": "x"}, document)
    return [f"{p.location.line}:{p.location.column} {p.code} {p.message}" for p in problems if p.location]


def test_an_edit_names_templates_that_exist_and_files_that_may_change() -> None:
    text = "  seed:\n    write: {mz.yaml: edits/a.j2, a.txt: edits/b.j2, b.txt: code.md.j2}\n"
    assert problems_of(Bench().pins.pipeline, text) == [
        "3:22 MZ2013 `edits.seed.write.mz.yaml`: the file is one of `denied_paths`, which nothing changes",
        "3:41 MZ3008 `edits.seed.write.a.txt`: there is no template `edits/b.j2` of an edit",
        "3:60 MZ3008 `edits.seed.write.b.txt`: there is no template `code.md.j2` of an edit",
    ]


def test_a_file_of_an_edit_is_one_that_git_can_hold() -> None:
    with pytest.raises(MzError, match="is not a path inside the repository"):
        problems_of(Bench().pins.pipeline, "  seed:\n    write: {sub/.Git/hooks/pre-push: edits/a.j2}\n")


@pytest.mark.parametrize(
    ("edits", "warnings"),
    [
        ("  sead: {delete: ['*.go']}\n", ["2:3 MZ2005 the pipeline `trial` makes no edit `sead`"]),
        ("  seed: {delete: ['*.go']}\n  seed2: {delete: ['*.go']}\n", []),
        ("  other: {delete: ['*.go']}\n", []),
    ],
)
def test_a_misspelt_edit_is_a_warning_where_another_pipeline_could_make_it(edits: str, warnings: list[str]) -> None:
    document = parse_yaml(f"edits:\n{edits}", "mz.yaml")
    problems = list(misspelt_edits(decode_document(document, Config), seeded(Bench()).pins.pipeline, document))
    assert [f"{p.location.line}:{p.location.column} {p.code} {p.message}" for p in problems if p.location] == warnings
    assert {(p.severity, p.hint) for p in problems} <= {("warning", "did you mean `seed`?")}


def test_a_path_of_an_edit_has_placeholders_that_the_pipeline_can_fill() -> None:
    text = "  seed:\n    write: {'{item}/{integration}.txt': edits/a.j2, '{run}.txt': edits/a.j2, 'a{': edits/a.j2}\n"
    wrong = [
        "3:66 MZ3016 `edits.seed.write.{run}.txt`: unknown placeholder `{run}`",
        "3:84 MZ3016 `edits.seed.write.a{`: unbalanced brace",
    ]
    plain = seeded(Bench()).pins.pipeline
    assert problems_of(replace(plain, integration="work"), text) == wrong
    missing = "3:41 MZ3016 `edits.seed.write.{item}/{integration}.txt`: unknown placeholder `{integration}`"
    assert problems_of(plain, text) == [missing, *wrong]
    deleted = "  seed: {delete: ['*.go', 'docs/{integration}*', '{item}/', '*.{c,h}']}\n"
    [unknown] = problems_of(replace(plain, integration="work"), deleted)
    assert unknown == "2:61 MZ3016 `edits.seed.delete[3]`: unknown placeholder `{c,h}`"
    [missing, _] = problems_of(plain, deleted)
    assert missing == "2:27 MZ3016 `edits.seed.delete[1]`: unknown placeholder `{integration}`"
    assert problems_of(Bench().pins.pipeline, text) == wrong, "another pipeline may use it"


@pytest.mark.parametrize(
    ("path", "problem"),
    [("b.key", "b.key is one of `denied_paths`"), ("x" * 253 + "{item}.txt", "is longer than 255 bytes")],
)
def test_a_path_that_turns_out_to_be_wrong_holds_the_run(path: str, problem: str) -> None:
    bench = seeded(Bench(), edit=Edit(write={path.replace("b.", "{item}."): "edits/version.j2"}))
    bench.pins = replace(bench.pins, config=replace(bench.pins.config, denied_paths=("*.key",)))
    bench.run()
    [held] = [event for event in bench.events() if isinstance(event, FeatureHeld)]
    assert (held.code, held.template) == ("template-broken", "edits/version.j2")
    assert held.detail is not None
    assert problem in bench.world.blobs.get(held.detail).decode()


def test_a_template_has_the_request_of_the_item() -> None:
    bench = seeded(Bench(), "# {{ title }}\n{{ body }}\n", Edit(write={"tasks/{item}.md": "edits/version.j2"}))
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert bench.on_the_branch()["tasks/b.md"] == b"# Feature b\nPlease.\n"


def test_templates_of_edits_have_variables_of_their_own() -> None:
    for name, text, wrong in (("edits/a.j2", "{{ base }}{{ limits }}", "limits"), ("a.md.j2", "{{ base }}", "base")):
        [problem] = check_template(f"pipelines/templates/{name}", name, text, ())
        assert f"no variable `{wrong}`" in problem.message


def test_a_pipeline_names_edits_of_the_settings() -> None:
    phases = "- {phase: a, edit: seed}\n- {phase: b, edit: sead, deliver: [push, open_pr]}\n- {phase: c, edit: seed}\n"
    lines = said_of(f"pipeline: p\nversion: 1\nphases:\n{phases}")
    assert [line.partition(" (")[0] for line in lines] == [
        "4:20 MZ3009 mz.yaml has no edit `seed`",
        "5:20 MZ3009 mz.yaml has no edit `sead`",
        "6:20 MZ3009 mz.yaml has no edit `seed`",
        "6:20 MZ3015 `c` follows `b`, which delivers, so it cannot have `edit`",
    ]


def test_a_pipeline_has_edits_of_its_own() -> None:
    edits = "edits: {seed: {write: {'{run}.txt': edits/none.j2}}}\n"
    phases = "- {phase: a, edit: seed}\n- {phase: b, edit: sead, deliver: [push, open_pr]}\n"
    assert [line.partition(" (")[0] for line in said_of(f"pipeline: p\nversion: 1\n{edits}phases:\n{phases}")] == [
        "3:37 MZ3016 unknown placeholder `{run}`",
        "3:37 MZ3008 there is no template `edits/none.j2` of an edit",
        "6:20 MZ3009 mz.yaml has no edit `sead`",
    ]


def test_an_edit_of_the_pipeline_may_not_write_what_nothing_may_change() -> None:
    pipeline = replace(Bench().pins.pipeline, edits={"seed": Edit(write={"mz.yaml": "edits/a.j2"})})
    message = "MZ2013 `edits.seed.write.mz.yaml`: the file is one of `denied_paths`, which nothing changes"
    assert problems_of(pipeline, "  other: {}\n") == [f"2:3 {message}"]
    assert problems_of(pipeline, "  seed: {}\n") == []


def test_a_template_that_gives_no_text_writes_no_file_unless_it_is_empty_itself() -> None:
    for template, written in (("{% if false %}x{% endif %}", ()), ("", ("version.txt",))):
        bench = seeded(Bench(), template)
        assert status(bench.run()) is FeatureOutcome.DELIVERED
        assert [event.written for event in bench.events() if isinstance(event, EditMade)] == [written]


# git ------------------------------------------------------------------------------------------------------------------
def test_git_has_the_edited_tree_and_the_worktree_gets_it(desk: Desk) -> None:
    script = Path(desk.repo.root / "run.sh")
    script.write_text("old")
    script.chmod(0o755)
    base = desk.repo.commit({}, "script")
    deleted, files = (TreePath("src/app.py"),), {TreePath("run.sh"): b"new", TreePath("README.md/inner"): b"1"}
    tree = desk.port.edit(WORKTREE, base, deleted, files)
    content = desk.tree(tree)
    assert content["run.sh"] == "100755 new"
    assert content["README.md/inner"] == "100644 1"
    assert not content.keys() & {"src/app.py", "README.md"}
    assert desk.repo.tree(desk.another().edit(WORKTREE, base, deleted, files)) == desk.repo.tree(tree)
    desk.port.ensure(WORKTREE, base, tree)
    assert (desk.worktree / "README.md/inner").read_text() == "1"
    assert desk.repo.tree(desk.port.capture(WORKTREE, tree).tree) == desk.repo.tree(tree)
