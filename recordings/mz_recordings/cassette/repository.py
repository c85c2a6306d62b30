"""The repository of a fixture, without history: written to a bundle, and unpacked again.

Neither the original nor its history is needed: a shallow clone can make a bundle, and any machine can unpack it. The
user's repository is only read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib.resources import as_file, files
from pathlib import Path

from mz_engine.git.process import NO_USER_CONFIG, git_command, git_error, run_git, safe_environment
from mz_engine.git.repository import repository_error, run_git_as_user
from mz_engine.ports import RepositoryUnusable
from mz_events.names import Commit

from mz_recordings.cassette.model import BUNDLE, Cassette

SAMPLE = "sample"
"""Name in cassettes of the sample project that is part of `mz`."""
SAMPLE_MESSAGE = "A small tool that adds up what was spent"
BASE = "main"
COMMIT_TIME = 1767225600
"""2026-01-01, fixed, so that the first commit is the same everywhere."""
AUTHOR, AUTHOR_EMAIL = "Tally", "tally@localhost"
COMMIT_ENVIRONMENT = {
    **{f"GIT_{role}_NAME": AUTHOR for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": AUTHOR_EMAIL for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_DATE": f"@{COMMIT_TIME} +0000" for role in ("AUTHOR", "COMMITTER")},
    **NO_USER_CONFIG,
}

DELIVERED = "delivered/"
"""Prefix of the branches of delivered dependencies."""
BUNDLE_REFS = "refs/mz/world/"
"""Location of the bundle's branches in the scratch repository; `refs/mz/` is reserved for mz."""
CHUNK = 1 << 20
SETTINGS = (
    "core.autocrlf=false", f"core.hooksPath={os.devnull}",
    "fetch.fsckObjects=true", "fetch.fsck.zeroPaddedFilemode=ignore",
)  # fmt: skip
"""The content of a bundle is checked before it becomes files: names such as `..` and `.git` are rejected. Modes with a
surplus zero, written by old tools, are harmless."""


class FixtureUnavailable(Exception):
    """The fixture of a cassette cannot be set up here; says why."""


def create_sample(folder: Path, environment: Mapping[str, str]) -> None:
    """Create a repository with the sample project in one commit on `main` at `folder`, which must not exist.

    Raises FileExistsError, OSError and RepositoryUnusable.
    """
    with as_file(files("mz_recordings") / "bundled" / SAMPLE) as source:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache", ".ruff_cache"))
    git = ScratchGit(folder, environment)
    git("init", "--quiet", f"--initial-branch={BASE}")
    git("add", "--all")
    git("commit", "--quiet", f"--message={SAMPLE_MESSAGE}")


def create_bundle(root: Path, environment: Mapping[str, str], base: Commit, heads: Mapping[str, Commit]) -> bytes:
    """Return a bundle: the content of `base` in one commit, and on top of it, by feature, that of `heads`. Raises
    RepositoryUnusable."""
    output = run_git_as_user(root, environment, "rev-parse", "--git-path", "objects", "--show-object-format")
    if output.exit_code:
        raise repository_error(root, output)
    objects, object_format = output.text.splitlines()
    with tempfile.TemporaryDirectory(prefix="mz-bundle-") as name:
        folder = Path(name)
        git = ScratchGit(folder, environment)
        git("init", "--quiet", "--bare", f"--object-format={object_format}")
        (folder / "objects" / "info" / "alternates").write_text(f"{(root / objects).resolve()}\n")
        first = git("commit-tree", f"{base}^{{tree}}", "-m", "base")
        git("update-ref", "refs/heads/base", first)
        for feature, head in heads.items():
            commit = git("commit-tree", f"{head}^{{tree}}", "-p", first, "-m", feature)
            git("update-ref", f"refs/heads/{DELIVERED}{feature}", commit)
        git("bundle", "create", "--quiet", BUNDLE, "--branches")
        return (folder / BUNDLE).read_bytes()


def unpack(cassette: Cassette, folder: Path, environment: Mapping[str, str]) -> dict[str, Commit]:
    """Create the repository of the cassette's fixture at `folder` with its base branch checked out. Return the heads of
    delivered dependencies by feature. Raises FixtureUnavailable."""
    fixture = cassette.manifest.fixture
    git = ScratchGit(folder, environment)
    try:
        if fixture.template:
            if fixture.template != SAMPLE:
                reason = f"it was recorded in the project {fixture.template!r}, which is not part of this mz"
                raise FixtureUnavailable(reason)
            create_sample(folder, environment)
        else:
            if not cassette.bundle:
                raise FixtureUnavailable("it was recorded without its repository; record it again")
            refs = f"refs/heads/*:{BUNDLE_REFS}*"
            fetch_bundle(cassette.bundle, folder, environment, refs, f"--initial-branch={BASE}")
            git("reset", "--quiet", "--hard", f"{BUNDLE_REFS}base")
        if git("symbolic-ref", "--short", "HEAD") != fixture.base:
            git("branch", "--move", "--", fixture.base)
        if (tree := git("rev-parse", "HEAD^{tree}")) != fixture.base_tree:
            raise FixtureUnavailable(f"the repository has the tree {tree}, but the run began with {fixture.base_tree}")
        heads = {
            dependency.feature: Commit(git("rev-parse", f"{BUNDLE_REFS}{DELIVERED}{dependency.feature}^{{commit}}"))
            for dependency in fixture.delivered
        }
    except (OSError, RepositoryUnusable) as error:
        raise FixtureUnavailable(f"the repository of its fixture cannot be created: {error}") from error
    return heads


def fetch_bundle(
    bundle: bytes, folder: Path, environment: Mapping[str, str], refs: str, *init_options: str
) -> ScratchGit:
    """Create a repository at `folder` with these refs of the bundle. Raises OSError and RepositoryUnusable."""
    folder.mkdir(parents=True)
    file, git = folder.with_name(BUNDLE), ScratchGit(folder, environment)
    file.write_bytes(bundle)
    object_format = "sha256" if b"@object-format=sha256" in bundle[:200] else "sha1"
    git("init", "--quiet", f"--object-format={object_format}", *init_options)
    git("fetch", "--quiet", str(file), refs)
    file.unlink()
    return git


def bundle_contents(
    bundle: bytes, folder: Path, environment: Mapping[str, str], bytes_max: int
) -> Iterator[tuple[str, bytes]]:
    """Yield every file of every tree by path, and commits and trees by id, without a working tree; larger ones are
    skipped. `folder` is an empty directory.

    Raises OSError and RepositoryUnusable.
    """
    repository = fetch_bundle(bundle, folder / "objects.git", environment, "refs/*:refs/*", "--bare")
    names = dict(line.partition(" ")[::2] for line in repository("rev-list", "--objects", "--all").splitlines())
    yield from ((names.get(oid) or f"{kind} {oid[:12]}", data) for oid, kind, data in repository.objects(bytes_max))


class ScratchGit:
    """git in a scratch directory, without anybody's configuration."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, {**safe_environment(environment), **COMMIT_ENVIRONMENT}

    def objects(self, bytes_max: int) -> Iterator[tuple[str, str, bytes]]:
        """Yield id, kind and content of every object; larger ones are skipped. Raises RepositoryUnusable."""
        command = ("cat-file", "--batch-all-objects", "--batch", "--unordered")
        with subprocess.Popen(
            git_command(command, SETTINGS),
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            while head := process.stdout.readline():
                oid, kind, size = head.decode().split()
                if int(size) <= bytes_max:
                    yield oid, kind, process.stdout.read(int(size))
                else:
                    for start in range(0, int(size), CHUNK):
                        process.stdout.read(min(CHUNK, int(size) - start))
                process.stdout.read(1)
        if process.returncode:
            raise RepositoryUnusable("git-failed", "git cannot read its objects")

    def __call__(self, *arguments: str) -> str:
        """Return git's output. Raises RepositoryUnusable."""
        result = run_git(arguments, self._folder, self._environment, settings=SETTINGS)
        if result.exit_code:
            raise git_error(arguments[0], result)
        return result.stdout.decode("utf-8", "backslashreplace").strip()  # Names of files need not be text.
