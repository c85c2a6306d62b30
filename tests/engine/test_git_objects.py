"""Reads of git objects through one process that stays."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mz_engine.errors.diagnostics import MzError
from mz_engine.git import objects
from mz_engine.git.content import EXECUTABLE, FILE, LINK, TreeEntry
from mz_engine.git.objects import ObjectReader, ObjectStore, object_id
from mz_engine.git.process import Git, ProgramResult, Repository, git_error
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import RepositoryUnusable, StorageFailed
from mz_engine.run.process import storage_error
from mz_events.names import Commit
from mz_events.store import StoreUnusable

from tests.support.gitrepo import GitRepo
from tests.support.processes import is_alive


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    repo = GitRepo(tmp_path)
    repo.commit({f"file{number}": "content\n" * number for number in range(20)})
    return repo


def git_in(root: Path) -> Git:
    return Git(Repository(root, root / ".git", "sha1", True), os.environ)


def reader_of(repo: GitRepo) -> ObjectReader:
    return ObjectReader(git_in(repo.root))


def oid(repo: GitRepo, number: int) -> str:
    return repo.git("rev-parse", f"HEAD:file{number}").strip()


def test_reading_goes_on_when_git_has_ended(repo: GitRepo) -> None:
    reader = reader_of(repo)
    assert reader.read(oid(repo, 2), b"blob") == b"content\n" * 2
    for _ in range(2):
        assert reader._dialogue._process is not None
        reader._dialogue._process.kill()
        reader._dialogue._process.wait()
        assert reader.read(oid(repo, 3), b"blob") == b"content\n" * 3


def test_a_lost_object_is_an_error_and_the_next_is_read(repo: GitRepo) -> None:
    reader = reader_of(repo)
    for name, kind in (("1" * 40, b"blob"), (oid(repo, 1), b"tree"), ("nothing^{tree}", b"tree")):
        with pytest.raises(RepositoryUnusable, match="git has lost the"):
            reader.read(name, kind)
    assert reader.read(oid(repo, 4), b"blob") == b"content\n" * 4


@pytest.mark.parametrize("bytes_max", [1, 100, 1_000_000])
@pytest.mark.slow
def test_many_files_are_read_in_batches(repo: GitRepo, monkeypatch: pytest.MonkeyPatch, bytes_max: int) -> None:
    monkeypatch.setattr(objects, "BATCH_BYTES_MAX", bytes_max)
    monkeypatch.setattr(objects, "BATCH_NAMES_MAX", 7)
    store = ObjectStore(git_in(repo.root))
    oids = [oid(repo, number) for number in range(20)]
    assert list(store.blobs(oids)) == [b"content\n" * number for number in range(20)]
    with pytest.raises(RepositoryUnusable, match="git has lost the blob 1111"):
        list(store.blobs([*oids[:3], "1" * 40, *oids[3:]]))
    assert store.blob(oids[4]) == b"content\n" * 4


def test_objects_written_since_are_found(repo: GitRepo) -> None:
    reader = reader_of(repo)
    reader.read(oid(repo, 1), b"blob")
    repo.commit({"later": "x"})
    repo.git("gc", "--quiet", "--prune=now")
    assert reader.read(repo.git("rev-parse", "HEAD:later").strip(), b"blob") == b"x"
    assert reader.read(oid(repo, 5), b"blob") == b"content\n" * 5


def test_modes_of_early_versions_of_git_are_read_as_git_reads_them(repo: GitRepo) -> None:
    lines = "".join(f"{mode} blob {oid(repo, 1)}\t{mode}\n" for mode in ("100664", "100600", "100775", "120777"))
    tree = subprocess.run(
        ("git", "mktree"), cwd=repo.root, input=lines, capture_output=True, text=True, check=True
    ).stdout.strip()
    store = ObjectStore(git_in(repo.root))
    modes = [line.split()[0] for line in repo.git("ls-tree", tree).splitlines()]
    assert [f"{entry.mode:o}" for entry in store.listing(tree).values()] == modes


@pytest.mark.slow
def test_several_threads_get_their_own_answers(repo: GitRepo) -> None:
    reader, wrong = reader_of(repo), list[int]()
    oids = [oid(repo, number) for number in range(20)]

    def check(number: int) -> None:
        wrong.extend(number for _ in range(50) if reader.read(oids[number], b"blob") != b"content\n" * number)

    threads = [threading.Thread(target=check, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_without_git_the_error_says_so(repo: GitRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RepositoryUnusable, match="not installed"):
        reader_of(repo).read("1" * 40, b"blob")


def test_a_missing_repository_is_named(tmp_path: Path) -> None:
    with pytest.raises(RepositoryUnusable, match="does not exist"):
        ObjectReader(git_in(tmp_path / "none")).read("1" * 40, b"blob")


def test_a_git_that_only_ends_is_an_error(repo: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(RepositoryUnusable, match="ended with exit code 1"):
        reader_of(repo).read("1" * 40, b"blob")


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        ("fatal: sha1 file '.git/objects/pack/tmp_pack_x' write error. Out of diskspace", StorageFailed),
        ("error: unable to write file x: No space left on device", StorageFailed),
        ("error: unable to open x: Input/output error", StorageFailed),
        ("error: unable to create x: Read-only file system", StorageFailed),
        ("fatal: bad object HEAD", RepositoryUnusable),
    ],
)
def test_a_disk_that_fails_is_told_from_a_git_that_does(stderr: str, kind: type[Exception]) -> None:
    assert type(git_error("index-pack", ProgramResult(128, b"", stderr))) is kind


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.EIO, "Input/output error", "blob"), "MZ1006"),
        (OSError(errno.ENOSPC, "No space left on device"), "MZ1006"),
        (StorageFailed("git-failed", "git has no space"), "MZ1006"),
        (StoreUnusable("the log has no space"), "MZ1006"),
        (OSError(errno.EBADF, "Bad file descriptor"), None),
    ],
)
def test_every_disk_that_fails_ends_a_run_in_the_same_way(error: StorageFailed | OSError, code: str | None) -> None:
    ended = storage_error(error, "r1")
    if code is None:
        assert ended is error
    else:
        assert isinstance(ended, MzError)
        assert (ended.code, "mz resume r1" in ended.hint) == (code, True)


# writing --------------------------------------------------------------------------------------------------------------
NAMES = st.sampled_from([b"a", b"a.txt", b"a-b", b"\xff\n", b"lib", "\u00e4".encode()])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
FILES = st.dictionaries(PATHS, st.tuples(st.sampled_from([FILE, EXECUTABLE, LINK]), st.binary(max_size=40)), max_size=8)
Files = dict[bytes, tuple[int, bytes]]


def without_clashes(files: Files) -> Files:
    """Leave out files whose name another file needs as a directory."""
    return {path: value for path, value in files.items() if not any(p.startswith(path + b"/") for p in files)}


def blob_id(data: bytes) -> str:
    return object_id("sha1", b"blob", len(data), (data,))


def capture(store: ObjectStore, files: Files, parent: Commit) -> Commit:
    content = {path: TreeEntry(mode, blob_id(data)) for path, (mode, data) in files.items()}
    readers = {path: lambda data=data: data for path, (_, data) in files.items()}
    return store.write_capture(content, readers, (parent,))


@pytest.mark.slow
@settings(max_examples=20)
@given(before=FILES.map(without_clashes), after=FILES.map(without_clashes), loose_max=st.sampled_from([0, 100]))
def test_a_capture_is_the_tree_that_git_makes_of_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, before: Files, after: Files, loose_max: int
) -> None:
    repo = GitRepo(tmp_path_factory.mktemp("repo"))
    parent = Commit(repo.commit({}))
    store = ObjectStore(git_in(repo.root))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "LOOSE_OBJECTS_MAX", loose_max)
        for files in (before, after, {}):
            parent = capture(store, files, parent)
            lines = b"".join(
                b"%o %s\t%s\0" % (mode, blob_id(data).encode(), path) for path, (mode, data) in files.items()
            )
            index = {**os.environ, "GIT_INDEX_FILE": str(repo.root / "other-index")}
            for command in (["read-tree", "--empty"], ["update-index", "-z", "--index-info"]):
                subprocess.run(["git", *command], cwd=repo.root, env=index, input=lines, check=True)
            tree = subprocess.check_output(["git", "write-tree"], cwd=repo.root, env=index).decode().strip()
            assert repo.git("rev-parse", f"{parent}^{{tree}}") == tree
            assert ObjectStore(git_in(repo.root)).listing(parent).keys() == files.keys()
    repo.git("fsck", "--strict", "--no-dangling")


def test_a_large_file_fits_into_a_pack(repo: GitRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "LOOSE_OBJECTS_MAX", 0)
    data = os.urandom(3_000_001)
    written = capture(ObjectStore(git_in(repo.root)), {b"big": (FILE, data)}, Commit(repo.head()))
    shown = subprocess.run(["git", "show", f"{written}:big"], cwd=repo.root, capture_output=True, check=True).stdout
    assert shown == data


def test_directories_of_new_objects_have_the_mode_that_the_repository_has(repo: GitRepo) -> None:
    shared = repo.root / ".git/objects"
    shared.chmod(0o2775)
    written = capture(ObjectStore(git_in(repo.root)), {b"new": (FILE, b"some other content")}, Commit(repo.head()))
    assert (shared / written[:2]).stat().st_mode & 0o7777 in (0o2775, 0o755), "0o755: it was there before"
    assert any(path.stat().st_mode & 0o7777 == 0o2775 for path in shared.iterdir())
    assert (shared / written[:2] / written[2:]).stat().st_mode & 0o777 == 0o444


def test_a_disk_without_space_is_told_from_a_broken_repository(repo: GitRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageFailed, match="cannot be written: No space left"):
        capture(ObjectStore(git_in(repo.root)), {b"new": (FILE, b"new")}, Commit(repo.head()))


def test_lines_are_counted_as_git_counts_them(repo: GitRepo) -> None:
    first = Commit(repo.head())
    store = ObjectStore(git_in(repo.root))
    assert store.line_counts(first, first) == []
    files = {b"file1": (FILE, b"content\nmore\n"), b"end\n": (FILE, b"a\0b"), b"x": (FILE, b"1\n2\n")}
    second = capture(store, files, first)
    for _ in range(2):
        counts = store.line_counts(first, second)
        assert len(counts) == 22
        assert (0, 0) in counts
        assert (2, 0) in counts
    with pytest.raises(RepositoryUnusable, match="git has lost the tree"):
        store.line_counts(first, "1" * 40)


def test_a_ref_is_moved_from_its_value_only(repo: GitRepo) -> None:
    git, head = git_in(repo.root), repo.head()
    git.update_refs(f"update refs/mz/r1/f1 {head} {'0' * 40}\n")
    with pytest.raises(RepositoryUnusable, match="update-ref"):
        git.update_refs(f"update refs/mz/r1/f1 {head} {'1' * 40}\n")
    git.update_refs(f"delete refs/mz/r1/f1 {head}\n")
    assert "refs/mz" not in repo.git("for-each-ref")


def test_processes_that_stay_end_with_what_started_them(repo: GitRepo) -> None:
    git, head = git_in(repo.root), Commit(repo.head())
    store = ObjectStore(git)
    assert store.listing(head)
    assert store.line_counts(head, head) == []
    git.update_refs(f"update refs/mz/r1/f1 {head}\n")
    processes = [item._process for item in (store._reader._dialogue, store._differ, git._refs)]
    assert all(process is not None and is_alive(process.pid) for process in processes)
    gc.disable()  # A reference in a circle would be found only by chance.
    try:
        del store, git
        assert not any(process is not None and is_alive(process.pid) for process in processes)
    finally:
        gc.enable()


def test_so_do_those_of_a_workspace(repo: GitRepo) -> None:
    workspace = GitWorkspace(repo.root, WorkspaceSettings(setup=("true",)))
    assert workspace.paths(Commit(repo.head()))
    process = workspace._objects._reader._dialogue._process
    assert process is not None
    gc.disable()
    try:
        del workspace
        assert not is_alive(process.pid)
    finally:
        gc.enable()
