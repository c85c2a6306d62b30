"""git objects in memory have git's ids: bundles, trees and patches, against git itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mz_engine.git.content import EXECUTABLE, FILE, LINK, TreeEntry
from mz_engine.git.process import Git, Repository
from mz_engine.git.workspace import merge_trees
from mz_events.names import Commit
from mz_recordings.replay.memory_objects import (
    MemoryObjects,
    NotInMemory,
    apply_patch,
    check_attributes,
    check_line_ends,
    parse_patch,
    read_bundle,
)

from tests.support.tapes import git

pytestmark = pytest.mark.slow

FLAGS = ("--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
lines = st.lists(
    st.sampled_from(["one", "two", "three", "", "näh", "\ttab", "-minus", "+plus", "\\ back", "@@ -1 +1 @@"])
)
texts = st.builds(
    lambda parts, end: "\n".join(parts).encode() + (b"\n" if end and parts else b""), lines, st.booleans()
)
contents = st.one_of(texts, st.binary(max_size=300), st.just(b"a\r\nb\r\n"))
names = st.sampled_from(["a", "b.txt", "dir/c", "dir/deep/d", "dir/e f", "ü.md", 'q"uote', "tab\tname", "dir2/x"])
Files = dict[str, tuple[bytes, int]]
PARENTS: dict[int, tuple[int, ...]] = {0: (), 1: (0,), 2: (1,), 3: (0,)}
"""Of each commit, by number."""
trees = st.dictionaries(names, st.tuples(contents, st.sampled_from([FILE, EXECUTABLE, LINK])), max_size=6)


def write(root: Path, files: dict[str, tuple[bytes, int]]) -> str:
    """The tree id of these files, written by git."""
    git(root, "read-tree", "--empty")
    for name, (data, mode) in files.items():
        (root / "blob").write_bytes(data)
        blob = git(root, "hash-object", "-w", "--no-filters", "blob")
        git(root, "update-index", "--add", "--cacheinfo", f"{mode:o},{blob},{name}")
    return git(root, "write-tree")


def in_memory(objects: MemoryObjects, files: dict[str, tuple[bytes, int]]) -> str:
    edits = {os.fsencode(name): TreeEntry(mode, objects.add(b"blob", data)) for name, (data, mode) in files.items()}
    return objects.edit(objects.empty_tree, edits)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    git(root, "init", "-q")
    return root


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=trees, new=trees)
def test_a_patch_makes_the_tree_that_git_makes(
    repository: Path, old: dict[str, tuple[bytes, int]], new: dict[str, tuple[bytes, int]]
) -> None:
    objects, before, after = MemoryObjects(), write(repository, old), write(repository, new)
    assert in_memory(objects, old) == before
    patch = git_bytes(repository, "diff-tree", "-r", "-p", *FLAGS, before, after)
    numstat = git_bytes(repository, "diff-tree", "-r", "-z", "--numstat", "--no-renames", before, after)
    try:
        tree, added = apply_patch(objects, before, patch)
    except NotInMemory:
        # A file that becomes a link, which git writes as a deletion and an addition of one path; a binary delta.
        becomes_link = (name in old and (old[name][1] == LINK) != (mode == LINK) for name, (_, mode) in new.items())
        assert any(becomes_link) or b"\ndelta " in patch
        return
    assert tree == after
    assert {name.decode() for name in added} == new.keys() - old.keys()
    for row in numstat.split(b"\0")[:-1]:
        insertions, deletions, name = row.split(b"\t", 2)
        file = next(file for file in parse_patch(patch) if file.path == name)
        counted = objects.line_counts.get((file.old, file.new), (0, 0))
        assert counted == ((0, 0) if insertions == b"-" else (int(insertions), int(deletions)))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(base=trees, ours=trees, theirs=trees)
def test_a_merge_has_the_tree_and_the_conflicts_of_git(
    repository: Path, base: Files, ours: Files, theirs: Files
) -> None:
    objects, in_git, made = MemoryObjects(), list[str](), list[str]()
    for number, files in enumerate((base, ours, {**ours, **theirs}, theirs)):
        parents = [in_git[at] for at in PARENTS[number]]
        flags = [word for parent in parents for word in ("-p", parent)]
        in_git.append(git(repository, "commit-tree", write(repository, files), *flags, "-m", "some"))
        made.append(objects.commit(in_memory(objects, files), tuple(made[at] for at in PARENTS[number]), b"some"))
    own = Git(Repository(repository, repository / ".git", "sha1", True), os.environ)
    for left, right in ((1, 3), (2, 3), (3, 2)):
        expected = merge_trees(own, Commit(in_git[left]), Commit(in_git[right]))
        assert objects.merge(made[left], made[right], os.environ) == expected
        for path, entry in objects.files(expected.tree):
            assert objects.get(entry.oid, b"blob") == git_bytes(repository, "cat-file", "blob", entry.oid), path


def test_what_git_cannot_merge_is_not_merged_in_memory() -> None:
    objects = MemoryObjects()
    first, second = (objects.commit(objects.empty_tree, (), name) for name in (b"one", b"two"))
    with pytest.raises(NotInMemory):
        objects.merge(first, second, os.environ)


def git_bytes(root: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True).stdout


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_a_bundle_has_the_files_that_git_unpacks(tmp_path: Path, object_format: str) -> None:
    """With deltas: the versions of a long file differ in a line."""
    git(tmp_path, "init", "-q", f"--object-format={object_format}")
    long = "".join(f"line {number}\n" for number in range(2000))
    heads = []
    for version in range(4):
        (tmp_path / "long.txt").write_text(long.replace("line 7\n", f"line 7, {version}\n"))
        (tmp_path / f"own-{version}").write_text("x")
        git(tmp_path, "add", "--all")
        git(tmp_path, "-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "-qm", "x")
        heads.append(git(tmp_path, "rev-parse", "HEAD"))
    git(tmp_path, "branch", "base", heads[0])
    git(tmp_path, "repack", "-adfq", "--depth=50")
    git(tmp_path, "bundle", "create", "-q", "b", "--branches")
    data = (tmp_path / "b").read_bytes()
    objects, refs = read_bundle(data, os.environ)
    assert refs["refs/heads/base"] == heads[0]
    for head in heads:
        listing = git(tmp_path, "ls-tree", "-r", head).splitlines()
        mine = [f"{mode:o} blob {oid}\t{path.decode()}" for path, (mode, oid) in objects.files(objects.tree_of(head))]
        assert mine == listing
    assert objects.contains(heads[3], heads[0])
    assert not objects.contains(heads[0], heads[3])
    damaged = data[:-99] + bytes([data[-99] ^ 0x55]) + data[-98:]
    for other in (damaged, data[: len(data) // 2], b"garbage", b""):
        with pytest.raises(NotInMemory):
            read_bundle(other, os.environ)


NEW = b"new file mode 100644\nindex %s..%s\n" % (b"0" * 40, b"1" * 40)
PATCHES = {
    "two names": b"diff --git a/x b/y\n",
    "outside": b"diff --git a/../x b/../x\n" + NEW,
    "git's own": b"diff --git a/.git/config b/.git/config\n" + NEW,
    "submodule": b"diff --git a/x b/x\n" + NEW.replace(b"100644", b"160000"),
    "other content": b"diff --git a/x b/x\nindex %s..%s 100644\n@@ -1 +1 @@\n-a\n+b\n" % (b"1" * 40, b"2" * 40),
    "damaged binary": b"diff --git a/x b/x\n" + NEW + b"GIT binary patch\nliteral 9\nzzz\n\n",
    "no header": b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
    "attributes": b"diff --git a/.gitattributes b/.gitattributes\n" + NEW,
    "garbage": b"garbage",
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_that_is_unusual_is_left_to_git(name: str) -> None:
    objects = MemoryObjects()
    with pytest.raises(NotInMemory):
        apply_patch(objects, objects.empty_tree, PATCHES[name])


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("*.lock linguist-generated -linguist-vendored\n# text\n\n", True),
        ("docs export-ignore merge=union\n* -text\n*.bin binary\n*.py diff=python", True),
        ("* text=auto\n*.sh eol=lf", True),
        ("*.bat eol=crlf", False),
        ("*.bin filter=lfs", False),
        ("* ident", False),
    ],
)
def test_attributes_that_change_what_git_does_are_left_to_git(text: str, harmless: bool) -> None:
    objects = MemoryObjects()
    tree = in_memory(objects, {"dir/.gitattributes": (text.encode(), FILE)})
    if harmless:
        check_attributes(objects, tree)
    else:
        with pytest.raises(NotInMemory):
            check_attributes(objects, tree)


def test_line_ends_that_git_would_convert_are_left_to_git() -> None:
    objects = MemoryObjects()
    tree = in_memory(objects, {".gitattributes": (b"* text=auto", FILE)})
    check_attributes(objects, tree)
    with pytest.raises(NotInMemory):
        objects.copy().add(b"blob", b"a\r\n")
    in_memory(objects := MemoryObjects(), {"x": (b"a\r\n", FILE)})
    check_attributes(objects, in_memory(objects, {".gitattributes": (b"* text=auto", FILE)}))
    with pytest.raises(NotInMemory):
        check_line_ends(objects)


def test_a_file_that_would_also_be_a_directory_is_left_to_git() -> None:
    objects = MemoryObjects()
    blob = TreeEntry(FILE, objects.add(b"blob", b"x"))
    tree = objects.edit(objects.empty_tree, {b"a/b": blob})
    for edits in ({b"a": blob}, {b"a/b/c": blob}):
        with pytest.raises(NotInMemory):
            objects.edit(tree, edits)
    assert objects.edit(tree, {b"a/b": None}) == objects.empty_tree
    assert objects.edit(tree, {b"a/b": None, b"c": blob}) == in_memory(objects, {"c": (b"x", FILE)})
