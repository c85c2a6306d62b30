"""The workflow of `mz init --ci` and the composite action, run: green while all is as recorded, red when it is not."""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
import yaml
from mz_engine.setup.templates import REPORTS_FOLDER, WORKFLOW_PATH, workflow_text
from mz_engine.version import VERSION

from tests.cli.drive import spawn
from tests.support.actions import Job
from tests.support.gitrepo import GitRepo
from tests.support.tree import ROOT
from tests.support.workshop import Copy, clone

PUBLIC: dict[str, dict[str, Any]] = {
    "github": {
        "ref": "refs/heads/main", "event_name": "push", "repository": "ada/notes",
        "event": {"repository": {"visibility": "public"}},
    },
    "runner": {"os": "Linux"},
}  # fmt: skip
REPLAY, KEEP, ALERTS = "Replay", "Keep the reports", "Show alerts on the lines they are about"
PROGRAMS = "Install the programs of the commands"
REQUIREMENT = f"mz-engine=={VERSION}"
INIT = ("init", "--ci", "--yes", "--install", REQUIREMENT, "--unchecked")
EDIT = ("pipelines/templates/write.md.j2", "Keep it short.", "Be brief.")


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Copy:
    """A fresh clone on another machine."""
    made = clone(recorded, tmp_path / "clone")
    GitRepo(made.root).commit()
    return made


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """Variables of a step. The mz under test is what `pip` finds installed; it may ask no index. `sudo` would change
    this machine, so it only says what it was asked."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sudo").write_text('#!/bin/sh\necho "asked for: $*"\n')
    (tools / "sudo").chmod(0o755)
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(tmp_path), "LANG": "C.UTF-8", "PIP_NO_INDEX": "1"}


def parsed(text: str) -> Any:
    """`on` is a boolean to YAML 1.1, and no key of ours."""
    return yaml.safe_load(text)


# what they are allowed ------------------------------------------------------------------------------------------------
def used(steps: list[dict[str, Any]]) -> list[str]:
    return [step["uses"] for step in steps if "uses" in step]


def test_the_workflow_may_do_as_little_as_possible() -> None:
    text = workflow_text(REQUIREMENT, base="trunk")
    result = parsed(text)
    (job,) = result["jobs"].values()
    assert result["permissions"] == {"contents": "read"}
    assert job["permissions"] == {"contents": "read", "security-events": "write"}
    assert result[True]["push"]["branches"] == ["trunk"]
    assert "pull_request_target" not in text
    assert "secrets." not in text
    assert job["steps"][0]["with"] == {"persist-credentials": False}
    assert all(re.fullmatch(r"(actions|github)/[\w/-]+@v\d+", value) for value in used(job["steps"]))
    assert all("${{" not in step.get("run", "") for step in job["steps"])


def test_what_the_set_up_downloads_is_fetched_before() -> None:
    steps = parsed(workflow_text(REQUIREMENT, setup=("npm ci", "make 'a b'"), programs=("npm install --global pnpm",)))[
        "jobs"
    ]["replay"]["steps"]
    names = [step.get("name") for step in steps]
    assert names.index(PROGRAMS) < names.index("Fill the caches of the set-up") < names.index(REPLAY)
    assert steps[names.index(PROGRAMS)]["run"] == "npm install --global pnpm\n"
    assert steps[names.index("Fill the caches of the set-up")]["run"] == "npm ci\nmake 'a b'\n"


def test_alerts_are_shown_where_they_may_be(tmp_path: Path) -> None:
    steps = parsed(workflow_text(REQUIREMENT))["jobs"]["replay"]["steps"][-1:]
    (tmp_path / REPORTS_FOLDER).mkdir()
    (tmp_path / REPORTS_FOLDER / "mz.sarif").write_text("{}")
    head = {"head": {"repo": {"full_name": "eve/notes"}}}
    fork = {
        "event_name": "pull_request",
        "repository": "ada/notes",
        "event": {"repository": {"visibility": "public"}, "pull_request": head},
    }
    private = {"event_name": "push", "event": {"repository": {"visibility": "private"}}}
    for context, outcome in (
        (PUBLIC, "success"), ({"github": fork}, "skipped"), ({"github": private}, "skipped"),
        ({"github": private, "vars": {"MZ_ALERTS": "true"}}, "success"),
    ):  # fmt: skip
        job = Job(tmp_path, {}, context)
        job.run(steps)
        assert job.ran[0].outcome == outcome, context


def test_the_action_puts_no_input_into_a_script() -> None:
    action = parsed((ROOT / "action.yml").read_text())
    steps = action["runs"]["steps"]
    assert all("${{" not in step.get("run", "") for step in steps)
    assert all(step["shell"] == "bash" for step in steps if "run" in step)
    assert all(item["description"] for item in (*action["inputs"].values(), *action["outputs"].values()))


# the workflow ---------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_workflow_is_green_until_a_prompt_is_changed(copy: Copy, surroundings: dict[str, str]) -> None:
    result = spawn(copy.root, *INIT, **surroundings)
    assert f"created {WORKFLOW_PATH}" in result.out, result.err
    assert f"with mz-engine=={VERSION}" in result.out
    assert "CI has no recording to replay" not in result.err
    steps = parsed((copy.root / WORKFLOW_PATH).read_text())["jobs"]["replay"]["steps"]

    green = Job(copy.root, surroundings, PUBLIC)
    green.run(steps)
    assert not green.failed, green.ran
    assert "already satisfied: mz-engine" in green.find("Install mz").text
    assert "asked for: sysctl" in green.find("Allow network namespaces").text
    assert (
        "8 recordings replayed, 3 commands executed, 1 cassette for real, network cut off: matches the recording"
        in green.find(REPLAY).text
    )
    assert green.find(KEEP).inputs["path"] == f"{REPORTS_FOLDER}/"
    assert "mz replay: passed" in green.summary.read_text()

    (copy.root / WORKFLOW_PATH).unlink()
    copy.edit(*EDIT)
    refused = spawn(copy.root, *INIT, **surroundings)
    assert (refused.exit, (copy.root / WORKFLOW_PATH).exists()) == (10, False)
    assert "would not be green: the replay of recordings/notes differs (PROMPT)" in refused.err
    red = Job(copy.root, surroundings, PUBLIC)
    red.run([step for step in steps if step.get("name") != "Install mz"])
    assert red.find(REPLAY).outcome == "failure"
    assert red.find(REPLAY).text.endswith("exit 3\n")
    assert "::error file=pipelines/templates/write.md.j2,line=2,title=PROMPT" in red.find(REPLAY).text
    assert (red.find(KEEP).outcome, red.find(ALERTS).outcome) == ("success", "success")
    assert red.find(ALERTS).inputs["sarif_file"] == f"{REPORTS_FOLDER}/mz.sarif"
    check_reports(copy.root / REPORTS_FOLDER)
    assert "mz replay: failed" in red.summary.read_text()


def check_reports(folder: Path) -> None:
    """Each says which line was edited."""
    suite = Xml.fromstring((folder / "junit.xml").read_text())[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("recordings/notes", "10", "5")
    (result,) = json.loads((folder / "mz.sarif").read_text())["runs"][0]["results"]
    path = result["locations"][0]["physicalLocation"]
    assert (path["artifactLocation"]["uri"], path["region"]) == (EDIT[0], {"startLine": 2})
    assert result["occurrenceCount"] == 5
    assert "Be brief." in (folder / "mz.html").read_text()


# the action -----------------------------------------------------------------------------------------------------------
def action(copy: Copy, surroundings: dict[str, str], **inputs: str) -> tuple[Job, dict[str, str]]:
    """The composite action with these inputs; its job, and its outputs."""
    made = parsed((ROOT / "action.yml").read_text())
    document = {name: entry["default"] for name, entry in made["inputs"].items()} | inputs
    context = {**PUBLIC, "inputs": document, "github": {**PUBLIC["github"], "action_path": str(ROOT)}}
    job = Job(copy.root, surroundings, context)
    job.run(made["runs"]["steps"])
    return job, {name: job.filled(item["value"]) for name, item in made["outputs"].items()}


@pytest.mark.slow
def test_the_action_installs_itself_plays_what_it_is_told_to_and_is_red_when_a_prompt_is_changed(
    copy: Copy, surroundings: dict[str, str], tmp_path: Path
) -> None:
    """Into an environment of its own, where all else is there already: the wheel that is built of the checkout runs."""
    venv.create(tmp_path / "own", symlinks=True)
    (site,) = (tmp_path / "own").glob("lib/*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    del surroundings["PIP_NO_INDEX"]
    surroundings["PATH"] = f"{tmp_path / 'own' / 'bin'}:{surroundings['PATH']}"
    copy.edit(*EDIT)
    inputs = {"python-version": "", "paths": "recordings/notes\n", "args": "--shuffle\n7\n--json"}
    job, outputs = action(copy, surroundings, **inputs, reports="out put")
    assert job.ran[0].outcome == "skipped"
    assert (site / "mz_cli" / "reports" / "page" / "page.css").is_file(), job.ran
    assert job.find(REPLAY).text.endswith("exit 3\n"), job.ran
    assert '"file": "pipelines/templates/write.md.j2",\n          "line": 2' in job.find(REPLAY).text
    assert "\n::error file=pipelines/templates/write.md.j2,line=2,title=PROMPT" in job.find(REPLAY).text
    assert outputs == {
        "exit": "3", "junit": "out put/junit.xml", "sarif": "out put/mz.sarif", "html": "out put/mz.html",
    }  # fmt: skip
    check_reports(copy.root / "out put")


@pytest.mark.slow
def test_the_action_installs_the_version_that_is_named_and_says_without_one_what_it_needs(
    copy: Copy, surroundings: dict[str, str], tmp_path: Path
) -> None:
    python = tmp_path / "tools" / "python"
    python.write_text('#!/bin/sh\necho "$*"\n')
    python.chmod(0o755)
    made = parsed((ROOT / "action.yml").read_text())
    steps = [step for step in made["runs"]["steps"] if step.get("name") == "Install mz"]
    for version, text in (
        (VERSION, f"-m pip install --quiet --disable-pip-version-check {REQUIREMENT}\n"),
        ("", "::error::mz does not come with this action"),
    ):
        job = Job(copy.root, surroundings, {"inputs": {"version": version}, "github": {"action_path": str(tmp_path)}})
        job.run(steps)
        assert job.ran[0].text.startswith(text)
