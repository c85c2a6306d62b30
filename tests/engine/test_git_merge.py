"""A target that moved: found at its remote without moving the user's refs, and merged into a feature's branch."""

from __future__ import annotations

import os
import pathlib
import re
import shutil

import pytest
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import MergeResult, RemoteError, RepositoryUnusable
from mz_events.names import Commit, Path

from tests.engine.test_git_killed import Cutter
from tests.support.desk import FILES, WORKTREE, Desk
from tests.support.gitrepo import IDENTITY, GitRepo

pytestmark = pytest.mark.slow

KEY = "r1/f1/pr//1/1/merge_base"
MESSAGE = f"chore: merge main\n\nMz-Run: r1\nMz-Key: {KEY}\n".encode()


def work(desk: Desk, files: dict[str, str | bytes], gone: tuple[str, ...] = ()) -> Commit:
    """What an agent did, as the branch's next commit."""
    desk.write(files)
    for name in gone:
        (desk.worktree / name).unlink()
    parent = desk.repo.head("feat/f1")
    return desk.port.commit(WORKTREE, desk.port.capture(WORKTREE, parent).tree, parent, b"feat: work\n").commit


def moved(desk: Desk, files: dict[str, str | bytes], gone: tuple[str, ...] = ()) -> Commit:
    """What somebody else did, on `main`."""
    for name in gone:
        (desk.repo.root / name).unlink()
    return desk.repo.commit(files, "theirs")


def merge(desk: Desk, head: Commit, other: Commit) -> MergeResult:
    merged = desk.port.merge(WORKTREE, head, other, MESSAGE)
    if not merged.changed:
        desk.port.ensure(WORKTREE, merged.commit, merged.tree)
    assert desk.repo.head("feat/f1") == merged.commit == desk.git("rev-parse", "HEAD")
    assert desk.repo.tree(merged.tree) == desk.repo.tree(merged.commit)
    assert desk.git("status", "--short", "--untracked-files=all") == "", "worktree and index hold the commit"
    assert desk.port.capture(WORKTREE, merged.tree).tree == merged.tree
    return merged


# merging --------------------------------------------------------------------------------------------------------------
def test_both_sides_come_together(desk: Desk) -> None:
    head = work(desk, {"src/app.py": "print('mine')\n", "mine": "1"})
    other = moved(desk, {"README.md": "# Other\n", "theirs": "1"}, gone=("src/lib/deep.py",))
    merged = merge(desk, head, other)
    assert merged.changed
    assert merged.conflicts == ()
    assert desk.repo.git("show", "-s", "--format=%P", merged.commit) == f"{head} {other}"
    body = desk.repo.git("cat-file", "commit", merged.commit).split("\n\n", 1)[1]
    assert body == MESSAGE.decode().removesuffix("\n")
    assert desk.tree(merged.commit) == {
        ".gitignore": desk.tree(desk.base)[".gitignore"],
        "README.md": "100644 # Other",
        "mine": "100644 1",
        "src/app.py": "100644 print('mine')",
        "theirs": "100644 1",
    }
    assert not (desk.worktree / "src/lib").exists()
    created_commit = desk.another().find_commit(WORKTREE, KEY)
    assert created_commit is not None
    assert created_commit.commit == merged.commit


def test_what_is_in_the_branch_already_changes_nothing(desk: Desk) -> None:
    head = work(desk, {"mine": "1"})
    before = desk.repo.git("for-each-ref")
    for other in (desk.base, head):
        merged = merge(desk, head, other)
        assert (merged.commit, merged.changed, merged.conflicts) == (head, False, ())
    assert desk.repo.git("for-each-ref") == before


def test_a_branch_that_did_nothing_yet_gets_a_merge_too(desk: Desk) -> None:
    other = moved(desk, {"theirs": "1"})
    merged = merge(desk, desk.base, other)
    assert desk.repo.git("show", "-s", "--format=%P", merged.commit) == f"{desk.base} {other}"
    assert desk.repo.tree(merged.commit) == desk.repo.tree(other)


def test_conflicts_are_committed_with_their_markers(desk: Desk) -> None:
    head = work(desk, {"src/app.py": "print('mine')\n", "fine": "1"})
    other = moved(desk, {"src/app.py": "print('theirs')\n", "README.md": "# Other\n"})
    merged = merge(desk, head, other)
    assert merged.changed
    assert merged.conflicts == (Path("src/app.py"),)
    text = "<<<<<<< ours\nprint('mine')\n=======\nprint('theirs')\n>>>>>>> theirs\n"
    assert (desk.worktree / "src/app.py").read_text() == text
    assert (desk.worktree / "README.md").read_text() == "# Other\n"
    work(desk, {"src/app.py": "print('both')\n"})
    assert desk.port.contains(desk.repo.head("feat/f1"), other)


def test_all_kinds_of_conflicts_are_listed(desk: Desk) -> None:
    head = work(
        desk,
        {"README.md": "# Mine\n", "both": "mine\n", "bin": b"\0mine", "src/lib/deep.py": "x = 2\n", "place": "file"},
    )
    other = moved(
        desk,
        {"both": "theirs\n", "bin": b"\0theirs", "place/inside": "1", "fine": "1"},
        gone=("README.md", "src/lib/deep.py"),
    )
    merged = merge(desk, head, other)
    conflicts = {"README.md", "both", "bin", "src/lib/deep.py", "place~ours"}
    assert set(merged.conflicts) == {Path(path) for path in conflicts}
    content = desk.tree(merged.commit)
    assert content["README.md"] == "100644 # Mine", "changed here, deleted there"
    assert content["bin"] == "100644 \0mine"
    assert content["fine"] == "100644 1"


def test_files_that_were_renamed_are_followed(desk: Desk) -> None:
    lines = "".join(f"line {number}\n" for number in range(40))
    base = moved(desk, {"long": lines})
    desk.port.merge(WORKTREE, desk.base, base, b"start\n")
    head = work(desk, {"renamed": lines}, gone=("long",))
    other = moved(desk, {"long": lines.replace("line 20", "line twenty")})
    assert merge(desk, head, other).conflicts == ()
    assert "line twenty" in (desk.worktree / "renamed").read_text()


def test_a_merge_comes_out_the_same_every_time(desk: Desk) -> None:
    head = work(desk, {"src/app.py": "print('mine')\n"})
    other = moved(desk, {"src/app.py": "print('theirs')\n"})
    first = merge(desk, head, other)
    assert desk.another().merge(WORKTREE, head, other, MESSAGE) == first
    desk.port.ensure(WORKTREE, head, head)
    again = desk.another().merge(WORKTREE, head, other, MESSAGE)
    assert (again.commit, again.conflicts) == (first.commit, first.conflicts)
    assert (desk.worktree / "src/app.py").read_text().startswith("<<<<<<< ours\n")


def test_a_merge_is_as_old_as_its_newer_side(desk: Desk, tmp_path: pathlib.Path) -> None:
    """So it has the same id whenever it is made again."""
    sides = []
    for second in (1_700_000_000, 1_700_000_007):
        text = desk.repo.git("cat-file", "commit", moved(desk, {f"file{second}": "1"}))
        (tmp_path / "commit").write_text(re.sub(r"> \d+ [+-]\d+", f"> {second} +0000", text) + "\n")
        sides.append(Commit(desk.repo.git("hash-object", "-t", "commit", "-w", str(tmp_path / "commit"))))
    desk.port.ensure(WORKTREE, sides[0], sides[0])
    merged = desk.port.merge(WORKTREE, sides[0], sides[1], MESSAGE)
    assert desk.repo.git("show", "-s", "--format=%at %ct", merged.commit) == "1700000007 1700000007"


def test_a_branch_that_was_moved_meanwhile_is_put_back_first(desk: Desk) -> None:
    head = work(desk, {"mine": "1"})
    by_hand = desk.commit_by_hand()
    other = moved(desk, {"theirs": "1"})
    merged = merge(desk, head, other)
    assert desk.repo.git("show", "-s", "--format=%P", merged.commit) == f"{head} {other}"
    assert desk.repo.head(f"refs/mz/r1/rescue/heads/feat/f1/{by_hand}") == by_hand


def test_what_the_set_up_made_stays(desk: Desk) -> None:
    desk.write({"build/out": "1", "node_modules/x": "1"})
    tree = desk.port.capture(WORKTREE, desk.base).tree
    desk.port.adopt(WORKTREE, tree)
    head = work(desk, {"mine": "1"})
    merged = merge(desk, head, moved(desk, {"theirs": "1"}))
    assert (desk.worktree / "build/out").exists()
    assert desk.port.ensure(WORKTREE, merged.commit, merged.tree) is False
    assert desk.another().ensure(WORKTREE, merged.commit, merged.tree) is False
    assert (desk.worktree / "build/out").exists()
    assert (desk.worktree / "node_modules/x").exists()


def test_what_was_tracked_and_is_ignored_now_goes(desk: Desk) -> None:
    head = work(desk, {"mine": "1"})
    rules = f"{FILES['.gitignore']!s}src/lib/\n"
    merged = merge(desk, head, moved(desk, {".gitignore": rules}, gone=("src/lib/deep.py",)))
    assert Path("src/lib/deep.py") not in desk.port.paths(merged.tree)
    assert not (desk.worktree / "src/lib/deep.py").exists()


def test_a_worktree_that_has_vanished_is_built_for_the_merge(desk: Desk) -> None:
    tree = desk.port.capture(WORKTREE, desk.base).tree
    desk.port.adopt(WORKTREE, tree)
    head = work(desk, {"mine": "1"})
    other = moved(desk, {"theirs": "1"})
    shutil.rmtree(desk.worktree)
    merged = merge(desk, head, other)
    assert (desk.worktree / "theirs").read_text() == "1"
    assert desk.port.ensure(WORKTREE, merged.commit, merged.tree) is True, "nobody has set it up"


def test_nothing_that_a_repository_configures_takes_part(desk: Desk, tmp_path: pathlib.Path) -> None:
    ran = tmp_path / "ran"
    other = moved(desk, {"src/app.py": "print('theirs')\n"})
    desk.repo.git("config", "merge.loud.driver", f"touch {ran}")
    desk.repo.git("config", "filter.loud.smudge", f"touch {ran}")
    desk.repo.git("config", "merge.conflictStyle", "diff3")
    for name in ("post-merge", "pre-merge-commit", "commit-msg", "reference-transaction", "post-checkout"):
        hook = desk.repo.root / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
        hook.chmod(0o755)
    head = work(desk, {"src/app.py": "print('mine')\n", ".gitattributes": "* merge=loud filter=loud\n"})
    (desk.repo.root / ".git/info").mkdir(exist_ok=True)
    (desk.repo.root / ".git/info/attributes").write_text("* merge=loud filter=loud\n")
    merged = desk.another().merge(WORKTREE, head, other, MESSAGE)
    assert merged.conflicts == (Path("src/app.py"),)
    assert "|||||||" not in (desk.worktree / "src/app.py").read_text(), "the user's style of conflicts"
    assert not ran.exists()


def test_histories_that_have_nothing_in_common_are_refused(desk: Desk) -> None:
    commit = Commit(desk.repo.git("commit-tree", f"{desk.base}^{{tree}}", "-m", "alone"))
    with pytest.raises(RepositoryUnusable, match="unrelated histories"):
        desk.port.merge(WORKTREE, desk.base, commit, MESSAGE)
    assert desk.repo.head("feat/f1") == desk.base


def test_a_git_that_cannot_merge_says_so(desk: Desk, tmp_path: pathlib.Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    (old / "git").write_text(
        '#!/bin/sh\ncase " $* " in *" merge-tree "*)\n'
        "echo 'usage: git merge-tree <base-tree> <branch1> <branch2>' >&2; exit 129;; esac\n"
        f'exec {shutil.which("git")} "$@"\n'
    )
    (old / "git").chmod(0o755)
    head = work(desk, {"mine": "1"})
    other = moved(desk, {"theirs": "1"})
    port = desk.another({**os.environ, "PATH": f"{old}{os.pathsep}{os.environ['PATH']}"})
    with pytest.raises(RepositoryUnusable, match=r"git 2\.38 or newer") as refused:
        port.merge(WORKTREE, head, other, MESSAGE)
    assert refused.value.code == "git-too-old"
    assert desk.repo.head("feat/f1") == head


def test_ancestors_are_contained(desk: Desk) -> None:
    head = work(desk, {"mine": "1"})
    other = moved(desk, {"theirs": "1"})
    assert desk.port.contains(head, desk.base)
    assert desk.port.contains(head, head)
    assert not desk.port.contains(desk.base, head)
    assert not desk.port.contains(head, other)
    assert not desk.port.contains(head, Commit("1" * 40)), "not in the repository"
    with pytest.raises(RepositoryUnusable):
        desk.port.contains(Commit("1" * 40), head)


# killed ---------------------------------------------------------------------------------------------------------------
FEATURE = """\
    other = port.target_head(None, "main")
    merged = port.merge(place, base, other, b"merge\\n\\nMz-Key: one\\n")
    print(merged.commit, merged.tree, merged.conflicts, merged.changed, file=open(root / "merged", "w"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_between_any_two_steps_it_comes_to_the_same_end(tmp_path: pathlib.Path, when: str) -> None:
    cutter = Cutter(tmp_path / "commands", FEATURE)

    def cut(name: str) -> Desk:
        desk = Desk(tmp_path / name)
        desk.open()
        desk.write({"build/out": "1", "src/app.py": "print('mine')\n"})
        tree = desk.port.capture(WORKTREE, desk.base).tree
        desk.port.adopt(WORKTREE, tree)
        desk.base = desk.port.commit(WORKTREE, tree, desk.base, b"feat: work\n").commit
        desk.repo.commit({"src/app.py": "print('theirs')\n", "theirs": "1"}, "theirs")
        return desk

    with cutter.process:
        desk = cut("clean")
        ended, steps = cutter.run(desk)
        assert ended == 0
        wanted = desk.tree(desk.repo.head("feat/f1"))
        assert "<<<<<<< ours" in wanted["src/app.py"]
        for fatal in range(1, steps + 1):
            desk = cut(f"cut{fatal}")
            cutter.kill(desk, fatal, when)
            assert cutter.run(desk)[0] == 0
            head = desk.repo.head("feat/f1")
            assert desk.tree(head) == wanted
            assert desk.repo.git("log", "--first-parent", "--format=%s", "feat/f1").split("\n")[0] == "merge"
            assert desk.repo.head(f"{head}^1") == desk.base
            assert desk.state() == "## feat/f1\n!! build/out"
            assert "src/app.py" in (desk.repo.root / "merged").read_text()


# the target -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def far(desk: Desk, tmp_path: pathlib.Path) -> GitRepo:
    """A remote that has what the user's `main` had, and one commit more."""
    far = GitRepo(tmp_path / "far")
    desk.repo.git("remote", "add", "origin", str(far.root))
    far.git("fetch", "--quiet", str(desk.repo.root), "main")
    far.git("reset", "--quiet", "--hard", "FETCH_HEAD")
    desk.repo.git("fetch", "--quiet", "origin")
    far.commit({"theirs": "1"})
    return far


def test_without_a_remote_it_is_the_users_branch(desk: Desk) -> None:
    assert desk.port.target_head(None, "main") == desk.base
    assert desk.port.target_head(None, "absent") is None
    assert desk.port.target_head(None, "--all") is None
    desk.repo.git("tag", "v1")
    assert desk.port.target_head(None, "v1") is None, "a tag is no branch"


def refs(desk: Desk) -> str:
    return desk.repo.git("for-each-ref", "refs/heads", "refs/tags", "refs/remotes")


def test_a_target_is_fetched_and_no_ref_of_the_users_moves(desk: Desk, far: GitRepo) -> None:
    far.git("tag", "v9")
    for name, value in (("fetch.prune", "true"), ("remote.origin.tagOpt", "--tags"), ("fetch.pruneTags", "true")):
        desk.repo.git("config", name, value)
    desk.repo.git("update-ref", "refs/remotes/origin/gone-there", desk.base)
    fetch_head = desk.repo.root / ".git/FETCH_HEAD"
    fetch_head.unlink()
    before = refs(desk)
    newest = desk.port.target_head("origin", "main")
    assert newest == far.head() != desk.base
    assert refs(desk) == before
    assert not fetch_head.exists()
    assert newest is not None
    assert desk.port.merge(WORKTREE, desk.base, newest, MESSAGE).changed
    rewritten = far.git("commit-tree", f"{far.head()}^{{tree}}", "-p", desk.base, "-m", "rewritten")
    far.git("update-ref", "refs/heads/main", rewritten)
    assert desk.port.target_head("origin", "main") == rewritten


def test_a_target_that_the_remote_lacks_is_the_users(desk: Desk, far: GitRepo) -> None:
    desk.repo.git("branch", "local-only")
    assert desk.port.target_head("origin", "local-only") == desk.base
    assert desk.port.target_head("origin", "absent") is None


def test_a_target_may_take_the_place_of_a_directory_of_targets(desk: Desk, far: GitRepo) -> None:
    far.git("branch", "a/b")
    assert desk.port.target_head("origin", "a/b") == far.head()
    far.git("branch", "-D", "a/b")
    far.git("branch", "a")
    assert desk.port.target_head("origin", "a") == far.head()
    far.git("branch", "a%2Fb")
    assert desk.port.target_head("origin", "a%2Fb") == far.head()


def test_a_remote_that_cannot_be_reached_is_no_answer(desk: Desk, far: GitRepo) -> None:
    with pytest.raises(RemoteError, match="`git fetch` failed"):
        desk.port.target_head("absent", "main")
    shutil.rmtree(far.root)
    with pytest.raises(RemoteError, match="does not appear to be a git repository"):
        desk.port.target_head("origin", "main")


def test_a_lock_that_a_killed_git_left_is_removed(desk: Desk, far: GitRepo) -> None:
    desk.port.target_head("origin", "main")
    lock = desk.repo.root / ".git/refs/mz/targets/origin/main.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    far.commit({"more": "1"})
    assert desk.port.target_head("origin", "main") == far.head()
    assert not lock.exists()


def test_a_worktree_may_keep_what_the_merge_brings_over_ignored_files(tmp_path: pathlib.Path) -> None:
    """What `workspace.keep_ignored` keeps is not in the way of a file of the same name that comes with the merge."""
    desk = Desk(tmp_path, WorkspaceSettings(keep_ignored=("node_modules",)))
    desk.open()
    desk.write({"node_modules/x": "mine", ".env": "mine"})
    merged = merge(desk, desk.base, moved(desk, {".env": "theirs"}))
    assert desk.tree(merged.commit)[".env"] == "100644 theirs"
    assert (desk.worktree / ".env").read_text() == "theirs"
    assert (desk.worktree / "node_modules/x").read_text() == "mine"


def test_the_identity_of_a_merge_is_the_users(desk: Desk) -> None:
    head = work(desk, {"mine": "1"})
    other = moved(desk, {"theirs": "1"})
    made = desk.another({**os.environ, **IDENTITY}).merge(WORKTREE, head, other, MESSAGE).commit
    assert desk.repo.git("show", "-s", "--format=%an %cn", made) == "Ada Ada"
