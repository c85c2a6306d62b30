"""Clean checkouts: commands test what is committed, with what a set-up made, and nothing that anybody left."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.git.checkouts import Checkouts, environment_digest
from mz_engine.git.content import FILE, LINK, SUBMODULE, TreeEntry
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import Checkout, FeatureWorktree
from mz_engine.processes.commands import ProcessExecutor
from mz_engine.processes.environment import private_repository, worktree_path
from mz_events.names import Commit
from mz_events.redaction.redactor import Secrets

from tests.support.gitrepo import IDENTITY, GitRepo

SETUP = ("make environment",)
ALPHA, BETA = (FeatureWorktree(run="r1", feature=name, branch=f"feat/{name}") for name in ("alpha", "beta"))


class Project:
    """A repository with the worktree of a feature, in which an agent works."""

    def __init__(self, folder: Path, setup: tuple[str, ...] = SETUP, copy: tuple[str, ...] = ()) -> None:
        self.repository = GitRepo(folder / "project")
        files = {".gitignore": "*.pyc\n.env\n.venv/\nnode_modules/\nconftest.py\n", "a.py": "1\n", "uv.lock": "1\n"}
        self.base = self.repository.commit(files)
        self.settings = WorkspaceSettings(setup=setup, copy=copy)
        self.environment = {"PATH": "/usr/bin:/bin", **IDENTITY}
        self.workspace = self.reopen()
        self.folder = worktree_path(self.repository.root, ALPHA)
        self.workspace.open(ALPHA, (self.base,))

    def reopen(self) -> GitWorkspace:
        return GitWorkspace(self.repository.root, self.settings, self.environment)

    def capture(self, **files: str) -> Commit:
        for name, text in files.items():
            path = self.folder / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return self.workspace.capture(ALPHA, self.base).tree

    def checkout(self, tree: Commit, feature: FeatureWorktree = ALPHA) -> Checkout:
        """Take a checkout, and set it up if need be."""
        checkout = self.workspace.checkout(feature, self.base, tree)
        if checkout.needs_setup:
            (self.path(checkout) / ".venv").mkdir()
            (self.path(checkout) / ".venv" / "runner").write_text("real")
            (self.path(checkout) / "made.egg-info").write_text("not ignored")
            self.workspace.adopt(checkout.worktree, tree)
            checkout = self.workspace.checkout(feature, self.base, tree)
            assert not checkout.needs_setup
        return checkout

    def path(self, checkout: Checkout) -> Path:
        return worktree_path(self.repository.root, checkout.worktree)

    def files(self, checkout: Checkout) -> dict[str, str]:
        top = self.path(checkout)
        paths = (path for path in top.rglob("*") if path.is_file() and path.name not in (".git", ".gitignore"))
        return {path.relative_to(top).as_posix(): path.read_text() for path in sorted(paths)}


MADE = {".venv/runner": "real", "made.egg-info": "not ignored", "uv.lock": "1\n"}


def test_a_checkout_has_the_tree_and_the_environment_and_nothing_else(tmp_path: Path) -> None:
    project = Project(tmp_path)
    tree = project.capture(
        a_dot_py="2\n", conftest_dot_py="", a_dot_pyc="x", _dot_env="x", _dot_venv__runner="forged", node_modules__x="x"
    )
    checkout = project.checkout(tree)
    assert project.files(checkout) == MADE | {"a.py": "2\n"}
    assert checkout.worktree.branch == ALPHA.branch
    assert project.path(checkout) != project.folder
    project.workspace.release(ALPHA)
    (project.path(checkout) / "conftest.py").write_text("left by a test")
    (project.path(checkout) / "b.py").write_text("left by a test")
    (project.path(checkout) / "a.py").write_text("changed by a test")
    assert project.files(project.checkout(project.base)) == MADE | {"a.py": "1\n"}
    assert (project.folder / ".venv" / "runner").read_text() == "forged", "the agent's worktree is left alone"


def test_git_works_in_a_checkout(tmp_path: Path) -> None:
    project = Project(tmp_path)
    checkout = project.checkout(project.capture(a_dot_py="2\n"))
    private = private_repository(project.repository.root, checkout.worktree)

    def git(*args: str) -> str:
        options = (f"--git-dir={private}", "--work-tree=.")
        return project.repository.git(*options, *args, cwd=project.path(checkout))

    assert git("rev-parse", "HEAD") == project.base
    assert git("status", "--porcelain") == " M a.py\n?? made.egg-info"
    git("commit", "--quiet", "--all", "--message", "by a test")
    checkout = project.checkout(project.base)
    assert git("status", "--porcelain") == "?? made.egg-info"
    assert "checkout" not in project.repository.git("for-each-ref", "--format=%(refname)")


def test_features_share_checkouts(tmp_path: Path) -> None:
    """While one has a checkout, another gets its own; the set-up runs again only if what it reads has changed."""
    project = Project(tmp_path)
    first = project.checkout(project.base)
    assert project.checkout(project.capture(a_dot_py="2\n")).worktree == first.worktree, "it is not released"
    second = project.checkout(project.base, BETA)
    assert second.worktree.feature != first.worktree.feature
    project.workspace.release(ALPHA)
    project.workspace.release(BETA)
    locked = project.capture(uv_dot_lock="2\n")
    needed = project.workspace.checkout(ALPHA, project.base, locked)
    assert needed.needs_setup
    assert needed.environment != first.environment
    assert project.files(needed) == {"a.py": "2\n", "uv.lock": "2\n"}, "of the old environment nothing is left"
    assert project.checkout(project.base, BETA).worktree.feature == first.worktree.feature


class Later(threading.Thread):
    """Another feature that takes a checkout while the first one runs the same set-up, or once that has ended."""

    def __init__(self, project: Project) -> None:
        super().__init__(daemon=True)
        self.project, self.begun, begin = project, threading.Event(), project.workspace._begin_setup
        self.checkout: Checkout | None = None

        def watched(digest: str) -> None:
            self.begun.set()
            begin(digest)

        project.workspace._begin_setup = watched  # type: ignore[method-assign]
        self.start()
        assert self.begun.wait(60)

    def run(self) -> None:
        self.checkout = self.project.workspace.checkout(BETA, self.project.base, self.project.base)

    def result(self) -> Checkout:
        self.join(60)
        assert self.checkout is not None
        return self.checkout


def test_a_second_feature_waits_for_the_set_up_of_the_first_and_copies_its_result(tmp_path: Path) -> None:
    project = Project(tmp_path)
    first = project.workspace.checkout(ALPHA, project.base, project.base)
    assert first.needs_setup
    later = Later(project)
    assert later.checkout is None
    project.checkout(project.base)
    second = later.result()
    assert not second.needs_setup
    assert project.files(second) == MADE | {"a.py": "1\n"}


@pytest.mark.parametrize("is_killed", [False, True], ids=["fails", "ends with its thread"])
def test_a_set_up_that_brings_nothing_blocks_nobody(tmp_path: Path, is_killed: bool) -> None:
    project = Project(tmp_path)
    take = partial(project.workspace.checkout, ALPHA, project.base, project.base)
    if is_killed:
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        later = Later(project)
    else:
        take()
        later = Later(project)
        project.workspace.release(ALPHA)
    assert later.result().needs_setup


def test_checkouts_outlive_the_process(tmp_path: Path) -> None:
    project = Project(tmp_path)
    first = project.checkout(project.base)
    project.workspace = project.reopen()
    assert project.checkout(project.base, BETA).worktree.feature == first.worktree.feature
    project.workspace.close_checkouts("r1")
    assert not project.path(first).exists()
    assert project.folder.exists()
    assert "/_checkout" not in project.repository.git("worktree", "list")


def test_an_interrupted_set_up_starts_again(tmp_path: Path) -> None:
    project = Project(tmp_path)
    checkout = project.workspace.checkout(ALPHA, project.base, project.base)
    (project.path(checkout) / ".venv").mkdir()
    (project.path(checkout) / ".venv" / "half").write_text("")
    assert project.workspace.checkout(ALPHA, project.base, project.base).needs_setup
    assert project.files(checkout) == {"a.py": "1\n", "uv.lock": "1\n"}


def test_without_a_set_up_there_is_no_environment(tmp_path: Path) -> None:
    """Copied files come from the user's checkout, whatever the agent made of its copy."""
    project = Project(tmp_path, setup=(), copy=(".env",))
    (project.repository.root / ".env").write_text("of the user")
    checkout = project.checkout(project.capture(_dot_env="of the agent"))
    assert (checkout.environment, checkout.needs_setup) == ("", False)
    assert project.files(checkout) == {".env": "of the user", "a.py": "1\n", "uv.lock": "1\n"}


@pytest.mark.parametrize(
    ("path", "matters"),
    [
        (b"uv.lock", True), (b"packages/a/package.json", True), (b"dev-requirements.txt", True), (b"setup.sh", True),
        (b"requirements/base.txt", True), (b"src/lock.py", False), (b"package.json.md", False),
        (b"pyproject.toml", True), (b"pylock.toml", True), (b"pylock.dev.toml", True), (b"Gemfile.lock", True),
        (b"gems.locked", True), (b"yarn.lock", True), (b".yarnrc.yml", True), (b"docs/pylock.md", False),
        (b".yarn/patches/a.patch", True), (b".yarn/cache/a.zip", False), (b".bundle/config", True),
    ],
)  # fmt: skip
def test_what_an_environment_depends_on(path: bytes, matters: bool) -> None:
    trees = [{path: TreeEntry(FILE, oid), b"a": TreeEntry(FILE, "0")} for oid in ("1", "2")]
    first, second = (environment_digest(tree, settings_of("sh ./setup.sh"), empty) for tree in trees)
    assert (first != second) is matters
    assert environment_digest(trees[0], settings_of("sh other.sh"), empty) != first
    assert environment_digest(trees[0], WorkspaceSettings(), empty) == ""


def settings_of(*setup: str) -> WorkspaceSettings:
    return WorkspaceSettings(setup=setup, inputs=("deps/x*", "!*.md"))


def empty(oid: str) -> bytes:
    return b""


PIP = "pip install -r a.txt"


@pytest.mark.parametrize(
    ("setup", "texts", "path", "matters"),
    [
        (PIP, {"a.txt": "-r other.txt"}, "other.txt", True),
        (PIP, {"a.txt": "  -cother"}, "other", True),
        (PIP, {"a.txt": "#-r other.txt\nx # via other.txt"}, "other.txt", False),
        (PIP, {"a.txt": 'x\r\n--constraint "other.txt"\r\n'}, "other.txt", True),
        (PIP, {"a.txt": "--requirement=./deps/a"}, "deps/a", True),
        (PIP, {"a.txt": "./vendor/x-1.whl\n-e ./lib"}, "vendor/x-1.whl", True),
        (PIP, {"a.txt": "-e ./lib"}, "lib/setup.cfg", True),
        (PIP, {"a.txt": "-e ./lib"}, "lib/x.py", False),
        ("pip install -r deps/a", {"deps/a": "-c b", "deps/b": "-r ../c/d.txt", "c/d.txt": "-r e"}, "c/e", True),
        ("pip install -r deps/a", {"deps/a": "-c b", "deps/b": "c"}, "d", False),
        ("pip install -rdeps/a", {"deps/a": "-r b", "deps/b": "-r a\n-r c"}, "deps/c", True),
        ("pip install -r deps/a", {"deps/a": "x @ file:vendor/x.zip"}, "vendor/x.zip", True),
        ("pip install .", {"sub/requirements/dev.in": "-c ../other"}, "sub/other", True),
        ("sh setup.sh", {"setup.sh": "pip install -r other"}, "other", False),
        ("sh setup.sh", {}, "deps/x/y", True),
        ("sh setup.sh", {}, "deps/x.md", False),
    ],
)  # fmt: skip
def test_what_files_of_an_environment_name(setup: str, texts: dict[str, str], path: str, matters: bool) -> None:
    """What requirements name belongs to it, and what `workspace.inputs` selects."""
    blobs = {"1": "", "2": "# changed"} | texts
    tree = {name.encode(): TreeEntry(FILE, name) for name in texts}
    changed = [
        environment_digest(
            tree | {path.encode(): TreeEntry(FILE, oid)}, settings_of(setup), lambda name: blobs[name].encode()
        )
        for oid in ("1", "2")
    ]
    assert (changed[0] != changed[1]) is matters


def test_a_link_belongs_to_an_environment_with_what_it_leads_to() -> None:
    blobs = {"link": b"../common/locked"}
    tree = {b"a/uv.lock": TreeEntry(LINK, "link"), b"requirements.txt": TreeEntry(SUBMODULE, "commit")}
    trees = [tree | {b"common/locked": TreeEntry(FILE, oid)} for oid in ("1", "2")]
    first, second = (environment_digest(tree, settings_of("uv sync"), blobs.__getitem__) for tree in trees)
    assert first != second


def test_a_digest_without_included_files_stays_what_runs_recorded() -> None:
    tree = {name: TreeEntry(FILE, "1") for name in (b"uv.lock", b"setup.sh", b"x", b"requirements.txt")}
    settings = WorkspaceSettings(setup=("sh ./setup.sh", "uv sync"))
    recorded = "63050eb3f5467676bc30e8e52075ebfb43e4c74a87e9cc8043e45552b30d0f4e"
    assert environment_digest(tree, settings, lambda oid: b"y==1  # via x\n") == recorded


@pytest.mark.parametrize(
    ("setup", "path", "texts"),
    [
        (PIP, "constraints.txt", ("x<2\n", "x<3\n")),
        (".venv/bin/pip-install-dependency-groups dev", "pyproject.toml",
         ('[dependency-groups]\ndev = ["pytest"]\n', '[dependency-groups]\ndev = ["pytest", "attrs"]\n')),
        ("uv sync", "uv.lock", ("1\n", "2\n")),
    ],
    ids=["constraints", "a group", "a lock file"],
)  # fmt: skip
def test_a_feature_that_changes_only_what_is_installed_gets_a_new_environment(
    tmp_path: Path, setup: str, path: str, texts: tuple[str, str]
) -> None:
    project = Project(tmp_path, setup=(setup,))
    base = project.repository.commit({"a.txt": "-c constraints.txt\n", path: texts[0]})
    first = project.checkout(base)
    changed = project.repository.commit({path: texts[1]})
    needed = project.workspace.checkout(ALPHA, project.base, changed)
    assert needed.needs_setup
    assert needed.environment != first.environment


def test_which_checkout_is_taken() -> None:
    """An environment that others may use is kept, wherever it is; one that is broken, or was never made, is not."""
    held: dict[str, str | None] = {}
    checkouts = Checkouts(["_checkout1", "_checkout3"])

    def take(digest: str, holder: FeatureWorktree = ALPHA) -> str:
        name = checkouts.take(holder, digest, held.get)
        checkouts.release(ALPHA)
        return name

    assert take("a") == "_checkout1", "neither has an environment"
    held |= {"_checkout1": "a", "_checkout3": ""}
    assert take("b") == "_checkout3"
    held |= {"_checkout1": None, "_checkout3": "b"}
    assert take("a") == "_checkout1"
    assert take("b") == "_checkout3"
    held |= {"_checkout1": "a"}
    assert take("c") == "_checkout3"
    assert take("a", BETA) == "_checkout1"
    assert take("c") == "_checkout2", "the only one that is free has an environment"


def execute(project: Project, checkout: Checkout, command: str) -> str:
    executor = ProcessExecutor(project.repository.root, {**os.environ, **IDENTITY}, Secrets({}))
    result = executor.run(checkout.worktree, command, 30, "r1/alpha/x")
    assert result.exit == 0, result.output
    return result.output.decode()


def test_a_command_cannot_change_the_environment_of_a_later_one(tmp_path: Path) -> None:
    project = Project(tmp_path)
    tree = project.capture(a_dot_py="2\n")
    checkout = project.checkout(tree)
    attack = "echo forged > .venv/runner; echo new > .venv/new; rm -f a.py; cat .venv/runner"
    assert execute(project, checkout, attack) == "forged\n"
    again = project.workspace.checkout(ALPHA, project.base, tree)
    assert again == checkout
    assert execute(project, again, "cat .venv/runner; ls -A .venv") == "realrunner\n"
    assert project.files(again) == MADE | {"a.py": "2\n"}
    assert not list((project.repository.root / ".mz/scratch").iterdir())
    execute(project, again, "echo forged > made.egg-info")  # Beside tracked files, where no overlay can be.
    assert project.reopen().checkout(ALPHA, project.base, tree).needs_setup


def test_a_worktree_gets_what_the_same_set_up_made_in_a_checkout(tmp_path: Path) -> None:
    project = Project(tmp_path)
    checkout = project.workspace.checkout(ALPHA, project.base, project.base)
    made = project.path(checkout) / ".venv/bin"
    made.mkdir(parents=True)
    (made / "runner").write_text(f"#!{made}/python\n")
    (made / "runner").chmod(0o755)
    (made / "python").symlink_to(made / "interpreter")
    (made / "empty").touch()
    (made / "cached.pyc").write_bytes(b"\0" + bytes(made))
    project.workspace.adopt(checkout.worktree, project.base)
    project.workspace.open(BETA, (project.base,))
    assert not project.workspace.ensure(BETA, project.base, project.base)
    copied = worktree_path(project.repository.root, BETA) / ".venv/bin"
    assert (copied / "runner").read_text() == f"#!{copied}/python\n"
    assert os.access(copied / "runner", os.X_OK)
    assert (copied / "python").readlink() == copied / "interpreter"
    assert {path.name for path in copied.iterdir()} == {"runner", "python", "empty", "cached.pyc"}
    assert not project.reopen().ensure(BETA, project.base, project.base)


@pytest.mark.parametrize("content", [b"\0%s", None], ids=["a program with its path", "another lock file"])
def test_another_environment_is_not_taken(tmp_path: Path, content: bytes | None) -> None:
    project = Project(tmp_path)
    checkout = project.workspace.checkout(ALPHA, project.base, project.base)
    made = project.path(checkout) / ".venv"
    made.mkdir()
    (made / "program").write_bytes((content or b"%s") % bytes(made))
    project.workspace.adopt(checkout.worktree, project.base)
    base = project.base if content else project.repository.commit({"uv.lock": "2\n"})
    project.workspace.open(BETA, (base,))
    assert project.workspace.ensure(BETA, base, base)
    assert not (worktree_path(project.repository.root, BETA) / ".venv/program").exists()


def test_a_checkout_gets_what_the_same_set_up_made_in_another(tmp_path: Path) -> None:
    project = Project(tmp_path)
    first = project.checkout(project.base)
    (project.path(first) / ".venv" / "runner").write_text(f"{project.path(first)}/a")
    second = project.workspace.checkout(BETA, project.base, project.base)
    assert second == replace(first, worktree=second.worktree)
    assert second.worktree.feature != first.worktree.feature
    assert project.files(second) == MADE | {"a.py": "1\n", ".venv/runner": f"{project.path(second)}/a"}
    execute(project, second, "echo forged > .venv/runner")
    project.workspace = project.reopen()
    assert not project.workspace.checkout(BETA, project.base, project.base).needs_setup
    assert (project.path(second) / ".venv" / "runner").read_text() == f"{project.path(second)}/a"


def test_what_another_tree_has_in_the_environment_is_not_copied(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.checkout(project.base)
    tracked = project.repository.commit({".venv/conftest.py": "tracked"})
    project.checkout(tracked)
    assert project.files(project.checkout(project.base, BETA)) == MADE | {"a.py": "1\n"}


def test_nothing_is_copied_from_a_checkout_whose_set_up_runs(tmp_path: Path) -> None:
    project = Project(tmp_path)
    first = project.workspace.checkout(ALPHA, project.base, project.base)
    (project.path(first) / ".venv").mkdir()
    second = project.workspace.checkout(BETA, project.base, project.base)
    assert second.needs_setup
    assert project.files(second) == {"a.py": "1\n", "uv.lock": "1\n"}


def test_an_environment_that_was_made_again_is_kept(tmp_path: Path) -> None:
    """After a set-up that was interrupted, another one on the same tree makes all of the environment."""
    project = Project(tmp_path)
    project.workspace.checkout(ALPHA, project.base, project.base)
    project.workspace = project.reopen()
    project.checkout(project.base)
    checkout = project.checkout(project.capture(a_dot_py="2\n"))
    assert project.files(checkout) == MADE | {"a.py": "2\n"}


def test_a_copy_follows_no_link(tmp_path: Path) -> None:
    """A shared environment outside stays as it is, and a link into the checkout leads into the worktree."""
    project, outside = Project(tmp_path), tmp_path / "shared"
    checkout = project.workspace.checkout(ALPHA, project.base, project.base)
    folder = project.path(checkout)
    outside.mkdir()
    (outside / "project.pth").write_text(f"{folder}/src\n")
    (folder / ".venv").symlink_to(outside)
    (folder / "node_modules").mkdir()
    (folder / "current").symlink_to(folder / "node_modules")
    project.workspace.adopt(checkout.worktree, project.base)
    project.workspace.open(BETA, (project.base,))
    copied = worktree_path(project.repository.root, BETA)
    assert (copied / ".venv").readlink() == outside
    assert (outside / "project.pth").read_text() == f"{folder}/src\n"
    assert (copied / "current").readlink() == copied / "node_modules"


def test_a_copy_replaces_no_tracked_file(tmp_path: Path) -> None:
    project = Project(tmp_path)
    base = project.repository.commit({".gitignore": "generated/\n"})
    checkout = project.workspace.checkout(ALPHA, base, base)
    (project.path(checkout) / "generated").mkdir()
    for name in ("mine", "theirs"):
        (project.path(checkout) / "generated" / name).write_text("made")
    project.workspace.adopt(checkout.worktree, base)
    tracked = project.repository.commit({"generated/theirs": "tracked"})
    project.workspace.open(BETA, (tracked,))
    generated = worktree_path(project.repository.root, BETA) / "generated"
    assert {path.name: path.read_text() for path in generated.iterdir()} == {"mine": "made", "theirs": "tracked"}
    assert project.workspace.capture(BETA, tracked).tree == tracked


def test_what_a_command_left_is_there_for_the_next_one_on_the_same_tree(tmp_path: Path) -> None:
    project = Project(tmp_path, setup=())
    tree = project.capture(a_dot_py="2\n")
    left = project.path(project.checkout(tree)) / "node_modules/built"
    left.parent.mkdir()
    left.touch()
    project.workspace = project.reopen()  # As after a resume.
    assert project.path(project.checkout(tree)) / "node_modules/built" == left
    assert left.exists()
    project.checkout(project.capture(a_dot_py="3\n"))
    assert not left.exists()
