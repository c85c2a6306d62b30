"""Pull requests through `gh`: what is asked, what is found again, and what is said when it does not work."""

from __future__ import annotations

import os
import pathlib
import shutil
import time

import pytest
from msgspec.structs import replace
from mz_engine.forge.github import GhForge, find_keys, forge_name
from mz_engine.ports import FeatureWorktree, PullRequest, RemoteError
from mz_events.names import Commit

from tests.support.forge import FakeGh
from tests.support.gitrepo import GitRepo

pytestmark = pytest.mark.slow

MERGE = Commit("c" * 40)
KEY = "r1/f1/pr//1/1/pull-request"
BODY = f"What and why.\n\nMz-Key: {KEY}\n"
WORKTREE = FeatureWorktree(run="r1", feature="f1", branch="feat/f1")


@pytest.fixture
def gh(tmp_path: pathlib.Path) -> FakeGh:
    return FakeGh(tmp_path / "gh")


@pytest.fixture
def repo(tmp_path: pathlib.Path) -> GitRepo:
    repo = GitRepo(tmp_path / "repo")
    repo.git("remote", "add", "origin", "git@github.com:ada/engine.git")
    return repo


def forge(repo: GitRepo, gh: FakeGh, fault: str = "") -> GhForge:
    return GhForge(repo.root, "origin", gh.environment(fault))


def test_an_opened_pull_request_is_found_again(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh)
    assert port.find("feat/f1", KEY) is None
    opened = port.open("feat/f1", "main", "Add `it` --draft", BODY, draft=True)
    assert opened == PullRequest(url="https://github.com/ada/engine/pull/1", number=1, key=KEY)
    for beginning in (KEY, "r1/f1/", ""):
        assert port.find("feat/f1", beginning) == opened
    assert port.find("feat/f1", KEY + "1") is None
    assert port.find("feat/f1", "1/f1/") is None
    assert port.find("feat/f2", KEY) is None
    [pull] = gh.pulls
    assert (pull["title"], pull["body"]) == ("Add `it` --draft", BODY)
    assert (pull["baseRefName"], pull["isDraft"]) == ("main", True)


def test_a_ready_pull_request_is_no_draft(repo: GitRepo, gh: FakeGh) -> None:
    forge(repo, gh).open("feat/f1", "main", "t", BODY, draft=False)
    assert gh.pulls[0]["isDraft"] is False


def test_the_newest_of_several_is_found_whatever_became_of_it(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh)
    port.open("feat/f1", "main", "first", BODY, draft=False)
    gh.close_all()
    again = port.open("feat/f1", "main", "second", BODY, draft=False)
    gh.close_all()
    assert port.find("feat/f1", KEY) == replace(again, state="closed")


def test_other_words_are_put_on_it(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh)
    opened = port.open("feat/f1", "main", "first", BODY, draft=False)
    other = KEY.replace("/1/1/", "/2/1/")
    body = BODY.replace(KEY, other) + '\u2713 "quoted"\n' + "x" * 300_000
    port.update(1, "main", "second `title` \u2713", body)
    [pull] = gh.pulls
    assert (pull["title"], pull["body"]) == ("second `title` \u2713", body)
    assert port.find("feat/f1", "r1/f1/") == PullRequest(url=opened.url, number=1, key=other)
    assert all(len(word) < 1000 for call in gh.calls for word in call)


def test_words_for_what_is_not_there_are_refused(repo: GitRepo, gh: FakeGh) -> None:
    with pytest.raises(RemoteError, match="HTTP 404"):
        forge(repo, gh).update(7, "main", "title", BODY)


@pytest.mark.slow
def test_words_reach_another_host_and_one_that_gh_finds_out(repo: GitRepo, gh: FakeGh) -> None:
    for url, wanted in (
        ("git@git.example.org:team/engine.git", ("--hostname", "git.example.org", "repos/team/engine/pulls/1")),
        ("../engine.git", ("repos/{owner}/{repo}/pulls/1",)),
    ):
        repo.git("remote", "set-url", "origin", url)
        port = forge(repo, gh)
        if not gh.pulls:
            port.open("feat/f1", "main", "first", BODY, draft=False)
        port.update(1, "main", url, BODY)
        assert gh.pulls[0]["title"] == url
        assert {*wanted} <= {*gh.calls[-1]}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lost-request", "lost-reply"])
def test_words_that_were_lost_on_the_way_are_put_again(repo: GitRepo, gh: FakeGh, fault: str) -> None:
    port = forge(repo, gh, fault=f"{fault}=api")
    port.open("feat/f1", "main", "first", BODY, draft=False)
    with pytest.raises(RemoteError, match="exit code"):
        port.update(1, "main", "second", BODY)
    assert gh.pulls[0]["title"] == ("second" if fault == "lost-reply" else "first")
    port.update(1, "main", "second", BODY)
    assert gh.pulls[0]["title"] == "second"


def test_a_merge_is_known_by_its_commit(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh)
    assert port.merged("feat/f1") is None
    port.open("feat/f1", "main", "t", BODY, draft=False)
    port.open("feat/f2", "main", "t", BODY, draft=False)
    assert port.merged("feat/f1") is None
    gh.merge("feat/f1", MERGE)
    assert port.merged("feat/f1") == MERGE
    assert port.merged("feat/f2") is None
    port.open("feat/f1", "main", "once more", BODY, draft=False)
    assert port.merged("feat/f1") is None, "the newest one is open"


def test_a_closed_one_is_not_merged(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh)
    port.open("feat/f1", "main", "t", BODY, draft=False)
    gh.close_all()
    assert port.merged("feat/f1") is None


def test_a_merge_without_a_commit_is_no_answer(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh)
    port.open("feat/f1", "main", "t", BODY, draft=False)
    gh.change(state="MERGED")
    with pytest.raises(RemoteError, match="in which commit"):
        port.merged("feat/f1")


def test_a_branch_of_the_same_name_in_a_fork_is_not_ours(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh)
    port.open("feat/f1", "main", "t", BODY, draft=False)
    gh.merge("feat/f1", MERGE)
    gh.change(isCrossRepository=True)
    assert port.merged("feat/f1") is None
    assert port.find("feat/f1", KEY) is None


def test_a_request_that_died_before_it_did_anything_is_made_again(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh, fault="lost-request")
    with pytest.raises(RemoteError):
        port.open("feat/f1", "main", "t", BODY, draft=False)
    assert port.find("feat/f1", KEY) is None
    port.open("feat/f1", "main", "t", BODY, draft=False)
    assert len(gh.pulls) == 1


def test_a_reply_lost_on_the_way_leaves_one_pull_request(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh, fault="lost-reply")
    with pytest.raises(RemoteError):
        port.open("feat/f1", "main", "t", BODY, draft=False)
    pull_request = port.find("feat/f1", KEY)
    assert pull_request is not None
    assert pull_request.number == 1
    with pytest.raises(RemoteError, match="already exists"):
        port.open("feat/f1", "main", "t", BODY, draft=False)
    assert len(gh.pulls) == 1


def test_a_large_body_goes_by_stdin(repo: GitRepo, gh: FakeGh) -> None:
    body = "x" * 400_000 + f"\n\nMz-Key: {KEY}\n"
    forge(repo, gh).open("feat/f1", "main", "t", body, draft=False)
    assert gh.pulls[0]["body"] == body
    assert all(len(word) < 1000 for call in gh.calls for word in call)


def test_an_issue_that_moves_to_the_next_page_meanwhile_is_listed_once(repo: GitRepo, gh: FakeGh) -> None:
    for number in (*range(1, 101), 100, 101):
        gh.issue(number, "t", "", labels=["ready"])
    assert [issue.number for issue in forge(repo, gh).issues("ready")] == [*range(1, 102)]


def test_gh_is_told_which_repository(repo: GitRepo, gh: FakeGh) -> None:
    repo.git("remote", "set-url", "origin", "https://ada:secret@git.example.org/team/engine.git")
    opened = forge(repo, gh).open("feat/f1", "main", "t", BODY, draft=False)
    assert opened.url == "https://git.example.org/team/engine/pull/1"


def test_refusals_keep_the_words_and_no_password(repo: GitRepo, gh: FakeGh) -> None:
    with pytest.raises(RemoteError, match="HTTP 502") as refused:
        forge(repo, gh, fault="server-error").find("feat/f1", KEY)
    assert "secret" not in str(refused.value)


def test_an_answer_that_is_none_is_refused(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh, fault="nonsense")
    with pytest.raises(RemoteError, match="unexpected reply"):
        port.find("feat/f1", KEY)
    with pytest.raises(RemoteError, match="proxy login"):
        port.open("feat/f1", "main", "t", BODY, draft=False)


def test_not_logged_in_and_not_installed_say_what_to_do(repo: GitRepo, gh: FakeGh, tmp_path: pathlib.Path) -> None:
    with pytest.raises(RemoteError, match="gh auth login"):
        forge(repo, gh, fault="login").find("feat/f1", KEY)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "git").symlink_to(shutil.which("git") or "git")
    with pytest.raises(RemoteError, match=r"cli\.github\.com"):
        GhForge(repo.root, "origin", {"PATH": str(bin_)}).find("feat/f1", KEY)


def test_a_forge_that_never_answers_is_given_up(repo: GitRepo, gh: FakeGh) -> None:
    port = GhForge(repo.root, "origin", gh.environment("hang"))
    port.timeout_seconds = 0.3
    with pytest.raises(RemoteError, match="did not end within"):
        port.find("feat/f1", KEY)


@pytest.mark.slow
def test_what_gh_had_started_ends_with_it(repo: GitRepo, tmp_path: pathlib.Path) -> None:
    bin_, folder = tmp_path / "bin", tmp_path / "pid"
    bin_.mkdir()
    (bin_ / "gh").write_text(f"#!/bin/sh\nsleep 600 & echo $! > {folder}.new; mv {folder}.new {folder}; wait\n")
    (bin_ / "gh").chmod(0o755)
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"
    port = GhForge(repo.root, "origin", {**os.environ, "PATH": path})
    port.timeout_seconds = 1
    with pytest.raises(RemoteError, match="did not end within"):
        port.find("feat/f1", KEY)
    stat = pathlib.Path(f"/proc/{folder.read_text().strip()}/stat")
    late = time.monotonic() + 10
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < late
        time.sleep(0.01)


def test_what_would_make_gh_talk_to_a_person_is_kept_from_it(repo: GitRepo, tmp_path: pathlib.Path) -> None:
    bin_, folder = tmp_path / "bin", tmp_path / "seen"
    bin_.mkdir()
    (bin_ / "gh").write_text(f"#!/bin/sh\nenv > {folder}\necho '[]'\n")
    (bin_ / "gh").chmod(0o755)
    texts = {"GH_FORCE_TTY": "1", "GH_DEBUG": "api", "CLICOLOR_FORCE": "1", "GH_TOKEN": "t"}
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"
    assert GhForge(repo.root, "origin", {**os.environ, **texts, "PATH": path}).find("feat/f1", KEY) is None
    names = {line.partition("=")[0] for line in folder.read_text().splitlines()}
    assert {"GH_TOKEN", "GH_PROMPT_DISABLED", "NO_COLOR"} <= names
    assert not names & {"GH_FORCE_TTY", "GH_DEBUG", "CLICOLOR_FORCE"}


def test_handing_over_writes_a_file_for_a_person(repo: GitRepo, gh: FakeGh) -> None:
    name = forge(repo, gh).write_description(WORKTREE, "main", "Add it", BODY)
    assert name == ".mz/pull-requests/r1/f1.md"
    text = (repo.root / name).read_text()
    assert "# Add it\n" in text
    assert BODY in text
    assert "feat/f1 into main" in text
    assert gh.calls == []


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("git@github.com:ada/engine.git", "ada/engine"),
        ("https://github.com/ada/engine", "ada/engine"),
        ("https://token@github.com/ada/engine.js.git", "ada/engine.js"),
        ("ssh://git@git.example.org:2222/ada/engine.git", "git.example.org/ada/engine"),
        ("me@git.example.org:ada/engine", "git.example.org/ada/engine"),
        ("/srv/engine.git", None),
        ("../engine.git", None),
        ("file:///srv/ada/engine.git", None),
    ],
)
def test_remotes_by_their_urls(url: str, name: str | None) -> None:
    assert forge_name(url) == name


def test_a_key_is_a_whole_line() -> None:
    assert find_keys("text\r\n\r\nMz-Key: a/b\r\n") == ["a/b"]
    assert find_keys("Mz-Key: a/b  ") == ["a/b"]
    assert find_keys("see Mz-Key: a/b") == []
    assert find_keys("Mz-Key: a/b and more") == []
    assert find_keys("Mz-Key: quoted\n\nMz-Key: own\n") == ["own", "quoted"]


@pytest.mark.parametrize("count", [1, 100, 250])
def test_every_page_of_a_review_is_read(repo: GitRepo, gh: FakeGh, count: int) -> None:
    gh.comment("pulls/1/reviews", user={"login": "ada"}, body="Please look again.", submitted_at="2026-01-01T00:00:00Z")
    moments = [f"2026-01-05T08:{number // 60:02}:{number % 60:02}Z" for number in range(count)]
    for moment in moments:
        gh.comment("issues/1/comments", user={"login": "ada"}, body="x", created_at=moment)
    comments = forge(repo, gh).review(1)
    assert [comment.time for comment in comments] == ["2026-01-01T00:00:00Z", *moments]
