"""Adapter: the repository of a recorded world, without its history: put into a bundle, and taken out of one again.

Neither the original nor its history is needed: a shallow clone can make a bundle, and any machine can unpack it. The
user's repository is only read.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mz_engine.adapters.git_repository import ask, unusable
from mz_events.names import Commit

from mz_recordings.cassette import BUNDLE, Cassette
from mz_recordings.sample import BASE, TEMPLATE, WHO, make_sample

DELIVERED = "delivered/"
"""Branches of dependencies that an earlier run had delivered."""
KEPT = "refs/mz/world/"
"""Where they lie in the scratch repository: what is below `refs/mz/` is nobody's but ours."""
SECONDS = 600


class WorldMissing(Exception):
    """The world of a cassette cannot be had here; says why."""


def bundle_of(root: Path, environment: Mapping[str, str], base: Commit, heads: Mapping[str, Commit]) -> bytes:
    """The content of `base` in one commit on `base`, and on top of it, by feature, that of `heads`. Raises
    RepositoryUnusable and CalledProcessError."""
    found = ask(root, environment, "rev-parse", "--git-path", "objects", "--show-object-format")
    if found.code:
        raise unusable(root, found)
    objects, object_format = found.text.splitlines()
    with tempfile.TemporaryDirectory(prefix="mz-bundle-") as name:
        place = Path(name)
        git = Git(place, environment)
        git("init", "--quiet", "--bare", f"--object-format={object_format}")
        (place / "objects" / "info" / "alternates").write_text(f"{(root / objects).resolve()}\n")
        first = git("commit-tree", f"{base}^{{tree}}", "-m", "base")
        git("update-ref", "refs/heads/base", first)
        for feature, head in heads.items():
            commit = git("commit-tree", f"{head}^{{tree}}", "-p", first, "-m", feature)
            git("update-ref", f"refs/heads/{DELIVERED}{feature}", commit)
        git("bundle", "create", "--quiet", BUNDLE, "--branches")
        return (place / BUNDLE).read_bytes()


def unpack(cassette: Cassette, place: Path, environment: Mapping[str, str]) -> dict[str, Commit]:
    """The repository of the cassette's world at `place`, with its base branch checked out; returns the heads of
    dependencies that were delivered before, by feature. Raises WorldMissing."""
    world = cassette.manifest.world
    git = Git(place, environment)
    try:
        if world.template:
            _template(world.template, place, environment)
        else:
            _bundled(cassette, place, git)
        if git("symbolic-ref", "--short", "HEAD") != world.base:
            git("branch", "--move", "--", world.base)
        if (tree := git("rev-parse", "HEAD^{tree}")) != world.base_tree:
            raise WorldMissing(f"the repository has the content {tree}; the run began with {world.base_tree}")
        heads = {
            one.feature: Commit(git("rev-parse", f"{KEPT}{DELIVERED}{one.feature}^{{commit}}"))
            for one in world.delivered
        }
    except (OSError, subprocess.SubprocessError) as error:
        words = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise WorldMissing(f"the repository of its world cannot be made: {words}") from error
    return heads


def _template(name: str, place: Path, environment: Mapping[str, str]) -> None:
    if name != TEMPLATE:
        raise WorldMissing(f"it was recorded in the project {name!r}, which this mz does not have")
    make_sample(place, environment)


def _bundled(cassette: Cassette, place: Path, git: Git) -> None:
    if not cassette.bundle:
        raise WorldMissing("it was recorded without the repository that it was made in; record it again")
    place.mkdir(parents=True)
    bundle = place.with_name(BUNDLE)
    bundle.write_bytes(cassette.bundle)
    long = len(cassette.manifest.world.base_tree) != len("1" * 40)
    git("init", "--quiet", f"--initial-branch={BASE}", f"--object-format={'sha256' if long else 'sha1'}")
    git("fetch", "--quiet", str(bundle), f"refs/heads/*:{KEPT}*")
    git("reset", "--quiet", "--hard", f"{KEPT}base")
    bundle.unlink()


class Git:
    """git in a scratch directory, with nobody's configuration."""

    def __init__(self, place: Path, environment: Mapping[str, str]) -> None:
        own = {name: value for name, value in environment.items() if not name.startswith("GIT_")}
        self._place, self._environment = place, {**own, **WHO, "GIT_TERMINAL_PROMPT": "0"}

    def __call__(self, *arguments: str) -> str:
        """Its answer without the last line end. Raises CalledProcessError."""
        done = subprocess.run(
            ["git", "-c", "core.autocrlf=false", "-c", f"core.hooksPath={os.devnull}", *arguments],
            cwd=self._place,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return done.stdout.strip()
