"""What the user does in the checkout while an agent works, told from what the agent does."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from mz_engine.agents.process import REFLOG_VARIABLE
from mz_engine.effects.call import moved_refs

from tests.support.desk import Desk
from tests.support.gitrepo import IDENTITY

pytestmark = pytest.mark.slow


@pytest.fixture
def desk(tmp_path: pathlib.Path) -> Desk:
    made = Desk(tmp_path)
    made.open()
    return made


def user_commits(desk: Desk) -> None:
    desk.repo.git("commit", "--quiet", "--allow-empty", "-m", "mine")


def user_amends(desk: Desk) -> None:
    user_commits(desk)
    desk.repo.git("commit", "--quiet", "--amend", "--allow-empty", "-m", "better")


def user_resets(desk: Desk) -> None:
    desk.repo.git("reset", "--quiet", "--hard", "HEAD~1")


def user_merges(desk: Desk) -> None:
    desk.repo.git("checkout", "--quiet", "-b", "topic")
    user_commits(desk)
    desk.repo.git("checkout", "--quiet", "main")
    desk.repo.git("merge", "--quiet", "--no-ff", "topic", "-m", "merged")


def user_branches_and_tags(desk: Desk) -> None:
    desk.repo.git("checkout", "--quiet", "-b", "topic")
    desk.repo.git("branch", "--quiet", "other")
    desk.repo.git("tag", "v1")


def user_fetches(desk: Desk) -> None:
    far = desk.repo.root / ".git/far"
    desk.repo.git("clone", "--quiet", "--bare", ".", str(far))
    desk.repo.git("fetch", "--quiet", str(far), "+main:refs/remotes/origin/main")


def user_tracks(desk: Desk) -> None:
    desk.repo.git("config", "branch.main.remote", "origin")
    desk.repo.git("config", "branch.main.merge", "refs/heads/main")


def changes_by(desk: Desk, act: Callable[[Desk], object]) -> list[str]:
    user_commits(desk)
    desk.repo.git("update-ref", "refs/remotes/origin/main", "main~1")
    before = dict(desk.port.snapshot())
    act(desk)
    changes = moved_refs(before, dict(desk.port.snapshot()), frozenset({"feat/f1"}))
    return [change.name for change in desk.port.rescue(desk.feature_worktree, changes)] if changes else []


@pytest.mark.parametrize(
    "act", [user_commits, user_amends, user_resets, user_merges, user_branches_and_tags, user_fetches, user_tracks]
)
def test_what_the_user_does_in_the_checkout_is_no_work_of_the_agent(desk: Desk, act: Callable[[Desk], None]) -> None:
    assert changes_by(desk, act) == []


@pytest.mark.parametrize("act", [user_commits, user_amends, user_resets, user_merges])
def test_what_an_agent_does_in_the_users_checkout_is(
    desk: Desk, act: Callable[[Desk], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_agent(there: Desk) -> None:
        monkeypatch.setitem(IDENTITY, REFLOG_VARIABLE, "mz claude-code")
        act(there)

    assert changes_by(desk, by_agent) == ["refs/heads/main"]


def test_a_new_branch_or_tag_is_not_reported_whoever_creates_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As README.md and docs/people.md say; another new ref, such as a stash, is reported, whoever creates it."""
    monkeypatch.setitem(IDENTITY, REFLOG_VARIABLE, "mz claude-code")
    for name in ("heads/topic", "tags/v1", "remotes/origin/topic"):
        assert changes_by(desk, lambda there, name=name: there.repo.git("update-ref", f"refs/{name}", "main")) == []  # type: ignore[misc]
    for name in ("refs/stash", "refs/notes/commits"):
        assert changes_by(desk, lambda there, name=name: there.repo.git("update-ref", name, "main")) == [name]  # type: ignore[misc]


def test_other_ways_to_change_the_repository_stay_the_agents(desk: Desk) -> None:
    assert changes_by(desk, lambda there: there.repo.git("update-ref", "refs/heads/main", "main~1")) == [
        "refs/heads/main"
    ]
    desk.repo.git("branch", "--quiet", "gone")
    assert changes_by(desk, lambda there: there.repo.git("branch", "-D", "gone")) == ["refs/heads/gone"]
    assert changes_by(desk, lambda there: there.repo.git("config", "branch.main.pushRemote", "https://x")) == ["config"]
