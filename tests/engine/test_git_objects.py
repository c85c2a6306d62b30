"""Reads of git objects through one process that stays."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from pathlib import Path

import pytest
from mz_engine.errors.diagnostics import MzError
from mz_engine.git import objects
from mz_engine.git.objects import ObjectReader, ObjectStore
from mz_engine.git.process import Git, ProgramResult, Repository, git_error
from mz_engine.ports import RepositoryUnusable, StorageFailed
from mz_engine.run.process import storage_error
from mz_events.store import StoreUnusable

from tests.support.gitrepo import GitRepo


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
        assert reader._process is not None
        reader._process.kill()
        reader._process.wait()
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
    assert type(git_error("fast-import", ProgramResult(128, b"", stderr))) is kind


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
