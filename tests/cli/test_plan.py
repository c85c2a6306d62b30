"""`mz run --dry-run`: what a run would do, why, and for how much; and that it does nothing."""

from __future__ import annotations

from pathlib import Path
from shutil import which
from typing import Any

import pytest
from mz_cli.terminal.text import exact_usd, parse_usd
from mz_engine.model.pins import Pins, encode_pins
from mz_engine.pipelines.load import load_pipeline, load_valid_pipeline_files
from mz_engine.run.settings import load_config
from mz_events.catalog.run import FeatureAdmitted, FeatureOutcome, FeatureStopped, RunFinished
from mz_events.names import FeatureId
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, decoded, on_terminal
from tests.cli.fakeagent import FakeAgent
from tests.cli.stored_run import StoredRun
from tests.support.gitrepo import GitRepo

BACKLOG = """\
## [FEAT] login: Let people log in
- priority: high

As a person I want to log in.

## [FEAT] audit: Keep a record
- depends on: login

## [FEAT] export: Hand it over
- depends on: audit, login

## [DONE] past: Done before
## [FEAT] stuck: Needs what somebody else does
- depends on: theirs

## [WIP] theirs: In other hands
"""
SETTINGS = "commands: {test: {run: 'true'}}\n"
HOSTILE = "\x1b[31mred\x1b[0m \u202eevil 🎉 漢字 " + "x" * 10_000


@pytest.fixture
def repository(home: Path) -> GitRepo:
    """A repository with a backlog, which commands run in."""
    repository = GitRepo(home)
    repository.commit({"features.md": BACKLOG, "mz.yaml": SETTINGS})
    return repository


def everything(home: Path) -> dict[Path, tuple[bytes, int]]:
    """Bytes and times of every file, and which directories there are; SQLite's readers touch those they read in."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else (b"", 0)
        for path in (home, *home.rglob("*"))
        if not path.is_relative_to(home / ".git")
    }


@pytest.mark.slow
def test_calls_and_estimates_are_those_of_routing(home: Path, repository: GitRepo, mz: Mz) -> None:
    plain = plan(mz)["steps"]
    routing = "routing: {code: {agent: codex, tier: premium}, prd: {tier: premium}}\n"
    repository.commit({"mz.yaml": SETTINGS + routing})
    calls = [{step["phase"]: step["calls"][0] for step in steps} for steps in (plain, plan(mz)["steps"])]
    assert [(by["code"]["agent"], by["code"]["tier"]) for by in calls] == [("claude-code", "mid"), ("codex", "premium")]
    models = [{by[phase]["model"] for phase in ("code", "prd")} for by in calls]
    assert (len(models[0]), len(models[1]), models[0] & models[1]) == (1, 2, set())
    assert plain[0]["estimated_usd"] < plan(mz)["steps"][0]["estimated_usd"]
    assert "premium: codex" in " ".join(on_terminal(home, "run", "--dry-run", columns=200).split())


def plan(mz: Mz, *args: str) -> Any:
    return decoded(mz("run", "--dry-run", "--json", *args))


@pytest.mark.slow
def test_order_and_reasons(repository: GitRepo, mz: Mz) -> None:
    shown = plan(mz)
    assert [(entry["id"], entry["holds"]) for entry in shown["features"]] == [
        ("login", []),
        ("audit", [{"reason": "dependency", "blocked_by": "login"}]),
        ("export", [{"reason": "dependency", "blocked_by": "audit"}, {"reason": "dependency", "blocked_by": "login"}]),
    ]
    assert [(item["id"], item["reason"], item["blocked_by"]) for item in shown["left_out"]] == [
        ("past", "done", None), ("stuck", "dependency", "theirs"), ("theirs", "in-progress", None),
    ]  # fmt: skip


@pytest.mark.slow
def test_what_each_phase_calls_checks_and_asks(repository: GitRepo, mz: Mz) -> None:
    steps = {step["phase"]: step for step in plan(mz)["steps"]}
    assert list(steps) == ["prd", "techspec", "tasks", "code", "tests", "pr"]
    (builder,) = steps["code"]["calls"]
    assert (builder["role"], builder["tier"], builder["tools"]) == ("builder", "mid", ["read", "write", "shell"])
    assert builder["model"].startswith("claude-")
    assert steps["pr"]["calls"][0]["tier"] == "cheap"
    assert steps["code"]["gates"] == ["test"], "lint and build have no command"
    assert steps["prd"]["asks"] == []
    assert "open_pr" in steps["pr"]["delivers"]
    supervised = plan(mz, "--autonomy", "supervised")["steps"]
    assert supervised[0]["asks"] == ["checkpoint"]


def test_the_sums_agree(repository: GitRepo, mz: Mz) -> None:
    shown = plan(mz)
    for rows in (shown["features"], shown["steps"]):
        assert sum(row["estimated_tokens"] for row in rows) == shown["estimated_tokens"]
        assert exact_usd(sum(parse_usd(row["estimated_usd"]) for row in rows)) == shown["estimated_usd"]
    assert shown["within_budget"] is None


def test_a_pipeline_with_cycles_says_what_the_run_adds_and_bounds_a_cycle(repository: GitRepo, mz: Mz) -> None:
    limits = "limits: {items_max: 4, cycles_max: 7}\n"
    repository.commit({"mz.yaml": f"pipeline: generation\nautonomy: full_auto\n{limits}{SETTINGS}"})
    shown = plan(mz)
    assert shown["integration"] == "generation-{time}", "it has its name when the run starts"
    assert [feature["branch"] for feature in shown["features"]][:1] == ["task/generation-{time}-login"]
    assert [(part["kind"], part["items_max"], part["calls"], part["calls_max"]) for part in shown["adds"]] == [
        ("start", 1, 0, 0), ("plan", 1, 1, 3), ("task", 4, 1, 3), ("finish", 1, 0, 0), ("abandon", 1, 0, 0),
    ]  # fmt: skip
    cycle = shown["cycle"]
    assert (cycle["calls"], cycle["calls_max"], cycle["cycles_max"], cycle["unchanged_max"]) == (5, 15, 7, 3)
    assert cycle["estimated_tokens"] == 8_000 + 4 * 24_000
    text = mz("run", "--dry-run", "--format", "table").out
    assert "a cycle: at most 5 to 15 calls, about 104,000 tokens, $" in text
    assert "autonomy full_auto, one at a time\n" in text
    repository.write({"mz.yaml": f"pipeline: generation\nlimits: {{item_parallel_max: 3}}\n{SETTINGS}"})
    assert plan(mz)["parallel_max"] == 2, "that of the run"
    repository.write({"features.md": "## [DONE] past: Done before\n"})
    assert mz("run", "--dry-run", "--exit-code").exit == 1, "the run would plan"


def test_a_plan_bounds_routes_of_units_and_those_who_check_them(repository: GitRepo, mz: Mz) -> None:
    settings = f"pipeline: agentswe\nfailover: [codex]\n{SETTINGS}"
    repository.write({"mz.yaml": settings})
    steps = {step["phase"]: step for step in plan(mz)["steps"]}
    alike = steps["implementation"]
    assert not any(call["others"] for step in steps.values() for call in step["calls"])
    units = "{type: {auth: {tier: premium}, scaffold: {agent: codex, tier: cheap}}}"
    routing = f"independence: agent\nrouting: {{implementation: {{units: {units}}}}}\n"
    repository.write({"mz.yaml": settings + routing})
    steps = {step["phase"]: step for step in plan(mz)["steps"]}
    (call,) = steps["implementation"]["calls"]
    others = [(other["agent"], other["tier"]) for other in call["others"]]
    assert (call["agent"], call["tier"]) == ("claude-code", "cheap")
    assert others[:2] == [("claude-code", "premium"), ("codex", "cheap")]
    assert parse_usd(steps["implementation"]["estimated_high_usd"]) > parse_usd(alike["estimated_high_usd"])
    assert steps["implementation"]["estimated_usd"] == alike["estimated_usd"]
    (call,) = steps["verification"]["calls"]
    assert (call["agent"], [other["agent"] for other in call["others"]]) == ("codex", ["claude-code"])
    text = mz("run", "--dry-run", "--format", "table").out
    assert "builder (mid: codex gpt-6.1-sol or mid: claude-sonnet-4-6)" in text


@pytest.mark.slow
def test_a_budget_that_will_not_do(repository: GitRepo, mz: Mz) -> None:
    repository.write({"mz.yaml": f"{SETTINGS}budget: {{run: '0.60', feature: '0.40'}}\n"})
    shown = plan(mz)
    held = {item["id"]: [hold["reason"] for hold in item["holds"]] for item in shown["features"]}
    assert held["login"] == ["feature-budget"]
    assert "run-budget" in held["audit"]
    assert shown["within_budget"] is False
    answer = mz("run", "--dry-run")
    assert "the budget is too low: it will be used up at about audit" in answer.out
    assert "of $0.60" in answer.out


@pytest.mark.slow
def test_a_model_without_a_price(repository: GitRepo, mz: Mz) -> None:
    repository.write({"mz.yaml": f"{SETTINGS}models: {{mid: nobody-knows-it}}\n"})
    shown = plan(mz)
    assert shown["estimated_usd"] is None
    assert shown["estimated_tokens"] > 0
    assert shown["steps"][0]["calls"][0]["model"] == "nobody-knows-it"
    assert shown["features"][0]["estimated_usd"] is None
    assert "tokens, unpriced" in mz("run", "--dry-run").out


@pytest.mark.slow
def test_what_a_run_would_miss_is_told(
    repository: GitRepo, home: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "mz.yaml").write_text("commands: {test: nowhere-a}\npull_requests: {strategy: draft}\n")
    (home / "bin").mkdir()
    (home / "bin/git").symlink_to(Path(which("git") or ""))
    monkeypatch.setenv("PATH", str(home / "bin"))
    answer = mz("run", "--dry-run")
    lines = [line for line in answer.err.splitlines() if line.startswith("warning") and "bin/" not in line]
    assert (answer.exit, lines) == (0, [
        "warning[MZ3009] pipeline steps are skipped: mz.yaml has no command `build`, `lint`",
        "warning[MZ1004] `claude` is not on PATH",
        "warning[MZ1004] `commands.test` needs nowhere-a, which is not on PATH",
        "warning[MZ1003] the remote 'origin' for pull requests does not exist",
    ])  # fmt: skip
    repository.git("remote", "add", "origin", "/nowhere")
    assert "warning[MZ1004] pull requests need `gh`, which is not on PATH" in mz("run", "--dry-run").err


@pytest.mark.parametrize("args", [(), ("--json",), ("--exit-code",)])
@pytest.mark.slow
def test_nothing_is_written(repository: GitRepo, home: Path, mz: Mz, args: tuple[str, ...]) -> None:
    refs = repository.git("for-each-ref")
    before = everything(home)
    assert mz("run", "--dry-run", *args).exit == (1 if args == ("--exit-code",) else 0)
    assert everything(home) == before
    assert not (home / ".mz").exists()
    assert repository.git("for-each-ref") == refs


@pytest.mark.slow
def test_nothing_is_written_where_something_ran(repository: GitRepo, home: Path, mz: Mz) -> None:
    """Not even the read models that a real run brings up to date."""
    log = StoredRun(home).begin("login")
    log.deliver("login")
    log.to_run(RunFinished())
    log.close()
    before = everything(home)
    shown = plan(mz)
    assert everything(home) == before
    assert "login" in [item["id"] for item in shown["left_out"] if item["reason"] == "delivered"]


@pytest.mark.slow
def test_the_agents_that_take_over_are_named(repository: GitRepo, mz: Mz) -> None:
    repository.write({"mz.yaml": f"{SETTINGS}failover: [codex, claude-code, gemini]\n"})
    shown = plan(mz)
    assert (shown["agent"], shown["failover"]) == ("claude-code", ["codex", "gemini"])
    assert "agent claude-code, then codex, then gemini, autonomy" in mz("run", "--dry-run").out


@pytest.mark.slow
def test_an_unfinished_run_goes_on(repository: GitRepo, home: Path, mz: Mz) -> None:
    log = unfinished_run(home)
    log.close()
    shown = plan(mz)
    assert shown["continued_run"] == log.run
    assert shown["features"] == []
    assert mz("run", "--dry-run", "--exit-code").exit == 1


def unfinished_run(home: Path) -> StoredRun:
    """Three features under supervision."""
    config = load_config(home, {}, {"autonomy": "supervised"}).config
    material = load_valid_pipeline_files(home)
    pipeline, _ = load_pipeline(config.pipeline, home)
    pins = Pins(pipeline=pipeline, rules=material.rules, templates=material.templates, config=config)
    return StoredRun(home).begin("login", "audit", "export", pins=encode_pins(pins))


@pytest.mark.slow
def test_an_unfinished_run_keeps_its_settings(repository: GitRepo, home: Path, mz: Mz) -> None:
    log = unfinished_run(home)
    waits = FeatureStopped(feature=FeatureId("login"), version=1, status=FeatureOutcome.WAITING)
    log.to_run(FeatureAdmitted(feature=FeatureId("login")), waits)
    log.close()
    repository.write({"mz.yaml": f"{SETTINGS}autonomy: full_auto\nparallel_max: 7\nagent: codex\n"})
    shown = plan(mz, "--autonomy", "supervised")
    assert (shown["autonomy"], shown["parallel_max"], shown["agent"]) == ("supervised", 2, "claude-code")
    assert "waiting for an answer: login; see `mz review list`" in mz("run", "--dry-run").err
    for dry in ((), ("--dry-run",)):
        answer = mz("run", *dry, "--autonomy", "full_auto", "--agent", "codex")
        assert answer.exit == 16
        assert "has agent claude-code and autonomy supervised, and keeps it" in answer.err
        assert f"mz cancel {log.run}" in answer.err
        unknown = mz("run", *dry, "--agent", "nobody")
        assert (unknown.exit, "command line: `agent`: unknown agent 'nobody'" in unknown.err) == (10, True)


@pytest.mark.slow
def test_a_run_names_all_that_is_wrong(repository: GitRepo, mz: Mz) -> None:
    repository.write({"mz.yaml": "pipeline: mnozukuri\nbacklog: wrong.md\nbase: nobranch\n"})
    for args in (("run",), ("run", "--dry-run"), ("config", "validate")):
        answer = mz(*args)
        assert answer.exit == 10
        places = [line.split()[1] for line in answer.err.splitlines() if line.startswith("error")]
        assert places == ["mz.yaml:3:7", "mz.yaml:1:11", "wrong.md"]


@pytest.mark.slow
def test_the_exit_code_says_whether_there_is_work(repository: GitRepo, mz: Mz) -> None:
    assert mz("run", "--dry-run", "--exit-code").exit == 1
    repository.write({"features.md": BACKLOG.replace("[FEAT]", "[DONE]")})
    assert mz("run", "--dry-run", "--exit-code").exit == 0
    refused = mz("run", "--exit-code")
    assert refused.exit == 2
    assert "--exit-code requires --dry-run" in refused.err


@pytest.mark.slow
def test_tabs_hold_the_features_alone(repository: GitRepo, mz: Mz, snapshot: SnapshotAssertion) -> None:
    assert mz("run", "--dry-run", "--format", "tsv").out == snapshot
    in_a_pipe = mz("run", "--dry-run").out
    assert in_a_pipe.startswith("a new run: monozukuri on main, agent claude-code, ")
    assert "left out: theirs: in-progress\n" in in_a_pipe
    assert "\t" not in in_a_pipe


@pytest.mark.slow
@pytest.mark.parametrize("columns", [20, 80, 120])
def test_on_a_terminal(
    repository: GitRepo, home: Path, columns: int, snapshot: SnapshotAssertion, tmp_path_factory: pytest.TempPathFactory
) -> None:
    agent = FakeAgent(tmp_path_factory.mktemp("agent"), "idle").environment
    shown = on_terminal(home, "run", "--dry-run", columns=columns, env={**agent, "NO_COLOR": "1"})
    assert "\x1b" not in shown
    assert "\n".join(line.rstrip() for line in shown.splitlines()) == snapshot


@pytest.mark.parametrize("columns", [1, 20, 80])
@pytest.mark.slow
def test_hostile_titles(repository: GitRepo, home: Path, columns: int, mz: Mz) -> None:
    repository.write({"features.md": f"## [FEAT] login: {HOSTILE}\n\n{HOSTILE}\n"})
    shown = on_terminal(home, "run", "--dry-run", columns=columns, env={"NO_COLOR": "1"})
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    rows = mz("run", "--dry-run", "--format", "tsv").out.splitlines()
    assert len(rows) == 2
    assert "🎉 漢字 " + "x" * 10_000 in rows[1]
    assert plan(mz)["features"][0]["title"].endswith("x" * 10_000)


@pytest.mark.slow
def test_thousands_of_features(repository: GitRepo, home: Path, mz: Mz) -> None:
    def feature(number: int) -> str:
        after = f"- depends on: f{number - 1}\n" if number % 3 else ""
        return f"## [FEAT] f{number}: Feature {number}\n{after}\nWords of it{'.' * (number % 50)}\n"

    repository.write({"features.md": "\n".join(feature(number) for number in range(5000))})
    shown = plan(mz)
    assert len(shown["features"]) == 5000
