"""Commits in the user's name, found again by key; pushes with a lease; the fence around everything else."""

from __future__ import annotations

import os
import pathlib

import pytest
from mz_engine.git.process import mask_credentials
from mz_engine.ports import CreatedCommit, RefChange, RemoteError, RepositoryUnusable
from mz_events.names import Commit, Path

from tests.support.desk import FILES, WORKTREE, Desk
from tests.support.gitrepo import IDENTITY, GitRepo

pytestmark = pytest.mark.slow

MESSAGE = b"feat: add it\n\n# not a comment\n\xc3\xbc\n\nMz-Run: r1\nMz-Key: r1/f1/code//1/1/commit\n"
KEY = "r1/f1/code//1/1/commit"


def work(desk: Desk) -> Commit:
    desk.write({"src/app.py": "print('bye')\nprint('really')\n", "new": "1\n2\n3\n", "bin": b"\0\1"})
    (desk.worktree / "README.md").unlink()
    return desk.port.capture(WORKTREE, desk.base).tree


# commits --------------------------------------------------------------------------------------------------------------
def test_a_commit_holds_the_tree_and_moves_branch_head_and_index(desk: Desk) -> None:
    tree = work(desk)
    made = desk.port.commit(WORKTREE, tree, desk.base, MESSAGE)
    assert made == CreatedCommit(commit=desk.repo.head("feat/f1"), files=4, insertions=5, deletions=2)
    assert desk.repo.tree(made.commit) == desk.repo.tree(tree)
    assert desk.repo.head(f"{made.commit}^") == desk.base
    assert desk.repo.git("cat-file", "commit", made.commit).split("\n\n", 1)[1] == MESSAGE.decode().removesuffix("\n")
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
    desk.git("merge", "--quiet", "--no-ff", "-m", "merge", "side")
    assert desk.port.find_commit(WORKTREE, KEY) is None


def test_a_branch_that_was_moved_meanwhile_is_put_back_first(desk: Desk) -> None:
    tree = work(desk)
    desk.git("commit", "--quiet", "--allow-empty", "-m", "by hand")
    moved = desk.repo.head("feat/f1")
    made = desk.port.commit(WORKTREE, tree, desk.base, MESSAGE)
    assert desk.repo.head("feat/f1~1") == desk.base
    assert desk.repo.head(f"refs/mz/r1/rescue/heads/feat/f1/{moved}") == moved
    assert desk.port.find_commit(WORKTREE, KEY) == made


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


# the fence ------------------------------------------------------------------------------------------------------------
def test_the_snapshot_sees_refs_configuration_and_hooks(desk: Desk) -> None:
    hooks = desk.repo.root / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "pre-commit").write_text("#!/bin/sh\n")
    (hooks / "pre-push.sample").write_text("#!/bin/sh\n")
    desk.repo.git("update-ref", "refs/remotes/origin/main", desk.base)
    before = desk.port.snapshot()
    assert before.keys() == {
        *("refs/heads/main", "refs/heads/feat/f1", "refs/remotes/origin/main"),
        *("config", "hooks/pre-commit"),
    }
    assert before["refs/heads/main"] == desk.base
    work(desk)
    assert desk.port.snapshot() == before


def act_config(desk: Desk) -> str:
    desk.git("config", "alias.x", "!true")
    return "config"


def act_worktree_config(desk: Desk) -> str:
    (desk.repo.root / ".git/config.worktree").write_text("[core]\n")
    return "config.worktree"


def act_hook(desk: Desk) -> str:
    hook = desk.repo.root / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    return "hooks/post-checkout"


def act_branch(desk: Desk) -> str:
    desk.git("branch", "--quiet", "mine")
    return "refs/heads/mine"


def act_tag(desk: Desk) -> str:
    desk.git("tag", "v1")
    return "refs/tags/v1"


def act_stash(desk: Desk) -> str:
    desk.write({"README.md": "x"})
    desk.git("stash", "--quiet")
    return "refs/stash"


def act_remote(desk: Desk) -> str:
    desk.git("update-ref", "refs/remotes/origin/x", desk.base)
    return "refs/remotes/origin/x"


def act_replace(desk: Desk) -> str:
    work(desk)
    desk.git("replace", desk.base, desk.repo.head("refs/mz/r1/f1"))
    assert desk.another().paths(desk.base) == tuple(sorted(FILES))
    return f"refs/replace/{desk.base}"


ACTS = (act_config, act_worktree_config, act_hook, act_branch, act_tag, act_stash, act_remote, act_replace)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_a_change_outside_the_worktree_is_seen(desk: Desk, act: object) -> None:
    before = desk.port.snapshot()
    assert callable(act)
    name = act(desk)
    after = desk.another().snapshot()
    assert {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)} == {name}


def test_hooks_where_the_configuration_says(desk: Desk) -> None:
    desk.repo.git("config", "core.hooksPath", ".husky")
    desk.repo.write({".husky/pre-commit": "#!/bin/sh\n"})
    before = desk.another().snapshot()
    (desk.repo.root / ".husky/pre-commit").chmod(0o755)
    assert before["hooks/pre-commit"] != desk.another().snapshot()["hooks/pre-commit"]


def test_old_values_are_rescued(desk: Desk) -> None:
    desk.repo.git("branch", "mine", desk.base)
    made = desk.port.commit(WORKTREE, desk.base, desk.base, MESSAGE)
    gone = "1" * 40
    moved = (
        RefChange(name="refs/heads/mine", old=desk.base, new=""),
        RefChange(name="refs/heads/mine/deeper", old=made.commit, new=""),
        RefChange(name="refs/heads/gone", old=gone, new=desk.base),
        RefChange(name="refs/heads/fresh", old="", new=desk.base),
        RefChange(name="config", old="ab" * 32, new="cd" * 32),
    )
    for _ in range(2):
        desk.port.rescue(WORKTREE, moved)
    actual = set(desk.repo.git("for-each-ref", "--format=%(refname)", "refs/mz/r1/rescue").splitlines())
    assert actual == {f"refs/mz/r1/rescue/heads/mine/{desk.base}", f"refs/mz/r1/rescue/heads/mine/deeper/{made.commit}"}
    desk.port.rescue(WORKTREE, ())


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
