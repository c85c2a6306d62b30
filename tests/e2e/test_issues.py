"""A backlog of issues: labelled ones are delivered, and comments on them say what happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.drive import Result, fork
from tests.support import preloaded
from tests.support.forge import FakeGh
from tests.support.gitrepo import GitRepo
from tests.support.workshop import AGENT, PIPELINE, RULES, SIGN, WRITE

pytestmark = pytest.mark.slow

URL = "https://github.com/acme/tally"
SETTINGS = "pipeline: notes\nagent: claude-code\ncommands: {check: 'true'}\npull_requests: {strategy: draft}\n"
NOTE, LETTER = "notes/issue-{}.md", "letters/issue-{}.md"
TEXT = "# A text\nIt is long enough.\n"


class Project:
    """A repository with a remote, a `gh` with issues, and an agent that writes what the pipeline wants."""

    def __init__(self, folder: Path) -> None:
        repository, bare, programs = GitRepo(folder / "project"), folder / "bare.git", folder / "bin"
        self.root, self.gh = repository.root, FakeGh(folder / "gh")
        for made in (programs, folder / "home"):
            made.mkdir()
        script = {}
        for number in (7, 9):
            for phase, path in (("write", NOTE), ("sign", LETTER)):
                script[f"issue-{number}.{phase}.1.1"] = {"write": {path.format(number): TEXT}}
            script[f"issue-{number}.write.1.1"]["write"][f"{number}.txt"] = TEXT
        (folder / "script.json").write_text(json.dumps(script))
        (programs / "claude").write_text(AGENT.format(python=sys.executable, script=str(folder / "script.json")))
        (programs / "claude").chmod(0o755)
        repository.commit(
            {
                "mz.yaml": SETTINGS,
                "pipelines/notes.yaml": PIPELINE.replace("  timeout", '  writable: ["*.txt"]\n  timeout'),
                "pipelines/rules/note.yaml": RULES,
                "pipelines/templates/write.md.j2": WRITE,
                "pipelines/templates/sign.md.j2": SIGN,
            }
        )
        subprocess.run(["git", "init", "-q", "--bare", bare], check=True)
        repository.git("remote", "add", "origin", f"{URL}.git")
        repository.git("config", f"url.{bare}.insteadOf", f"{URL}.git")
        repository.git("push", "-q", "origin", "HEAD")
        self.gh.follow(bare)
        gh = self.gh.environment()
        self.environment = {
            **{name: value for name, value in gh.items() if name.startswith("FAKE_GH")},
            "PATH": f"{programs}:{gh['PATH'].split(':')[0]}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "ANTHROPIC_API_KEY": "unused",
            "NO_COLOR": "1",
        }

    def mz(self, *arguments: str, code: int = 0) -> Result:
        environment = {**self.environment, **preloaded.read_at_start(os.environ)}
        done = fork(self.root, arguments, environment, seconds=120)
        assert done.exit == code, f"{arguments} gave {done.exit}\n{done.out}\n{done.err}"
        return done

    def comment(self, number: int) -> str:
        """The text of the one comment."""
        (comment,) = self.gh.comments(f"issues/{number}/comments")
        return str(comment["body"])


def test_issues_are_delivered_and_told_what_happens(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.gh.issue(7, "The first", "Please.", labels=["ready"])
    project.gh.issue(8, "Not for mz", "", labels=["idea"])
    project.gh.issue(9, "The second", "---\ndepends_on: [7]\n---\nPlease, too.", labels=["ready"])
    project.gh.issue(10, "Done", "", labels=["ready"], state="closed")
    flags = ("run", "--backlog", "github:ready")
    planned = json.loads(project.mz(*flags, "--dry-run", "--json").out)
    assert [feature["id"] for feature in planned["features"]] == ["issue-7", "issue-9"]
    assert "comments" not in str(project.gh.calls)

    project.mz(*flags, code=21)
    assert project.comment(7).startswith("**mz**: waiting (approval)\n")
    assert project.gh.comments("issues/9/comments") == [], "it has not begun"
    for answer in ("issue-7", "issue-9"):
        project.mz("resume", answer, "--answer", "approve", code=21 if answer == "issue-7" else 0)
    first, second = project.gh.pulls
    assert f"Pull request: {first['url']}" in project.comment(7)
    assert project.comment(9).startswith("**mz**: delivered\n")
    assert "Closes acme/tally#7." in first["body"]
    assert "Closes acme/tally#9." in second["body"]
    assert "nothing to do" in project.mz(*flags).err, "what was delivered is not begun again"

    recorded = project.mz("record")
    assert "2 features" in recorded.out
    assert "matches the recording" in project.mz("replay").out


def test_a_forge_that_does_not_answer_stops_no_run(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.gh.issue(7, "The first", "Please.", labels=["ready"])
    assert "nothing to do" in project.mz("run", "--backlog", "github:other/place#later").err
    project.environment["FAKE_GH_FAULT"] = "login"
    refused = project.mz("run", "--backlog", "github:ready", code=11)
    assert "error[MZ4013] the issues of github:ready cannot be read: `gh` is not logged in" in refused.err
    del project.environment["FAKE_GH_FAULT"]
    (project.root / "mz.yaml").write_text(SETTINGS.replace("draft", "none") + "backlog: github:ready\n")
    project.gh.refuse_comments()
    ran = project.mz("run", code=21)
    assert "no comment on acme/tally#7: `gh api` failed" in ran.err
    assert "issue-7\tsign\t\tapproval" in project.mz("review", "list").out
