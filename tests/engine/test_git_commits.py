"""Commits in the user's name, found again by key; pushes with a lease; the fence around everything else."""

from __future__ import annotations

import os
import pathlib

import pytest
from mz_engine.git.process import mask_credentials
from mz_engine.ports import CreatedCommit, RemoteError, RepositoryUnusable
from mz_events.names import Commit, Path

from tests.support.desk import WORKTREE, Desk
from tests.support.gitrepo import IDENTITY, GitRepo

pytestmark = pytest.mark.slow

MESSAGE = b"feat: add it\n\n# not a comment\n\xc3\xbc\n\nMz-Run: r1\nMz-Key: r1/f1/code//1/1/commit\n"
KEY = "r1/f1/code//1/1/commit"


def work(desk: Desk) -> Commit:
    desk.write({"src/app.py": "print('bye')\nprint('really')\n", "new": "1\n2\n3\n", "bin": b"\0\1"})
    (desk.worktree / "README.md").unlink()
    return desk.port.capture(WORKTREE, desk.base).tree


# commits --------------------------------------------------------------------------------------------------------------
def test_a_commit_holds_the_tree_and_moves_the_branch(desk: Desk) -> None:
    tree = work(desk)
    made = desk.port.commit(WORKTREE, tree, desk.base, MESSAGE)
    assert made == CreatedCommit(commit=desk.repo.head("feat/f1"), files=4, insertions=5, deletions=2)
    assert desk.repo.tree(made.commit) == desk.repo.tree(tree)
    assert desk.repo.head(f"{made.commit}^") == desk.base
    assert desk.repo.git("cat-file", "commit", made.commit).split("\n\n", 1)[1] == MESSAGE.decode().removesuffix("\n")
    desk.port.ensure(WORKTREE, made.commit, tree)
    assert desk.state() == "## feat/f1"
    assert desk.git("rev-parse", "HEAD") == made.commit


def test_a_commit_may_be_empty(desk: Desk) -> None:
    made = desk.port.commit(WORKTREE, desk.base, desk.base, MESSAGE)
    assert (made.files, made.insertions, made.deletions) == (0, 0, 0)
    assert desk.repo.tree(made.commit) == desk.repo.tree(desk.base)


def test_no_hook_runs_and_nothing_is_signed(desk: Desk, tmp_path: pathlib.Path) -> None:
    ran = tmp_path / "ran"
    hooks = (
        "pre-commit",
        "commit-msg",
        "post-commit",
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "pre-push",
    )
    for where in (desk.repo.root / ".git/hooks", tmp_path / "hooks"):
        where.mkdir(exist_ok=True)
        for name in hooks:
            (where / name).write_text(f"#!/bin/sh\necho {name} >> {ran}\nexit 1\n")
            (where / name).chmod(0o755)
    GitRepo(tmp_path / "far").git("config", "receive.denyCurrentBranch", "ignore")
    desk.repo.git("remote", "add", "origin", str(tmp_path / "far"))
    for configured in (None, str(tmp_path / "hooks")):
        if configured:
            desk.repo.git("config", "core.hooksPath", configured)
        desk.repo.git("config", "commit.gpgSign", "true")
        port = desk.another()
        port.ensure(WORKTREE, desk.base, desk.base)
        made = port.commit(WORKTREE, work(desk), desk.base, MESSAGE)
        port.push("origin", WORKTREE.branch, made.commit, port.remote_head("origin", WORKTREE.branch))
        port.close(WORKTREE)
        port.ensure(WORKTREE, desk.base, desk.base)
    assert not ran.exists()


def test_the_identity_is_the_users_or_nobodys(desk: Desk, tmp_path: pathlib.Path) -> None:
    home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    made = desk.another(home).commit(WORKTREE, desk.base, desk.base, MESSAGE)
    actual = desk.repo.git("show", "-s", "--format=%an <%ae> %cn <%ce>", made.commit)
    assert actual == "mz <mz@localhost> mz <mz@localhost>"
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Grace Hopper\n\temail = grace@example.org\n")
    made = desk.another(home).commit(WORKTREE, desk.base, made.commit, MESSAGE)
    actual = desk.repo.git("show", "-s", "--format=%an <%ae> %cn", made.commit)
    assert actual == "Grace Hopper <grace@example.org> Grace Hopper"
    made = desk.another({**home, **IDENTITY}).commit(WORKTREE, desk.base, made.commit, MESSAGE)
    assert desk.repo.git("show", "-s", "--format=%an", made.commit) == "Ada"


def test_commits_are_found_by_their_exact_key(desk: Desk) -> None:
    first = desk.port.commit(WORKTREE, work(desk), desk.base, MESSAGE)
    desk.repo.git("config", "trailer.separators", "=")
    talk = f"chore: talk\n\nMz-Key: {KEY}x is what I saw\n\nMz-Key: {KEY}0\n".encode()
    second = desk.port.commit(WORKTREE, desk.base, first.commit, talk)
    port = desk.another()
    assert port.find_commit(WORKTREE, KEY) == first
    assert port.find_commit(WORKTREE, f"{KEY}0") == second
    for key in (KEY[:-1], f"{KEY}x", f"{KEY}x is what I saw", ".*", ""):
        assert port.find_commit(WORKTREE, key) is None
    desk.repo.git("update-ref", "refs/heads/feat/f1", desk.base)
    assert port.find_commit(WORKTREE, KEY) is None
    desk.repo.git("update-ref", "-d", "refs/heads/feat/f1")
    assert port.find_commit(WORKTREE, KEY) is None


def test_a_key_in_a_merged_branch_is_not_ours(desk: Desk) -> None:
    desk.repo.git("checkout", "--quiet", "-b", "side")
    desk.repo.commit({"side": "1"}, MESSAGE.decode())
    sides = ("-p", "feat/f1", "-p", "side")
    merged = desk.repo.git("commit-tree", "side^{tree}", *sides, "-m", "merge")
    desk.repo.git("update-ref", "refs/heads/feat/f1", merged)
    assert desk.port.find_commit(WORKTREE, KEY) is None


def test_a_branch_that_was_moved_meanwhile_is_put_back_first(desk: Desk) -> None:
    tree = work(desk)
    moved = desk.commit_by_hand()
    made = desk.port.commit(WORKTREE, tree, desk.base, MESSAGE)
    assert desk.repo.head("feat/f1~1") == desk.base
    assert desk.repo.head(f"refs/mz/r1/rescue/heads/feat/f1/{moved}") == moved
    assert desk.port.find_commit(WORKTREE, KEY) == made


def test_a_branch_that_a_person_has_checked_out_is_not_moved(desk: Desk) -> None:
    """Else its files there would seem to undo the commit."""
    tree = work(desk)
    desk.repo.git("checkout", "--quiet", "feat/f1")
    with pytest.raises(RepositoryUnusable, match="switch --detach"):
        desk.port.commit(WORKTREE, tree, desk.base, MESSAGE)
    assert desk.repo.head("feat/f1") == desk.base
    desk.repo.git("switch", "--quiet", "--detach")
    assert desk.port.commit(WORKTREE, tree, desk.base, MESSAGE).files


def test_what_a_branch_touched(desk: Desk) -> None:
    made = desk.port.commit(WORKTREE, work(desk), desk.base, MESSAGE)
    actual = desk.port.changed_paths(desk.base, made.commit)
    assert actual == tuple(map(Path, ("README.md", "bin", "new", "src/app.py")))
    later = desk.repo.commit({"unrelated": "1"})
    assert desk.port.changed_paths(later, made.commit) == tuple(map(Path, ("README.md", "bin", "new", "src/app.py")))


# remotes --------------------------------------------------------------------------------------------------------------
@pytest.fixture
def far(desk: Desk, tmp_path: pathlib.Path) -> GitRepo:
    far = GitRepo(tmp_path / "far")
    far.git("config", "receive.denyCurrentBranch", "ignore")
    desk.repo.git("remote", "add", "origin", str(far.root))
    return far


def test_pushing_is_found_again(desk: Desk, far: GitRepo) -> None:
    assert desk.port.remote_head("origin", WORKTREE.branch) is None
    desk.port.push("origin", WORKTREE.branch, desk.base, None)
    assert desk.port.remote_head("origin", WORKTREE.branch) == desk.base == far.head("feat/f1")
    made = desk.port.commit(WORKTREE, desk.base, desk.base, MESSAGE)
    desk.port.push("origin", WORKTREE.branch, made.commit, desk.base)
    assert far.head("feat/f1") == made.commit
    desk.port.push("origin", WORKTREE.branch, desk.base, made.commit)
    assert far.head("feat/f1") == desk.base


@pytest.mark.parametrize("url", ["../far", "./../far/.git"])
def test_a_relative_remote_is_relative_to_the_checkout_as_in_git(desk: Desk, far: GitRepo, url: str) -> None:
    relative = os.path.relpath(far.root, desk.repo.root)
    desk.repo.git("remote", "set-url", "origin", url.replace("../far", relative))
    desk.port.push("origin", WORKTREE.branch, desk.base, None)
    assert desk.port.remote_head("origin", WORKTREE.branch) == desk.base == far.head("feat/f1")
    assert desk.port.target_head("origin", WORKTREE.branch) == desk.base


def test_a_push_over_somebody_elses_work_is_refused(desk: Desk, far: GitRepo) -> None:
    desk.port.push("origin", WORKTREE.branch, desk.base, None)
    far.git("checkout", "--quiet", "feat/f1")
    theirs = far.commit({"theirs": "1"})
    made = desk.port.commit(WORKTREE, desk.base, desk.base, MESSAGE)
    for old in (desk.base, None):
        with pytest.raises(RemoteError, match="stale info"):
            desk.port.push("origin", WORKTREE.branch, made.commit, old)
    assert far.head("feat/f1") == theirs


def test_a_remote_that_refuses_or_is_not_there_says_so(desk: Desk, far: GitRepo) -> None:
    hook = far.root / ".git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho no pushes on Fridays >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(RemoteError, match="no pushes on Fridays"):
        desk.port.push("origin", WORKTREE.branch, desk.base, None)
    with pytest.raises(RemoteError, match="does not appear to be a git repository"):
        desk.port.remote_head("absent", WORKTREE.branch)


def test_ssh_never_asks(desk: Desk, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "seen"
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" > {path}\ncut -d" " -f6 /proc/$$/stat >> {path}\nexit 255\n')
    ssh.chmod(0o755)
    desk.repo.git("remote", "add", "origin", "git@git.example.org:ada/engine.git")
    for environment, configured in (({"GIT_SSH_COMMAND": f"{ssh} -x"}, ""), ({}, f"{ssh} -y")):
        if configured:
            desk.repo.git("config", "core.sshCommand", configured)
        with pytest.raises(RemoteError):
            desk.another({**os.environ, **environment}).remote_head("origin", WORKTREE.branch)
        arguments, session = path.read_text().splitlines()
        assert "-o BatchMode=yes" in arguments
        assert int(session) != os.getsid(0), "it could reach the user's terminal"


def test_passwords_in_urls_are_masked() -> None:
    actual = mask_credentials("unable to access 'https://ada:t0ken@example.org/x': no")
    assert actual == "unable to access 'https://***@example.org/x': no"


# errors ---------------------------------------------------------------------------------------------------------------
def test_an_unusable_commit_is_an_error_not_a_guess(desk: Desk) -> None:
    for act in (
        lambda: desk.port.paths(Commit("1" * 40)),
        lambda: desk.port.ensure(WORKTREE, desk.base, Commit("1" * 40)),
        lambda: desk.port.changes(desk.base, Commit("1" * 40)),
        lambda: desk.port.commit(WORKTREE, Commit("1" * 40), desk.base, MESSAGE),
    ):
        with pytest.raises(RepositoryUnusable) as refused:
            act()
        assert refused.value.code == "git-failed"
