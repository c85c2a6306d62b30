"""What a replay reads of captured trees is what git says of them; texts are read once, and not all kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mz_engine.git import content
from mz_engine.git.objects import ObjectStore
from mz_engine.git.process import Git
from mz_engine.git.repository import describe_repository
from mz_events.names import Commit, Digest, parse_path
from mz_events.store import BlobMissing
from mz_recordings.past_runs import ports
from mz_recordings.past_runs.ports import CachedBlobs
from mz_recordings.past_runs.workspace import GitTrees

from tests.support.tapes import git

BEFORE = {"a": "1", "a.txt": "2", "d/e/f": "3", "d/g": "4", "gone/x": "5", "swap/y": "6", "mode": "7", "same/z": "8"}
AFTER = {"a/b": "1", "a.txt": "2!", "d/e/f": "3", "d/g!": "4", "swap": "6", "mode": "7", "same/z": "8", "new/p/q": "9"}


def captured(root: Path, files: dict[str, str], *lines: str) -> Commit:
    """A commit of these files, and of these lines of the index."""
    git(root, "read-tree", "--empty")
    for path, text in files.items():
        (root / "content").write_text(text)
        oid = git(root, "hash-object", "-w", "content").strip()
        git(root, "update-index", "--add", "--cacheinfo", f"100644,{oid},{path}")
    for line in lines:
        git(root, "update-index", "--add", "--cacheinfo", line)
    tree = git(root, "write-tree").strip()
    return Commit(git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", "-m", "x", tree).strip())


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_differences_and_paths_are_those_that_git_itself_finds(tmp_path: Path, object_format: str) -> None:
    git(tmp_path, "init", "--quiet", f"--object-format={object_format}")
    (tmp_path / "content").write_text("7")
    oid = git(tmp_path, "hash-object", "-w", "content").strip()
    module = "1" * len(oid)
    old = captured(tmp_path, BEFORE, f"120000,{oid},link")
    new = captured(tmp_path, AFTER, f"100755,{oid},mode", f"100644,{oid},link", f"160000,{module},module")
    repository = describe_repository(tmp_path, os.environ)
    objects = ObjectStore(Git(repository.directory, os.environ), repository.object_format)
    with GitTrees(tmp_path, os.environ) as trees:
        for commit, other in ((old, new), (new, old), (old, old)):
            assert trees.changes(commit, other) == tuple(content.changes(objects.changes(commit, other)))
        assert len(trees.changes(old, new)) > 10
        assert trees.paths(old) == tuple(sorted((*BEFORE, "link")))
        assert trees.paths(new) == tuple(sorted((*AFTER, "link"))), "a submodule is no file"


def test_files_are_read_on_after_the_process_of_git_ended(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    commit = captured(tmp_path, BEFORE)
    with GitTrees(tmp_path, os.environ) as trees:
        assert trees.read(commit, parse_path("a")) == b"1"
        assert trees._reader is not None
        trees._reader.kill()
        trees._reader.wait()
        assert trees.read(commit, parse_path("a.txt")) == b"2"
        assert trees._reader is not None
        trees._reader.kill()
        trees._reader.wait()


class Counting:
    """Blobs that count how often each was read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def put(self, data: bytes) -> Digest:
        raise AssertionError

    def get(self, digest: Digest) -> bytes:
        self.read.append(digest)
        if digest == "gone":
            raise BlobMissing(digest)
        return b"x" * (ports.CACHED_TEXT_BYTES_MAX + 1) if digest == "long" else digest.encode()


def test_a_text_is_read_once_unless_it_is_long_or_many_came_between() -> None:
    counting = Counting()
    blobs = CachedBlobs(counting)
    for name in ("a", "a", "long", "long"):
        blobs.get(Digest(name))
    assert counting.read == ["a", "long", "long"]
    for number in range(ports.CACHED_TEXTS_MAX):
        blobs.get(Digest(str(number)))
    assert blobs.get(Digest("a")) == b"a"
    assert counting.read.count("a") == 2


def test_a_text_that_is_missing_is_missing_every_time() -> None:
    blobs = CachedBlobs(Counting())
    for _ in range(2):
        with pytest.raises(BlobMissing):
            blobs.get(Digest("gone"))
