"""Opening: finding the repository, making a feature's branch and worktree, and what is said when that cannot be."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from mz_engine.git.process import ProgramResult
from mz_engine.git.repository import branch_commit, current_branch, find_root, repository_error
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import FeatureWorktree, MergeConflict, RepositoryUnusable, WorkspaceCreated
from mz_engine.processes.environment import private_repository
from mz_events.names import Commit, Path

from tests.support.desk import FILES, WORKTREE, Desk
from tests.support.gitrepo import IDENTITY, POWERLESS, GitRepo

pytestmark = pytest.mark.slow


@pytest.fixture
def desk(tmp_path: pathlib.Path) -> Desk:
    return Desk(tmp_path)


def folder(feature: str) -> FeatureWorktree:
    return FeatureWorktree(run="r1", feature=feature, branch=f"feat/{feature}")


def side(desk: Desk, branch: str, files: dict[str, str]) -> Commit:
    """A commit on a branch of its own, from the base; the checkout is back on main afterwards."""
    desk.repo.git("checkout", "--quiet", "-b", branch, desk.base)
    commit = desk.repo.commit(files, branch)
    desk.repo.git("checkout", "--quiet", "main")
    return commit


def code(refused: pytest.ExceptionInfo[RepositoryUnusable]) -> str:
    return refused.value.code


# the repository -------------------------------------------------------------------------------------------------------
def test_the_root_is_found_from_anywhere_inside(desk: Desk) -> None:
    assert find_root(desk.repo.root / "src/lib") == desk.repo.root
    desk.open()
    assert find_root(desk.worktree / "src") == desk.repo.root
    linked = desk.repo.root.parent / "linked"
    desk.repo.git("worktree", "add", "--quiet", str(linked))
    assert find_root(linked / "src") == linked


def test_places_without_a_usable_repository(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RepositoryUnusable, match="git init") as refused:
        find_root(tmp_path)
    assert code(refused) == "not-a-repository"
    with pytest.raises(RepositoryUnusable) as refused:
        find_root(tmp_path / "absent")
    assert code(refused) == "not-a-repository"
    repo = GitRepo(tmp_path / "repo")
    with pytest.raises(RepositoryUnusable, match="commit something") as refused:
        current_branch(repo.root)
    assert code(refused) == "no-commit"
    repo.commit({"a": "1"})
    repo.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
    for inside in (tmp_path / "bare", repo.root / ".git"):
        with pytest.raises(RepositoryUnusable) as refused:
            find_root(inside)
        assert code(refused) == "bare"
    with pytest.raises(RepositoryUnusable, match="install git") as refused:
        find_root(repo.root, {"PATH": str(tmp_path)})
    assert code(refused) == "git-missing"
    with pytest.raises(RepositoryUnusable) as refused:
        GitWorkspace(tmp_path, WorkspaceSettings())
    assert code(refused) == "not-a-repository"


def test_branches_by_name(desk: Desk) -> None:
    assert current_branch(desk.repo.root) == "main"
    commit = side(desk, "topic", {"t": "1"})
    assert branch_commit(desk.repo.root, "topic") == commit
    desk.repo.git("update-ref", "refs/remotes/origin/dev", commit)
    assert branch_commit(desk.repo.root, "origin/dev") == commit
    assert branch_commit(desk.repo.root, desk.base[:12]) == desk.base
    desk.repo.git("tag", "main", commit)
    assert branch_commit(desk.repo.root, "main") == desk.base
    for name in ("absent", "--all", "", "main:README.md", "main~99"):
        with pytest.raises(RepositoryUnusable) as refused:
            branch_commit(desk.repo.root, name)
        assert code(refused) == "no-base"
    desk.repo.git("checkout", "--quiet", "--detach")
    with pytest.raises(RepositoryUnusable, match="base: main") as refused:
        current_branch(desk.repo.root)
    assert code(refused) == "detached"


def test_a_repository_that_cannot_be_written_to(desk: Desk) -> None:
    script = (
        "import pathlib, sys\n"
        "from mz_engine.git.workspace import GitWorkspace\n"
        "from mz_engine.model.config import WorkspaceSettings\n"
        "from mz_engine.ports import RepositoryUnusable\n"
        "try:\n"
        "    GitWorkspace(pathlib.Path(sys.argv[1]), WorkspaceSettings())\n"
        "except RepositoryUnusable as refused:\n"
        "    print(refused.code, refused)\n"
    )
    objects = desk.repo.root / ".git/objects"
    objects.chmod(0o555)
    output = subprocess.check_output([*POWERLESS, sys.executable, "-c", script, str(desk.repo.root)]).decode()
    objects.chmod(0o755)
    assert output.startswith(f"read-only {objects} is not writable")


def test_a_repository_of_somebody_else_is_not_trusted(desk: Desk) -> None:
    """In git's own words for it, which it can be made to say."""
    environment = {**os.environ, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    process = subprocess.run(
        ["git", "rev-parse"], cwd=desk.repo.root, env=environment, capture_output=True, check=False
    )
    refused = repository_error(desk.repo.root, ProgramResult(process.returncode, b"", process.stderr.decode()))
    assert refused.code == "not-trusted"
    assert f"safe.directory {desk.repo.root}" in str(refused)


# opening --------------------------------------------------------------------------------------------------------------
def test_a_fresh_worktree_on_its_own_branch(desk: Desk) -> None:
    opened = desk.open()
    assert opened == WorkspaceCreated(head=desk.base, tree=desk.base)
    assert desk.state() == "## feat/f1"
    actual = {str(file.relative_to(desk.worktree)) for file in desk.worktree.rglob("*") if file.is_file()}
    assert actual == {*FILES}
    assert desk.repo.git("status", "--short") == ""
    assert desk.repo.git("symbolic-ref", "HEAD") == "refs/heads/main"


def test_opening_again_finds_what_is_there(desk: Desk) -> None:
    first = desk.open()
    desk.write({"README.md": "dirty"})
    assert desk.another().open(WORKTREE, (desk.base,)) == first
    assert desk.state() == "## feat/f1"


@pytest.mark.parametrize("left", ["capture", "branch", "worktree", "repository"])
def test_what_a_killed_call_left_is_finished(desk: Desk, left: str) -> None:
    opened = desk.open()
    if left in ("capture", "branch"):
        desk.port.close(WORKTREE)
    if left == "capture":
        desk.repo.git("update-ref", "-d", "refs/heads/feat/f1")
    if left == "branch":
        desk.repo.git("update-ref", "-d", "refs/mz/r1/f1")
    if left == "worktree":
        (desk.worktree / "README.md").write_text("half")
        (desk.worktree / ".git").rmdir()
    if left == "repository":
        (desk.private / "HEAD").unlink()
    assert desk.another().open(WORKTREE, (desk.base,)) == opened
    assert desk.state() == "## feat/f1"


def test_a_branch_of_somebody_else_is_left_alone(desk: Desk) -> None:
    commit = side(desk, "feat/f1", {"theirs": "1"})
    with pytest.raises(RepositoryUnusable, match="branch_prefix") as refused:
        desk.port.open(WORKTREE, (desk.base,))
    assert code(refused) == "branch-exists"
    assert desk.repo.head("feat/f1") == commit
    assert not desk.worktree.exists()
    assert desk.repo.git("for-each-ref", "refs/mz") == ""


def test_a_branch_without_commits_of_its_own_is_taken(desk: Desk) -> None:
    desk.repo.git("branch", "feat/f1", desk.base)
    opened = desk.port.open(WORKTREE, (desk.base,))
    assert getattr(opened, "head", None) == desk.base
    assert desk.state() == "## feat/f1"


def test_a_branch_that_is_checked_out_elsewhere_is_left_alone(desk: Desk) -> None:
    desk.repo.git("checkout", "--quiet", "-b", "feat/f1")
    with pytest.raises(RepositoryUnusable, match="checked out in") as refused:
        desk.port.open(WORKTREE, (desk.base,))
    assert code(refused) == "branch-exists"


def test_a_branch_of_an_earlier_run_is_told_with_that_run_and_what_helps(desk: Desk) -> None:
    """By the trailer of its last commit."""
    desk.port.open(WORKTREE, (desk.base,))
    later = FeatureWorktree(run="r2", feature=WORKTREE.feature, branch=WORKTREE.branch)
    advice = r"run r1 created it: save .*, then `mz clean r1` and `git branch -D feat/f1`; or "
    desk.port.commit(WORKTREE, desk.base, desk.base, b"prd: T\n\nMz-Key: r1/f1/prd/-/1/0/commit\n")
    with pytest.raises(RepositoryUnusable, match=advice):
        desk.another().open(later, (desk.base,))


def test_names_that_stand_in_the_way(desk: Desk) -> None:
    desk.repo.git("branch", "feat")
    with pytest.raises(RepositoryUnusable, match="`feat/f1`") as refused:
        desk.port.open(WORKTREE, (desk.base,))
    assert code(refused) == "branch-exists"
    assert desk.repo.git("for-each-ref", "refs/mz") == ""
    with pytest.raises(RepositoryUnusable) as refused:
        desk.port.open(folder("rescue"), (desk.base,))
    assert code(refused) == "bad-name"


def test_a_start_that_is_not_there(desk: Desk) -> None:
    with pytest.raises(RepositoryUnusable) as refused:
        desk.port.open(WORKTREE, (Commit("0" * 39 + "1"),))
    assert code(refused) == "no-base"


def test_features_stand_side_by_side(desk: Desk) -> None:
    for feature in ("a", "b", "c"):
        desk.port.open(folder(feature), (desk.base,))
    other = FeatureWorktree(run="r2", feature="a", branch="other/a")
    desk.port.open(other, (desk.base,))
    heads = desk.repo.git("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
    assert heads == ["feat/a", "feat/b", "feat/c", "main", "other/a"]
    assert len(desk.repo.git("worktree", "list").splitlines()) == 1
    desk.port.close(other)
    assert [path.parent.name for path in (desk.repo.root / ".mz/worktrees").glob("*/a")] == ["r1"]


def test_closing_leaves_branch_and_captures(desk: Desk) -> None:
    desk.open()
    desk.write({"new": "n"})
    tree = desk.port.capture(WORKTREE, desk.base).tree
    desk.port.close(WORKTREE)
    desk.port.close(WORKTREE)
    assert not desk.worktree.exists()
    assert desk.repo.git("worktree", "list").count("\n") == 0
    assert (desk.repo.head("feat/f1"), desk.repo.head("refs/mz/r1/f1")) == (desk.base, tree)
    desk.port.ensure(WORKTREE, desk.base, tree)
    assert desk.state() == "## feat/f1\n?? new"


def test_a_repository_whose_checkout_is_a_linked_worktree(desk: Desk) -> None:
    linked = desk.repo.root.parent / "linked"
    desk.repo.git("worktree", "add", "--quiet", str(linked))
    port = GitWorkspace(linked, WorkspaceSettings())
    port.open(WORKTREE, (desk.base,))
    assert (linked / ".mz/worktrees/r1/f1/README.md").exists()
    assert desk.repo.git("status", "--short", cwd=linked) == ""


def test_a_repository_that_was_moved(desk: Desk) -> None:
    desk.open()
    moved = desk.repo.root.with_name("moved")
    desk.repo.root.rename(moved)
    port = GitWorkspace(moved, WorkspaceSettings())
    port.ensure(WORKTREE, desk.base, desk.base)
    private = private_repository(moved, WORKTREE)
    status = (f"--git-dir={private}", "--work-tree=.", "status", "--short", "--branch")
    assert desk.repo.git(*status, cwd=moved / ".mz/worktrees/r1/f1") == "## feat/f1"


def test_repositories_of_the_other_object_format(tmp_path: pathlib.Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", "--object-format=sha256", str(tmp_path / "repo")], check=True)
    desk = Desk(tmp_path)
    desk.open()
    desk.write({"new": "n"})
    tree = desk.port.capture(WORKTREE, desk.base).tree
    assert len(tree) == 64
    desk.port.ensure(WORKTREE, desk.base, tree)
    assert desk.port.commit(WORKTREE, tree, desk.base, b"m\n").files == 1


# several starts -------------------------------------------------------------------------------------------------------
def test_several_starts_are_merged_the_same_way_each_time(desk: Desk) -> None:
    a, b, c = (side(desk, name, {f"{name}.txt": name}) for name in ("a", "b", "c"))
    opened = desk.port.open(WORKTREE, (a, b, c))
    assert isinstance(opened, WorkspaceCreated)
    assert desk.repo.git("rev-list", "--parents", "-1", opened.head).split()[2:] == [c]
    assert {path for path in desk.port.paths(opened.tree) if path.endswith(".txt")} == {"a.txt", "b.txt", "c.txt"}
    assert (desk.worktree / "c.txt").read_text() == "c"
    desk.repo.git("update-ref", "-d", "refs/mz/r1/f1")
    assert desk.another().open(WORKTREE, (a, b, c)) == opened


def test_what_leads_to_another_needs_no_merge(desk: Desk) -> None:
    a = side(desk, "a", {"a.txt": "a"})
    assert desk.port.open(folder("f1"), (desk.base, a)) == WorkspaceCreated(head=a, tree=a)
    assert desk.port.open(folder("f2"), (a, desk.base, a)) == WorkspaceCreated(head=a, tree=a)


def test_starts_that_do_not_merge(desk: Desk) -> None:
    a = side(desk, "a", {"README.md": "a", "src/app.py": "a"})
    b = side(desk, "b", {"README.md": "b", "src/app.py": "b", "fine": "f"})
    assert desk.port.open(WORKTREE, (a, b)) == MergeConflict(paths=(Path("README.md"), Path("src/app.py")))
    assert not desk.worktree.exists()
    assert desk.repo.git("for-each-ref", "refs/mz", "refs/heads/feat") == ""


def test_merging_runs_nothing_of_the_users(desk: Desk, tmp_path: pathlib.Path) -> None:
    ran = tmp_path / "ran"
    desk.repo.git("config", "merge.evil.driver", f"touch {ran}")
    desk.repo.git("config", "merge.default", "evil")
    desk.repo.write({".gitattributes": "* merge=evil\n"})
    a = side(desk, "a", {"README.md": "a"})
    b = side(desk, "b", {"README.md": "b"})
    assert isinstance(desk.port.open(WORKTREE, (a, b)), MergeConflict)
    assert not ran.exists()


def test_nothing_of_the_environment_leads_git_astray(desk: Desk, tmp_path: pathlib.Path) -> None:
    other = GitRepo(tmp_path / "other")
    stray = {"GIT_DIR": str(other.root / ".git"), "GIT_WORK_TREE": str(other.root), "GIT_INDEX_FILE": "/nowhere"}
    environment = {**os.environ, **IDENTITY, **stray, "GIT_TRACE": "1", "GIT_OBJECT_DIRECTORY": "/nowhere"}
    assert find_root(desk.repo.root, environment) == desk.repo.root
    port = desk.another(environment)
    assert port.open(WORKTREE, (desk.base,)) == WorkspaceCreated(head=desk.base, tree=desk.base)
    assert other.git("for-each-ref") == ""
