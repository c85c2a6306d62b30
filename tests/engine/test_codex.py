"""The adapter for `codex`: what it starts, what it lets through, and what it finds out without calling a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.agents.codex.adapter import Codex
from mz_engine.agents.registry import built_in_adapters, load_patterns

from tests.support import programs
from tests.support.codex_cli import spec

invocation = Codex(load_patterns()).invocation

ADAPTER = built_in_adapters()["codex"]
THREAD = "01a1ffbe-f7cb-7430-bb9f-b557a3820cbb"


def test_the_command_line() -> None:
    started = invocation(spec("do it", None, tools=("read", "write")), {})
    settings = [started.argv[at + 1] for at, word in enumerate(started.argv) if word == "-c"]
    texts = [word for word in started.argv if word != "-c" and word not in settings]
    assert texts == [
        "codex", "exec", "--json", "--skip-git-repo-check", "-m", "gpt-6.1-sol", "-s", "workspace-write", "-",
    ]  # fmt: skip
    assert settings == [
        "agents.enabled=false", "analytics.enabled=false", 'approval_policy="never"',
        "check_for_update_on_startup=false", "features.apps=false", "features.plugins=false",
        "features.unbounded_connection_retries=false", "sandbox_workspace_write.exclude_slash_tmp=true",
        'web_search="disabled"',
    ]  # fmt: skip
    assert started.stdin == b"do it"


def test_a_thread_is_continued() -> None:
    argv = invocation(spec("more", THREAD, resumes=True), {}).argv
    assert argv[-3:] == ("resume", THREAD, "-")
    assert argv.index("-s") < argv.index("resume")


def test_a_new_thread_gets_its_name_from_codex() -> None:
    assert THREAD not in invocation(spec("begin", THREAD), {}).argv


@pytest.mark.parametrize(
    ("tools", "sandbox"),
    [
        ((), "read-only"),
        (("read",), "read-only"),
        (("read", "write"), "workspace-write"),
        (("read", "shell"), "workspace-write"),
    ],
)
def test_the_sandbox_follows_from_the_tools(tools: tuple[str, ...], sandbox: str) -> None:
    argv = invocation(spec("x", None, tools=tools), {}).argv
    assert argv[argv.index("-s") + 1] == sandbox


def test_without_tools_it_cannot_run_commands() -> None:
    assert "features.shell_tool=false" in invocation(spec("x", None, tools=()), {}).argv
    assert "features.shell_tool=false" not in invocation(spec("x", None, tools=("read",)), {}).argv


def test_what_passes_of_the_environment() -> None:
    outside = {"CODEX_API_KEY": "k", "CODEX_HOME": "/c", "GITHUB_TOKEN": "t", "HOME": "/h"}
    started = invocation(spec("x", None), outside)
    assert started.env == {
        "CODEX_API_KEY": "k",
        "CODEX_HOME": "/c",
        "TMPDIR": "/var/tmp",
        "CODEX_SQLITE_HOME": "/c/mz-databases",
    }
    assert not any("k" in word.split("=") for word in started.argv)


def outside(tmp_path: Path, script: str, **more: str) -> dict[str, str]:
    return programs.outside(tmp_path, "codex", script, **more)


def test_the_command_is_missing(tmp_path: Path) -> None:
    check = ADAPTER.check_auth({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert check.code == "tool-missing"
    assert "npm install -g @openai/codex" in check.fix


def test_nobody_is_logged_in(tmp_path: Path) -> None:
    check = ADAPTER.check_auth(outside(tmp_path, "echo 'codex-cli 0.169.0'", OPENAI_API_KEY="not-read-by-codex"))
    assert (check.code, check.version) == ("auth-missing", "0.169.0")
    assert "codex login" in check.fix


@pytest.mark.parametrize("output", ["codex-cli 0.169.0", "0.169.0 (recorded)", "codex-cli 0.170.0-alpha.1"])
def test_the_version(tmp_path: Path, output: str) -> None:
    check = ADAPTER.check_auth(outside(tmp_path, f"echo '{output}'", CODEX_API_KEY="tell-nobody"))
    assert check.code == ""
    assert check.version in output
    assert "tell-nobody" not in repr(check)


def test_an_old_version_is_refused(tmp_path: Path) -> None:
    check = ADAPTER.check_auth(outside(tmp_path, "echo codex-cli 0.143.0", CODEX_API_KEY="k"))
    assert (check.code, check.version) == ("tool-missing", "0.143.0")
    assert "0.169" in check.message


@pytest.mark.parametrize("path", ["home", "elsewhere"])
@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        ("auth.json", "{}", ""),
        ("config.toml", 'model_provider = "local"\n', ""),
        ("config.toml", 'model_provider = "openai"\n', "auth-missing"),
        ("config.toml", 'model = "gpt-6.1-sol"\n', "auth-missing"),
        ("config.toml", "model_provider = \n", "auth-missing"),
    ],
)
def test_a_login_in_a_file(tmp_path: Path, path: str, file: str, content: str, code: str) -> None:
    folder = tmp_path / (".codex" if path == "home" else path)
    folder.mkdir()
    (folder / file).write_text(content)
    more = {} if path == "home" else {"CODEX_HOME": str(folder)}
    assert ADAPTER.check_auth(outside(tmp_path, "echo codex-cli 0.169.0", **more)).code == code
