"""Commits that the engine makes in the user's name and finds again by their `Mz-Key` trailer."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from mz_events.names import Commit, Path

from mz_engine.git.content import display_path
from mz_engine.git.process import Git, git_error
from mz_engine.ports import CreatedCommit, MergeConflict, RepositoryUnusable


def make_commit(git: Git, tree: str, parents: tuple[str, ...], message: bytes, date: str = "") -> Commit:
    """Commit the content of `tree` (a commit or a tree) in the user's name, without moving a ref."""
    command = ("-c", "i18n.commitEncoding=UTF-8", "commit-tree", f"{tree}^{{tree}}", "-F", "-")
    flags = [part for parent in parents for part in ("-p", parent)]
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
    return Commit(git.run(*command, *flags, stdin=message, env={**git.identity, **dates}).text)


def describe_commit(git: Git, commit: Commit) -> CreatedCommit:
    """Count the commit's changes against its first parent; binary files count no lines."""
    out = git.run("diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-commit-id", f"{commit}^1", commit).stdout
    rows = [line.split(b"\t", 2) for line in out.split(b"\0")[:-1]]
    added, deleted = (sum(int(row[column]) for row in rows if row[column] != b"-") for column in (0, 1))
    return CreatedCommit(commit=commit, files=len(rows), insertions=added, deletions=deleted)


def find_by_key(git: Git, branch_ref: str, key: str) -> Commit | None:
    """Return the newest commit of the branch itself (first parents) whose `Mz-Key` trailer is exactly `key`."""
    search = ("--first-parent", "--fixed-strings", f"--grep=Mz-Key: {key}")
    output_flags = ("-z", "--no-show-signature", "--no-mailmap", "--format=%H%n%(trailers:key=Mz-Key,valueonly,unfold)")
    log = git.run("-c", "trailer.separators=:", "log", *search, *output_flags, branch_ref, "--", check=False)
    if log.exit_code:
        if "unknown revision" in log.stderr or "bad revision" in log.stderr:
            return None
        raise git_error("log", log)
    for entry in log.stdout.decode("utf-8", "replace").split("\0"):
        commit, *values = entry.split("\n")
        if key in (value.strip() for value in values if value):
            return Commit(commit)
    return None


def merge_all(git: Git, commits: tuple[Commit, ...], feature: str) -> Commit | MergeConflict:
    """Merge the commits one by one in the object store, touching no worktree; ancestors need no new commit."""
    merged = commits[0]
    message = f"Merge what {feature} builds upon\n".encode()
    for commit in commits[1:]:
        if is_ancestor(git, commit, merged):
            continue
        if is_ancestor(git, merged, commit):
            merged = commit
            continue
        content = merge_trees(git, merged, commit)
        if content.conflicts:
            return MergeConflict(paths=content.conflicts)
        merged = make_merge_commit(git, merged, commit, content, message)
    return merged


class MergedTree(NamedTuple):
    """Result of `git merge-tree` for two commits."""

    tree: str
    conflicts: tuple[Path, ...]
    """Files with both sides between conflict markers, or only ours where git cannot merge by lines."""


def merge_trees(git: Git, ours: Commit, theirs: Commit) -> MergedTree:
    """Merge two commits. Raises RepositoryUnusable (`git-too-old` before git 2.38)."""
    flags = ("--write-tree", "-z", "--name-only", "--no-messages")
    with tempfile.TemporaryDirectory(prefix="mz-merge-") as name:
        view = pathlib.Path(name)
        environment = make_bare_view(git, view, {"ours": ours, "theirs": theirs})
        result = git.run("merge-tree", *flags, "ours", "theirs", git_dir=view, env=environment, check=False)
    if result.exit_code > 1:
        if "usage:" in result.stderr:
            raise RepositoryUnusable("git-too-old", "merging commits needs git 2.38 or newer: update git")
        raise git_error("merge-tree", result)
    tree, *paths = result.stdout.split(b"\0")
    conflicts = sorted(display_path(path) for path in set(paths) if path) if result.exit_code else ()
    return MergedTree(tree.decode(), tuple(conflicts))


def make_merge_commit(git: Git, ours: Commit, theirs: Commit, content: MergedTree, message: bytes) -> Commit:
    """Make the merge commit. Its time is that of the newer parent, so a repeated call makes the same commit."""
    dates = git.run("log", "--no-walk", "--no-show-signature", "--format=%ct", ours, theirs).text.split()
    return make_commit(git, content.tree, (ours, theirs), message, f"{max(map(int, dates))} +0000")


def make_bare_view(git: Git, directory: pathlib.Path, branches: Mapping[str, Commit]) -> dict[str, str]:
    """Make a repository without configuration or attributes over the same objects, so that no merge driver runs.
    Conflict markers show its branch names, which do not depend on commits."""
    object_format = git.run("rev-parse", "--show-object-format").text
    version = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n"
    (directory / "config").write_text(f"{version}[extensions]\n\tobjectFormat = {object_format}\n")
    (directory / "HEAD").write_text("ref: refs/heads/none\n")
    (directory / "refs" / "heads").mkdir(parents=True)
    for name, commit in branches.items():
        (directory / "refs" / "heads" / name).write_text(f"{commit}\n")
    return {"GIT_OBJECT_DIRECTORY": str(git.directory / "objects")}


def is_ancestor(git: Git, old: str, new: str) -> bool:
    """Return True if `old` is `new` or one of its ancestors. Raises RepositoryUnusable."""
    result = git.run("merge-base", "--is-ancestor", old, new, check=False)
    if result.exit_code > 1:
        raise git_error("merge-base", result)
    return result.exit_code == 0


def has_commit(git: Git, commit: str) -> bool:
    return git.run("cat-file", "-e", f"{commit}^{{commit}}", check=False).exit_code == 0
