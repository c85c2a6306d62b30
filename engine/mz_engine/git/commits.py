"""Commits that the engine makes in the user's name and finds again by their `Mz-Key` trailer; changes of refs,
configuration and hooks that no feature may change."""

from __future__ import annotations

import hashlib
import pathlib
import re
import stat
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from mz_events.names import Commit, Path

from mz_engine.git.content import display_path
from mz_engine.git.process import Git, git_error
from mz_engine.git.worktree import rescue_ref
from mz_engine.ports import CreatedCommit, FeatureWorktree, MergeConflict, RefChange, RepositoryUnusable


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


def changed_paths(git: Git, base: Commit, head: Commit) -> list[bytes]:
    """Return the paths that `head` changed since it left `base`."""
    merge_base = git.run("merge-base", base, head, check=False).text or base
    return git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", merge_base, head).stdout.split(b"\0")[:-1]


IGNORED_REFS = ("refs/mz/", "refs/bisect/", "refs/worktree/", "refs/rewritten/")
"""Captures, and refs that are private to a worktree."""


def snapshot(git: Git, hooks: tuple[pathlib.Path, ...]) -> dict[str, str]:
    """Return every ref by its value; `config`, `config.worktree` and `hooks/<name>` by digest. Raises
    RepositoryUnusable."""
    lines = git.run("for-each-ref", "--format=%(objectname) %(refname)").stdout.decode("utf-8", "surrogateescape")
    refs = (line.split(" ", 1) for line in lines.splitlines())
    values = {display_ref(name): oid for oid, name in refs if not name.startswith(IGNORED_REFS)}
    for name in ("config", "config.worktree"):
        values |= _digests(name, git.directory / name)
    for directory in hooks:
        for file in sorted(directory.iterdir()) if directory.is_dir() else ():
            if file.suffix != ".sample":
                values |= _digests(f"hooks/{file.name}", file)
    return values


def display_ref(name: str) -> str:
    """Return a ref's name as events may hold it: bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _digests(name: str, file: pathlib.Path) -> dict[str, str]:
    """Digest content, executable bit and link target; for a link, content and bit are those of its target."""
    try:
        status = file.stat()
        link = str(file.readlink()) if file.is_symlink() else ""
    except OSError:
        return {}
    content = file.read_bytes() if stat.S_ISREG(status.st_mode) else b"special"
    executable_mark = "x" if status.st_mode & 0o111 else "-"
    return {
        display_ref(name): hashlib.sha256(
            f"{executable_mark}{link}\0".encode("utf-8", "surrogateescape") + content
        ).hexdigest()
    }


def rescue(git: Git, worktree: FeatureWorktree, changes: tuple[RefChange, ...]) -> None:
    """Keep the old values of refs, except objects that no longer exist. Raises RepositoryUnusable."""
    refs = (change for change in changes if change.name.startswith("refs/"))
    old = [(change.name, change.old) for change in refs if re.fullmatch(r"[0-9a-f]{40,64}", change.old)]
    if not old:
        return
    oids = "".join(f"{oid}\n" for _, oid in old).encode()
    lines = git.run("cat-file", "--batch-check", stdin=oids).stdout.splitlines()
    existing = [pair for pair, line in zip(old, lines, strict=True) if not line.endswith(b" missing")]
    commands = "".join(f"update {rescue_ref(worktree, name, oid)} {oid}\n" for name, oid in existing)
    git.run("update-ref", "--stdin", stdin=commands.encode("utf-8", "surrogateescape"))
