"""Restoring: whatever an agent did to a worktree, branch, HEAD, index and content are put back."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import FeatureWorktree, WorkspaceCreated
from mz_events.names import Commit

from tests.support.desk import FILES, Desk
from tests.support.examples import examples
from tests.support.gitrepo import POWERLESS

pytestmark = pytest.mark.slow

CLEAN = "## feat/f1"


def nothing(desk: Desk) -> None:
    pass


def dirty(desk: Desk) -> None:
    desk.write({"src/app.py": "changed", "new": "n", "sub/dir/new": "n", "src/extra": "e"})
    (desk.worktree / "README.md").unlink()
    (desk.worktree / "empty/inner").mkdir(parents=True)


def commits(desk: Desk) -> None:
    desk.write({"new": "n"})
    desk.git("add", "--all")
    desk.git("commit", "--quiet", "-m", "mine")


def resets(desk: Desk) -> None:
    commits(desk)
    desk.git("checkout", "--quiet", "--orphan", "other")
    desk.git("commit", "--quiet", "-m", "root")
    desk.git("branch", "--force", "feat/f1", "other")


def detaches(desk: Desk) -> None:
    desk.git("checkout", "--quiet", "--detach")
    desk.git("rm", "--quiet", "-r", "src")


def switches(desk: Desk) -> None:
    desk.git("checkout", "--quiet", "-b", "mine")
    commits(desk)


def deletes_branch(desk: Desk) -> None:
    detaches(desk)
    desk.git("branch", "-D", "feat/f1")


def merges(desk: Desk) -> None:
    desk.git("checkout", "--quiet", "-b", "mine")
    desk.write({"README.md": "mine"})
    desk.git("commit", "--quiet", "-a", "-m", "mine")
    desk.git("checkout", "--quiet", "feat/f1")
    desk.write({"README.md": "theirs"})
    desk.git("commit", "--quiet", "-a", "-m", "theirs")
    with pytest.raises(AssertionError):
        desk.git("merge", "mine")
    assert (desk.private / "MERGE_HEAD").exists()


def bisects(desk: Desk) -> None:
    commits(desk)
    desk.git("bisect", "start", "HEAD", "HEAD^")


def hides(desk: Desk) -> None:
    desk.git("update-index", "--assume-unchanged", "README.md")
    desk.git("update-index", "--skip-worktree", "src/app.py")
    desk.write({"README.md": "x", "src/app.py": "y"})


def sparse(desk: Desk) -> None:
    desk.git("sparse-checkout", "set", "src")


def locks(desk: Desk) -> None:
    """As a git that was killed a while ago."""
    git = desk.repo.root / ".git"
    for file in (desk.private / "index", desk.private / "HEAD", git / "refs/heads/feat/f1", git / "refs/mz/r1/f1"):
        lock = file.with_name(f"{file.name}.lock")
        lock.touch()
        os.utime(lock, (0, 0))
    desk.write({"new": "n"})


def deletes_worktree(desk: Desk) -> None:
    shutil.rmtree(desk.worktree)


def deletes_git(desk: Desk) -> None:
    shutil.rmtree(desk.worktree / ".git")


def makes_repository(desk: Desk) -> None:
    """As below a level without mounts, where the agent's own git could."""
    for command in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "-m", "mine")):
        desk.repo.git(*command, cwd=desk.worktree)


def redirects(desk: Desk) -> None:
    deletes_git(desk)
    (desk.worktree / ".git").write_text("gitdir: /nowhere\n")


def plants_link(desk: Desk) -> None:
    """Where mz writes a file before it moves it to its place."""
    outside = desk.repo.root.parent / "outside"
    outside.mkdir()
    (outside / "precious").write_text("p")
    deletes_git(desk)
    (desk.worktree / ".git.partial").symlink_to(outside / "precious")


def blocks_git(desk: Desk) -> None:
    deletes_git(desk)
    os.mkfifo(desk.worktree / ".git")


def breaks_repository(desk: Desk) -> None:
    (desk.private / "HEAD").write_text("nonsense\n")
    (desk.private / "index").write_bytes(b"nonsense")
    (desk.private / "commondir").write_text("/nowhere\n")
    (desk.private / "config").write_text("[core\n")
    (desk.private / "objects/info/alternates").write_text("/nowhere\n")


def deletes_repository(desk: Desk) -> None:
    shutil.rmtree(desk.private)


def configures(desk: Desk) -> None:
    """Whatever of it could run a program at the next call of git."""
    desk.git("config", "core.fsmonitor", "/bin/false")
    desk.git("config", "alias.status", "!false")
    hook = desk.private / "hooks/pre-commit"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)


def replaces_with_link(desk: Desk) -> None:
    outside = desk.repo.root.parent / "outside"
    outside.mkdir()
    (outside / "precious").write_text("p")
    shutil.rmtree(desk.worktree / "src")
    (desk.worktree / "src").symlink_to(outside)


def replaces_worktree_with_link(desk: Desk) -> None:
    replaces_with_link(desk)
    shutil.rmtree(desk.worktree)
    desk.worktree.symlink_to(desk.repo.root.parent / "outside")


def swaps_kinds(desk: Desk) -> None:
    (desk.worktree / "README.md").unlink()
    desk.write({"README.md/inner/file": "f"})
    shutil.rmtree(desk.worktree / "src/lib")
    (desk.worktree / "src/lib").write_text("file")
    (desk.worktree / "src/app.py").unlink()
    (desk.worktree / "src/app.py").symlink_to("../README.md")


def makes_the_index_a_folder(desk: Desk) -> None:
    (desk.private / "index").unlink()
    (desk.private / "index").mkdir()
    (desk.private / "index/x").touch()


def forbids(desk: Desk) -> None:
    desk.write({"closed/inner/file": "f"})
    (desk.worktree / "closed/inner").chmod(0)
    (desk.worktree / "closed").chmod(0)
    (desk.worktree / "src/app.py").write_text("changed")
    (desk.worktree / "src").chmod(0o500)


def modes(desk: Desk) -> None:
    (desk.worktree / "README.md").chmod(0o755)


def nests_deeply(desk: Desk) -> None:
    """Deeper than a path may be long, so that only relative steps lead there."""
    script = (
        "import os\nfor _ in range(50):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\nopen('file', 'w').close()\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=desk.worktree, check=True)


ACTS: tuple[Callable[[Desk], None], ...] = (
    *(nothing, dirty, commits, resets, detaches, switches, deletes_branch, merges, bisects, hides, sparse, locks),
    *(deletes_worktree, deletes_git, makes_repository, redirects, blocks_git, configures, breaks_repository),
    plants_link,
    makes_the_index_a_folder,
    *(deletes_repository, replaces_with_link, replaces_worktree_with_link, swaps_kinds, forbids, modes, nests_deeply),
)


@pytest.mark.parametrize("fresh", [False, True], ids=["same-process", "next-process"])
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_the_worktree_is_put_back(desk: Desk, act: Callable[[Desk], None], fresh: bool) -> None:
    act(desk)
    port = desk.another() if fresh else desk.port
    port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert desk.state() == CLEAN
    assert desk.git("rev-parse", "HEAD") == desk.repo.head("feat/f1") == desk.base
    assert desk.git("symbolic-ref", "HEAD") == "refs/heads/feat/f1"
    assert desk.git("ls-files", "-v").splitlines() == [f"H {name}" for name in sorted(FILES)]
    assert sorted(path.name for path in desk.worktree.iterdir()) == [".git", ".gitignore", "README.md", "src"]
    assert desk.repo.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert not (desk.repo.root / ".git/worktrees").exists()
    assert not list((desk.worktree / ".git").iterdir())
    assert not list((desk.repo.root / ".git").rglob("*.lock"))
    outside = desk.repo.root.parent / "outside/precious"
    assert not outside.parent.exists() or outside.read_text() == "p"
    assert "You are currently" not in desk.git("status")
    desk.git("commit", "--quiet", "--allow-empty", "-m", "still works")
    assert desk.git("rev-list", "--parents", "-1", "HEAD").split()[1:] == [desk.base]


def test_a_merge_shows_the_agent_where_the_target_branch_is_now(desk: Desk) -> None:
    target = desk.repo.commit({"other": "o"}, "theirs")
    assert desk.git("rev-parse", "main") == desk.base
    desk.port.merge(desk.feature_worktree, desk.base, target, b"Merge main\n")
    assert desk.git("rev-parse", "main") == target
    assert desk.git("diff", "--name-only", "main") == ""


def test_the_tree_may_differ_from_the_head(desk: Desk) -> None:
    desk.write({"src/app.py": "changed", "new": "n"})
    (desk.worktree / "README.md").unlink()
    tree = desk.port.capture(desk.feature_worktree, desk.base).tree
    state = desk.state()
    commits(desk)
    shutil.rmtree(desk.worktree / "src")
    desk.port.ensure(desk.feature_worktree, desk.base, tree)
    assert desk.state() == state == f"{CLEAN}\n D README.md\n M src/app.py\n?? new"


def test_commits_that_lose_their_branch_are_kept(desk: Desk) -> None:
    lost = desk.commit_by_hand()
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    actual = desk.repo.git("for-each-ref", "--points-at", lost, "--format=%(refname)")
    assert actual == f"refs/mz/r1/rescue/heads/feat/f1/{lost}"


def test_the_index_knows_the_files(desk: Desk) -> None:
    """So that plumbing which does not refresh it works for an agent too."""
    dirty(desk)
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert desk.git("diff-files") == ""
    made = desk.port.commit(desk.feature_worktree, desk.base, desk.base, b"nothing\n")
    desk.port.ensure(desk.feature_worktree, made.commit, desk.base)
    assert desk.git("diff-files") == ""


def test_the_index_is_the_one_that_git_writes(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    deep = "/".join(["d" * 200] * 15)
    desk.repo.write(
        {"empty": "", "bytes \u00fc": b"\0\xff", f"{deep}/file": "f", **{"n" * size: "n" for size in range(1, 20)}}
    )
    (desk.repo.root / "run").write_text("#!/bin/sh\n")
    (desk.repo.root / "run").chmod(0o755)
    (desk.repo.root / "pointer").symlink_to("run")
    desk.repo.git("update-index", "--add", "--cacheinfo", f"160000,{desk.base},lib/sub")
    desk.repo.git("add", "--all", ":!lib")
    desk.repo.git("commit", "--quiet", "-m", "everything")
    desk.base = desk.repo.head()
    desk.open()
    ours = desk.git("ls-files", "--stage", "--debug")
    assert desk.git("diff-files") == ""
    assert desk.git("diff-index", "--cached", desk.base) == ""
    assert "lib/sub" in ours
    (desk.private / "index").unlink()
    desk.git("reset", "--quiet")
    assert stored_fields(desk.git("ls-files", "--stage", "--debug")) == stored_fields(ours)


def stored_fields(listing: str) -> list[str]:
    """The lines of `git ls-files --debug` but for flags, some of which only memory holds."""
    return [line for line in listing.splitlines() if "flags:" not in line]


def test_refs_in_a_table_are_found(desk: Desk) -> None:
    desk.repo.git("pack-refs", "--all", "--prune")
    assert desk.port.capture(desk.feature_worktree, desk.base).tree == desk.base
    desk.write({"new": "n"})
    tree = desk.port.capture(desk.feature_worktree, desk.base).tree
    desk.repo.git("pack-refs", "--all", "--prune")
    assert desk.port.capture(desk.feature_worktree, desk.base).tree == tree
    desk.port.ensure(desk.feature_worktree, desk.base, tree)
    assert desk.port.commit(desk.feature_worktree, tree, desk.base, b"m\n").files == 1


def test_files_that_stay_the_same_are_not_touched(desk: Desk) -> None:
    times = {name: (desk.worktree / name).stat().st_ctime_ns for name in FILES}
    desk.write({"src/app.py": "changed"})
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert [name for name in FILES if (desk.worktree / name).stat().st_ctime_ns != times[name]] == ["src/app.py"]


def test_closed_directories_are_opened_without_the_power_of_root(desk: Desk) -> None:
    script = (
        "import pathlib, sys\n"
        "from mz_engine.git.workspace import GitWorkspace\n"
        "from mz_engine.model.config import WorkspaceSettings\n"
        "from mz_engine.ports import FeatureWorktree\n"
        "port = GitWorkspace(pathlib.Path(sys.argv[1]), WorkspaceSettings())\n"
        "place = FeatureWorktree(run='r1', feature='f1', branch='feat/f1')\n"
        "tree = port.capture(place, sys.argv[2]).tree\n"
        "print(*port.paths(tree))\n"
        "port.ensure(place, sys.argv[2], sys.argv[2])\n"
    )
    forbids(desk)
    command = [*POWERLESS, sys.executable, "-c", script, str(desk.repo.root), desk.base]
    assert subprocess.check_output(command).decode().split() == sorted([*FILES, "closed/inner/file"])
    assert desk.state() == CLEAN
    assert not (desk.worktree / "closed").exists()


def test_another_name_of_a_file_is_not_written_through(desk: Desk) -> None:
    precious = desk.repo.root.parent / "precious"
    precious.write_text("p")
    (desk.worktree / "README.md").unlink()
    (desk.worktree / "README.md").hardlink_to(precious)
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert precious.read_text() == "p"
    assert (desk.worktree / "README.md").read_text() == FILES["README.md"]


# ignored files --------------------------------------------------------------------------------------------------------
def test_ignored_files_are_kept_when_they_were_there_or_are_to_be_kept(desk: Desk) -> None:
    desk.write({"build/old": "1", "old.log": "1", "web/node_modules/x/y": "1", ".venv/bin/z": "1"})
    before = desk.port.capture(desk.feature_worktree, desk.base).tree
    desk.write({"build/new": "2", "build/sub/new": "2", "new.log": "2", "web/node_modules/new": "2", "src/x.log": "2"})
    after = desk.port.capture(desk.feature_worktree, before).tree
    assert after != before
    assert desk.repo.tree(after) == desk.repo.tree(before)
    desk.another().ensure(desk.feature_worktree, desk.base, after)
    assert (desk.worktree / "build/sub/new").exists()
    desk.another().ensure(desk.feature_worktree, desk.base, before)
    left = {str(path.relative_to(desk.worktree)) for path in desk.worktree.rglob("*") if path.is_file()}
    ignored = {"build/old", "old.log", "web/node_modules/x/y", "web/node_modules/new"}
    assert left == {*FILES, *ignored, ".venv/bin/z"}
    assert not (desk.worktree / "build/sub").exists()
    kept = desk.port.revert_paths(desk.feature_worktree, before, desk.base, ())
    desk.another().ensure(desk.feature_worktree, desk.base, kept)
    assert (desk.worktree / "build/old").exists()


def test_after_our_notes_are_lost_the_worktree_is_as_a_new_one(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path, WorkspaceSettings(copy=(".env",), keep_ignored=("node_modules",)))
    desk.repo.write({".env": "1"})
    desk.open()
    desk.write({"build/old": "1", "node_modules/x": "1"})
    tree = desk.port.capture(desk.feature_worktree, desk.base).tree
    shutil.rmtree(desk.repo.root / ".mz/worktree-notes")
    desk.another().ensure(desk.feature_worktree, desk.base, tree)
    assert desk.state() == f"{CLEAN}\n!! .env\n!! node_modules/x"


def test_a_kept_file_makes_way_for_a_tracked_directory(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path, files={".gitignore": "node_modules", "node_modules/own/file": "tracked"})
    desk.open()
    shutil.rmtree(desk.worktree / "node_modules")
    (desk.worktree / "node_modules").write_text("a file now")
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert (desk.worktree / "node_modules/own/file").read_text() == "tracked"


def test_what_is_kept_must_be_ignored(desk: Desk) -> None:
    desk.write({".venv/file": "1"})
    assert desk.port.paths(desk.port.capture(desk.feature_worktree, desk.base).tree)[0] == ".gitignore"
    desk.write({"sub/.venv/file": "1"})
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert not (desk.worktree / "sub").exists()


# everything at once ---------------------------------------------------------------------------------------------------
NAMES = st.one_of(
    st.sampled_from(["a", "b", "c.log", "build", ".gitignore", "x y", "ü", 'q"q', "t\tt", "\\", "-n", ":!x", "*"]),
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6),
).filter(lambda name: name not in (".", "..") and name.lower() != ".git" and name != ".mz")
CONTENT = st.one_of(
    st.tuples(st.just("file"), st.binary(max_size=20)),
    st.tuples(st.just("exec"), st.binary(max_size=20)),
    st.tuples(st.just("link"), st.sampled_from([b"a", b"../x", b"/nowhere", b"b/c"])),
)
TREES = st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), CONTENT, max_size=8)


def put(top: pathlib.Path, files: dict[str, tuple[str, bytes]]) -> None:
    """As much of it as fits together. Nothing is written through a link, which may lead outside."""
    for name, (kind, content) in files.items():
        path = top / name
        try:
            if path.is_symlink():
                path.unlink()
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "link":
                path.symlink_to(os.fsdecode(content))
            else:
                path.write_bytes(content)
                path.chmod(0o755 if kind == "exec" else 0o644)
        except OSError:
            continue


@pytest.mark.slow
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=TREES, second=TREES)
def test_a_captured_tree_can_be_had_elsewhere(
    desk: Desk, first: dict[str, tuple[str, bytes]], second: dict[str, tuple[str, bytes]]
) -> None:
    other = FeatureWorktree(run="r1", feature="f2", branch="feat/f2")
    elsewhere = desk.worktree.with_name("f2")
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert isinstance(desk.port.open(other, (desk.base,)), WorkspaceCreated)
    before: Commit = desk.base
    for files in (first, second):
        put(desk.worktree, files)
        capture = desk.port.capture(desk.feature_worktree, before)
        desk.port.ensure(other, desk.base, capture.tree)
        again = desk.port.capture(other, capture.tree)
        assert again.forbidden_changes == ()
        assert desk.repo.tree(again.tree) == desk.repo.tree(capture.tree)
        assert elsewhere.joinpath("README.md").exists() == (desk.worktree / "README.md").is_file()
        assert desk.port.changes(capture.tree, again.tree) == ()
        before = capture.tree
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert desk.state() == CLEAN
