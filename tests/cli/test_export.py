"""`mz export`: a run as files of another system, from its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from msgspec.structs import replace
from mz_cli.export.agentswe import agentswe_files
from mz_cli.export.command import with_own_names, write_folder
from mz_cli.export.mage import mage_files
from mz_cli.export.model import ExportedFile, ExportedRun, exported_run
from mz_cli.export.monozukuri import monozukuri_files
from mz_engine.effects.records import difference
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.pins import Pins, decode_pins
from mz_engine.model.pipeline import ItemKind
from mz_events.names import Commit, Digest, FeatureId
from mz_events.names import Path as TreePath
from mz_qa.simulation import trial
from mz_qa.simulation.world import World
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, decoded
from tests.cli.stored_run import StoredRun
from tests.engine.test_conversations import deliver, new_world, pins

Layout = Callable[[ExportedRun], Iterator[ExportedFile]]
LAYOUTS: list[Layout] = [agentswe_files, mage_files, monozukuri_files]


@pytest.fixture(scope="module")
def delivered() -> ExportedRun:
    """Three features of the trial pipeline: units, a rework, a rollback of a unit, a question to a person."""
    world = deliver(new_world(), pins())
    return read(world)


def read(world: World) -> ExportedRun:
    def load_text(digest: Digest | None) -> str:
        return "" if digest is None else world.blobs.get(digest).decode()

    def load_pins(digest: Digest | None) -> Pins | None:
        return None if digest is None else decode_pins(world.blobs.get(digest))

    def patch(before: Commit, after: Commit) -> str:
        old, new = world.objects[before].files, world.objects[after].files
        paths = (path for path in sorted({**old, **new}) if old.get(path) != new.get(path))
        return "".join("".join(difference(TreePath(path), old.get(path), new.get(path))) for path in paths)

    return exported_run(trial.RUN, tuple(world.store.read_all()), load_pins, load_text, patch)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_file_of_a_run(layout: Layout, delivered: ExportedRun, snapshot: SnapshotAssertion) -> None:
    files = list(layout(delivered))
    assert len({path for path, _ in files}) == len(files), "no file is written twice"
    assert files == list(layout(delivered))
    for path, text in files:
        if path.endswith(".json"):
            msgspec.json.decode(text)
        elif path.endswith(".yaml"):
            list(yaml.safe_load_all(text))
    assert dict(files) == snapshot


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_at_any_event_has_files(layout: Layout, delivered: ExportedRun) -> None:
    events = sorted((item for feature in delivered.features for item in feature.events), key=lambda item: item.position)
    for end in range(0, len(events), 7):
        some = exported_run(trial.RUN, events[:end], lambda digest: None, delivered.load_text, lambda *trees: "")
        assert list(layout(some))


def test_calls_of_an_item_that_made_issues_are_on_each_of_them(delivered: ExportedRun) -> None:
    assert delivered.pins is not None
    plan, *tasks = delivered.features
    assert plan.item is not None
    made = plan.view.feature
    kinds = (ItemKind(kind="plan", sources=("cycle",)), ItemKind(kind="task", sources=("output",)))
    pins = replace(delivered.pins, pipeline=replace(delivered.pins.pipeline, items=kinds))
    changed = [plan._replace(item=replace(plan.item, kind="plan"))]
    for task in tasks:
        assert task.item is not None
        changed.append(task._replace(item=replace(task.item, kind="task", made_by=FeatureId(made))))
    files = dict(mage_files(delivered._replace(features=tuple(changed), pins=pins)))
    issues = [msgspec.json.decode(line) for line in files[".beads/issues.jsonl"].splitlines()]
    assert [issue["id"] for issue in issues] == [task.view.feature for task in tasks]
    for issue, task in zip(issues, tasks, strict=True):
        callers = [msgspec.json.decode(comment["text"])["caller"] for comment in issue["comments"]]
        assert callers == ["measure"] * len(plan.view.calls) + ["stitch"] * len(task.view.calls)
    assert not [path for path, text in files.items() if "caller: measure" in text and "task_id" in text]


def test_two_files_with_one_name_are_both_there(delivered: ExportedRun) -> None:
    feature = delivered.features[0]
    first = feature.view.artifacts[0]
    made = [replace(first, artifact=name, path=TreePath(f"{name}/notes.md")) for name in ("one", "two")]
    changed = feature._replace(view=replace(feature.view, artifacts=tuple(made)))
    assert [name for _, name, _ in delivered.artifacts(changed)] == ["notes.md", "two.md"]


def test_files_of_one_path_are_both_written_and_none_outside(tmp_path: Path) -> None:
    files = with_own_names([("a/lint.json", "1"), ("a/lint.json", "2"), ("a/lint.json", "3")])
    assert files == {"a/lint.json": "1", "a/lint-2.json": "2", "a/lint-3.json": "3"}
    for path in ("../out.md", "a/../../out.md", "/out.md"):
        with pytest.raises(MzError, match="no path below"):
            write_folder(tmp_path / "new", {"a.md": "", path: "x"})
    assert list(tmp_path.rglob("*")) == []


def test_what_waits_and_what_is_blocked_is_marked(stored_run: StoredRun, mz: Mz) -> None:
    result = decoded(mz("export", "--as", "agentswe", "--to", "out", "--json"))
    assert set(result["files"]) == {str(path.relative_to("out")) for path in Path("out").rglob("*") if path.is_file()}
    assert not [path for path in result["files"] if path.startswith("phases/")]
    queue = Path("out/shared/human-review-queue.md").read_text()
    assert "- [ ] " in queue
    marked = [path for path in result["files"] if path.endswith("HUMAN_REVIEW_REQUIRED.md")]
    assert len(marked) == queue.count("- [ ] ")
    again = mz("export", "--as", "agentswe", "--to", "other")
    assert again.exit == 0
    assert "contracts left out" in again.err
    for path in result["files"]:
        assert Path("out", path).read_bytes() == Path("other", path).read_bytes()


def test_nothing_is_overwritten(stored_run: StoredRun, mz: Mz) -> None:
    Path("out").mkdir()
    Path("out/mine.txt").write_text("mine")
    result = mz("export", "--as", "monozukuri", "--to", "out")
    assert result.exit == 10
    assert "MZ2015" in result.err
    assert [path.name for path in Path("out").iterdir()] == ["mine.txt"]
    Path("file").write_text("mine")
    assert "MZ2015" in mz("export", "--as", "monozukuri", "--to", "file").err
    assert "MZ1007" in mz("export", "--as", "monozukuri", "--to", "file/below").err
    assert mz("export", "nope", "--as", "monozukuri", "--to", "new").exit == 2
    assert not Path("new").exists()


def test_a_contract_is_what_the_pipeline_says(empty: Path, mz: Mz) -> None:
    every = [yaml.safe_load(text) for text in mz("pipelines", "contract", "monozukuri").out.split("---\n")]
    assert [contract["phase"] for contract in every] == ["prd", "techspec", "tasks", "code", "tests", "pr"]
    techspec = yaml.safe_load(mz("pipelines", "contract", "monozukuri", "techspec").out)
    assert techspec == every[1]
    assert techspec["required_inputs"] == ["tasks/{feature}/prd.md"]
    assert techspec["allowed_mutations"] == techspec["produced_outputs"] == ["tasks/{feature}/techspec.md"]
    assert "write tasks/{feature}/prd.md" in techspec["forbidden_actions"]
    assert "files" not in techspec["context_scope"], "all of the worktree is there"
    scoped = yaml.safe_load(mz("pipelines", "contract", "agentswe", "implementation").out)
    assert scoped["context_scope"]["files"] == ["{unit.files}", "{dependencies.files}"]
    assert "did you mean" in mz("pipelines", "contract", "monozukuri", "techspek").err
