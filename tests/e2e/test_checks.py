"""Pull requests until green: the installed program, real git and pushes, and a `gh` that keeps state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_gh import RERUN
from tests.support.remote import SETTINGS, Forge

pytestmark = pytest.mark.slow

FEATURE = "month-filter"
README = "README.md"
"""A file that the feature changes."""


def run(forge: Forge, code: int = 0) -> None:
    forge.bench.mz("run", "--feature", FEATURE, code=code)


def status(forge: Forge) -> str:
    return forge.bench.statuses()[FEATURE]


def calls_of(forge: Forge, phase: str) -> list[str]:
    return sorted(key for key in forge.bench.calls() if f"/{FEATURE}/{phase}/" in key)


def test_red_checks_go_back_to_the_agent_once_and_then_to_a_person_who_may_take_them(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    forge.gh.plan(["pending", "red"], ["red"])
    forge.gh.log(1000, "FAIL: the terminal is too narrow")
    forge.bench.act(FEATURE, "code.2", "answer()\n(cwd / 'tally' / 'narrow.py').write_text('WIDTH = 20\\n')")
    run(forge, code=21)
    assert "checks" in forge.bench.mz("status").out
    forge.bench.mz("resume", "--feature", FEATURE, "--answer", "approve", "-m", "the runner is broken")
    assert status(forge) == "delivered"
    assert [key.split("/")[4] for key in calls_of(forge, "code")] == ["1", "2"]
    prompts = forge.bench.mz("show", f"{FEATURE}/code", "--prompt").out
    assert "FAIL: the terminal is too narrow" in prompts
    assert forge.file(f"feat/{FEATURE}", "tally/narrow.py") == "WIDTH = 20\n"
    assert len(forge.gh.pulls) == 1
    assert forge.remote_head(f"feat/{FEATURE}") == forge.bench.git("rev-parse", f"feat/{FEATURE}").strip()


def test_a_remote_base_that_moved_is_merged_in_before_the_push(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    forge.gh.plan(["pending", "pending", "green"])
    moved = forge.somebody_pushes("NEWS.md", "something else\n")
    run(forge)
    assert status(forge) == "delivered"
    assert forge.file(f"feat/{FEATURE}", "NEWS.md") == "something else\n"
    assert moved in forge.bench.git("rev-list", f"feat/{FEATURE}").split()
    assert forge.bench.git("rev-parse", "main").strip() != moved, "no branch of the user's was moved"
    merged = [event for event in forge.bench.of_type("base.merged") if event["changed"]]
    assert len(merged) == 1
    assert [gate["gate"] for gate in forge.bench.of_type("gate.checked")][-1] == "test"
    polled = [(document["passed"], document["pending"]) for document in forge.bench.of_type("checks.polled")]
    assert polled == [(0, 1), (1, 0)], "and its pull request is awaited until its checks are green"


def test_a_conflict_is_mended_once_in_a_commit_on_top_of_the_merge(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    mine = (forge.bench.root / README).read_text()
    forge.somebody_pushes(README, "\n".join(f"{line} (news)" for line in mine.splitlines()))
    take = f"""
answer()
kept, ours = [], True
for line in (cwd / {README!r}).read_text().splitlines(True):
    mark = line[:7]
    if mark in ("<<<<<<<", "=======", ">>>>>>>"):
        ours = mark != "======="
    elif ours:
        kept.append(line)
(cwd / {README!r}).write_text("".join(kept))
"""
    forge.bench.act(FEATURE, "code.2", take)
    run(forge)
    assert status(forge) == "delivered"
    assert "<<<<<<<" not in forge.file(f"feat/{FEATURE}", README)
    assert len(calls_of(forge, "code")) == 2
    assert forge.bench.git("log", "--merges", "--format=%s", f"feat/{FEATURE}").splitlines() == ["merge main"]


def test_with_merged_dependencies_the_dependent_waits_for_the_merge(tmp_path: Path) -> None:
    """Flaky checks are started again meanwhile, without an agent."""
    forge = Forge(tmp_path, settings=SETTINGS.replace("1s}", "1s, flaky: ['CI / *']}"))
    forge.gh.plan(["red", RERUN, "green"])
    text = forge.bench.mz("pipelines", "show", "monozukuri", "--yaml").out
    pipelines = forge.bench.root / "pipelines"
    pipelines.mkdir()
    text = text.replace("pipeline: monozukuri", "pipeline: patient").replace("stacked", "merged")
    for gate in ("build", "lint"):
        text = text.replace(f"{{run: {gate}}}, ", "")
    (pipelines / "patient.yaml").write_text(text)
    settings = forge.bench.root / "mz.yaml"
    settings.write_text(settings.read_text() + "pipeline: patient\n")
    forge.bench.mz("run", "--feature", FEATURE, "--feature", "month-compare", code=21)
    assert (len(forge.gh.reruns), len(calls_of(forge, "code"))) == (1, 1)
    _, held = forge.bench.json("status")["features"]
    assert [held[key] for key in ("id", "status", "code", "blocked_by")] == ["month-compare", "held", "merge", FEATURE]
    assert held["next"].startswith("mz resume ")
    forge.gh.merge(f"feat/{FEATURE}", forge.remote_head(f"feat/{FEATURE}"))
    forge.move("main", forge.remote_head(f"feat/{FEATURE}"))
    forge.bench.mz("resume")
    assert forge.bench.statuses()["month-compare"] == "delivered"
    pulls = {pull["headRefName"]: pull["baseRefName"] for pull in forge.gh.pulls}
    assert pulls["feat/month-compare"] == "main"
