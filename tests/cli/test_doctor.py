"""`mz doctor` as people and scripts see it; and that it keeps off the network and says no secret."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mz_cli.start.doctor import recordings_check
from mz_engine.model.config import Config
from mz_engine.setup.doctor import CheckStatus, backlog_check
from mz_events.catalog.run import RunFinished

from tests.cli.drive import Mz, on_terminal
from tests.cli.fakeagent import FakeAgent
from tests.cli.stored_run import StoredRun
from tests.support.gitrepo import GitRepo
from tests.support.tree import ROOT

pytestmark = pytest.mark.slow

CASSETTE = ROOT / "recordings/mz_recordings/bundled/monozukuri-claude-code"
DENYING = """
import sys
def deny(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.gethostbyname"):
        raise SystemExit(f"network: {event} {arguments}")
sys.addaudithook(deny)
from mz_cli.main import main
main()
"""
SPYING = '#!/bin/sh\necho "{name} $@" >> {heard}\nexec {program} "$@"\n'


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    """Somebody is in it, and has an agent."""
    for name, value in FakeAgent(tmp_path / "tools", "idle").environment.items():
        monkeypatch.setenv(name, value)
    repo = GitRepo(tmp_path / "repo")
    repo.commit({"README.md": "x"})
    monkeypatch.chdir(repo.root)
    return repo


def test_a_pipe_gets_a_table(repo: GitRepo, mz: Mz) -> None:
    answer = mz("doctor")
    rows = [line.split("\t") for line in answer.out.splitlines()]
    assert rows[0] == ["check", "status", "result", "hint"]
    assert {len(row) for row in rows} == {4}
    assert ["agent:claude-code", "ok", "2.1.197, logged in", "-"] in rows
    assert ["recordings", "ok", "none yet", "-"] in rows
    assert (answer.exit, answer.err) == (0, "")


def test_something_required_is_missing(repo: GitRepo, mz: Mz) -> None:
    (repo.root / "mz.yaml").write_text("agent: abacus\n")
    answer = mz("doctor", "--json")
    summary = json.loads(answer.out)
    assert (answer.exit, summary["schema"], summary["exit"], summary["status"]) == (11, "mz.doctor/1", 11, "fail")
    assert (summary["repository"], summary["online"]) == (str(repo.root), False)
    assert [item["name"] for item in summary["checks"] if item["status"] == "fail"] == ["agent:abacus"]


def test_in_a_linked_worktree_the_main_one_is_looked_at(
    repo: GitRepo, mz: Mz, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repo.git("worktree", "add", "--quiet", str(tmp_path / "linked"))
    (repo.root / "mz.yaml").write_text("agent: abacus\n")
    monkeypatch.chdir(tmp_path / "linked")
    assert json.loads(mz("doctor", "--json").out)["repository"] == str(repo.root)


def test_every_check_is_explained(repo: GitRepo, mz: Mz, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "mz").mkdir(parents=True)
    (tmp_path / "config" / "mz" / "prices.yaml").write_text("prices: []\n")
    (repo.root / "mz.yaml").write_text(
        "# .mz/schema/mz.yaml.json\npull_requests: {strategy: draft}\nmodels: {mid: x}\n"
    )
    names = {item["name"] for item in json.loads(mz("doctor", "--json").out)["checks"]}
    page = (ROOT / "docs/doctor.md").read_text("utf-8")
    named = {"agent:NAME" if name.startswith("agent:") else name for name in names} | {"content", "run-commands"}
    assert set(re.findall(r"^\| `([\w:-]+)` \|", page, re.MULTILINE)) == named


def test_outside_of_a_repository(repo: GitRepo, mz: Mz, monkeypatch: pytest.MonkeyPatch,
                                 tmp_path: Path) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    answer = mz("doctor", "--json")
    assert (answer.exit, json.loads(answer.out)["repository"]) == (0, None)
    assert "the checks of a project were skipped" in answer.out


def test_nothing_is_written_and_no_secret_is_said(repo: GitRepo, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-a-very-secret-key")
    before = sorted(repo.root.rglob("*"))
    answer = mz("doctor", "--json")
    assert "very-secret" not in answer.out + answer.err
    assert sorted(repo.root.rglob("*")) == before


def test_delivered_features_are_not_to_do(repo: GitRepo) -> None:
    (repo.root / "features.md").write_text("## [FEAT] login: Log in\n\n## [FEAT] audit: Keep a record\n")
    log = StoredRun(repo.root).begin("login")
    log.deliver("login")
    log.to_run(RunFinished())
    log.close()
    before = sorted(repo.root.rglob("*"))
    assert backlog_check(repo.root, Config(agent="a"), {}).summary == "features.md: 1 of 2 features to do"
    assert sorted(repo.root.rglob("*")) == before


def test_a_terminal_gets_a_page(repo: GitRepo) -> None:
    shown = on_terminal(repo.root, "doctor", columns=160, env={"NO_COLOR": "1"})
    lines = shown.splitlines()
    assert lines[0].split() == ["check", "status", "result"]
    assert lines[1].split()[:2] == ["python", "ok"]
    assert "backlog warn there is no features.md yet; hint: `mz init` writes a first one" in " ".join(shown.split())
    assert lines[-1] == "Runs will work; see the warnings."
    assert "\x1b" not in shown


def test_offline_nothing_asks_the_network(repo: GitRepo, tmp_path: Path) -> None:
    (repo.root / "mz.yaml").write_text("pull_requests: {strategy: ready}\nbase: main\n")
    repo.git("remote", "add", "origin", "https://example.invalid/a/b.git")
    path, spies = tmp_path / "heard", tmp_path / "spies"
    spies.mkdir()
    for name, program in (("git", "/usr/bin/env -i PATH=/usr/bin:/bin HOME=/ git"), ("gh", "true"), ("ssh", "false")):
        (spies / name).write_text(SPYING.format(name=name, heard=path, program=program))
        (spies / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{spies}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", DENYING, "doctor", "--json"]
    done = subprocess.run(command, cwd=repo.root, env=environment, capture_output=True, text=True, check=False)
    checks = {item["name"]: item["status"] for item in json.loads(done.stdout)["checks"]}
    assert (checks["remote"], checks["gh"], done.returncode) == ("ok", "ok", 0), done.stderr
    lines = [line.split() for line in path.read_text().splitlines()]
    assert ["gh", "auth", "token"] in lines
    assert not [line for line in lines if {"ls-remote", "fetch", "push", "status"} & set(line) or line[0] == "ssh"]


def test_the_age_of_recordings(tmp_path: Path) -> None:
    made = datetime(2026, 11, 21, tzinfo=UTC).timestamp()
    assert recordings_check(tmp_path, made).summary == "none yet"
    (tmp_path / "mz.yaml").write_text("recordings: recordings/library\n")
    path = tmp_path / "recordings/library/demo"
    path.mkdir(parents=True)
    (path / "cassette.yaml").write_bytes((CASSETTE / "cassette.yaml").read_bytes())
    fresh = recordings_check(tmp_path, made + 10 * 86400)
    assert (fresh.status, fresh.summary.endswith("days: recordings/library/demo")) == (CheckStatus.OK, True)
    assert recordings_check(tmp_path, made + 400 * 86400).status is CheckStatus.WARN
    (path / "cassette.yaml").write_text("format: 99\n")
    newer = recordings_check(tmp_path, made)
    assert (newer.status, "use a newer mz" in newer.summary) == (CheckStatus.WARN, True)
