"""What must be there before anything is paid: the programs of all command lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Command, Config, WorkspaceSettings
from mz_engine.run.plan import (
    check_commands,
    find_agent,
    missing_programs,
    program_of,
    reply_provenance,
    unseen_changes,
)

from tests.support.gitrepo import GitRepo


def configured(test: str, *setup: str) -> Config:
    return Config(commands={"test": Command(run=test)}, workspace=WorkspaceSettings(setup=setup))


@pytest.mark.parametrize(
    ("line", "program"),
    [("npm test", "npm"), ("CI=1 A=b make check", "make"), ("./run.sh", "./run.sh"), ("cd a && make", None),
     ("'quoted'", None), ("if true; then x; fi", None), ("", None)],
)  # fmt: skip
def test_the_program_of_a_line(line: str, program: str | None) -> None:
    assert program_of(line) == program


def test_every_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(MzError) as caught:
        check_commands(tmp_path, configured("nowhere-a -q", "sh -c true", "nowhere-b"), os.environ)
    assert str(caught.value) == (
        "error[MZ1004] `commands.test` needs nowhere-a, which is not on PATH\n"
        "hint: install it, or change commands.test in mz.yaml\n\n"
        "error[MZ1004] `workspace.setup[1]` needs nowhere-b, which is not on PATH\n"
        "hint: install it, or change workspace.setup[1] in mz.yaml"
    )
    check_commands(tmp_path, configured("sh test.sh", "sh setup.sh"), os.environ)


def test_what_the_set_up_makes_need_not_be_there(tmp_path: Path) -> None:
    actual = missing_programs(tmp_path, configured(".venv/bin/pytest"), os.environ)
    assert actual == {"commands.test": ".venv/bin/pytest"}
    assert missing_programs(tmp_path, configured(".venv/bin/pytest", "sh setup.sh"), os.environ) == {}
    (tmp_path / "check").write_text("")
    assert missing_programs(tmp_path, configured("./check"), os.environ) == {}


@pytest.mark.parametrize(
    ("setup", "test", "missing"),
    [
        ("python3 -m venv .venv", "pytest -q", ""),
        ("python3 -m venv .venv", "python -m pytest", ""),
        ("python3 -m venv .venv", "npm test", "npm"),
        ("python3 -m venv .venv", "make test", "make"),
        ("python3 -m venv venv", "pytest -q", ""),
        ("uv sync", "pytest -q", ""),
        ("POETRY_VIRTUALENVS_IN_PROJECT=true poetry install", "pytest -q", ""),
        ("uv sync", "cargo test", "cargo"),
        ("npm ci", "pytest -q", "pytest"),
    ],
)
def test_a_set_up_excuses_only_what_it_can_make(tmp_path: Path, setup: str, test: str, missing: str) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in {program_of(setup)} - {missing, None}:
        (tools / str(name)).write_text("#!/bin/sh\n")
        (tools / str(name)).chmod(0o755)
    programs = missing_programs(tmp_path, configured(test, setup), {"PATH": str(tools)})
    assert programs == ({"commands.test": missing} if missing else {})


@pytest.mark.parametrize(
    ("agent", "variables", "provenance"),
    [
        ("claude-code", {"ANTHROPIC_API_KEY": "k"}, "live"),
        ("claude-code", {"ANTHROPIC_BASE_URL": ""}, "live"),
        ("claude-code", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8080"}, "unknown"),
        ("gemini", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8080"}, "live"),
        ("gemini", {"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:8080"}, "unknown"),
        ("gemini", {"MY_API_BASE": "http://127.0.0.1:8080"}, "unknown"),
    ],
)
def test_replies_of_another_endpoint_are_of_unknown_provenance(
    agent: str, variables: dict[str, str], provenance: str
) -> None:
    assert reply_provenance(Config(agent=agent, pass_environment=("MY_API_BASE",)), variables) == provenance


def test_settings_files_may_name_an_endpoint(tmp_path: Path) -> None:
    claude, codex, home = tmp_path / ".claude/settings.json", tmp_path / ".codex/config.toml", {"HOME": str(tmp_path)}
    for file, agent, plain, own in (
        (claude, "claude-code", '{"env": {"DEBUG": "1"}}', '{"env": {"ANTHROPIC_BASE_URL": "https://gateway"}}'),
        (codex, "codex", 'model = "gpt-5"', 'model_provider = "gateway"'),
    ):
        file.parent.mkdir()
        for text, provenance in ((plain, "live"), (own, "unknown")):
            file.write_text(text)
            assert reply_provenance(Config(agent=agent), home) == provenance


def test_an_unknown_agent_is_told_with_the_known_ones() -> None:
    with pytest.raises(MzError, match=r"known agents: .*claude-code"):
        find_agent("abacus", {})


def test_uncommitted_changes_that_agents_do_not_see_are_named(tmp_path: Path) -> None:
    repo = GitRepo(tmp_path / "repo")
    repo.commit({"src/a.py": "1\n", "gone.py": "1\n", "mz.yaml": "", ".gitignore": "*.log\n"})
    assert list(unseen_changes(repo.root, Config(), os.environ)) == []
    repo.write({"src/a.py": "2\n", "new/caf\udce9.py": "1\n", "x.log": "1", ".mz/mz.db": "1", ".mz/.gitignore": "*"})
    repo.write({"mz.yaml": "base: main\n", "features.md": "# F\n", "pipelines/p.yaml": "", "recordings/a/b": "1"})
    (repo.root / "gone.py").unlink()
    (warning,) = unseen_changes(repo.root, Config(), os.environ)
    assert warning.code == "MZ1010"
    assert warning.message.endswith("start from a commit: gone.py, src/a.py, new/")


def test_a_file_whose_name_begins_as_that_of_the_settings_is_no_file_of_mz(tmp_path: Path) -> None:
    repo = GitRepo(tmp_path / "repo")
    repo.commit({"src/a.py": "1\n"})
    repo.write({"mz.yaml": "", "mz.yaml.py": "1\n"})
    (warning,) = unseen_changes(repo.root, Config(), os.environ)
    assert warning.message.endswith(": mz.yaml.py")
