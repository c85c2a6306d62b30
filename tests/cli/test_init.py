"""`mz init`: looks, asks, proposes, never overwrites."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
import yaml
from mz_cli.app.input import ask_choices
from mz_cli.start.init import InitFile, default_choices, write_file
from mz_engine.agents.contract import AuthCheck
from mz_engine.backlog.markdown import parse_backlog
from mz_engine.config.schema import config_schema
from mz_engine.errors.diagnostics import MzError
from mz_engine.run.settings import load_config
from mz_engine.setup.templates import DetectedProject, InitChoices, Strategy
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import Mz, on_terminal, spawn
from tests.cli.fakeagent import FakeAgent
from tests.support.examples import first_of_each
from tests.support.package_index import make_wheel

COMMIT = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "--message=first")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a commit and a test script; one agent is installed, whatever else this machine has."""
    agent = FakeAgent(tmp_path / "tools", "idle")
    for name, value in agent.environment.items():
        monkeypatch.setenv(name, value)
    (agent.bin / "git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(agent.bin))
    root = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", "--initial-branch=trunk", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), *COMMIT], check=True)
    (root / "package.json").write_text('{"scripts": {"test": "node --test"}}')
    monkeypatch.chdir(root)
    return root


@pytest.mark.slow
def test_first_files(repository: Path, mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("init")
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == snapshot
    loaded = load_config(repository, {}, {})
    assert loaded.config.commands["test"].run == "npm test"
    assert loaded.config.base == "trunk"
    assert len(parse_backlog((repository / "features.md").read_text(), "features.md")) == 1
    assert (repository / ".gitignore").read_text() == ".mz/\n"
    assert json.loads((repository / ".mz/schema/mz.yaml.json").read_text())["title"] == "mz.yaml"
    status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    assert ".mz" not in status
    ran = mz("run")
    assert (ran.exit, "no feature with the status FEAT" in ran.err) == (0, True), "the example costs nothing"


@pytest.mark.slow
def test_nothing_is_written_in_a_dry_run(repository: Path, mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("init", "--dry-run")
    assert answer.exit == 0
    assert answer.out == snapshot
    assert sorted(path.name for path in repository.iterdir()) == [".git", "package.json"]


def identity(path: Path) -> tuple[int, ...]:
    """Changes whenever the file is written to; reading may change the rest."""
    result = os.lstat(path)
    return result.st_ino, result.st_mode, result.st_size, result.st_mtime_ns, result.st_ctime_ns


@pytest.mark.slow
def test_what_is_there_stays(repository: Path, mz: Mz) -> None:
    (repository / "mz.yaml").write_text("agent: claude-code\n")
    (repository / "features.md").symlink_to("nowhere.md")
    (repository / ".gitignore").write_bytes(b"target\r\n/.mz/\r\n")
    before = {name: identity(repository / name) for name in ("mz.yaml", "features.md", ".gitignore")}
    answer = mz("init")
    assert answer.exit == 0
    assert answer.out.count("kept ") == 3
    assert {name: identity(repository / name) for name in before} == before
    assert mz("init").out.count("kept ") == 4


@pytest.mark.parametrize(
    ("before", "after"),
    first_of_each(
        [(b"a", b"a\n.mz/\n"), (b"a\n", b"a\n.mz/\n"), (b"a\r\nb", b"a\r\nb\r\n.mz/\r\n"), (b"\xff\n", b"\xff\n.mz/\n"),
         (b"#.mz\n.mz.yaml\n", b"#.mz\n.mz.yaml\n.mz/\n")],
        lambda case: None,
    ),
)  # fmt: skip
@pytest.mark.slow
def test_gitignore_is_completed(repository: Path, mz: Mz, before: bytes, after: bytes) -> None:
    (repository / ".gitignore").write_bytes(before)
    mz("init")
    assert (repository / ".gitignore").read_bytes() == after


@pytest.mark.slow
def test_an_old_schema_is_renewed(repository: Path, mz: Mz) -> None:
    mz("init")
    schema = repository / ".mz/schema/mz.yaml.json"
    new = schema.read_bytes()
    schema.write_bytes(b"{}")
    assert "updated .mz/schema/mz.yaml.json" in mz("init").out
    assert schema.read_bytes() == new


@pytest.mark.slow
def test_a_repository_without_tests(repository: Path, mz: Mz) -> None:
    (repository / "package.json").unlink()
    answer = mz("init")
    assert answer.exit == 0
    assert answer.err == "hint: no test command was detected; set it under `commands:` in mz.yaml\n"
    assert mz("init").err == ""


@pytest.mark.slow
def test_from_a_folder_inside(repository: Path, mz: Mz,
                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    (repository / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(repository / "src" / "deep")
    assert mz("init").exit == 0
    assert (repository / "mz.yaml").is_file()


@pytest.mark.slow
def test_a_place_that_cannot_be_written(repository: Path, mz: Mz) -> None:
    (repository / ".mz").write_text("a file where a directory should be")
    answer = mz("init")
    assert answer.exit == 15
    assert answer.err.startswith("error[MZ1003] ")
    assert stat.S_ISREG((repository / ".mz").stat().st_mode)


def test_outside_of_any_repository(tmp_path: Path) -> None:
    answer = spawn(tmp_path, "init")
    assert (answer.exit, answer.out) == (15, "")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_named_git_is_no_repository(tmp_path: Path) -> None:
    """Sandboxes leave such ones; git passes them over too."""
    (tmp_path / ".git").mkdir()
    assert spawn(tmp_path, "init").exit == 15
    assert [path.name for path in tmp_path.iterdir()] == [".git"]


def test_a_file_that_appears_meanwhile_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mz.yaml").write_text("mine")
    with pytest.raises(MzError, match="File exists"):
        write_file(tmp_path, InitFile(path="mz.yaml", action="make", about="", content="theirs"))
    assert (tmp_path / "mz.yaml").read_text() == "mine"


@pytest.mark.slow
def test_what_a_dry_run_shows_is_what_is_written(repository: Path, mz: Mz) -> None:
    shown = json.loads(mz("init", "--dry-run", "--json").out)
    output = mz("init", "--dry-run").out
    answer = json.loads(mz("init", "--json").out)
    assert (shown["schema"], shown["dry_run"], answer["dry_run"]) == ("mz.init/1", True, False)
    assert shown == {**answer, "dry_run": True}
    for file in shown["files"]:
        assert (repository / file["path"]).read_text() == file["content"]
    config = (repository / "mz.yaml").read_text()
    assert "".join(f"    {line}\n" for line in config.splitlines()) in output
    jsonschema.Draft7Validator(config_schema()).validate(yaml.safe_load(config))
    assert [file["content"] for file in json.loads(mz("init", "--json").out)["files"]] == [None] * 4


@pytest.mark.slow
def test_what_is_still_to_be_done_is_said(repository: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    output = mz("init", "--dry-run").err
    assert output == (
        "hint: `claude` has neither a login nor a key: run `claude` once and log in, or set ANTHROPIC_API_KEY\n"
    )
    subprocess.run(["git", "update-ref", "-d", "HEAD"], check=True)
    (repository.parent / "tools/bin/claude").unlink()
    output = mz("init", "--dry-run").err
    assert "hint: no agent is installed; `mz doctor` shows how to install claude-code\n" in output
    assert "hint: commit once before `mz run`: worktrees start from a commit\n" in output


@pytest.mark.slow
def test_without_a_commit_there_is_no_plan(repository: Path, mz: Mz) -> None:
    subprocess.run(["git", "update-ref", "-d", "HEAD"], check=True)
    mz("init")
    answer = mz("run", "--dry-run")
    assert (answer.exit, answer.out) == (15, "")
    assert answer.err == (
        "error[MZ1003] the repository has no commit yet\nhint: worktrees start from one: commit once\n"
    )


@pytest.mark.slow
def test_in_a_subfolder_it_says_where_it_writes(repository: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "packages/api").mkdir(parents=True)
    monkeypatch.chdir(repository / "packages/api")
    answer = mz("init")
    assert answer.exit == 0
    assert f"they are in {repository}" in answer.err
    assert "`scope: packages/api` and `backlog: packages/api/features.md` in mz.yaml" in answer.err
    assert (repository / "mz.yaml").is_file()


def test_the_first_agent_that_is_installed_is_taken() -> None:
    ready = AuthCheck(version="1.0")
    assert default_choices(DetectedProject(), {"other": ready, "claude-code": ready}).agent == "claude-code"
    assert default_choices(DetectedProject(), {"other": ready, "third": ready}).agent == "other"
    assert default_choices(DetectedProject(), {}).agent == "claude-code"


def test_an_agent_with_a_login_comes_before_those_without() -> None:
    ready, locked = AuthCheck(), AuthCheck(code="auth-missing")
    assert default_choices(DetectedProject(), {"claude-code": locked, "codex": ready, "gemini": ready}).agent == "codex"
    assert default_choices(DetectedProject(), {"gemini": locked, "claude-code": locked}).agent == "claude-code"
    assert default_choices(DetectedProject(), {"gemini": locked, "codex": locked}).agent == "gemini"


def test_questions_name_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def ask(question: str, default: str) -> str:
        questions.append(question)
        return default

    monkeypatch.setattr("mz_cli.app.input.ask_line", ask)
    ask_choices(InitChoices(), ("claude-code", "codex"), True)
    assert questions[0] == "Which agent? claude-code, codex"
    assert all(word in questions[-1] for word in get_args(Strategy))


def requested(
    *answers: str, agents: tuple[str, ...] = ("claude-code",), forge: bool = False
) -> tuple[InitChoices, list[str]]:
    questions: list[str] = []
    left = list(answers)

    def ask(question: str, default: str) -> str:
        questions.append(question.split()[0])
        return left.pop(0) or default

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mz_cli.app.input.ask_line", ask)
        return ask_choices(InitChoices(test="npm test"), agents, forge), questions


def test_what_is_recognised_can_be_changed() -> None:
    assert requested("", "") == (InitChoices(test="npm test"), ["How", "How"])
    assert requested(" make ", "full_auto")[0] == InitChoices(test="make", autonomy="full_auto")
    every, questions = requested("three", "two", "", "", "draft", agents=("one", "two"), forge=True)
    assert every == InitChoices(agent="two", test="npm test", strategy="draft")
    assert questions == ["Which", "Which", "How", "How", "Open"]


@pytest.mark.slow
def test_questions_are_asked_on_a_terminal(repository: Path) -> None:
    outside = {name: os.environ[name] for name in ("PATH", "HOME", "ANTHROPIC_API_KEY")} | {"CI": ""}
    shown = on_terminal(repository, "init", env=outside, answers="make check\nsupervised\n")
    assert "How is this project tested? A command line [npm test]:" in shown
    config = load_config(repository, {}, {}).config
    assert (config.commands["test"].run, config.autonomy) == ("make check", "supervised")
    assert "?" not in on_terminal(repository, "init", env=outside)


@pytest.mark.slow
@pytest.mark.parametrize(("args", "ci"), [(("--yes",), ""), (("--no-input",), ""), ((), "true"), (("--json",), "")])
def test_nobody_is_asked_who_does_not_want_to_be(repository: Path, args: tuple[str, ...], ci: str) -> None:
    shown = on_terminal(repository, "init", *args, env={"CI": ci})
    assert "tested?" not in shown
    assert load_config(repository, {}, {}).config.commands["test"].run == "npm test"


@pytest.mark.slow
def test_leaving_at_a_question_writes_nothing(repository: Path) -> None:
    shown = on_terminal(repository, "init", env={"CI": ""}, answers="\x04")
    assert shown.rstrip().endswith("stopped")
    assert sorted(path.name for path in repository.iterdir()) == [".git", "package.json"]


@pytest.mark.slow
def test_a_workflow_is_written_once(repository: Path, mz: Mz, tmp_path: Path) -> None:
    refused = mz("init", "--ci", "--yes")
    assert (refused.exit, "MZ2021" in refused.err, (repository / "mz.yaml").exists()) == (10, True, False), "nothing"
    wheel = make_wheel(tmp_path / "elsewhere", "mz-engine", "1.2")
    refused = mz("init", "--ci", "--yes", "--install", str(wheel))
    assert (refused.exit, (repository / "mz.yaml").exists()) == (10, False), "nothing"
    assert f"CI does not have {wheel.as_uri()}" in refused.err
    mine = ("--install", "mz-engine @ git+https://example.org/mz@0123abc", "--unchecked")
    shown = mz("init", "--ci", "--dry-run", *mine)
    assert "would create .github/workflows/mz.yml: replays all recordings" in shown.out
    assert not (repository / ".github").exists()
    assert "mz.yml" not in mz("init", "--dry-run").out
    made = mz("init", "--ci", "--yes", *mine)
    assert "created .github/workflows/mz.yml" in made.out
    assert "hint: CI has no recording to replay yet" in made.err
    path = repository / ".github/workflows/mz.yml"
    workflow = yaml.safe_load(path.read_text())
    assert workflow[True]["push"]["branches"] == ["trunk"]
    runs = [step.get("run", "") for step in workflow["jobs"]["replay"]["steps"]]
    assert f"python -m pip install --disable-pip-version-check '{mine[1]}'\n" in runs
    path.write_text("mine")
    again = json.loads(mz("init", "--ci", "--json").out)
    assert again["files"][-1] == {
        "path": ".github/workflows/mz.yml", "action": "keep", "about": "already exists", "content": None,
    }  # fmt: skip
    assert path.read_text() == "mine"
