"""Branches and tags of the user's that a delivery changes: moved forward only, with the files of a checkout."""

from __future__ import annotations

import pathlib
import shutil

import pytest
from mz_engine.ports import DeliveryRefused, RepositoryUnusable
from mz_events.names import Commit

from tests.engine.test_git_killed import Cutter
from tests.support.desk import WORKTREE, Desk

MESSAGE = b"Merge branch 'feat/f1' into main\n\nMz-Key: r1/f1/pr/-/1/0/merge\n"
MAIN = "refs/heads/main"


def joined(desk: Desk, files: dict[str, str | bytes]) -> Commit:
    """A merge of what an agent did, which no ref has."""
    desk.write(files)
    tree = desk.port.capture(WORKTREE, desk.base).tree
    head = desk.port.commit(WORKTREE, tree, desk.base, b"feat: work\n").commit
    return desk.port.join(desk.base, head, MESSAGE).commit


def others(desk: Desk, ref: str) -> str:
    lines = desk.repo.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return "\n".join(line for line in lines if not line.startswith(("refs/mz/", f"{ref} ")))


def status(desk: Desk) -> str:
    return desk.repo.git("status", "--short", "--branch", "--untracked-files=all")


def test_a_merge_has_both_parents_and_the_very_tree_and_the_same_bytes_again(desk: Desk) -> None:
    commit = joined(desk, {"src/app.py": "print('mine')\n", "mine": "1"})
    head = desk.repo.head("feat/f1")
    assert desk.repo.git("show", "-s", "--format=%P", commit) == f"{desk.base} {head}"
    assert desk.repo.tree(commit) == desk.repo.tree(head)
    again = desk.another().join(desk.base, Commit(head), MESSAGE)
    assert (again.commit, again.files, again.insertions, again.deletions) == (commit, 2, 2, 1)


def test_a_branch_moves_forward_and_the_files_of_its_checkout_follow(desk: Desk) -> None:
    commit = joined(desk, {"src/app.py": "print('mine')\n", "mine": "1"})
    before = others(desk, MAIN)
    assert desk.port.advance("main", desk.base, commit) is None
    assert desk.repo.head("main") == commit
    assert (desk.repo.root / "mine").read_text() == "1"
    assert status(desk) == "## main"
    assert others(desk, MAIN) == before
    assert desk.another().advance("main", desk.base, commit) is None, "once more changes nothing"


def test_a_branch_that_nobody_has_checked_out_moves_and_no_file_changes(desk: Desk) -> None:
    commit = joined(desk, {"mine": "1"})
    desk.repo.git("switch", "--quiet", "-c", "elsewhere")
    desk.port.advance("main", desk.base, commit)
    assert desk.repo.head("main") == commit
    assert not (desk.repo.root / "mine").exists()
    assert status(desk) == "## elsewhere"


def test_what_a_person_changed_elsewhere_in_the_checkout_stays(desk: Desk) -> None:
    commit = joined(desk, {"src/app.py": "print('mine')\n"})
    desk.repo.write({"README.md": "# Draft\n", "note": "own", "staged": "1"})
    desk.repo.git("add", "staged")
    desk.port.advance("main", desk.base, commit)
    assert (desk.repo.root / "README.md").read_text() == "# Draft\n"
    assert status(desk).splitlines() == ["## main", " M README.md", "A  staged", "?? note"]


@pytest.mark.parametrize(
    ("path", "staged"), [("src/app.py", False), ("src/app.py", True), ("mine", False)], ids=["edited", "staged", "new"]
)
def test_what_is_in_the_way_moves_nothing(desk: Desk, path: str, staged: bool) -> None:
    commit = joined(desk, {"src/app.py": "print('mine')\n", "mine": "1"})
    desk.repo.write({path: "own"})
    if staged:
        desk.repo.git("add", path)
    before = status(desk)
    with pytest.raises(DeliveryRefused, match=f"something there is in the way.*{path}") as refused:
        desk.port.advance("main", desk.base, commit)
    assert refused.value.code == "checkout-in-the-way"
    assert (desk.repo.head("main"), status(desk)) == (desk.base, before)
    assert (desk.repo.root / path).read_text() == "own"


def test_a_branch_that_moved_is_left_where_it_is(desk: Desk) -> None:
    commit = joined(desk, {"mine": "1"})
    moved = desk.repo.commit({"theirs": "1"}, "theirs")
    assert desk.port.advance("main", desk.base, commit) == moved
    assert desk.repo.head("main") == moved
    desk.repo.git("switch", "--quiet", "--detach")
    desk.repo.git("branch", "--quiet", "-D", "main")
    assert desk.port.advance("main", desk.base, commit) == desk.base
    assert desk.port.target_head(None, "main") is None


def test_a_branch_beyond_the_merge_contains_it(desk: Desk) -> None:
    commit = joined(desk, {"mine": "1"})
    desk.port.advance("main", desk.base, commit)
    later = desk.repo.commit({"later": "1"}, "later")
    assert desk.port.advance("main", desk.base, commit) is None
    assert desk.repo.head("main") == later


def test_files_that_did_not_follow_before_a_crash_follow_afterwards(desk: Desk) -> None:
    commit = joined(desk, {"src/app.py": "print('mine')\n", "mine": "1"})
    desk.repo.git("update-ref", MAIN, commit, desk.base)
    assert status(desk) != "## main"
    desk.port.advance("main", desk.base, commit)
    assert status(desk) == "## main"


def test_a_linked_worktree_of_a_person_follows_too(desk: Desk, tmp_path: pathlib.Path) -> None:
    commit = joined(desk, {"mine": "1"})
    desk.repo.git("switch", "--quiet", "--detach")
    linked = tmp_path / "linked"
    desk.repo.git("worktree", "add", "--quiet", str(linked), "main")
    desk.port.advance("main", desk.base, commit)
    assert (linked / "mine").read_text() == "1"
    assert desk.repo.git("status", "--short", cwd=linked) == ""
    shutil.rmtree(linked)
    desk.repo.git("update-ref", MAIN, desk.base)
    assert desk.port.advance("main", desk.base, commit) is None


# tags and closed branches ---------------------------------------------------------------------------------------------
def test_a_tag_is_made_once_and_never_moved(desk: Desk) -> None:
    assert desk.port.tagged("v1") is None
    desk.port.tag("v1", desk.base)
    assert desk.port.tagged("v1") == desk.base
    commit = joined(desk, {"mine": "1"})
    for name in ("v1", "v1/more"):
        with pytest.raises(DeliveryRefused) as refused:
            desk.port.tag(name, commit)
        assert refused.value.code == "tag-refused"
    assert desk.port.tagged("v1") == desk.base
    desk.repo.git("tag", "-a", "-m", "by hand", "v2", commit)
    assert desk.port.tagged("v2") == commit


def test_a_closed_branch_is_kept_out_of_sight_and_closed_once(desk: Desk) -> None:
    joined(desk, {"mine": "1"})
    head = desk.repo.head("feat/f1")
    with pytest.raises(DeliveryRefused, match="where this run left it"):
        desk.port.close_branch(WORKTREE, desk.base)
    desk.repo.git("switch", "--quiet", "feat/f1")
    with pytest.raises(DeliveryRefused, match="is checked out in") as refused:
        desk.port.close_branch(WORKTREE, head)
    assert refused.value.code == "checkout-in-the-way"
    desk.repo.git("switch", "--quiet", "main")
    for _ in range(2):
        desk.port.close_branch(WORKTREE, head)
        assert desk.repo.git("branch", "--list", "feat/*") == ""
        assert desk.repo.head(f"refs/mz/r1/closed/heads/feat/f1/{head}") == head


def test_a_branch_is_closed_by_the_merge_that_has_its_commits(desk: Desk) -> None:
    merge = joined(desk, {"mine": "1"})
    desk.port.close_branch(WORKTREE, merge)
    assert desk.repo.git("branch", "--list", "feat/*") == ""
    assert desk.repo.head(f"refs/mz/r1/closed/heads/feat/f1/{merge}") == merge


def test_a_branch_that_cannot_be_moved_is_an_error(desk: Desk) -> None:
    commit = joined(desk, {"mine": "1"})
    lock = desk.repo.root / ".git/refs/heads/main.lock"
    lock.touch()
    with pytest.raises(RepositoryUnusable, match=r"main\.lock"):
        desk.port.advance("main", desk.base, commit)
    lock.unlink()
    assert desk.port.advance("main", desk.base, commit) is None


# killed ---------------------------------------------------------------------------------------------------------------
FEATURE = """\
    head = (root / "head").read_text()
    commit = port.join(base, head, b"merge\\n").commit
    assert port.advance("main", base, commit) is None
    if port.tagged("v1") != commit:
        port.tag("v1", commit)
    port.close_branch(place, head)
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_between_any_two_steps_it_comes_to_the_same_end(tmp_path: pathlib.Path, when: str) -> None:
    cutter = Cutter(tmp_path / "commands", FEATURE)

    def cut(name: str) -> Desk:
        desk = Desk(tmp_path / name)
        desk.open()
        joined(desk, {"src/app.py": "print('mine')\n", "mine": "1"})
        (desk.repo.root / "head").write_text(desk.repo.head("feat/f1"))
        return desk

    with cutter.process:
        ended, steps = cutter.run(cut("clean"))
        assert (ended, steps > 3) == (0, True)
        for fatal in range(1, steps + 1):
            desk = cut(f"cut{fatal}")
            cutter.kill(desk, fatal, when)
            assert cutter.run(desk)[0] == 0
            main = desk.repo.head("main")
            assert desk.repo.git("show", "-s", "--format=%P", main).split()[0] == desk.base
            assert desk.repo.git("rev-parse", "refs/tags/v1") == main
            assert desk.repo.git("branch", "--format=%(refname:short)") == "main"
            assert status(desk) == "## main\n?? head"
