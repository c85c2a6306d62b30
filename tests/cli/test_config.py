"""`mz config`: what is in effect and why; and what is wrong, with its place."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from mz_engine.config.schema import list_settings

from tests.cli.drive import Mz, on_terminal
from tests.support.gitrepo import GitRepo


@pytest.fixture
def root(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository without settings."""
    subprocess.run(["git", "init", "--quiet", str(home)], check=True)
    for setting_info in list_settings():
        monkeypatch.delenv(setting_info.variable, raising=False)
    return home


def test_every_setting_is_shown_with_its_origin(root: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "mz.yaml").write_text("agent: claude-code\nbudget:\n  run: '20.00'\ncommands:\n  test: {run: make test}\n")
    monkeypatch.setenv("MZ_AUTONOMY", "full_auto")
    answer = mz("config", "show", "--show-origin")
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in answer.out.splitlines()}
    assert answer.exit == 0
    assert rows.pop("setting") == ["value", "origin"]
    assert rows.pop("commands.test") == ["run: make test; timeout: 10m", "mz.yaml:5:3"]
    assert list(rows) == [setting_info.name for setting_info in list_settings() if setting_info.name != "commands"]
    assert rows["agent"] == ["claude-code", "mz.yaml:1:1"]
    assert rows["budget.run"] == ["20.00", "mz.yaml:3:3"]
    assert rows["autonomy"] == ["full_auto", "MZ_AUTONOMY"]
    assert rows["limits.wait_max"] == ["1h", "default"]
    assert rows["workspace.keep_ignored"] == ["node_modules, .venv", "default"]
    assert {len(line.split("\t")) for line in mz("config", "show").out.splitlines()} == {2}


def test_for_programs(root: Path, mz: Mz) -> None:
    summary = json.loads(mz("config", "show", "--json").out)
    assert (summary["schema"], summary["file"], summary["repository"]) == ("mz.config-show/1", None, str(root))
    assert {element["origin"] for element in summary["settings"]} == {"default"}
    assert all(item["description"].endswith(".") for item in summary["settings"])
    values = {entry["name"]: entry["value"] for entry in summary["settings"]}
    assert (values["base"], values["parallel_max"], values["commands"]) == (None, 2, {})


def test_secrets_are_masked(
    root: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("DATABASE_PASSWORD", "correct-horse-battery")
    (root / "mz.yaml").write_text(
        "commands: {test: DB=correct-horse-battery make}\nworkspace: {setup: [echo correct-horse-battery]}\n"
        "pull_requests: {remote: correct-horse-battery}\n"
    )
    shown = mz("config", "show").out + mz("config", "show", "--json").out
    assert "horse" not in shown
    assert shown.count("make") == 2


def test_a_misspelt_variable_is_told_of(root: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MZ_AUTONMY", "full_auto")
    warned = mz("config", "show").err
    assert warned == (
        "warning[MZ2012] the variable MZ_AUTONMY is not a setting and has no effect\nhint: did "
        "you mean `MZ_AUTONOMY`?\n"
    )
    monkeypatch.setenv("MZ_PARALLEL_MAX", "many")
    refused = mz("config", "show")
    assert (refused.exit, refused.out) == (10, "")
    assert "error[MZ2011] MZ_PARALLEL_MAX: expected a whole number" in refused.err
    assert warned in refused.err


@pytest.mark.slow
def test_what_is_valid(root: Path, mz: Mz) -> None:
    answer = mz("config", "validate")
    assert (answer.exit, answer.out.splitlines()[0]) == (0, "no mz.yaml: all settings have their defaults")
    settings = "commands: {test: make, lint: make lint, build: make build}\n"
    (root / "mz.yaml").write_text(settings)
    (root / "features.md").write_text("## [FEAT] a: A\n## [DONE] b: B\n")
    answer = mz("config", "validate")
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == (
        "mz.yaml is valid\npipeline monozukuri is valid\n"
        "supported: claude-code; `mz doctor` checks the installation\n"
        "features.md is valid; features: 2\n"
    )
    (root / "mz.yaml").write_text(f"{settings}failover: [codex, gemini]\n")
    output = mz("config", "validate").out
    assert "supported: claude-code, then codex, then gemini; `mz doctor`" in output
    (root / "mz.yaml").write_text(settings)
    summary = json.loads(mz("config", "validate", "--json").out)
    assert (summary["schema"], summary["file"], summary["features"], summary["warnings"]) == (
        "mz.config-validate/1", "mz.yaml", 2, [],
    )  # fmt: skip


def test_all_that_is_wrong_is_said_at_once(root: Path, mz: Mz) -> None:
    (root / "mz.yaml").write_text("# one\npipeline: mnozukuri\nbacklog: wrong.md\nagent: gpt\nbase: nobranch\n")
    (root / "wrong.md").write_text("## [FEAT] a\n")
    GitRepo(root).commit({"README.md": "a project"})
    answer = mz("config", "validate")
    assert (answer.exit, answer.out) == (10, "")
    assert answer.err == (
        "error[MZ2013] mz.yaml:4:8 `agent`: unknown agent 'gpt'; known agents: aider, anthropic, claude-code, codex, "
        "gemini, kiro\n"
        "hint: choose one with `agent:` in mz.yaml\n\n"
        "error[MZ2013] mz.yaml:5:7 `base`: there is no branch or commit `nobranch`\n"
        "hint: see `git branch --all`, then set `base:` in mz.yaml\n\n"
        "error[MZ3001] mz.yaml:2:11 there is no pipeline `mnozukuri`\nhint: did you mean `monozukuri`?\n\n"
        "error[MZ4002] wrong.md:1:1 '## [FEAT] a' is not a feature heading\nhint: did you mean "
        "`## [FEAT] a: a`?\n"
    )


@pytest.mark.parametrize("url", ["", "/srv/git/tally.git"])
def test_a_tracker_without_a_repository_is_refused(root: Path, mz: Mz, url: str) -> None:
    (root / "mz.yaml").write_text("pipeline: generation\nagent: claude-code\ntracker: github\n")
    repo = GitRepo(root)
    repo.commit({"README.md": "a project"})
    if url:
        repo.git("remote", "add", "origin", url)
    answer = mz("config", "validate")
    assert (answer.exit, answer.err) == (
        10,
        "error[MZ2013] mz.yaml:3:10 `tracker`: the remote origin is no repository of GitHub\n"
        "hint: write github:OWNER/REPO, or set `pull_requests.remote`\n",
    )


def test_an_unknown_agent_is_listed_with_the_other_mistakes(root: Path, mz: Mz) -> None:
    (root / "mz.yaml").write_text(
        "agent: clade-code\nautonomy: never\nagents: {mine: {command: 1}}\nfailover: [mine]\n"
    )
    answer = mz("config", "validate")
    assert answer.exit == 10
    first, *others = [line for line in answer.err.splitlines() if line.startswith("error")]
    assert first.startswith("error[MZ2013] mz.yaml:1:8 `agent`: unknown agent 'clade-code'; known agents: aider, ")
    assert "hint: did you mean `claude-code`?" in answer.err
    assert any("mz.yaml:2:11" in line for line in others)
    assert not any("failover" in line for line in others)


def test_a_backlog_that_is_named_must_be_there(root: Path, mz: Mz) -> None:
    (root / "mz.yaml").write_text("backlog: nofile.md\n")
    answer = mz("config", "validate")
    assert (answer.exit, answer.out) == (10, "")
    assert "error[MZ2001] nofile.md the backlog file does not exist" in answer.err


def test_steps_without_a_command_are_told_in_one_line(root: Path, mz: Mz) -> None:
    (root / "mz.yaml").write_text("commands: {test: make}\n")
    assert mz("config", "validate").err == (
        "warning[MZ3009] pipeline steps are skipped: mz.yaml has no command `build`, `lint`\n"
        "hint: write `NAME: COMMAND LINE` under `commands:` in mz.yaml\n"
    )


@pytest.mark.slow
def test_what_an_agent_will_lack_is_told(root: Path, mz: Mz) -> None:
    """By everything that looks at a run before it is paid for."""
    GitRepo(root).commit({"README.md": "a project", "features.md": "## [FEAT] a: A\n"})
    commands = "commands: {test: make, lint: make, build: make}\n"
    (root / "mz.yaml").write_text(f"agent: aider\nmodels: {{mid: my-own}}\nbudget: {{run: '5'}}\n{commands}")
    summary = (
        "warning[MZ3019] the phases `code`, `tests` ask for the tool `shell`, which the agent aider does not have\n",
        "warning[MZ2016] a budget is set, but the model has no price: my-own; no money is reserved for calls\n",
    )
    for args in (("config", "validate"), ("run", "--dry-run")):
        answer = mz(*args)
        assert (answer.exit, [line in answer.err for line in summary]) == (0, [True, True]), args
    checks = json.loads(mz("doctor", "--json").out)["checks"]
    assert summary[0].partition("] ")[2].strip() in {check["summary"] for check in checks}


def test_a_gate_without_its_command_has_a_place(root: Path, mz: Mz) -> None:
    (root / "pipelines").mkdir()
    (root / "pipelines/own.yaml").write_text(
        "pipeline: own\nversion: 1\nphases:\n- {phase: a, gates: [{run: tset}], deliver: [push, open_pr]}\n"
    )
    (root / "mz.yaml").write_text("pipeline: own\ncommands: {test: make}\n")
    answer = mz("config", "validate", "--json")
    summary = json.loads(answer.err)
    assert (answer.exit, answer.out, summary["code"]) == (10, "", "MZ3009")
    assert summary["location"] == {"file": "pipelines/own.yaml", "line": 4, "column": 28}


@pytest.mark.slow
def test_a_terminal_gets_whole_names(root: Path) -> None:
    shown = on_terminal(root, "config", "show", "--show-origin", columns=60, env={"NO_COLOR": "1"}).splitlines()
    assert shown[0].split() == ["setting", "value", "origin"]
    assert ["pull_requests.strategy", "none", "default"] in [line.split() for line in shown]
