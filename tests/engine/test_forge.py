"""Pull requests through `gh`: what is asked, what is found again, and what is said when it does not work."""

from __future__ import annotations

import pathlib

import pytest
from mz_engine.adapters.forge import ForgeUnavailable, GhForge, forge_name, holds_key
from mz_engine.ports import Place, PullRequest, RemoteRefused

from tests.support.forge import FakeGh
from tests.support.gitrepo import GitRepo

KEY = "r1/f1/pr//1/1/pull-request"
BODY = f"What and why.\n\nMz-Key: {KEY}\n"
PLACE = Place(run="r1", feature="f1", branch="feat/f1")


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
    assert opened == PullRequest(url="https://github.com/ada/engine/pull/1", number=1)
    assert port.find("feat/f1", KEY) == opened
    assert port.find("feat/f1", KEY + "1") is None
    assert port.find("feat/f2", KEY) is None
    [pull] = gh.pulls
    assert (pull["title"], pull["body"], pull["baseRefName"], pull["isDraft"]) == (
        "Add `it` --draft",
        BODY,
        "main",
        True,
    )


def test_a_ready_pull_request_is_no_draft(repo: GitRepo, gh: FakeGh) -> None:
    forge(repo, gh).open("feat/f1", "main", "t", BODY, draft=False)
    assert gh.pulls[0]["isDraft"] is False


def test_the_newest_of_several_is_found_whatever_became_of_it(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh)
    port.open("feat/f1", "main", "first", BODY, draft=False)
    gh.close_all()
    again = port.open("feat/f1", "main", "second", BODY, draft=False)
    gh.close_all()
    assert port.find("feat/f1", KEY) == again


def test_a_reply_lost_on_the_way_leaves_one_pull_request(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh, fault="lost-reply")
    with pytest.raises(RemoteRefused):
        port.open("feat/f1", "main", "t", BODY, draft=False)
    found = port.find("feat/f1", KEY)
    assert found is not None
    assert found.number == 1
    with pytest.raises(RemoteRefused, match="already exists"):
        port.open("feat/f1", "main", "t", BODY, draft=False)
    assert len(gh.pulls) == 1


def test_a_large_body_goes_by_stdin(repo: GitRepo, gh: FakeGh) -> None:
    body = "x" * 400_000 + f"\n\nMz-Key: {KEY}\n"
    forge(repo, gh).open("feat/f1", "main", "t", body, draft=False)
    assert gh.pulls[0]["body"] == body
    assert all(len(word) < 1000 for call in gh.calls for word in call)


def test_gh_is_told_which_repository(repo: GitRepo, gh: FakeGh) -> None:
    repo.git("remote", "set-url", "origin", "https://ada:secret@git.example.org/team/engine.git")
    opened = forge(repo, gh).open("feat/f1", "main", "t", BODY, draft=False)
    assert opened.url == "https://git.example.org/team/engine/pull/1"


def test_refusals_keep_the_words_and_no_password(repo: GitRepo, gh: FakeGh) -> None:
    with pytest.raises(RemoteRefused, match="HTTP 502") as refused:
        forge(repo, gh, fault="server-error").find("feat/f1", KEY)
    assert "secret" not in str(refused.value)


def test_an_answer_that_is_none_is_refused(repo: GitRepo, gh: FakeGh) -> None:
    port = forge(repo, gh, fault="nonsense")
    with pytest.raises(RemoteRefused, match="not understood"):
        port.find("feat/f1", KEY)
    with pytest.raises(RemoteRefused, match="proxy login"):
        port.open("feat/f1", "main", "t", BODY, draft=False)


def test_not_logged_in_and_not_installed_say_what_to_do(repo: GitRepo, gh: FakeGh, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ForgeUnavailable, match="gh auth login") as refused:
        forge(repo, gh, fault="login").find("feat/f1", KEY)
    assert refused.value.code == "gh-login"
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "git").symlink_to("/usr/bin/git")
    with pytest.raises(ForgeUnavailable, match=r"cli\.github\.com") as absent:
        GhForge(repo.root, "origin", {"PATH": str(bin_)}).find("feat/f1", KEY)
    assert absent.value.code == "gh-missing"


def test_a_forge_that_never_answers_is_given_up(repo: GitRepo, gh: FakeGh) -> None:
    port = GhForge(repo.root, "origin", gh.environment("hang"), timeout_seconds=0.3)
    with pytest.raises(ForgeUnavailable) as late:
        port.find("feat/f1", KEY)
    assert late.value.code == "gh-timeout"


def test_handing_over_writes_a_file_for_a_person(repo: GitRepo, gh: FakeGh) -> None:
    name = forge(repo, gh).hand_over(PLACE, "main", "Add it", BODY)
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
    assert holds_key("text\r\n\r\nMz-Key: a/b\r\n", "a/b")
    assert not holds_key("Mz-Key: a/bc", "a/b")
    assert not holds_key("see Mz-Key: a/b", "a/b")
