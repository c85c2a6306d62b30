"""What an agent's git can do in a worktree, for each kind of the user's repository."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
from collections.abc import Callable

import pytest
from mz_engine.model.config import WorkspaceSettings
from mz_engine.run.plan import missing_content

from tests.support.desk import WORKTREE, Desk
from tests.support.gitrepo import GitRepo

pytestmark = pytest.mark.slow

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


def replace_by_clone(desk: Desk, *flags: str) -> None:
    """Make the user's repository a clone of what it was."""
    far = desk.repo.root.with_name("far")
    desk.repo.git("config", "uploadpack.allowFilter", "true")
    desk.repo.git("config", "uploadpack.allowAnySHA1InWant", "true")
    desk.repo.root.rename(far)
    desk.repo.git("clone", "--quiet", *flags, f"file://{far}", str(desk.repo.root), cwd=far)
    desk.port = desk.another()


def plain(desk: Desk) -> None:
    pass


def packed(desk: Desk) -> None:
    desk.repo.git("gc", "--quiet", "--prune=now")
    assert not (desk.repo.root / ".git/refs/heads/main").exists()


def shallow(desk: Desk) -> None:
    replace_by_clone(desk, "--depth=2")


def completed(desk: Desk, *flags: str) -> None:
    """A partial clone, made whole in the way that the warning names: lacking contents are not fetched for an agent."""
    replace_by_clone(desk, *flags)
    (warning,) = missing_content(desk.repo.root, desk.repo.head(), (), os.environ)
    assert "partial clone" in warning.message
    for command in re.findall("`git (.*?)`", warning.hint):
        desk.repo.git(*command.split())
    assert not list(missing_content(desk.repo.root, desk.repo.head(), (), os.environ))


def without_contents(desk: Desk) -> None:
    completed(desk, "--filter=blob:none")


def without_trees(desk: Desk) -> None:
    completed(desk, "--filter=tree:0")


def borrowing(desk: Desk) -> None:
    replace_by_clone(desk, "--shared")


def borrowing_twice(desk: Desk) -> None:
    replace_by_clone(desk, "--shared")
    second = desk.repo.root.with_name("second")
    desk.repo.root.rename(second)
    desk.repo.git("clone", "--quiet", "--shared", str(second), str(desk.repo.root), cwd=second)
    desk.port = desk.another()


def with_submodule(desk: Desk) -> None:
    desk.repo.write({".gitmodules": '[submodule "lib"]\n\tpath = lib/sub\n\turl = ../lib\n'})
    desk.repo.git("add", ".gitmodules")
    desk.repo.git("update-index", "--add", "--cacheinfo", f"160000,{desk.base},lib/sub")
    desk.repo.git("commit", "--quiet", "-m", "submodule")


def with_pointers(desk: Desk) -> None:
    desk.repo.commit({"data/model.bin": POINTER, ".gitattributes": "*.bin filter=lfs diff=lfs -text\n"}, "lfs")


PARTIAL = (without_contents, without_trees)
KINDS = (plain, packed, shallow, *PARTIAL, borrowing, borrowing_twice, with_submodule, with_pointers)


@pytest.mark.parametrize(("kind", "object_format"), [*((kind, "sha1") for kind in KINDS), (shallow, "sha256")])
def test_git_works_for_an_agent(tmp_path: pathlib.Path, kind: Callable[[Desk], None], object_format: str) -> None:
    command = ("git", "init", "--quiet", "--initial-branch=main", f"--object-format={object_format}")
    subprocess.run([*command, tmp_path / "repo"], check=True)
    desk = Desk(tmp_path)
    desk.repo.commit({"src/app.py": "print('hello')\nprint('again')\n"}, "second")
    desk.repo.git("branch", "side")
    desk.repo.git("tag", "--annotate", "v1", "-m", "v1")
    desk.repo.commit({"src/app.py": "print('hello')\nprint('again')\nprint('bye')\n"}, "third")
    kind(desk)
    desk.base = desk.repo.head()
    desk.open()

    assert desk.state() == "## feat/f1"
    expected = desk.repo.git("log", "--format=%s", "main")
    assert desk.git("log", "--format=%s") == expected
    side = desk.repo.git("for-each-ref", "--format=%(refname)", "refs/heads/side", "refs/remotes/origin/side")
    if side:
        assert desk.git("merge-base", "HEAD", side) == desk.repo.git("rev-parse", side)
    assert [line.split(") ", 1)[1] for line in desk.git("blame", "src/app.py").splitlines()] == [
        "print('hello')", "print('again')", "print('bye')",
    ]  # fmt: skip
    assert "print('bye')" in desk.git("log", "-p", "--", "src/app.py")
    desk.write({"new": "n", "src/app.py": "print('changed')\n"})
    desk.git("add", "--all")
    desk.git("commit", "--quiet", "-m", "mine")
    assert desk.state() == "## feat/f1"
    assert desk.git("diff", "--stat", "HEAD~1").splitlines()[-1].startswith(" 2 files changed")
    desk.git("fsck", "--no-dangling")

    capture = desk.port.capture(WORKTREE, desk.base)
    assert desk.repo.git("diff", "--name-only", desk.base, capture.tree).splitlines() == ["new", "src/app.py"]
    desk.port.ensure(WORKTREE, desk.base, capture.tree)
    assert desk.git("log", "--format=%s") == expected
    made = desk.port.commit(WORKTREE, capture.tree, desk.base, b"m\n")
    desk.repo.git("fsck", "--no-dangling")
    assert desk.repo.head(f"{made.commit}^") == desk.base


def with_nested_submodules(desk: Desk) -> None:
    """The user's checkout has both."""
    allowed = ("-c", "protocol.file.allow=always", "submodule", "--quiet")
    inner, outer = (GitRepo(desk.repo.root.with_name(name)) for name in ("inner", "outer"))
    inner.commit({"deep.txt": "deep\n"}, "inner")
    outer.commit({"lib.py": "x = 1\n", ".gitignore": "*.o\n"}, "outer")
    for repo, path, added in ((outer, "nested", inner), (desk.repo, "vendor/lib", outer)):
        repo.git(*allowed, "add", str(added.root), path)
        repo.git("commit", "--quiet", "-m", "submodule")
    desk.repo.git(*allowed, "update", "--init", "--recursive")
    desk.base = desk.repo.head()


def files_of(folder: pathlib.Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_worktrees_and_checkouts_have_submodules_at_the_commit_of_the_tree(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    with_nested_submodules(desk)
    user, worktree = desk.repo.root / "vendor/lib", desk.worktree / "vendor/lib"
    before = desk.repo.git("status", "--short", cwd=user) + desk.repo.git("rev-parse", "HEAD", cwd=user)
    (user / "lib.py").write_text("not committed\n")
    assert not list(missing_content(desk.repo.root, desk.base, (), os.environ))
    desk.open()
    content = {"lib.py": "x = 1\n", ".gitignore": "*.o\n", ".gitmodules": (user / ".gitmodules").read_text()}
    assert files_of(worktree) == {**content, "nested/deep.txt": "deep\n"}
    assert desk.state() == "## feat/f1"

    desk.write({"vendor/lib/lib.py": "forged\n", "vendor/lib/new.py": "x", "vendor/lib/a.o": "built"})
    desk.write({"vendor/lib/.git": "gitdir: /elsewhere\n", "src/app.py": "print('changed')\n"})
    capture = desk.port.capture(WORKTREE, desk.base)
    assert desk.repo.git("diff", "--name-only", desk.base, capture.tree) == "src/app.py"
    checkout = desk.port.checkout(WORKTREE, desk.base, capture.tree).worktree
    folder = desk.worktree.with_name(checkout.feature) / "vendor/lib"
    assert files_of(folder) == {**content, "nested/deep.txt": "deep\n"}
    desk.port.ensure(WORKTREE, desk.base, capture.tree)
    assert files_of(worktree) == {**content, "nested/deep.txt": "deep\n", "a.o": "built"}
    assert (user / "lib.py").read_text() == "not committed\n"
    desk.repo.git("checkout", "--quiet", "lib.py", cwd=user)
    assert desk.repo.git("status", "--short", cwd=user) + desk.repo.git("rev-parse", "HEAD", cwd=user) == before


def test_without_its_commit_a_submodule_is_empty(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    with_nested_submodules(desk)
    desk.repo.git("update-index", "--cacheinfo", f"160000,{desk.base},vendor/lib")
    desk.repo.git("commit", "--quiet", "-m", "a commit that was not fetched")
    desk.base = desk.repo.head()
    desk.open()
    assert files_of(desk.worktree / "vendor/lib") == {}


def test_a_set_up_that_fetches_submodules_finds_empty_directories(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path, WorkspaceSettings(setup=("git submodule update --init",)))
    with_nested_submodules(desk)
    desk.open()
    assert files_of(desk.worktree / "vendor/lib") == {}


def test_what_a_set_up_fetched_of_submodules_stays_for_later_commands(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path, WorkspaceSettings(setup=("git submodule update --init",)))
    with_nested_submodules(desk)
    desk.open()
    desk.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
    desk.port.ensure(WORKTREE, desk.base, desk.base)
    assert files_of(desk.worktree / "vendor/lib").keys() >= {"lib.py", ".git"}
    assert desk.repo.git("log", "-1", "--format=%s", cwd=desk.worktree / "vendor/lib") == "submodule"
    assert desk.state() == "## feat/f1"
