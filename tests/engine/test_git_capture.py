"""Captures: the whole content of a worktree, whatever the agent did to git, to ignore rules and to the files."""

from __future__ import annotations

import os
import pathlib
import socket
import threading
import time

import pytest
from mz_engine.git.content import FILE, TreeEntry
from mz_engine.git.files import RACY_NS
from mz_engine.git.objects import ObjectStore, RefMovedError, object_id
from mz_engine.git.repository import open_repository
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import FILE_BYTES_MAX, RepositoryUnusable
from mz_events.catalog.call import ForbiddenChange
from mz_events.catalog.validation import Change
from mz_events.names import Path

from tests.support.desk import FILES, Desk

pytestmark = pytest.mark.slow


def changes(desk: Desk) -> dict[str, str]:
    capture = desk.port.capture(desk.feature_worktree, desk.base)
    assert capture.forbidden_changes == ()
    return {change.path: change.kind for change in desk.port.changes(desk.base, capture.tree)}


def test_nothing_changed_is_no_new_capture(desk: Desk) -> None:
    assert desk.port.capture(desk.feature_worktree, desk.base).tree == desk.base
    desk.write({"new": "1"})
    first = desk.port.capture(desk.feature_worktree, desk.base)
    assert desk.port.capture(desk.feature_worktree, desk.base) == first
    assert desk.another().capture(desk.feature_worktree, desk.base) == first


def test_all_kinds_of_change(desk: Desk) -> None:
    desk.write({"src/app.py": "print('bye')\n", 'new dir/ü "x"\t.txt': "n", "bin/run": "#!/bin/sh\n"})
    (desk.worktree / "bin/run").chmod(0o755)
    (desk.worktree / "README.md").unlink()
    (desk.worktree / "src/lib/deep.py").chmod(0o755)
    (desk.worktree / "link").symlink_to("/nowhere/at all")
    capture = desk.port.capture(desk.feature_worktree, desk.base)
    assert desk.port.changes(desk.base, capture.tree) == (
        Change(path=Path("README.md"), kind="deleted"),
        Change(path=Path("bin/run"), kind="added"),
        Change(path=Path("link"), kind="added"),
        Change(path=Path('new dir/ü "x"\t.txt'), kind="added"),
        Change(path=Path("src/app.py"), kind="modified"),
        Change(path=Path("src/lib/deep.py"), kind="mode"),
    )
    content = desk.tree(capture.tree)
    assert content["link"] == "120000 /nowhere/at all"
    assert content["bin/run"] == "100755 #!/bin/sh"
    assert desk.port.read(capture.tree, Path("src/app.py")) == b"print('bye')\n"
    assert desk.port.read(capture.tree, Path("link")) == b"/nowhere/at all"
    assert desk.port.read(capture.tree, Path("README.md")) is None
    assert desk.port.read(capture.tree, Path("src")) is None
    assert desk.port.paths(capture.tree) == tuple(sorted(content))


def test_each_capture_follows_the_one_before_and_is_durable_under_its_ref(desk: Desk) -> None:
    trees = []
    for text in ("1", "2", "3"):
        desk.write({"new": text})
        trees.append(desk.port.capture(desk.feature_worktree, desk.base).tree)
    chain = desk.repo.git("rev-list", "refs/mz/r1/f1").split()
    assert chain == [*reversed(trees), desk.base]
    desk.repo.git("reflog", "expire", "--expire=now", "--all")
    desk.repo.git("gc", "--quiet", "--prune=now")
    assert [desk.port.read(tree, Path("new")) for tree in trees] == [b"1", b"2", b"3"]
    desk.repo.git("fsck", "--strict")


def test_a_file_that_git_has_lost_is_not_taken_for_one_that_is_absent(desk: Desk) -> None:
    desk.write({"key.txt": "secret"})
    tree = desk.port.capture(desk.feature_worktree, desk.base).tree
    objects = desk.repo.root / ".git" / "objects"
    objects.rename(objects.with_name("gone"))
    objects.mkdir()
    with pytest.raises(RepositoryUnusable):
        desk.another().read(tree, Path("key.txt"))


def test_a_capture_after_the_ref_was_lost_leads_back_to_what_was_before(desk: Desk) -> None:
    desk.write({"new": "1"})
    first = desk.port.capture(desk.feature_worktree, desk.base).tree
    desk.repo.git("update-ref", "-d", "refs/mz/r1/f1")
    desk.write({"new": "2"})
    second = desk.port.capture(desk.feature_worktree, first).tree
    assert desk.repo.head(f"{second}^") == first
    desk.repo.git("update-ref", "refs/mz/r1/f1", desk.base)
    desk.write({"new": "3"})
    third = desk.another().capture(desk.feature_worktree, second).tree
    assert desk.repo.git("rev-list", "--parents", "-1", third).split()[1:] == [desk.base, second]


def test_commits_and_staging_of_the_agent_make_no_difference(desk: Desk) -> None:
    desk.write({"committed": "c", "staged": "s", "loose": "l"})
    desk.git("add", "committed", "staged")
    desk.git("commit", "--quiet", "-m", "mine", "committed")
    desk.git("rm", "--quiet", "README.md")
    desk.git("update-index", "--assume-unchanged", "src/app.py")
    desk.write({"src/app.py": "hidden"})
    assert changes(desk) == {
        "README.md": "deleted",
        "committed": "added",
        "loose": "added",
        "src/app.py": "modified",
        "staged": "added",
    }


def test_ignore_rules_of_the_worktree_count(desk: Desk) -> None:
    """As in git; but neither the repository's own files of patterns nor the user's."""
    desk.write({".gitignore": "*.log\n/dist/\n", "dist/big": "b", "x.log": "l", "build/out": "not ignored any more"})
    desk.write({"src/.gitignore": "/gen\n", "src/gen/.gitignore": "!app.js\n", "src/gen/app.js": "j", "gen": "g"})
    (desk.repo.root / ".git/info").mkdir(exist_ok=True)
    (desk.repo.root / ".git/info/exclude").write_text("*\n")
    desk.git("config", "core.excludesFile", str(desk.worktree / ".gitignore"))
    expected = {".gitignore": "modified", "build/out": "added", "src/.gitignore": "added", "gen": "added"}
    assert changes(desk) == expected
    tree = desk.port.capture(desk.feature_worktree, desk.base).tree
    desk.port.ensure(desk.feature_worktree, desk.base, tree)
    assert (desk.worktree / "dist/big").exists(), "ignored files stay for the next call"
    assert desk.port.capture(desk.feature_worktree, tree).tree == tree
    desk.write({".gitignore": "*.log\n"})
    assert changes(desk).keys() == {*expected, "dist/big"}


def test_ignore_rules_that_no_capture_shows_hide_nothing(desk: Desk, tmp_path: pathlib.Path) -> None:
    (tmp_path / "rules").write_text("*\n")
    (desk.worktree / "linked").mkdir()
    (desk.worktree / "linked/.gitignore").symlink_to(tmp_path / "rules")
    desk.write({"src/.gitignore": "*\n", "folder/.gitignore/x": "x", "linked/x": "x", "src/x": "x"})
    desk.write({"more/.gitignore": ".gitignore\nx\n", "more/x": "x"})
    hidden = {"linked/.gitignore", "src/.gitignore", "more/.gitignore"}
    assert changes(desk).keys() == {*hidden, "folder/.gitignore/x", "linked/x", "src/x", "more/x"}


@pytest.mark.parametrize("rules", ["*.log\nbuild/\ndist/\n", "dist/\n"])
def test_what_only_reverted_rules_ignored_is_gone_before_the_next_call(desk: Desk, rules: str) -> None:
    desk.write({"x.log": "l", "build/out": "o"})
    ready = desk.port.capture(desk.feature_worktree, desk.base).tree
    desk.port.adopt(desk.feature_worktree, ready)
    desk.write({".gitignore": rules, "dist/a/big": "b", "src/app.py": "new"})
    tree = desk.port.capture(desk.feature_worktree, ready).tree
    unwanted = tuple(change.path for change in desk.port.changes(ready, tree) if change.path != "src/app.py")
    reverted = desk.port.revert_paths(desk.feature_worktree, tree, ready, unwanted)
    desk.port.ensure(desk.feature_worktree, desk.base, reverted)
    assert not (desk.worktree / "dist").exists()
    assert (desk.worktree / "x.log").exists(), "what was ignored before stays"
    assert (desk.worktree / "build/out").exists()
    assert desk.port.capture(desk.feature_worktree, reverted).tree == reverted


def test_a_cache_that_ignores_itself_is_neither_committed_nor_kept(desk: Desk) -> None:
    """As pytest, mypy, ruff and venv write them: in a call they may hide what gates must not see."""
    cache = "# Created by pytest automatically.\n*\n"
    desk.write({".setup_cache/.gitignore": "*\r\n", ".setup_cache/big": "b"})
    ready = desk.port.capture(desk.feature_worktree, desk.base).tree
    desk.port.adopt(desk.feature_worktree, ready)
    desk.write({"src/.pytest_cache/.gitignore": cache, "src/.pytest_cache/v/lastfailed": "{}", ".setup_cache/x": "1"})
    desk.write({"src/lib/.gitignore": "*\n", "src/lib/new.py": "n", "src/app.py": "new"})
    capture = desk.port.capture(desk.feature_worktree, ready)
    assert {change.path for change in desk.port.changes(ready, capture.tree)} == {
        "src/app.py",
        "src/lib/.gitignore",
        "src/lib/new.py",
    }, "beside tracked files"
    assert capture.forbidden_changes == ()
    desk.port.ensure(desk.feature_worktree, desk.base, capture.tree)
    assert not (desk.worktree / "src/.pytest_cache").exists(), "what an agent hid is gone before gates run"
    assert (desk.worktree / ".setup_cache/x").is_file(), "what the set-up made stays"


def test_a_skill_of_a_call_is_in_no_capture_and_gone_before_the_next_call(desk: Desk) -> None:
    desk.write({".agents/skills/careful/SKILL.md": "of the project"})
    before = desk.port.capture(desk.feature_worktree, desk.base).tree
    folder = ".agents/skills/careful-0123abcd"
    desk.port.provide(desk.feature_worktree, {Path(f"{folder}/SKILL.md"): b"x", Path(f"{folder}/.gitignore"): b"*\n"})
    assert (desk.worktree / folder / "SKILL.md").read_text() == "x"
    assert desk.port.capture(desk.feature_worktree, before).tree == before
    desk.port.ensure(desk.feature_worktree, before, before)
    assert not (desk.worktree / folder).exists()
    assert (desk.worktree / ".agents/skills/careful/SKILL.md").read_text() == "of the project"


def test_a_removed_ignore_rule_leaves_what_it_ignored_to_the_capture(desk: Desk) -> None:
    (desk.worktree / ".gitignore").unlink()
    desk.write({"x.log": "l", "build/out": "o"})
    assert changes(desk) == {".gitignore": "deleted", "build/out": "added", "x.log": "added"}


def test_what_is_tracked_counts_although_it_is_ignored(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path, files={**FILES, "build/kept/file": "1", "x.log": "1"})
    desk.open()
    desk.write({"build/kept/file": "2", "x.log": "2", "build/other": "n", "build/kept/other": "n"})
    assert changes(desk) == {"build/kept/file": "modified", "x.log": "modified"}


def test_a_file_may_become_a_directory_and_back(desk: Desk) -> None:
    (desk.worktree / "README.md").unlink()
    desk.write({"README.md/part/one": "1"})
    assert changes(desk) == {"README.md": "deleted", "README.md/part/one": "added"}
    before = desk.port.capture(desk.feature_worktree, desk.base).tree
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert changes(desk) == {}
    assert set(desk.tree(before)) == {*FILES, "README.md/part/one"} - {"README.md"}


def test_a_change_that_leaves_size_and_mtime_as_they_were_is_seen(desk: Desk) -> None:
    file = desk.worktree / "src/app.py"
    time.sleep(2 * RACY_NS / 1e9)
    desk.port.capture(desk.feature_worktree, desk.base)
    times = file.stat().st_mtime_ns
    file.write_text("print('HELLO')\n")
    os.utime(file, ns=(times, times))
    assert changes(desk) == {"src/app.py": "modified"}


def test_no_filter_attribute_or_line_ending_rule_is_applied(desk: Desk, tmp_path: pathlib.Path) -> None:
    ran = tmp_path / "ran"
    for name in ("clean", "smudge"):
        desk.git("config", f"filter.evil.{name}", f"touch {ran}; cat")
    desk.git("config", "core.autocrlf", "true")
    desk.git("config", "core.fsmonitor", f"touch {ran}; false")
    desk.write({".gitattributes": "* filter=evil text eol=crlf ident\n", "dos": b"a\r\n$Id$\r\n", "unix": b"a\n"})
    (desk.repo.root / ".git/info/attributes").write_text("* filter=evil\n")
    tree = desk.port.capture(desk.feature_worktree, desk.base).tree
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    desk.port.ensure(desk.feature_worktree, desk.base, tree)
    assert (desk.worktree / "dos").read_bytes() == b"a\r\n$Id$\r\n"
    assert desk.port.read(tree, Path("unix")) == b"a\n"
    assert not ran.exists()


def test_special_files_are_recorded_and_stay_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(desk.worktree / "pipe")
    monkeypatch.chdir(desk.worktree)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
    (desk.worktree / "src/app.py").unlink()
    os.mkfifo(desk.worktree / "src/app.py")
    capture = desk.port.capture(desk.feature_worktree, desk.base)
    assert capture.forbidden_changes == tuple(
        ForbiddenChange(kind="special", path=Path(path)) for path in ("pipe", "sock", "src/app.py")
    )
    assert desk.tree(capture.tree) == desk.tree(desk.base)
    desk.port.ensure(desk.feature_worktree, desk.base, capture.tree)
    assert desk.state() == "## feat/f1"


def test_a_special_file_in_place_of_a_directory(desk: Desk) -> None:
    (desk.worktree / "src/lib/deep.py").unlink()
    (desk.worktree / "src/lib").rmdir()
    os.mkfifo(desk.worktree / "src/lib")
    capture = desk.port.capture(desk.feature_worktree, desk.base)
    assert capture.forbidden_changes == (ForbiddenChange(kind="special", path=Path("src/lib")),)
    assert desk.tree(capture.tree) == desk.tree(desk.base)


def test_a_repository_inside_stays_out(desk: Desk) -> None:
    desk.write({"vendor/x/file": "f", "src/new": "n"})
    desk.repo.git("init", "--quiet", cwd=desk.worktree / "vendor/x")
    desk.repo.git("init", "--quiet", cwd=desk.worktree / "src")
    capture = desk.port.capture(desk.feature_worktree, desk.base)
    assert capture.forbidden_changes == (
        ForbiddenChange(kind="nested-git", path=Path("src")),
        ForbiddenChange(kind="nested-git", path=Path("vendor/x")),
    )
    assert set(desk.tree(capture.tree)) == {*FILES, "src/new"}
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert desk.state() == "## feat/f1"
    assert not (desk.worktree / "vendor").exists()
    assert not (desk.worktree / "src/.git").exists()


@pytest.mark.slow
def test_files_that_are_too_big_are_recorded_by_size(desk: Desk) -> None:
    size = FILE_BYTES_MAX + 1
    for name in ("huge", "README.md"):
        with (desk.worktree / name).open("wb") as file:
            file.truncate(size)
    with (desk.worktree / "large").open("wb") as file:
        file.truncate(FILE_BYTES_MAX)
    capture = desk.port.capture(desk.feature_worktree, desk.base)
    assert capture.forbidden_changes == (
        ForbiddenChange(kind="too-big", path=Path("README.md"), size_bytes=size),
        ForbiddenChange(kind="too-big", path=Path("huge"), size_bytes=size),
    )
    assert set(desk.tree(capture.tree)) == {*FILES, "large"}
    assert desk.port.read(capture.tree, Path("README.md")) == b"# Engine\n"


@pytest.mark.slow
def test_a_big_file_of_the_users_is_none_of_our_business(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path, files={**FILES, "data.bin": bytes(FILE_BYTES_MAX + 1)})
    desk.open()
    assert changes(desk) == {}
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert desk.state() == "## feat/f1"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"new\nline", "new\\nline"),
        (b"bad \xff byte", "bad \\xff byte"),
        (b"~tilde", "~tilde"),
        (b".GIT", ".GIT"),
        (b"git~1", "git~1"),
        (b"sub/" * 70 + b"x", ("sub/" * 70)[:255]),
    ],
)
def test_names_that_no_event_may_hold(desk: Desk, name: bytes, shown: str) -> None:
    path = os.fsencode(desk.worktree) + b"/" + name
    pathlib.Path(os.fsdecode(path)).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(os.fsdecode(path)).write_text("x")
    capture = desk.port.capture(desk.feature_worktree, desk.base)
    assert [(change.kind, change.path) for change in capture.forbidden_changes] == [("special", shown)]
    assert desk.tree(capture.tree) == desk.tree(desk.base)
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert desk.state() == "## feat/f1"


def test_odd_names_of_the_users_own_files_stay_as_they_are(tmp_path: pathlib.Path) -> None:
    odd = {"new\nline": "1", os.fsdecode(b"bad \xff byte"): "2", "~/tilde": "3"}
    desk = Desk(tmp_path, files={**FILES, **odd})
    desk.open()
    assert changes(desk) == {}
    (desk.worktree / "new\nline").write_text("changed")
    (desk.worktree / "~/tilde").unlink()
    capture = desk.port.capture(desk.feature_worktree, desk.base)
    actual = [(change.kind, change.path) for change in capture.forbidden_changes]
    assert actual == [("special", "new\\nline"), ("special", "~/tilde")]
    assert desk.tree(capture.tree) == desk.tree(desk.base)
    assert set(desk.port.paths(capture.tree)) == set(FILES)


def test_directories_without_rights_are_opened_up(desk: Desk) -> None:
    desk.write({"closed/inner/file": "f"})
    (desk.worktree / "closed/inner").chmod(0)
    (desk.worktree / "closed").chmod(0o500)
    (desk.worktree / "src/app.py").chmod(0)
    assert changes(desk) == {"closed/inner/file": "added"}
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert not (desk.worktree / "closed").exists()


def test_submodules_are_kept_as_they_were(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.repo.git("update-index", "--add", "--cacheinfo", f"160000,{desk.base},lib/sub")
    desk.repo.git("commit", "--quiet", "-m", "submodule")
    desk.base = desk.repo.head()
    desk.open()
    assert (desk.worktree / "lib/sub").is_dir()
    desk.write({"lib/sub/file": "f", "lib/sub/.git": "gitdir: elsewhere"})
    assert changes(desk) == {}
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert (desk.worktree / "lib/sub/file").exists()


def test_copied_files_are_never_captured(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path, WorkspaceSettings(copy=("local.cfg", "certs", "absent")))
    desk.repo.write({"local.cfg": "mine", "certs/key": "k"})
    desk.open()
    assert (desk.worktree / "local.cfg").read_text() == "mine"
    desk.write({"local.cfg": "changed", "certs/more": "m"})
    assert changes(desk) == {}
    (desk.worktree / "local.cfg").unlink()
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    assert (desk.worktree / "local.cfg").read_text() == "mine"
    assert (desk.worktree / "certs/more").exists()


def test_a_file_system_without_executable_bits(tmp_path: pathlib.Path) -> None:
    desk = Desk(tmp_path)
    desk.repo.write({"run": "#!/bin/sh\n"})
    (desk.repo.root / "run").chmod(0o755)
    desk.base = desk.repo.commit()
    desk.repo.git("config", "core.fileMode", "false")
    desk.port = desk.another()
    desk.open()
    (desk.worktree / "run").chmod(0o644)
    (desk.worktree / "README.md").chmod(0o755)
    assert changes(desk) == {}


def test_a_worktree_that_is_gone_cannot_be_captured(desk: Desk) -> None:
    desk.worktree.rename(desk.worktree.with_name("elsewhere"))
    with pytest.raises(RepositoryUnusable) as lost:
        desk.port.capture(desk.feature_worktree, desk.base)
    assert lost.value.code == "worktree-lost"
    desk.worktree.symlink_to("elsewhere")
    with pytest.raises(RepositoryUnusable):
        desk.port.capture(desk.feature_worktree, desk.base)


def test_a_file_that_is_still_written_to_is_captured_whole_or_not_at_all(desk: Desk) -> None:
    texts = (b"a" * 70_000, b"b" * 70_001)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for number, text in enumerate(texts):
                (desk.worktree / "partial").write_bytes(text)
                (desk.worktree / "partial").replace(desk.worktree / "busy")
                (desk.worktree / f"gone{number}").touch()
                (desk.worktree / f"gone{1 - number}").unlink(missing_ok=True)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            try:
                tree = desk.port.capture(desk.feature_worktree, desk.base).tree
            except RepositoryUnusable as busy:
                assert busy.code == "worktree-busy"  # noqa: PT017 - only some of the captures fail
                continue
            assert desk.port.read(tree, Path("busy")) in (*texts, None)
            assert desk.port.paths(tree) == desk.another().paths(tree)
    finally:
        stop.set()
        writer.join()


def test_a_file_that_changes_between_two_looks_stops_the_capture(desk: Desk) -> None:
    objects = ObjectStore(open_repository(desk.repo.root))
    content = {**objects.listing(desk.base), b"busy": TreeEntry(FILE, object_id("sha1", b"blob", 3, (b"old",)))}
    with pytest.raises(RefMovedError, match="busy changed"):
        objects.write_capture(content, {b"busy": lambda: b"new"}, (desk.base,))
    assert desk.repo.head("refs/mz/r1/f1") == desk.base


def test_a_capture_needs_nothing_of_git_in_the_worktree(desk: Desk) -> None:
    (desk.worktree / ".git").rmdir()
    (desk.private / "HEAD").write_text("nonsense\n")
    desk.write({"new": "n"})
    assert changes(desk) == {"new": "added"}


def test_keeping_puts_paths_back_and_touches_no_worktree(desk: Desk) -> None:
    desk.write({"src/app.py": "mine", "src/new": "n", "other": "o"})
    (desk.worktree / "README.md").unlink()
    capture = desk.port.capture(desk.feature_worktree, desk.base)
    state = desk.state()
    revert = tuple(map(Path, ("src/app.py", "src/new", "README.md", "never/there")))
    kept = desk.port.revert_paths(desk.feature_worktree, capture.tree, desk.base, revert)
    assert desk.port.changes(desk.base, kept) == (Change(path=Path("other"), kind="added"),)
    assert desk.repo.head("refs/mz/r1/f1") == kept
    assert desk.repo.head(f"{kept}^") == capture.tree
    assert desk.state() == state


def test_keeping_turns_a_directory_back_into_a_file(desk: Desk) -> None:
    (desk.worktree / "README.md").unlink()
    desk.write({"README.md/a": "a", "src/lib/deep.py": "changed"})
    capture = desk.port.capture(desk.feature_worktree, desk.base)
    for revert in (("README.md",), ("README.md", "README.md/a"), ("README.md/a", "README.md")):
        kept = desk.port.revert_paths(desk.feature_worktree, capture.tree, desk.base, tuple(map(Path, revert)))
        assert desk.port.changes(desk.base, kept) == (Change(path=Path("src/lib/deep.py"), kind="modified"),)
        assert desk.port.paths(kept) == desk.another().paths(kept)


def test_keeping_turns_a_file_back_into_a_directory(desk: Desk) -> None:
    (desk.worktree / "src/lib/deep.py").unlink()
    (desk.worktree / "src/lib").rmdir()
    desk.write({"src/lib": "a file now"})
    capture = desk.port.capture(desk.feature_worktree, desk.base)
    kept = desk.port.revert_paths(desk.feature_worktree, capture.tree, desk.base, (Path("src/lib/deep.py"),))
    assert desk.port.changes(desk.base, kept) == ()
    assert desk.port.paths(kept) == desk.another().paths(kept)


def test_a_patch_is_whole_for_binary_files_too(desk: Desk) -> None:
    desk.write({"bin": bytes(range(256)), "src/app.py": "print('bye')\n"})
    tree = desk.port.capture(desk.feature_worktree, desk.base).tree
    patch = desk.port.patch(desk.base, tree)
    assert b"GIT binary patch" in patch
    assert b"-print('hello')\n+print('bye')\n" in patch
    desk.port.ensure(desk.feature_worktree, desk.base, desk.base)
    file = desk.repo.root / "the.patch"
    file.write_bytes(patch)
    desk.git("apply", "--index", str(file))
    assert desk.git("write-tree") == desk.repo.tree(tree)
