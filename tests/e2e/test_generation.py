"""Generations by the real program with real git: the life of one as its original has it (uc001 to uc005), and what may
go wrong on the way. The agent `maker` proposes tasks while `one.txt` is missing, and writes a file for each."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mz_engine.git.workspace import GitWorkspace
from mz_engine.run.process import RunProcess
from mz_events.catalog.base import Event
from mz_events.catalog.run import BranchAdopted
from mz_events.names import Commit

from tests.cli.drive import Result, fork
from tests.support import preloaded
from tests.support.bench import MZ
from tests.support.forge import FakeGh
from tests.support.gitrepo import IDENTITY, GitRepo
from tests.support.tree import STATE_SETTINGS

pytestmark = pytest.mark.slow

MAKER = """#!{python} -IS
import os, pathlib, sys
prompt = sys.stdin.read()
_, item, phase, _, iteration, attempt, _ = os.environ["MZ_KEY"].split("/")
def entries(letter):
    return ", ".join(f"'{{letter}}{{number}}: it is there'" for number in range(1, 6))
def task(name, needs=""):
    return (f"- id: {{name}}\\n  title: R-1 {{name}}\\n  deliverable_type: code\\n"
            f"  files: [{{name}}.txt]\\n"
            f"  requirements: [{{entries('R')}}]\\n  acceptance_criteria: [{{entries('AC')}}]\\n"
            f"  depends_on: [{{needs}}]\\n")
if phase == "plan":
    missing = not pathlib.Path("one.txt").exists()
    print("```yaml\\n" + (task("one") + task("two", "one") + task("three") if missing else "[]\\n") + "```")
else:
    name = prompt.partition("> Title: R-1 ")[2].partition("\\n")[0].strip()
    bad = name == "three" and iteration == "1"
    text = "bad" if bad else name
    marked = [path for path in pathlib.Path(".").glob("*.txt") if "<<<<<<<" in path.read_text()]
    for path in marked or [pathlib.Path(name + ".txt")]:
        path.write_text(text + "\\n")
    print("Done.")
"""
SETTINGS = """\
pipeline: generation
agent: maker
autonomy: full_auto
agents: {maker: {command: [maker], version: [], ends: {exits: [0]}}}
commands: {test: "! grep -q bad *.txt"}
sources: {code: ["*.txt"]}
"""
TASKS = ("t1", "t2", "t3")
CALLS = ["plan-1", "t1", "t2", *["t3"] * 4, "plan-2"]
"""The third task is refused three times, and right when it is begun again."""


class Project:
    """A repository with the agent; `mz` runs the program to its end."""

    def __init__(self, folder: Path) -> None:
        self.repo = GitRepo(folder / "project")
        self.root = self.repo.root
        self.repo.commit({
            "mz.yaml": SETTINGS + STATE_SETTINGS, "old.go": "old\n", "README.md": "a project\n", ".gitignore": ".mz/\n",
        })  # fmt: skip
        program = folder / "bin" / "maker"
        program.parent.mkdir(parents=True)
        program.write_text(MAKER.format(python=sys.executable))
        program.chmod(0o755)
        (folder / "home").mkdir()
        self.env = {
            "PATH": f"{program.parent}:{MZ.parent}:{os.environ['PATH']}", "HOME": str(folder / "home"), "NO_COLOR": "1",
            "MZ_INTEGRATION": "generation-a", **IDENTITY, **preloaded.read_at_start(os.environ),
        }  # fmt: skip

    def mz(self, *arguments: str, code: int | None = 0, **more: str) -> Result:
        done = fork(self.root, arguments, self.env | more, 200)
        assert code is None or done.exit == code, f"mz {arguments} gave {done.exit}\n{done.out}\n{done.err}"
        return done

    def status(self) -> Any:
        return json.loads(self.mz("status", "--json").out)

    def items(self) -> dict[str, str]:
        return {item["id"]: item["status"] for item in self.status()["features"]}

    def git(self, *arguments: str) -> str:
        return self.repo.git(*arguments)

    def branches(self) -> list[str]:
        return self.git("branch", "--format=%(refname:short)").split()

    def tags(self) -> list[str]:
        return self.git("tag").split()

    def files(self, branch: str) -> list[str]:
        return [name for name in self.git("ls-tree", "--name-only", branch).split() if name.endswith((".txt", ".go"))]

    def calls(self) -> list[str]:
        return [call["feature"] for call in json.loads(self.mz("stats", "--json").out)["calls"]]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_uc001_a_run_needs_no_set_up_and_is_given_up_whole(project: Project) -> None:
    before = project.git("status", "--porcelain"), project.git("rev-parse", "HEAD")
    project.mz("run", "--quiet", "--cycles", "0")
    assert project.items() == {"start": "tagged"}
    assert project.branches() == ["generation-a", "main"]
    run = project.status()["run"]
    project.mz("cancel", run)
    assert (project.branches(), project.tags()) == (["main"], ["generation-a-abandoned", "generation-a-start"])
    assert (project.git("status", "--porcelain"), project.git("rev-parse", "HEAD")) == before


def test_uc002_start_one_cycle_finish(project: Project) -> None:
    project.repo.commit({"mz.yaml": SETTINGS + STATE_SETTINGS})
    shown = project.mz("run", "--cycles", "1", code=1)
    assert "plan-1 adds t1, t2, t3" in shown.err
    assert "t3: failed" in shown.out
    assert "grep -q bad" in shown.out, "why it failed"
    assert "mz retry t3" in shown.out
    assert project.items() == {"start": "tagged", "plan-1": "done", "t1": "merged", "t2": "merged", "t3": "failed"}
    subjects = project.git("log", "--first-parent", "--format=%s", "generation-a").splitlines()
    assert subjects[:2] == [f"Merge branch 'task/generation-a-{task}' into generation-a" for task in ("t2", "t1")]
    assert project.branches() == ["generation-a", "main", "task/generation-a-t3"], "what failed stays"
    lines = project.git("log", "--first-parent", "--format=%(trailers:key=Mz-Lines,valueonly)", "generation-a")
    assert lines.split() == ["code", "+1", "-0,", "tests", "+0", "-0"] * 2, "no line of a call that was refused"
    detail, status = project.mz("show", "t1").out, project.status()
    landed = project.git("log", "-1", "--format=%h", "--abbrev=8", "--grep=generation-a-t1'", "generation-a")
    closed = f"closed: its head is kept as refs/mz/{status['run']}/closed/heads/task/generation-a-t1/"
    assert f"merge: merged into generation-a at {landed}" in detail
    assert f"{closed}{project.git('rev-parse', f'{landed}^2')}" in detail
    assert "closed:" not in project.mz("show", "t3").out
    project.mz("finish", "--yes")
    assert f"refs/mz/{status['run']}/closed/heads/task/generation-a-t3/" in project.mz("show", "t3").out
    assert (project.branches(), project.files("main")) == (["main"], ["old.go", "one.txt", "two.txt"])
    tasks = [json.loads(line) for line in project.git("show", "main:docs/tasks/generation-a.jsonl").splitlines()]
    assert [(task["id"], task["state"]) for task in tasks] == [("t1", "merged"), ("t2", "merged"), ("t3", "failed")]
    tags = [tag for tag in project.tags() if tag.startswith("generation")]
    assert tags == [f"generation-a-{name}" for name in ("finished", "merged", "start")]
    dated = sorted(tag.rpartition("-")[2] for tag in project.tags() if tag.startswith("v"))
    assert dated == ["code", "requirements"]
    assert "MZ5001" in project.mz("finish", "--yes", code=2).err
    again = project.mz("run", code=2).err
    assert "error[MZ5019] the tag generation-a-start exists already" in again
    project.git("tag", "-d", "generation-a-start")
    assert "MZ5019" in project.mz("run", code=2).err, "it would fail at its end, after everything was paid"


def test_uc003_a_plan_is_bounded_and_leaves_a_record_of_each_call(project: Project) -> None:
    project.repo.commit({"mz.yaml": f"{SETTINGS}{STATE_SETTINGS}limits: {{items_max: 2}}\n"})
    project.mz("run", "--quiet", "--cycles", "1", code=1)
    assert project.items() == {"start": "tagged", "plan-1": "failed"}, "three are more than two"
    assert project.calls() == ["plan-1"] * 3


def test_uc004_tasks_are_merged_one_by_one_until_nothing_is_missing(project: Project) -> None:
    project.mz("run", "--quiet")
    status = project.status()
    assert (status["integration"], status["cycle"], status["over"]) == ("generation-a", 2, "planned-nothing")
    assert set(project.items().values()) == {"tagged", "done", "merged"}
    assert project.calls() == CALLS
    assert project.branches() == ["generation-a", "main"]
    assert project.files("generation-a") == ["old.go", "one.txt", "three.txt", "two.txt"]
    assert not list((project.root / ".mz" / "worktrees").glob("*/t?"))
    project.mz("run", "--quiet")
    assert project.calls() == CALLS, "nothing is open"
    run = status["run"]
    assert "matches the log" in project.mz("replay", "--run", run).out
    project.mz("finish", "--yes")
    project.mz("record")
    for mode in ((), ("--real",)):
        assert "matches the recording" in project.mz("replay", *mode).out


def test_uc005_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    undisturbed, project = Project(tmp_path / "undisturbed"), Project(tmp_path / "killed")
    undisturbed.mz("run", "--quiet")
    undisturbed.mz("finish", "--yes")
    dice, code = random.Random(3), None
    for _ in range(9):
        process = subprocess.Popen(
            [MZ, "run", "--quiet"],
            cwd=project.root,
            env=project.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(dice.uniform(0.6, 2.2))
        process.kill()
        code = process.wait()
        if code == 0:
            break
    while code != 0:
        code = project.mz("run", "--quiet", code=None).exit
        waiting = [f"--feature={name}" for name, status in project.items().items() if status == "waiting"]
        if waiting:  # Too many calls were lost.
            project.mz("resume", "--quiet", *waiting, "--answer", "retry", code=None)
    project.mz("finish", "--yes")
    for branch in ("main",):
        assert project.git("rev-parse", f"{branch}^{{tree}}") == undisturbed.git("rev-parse", f"{branch}^{{tree}}")
    assert project.tags() == undisturbed.tags()
    merges = project.git("log", "--format=%s", "--merges", "main").splitlines()
    assert len(merges) == len(set(merges)) == 4, "nothing was merged twice"


def test_a_base_that_moves_meanwhile_is_kept(project: Project) -> None:
    project.mz("run", "--quiet")
    project.repo.commit({"theirs.txt": "theirs\n"})
    project.mz("finish", "--yes")
    assert project.files("main") == ["old.go", "one.txt", "theirs.txt", "three.txt", "two.txt"]
    assert not project.git("status", "--porcelain")


def test_a_conflict_with_the_base_stops_the_end_and_moves_nothing(project: Project) -> None:
    project.mz("run", "--quiet")
    head = project.repo.commit({"one.txt": "theirs\n"})
    shown = project.mz("finish", "--yes", code=1)
    assert "one.txt" in shown.out + shown.err
    assert (project.git("rev-parse", "main"), project.items()["finish-1"]) == (head, "failed")
    assert "generation-a" in project.branches()
    project.git("checkout", "-q", "generation-a")
    project.git("merge", "-q", "--strategy-option", "ours", "main", "-m", "Merge main")
    project.git("checkout", "-q", "main")
    assert "commits of people" in project.mz("finish", "--yes").err
    assert project.items()["finish-2"] == "merged"
    assert project.git("show", "main:one.txt") == "one"


class CutOff(Exception):
    """The process ends here."""


def begin(project: Project, monkeypatch: pytest.MonkeyPatch, advance: Callable[..., Commit | None]) -> None:
    """A run that ends when a branch is moved as given."""
    with RunProcess(project.root, project.env, lambda recorded: None) as process, monkeypatch.context() as patches:
        process.start({}, ())
        patches.setattr(GitWorkspace, "advance", advance)
        with pytest.raises(CutOff):
            process.drive()


def test_a_merge_that_was_cut_off_is_not_taken_for_work_of_people(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, events = GitWorkspace.advance, list[Event]()

    def cut(*arguments: Any) -> None:
        advance(*arguments)
        raise CutOff

    begin(project, monkeypatch, cut)
    with RunProcess(project.root, project.env, lambda recorded: events.append(recorded.event)) as process:
        process.resume(None)
        process.drive()
    assert not [event for event in events if isinstance(event, BranchAdopted)]
    assert project.files("generation-a") == ["old.go", "one.txt", "three.txt", "two.txt"]


def test_commits_of_people_on_a_merge_that_was_cut_off_are_taken_up_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, left, events = GitWorkspace.advance, ["t1", "t2", "t3"], list[Event]()

    def cut(*arguments: Any) -> Commit | None:
        now = advance(*arguments)
        if left.pop() == "t1":
            raise CutOff
        return now

    begin(project, monkeypatch, cut)
    project.git("checkout", "-q", "generation-a")
    project.repo.commit({"mine.txt": "mine\n"})
    project.git("checkout", "-q", "main")
    for _ in range(3):
        with RunProcess(project.root, project.env, lambda recorded: events.append(recorded.event)) as process:
            process.resume(None)
            process.drive()
    assert len([event for event in events if isinstance(event, BranchAdopted)]) == 1
    project.mz("finish", "--yes")
    assert "mine.txt" in project.files("main")


def test_what_is_cancelled_at_rest_begins_no_cycle(project: Project) -> None:
    project.repo.commit({"mz.yaml": SETTINGS.replace("full_auto", "supervised") + STATE_SETTINGS})
    project.mz("run", "--quiet", code=None)
    project.mz("cancel", "plan-1")
    assert project.items() == {"start": "tagged", "plan-1": "cancelled"}
    project.mz("run", "--quiet", code=None)
    assert project.items() == {"start": "tagged", "plan-1": "cancelled", "plan-2": "waiting"}


@pytest.mark.parametrize(("test", "code"), [("exit 127", "MZ1008"), ("no-such-program", "MZ1004")])
def test_a_run_whose_commands_cannot_be_run_any_more_is_given_up(project: Project, test: str, code: str) -> None:
    project.mz("run", "--quiet", "--cycles", "0")
    project.repo.commit({"mz.yaml": SETTINGS.replace("! grep -q bad *.txt", test) + STATE_SETTINGS})
    assert code in project.mz("run", "--quiet", code=None).err
    project.mz("cancel", "generation-a")
    assert project.status()["status"] == "finished"
    assert project.branches() == ["main"]


@pytest.mark.parametrize("move", [("branch", "-f", "generation-a", "main"), ("branch", "-D", "generation-a")])
def test_a_branch_that_lost_work_stops_the_run_until_it_is_back(project: Project, move: tuple[str, ...]) -> None:
    project.mz("run", "--quiet", "--cycles", "1", code=1)
    head = project.git("rev-parse", "generation-a")
    project.git(*move)
    shown = project.mz("finish", "--yes", code=2).err
    assert "MZ5021" in shown
    assert f"git branch -f generation-a {head[:12]}" in shown
    assert "MZ5021" in project.mz("run", code=2).err
    if move[1] == "-f":
        project.git("branch", "-f", "generation-a", head)
        project.mz("finish", "--yes")
        assert project.files("main") == ["old.go", "one.txt", "two.txt"]
    else:
        project.mz("cancel", "generation-a")
        assert project.git("rev-parse", "generation-a-abandoned") == head


def test_an_end_that_was_killed_goes_on(project: Project) -> None:
    project.mz("run", "--quiet")
    slow = SETTINGS.replace('test: "', 'test: "sleep 3; ')
    project.repo.commit({"mz.yaml": slow + STATE_SETTINGS})
    process = subprocess.Popen(
        [MZ, "finish", "--yes"], cwd=project.root, env=project.env, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr
    while "finish-1: phase started" not in process.stderr.readline():
        assert process.poll() is None
    process.kill()
    process.communicate()
    project.mz("finish")
    ends = {name: status for name, status in project.items().items() if name.startswith("finish")}
    assert ends == {"finish-1": "merged"}


def test_what_fits_no_run_is_refused(project: Project) -> None:
    project.repo.commit({"features.md": "## [FEAT] a: Something\n\nText.\n"})
    shown = project.mz("run", "--cycles", "1", code=2, MZ_PIPELINE="quick")
    assert "the pipeline quick has no cycles" in shown.err
    project.mz("run", "--quiet", "--cycles", "0", code=None)
    document = json.loads(project.mz("cancel", "generation-a", "-m", "wrong base", "--json").out)
    assert (document["schema"], document["messages_read"]) == ("mz.cancel/1", True)
    closings = [line for line in project.mz("log", "--json").out.splitlines() if "run.closing" in line]
    assert json.loads(closings[0])["event"]["note"]


def test_several_runs_are_told_apart(project: Project) -> None:
    project.mz("run", "--quiet", "--cycles", "0")
    assert "MZ5019" in project.mz("run", "--new", code=2).err
    project.mz("run", "--quiet", "--new", "--cycles", "0", MZ_INTEGRATION="generation-b")
    assert project.branches() == ["generation-a", "generation-b", "main"]
    listed = json.loads(project.mz("runs", "--json").out)["runs"]
    assert [line["integration"] for line in listed] == ["generation-b", "generation-a"]
    assert "2 runs are unfinished" in project.mz("finish", code=2).err
    assert json.loads(project.mz("status", "generation-a", "--json").out)["run"] == listed[1]["run"]
    project.mz("cancel", "generation-a")
    project.mz("finish", "generation-b")
    assert "generation-a-abandoned" in project.tags()
    assert "generation-b-merged" in project.tags()


def test_ids_of_the_run_are_refused_in_a_backlog(project: Project) -> None:
    project.repo.commit({"features.md": "## [FEAT] t1: Something\n\nText.\n"})
    assert "features.md:1" in (shown := project.mz("run", code=10)).err
    assert "MZ4014" in shown.err


def test_tasks_are_shown_as_issues_until_they_are_merged(project: Project, tmp_path: Path) -> None:
    gh = FakeGh(tmp_path / "gh")
    project.repo.commit({"mz.yaml": SETTINGS + STATE_SETTINGS + "tracker: github:acme/tally\n"})
    names = {name: value for name, value in gh.environment().items() if name.startswith("FAKE_GH")}
    project.env |= {**names, "PATH": f"{tmp_path}/gh/commands:{project.env['PATH']}"}
    project.mz("run", "--dry-run")
    assert gh.calls == []
    project.mz("run", "--quiet", "--cycles", "1", code=1)
    shown = {issue["title"]: (issue["state"], issue["labels"]) for issue in gh.issues}
    merged = ("closed", ["mz"])
    assert shown == {"R-1 one": merged, "R-1 two": merged, "R-1 three": ("open", ["mz", "mz:ready"])}
    assert gh.comments("issues/1/comments")[0]["body"].startswith("**mz**: merged\n\nMerged into generation-a at ")
    assert "Depends on: t1 (#1)" in gh.issues[1]["body"]

    gh.change_issue(3, state="deleted")
    project.mz("resume", "--quiet", "--cycles", "2")
    assert project.items()["t3"] == "merged"
    assert [issue["state"] for issue in gh.issues] == ["closed", "closed", "deleted"]
    printed = project.mz("finish", "--yes", FAKE_GH_FAULT="rate-limit").err
    assert printed.count("are not up to date: `gh api` failed: HTTP 403: API rate limit") == 1
    calls = len(gh.calls)
    project.mz("record")
    project.mz("replay")
    project.mz("fork", "run/generation-a/t1/implement", "--agent", "maker", "--yes", "--quiet", code=None)
    assert len(gh.calls) == calls, "what is repeated is not shown"
