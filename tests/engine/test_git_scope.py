"""Scoped directories: only the files that a phase names are there, and only they can be changed."""

from __future__ import annotations

import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.agents.contract import Invocation
from mz_engine.agents.process import AgentProcesses
from mz_engine.git.content import FILE, TreeEntry, parent_directories, with_changes
from mz_engine.ports import CallSpec, FeatureWorktree
from mz_engine.processes.environment import private_repository, worktree_path
from mz_events.catalog.call import ForbiddenChange
from mz_events.names import Commit, Path
from mz_events.redaction.redactor import Secrets

from tests.support.desk import WORKTREE, Desk
from tests.support.examples import examples

SCOPED = FeatureWorktree(run=WORKTREE.run, feature=WORKTREE.feature, branch=WORKTREE.branch, is_scoped=True)
PATHS = st.sampled_from([b"a", b"b", b"a/x", b"a/y", b"d/e", b"d/e/f"])
FILES = st.dictionaries(PATHS, st.sampled_from("12").map(lambda text: TreeEntry(FILE, text)))
TREES = FILES.filter(lambda files: files.keys().isdisjoint(parent_directories(files)))


@given(TREES, st.sets(PATHS), TREES)
@examples(200)
def test_files_that_were_not_laid_out_stay(
    tree: dict[bytes, TreeEntry], chosen: set[bytes], now: dict[bytes, TreeEntry]
) -> None:
    laid_out = {path: entry for path, entry in tree.items() if path in chosen}
    content, hidden = with_changes(tree, laid_out, now)
    assert content.keys().isdisjoint(parent_directories(content)), "no path is a file and a folder"
    assert {path: content[path] for path in tree.keys() - laid_out.keys()}.items() <= tree.items()
    left_out = {change.path.encode() for change in hidden}
    assert left_out.isdisjoint(laid_out)
    assert {path: content.get(path) for path in now.keys() - left_out} == {p: now[p] for p in now.keys() - left_out}
    assert content.keys() == (tree.keys() - laid_out.keys()) | (now.keys() - left_out)


@pytest.fixture
def scoped(desk: Desk) -> tuple[Desk, Commit]:
    laid_out = desk.port.lay_out(desk.feature_worktree, desk.base, (Path("src/app.py"),))
    desk.worktree, desk.private = (locate(desk.repo.root, SCOPED) for locate in (worktree_path, private_repository))
    return desk, laid_out


def files_in(folder: pathlib.Path) -> list[str]:
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in files if path.parts[0] != ".git")


def test_nothing_but_the_files_is_there_not_even_as_an_object(scoped: tuple[Desk, Commit]) -> None:
    desk, laid_out = scoped
    assert files_in(desk.worktree) == ["src/app.py"]
    assert list(desk.tree(laid_out)) == ["src/app.py"]
    assert desk.git("status", "--short", "--branch") == "## main"
    assert len(desk.git("log", "--all", "--format=%H").split()) == 1
    objects = desk.git("cat-file", "--batch-all-objects", "--batch-check=%(objecttype)").split()
    assert sorted(objects) == ["blob", "commit", "tree", "tree"]


def test_the_difference_becomes_a_capture_of_the_tree(scoped: tuple[Desk, Commit]) -> None:
    desk, laid_out = scoped
    (desk.worktree / "src/app.py").unlink()
    (desk.worktree / "link").symlink_to("/nowhere")
    desk.write({"src/new.py": "n", "made.log": "ignored by the tree's own rules"})
    os.mkfifo(desk.worktree / "pipe")
    capture = desk.port.collect(desk.feature_worktree, desk.base, laid_out)
    differences = [(change.path, change.kind) for change in desk.port.changes(desk.base, capture.tree)]
    assert differences == [("link", "added"), ("src/app.py", "deleted"), ("src/new.py", "added")]
    assert [change.kind for change in capture.forbidden_changes] == ["special"]
    assert desk.another().collect(desk.feature_worktree, desk.base, laid_out).forbidden_changes != ()
    desk.port.ensure(desk.feature_worktree, desk.base, capture.tree)
    folder = worktree_path(desk.repo.root, WORKTREE)
    assert {"README.md", "src/lib/deep.py", "src/new.py"} <= {*files_in(folder)}


def test_a_file_that_it_does_not_see_cannot_be_replaced(scoped: tuple[Desk, Commit]) -> None:
    desk, laid_out = scoped
    desk.write({"README.md": "mine", "src/lib": "a file in the place of a folder"})
    capture = desk.port.collect(desk.feature_worktree, desk.base, laid_out)
    assert desk.port.changes(desk.base, capture.tree) == ()
    assert capture.forbidden_changes == tuple(
        ForbiddenChange(kind="hidden", path=path) for path in ("README.md", "src/lib")
    )


def test_it_is_made_anew_and_goes_with_the_worktree(scoped: tuple[Desk, Commit]) -> None:
    desk, _ = scoped
    desk.write({"left.txt": "by an earlier call"})
    desk.port.lay_out(desk.feature_worktree, desk.base, ())
    assert files_in(desk.worktree) == []
    desk.port.close(desk.feature_worktree)
    assert not desk.worktree.exists()
    assert not desk.private.exists()


LIST_ALL = """
find . "$HOME/../repo" -type f 2>/dev/null | xargs cat 2>/dev/null
git log --all -p 2>&1
git cat-file --batch-all-objects --batch 2>&1
git fsck --lost-found 2>&1
GIT_OBJECT_DIRECTORY="$OUTSIDE" git cat-file --batch-all-objects --batch 2>&1
"""


@pytest.mark.parametrize("is_scoped", [True, False])
def test_an_agent_reads_no_other_file(scoped: tuple[Desk, Commit], tmp_path: pathlib.Path, is_scoped: bool) -> None:
    """A real process that prints whatever it can read; without a scope it finds the file."""
    desk, _ = scoped
    home = tmp_path / "home"
    home.mkdir()
    objects = desk.repo.root / ".git" / "objects"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "OUTSIDE": str(objects)}
    processes = AgentProcesses(desk.repo.root, environment, Secrets({}), passed=("OUTSIDE",))
    spec = CallSpec(
        key="r1/f1/code/-/1/1/agent.builder", worktree=SCOPED if is_scoped else WORKTREE, agent="a", model="m",
        prompt="", session=None, resumes=False, tools=(), total_seconds=60, idle_seconds=60,
    )  # fmt: skip
    result = processes.spawn(spec, Invocation(argv=("sh", "-c", LIST_ALL), env={}, stdin=b""))
    assert b"print('hello')" in result.stdout
    assert (b"# Engine" in result.stdout) is not is_scoped
