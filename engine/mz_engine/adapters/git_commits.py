"""Commits that the engine makes in the user's name and finds again by their `Mz-Key` trailer."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mz_events.names import Commit, Path

from mz_engine.adapters.git_paths import shown
from mz_engine.adapters.git_process import Git, failed
from mz_engine.ports import Conflicted, MadeCommit, RepositoryUnusable

NOBODY = {"NAME": "mz", "EMAIL": "mz@localhost"}
LABELS = ("ours", "theirs")
"""The two sides, as conflict markers name them."""


def identity(git: Git) -> dict[str, str]:
    """Return the user's configured name and address as variables for git; else `mz <mz@localhost>`."""
    variables: dict[str, str] = {}
    for role in ("AUTHOR", "COMMITTER"):
        ident = git.run("-c", "user.useConfigOnly=true", "var", f"GIT_{role}_IDENT", as_user=True, check=False)
        name, _, address = ident.text.partition(" <")
        person = {"NAME": name, "EMAIL": address.partition(">")[0]} if ident.code == 0 and name else NOBODY
        variables |= {f"GIT_{role}_{part}": value for part, value in person.items()}
    return variables


def make_commit(git: Git, tree: str, parents: tuple[str, ...], message: bytes, who: Mapping[str, str]) -> Commit:
    """Commit the content of `tree` (a commit or a tree) without moving a ref."""
    flags = [part for parent in parents for part in ("-p", parent)]
    settings = ("-c", "i18n.commitEncoding=UTF-8")
    made = git.run(*settings, "commit-tree", f"{tree}^{{tree}}", *flags, "-F", "-", stdin=message, env=who)
    return Commit(made.text)


def count(git: Git, commit: Commit) -> MadeCommit:
    """Count the commit's changes against its first parent; binary files count no lines."""
    out = git.run("diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-commit-id", f"{commit}^1", commit).out
    rows = [line.split(b"\t", 2) for line in out.split(b"\0")[:-1]]
    added, deleted = (sum(int(row[column]) for row in rows if row[column] != b"-") for column in (0, 1))
    return MadeCommit(commit=commit, files=len(rows), insertions=added, deletions=deleted)


def find(git: Git, branch_ref: str, key: str) -> Commit | None:
    """Return the newest commit of the branch itself (first parents) whose `Mz-Key` trailer is exactly `key`."""
    search = ("--first-parent", "--fixed-strings", f"--grep=Mz-Key: {key}")
    form = ("-z", "--no-show-signature", "--no-mailmap", "--format=%H%n%(trailers:key=Mz-Key,valueonly,unfold)")
    log = git.run("-c", "trailer.separators=:", "log", *search, *form, branch_ref, "--", check=False)
    if log.code:
        if "unknown revision" in log.words or "bad revision" in log.words:
            return None
        raise failed(("log",), log)
    for entry in log.out.decode("utf-8", "replace").split("\0"):
        commit, *values = entry.split("\n")
        if key in (value.strip() for value in values if value):
            return Commit(commit)
    return None


def merge_all(git: Git, commits: tuple[Commit, ...], feature: str, who: Mapping[str, str]) -> Commit | Conflicted:
    """Merge the commits pairwise into one; none is merged that is already an ancestor."""
    joined: Commit | Conflicted = commits[0]
    for commit in commits[1:]:
        if isinstance(joined, Conflicted):
            break
        joined = merge(git, joined, commit, f"Merge what {feature} builds upon\n".encode(), who)
    return joined


def merge(git: Git, ours: Commit, theirs: Commit, message: bytes, who: Mapping[str, str]) -> Commit | Conflicted:
    """Merge in the object store, touching no worktree; no new commit if one side is an ancestor of the other."""
    if is_ancestor(git, theirs, ours):
        return ours
    if is_ancestor(git, ours, theirs):
        return theirs
    content = merge_trees(git, ours, theirs)
    return Conflicted(paths=content.conflicts) if content.conflicts else join(git, ours, theirs, content, message, who)


class MergedTree(NamedTuple):
    """Result of `git merge-tree` for two commits."""

    tree: str
    conflicts: tuple[Path, ...]
    """Files with both sides between conflict markers, or only ours where git cannot merge by lines."""


def merge_trees(git: Git, ours: Commit, theirs: Commit) -> MergedTree:
    """Merge two commits. Raises RepositoryUnusable (`git-too-old` before git 2.38)."""
    with tempfile.TemporaryDirectory(prefix="mz-merge-") as directory:
        alone = bare_view(git, pathlib.Path(directory), dict(zip(LABELS, (ours, theirs), strict=True)))
        flags = ("--write-tree", "-z", "--name-only", "--no-messages")
        done = git.run("merge-tree", *flags, *LABELS, git_dir=pathlib.Path(directory), env=alone, check=False)
    if done.code > 1:
        if "usage:" in done.words:
            raise RepositoryUnusable("git-too-old", "merging commits needs git 2.38 or newer: update git")
        raise failed(("merge-tree",), done)
    tree, *paths = done.out.split(b"\0")
    return MergedTree(tree.decode(), tuple(sorted(shown(path) for path in set(paths) if path)) if done.code else ())


def join(git: Git, ours: Commit, theirs: Commit, content: MergedTree, message: bytes, who: Mapping[str, str]) -> Commit:
    """Make the merge commit. Its time is that of the newer parent, so a repeated call makes the same commit."""
    dates = git.run("log", "--no-walk", "--no-show-signature", "--format=%ct", ours, theirs).text.split()
    when = f"{max(map(int, dates))} +0000"
    dated = {**who, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    return make_commit(git, content.tree, (ours, theirs), message, dated)


def bare_view(git: Git, directory: pathlib.Path, branches: Mapping[str, Commit]) -> dict[str, str]:
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
    done = git.run("merge-base", "--is-ancestor", old, new, check=False)
    if done.code > 1:
        raise failed(("merge-base",), done)
    return done.code == 0


def contains(git: Git, head: Commit, commit: Commit) -> bool:
    """Return True if `commit` exists and is `head` or one of its ancestors."""
    there = git.run("cat-file", "-e", f"{commit}^{{commit}}", check=False).code == 0
    return there and is_ancestor(git, commit, head)


def touched(git: Git, base: Commit, head: Commit) -> Iterator[bytes]:
    """Yield the paths that `head` changed since it left `base`."""
    fork = git.run("merge-base", base, head, check=False).text or base
    yield from git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", fork, head).out.split(b"\0")[:-1]
