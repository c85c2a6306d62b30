"""The demo's script by itself, played by hand: its artifacts keep the rules, its code keeps the tests, but where it is
meant to fail."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.validate import validate
from mz_engine.model.config import Limits
from mz_recordings.cassette.repository import create_sample

from tests.support.bench import TESTS
from tests.support.dialects.messages import MessagesRequest
from tests.support.endpoint import Request, Unexpected
from tests.support.script_demo import Take, demo, features, play

ARTIFACTS = {
    "prd.md": "prd",
    "techspec.md": "techspec",
    "tasks.json": "tasks",
    "code.md": "code",
    "commit-summary.json": "commit_summary",
    "tests.md": "tests",
    "pr.md": "pr",
}
TESTED: dict[str, tuple[str, ...]] = {"code": tuple(TESTS.split()[3:]), "tests": ()}
"""Modules of tests by phase: after the code those that start no process, and at last all."""
MEANT = {("month-compare", "techspec", 0): "rules", ("group-thousands", "code", 0): "tests"}


@pytest.mark.slow
def test_the_script_keeps_rules_and_tests(tmp_path: Path) -> None:
    root = tmp_path / "tally"
    create_sample(root, os.environ)
    failures: dict[tuple[str, str, int], str] = {}
    for feature in ("month-filter", "month-compare", "group-thousands"):
        texts: dict[str, str] = {}
        for phase, takes in play(feature).items():
            for number, take in enumerate(takes):
                _work(root, take)
                if _refused(root, take, texts):
                    failures[feature, phase, number] = "rules"
                elif phase in TESTED and not _passes(root, *TESTED[phase]):
                    failures[feature, phase, number] = "tests"
    assert failures == MEANT


def _work(root: Path, take: Take) -> None:
    for action in (action for step in take.steps for action in step.use):
        if action.write:
            path = root / action.write
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(action.text)
        elif action.edit:
            path = root / action.edit
            assert path.read_text().count(action.old) == 1, action
            path.write_text(path.read_text().replace(action.old, action.new))


def _refused(root: Path, take: Take, texts: dict[str, str]) -> bool:
    written = [action.write for step in take.steps for action in step.use if action.write.startswith("tasks/")]
    rules, result = load_rules(), False
    for path in written:
        name = ARTIFACTS[Path(path).name]
        texts[name] = (root / path).read_text()
        result = bool(validate(rules[name], texts[name], path, Limits(), texts)) or result
    return result


def _passes(root: Path, *modules: str) -> bool:
    command = ["python3", "-m", "unittest", *modules]
    return not subprocess.run(command, cwd=root, capture_output=True, check=False).returncode


def test_there_is_a_script_for_every_feature() -> None:
    assert features() == ("group-thousands", "month-compare", "month-filter")


def requested(prompt: str, cwd: str = "/x/month-filter", *, tools: tuple[str, ...] = ("Read", "Write")) -> Request:
    body = {
        "system": f"Primary working directory: {cwd}",
        "tools": [{"name": name} for name in tools],
        "messages": [{"role": "user", "content": prompt}],
    }
    return MessagesRequest("/v1/messages", {}, body, 100)


def prompt_for(feature: str, phase: str, text: str = "") -> str:
    return f"You work on the feature `{feature}`, alone. This is the phase `{phase}` of a pipeline.\n{text}"


PRD = "Show one month only. It should count the entries of that month and nothing else"


def test_it_answers_the_request_that_it_got() -> None:
    answer = demo(requested(prompt_for("month-filter", "prd", PRD), "/some/where/month-filter"))
    assert "/some/where/month-filter/tally/__main__.py" in str(answer)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (requested("Hello"), "names no feature"),
        (requested(prompt_for("other", "prd")), "no script for the feature 'other'"),
        (requested(prompt_for("month-filter", "deploy")), "no script for the phase 'deploy'"),
        (requested(prompt_for("month-filter", "prd")), "lacks 'Show one month only'"),
        (requested(prompt_for("month-filter", "prd", PRD), "/x/other"), "not this feature's worktree"),
        (requested(prompt_for("month-filter", "prd", PRD), tools=("Bash",)), "the tool Read was not offered"),
        (requested(prompt_for("month-filter", "prd", PRD + "\n## Rework\n")), "no attempt 2 was expected"),
        (
            requested(prompt_for("month-compare", "techspec", "\n## Rework\n\nno section on the technical approach")),
            "the prompt lacks 'tasks/month-compare/techspec.md: no section on the technical approach",
        ),
        (requested(prompt_for("group-thousands", "code", "\n## Rework\n")), "lacks \"'1,234.56' is not an amount\""),
    ],
)
def test_it_refuses_what_it_does_not_know(request_: Request, why: str) -> None:
    with pytest.raises(Unexpected, match=re.escape(why)):
        demo(request_)
