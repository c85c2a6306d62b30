"""Seals as git notes: kept by each run, pushed where that is set, and never the reason why a run fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.forge.github import GhForge
from mz_engine.model.config import Config, PullRequests
from mz_engine.ports import FeatureWorktree
from mz_engine.run.seals import NOTES_REF, Sealer, take_seal
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.run import RunIdle
from mz_events.names import feature_stream, run_stream
from mz_events.seal import parse_seals
from mz_events.store import Append

from tests.support.gitrepo import IDENTITY, GitRepo
from tests.support.samples import sample

KEY = "r1/login/pr/-/1/0/open_pr"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    return {"PATH": "/usr/bin:/bin", **IDENTITY}


class Sealed:
    """A repository with a branch of the feature `login`, a log, and what seals it."""

    def __init__(self, repo: GitRepo, environment: dict[str, str], config: Config) -> None:
        self.repo, self.environment = repo, environment
        if not repo.git("branch", "--list", "main"):
            repo.commit({"a": "a"})
        repo.git("branch", "--force", "feat/login")
        self.store = SqliteStore(repo.root / ".mz" / "mz.db")
        self.grow()
        self.begin("login")
        self.sealer = Sealer(repo.root, self.store, config, environment)

    def grow(self) -> None:
        self.store.append([Append(run_stream("r1"), None, (RunIdle(),))], 1)

    def begin(self, feature: str) -> None:
        started = replace(sample(FeatureStarted), branch=f"feat/{feature}")
        self.store.append([Append(feature_stream("r1", feature), None, (started,))], 1)

    def roots(self) -> list[str]:
        return [seal.root for seal in parse_seals(self.repo.git("grep", "-h", "-e", "", NOTES_REF))[0]]


def test_a_note_has_every_seal(tmp_path: Path, environment: dict[str, str]) -> None:
    sealed = Sealed(GitRepo(tmp_path), environment, Config())
    root = sealed.sealer.note_delivery(KEY)
    assert root == take_seal(sealed.store, "r1").root
    sealed.grow()
    later, problem = sealed.sealer.note("r1", [sealed.repo.head(), "feat/login"], push=True)
    assert (later != root, problem) == (True, "")
    assert sealed.roots() == [root, later, later]
    assert sealed.repo.git("log", "-1", "--format=%an", "refs/notes/mz-seal") == "mz@localhost"


def test_features_delivered_at_once_keep_their_seals(tmp_path: Path, environment: dict[str, str]) -> None:
    sealed = Sealed(GitRepo(tmp_path), environment, Config())
    for number in range(8):
        sealed.repo.git("update-ref", f"refs/heads/feat/f{number}", sealed.repo.commit({"a": str(number)}))
        sealed.begin(f"f{number}")
    with ThreadPoolExecutor(4) as threads:
        roots = list(threads.map(sealed.sealer.note_delivery, [f"r1/f{number}/pr" for number in range(8)]))
    assert (None not in roots, len(sealed.roots())) == (True, 8)


def test_the_text_of_a_pull_request_ends_with_the_root(tmp_path: Path, environment: dict[str, str]) -> None:
    sealed = Sealed(GitRepo(tmp_path), environment, Config())
    forge, worktree = (
        GhForge(tmp_path, "origin", environment),
        FeatureWorktree(run="r1", feature="login", branch="feat/login"),
    )
    body = f"Text.\n\n<!--\nMz-Key: {KEY}\n-->\n"
    for seal in (None, lambda key: None, sealed.sealer.note_delivery):
        forge.seal = seal
        text = (tmp_path / forge.write_description(worktree, "main", "Title", body)).read_text()
    assert text.endswith(f"{KEY}\n-->\n\nMz-Seal: {take_seal(sealed.store, 'r1').root}\n")
    forge.seal = None
    assert "Mz-Seal" not in (tmp_path / forge.write_description(worktree, "main", "Title", body)).read_text()


def test_notes_of_several_repositories_meet_at_the_remote(tmp_path: Path, environment: dict[str, str]) -> None:
    bare = GitRepo(tmp_path / "first").root / "bare.git"
    config = Config(seal="push", pull_requests=PullRequests(strategy="draft"))
    first = Sealed(GitRepo(tmp_path / "first"), environment, config)
    first.repo.git("clone", "--quiet", "--bare", ".", str(bare))
    first.repo.git("remote", "add", "origin", str(bare))
    other = GitRepo(tmp_path / "other")
    other.git("pull", "--quiet", str(bare), "main")
    other.git("remote", "add", "origin", str(bare))
    second = Sealed(other, environment, config)
    roots = []
    for sealed in (first, second, first):
        sealed.grow()
        root, problem = sealed.sealer.note("r1", [sealed.repo.head()], push=True)
        assert problem == ""
        roots.append(root)
    assert set(first.roots()) == set(roots)
    pushed = first.repo.git("--git-dir", str(bare), "rev-parse", "refs/notes/mz-seal")
    assert pushed == first.repo.git("rev-parse", "refs/notes/mz-seal")


def test_no_failure_is_one_of_the_run(tmp_path: Path, environment: dict[str, str]) -> None:
    config = Config(seal="push", seal_key="no-such-key", pull_requests=PullRequests(remote="nowhere"))
    sealed = Sealed(GitRepo(tmp_path), environment, config)
    assert sealed.sealer.note_delivery(KEY) is not None
    assert "no-such-key cannot sign" in sealed.sealer.note("r1", [sealed.repo.head()])[1]
    assert "`git fetch` failed" in sealed.sealer.note("r1", [sealed.repo.head()], push=True)[1]
    assert sealed.sealer.note_delivery("r1/no-such-feature/pr/-/1/0/open_pr") is None
