"""Refs read from git's files are those that git itself would tell, or git is asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mz_engine.git.repository import NeedsGit, read_head, read_ref

from tests.support.gitrepo import GitRepo


@pytest.fixture
def repository(tmp_path: Path) -> GitRepo:
    made = GitRepo(tmp_path)
    made.commit({"a": "1"})
    return made


def asked(repository: GitRepo, name: str) -> str | None:
    return repository.git("for-each-ref", "--format=%(objectname)", name).strip() or None


def told(repository: GitRepo, name: str) -> str | None:
    return read_ref(repository.root / ".git", name)


def test_loose_packed_and_both(repository: GitRepo) -> None:
    first = repository.git("rev-parse", "HEAD").strip()
    second = repository.commit({"a": "2"})
    repository.git("update-ref", "refs/heads/feat/one", first)
    repository.git("update-ref", "refs/mz/r1/one", first)
    names = ("refs/heads/feat/one", "refs/mz/r1/one", "refs/heads/feat", "refs/heads/feat/two", "refs/heads/feat/on")
    assert [told(repository, name) for name in names] == [first, first, None, None, None]
    repository.git("pack-refs", "--all")
    assert not (repository.root / ".git/refs/heads/feat/one").exists()
    assert [told(repository, name) for name in names] == [first, first, None, None, None]
    repository.git("update-ref", "refs/heads/feat/one", second)
    assert told(repository, names[0]) == asked(repository, names[0]) == second
    repository.git("update-ref", "-d", "refs/heads/feat/one")
    assert told(repository, names[0]) is asked(repository, names[0]) is None
    repository.git("tag", "-a", "v1", "-m", "peeled")
    repository.git("pack-refs", "--all")
    assert told(repository, "refs/tags/v1") == asked(repository, "refs/tags/v1")


def test_digests_of_another_length(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "other")
    (tmp_path / "x").mkdir()
    repository.git("init", "--quiet", "--object-format=sha256", str(tmp_path / "x"))
    repository.root = tmp_path / "x"
    commit = repository.commit({"a": "1"})
    repository.git("update-ref", "refs/heads/x", commit)
    assert told(repository, "refs/heads/x") == commit
    repository.git("pack-refs", "--all")
    assert told(repository, "refs/heads/x") == commit


def test_what_is_not_plain_is_left_to_git(repository: GitRepo) -> None:
    directory = repository.root / ".git"
    repository.git("symbolic-ref", "refs/heads/other", "refs/heads/main")
    (directory / "refs/heads/broken").write_text("not an id\n")
    (directory / "refs/heads/empty").write_text("")
    (directory / "refs/heads/link").symlink_to("main")
    os.mkfifo(directory / "refs/heads/pipe")
    for name in ("other", "broken", "empty", "link", "pipe"):
        with pytest.raises(NeedsGit):
            read_ref(directory, f"refs/heads/{name}")
    (directory / "reftable").mkdir()
    with pytest.raises(NeedsGit):
        read_ref(directory, "refs/heads/main")


def test_head(repository: GitRepo) -> None:
    directory = repository.root / ".git"
    assert read_head(directory) == "refs/heads/main"
    commit = repository.git("rev-parse", "HEAD").strip()
    repository.git("checkout", "--quiet", "--detach")
    assert read_head(directory) == commit
    for damaged in ("", "ref: \n", "ref: refs/heads/main", "nonsense\n"):
        (directory / "HEAD").write_text(damaged)
        with pytest.raises(NeedsGit):
            read_head(directory)
    (directory / "HEAD").unlink()
    with pytest.raises(NeedsGit):
        read_head(directory)
