"""Checks of a pull request through `gh`: every state, of the right commit; their logs; starting them again."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from mz_engine.forge.github import LOG_BYTES_MAX, LOG_LINES_MAX, GhForge, check_state, failure_log
from mz_engine.ports import CiCheck, RemoteError
from mz_events.names import Commit

from tests.support.forge import FakeGh, check
from tests.support.gitrepo import GitRepo

pytestmark = pytest.mark.slow

BRANCH = "feat/f1"
HEAD, LATER = Commit("a" * 40), Commit("b" * 40)
URL = "https://github.com/ada/engine/actions/runs/100/job/1000"


@pytest.fixture
def gh(tmp_path: pathlib.Path) -> FakeGh:
    gh = FakeGh(tmp_path / "gh")
    gh.opened(BRANCH)
    gh.push(BRANCH, HEAD)
    return gh


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    repo = GitRepo(tmp_path_factory.mktemp("repo"))
    repo.git("remote", "add", "origin", "git@github.com:ada/engine.git")
    return repo.root


def forge(root: pathlib.Path, gh: FakeGh, fault: str = "") -> GhForge:
    return GhForge(root, "origin", gh.environment(fault))


def made(state: Any = "red", name: str = "CI / test", url: str = URL, run: str | None = "100") -> CiCheck:
    return CiCheck(name=name, state=state, url=url, run=run)


# states ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("color", "states"),
    [
        ("green", "SUCCESS NEUTRAL SKIPPED success"),
        ("red", "FAILURE ERROR CANCELLED TIMED_OUT ACTION_REQUIRED STARTUP_FAILURE STALE"),
        ("pending", "QUEUED IN_PROGRESS WAITING REQUESTED PENDING EXPECTED COMPLETED something-new"),
    ],
)
def test_every_state_of_check_runs_and_statuses(color: str, states: str) -> None:
    assert {check_state(state) for state in states.split()} == {color}


def test_checks_are_followed_until_green(root: pathlib.Path, gh: FakeGh) -> None:
    gh.plan(["pending", "red", "green"])
    port = forge(root, gh)
    looks = [port.checks(1, HEAD) for _ in range(4)]
    assert looks == [(made("pending"),), (made("red"),), (made("green"),), (made("green"),)]


def test_only_the_required_ones_count(root: pathlib.Path, gh: FakeGh) -> None:
    gh.plan([[check("test"), check("nightly", "FAILURE", required=False)]])
    assert forge(root, gh).checks(1, HEAD) == (made("green"),)


def test_all_count_where_none_is_required(root: pathlib.Path, gh: FakeGh) -> None:
    gh.plan(
        [
            [
                check("test", required=False),
                check("ci/circle", "PENDING", workflow="", run=None, link="https://circle.example/7", required=False),
            ]
        ]
    )
    actual = forge(root, gh).checks(1, HEAD)
    assert actual == (made("green"), made("pending", "ci/circle", "https://circle.example/7", None))


def test_a_repository_without_checks_has_none(root: pathlib.Path, gh: FakeGh) -> None:
    assert forge(root, gh).checks(1, HEAD) == ()


@pytest.mark.slow
@pytest.mark.parametrize("state", ["pending", "red", "green"])
def test_the_exit_code_may_tell_the_state_too(root: pathlib.Path, gh: FakeGh, state: str) -> None:
    gh.plan([state])
    assert forge(root, gh, fault="exit-codes").checks(1, HEAD) == (made(state),)


# the right commit -----------------------------------------------------------------------------------------------------
def test_checks_of_another_commit_are_none_of_ours(root: pathlib.Path, gh: FakeGh) -> None:
    gh.plan(["green"], ["red"])
    port = forge(root, gh)
    assert port.checks(1, LATER) is None, "the push has not been noticed yet"
    assert port.checks(1, HEAD) == (made("green"),)
    gh.push(BRANCH, LATER)
    assert port.checks(1, HEAD) is None
    assert port.checks(1, LATER) == (made("red"),)


@pytest.mark.parametrize("state", ["green", "red"])
def test_a_push_between_two_questions_spoils_the_answer(root: pathlib.Path, gh: FakeGh, state: str) -> None:
    """A gh that moves the head right after it has shown the checks."""
    gh.plan([state])
    real = pathlib.Path(gh.environment()["PATH"].split(":")[0], "gh")
    real.rename(real.with_name("gh-real"))
    state_file = gh.environment()["FAKE_GH_STATE"]
    real.write_text(
        f'#!/bin/sh\n"{real}-real" "$@"; code=$?\n'
        f'[ "$2" = checks ] && sed -i s/{HEAD}/{LATER}/ "{state_file}"\nexit $code\n'
    )
    real.chmod(0o755)
    assert forge(root, gh).checks(1, HEAD) is None


def test_waiting_asks_little(root: pathlib.Path, gh: FakeGh) -> None:
    gh.plan(["pending"])
    port = forge(root, gh)
    before = len(gh.calls)
    port.checks(1, HEAD)
    assert [call[:2] for call in gh.calls[before:]] == [["pr", "view"], ["pr", "checks"]]


# faults ---------------------------------------------------------------------------------------------------------------
def test_a_pull_request_that_is_not_there_is_refused(root: pathlib.Path, gh: FakeGh) -> None:
    with pytest.raises(RemoteError, match="Could not resolve to a PullRequest"):
        forge(root, gh).checks(7, HEAD)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["pr view", "pr checks"])
@pytest.mark.parametrize(
    ("fault", "text"),
    [("server-error", "HTTP 502"), ("rate-limit", "rate limit exceeded"), ("nonsense", "unexpected reply")],
)
def test_what_goes_wrong_is_no_state_of_checks(
    root: pathlib.Path, gh: FakeGh, verb: str, fault: str, text: str
) -> None:
    gh.plan(["green"])
    with pytest.raises(RemoteError, match=text):
        forge(root, gh, fault=f"{fault}={verb}").checks(1, HEAD)


@pytest.mark.parametrize(("fault", "remedy"), [("login", "gh auth login"), ("too-old", "update gh")])
def test_a_gh_that_cannot_says_what_to_do(root: pathlib.Path, gh: FakeGh, fault: str, remedy: str) -> None:
    with pytest.raises(RemoteError, match=remedy):
        forge(root, gh, fault=f"{fault}=pr checks").checks(1, HEAD)


@pytest.mark.slow
def test_a_gh_that_never_answers_is_given_up(root: pathlib.Path, gh: FakeGh) -> None:
    port = GhForge(root, "origin", gh.environment("hang=pr view"))
    port.timeout_seconds = 0.5
    with pytest.raises(RemoteError, match="did not end within"):
        port.checks(1, HEAD)


# logs -----------------------------------------------------------------------------------------------------------------
LOG = """##[group]Run make test
\x1b[36;1mmake test\x1b[0m
E   assert 1 == 2
^[[31mFAILED^[[0m tests/test_it.py
##[error]Process completed with exit code 1."""
PLAIN = """##[group]Run make test
make test
E   assert 1 == 2
FAILED tests/test_it.py
##[error]Process completed with exit code 1."""


def test_a_log_is_what_the_failed_step_printed(root: pathlib.Path, gh: FakeGh) -> None:
    gh.plan(["red"])
    gh.log(1000, LOG)
    port = forge(root, gh)
    ci_checks = port.checks(1, HEAD)
    assert ci_checks
    assert port.failed_log(ci_checks[0]) == PLAIN


def test_a_job_that_ended_has_a_log_while_its_run_goes_on(root: pathlib.Path, gh: FakeGh) -> None:
    gh.plan([[check("test", "FAILURE"), check("lint", "IN_PROGRESS", job=1001)]])
    gh.log(1000, f"{LOG}\nPost job cleanup.\n[command]/usr/bin/git version")
    port = forge(root, gh)
    port.checks(1, HEAD)
    assert port.failed_log(made()) == PLAIN


def test_a_run_without_a_job_in_its_link(root: pathlib.Path, gh: FakeGh) -> None:
    link = "https://github.com/ada/engine/actions/runs/100"
    gh.plan([[check("test", "FAILURE", link=link)]])
    gh.log(100, LOG)
    port = forge(root, gh)
    port.checks(1, HEAD)
    assert port.failed_log(made(url=link)) == PLAIN


def test_a_log_that_nobody_keeps_is_empty(root: pathlib.Path, gh: FakeGh) -> None:
    gh.plan(["red"])
    port = forge(root, gh)
    port.checks(1, HEAD)
    assert port.failed_log(made()) == ""
    calls = len(gh.calls)
    assert port.failed_log(made(url="https://circle.example/7", run=None)) == ""
    assert len(gh.calls) == calls


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["server-error", "rate-limit", "login"])
def test_a_log_that_cannot_be_had_now_is_refused(root: pathlib.Path, gh: FakeGh, fault: str) -> None:
    gh.plan(["red"])
    forge(root, gh).checks(1, HEAD)
    with pytest.raises(RemoteError):
        forge(root, gh, fault=f"{fault}=run view").failed_log(made())


@pytest.mark.slow
def test_a_huge_log_keeps_its_end(root: pathlib.Path, gh: FakeGh) -> None:
    gh.plan(["red"])
    gh.log(1000, "\n".join(f"line {number} " + "x" * 400 for number in range(20_000)))
    port = forge(root, gh)
    port.checks(1, HEAD)
    log = port.failed_log(made())
    assert log.splitlines()[-1].startswith("line 19999 ")
    assert len(log.encode()) <= LOG_BYTES_MAX


def test_the_end_of_a_log() -> None:
    many = failure_log("\n".join(f"2026-01-05T08:15:30Z {number}" for number in range(1000)))
    assert many.split("\n") == [str(number) for number in range(1000 - LOG_LINES_MAX, 1000)]
    assert failure_log("") == ""
    assert failure_log("job\tstep\t2026-01-05T08:15:30.1Z a\tb\tc\r\n") == "a\tb\tc"
    assert failure_log("a\tb\tc") == "a\tb\tc", "no columns of gh's"
    actual = failure_log("10 %\r55 %\r100 %\nat 2026-01-05T08:15:30Z it failed")
    assert actual == "100 %\nat 2026-01-05T08:15:30Z it failed"
    assert failure_log("\x1b]8;;https://x.example\x07link\x1b]8;;\x07") == "link"
    wide = failure_log("\u00fc" * LOG_BYTES_MAX)
    assert len(wide.encode()) <= LOG_BYTES_MAX
    assert set(wide) == {"\u00fc"}
    assert failure_log("##[error]a.ts(1,2): wrong\nmore\n##[error]Process completed\nclean up") == (
        "##[error]a.ts(1,2): wrong\nmore\n##[error]Process completed"
    )


# again ----------------------------------------------------------------------------------------------------------------
def test_a_red_run_is_started_again(root: pathlib.Path, gh: FakeGh) -> None:
    gh.plan(["red", "rerun", "pending", "green"])
    port = forge(root, gh)
    states = [ci_checks[0].state for _ in range(2) if (ci_checks := port.checks(1, HEAD))]
    port.rerun("100")
    states += [result[0].state for _ in range(2) if (result := port.checks(1, HEAD))]
    assert states == ["red", "red", "pending", "green"]
    assert gh.reruns == ["100"]
    assert ["run", "rerun", "--repo", "ada/engine", "100", "--failed"] in gh.calls


def test_a_run_that_is_under_way_or_green_is_left_alone(root: pathlib.Path, gh: FakeGh) -> None:
    for look in ("pending", "green"):
        gh.plan([look])
        port = forge(root, gh)
        port.checks(1, HEAD)
        port.rerun("100")
    assert gh.reruns == []


def test_a_run_that_cannot_be_started_again_is_refused(root: pathlib.Path, gh: FakeGh) -> None:
    gh.plan(["red"])
    port = forge(root, gh, fault="server-error=run rerun")
    port.checks(1, HEAD)
    with pytest.raises(RemoteError, match=r"`gh run rerun` failed: HTTP 502"):
        port.rerun("100")
    with pytest.raises(RemoteError, match="HTTP 404"):
        forge(root, gh).rerun("7")


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "runs"), [("lost-request", 0), ("lost-reply", 1)])
def test_a_start_that_was_lost_on_the_way(root: pathlib.Path, gh: FakeGh, fault: str, runs: int) -> None:
    gh.plan(["red", "rerun", "pending"])
    port = forge(root, gh, fault=f"{fault}=run rerun")
    port.checks(1, HEAD)
    if fault == "lost-request":
        with pytest.raises(RemoteError, match="exit code -9"):
            port.rerun("100")
    else:
        port.rerun("100")
    assert len(gh.reruns) == runs
    port.rerun("100")
    assert gh.reruns == ["100"]
