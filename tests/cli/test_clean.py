"""`mz clean`: what ended runs left goes; what a person may still need stays and is named."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from filelock import FileLock
from mz_engine.git.workspace import GitWorkspace
from mz_engine.housekeeping.leftovers import NOT_REMOVABLE
from mz_engine.model.config import WorkspaceSettings
from mz_engine.ports import FeatureWorktree
from mz_events.catalog.inbox import RetryPosted
from mz_events.catalog.run import FeatureOutcome, FeatureStopped, RunFinished
from mz_events.names import FeatureId, inbox_stream
from mz_events.store import Append
from mz_recordings.cassette.repository import create_sample

from tests.cli.drive import MZ, Mz, Result, on_terminal, spawn
from tests.cli.fakeagent import FakeAgent
from tests.cli.stored_run import RUN, START_US, StoredRun
from tests.support.gitrepo import POWERLESS, GitRepo

OTHER = "20260302-120000-beef"


class Scene:
    """A repository in which runs left worktrees and captures, and the log that tells of them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.repo = GitRepo(home)
        self.start = self.repo.commit({"a.txt": "one", ".gitignore": "*.log\n"})
        self.workspace = GitWorkspace(home, WorkspaceSettings(), os.environ)
        self.stories: dict[str, StoredRun] = {}

    def left(self, run: str, feature: str, *, captured: str = "done", ended: bool = True) -> Path:
        """A run with one failed feature, whose worktree holds `captured` in a file; answers with the worktree."""
        feature_worktree = FeatureWorktree(run=run, feature=feature, branch=f"feat/{feature}")
        opened = self.workspace.open(feature_worktree, (self.start,))
        assert not hasattr(opened, "paths")
        worktree = self.home / ".mz" / "worktrees" / run / feature
        (worktree / "b.txt").write_text(captured)
        self.workspace.capture(feature_worktree, self.start)
        log = self.stories[run] = StoredRun(self.home, run)
        log.begin(feature)
        log.admit(feature)
        ref = log.ref(feature, "prd")
        log.ask(feature, ref)
        log.reply(feature, ref)
        spool = self.home / ".mz" / "spool" / ref.key.replace("/", "+")
        spool.mkdir(parents=True)
        (spool / "stdout").write_text("said")
        log.to_run(FeatureStopped(feature=FeatureId(feature), version=1, status=FeatureOutcome.FAILED))
        if ended:
            log.to_run(RunFinished())
        return worktree

    def refs(self) -> list[str]:
        return self.repo.git("for-each-ref", "--format=%(refname)", "refs/mz").splitlines()

    def kinds(self, answer: Result, which: str) -> set[tuple[str, str]]:
        return {(item["run"], item["kind"]) for item in msgspec.json.decode(answer.out)[which]}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(tmp_path / "repo")
    monkeypatch.chdir(made.home)
    yield made
    for log in made.stories.values():
        log.close()


@pytest.mark.slow
def test_what_an_ended_run_left_goes_and_nothing_else(scene: Scene, mz: Mz) -> None:
    worktree = scene.left(RUN, "login")
    branches = scene.repo.git("for-each-ref", "refs/heads")
    log = (scene.home / ".mz" / "mz.db").read_bytes()
    dry = mz("clean", "--dry-run", "--json")
    assert scene.kinds(dry, "removed") == {(RUN, "worktree"), (RUN, "capture"), (RUN, "spool")}
    results = [line.split("\t")[-1] for line in mz("clean", "--dry-run").out.splitlines()]
    assert results == ["result", *["to remove"] * 3]
    assert worktree.is_dir()
    answer = mz("clean", "--yes", "--json")
    assert answer.exit == 0, answer
    assert msgspec.json.decode(answer.out)["removed"] == msgspec.json.decode(dry.out)["removed"]
    assert not worktree.parent.exists()
    assert not any((scene.home / ".mz" / "spool").iterdir())
    assert scene.repo.git("worktree", "list", "--porcelain").count("worktree ") == 1
    assert scene.repo.git("log", "--all", "--format=%D").count("refs/mz") == 0
    assert scene.repo.git("for-each-ref", "refs/heads") == branches
    assert (scene.home / ".mz" / "mz.db").read_bytes() == log
    again = mz("clean", "--yes", "--json")
    assert msgspec.json.decode(again.out)["removed"] == []


@pytest.mark.slow
def test_an_unfinished_run_stays_unless_it_is_named_with_force(scene: Scene, mz: Mz) -> None:
    worktree = scene.left(RUN, "login", ended=False)
    for args in ((), (RUN,), (RUN, "--all")):
        answer = mz("clean", "--yes", "--json", *args)
        assert scene.kinds(answer, "removed") == set()
        assert {item["keep_reason"] for item in msgspec.json.decode(answer.out)["kept"]} == {"the run is not finished"}
    assert worktree.is_dir()
    answer = mz("clean", "--yes", "--json", RUN, "--force")
    assert scene.kinds(answer, "removed") == {(RUN, "worktree"), (RUN, "spool")}
    assert not worktree.exists()
    assert scene.refs() == [f"refs/mz/{RUN}/login"], "a resume builds the worktree from it"


@pytest.mark.slow
def test_what_could_not_be_removed_is_not_said_to_be(scene: Scene) -> None:
    scene.left(RUN, "login")
    spools = scene.home / ".mz" / "spool"
    (spool,) = spools.iterdir()
    spools.chmod(0o500)
    command = [*POWERLESS, *MZ, "clean", "--yes"]
    try:
        process = subprocess.run([*command, "--json"], cwd=scene.home, capture_output=True, text=True, check=True)
        again = subprocess.run(command, cwd=scene.home, capture_output=True, text=True, check=True)
    finally:
        spools.chmod(0o700)
    assert spool.is_dir()
    result = msgspec.json.decode(process.stdout)
    name = str(spool.relative_to(scene.home))
    assert name not in {element["name"] for element in result["removed"]}
    assert [item["keep_reason"] for item in result["kept"] if item["name"] == name] == [NOT_REMOVABLE]
    assert result["freed_bytes"] == sum(entry["size_bytes"] or 0 for entry in result["removed"])
    assert again.stderr == f"{name}: {NOT_REMOVABLE}\nfreed 0 B\n"


@pytest.mark.slow
def test_a_run_at_work_is_left_alone_even_with_force(scene: Scene, mz: Mz) -> None:
    mine, theirs = scene.left(OTHER, "audit"), scene.left(RUN, "login", ended=False)
    with FileLock(scene.home / ".mz" / "run.lock"):
        answer = mz("clean", "--yes", "--json", RUN[:13], OTHER, "--force")
    actual = {item["keep_reason"] for item in msgspec.json.decode(answer.out)["kept"]}
    assert actual == {"a process is running this run"}
    assert theirs.is_dir()
    assert not mine.exists()


@pytest.mark.slow
def test_changes_that_no_capture_holds_are_spared_and_named(scene: Scene, mz: Mz) -> None:
    worktree = scene.left(RUN, "login")
    (worktree / "mine.txt").write_text("a person's work")
    (worktree / "build.log").write_text("ignored")
    answer = mz("clean", "--yes")
    assert answer.exit == 0
    assert "changes that no capture contains: mine.txt" in answer.out
    assert (worktree / "mine.txt").is_file()
    assert scene.refs() == [f"refs/mz/{RUN}/login"], "what changed is told by comparing with it"
    assert mz("clean", "--yes", "--force").exit == 2, "force is for runs that are named"
    assert mz("clean", "--yes", RUN, "--force").exit == 0
    assert not worktree.exists()
    assert scene.refs() == []


def test_a_worktree_that_was_half_removed_goes(scene: Scene, mz: Mz) -> None:
    """As a kill in the middle leaves it: files are gone, and git's own file too."""
    worktree = scene.left(RUN, "login")
    (worktree / "a.txt").unlink()
    (worktree / ".git").rmdir()
    assert mz("clean", "--yes").exit == 0
    assert not worktree.exists()
    assert scene.repo.git("worktree", "list", "--porcelain").count("worktree ") == 1


@pytest.mark.slow
def test_old_values_of_refs_stay_where_nothing_else_leads_to_them(scene: Scene, mz: Mz) -> None:
    scene.left(RUN, "login")
    scene.repo.git("switch", "--quiet", "--detach")
    lost = scene.repo.commit({"c.txt": "work"})
    scene.repo.git("switch", "--quiet", "main")
    for name, commit in (("main", scene.start), ("theirs", lost)):
        scene.repo.git("update-ref", f"refs/mz/{RUN}/rescue/heads/{name}/{commit}", commit)
    answer = mz("clean", "--yes", "--json")
    actual = [item["keep_reason"] for item in msgspec.json.decode(answer.out)["kept"]]
    assert actual == ["no branch or tag contains its commit"]
    assert scene.refs() == [f"refs/mz/{RUN}/rescue/heads/theirs/{lost}"]


@pytest.mark.slow
def test_texts_of_pull_requests_go_only_when_asked(scene: Scene, mz: Mz) -> None:
    scene.left(RUN, "login")
    body = scene.home / ".mz" / "pull-requests" / RUN / "login.md"
    body.parent.mkdir(parents=True)
    body.write_text("# Let people log in\n")
    assert "--all removes it" in mz("clean", "--yes").out
    assert body.is_file()
    assert mz("clean", "--yes", "--all").exit == 0
    assert not body.parent.exists()


def test_a_run_that_a_message_will_take_up_again_stays(scene: Scene, mz: Mz) -> None:
    worktree = scene.left(RUN, "login")
    log = scene.stories[RUN]
    left = RetryPosted(feature=FeatureId("login"), phase=None, actor=log.blob("ada"))
    log.store.append([Append(inbox_stream(RUN), None, (left,))], START_US)
    assert f"`mz resume {RUN}` processes it" in mz("clean", "--yes").out
    assert worktree.is_dir()


@pytest.mark.slow
def test_what_runs_left_that_the_log_does_not_know(scene: Scene, mz: Mz) -> None:
    scene.left(RUN, "login")
    scene.repo.git("update-ref", f"refs/mz/{OTHER}/audit", scene.start)
    answer = mz("clean", "--yes", "--json")
    assert [item["keep_reason"] for item in msgspec.json.decode(answer.out)["kept"]] == ["the log has no such run"]
    assert mz("clean", "--yes", OTHER, "--force").exit == 0
    assert scene.refs() == []
    assert mz("clean", "--yes", OTHER).exit == 2


def test_nobody_is_asked_without_a_terminal(scene: Scene, mz: Mz) -> None:
    worktree = scene.left(RUN, "login")
    answer = mz("clean")
    assert answer.exit == 2
    assert "use --yes or --dry-run" in answer.err
    assert mz("clean", "--json").exit == 2
    assert "error[MZ5001]" in mz("clean", "zzz").err
    assert worktree.is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(("output", "there"), [("n\n", True), ("\n", True), ("y\n", False)])
def test_a_person_is_asked_first(scene: Scene, output: str, there: bool) -> None:
    worktree = scene.left(RUN, "login")
    shown = on_terminal(scene.home, "clean", answers=output)
    assert "Remove 3 of these?" in shown
    assert shown.index("worktree") < shown.index("Remove 3")
    assert worktree.is_dir() is there


@pytest.mark.slow
def test_after_a_real_run_that_was_given_up(tmp_path: Path) -> None:
    """The whole way: a run waits, is given up, is cleaned, and its feature is done once more all the same."""
    home, agent = tmp_path / "tally", FakeAgent(tmp_path / "agent", "idle")
    create_sample(home, os.environ)

    def mz(*args: str, exit_code: int = 0) -> Result:
        answer = spawn(home, *args, **agent.environment)
        assert answer.exit == exit_code, answer
        return answer

    mz("run", "--feature", "group-thousands", exit_code=21)
    started = msgspec.json.decode(mz("status", "--json").out)["run"]
    assert "\tgoes\n" not in mz("clean", "--dry-run").out
    mz("cancel", started)
    removed = msgspec.json.decode(mz("clean", "--yes", "--json").out)["removed"]
    assert sorted({item["kind"] for item in removed}) == ["capture", "spool", "worktree"]
    result = spawn(home, "verify")
    assert result.exit == 0, result
    mz("retry", "group-thousands")
    (home / ".mz" / "pull-requests" / started).mkdir(parents=True)
    (home / ".mz" / "pull-requests" / started / "other.md").touch()
    assert f"`mz resume {started}` processes it" in mz("clean", "--dry-run", "--all").out
    mz("resume", started, exit_code=21)


def test_what_was_fetched_of_a_target_belongs_to_no_run(scene: Scene, mz: Mz) -> None:
    scene.left(RUN, "login")
    head = scene.repo.git("rev-parse", "HEAD").strip()
    scene.repo.git("update-ref", "refs/mz/targets/origin/main", head)
    answer = mz("clean", "--yes", "--json")
    assert answer.exit == 0, answer
    assert scene.refs() == ["refs/mz/targets/origin/main"]
