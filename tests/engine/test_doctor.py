"""`mz doctor`: what each check makes of what it finds, on machines and in projects of every kind."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.agents.catalog import agent_package
from mz_engine.agents.registry import built_in_adapters
from mz_engine.decoding.quantity import Usd
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation
from mz_engine.model.agent_description import AgentDescription, EndConditions, Login
from mz_engine.model.config import Budget, Config, SandboxSettings
from mz_engine.paths import spending_folder
from mz_engine.ports import RepositoryUnusable
from mz_engine.processes import guard
from mz_engine.processes.supervise import can_hide
from mz_engine.run.plan import load_sources, make_plan
from mz_engine.run.settings import load_config
from mz_engine.run.spending_record import SpendingRecord
from mz_engine.setup import doctor
from mz_engine.setup.doctor import (
    CheckStatus,
    DoctorCheck,
    DoctorOptions,
    agent_checks,
    budget_check,
    fail,
    fail_with_error,
    newest_date,
    ok,
    overall_status,
    price_table_check,
    run_checks,
    warn,
    with_tested_version,
)
from mz_engine.setup.templates import DetectedProject, InitChoices, starter_backlog, starter_config
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.names import Digest
from mz_projections.run.spending import Amount

from tests.cli.fakeagent import FakeAgent
from tests.support.gitrepo import GitRepo
from tests.support.programs import put_program

pytestmark = pytest.mark.slow

NOW = 1_795_000_000.0
"""In November 2026."""


@pytest.fixture
def agent(tmp_path: Path) -> Mapping[str, str]:
    """An environment with an agent that is logged in."""
    return FakeAgent(tmp_path / "tools", "idle").environment


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    repo = GitRepo(tmp_path / "repo")
    repo.commit({"README.md": "x"})
    return repo


def checked(position: Path, environment: Mapping[str, str], online: bool = False) -> dict[str, DoctorCheck]:
    report = run_checks(DoctorOptions(directory=position, environment=environment, online=online, now_seconds=NOW))
    assert len({check.name for check in report.checks}) == len(report.checks)
    return {check.name: check for check in report.checks}


def statuses(checks: Mapping[str, DoctorCheck]) -> dict[str, str]:
    return {name: check.status.value for name, check in checks.items() if check.status is not CheckStatus.OK}


@pytest.mark.parametrize(
    ("check", "status"),
    [
        (doctor.git_check("git version 2.29.3"), "fail"),
        (doctor.git_check("git version 2.37.1 (Apple Git-137.1)"), "warn"),
        (doctor.git_check("git version 2.50.0.windows.1"), "ok"),
        (doctor.git_check("no"), "fail"),
        (doctor.identity_check("A B <a@b> 1795000000 +0100"), "ok"),
        (doctor.identity_check(" <a@b> 1795000000 +0100"), "warn"),
        (doctor.identity_check(""), "warn"),
        (doctor.disk_check(10**8, "/"), "fail"),
        (doctor.disk_check(10**9, "/"), "warn"),
        (doctor.disk_check(10**11, "/"), "ok"),
        (doctor.sqlite_check((3, 22, 0)), "fail"),
        (doctor.sqlite_check((3, 40, 1)), "ok"),
        (doctor.isolation_check(guard.NAMESPACE, "linux"), "ok"),
        (doctor.isolation_check(guard.USER_NAMESPACE, "linux"), "ok"),
        (doctor.isolation_check(guard.LANDLOCK, "linux"), "warn"),
        (doctor.isolation_check(guard.SUBREAPER, "linux"), "warn"),
        (doctor.isolation_check(guard.MARKER, "darwin"), "warn"),
        (doctor.isolation_check(guard.BUBBLEWRAP, "linux", "mounts"), "ok"),
        (doctor.isolation_check(guard.LANDLOCK, "linux", "landlock"), "warn"),
        (doctor.isolation_check(guard.LANDLOCK, "linux", "mounts"), "fail"),
        (doctor.isolation_check(guard.SUBREAPER, "linux", "landlock"), "fail"),
        (doctor.isolation_check(guard.MARKER, "darwin", "mounts"), "fail"),
    ],
)
def test_machines_are_judged(check: DoctorCheck, status: str) -> None:
    assert check.status.value == status
    assert check.hint or status == "ok"
    assert not check.summary.endswith(".")


def test_what_is_known_of_this_machine_is_said() -> None:
    assert doctor.identity_check("A B <a@b> 1 +0").summary == "commits are by A B <a@b>"
    assert "versions before 3.51.3" in doctor.sqlite_check((3, 40, 1)).summary
    assert doctor.isolation_check(guard.MARKER, "darwin").summary.startswith("macOS: ")


def test_the_age_of_prices_is_that_of_the_newest_date() -> None:
    text = "checked 2026-08-25; date(2026, 10, 9); from 2027-01-01 on; 2026-13-40"
    assert newest_date(text, date(2026, 11, 1)) == date(2026, 10, 9)
    assert newest_date("none", date(2026, 11, 1)) is None
    assert price_table_check(NOW).status is CheckStatus.OK
    late = price_table_check(NOW + 400 * 86400)
    assert (late.status, "days ago" in late.summary) == (CheckStatus.WARN, True)


def test_an_agent_that_is_needed_must_be_there(agent: Mapping[str, str], tmp_path: Path) -> None:
    ready = of_agents(agent, "claude-code")["claude-code"]
    assert (ready.status, ready.summary) == (CheckStatus.OK, "2.1.197, logged in")
    keyless = of_agents({**agent, "ANTHROPIC_API_KEY": ""}, "claude-code")["claude-code"]
    assert (keyless.status, "ANTHROPIC_API_KEY" in keyless.hint) == (CheckStatus.FAIL, True)
    absent = of_agents({"PATH": str(tmp_path)}, None)
    assert [name for name, check in absent.items() if check.status is CheckStatus.FAIL] == ["claude-code"]
    assert "install Claude Code" in absent["claude-code"].hint
    assert absent["codex"].summary == "not installed (optional)"
    others = of_agents({"PATH": str(tmp_path)}, "abacus")
    assert [name for name, check in others.items() if check.status is CheckStatus.FAIL] == ["abacus"]


def test_a_program_newer_than_what_was_tested_is_said_to_be() -> None:
    claude = agent_package("claude-code")
    ready = ok("9.0.0, logged in")
    check = with_tested_version(ready, "9.0.0", claude)
    assert check.status is CheckStatus.OK
    assert (
        check.summary
        == f"9.0.0, logged in; newer than {claude.tested_version}, the newest version that mz was tested with"
    )
    assert "mz drift" in check.hint
    for version in (claude.tested_version, "2.1.9", "", "unknown"):
        assert with_tested_version(ready, version, claude) == ready
    assert with_tested_version(ready, "9.0.0", agent_package("kiro")) == ready


def check_of_house(folder: Path, **more: object) -> DoctorCheck:
    agent = replace(AgentDescription(command=("house",), version=(), ends=EndConditions(exits=(0,))), **more)
    put_program(folder, "house", "")
    checks = agent_checks({"PATH": str(folder)}, "house", Config(agents={"house": agent}))
    return next(check for check in checks if check.name == "agent:house")


def test_an_agent_without_a_version_is_called_so(tmp_path: Path) -> None:
    assert check_of_house(tmp_path).summary == "unknown version, logged in"


def test_ways_to_log_in_are_said_once(tmp_path: Path) -> None:
    login = Login(variables=("HOUSE_KEY",), how="ask the caretaker")
    house = check_of_house(tmp_path, login=login, passes=("HOUSE_KEY",))
    assert house.hint == "log in (ask the caretaker; HOUSE_KEY)"


def of_agents(environment: Mapping[str, str], chosen: str | None) -> dict[str, DoctorCheck]:
    return {check.name.removeprefix("agent:"): check for check in agent_checks(environment, chosen, Config())}


def test_an_agent_that_comes_with_mz_needs_only_a_key(tmp_path: Path) -> None:
    outside = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    keyless = of_agents(outside, "anthropic")["anthropic"]
    assert keyless.status is CheckStatus.FAIL
    assert keyless.summary.endswith("the Anthropic API has no key")
    assert keyless.hint.startswith("set ANTHROPIC_API_KEY")
    assert of_agents({**outside, "ANTHROPIC_API_KEY": "k"}, "anthropic")["anthropic"].status is CheckStatus.OK


def test_an_error_becomes_a_check() -> None:
    mz_error = MzError("MZ2003", "not YAML", hint="mend it", location=SourceLocation("mz.yaml", 2, 1))
    assert fail_with_error(mz_error) == fail("mz.yaml:2:1 not YAML", "mend it")
    both = [Diagnostic(code="MZ2012", message="odd", severity="warning"), *mz_error.diagnostics, *mz_error.diagnostics]
    assert fail_with_error(MzError.from_diagnostics(both), "see").summary == "mz.yaml:2:1 not YAML (and 1 more)"
    assert fail_with_error(MzError.from_diagnostics(both), "see").hint == "see"


def test_outside_of_a_repository_the_machine_is_looked_at(tmp_path: Path, agent: Mapping[str, str]) -> None:
    checks = checked(tmp_path, agent)
    assert list(checks) == [
        "python", "git", "git-identity", "disk", "sqlite", "isolation", "prices",
        *(f"agent:{name}" for name in built_in_adapters()), "repository",
    ]  # fmt: skip
    assert checks["repository"].status is CheckStatus.WARN
    assert checks["repository"].hint.startswith("the checks of a project were skipped")


def test_a_project_that_is_well(repo: GitRepo, agent: Mapping[str, str]) -> None:
    config = starter_config(DetectedProject(base="main"), InitChoices(test="sh test.sh"))
    (repo.root / "mz.yaml").write_text(config)
    (repo.root / "features.md").write_text(starter_backlog())
    (repo.root / "src").mkdir()
    checks = checked(repo.root / "src", {**agent, "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b"})
    wrong = statuses(checks)
    wrong.pop("isolation", None)
    wrong.pop("disk", None)
    assert wrong == {"editor-schema": "warn"}
    assert checks["base"].summary.startswith("main at ")
    assert checks["backlog"].summary == "features.md: 0 of 1 features to do"
    assert "steps without a command: 2" in checks["pipeline"].summary
    assert not (repo.root / ".mz").exists()


def test_a_folder_of_runs_that_git_tracks_is_refused(repo: GitRepo, agent: Mapping[str, str]) -> None:
    """Its recordings cannot be replayed, and each worktree would have the files of other runs."""
    repo.write({".mz/schema/mz.yaml.json": "{}", ".mz/caf\udce9": ""})
    repo.git("add", "--force", ".mz")
    repo.git("commit", "-qm", "mine")
    base = checked(repo.root, agent)["base"]
    assert (base.status, base.hint.partition("`, ")[0]) == (CheckStatus.FAIL, "`git rm -r --cached .mz")
    (repo.root / "features.md").write_text("## [FEAT] a: A\n")
    with pytest.raises(RepositoryUnusable, match=r"tracks 2 files in \.mz/"):
        make_plan(repo.root, agent, {}, (), None, lambda text: Digest(text))


def test_a_project_without_anything(repo: GitRepo, agent: Mapping[str, str]) -> None:
    checks = checked(repo.root, agent)
    hints = {name: checks[name].hint for name in ("settings", "backlog", "commands")}
    assert hints["settings"] == "`mz init` writes one"
    assert {checks[name].status for name in hints} == {CheckStatus.WARN}
    assert "editor-schema" not in checks
    assert "gh" not in checks


def test_a_repository_without_a_commit(tmp_path: Path, agent: Mapping[str, str]) -> None:
    check = checked(GitRepo(tmp_path / "empty").root, agent)["base"]
    assert (check.status, check.summary) == (CheckStatus.FAIL, "the branch `main` has no commit yet")
    assert check.hint == "commit something first: worktrees start from a commit"


def test_without_git(tmp_path: Path) -> None:
    checks = checked(tmp_path, {"PATH": str(tmp_path)})
    assert (checks["git"].status, checks["git"].hint) == (CheckStatus.FAIL, "install git 2.30 or newer")
    assert checks["repository"].status is CheckStatus.WARN


def test_a_bare_repository(tmp_path: Path, agent: Mapping[str, str]) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "bare.git")], check=True)
    check = checked(tmp_path / "bare.git", agent)["repository"]
    assert (check.status, check.hint) == (CheckStatus.FAIL, "run mz in a clone with files")


@pytest.mark.parametrize(
    ("text", "name", "output"),
    [
        ("agnet: x\n", "settings", "mz.yaml:1:1 unknown key `agnet`"),
        ("agnet: x\nbse: x\n", "settings", "mz.yaml:1:1 unknown key `agnet` (and 1 more)"),
        ("pipeline: mien\n", "pipeline", "mz.yaml:1:11 there is no pipeline `mien`"),
        ("pipeline: own\n", "pipeline", "pipelines/own.yaml:4:28 mz.yaml has no command `nowhere`"),
        ("backlog: wrong.md\n", "backlog", "wrong.md:1:1 '## [FEAT] a' is not a feature heading"),
        ("commands: {test: nowhere-to-be-found -q}\n", "commands", "`commands.test` needs nowhere-to-be-found"),
        ("workspace: {setup: [nowhere-to-be-found]}\n", "commands", "`workspace.setup[0]` needs nowhere-to-be-found"),
        ("base: elsewhere\n", "base", "there is no branch or commit `elsewhere`"),
        ("pull_requests: {strategy: draft}\n", "remote", "there is no remote 'origin'"),
        ("pull_requests: {strategy: draft}\n", "gh", "`gh` is not"),
        ("tracker: github:acme/tally\n", "gh", "`gh` is not"),
    ],
)
def test_what_is_wrong_with_a_project(
    repo: GitRepo, agent: Mapping[str, str], tmp_path: Path, text: str, name: str, output: str
) -> None:
    own = "pipeline: own\nversion: 1\nphases:\n- {phase: a, gates: [{run: nowhere}], deliver: [push, open_pr]}\n"
    (repo.root / "pipelines").mkdir()
    (repo.root / "pipelines/own.yaml").write_text(own)
    (repo.root / "wrong.md").write_text("## [FEAT] a\n")
    (repo.root / "mz.yaml").write_text(text)
    gh = tmp_path / "tools/bin/gh"
    gh.write_text("#!/bin/sh\nexit 1\n")
    gh.chmod(0o755)
    check = checked(repo.root, agent)[name]
    assert check.status is CheckStatus.FAIL
    assert check.summary.startswith(output)
    assert check.hint


def test_a_model_that_the_price_table_does_not_know_is_named(repo: GitRepo, agent: Mapping[str, str]) -> None:
    """As `mz run` and `mz config validate` name it."""
    assert "models" not in checked(repo.root, agent)
    (repo.root / "mz.yaml").write_text("models: {mid: claude-sonet-4-6, premium: claude-opsu-4-5}\n")
    loaded = load_config(repo.root, agent, {})
    warnings = load_sources(repo.root, agent, loaded, needs_backlog=False).warnings
    messages = [warning.message for warning in warnings if warning.code == "MZ2020"]
    check = checked(repo.root, agent)["models"]
    assert (check.status, check.summary, len(messages)) == (CheckStatus.WARN, "; ".join(messages), 2)
    assert check.hint.startswith("correct it; if the model is new")


def test_the_users_own_prices(repo: GitRepo, agent: Mapping[str, str], tmp_path: Path) -> None:
    outside = {**agent, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert "own-prices" not in checked(repo.root, outside)
    path = tmp_path / "config" / "mz" / "prices.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("prices:\n- {model: m, input: 1, output: 2}\n")
    assert checked(repo.root, outside)["own-prices"] == replace(ok(f"{path}: 1 price"), name="own-prices")
    path.write_text("prices:\n- model: m\n  input: 1\n  output: much\n")
    check = checked(repo.root, outside)["own-prices"]
    assert (check.status, check.summary.startswith(f"{path}:4:11 ")) == (CheckStatus.FAIL, True)
    path.write_bytes(b"\xff")
    assert checked(repo.root, outside)["own-prices"].status is CheckStatus.FAIL
    path.unlink()
    path.symlink_to("nowhere")
    assert checked(repo.root, outside)["own-prices"].status is CheckStatus.FAIL


def test_a_misspelt_variable_is_a_warning(repo: GitRepo, agent: Mapping[str, str]) -> None:
    check = checked(repo.root, {**agent, "MZ_AGNET": "x"})["settings"]
    assert (check.status, check.hint) == (CheckStatus.WARN, "did you mean `MZ_AGENT`?")


def test_logs_of_every_kind(repo: GitRepo, agent: Mapping[str, str]) -> None:
    path = repo.root / ".mz/mz.db"
    with SqliteStore(path):
        pass
    before = sorted(item.name for item in path.parent.iterdir())
    assert checked(repo.root, agent)["log"].summary == "format 1, current"
    assert sorted(folder.name for folder in path.parent.iterdir()) == before
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    newer = checked(repo.root, agent)["log"]
    assert (newer.status, "written by a newer mz" in newer.summary) == (CheckStatus.FAIL, True)
    path.write_bytes(b"no database at all, but long enough to be looked at" * 10)
    assert checked(repo.root, agent)["log"].status is CheckStatus.FAIL


def test_a_log_at_work_is_read_beside_its_writer(repo: GitRepo, agent: Mapping[str, str]) -> None:
    with SqliteStore(repo.root / ".mz/mz.db"):
        assert checked(repo.root, agent)["log"].status is CheckStatus.OK


def test_only_online_asks_remote_and_forge(repo: GitRepo, agent: Mapping[str, str], tmp_path: Path) -> None:
    (repo.root / "mz.yaml").write_text("pull_requests: {strategy: ready}\nbase: main\n")
    repo.git("remote", "add", "origin", str(tmp_path / "nowhere.git"))
    path, gh = tmp_path / "heard", tmp_path / "tools/bin/gh"
    gh.write_text(f'#!/bin/sh\necho "$@" >> {path}\necho a-secret-token\n')
    gh.chmod(0o755)
    offline = checked(repo.root, agent)
    assert (offline["remote"].status, offline["gh"].status) == (CheckStatus.OK, CheckStatus.OK)
    online = checked(repo.root, agent, online=True)
    assert (online["remote"].status, online["gh"].summary) == (CheckStatus.WARN, "logged in")
    assert path.read_text().splitlines() == ["auth token", "auth status"]
    assert "a-secret-token" not in "".join(f"{check}" for check in (*offline.values(), *online.values()))
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "nowhere.git")], check=True)
    assert checked(repo.root, agent, online=True)["remote"].hint == "push it once: git push origin main"
    repo.git("push", "--quiet", "origin", "HEAD:refs/heads/main")
    assert checked(repo.root, agent, online=True)["remote"].summary == "origin answers, and has main"


def test_the_worst_check_counts() -> None:
    assert overall_status([ok(""), warn("")]) is CheckStatus.WARN
    assert overall_status([fail(""), warn("")]) is CheckStatus.FAIL
    assert overall_status([]) is CheckStatus.OK


def test_the_budget_and_who_may_delete_what_was_spent(tmp_path: Path) -> None:
    environment, now_seconds = {"MZ_DATA": str(tmp_path)}, 10.0**9
    assert budget_check(Config(), environment, now_seconds).summary == "no limit"
    record = SpendingRecord(spending_folder(environment))
    with record.lock():
        record.add("k", Amount(nanousd=250_000_000, tokens=7), 10**15, charged=True)
    config = Config(budget=Budget(call_nanousd=Usd(10**9), day_nanousd=Usd(10**9), day_tokens=5))
    sandbox = SandboxSettings(write=(str(tmp_path.parent),))
    check = budget_check(replace(config, sandbox=sandbox), environment, now_seconds)
    text = "$1.00 per call, $1.00 per day ($0.75 left), 5 tokens per day (0 tokens left)"
    assert (check.status, check.summary.partition(";")[0]) == (CheckStatus.WARN, text)
    if can_hide():
        assert budget_check(config, environment, now_seconds).status is CheckStatus.OK
