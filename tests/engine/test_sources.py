"""What counts as code, tests and prose, and what a change adds to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mz_engine.git import sources as git_sources
from mz_engine.git.sources import SourceReader
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import Sources, WorkspaceSettings
from mz_engine.ports import LineChange
from mz_engine.sources import FileChange, SourceCounts, count_source, parse_patch, source_group

from tests.support.gitrepo import GitRepo

OWN = Sources(
    code=("**/*.go", "*.foo", "!**/*_test.go"), tests=("**/*_test.go", "check/"), prose={"specs": ("specs/**",)}
)
GROUPS = (
    (Sources(), "src/app.py", ("code", "Python")),
    (Sources(), "Makefile", ("code", "Makefile")),
    (Sources(), "tests/test_app.py", ("tests", "Python")),
    (Sources(), "pkg/app_test.go", ("tests", "Go")),
    (Sources(), "web/app.spec.ts", ("tests", "TypeScript")),
    (Sources(), "src/contest.py", ("code", "Python")),
    (Sources(), "vendor/lib/lib.go", None),
    (Sources(), "data.json", None),
    (Sources(), "tests/data.json", None),
    (Sources(), "docs/page.md", ("prose", "docs")),
    (Sources(), "LICENSE", None),
    (OWN, "pkg/app_test.go", ("tests", "Go")),
    (OWN, "pkg/app.go", ("code", "Go")),
    (OWN, "a.foo", ("code", "foo")),
    (OWN, "check/a.bar", ("tests", "bar")),
    (OWN, "app.py", None),
    (OWN, "docs/page.md", None),
    (OWN, "specs/prd.md", ("prose", "specs")),
)
PATCH = b"""diff --git a/a.py b/a.py
index 1..2 100644
--- a/a.py
+++ b/a.py
@@ -1,2 +1,3 @@
--- a/b.py
-
+++ b/c.py
+ \t
+diff --git a/d.py b/d.py
diff --git "a/n\\nl \\303\\274.py" "b/n\\nl \\303\\274.py"
new file mode 100644
--- /dev/null
+++ "b/n\\nl \\303\\274.py"\t
@@ -0,0 +1 @@
+x
\\ No newline at end of file
diff --git a/old.py b/old.py
deleted file mode 100644
--- a/old.py
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/run.sh b/run.sh
old mode 100644
new mode 100755
diff --git a/a.png b/a.png
Binary files a/a.png and b/a.png differ
"""


@pytest.mark.parametrize(("sources", "path", "group"), GROUPS)
def test_paths_decide_what_is_counted(sources: Sources, path: str, group: tuple[str, str] | None) -> None:
    assert source_group(path, sources) == group


@pytest.mark.parametrize(
    ("kind", "data", "number"),
    [
        ("code", b"", 0), ("code", b"a\n\n \t\r\n  b", 2), ("code", b"a\0\n", 0),
        ("tests", b"\n\n", 0), ("prose", b"# Two words\n", 3),
    ],
)  # fmt: skip
def test_lines_have_more_than_white_space(kind: str, data: bytes, number: int) -> None:
    assert count_source(kind, data) == number


def test_patches_are_read_whatever_the_lines_look_like() -> None:
    assert list(parse_patch(PATCH)) == [
        FileChange("a.py", insertions=3, deletions=2, added=2, removed=1),
        FileChange("n\nl ü.py", insertions=1, added=1),
        FileChange("old.py", deletions=1, removed=1),
        FileChange(""),
        FileChange(""),
    ]
    assert list(parse_patch(b"")) == []


def counts_of(reader: SourceReader, commit: str) -> SourceCounts:
    counts = reader.counts(commit)
    assert counts is not None
    return counts


def test_commits_are_counted_from_gits_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = GitRepo(tmp_path)
    files: dict[str, str | bytes] = {"a.py": "a\n\nb\n", 'x "y"\n.py': "a\n", "tests/a.py": "a\n", "b.py": b"\0"}
    (tmp_path / "link.py").symlink_to("a.py")
    old = repository.commit({**files, "README.md": "two words", "huge.py": "a\n" * 100})
    repository.write({"a.py": "not committed\n"})
    monkeypatch.setattr(git_sources, "FILE_BYTES_MAX", 150)
    reader = SourceReader(tmp_path, Sources(), os.environ)
    assert {tuple(group): number for group, number in counts_of(reader, old).items()} == {
        ("code", "Python"): 3, ("prose", "docs"): 2, ("tests", "Python"): 1,
    }  # fmt: skip
    repository.git("rm", "-q", "tests/a.py")
    repository.git("config", "diff.noprefix", "true")
    repository.git("config", "diff.interHunkContext", "9")
    new = repository.commit({"a.py": "a\n\n\nc\nd\n", "c.go": "x\n", 'x "y"\n.py': "\n"})
    change = reader.change(old, new)
    assert change is not None
    assert (change.code, repr(change.tests)) == (LineChange(added=3, removed=2), "LineChange(added=0, removed=1)")
    assert change.files == 4
    assert GitWorkspace(tmp_path, WorkspaceSettings()).source_change(old, new, Sources()) == change
    before, after = (sum(counts_of(reader, commit).values()) for commit in (old, new))
    assert after - before == 3 - 2 - 1
    assert (reader.counts("f" * 40), reader.change(new, "f" * 40), reader.change(None, new)) == (None, None, None)


def test_counting_needs_no_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = GitRepo(tmp_path).commit({"a.py": "a\n"})
    monkeypatch.setattr("os.access", lambda *_: False)
    assert sum(counts_of(SourceReader(tmp_path, Sources()), commit).values()) == 1


def test_what_commits_share_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, counted = GitRepo(tmp_path), list[bytes]()
    old = repository.commit({f"{number}.py": f"{number}\n" for number in range(20)})
    new = repository.commit({"0.py": "new\n"})

    def count_source(_: str, data: bytes) -> int:
        counted.append(data)
        return 1

    monkeypatch.setattr(git_sources, "count_source", count_source)
    reader = SourceReader(tmp_path, Sources())
    assert [sum(counts_of(reader, commit).values()) for commit in (old, new, old)] == [20, 20, 20]
    assert len(counted) == 21
